"""SOLD's correction for one-hot features, where each entry of the moment can be corrected by itself.

With one-hot features D1 and D2 of a user are diagonal, d1 and d2, and given the actions E[X_ab] = d1_a S_ab d2_b for X
= b1 b2^T. So for any logger that does not look at tastes, and for any mixture of history lengths,

    S_ab = E[X_ab + X_ba] / E[d1_a d2_b + d1_b d2_a],

entry by entry, by the *joint* coverage of the two halves. The product of their means, which the paper divides by, is
something else wherever halves depend on each other. In a ratings file they do: nobody rates a film twice, so the halves
exclude each other, X has a zero diagonal, and more users do not help. Pairs (a, b) that few users meet together are
noisy, and a share 1/sqrt(N) of the paper's pooled equation is added, as for strata (`newcomer.sold.correction`).

The diagonal is left out throughout. Where nobody meets an action twice it is not observed; where people do, two rewards
for the same action share what this person thinks of it, which is no shared direction, so that the observed diagonal is
too large by its variance. A moment of rank k is known from what is off the diagonal, as long as (c - k)^2 >= c + k for
c actions (Ledermann 1937): the diagonal is that of the best matrix of rank k, found by turns. Only where a rank beyond
that is asked for is an observed diagonal taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

from newcomer.arrays import Floats, Ints, symmetric
from newcomer.sold.moments import Moments

TURNS = 1000
TOLERANCE = 1e-9  # change of the diagonal, relative to its largest entry, at which the turns end
DENSE = 300  # up to this size all of a matrix is decomposed


@dataclass(frozen=True)
class JointCorrection:
    """Undoes what coverage did to X, entry by entry, over the c actions that both halves of the histories meet."""

    span: Floats  # (d, c) unit vectors
    divisor: Floats  # (c, c), symmetric
    symmetric_first: bool = True  # the moment may be symmetrised before it is corrected: the radius is that of M

    @classmethod
    def of(cls, moments: Moments) -> JointCorrection:
        """From the joint coverage of one-hot `moments`."""
        reached = moments.mean_coverage.diagonal(axis1=1, axis2=2)  # (2, d) means of d1, d2
        both = np.flatnonzero((reached > 0).all(axis=0))
        first, second = reached[:, both]
        damping = 1.0 / np.sqrt(max(moments.count, 1))
        joint = moments.joint[np.ix_(both, both)] / max(moments.count, 1)
        mixed = (joint + damping * np.outer(first, second)) / (1.0 + damping)
        return cls(np.eye(moments.dim)[:, both], symmetric(mixed))

    @property
    def most(self) -> int:
        """The largest rank up to which the diagonal follows from the rest.

        >>> [JointCorrection(np.eye(c), np.ones((c, c))).most for c in (2, 3, 5, 6, 100)]
        [0, 1, 2, 3, 86]
        """
        count = len(self.divisor)
        return int(np.floor((2 * count + 1 - np.sqrt(8 * count + 1)) / 2 + 1e-9))

    @property
    def inverse_norm(self) -> float:
        """The square root of a bound on ||W o A|| / ||A|| over matrices A, W being one over the divisor, entrywise.

        For W = F G^T that is at most the largest product of the lengths of a row of F and a row of G (Schur); with the
        symmetric square root of |W| it is the largest diagonal entry of |W|.
        """
        values, vectors = np.linalg.eigh(1.0 / self.divisor)
        return float(np.sqrt((vectors**2 @ np.abs(values)).max()))

    def pooled(self, matrices: Floats) -> Floats:
        """The corrected moments (..., c, c) of `matrices` (..., d, d); the diagonal is as observed."""
        places = np.argmax(self.span, axis=0)
        inside: Floats = symmetric(matrices[..., places[:, None], places]) / self.divisor
        return inside

    stratified = pooled

    def hollow(self, matrices: Floats) -> Floats:
        """Corrected moments without their diagonals, which the test of the rank must not see either."""
        emptied = matrices.copy()
        places: Ints = np.arange(emptied.shape[-1])
        emptied[..., places, places] = 0.0
        return emptied if self.most else matrices

    def filled(self, matrix: Floats, rank: int) -> Floats:
        """The corrected moment (c, c) with the diagonal that rank `rank` gives it."""
        if rank > self.most and (matrix.diagonal() != 0).all():
            return matrix
        return complete_diagonal(self.hollow(matrix), min(rank, self.most))


def complete_diagonal(matrix: Floats, rank: int) -> Floats:
    """A symmetric matrix (c, c) with the diagonal of its best positive approximation of this rank, found by turns.

    Each turn takes the leading eigenvectors of the matrix with the diagonal so far, and the diagonal of what they make
    up: neither half of a turn increases the squared error off the diagonal (the principal factor method).

    >>> u = np.array([1.0, 2.0, -1.0, 0.5])
    >>> complete_diagonal(np.outer(u, u) * (1 - np.eye(4)), 1).diagonal().round(6).tolist()
    [1.0, 4.0, 1.0, 0.25]
    """
    filled = matrix.copy()
    np.fill_diagonal(filled, 0.0)
    if not rank:
        return filled
    diagonal, start = np.zeros(len(matrix)), np.ones(len(matrix))
    for _ in range(TURNS):
        values, vectors = leading(filled, rank, start)
        now = (vectors**2) @ np.maximum(values, 0.0)
        change = np.abs(now - diagonal).max()
        diagonal, start = now, vectors.sum(axis=1)
        np.fill_diagonal(filled, diagonal)
        if change <= TOLERANCE * max(diagonal.max(), np.finfo(np.float64).tiny):
            break
    return filled


def leading(matrix: Floats, rank: int, start: Floats) -> tuple[Floats, Floats]:
    """The `rank` largest eigenvalues (rank,) and their eigenvectors (c, rank); `start` (c,) is near their span."""
    count = len(matrix)
    if count <= DENSE or rank > count // 4:
        return eigh(matrix, subset_by_index=[count - rank, count - 1])  # type: ignore[no-any-return]
    try:
        return eigsh(matrix, rank, which="LA", v0=start)  # type: ignore[no-any-return]
    except ArpackError:  # of a matrix of zeros, or a start outside the span
        return eigh(matrix, subset_by_index=[count - rank, count - 1])  # type: ignore[no-any-return]
