"""Population: the distribution of users that both estimators return, and the one record of an estimate.

Users differ from their mean along k directions, and rewards are linear in a user's reward vector:

    beta_n = m + L z_n,   z_n ~ N(0, I_k),   reward = phi^T beta_n + noise of variance s2.

What attributes say of a user's coordinates: the prior of z, given what is known of the user.

Over all users z ~ N(0, I_k). Attributes, encoded as x with mean zero and covariance C over users (`encoding`), shift
it: z given x is normal with

    mean  Gamma x,      covariance  I - Gamma C Gamma^T,

so that the mean over users is zero and their covariance the identity again, whatever Gamma is. Where some entries of x
are missing, they are what the others make expected, C_mo C_oo^-1 x_o, and the covariance is wider by Gamma C_m|o
Gamma^T, C_m|o their covariance given the others: nothing known is N(0, I) itself.

As information: with S the covariance given x, the precision S^-1 - I and the moment S^-1 Gamma x are what x adds to a
system that begins with the identity and zero. They add up with what rewards tell, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.evidence import PopulationFacts
from newcomer.one_hot import Catalogue, Square, one_hot_is_wide
from newcomer.radius import Draws
from newcomer.records import Shown, freeze_record
from newcomer.subspace import fix_subspace_signs, top_eigenvectors

DEAD = 1e-3  # a direction that explains less than this share of what the first explains is dead
CLEARLY = 4.0  # times what sampling leaves by itself: then a mean lies outside the span of the directions


@dataclass(frozen=True)
class Population(Shown):
    """Reward vectors have the mean `mean` (d,) and the covariance L L^T, L = `factor` (d, k); rewards have a residual.

    `noise_variance` is the variance of the residual, averaged over rows; `by_action` (A,) that of each action, None
    where it is one for all. `offsets` (A,) are zero where None. `share` of the residual comes again with the action.
    `units` (A,) are those in which errors of prediction are counted; an ascent does not change them. `uncertainty`
    (A,), or (1,) where no action is named: variance of the error of phi^T (m + L z) + o, which few rows leave
    (`Optimizer.uncertainty`); None: unknown.
    """

    mean: Floats
    factor: Floats
    noise_variance: float
    by_action: Floats | None = None
    offsets: Floats | None = None
    share: float = 0.0
    units: Floats | None = None
    uncertainty: Floats | None = None

    def __post_init__(self) -> None:
        freeze_record(self)

    @property
    def rank(self) -> int:
        """Directions k along which users differ."""
        return int(self.factor.shape[1])

    @property
    def variances(self) -> Floats:
        """v (A,), or (1,) where it is one for all actions.

        >>> Population(np.zeros(2), np.zeros((2, 0)), 0.5).variances.tolist()
        [0.5]
        """
        return np.array([self.noise_variance]) if self.by_action is None else self.by_action

    @property
    def levels(self) -> Floats:
        """o (A,), zeros where there are no offsets."""
        return np.zeros(len(self.variances)) if self.offsets is None else self.offsets

    @property
    def weights(self) -> Floats:
        """W = [m, L], (d, k + 1)."""
        weights = np.empty((len(self.mean), self.factor.shape[1] + 1))
        weights[:, 0], weights[:, 1:] = self.mean, self.factor
        return weights

    @property
    def second_moment(self) -> Floats:
        """E[beta beta^T] = m m^T + L L^T, (d, d), whose leading directions are the basis.

        >>> Population(np.array([1.0, 0.0]), np.array([[0.0], [2.0]]), 1.0).second_moment.tolist()
        [[1.0, 0.0], [0.0, 4.0]]
        """
        return np.outer(self.mean, self.mean) + self.factor @ self.factor.T

    def leading(self, rank: int) -> Floats:
        """An orthonormal basis (d, rank) of the leading directions of E[beta beta^T].

        It is the product of W = [m, L] with its transpose, so that its directions are singular vectors of W: where
        there are many features the matrix itself is not formed.
        """
        if not one_hot_is_wide(len(self.mean)):
            return top_eigenvectors(self.second_moment, rank)[1]
        return fix_subspace_signs(np.linalg.svd(self.weights, full_matrices=False)[0][:, :rank])

    def principal(self) -> Population:
        """The same population with orthogonal columns in the factor, longest first."""
        left, lengths, _ = np.linalg.svd(self.factor, full_matrices=False)
        return replace(self, factor=left * lengths)

    def truncated(self, gram: Square, rank: int, table: Catalogue | None = None) -> Population:
        """The `rank` directions along which rewards differ most; what the others explained becomes residual.

        Rewards of actions with C = E[phi phi^T] = `gram` (d, d) keep their variance, each action with features in
        `table` (A, d) its own.

        >>> two = Population(np.zeros(2), np.diag([2.0, 1.0]), 0.5)
        >>> two.truncated(np.eye(2), 1).noise_variance
        1.5
        """
        values, vectors = _axes(self.factor, gram)
        rest, kept, dropped = float(values[rank:].sum()), vectors[:, :rank], vectors[:, rank:]
        more = rest if table is None else np.einsum("ak,ak->a", *(2 * [table @ (self.factor @ dropped)]))
        by_action = None if self.by_action is None else self.by_action + more
        return replace(self, factor=self.factor @ kept, noise_variance=self.noise_variance + rest, by_action=by_action)

    def revived(self, start: Population, gram: Square, share: float = 0.1) -> Population:
        """The population with its dead directions replaced by a `share` of those of `start` beyond the living ones.

        A direction that shrank to nothing has no gradient and cannot return by itself. Axes are those of the metric
        `gram` (d, d), the sum of phi phi^T.
        """
        values, vectors = _axes(self.factor, gram)
        living = int((values > DEAD * values[0]).sum()) if len(values) else 0
        if living == len(values):
            return self
        alive = self.factor @ vectors[:, :living]
        image = gram @ alive
        beyond = start.factor
        if living:
            beyond = beyond - alive @ np.linalg.solve(image.T @ alive, image.T @ beyond)
        fresh = share * beyond @ _axes(beyond, gram)[1][:, : len(values) - living]
        return replace(self, factor=np.column_stack([alive, fresh]))

    def widened(self, start: Population, gram: Square, share: float = 0.1) -> Population:
        """The population with the rank of `start`: its directions, and a `share` of those of `start` beyond them."""
        room = np.zeros((len(self.mean), start.rank - self.rank))
        return replace(self, factor=np.column_stack([self.factor, room])).revived(start, gram, share)

    def basis_rank(self, gram: Square, rows: float) -> int:
        """The rank of E[beta beta^T]: that of the factor, and one more if the mean lies outside its span.

        With the mean m = L a inside the span, sampling alone still leaves about (1 + |a|^2) d s2 / rows of the variance
        of rewards outside the estimated span (the errors of m and of L a); the mean counts as outside if it shows
        `CLEARLY` times that. `gram` (d, d) is C = E[phi phi^T] over the `rows` of the logs.
        """
        dim, image = len(self.mean), gram @ self.factor
        inside = np.linalg.lstsq(self.factor.T @ image, image.T @ self.mean, rcond=None)[0]
        outside = self.mean - self.factor @ inside
        chance = (1.0 + float(inside @ inside)) * dim * self.noise_variance / rows
        return self.rank + int(self.rank < dim and float(outside @ gram @ outside) > CLEARLY * chance)


def _axes(factor: Floats, gram: Square) -> tuple[Floats, Floats]:
    """Variances of rewards (k,) along the principal axes of a factor in the metric of the features, largest first, and
    the rotation (k, k) that turns the factor's columns into these axes."""
    values, vectors = np.linalg.eigh(factor.T @ gram @ factor)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


