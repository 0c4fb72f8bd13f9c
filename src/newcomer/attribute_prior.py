"""What attributes say of a user's coordinates: the prior of z, given what is known of the user.

Over all people z ~ N(0, I_k). Attributes, encoded as x with mean zero and covariance C over people (`encoding`), shift
it: z given x is normal with

    mean  Gamma x,      covariance  I - Gamma C Gamma^T,

so that the mean over people is zero and their covariance the identity again, whatever Gamma is. Where some entries of x
are missing, they are what the others make expected, C_mo C_oo^-1 x_o, and the covariance is wider by Gamma C_m|o
Gamma^T, C_m|o their covariance given the others: nothing known is N(0, I) itself.

As information: with S the covariance given x, the precision S^-1 - I and the moment S^-1 Gamma x are what x adds to a
system that begins with the identity and zero. They add up with what rewards tell, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.records import Shown, freeze

LEAST = 1e-4  # variance of a coordinate that attributes leave: people are never known by them alone


@dataclass(frozen=True)
class AttributePrior(Shown):
    """`effects` Gamma (k, p), and the `covariance` C (p, p) of encoded attributes over people.

    >>> prior = AttributePrior(np.array([[0.6]]), np.eye(1))
    >>> mean, covariance = prior.given(np.array([[2.0], [np.nan]]))
    >>> mean.tolist(), covariance.round(2).tolist()
    ([[1.2], [0.0]], [[[0.64]], [[1.0]]])
    """

    effects: Floats
    covariance: Floats

    def __post_init__(self) -> None:
        freeze(self)

    def given(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean (n, k) and covariance (n, k, k) of z given encoded attributes (n, p), NaN where missing."""
        rank = len(self.effects)
        filled = np.zeros_like(x)
        covariances = np.empty((len(x), rank, rank))
        patterns, which = np.unique(np.isfinite(x), axis=0, return_inverse=True)
        for number, known in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            filled[rows], left = self._completed(x[rows], known)
            covariances[rows] = _at_least(np.eye(rank) - self.effects @ (self.covariance - left) @ self.effects.T)
        return filled @ self.effects.T, covariances

    def completed(self, x: Floats) -> Floats:
        """The attributes (n, p) with what is expected of missing ones in their place."""
        filled = np.zeros_like(x)
        patterns, which = np.unique(np.isfinite(x), axis=0, return_inverse=True)
        for number, known in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            filled[rows], _ = self._completed(x[rows], known)
        return filled

    def information(self, x: Floats) -> tuple[Floats, Floats]:
        """What attributes add to the precision (n, k, k) and to the moment (n, k) of z."""
        mean, covariance = self.given(x)
        precision = np.linalg.inv(covariance)
        return precision - np.eye(precision.shape[1]), np.einsum("nij,nj->ni", precision, mean)

    def _completed(self, x: Floats, known: Bools) -> tuple[Floats, Floats]:
        """Rows (m, p) with the same entries `known` (p,), filled, and the covariance (p, p) of what was missing."""
        covariance, left = self.covariance, np.zeros_like(self.covariance)
        filled = np.where(known, x, 0.0)
        if known.all():
            return filled, left
        gone = ~known
        weights = np.linalg.pinv(covariance[np.ix_(known, known)], rcond=1e-6, hermitian=True)
        through = covariance[np.ix_(gone, known)] @ weights
        filled[:, gone] = filled[:, known] @ through.T
        left[np.ix_(gone, gone)] = covariance[np.ix_(gone, gone)] - through @ covariance[np.ix_(known, gone)]
        return filled, left


def covariance_of(counts: Floats, products: Floats) -> Floats:
    """The covariance (p, p) of centred entries from sums of products over people who have both, none negative.

    >>> covariance_of(np.full((1, 1), 4.0), np.full((1, 1), 2.0)).tolist()
    [[0.5]]
    """
    raw = products / np.maximum(counts, 1.0)
    values, vectors = np.linalg.eigh((raw + raw.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _at_least(covariance: Floats) -> Floats:
    """The covariance with eigenvalues of `LEAST` or more."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray((vectors * np.maximum(values, LEAST)) @ vectors.T)