@dataclass(frozen=True)
class Estimate:
    """What an estimator found: a basis (d, rank) of the shared subspace, and the distribution of users.

    `calibrated` has draws of the error of the basis, where they were asked for and there is a basis; `facts` says how
    the distribution was chosen, where there was a choice (EM), `error_scales` (2, J) how users who were held out of it
    fit in.
    """

    basis: Floats
    population: Population
    calibrated: Draws | None = None
    facts: PopulationFacts | None = None
    error_scales: Floats | None = None


LEAST = 1e-4  # variance of a coordinate that attributes leave: users are never known by them alone


@dataclass(frozen=True)
class AttributePrior(Shown):
    """`effects` Gamma (k, p), and the `covariance` C (p, p) of encoded attributes over users.

    >>> prior = AttributePrior(np.array([[0.6]]), np.eye(1))
    >>> mean, covariance = prior.given(np.array([[2.0], [np.nan]]))
    >>> mean.tolist(), covariance.round(2).tolist()
    ([[1.2], [0.0]], [[[0.64]], [[1.0]]])
    """

    effects: Floats
    covariance: Floats

    def __post_init__(self) -> None:
        freeze_record(self)

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


def population_attribute_covariance(counts: Floats, products: Floats) -> Floats:
    """The covariance (p, p) of centred entries from sums of products over users who have both, none negative.

    >>> population_attribute_covariance(np.full((1, 1), 4.0), np.full((1, 1), 2.0)).tolist()
    [[0.5]]
    """
    raw = products / np.maximum(counts, 1.0)
    values, vectors = np.linalg.eigh((raw + raw.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _at_least(covariance: Floats) -> Floats:
    """The covariance with eigenvalues of `LEAST` or more."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray((vectors * np.maximum(values, LEAST)) @ vectors.T)
