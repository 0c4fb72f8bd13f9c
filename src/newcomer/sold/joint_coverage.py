"""SOLD's correction for one-hot features, where each entry of the moment can be corrected by itself.

With one-hot features D1 and D2 of a user are diagonal, d1 and d2, and given the actions E[X_ab] = d1_a S_ab d2_b for X
= b1 b2^T. So for any logger that does not look at preferences, and for any mixture of history lengths,

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

What is completed may be impossible: where an action has few pairs, the best matrix of rank k can spend a whole
direction on it (a Heywood case). But r = beta_a + noise, so that S_aa <= E[r_a^2], which every row of an action
estimates: no completed entry exceeds it, and none of the covariance exceeds the variance of r_a.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

from newcomer.arrays import Floats, Ints, symmetric
from newcomer.sold.moments import Moments

TURNS = 1000
TOLERANCE = 1e-9  # change of the diagonal, relative to its largest entry, at which the turns end
DENSE = 300  # up to this size all of a matrix is decomposed
LARGEST_INVERSE = 2000  # actions up to which Q o Q is inverted


@dataclass(frozen=True)
class JointCorrection:
    """Undoes what coverage did to X, entry by entry, over the c actions that both halves of the histories meet."""

    span: Floats  # (d, c) unit vectors
    divisor: Floats  # (c, c), symmetric
    means: Floats = field(default_factory=lambda: np.zeros(0))  # (c,) of the rewards of each action; (0,): not known
    bounds: Floats = field(default_factory=lambda: np.zeros(0))  # (c,) what the diagonal cannot exceed; (0,): not known
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
        rewards = _means_and_squares(moments.by_action[:, both]) if moments.by_action.size else ()
        return cls(np.eye(moments.dim)[:, both], symmetric(mixed), *rewards)

    @property
    def most(self) -> int:
        """The largest rank up to which the diagonal follows from the rest.

        >>> [JointCorrection(np.eye(c), np.ones((c, c))).most for c in (2, 3, 5, 6, 100)]
        [0, 1, 2, 3, 86]
        """
        count = len(self.divisor)
        return int(np.floor((2 * count + 1 - np.sqrt(8 * count + 1)) / 2 + 1e-9))

    def norm_of_inverse(self, rank: int) -> float:
        """The square root of a bound on ||W o A|| / ||A|| over matrices A, W being one over the divisor, entrywise.

        For W = F G^T that is at most the largest product of the lengths of a row of F and a row of G (Schur); with the
        symmetric square root of |W| it is the largest diagonal entry of |W|. Where the diagonal of the moment is
        completed, that of W o A is not used and that of W is zero: few users, or none, meet an action in both halves,
        and 1 / divisor grows there with the number of users.
        """
        weights = 1.0 / self.divisor
        if self.completes(rank):
            np.fill_diagonal(weights, 0.0)
        values, vectors = np.linalg.eigh(weights)
        return float(np.sqrt((vectors**2 @ np.abs(values)).max()))

    def completes(self, rank: int) -> bool:
        """Whether the diagonal of a moment of this rank is completed, and not taken as it was observed."""
        return 0 < rank <= self.most

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
        """The corrected moment (c, c) with the diagonal that rank `rank` gives it, within the bounds."""
        if rank > self.most and (matrix.diagonal() != 0).all():
            return matrix
        return complete_diagonal(self.hollow(matrix), min(rank, self.most), self.bounds if len(self.bounds) else None)

    def of_covariance(self) -> JointCorrection:
        """The same correction for a covariance, whose diagonal is at most the variance of an action's rewards."""
        return replace(self, bounds=self.bounds - self.means**2) if len(self.bounds) else self

    def bound_actions(self, moment: Floats, rank: int) -> Ints:
        """The actions, by their place among d, whose completed entry in a moment (d, d) is at its bound."""
        places: Ints = np.argmax(self.span, axis=0)
        if not len(self.bounds) or not self.completes(rank):
            return places[:0]
        found: Ints = places[moment.diagonal()[places] >= self.bounds * (1.0 - 1e-12)]
        return found


def _means_and_squares(sums: Floats) -> tuple[Floats, Floats]:
    """Means of r and r^2 of each action (c,), from sums of 1, r and r^2 (3, c); no bound where nothing was seen."""
    rows = np.maximum(sums[0], 1.0)
    return sums[1] / rows, np.where(sums[0] > 0, sums[2] / rows, np.inf)


def completion_factor(basis: Floats) -> float:
    """By how much the error of a completed moment may exceed its error ||E|| off the diagonal; 0: by any factor.

    To the first order an error E off the diagonal moves the completed diagonal by x with (Q o Q) x = -diag(Q E Q), Q =
    I - U U^T for the `basis` U (d, k) that is found, and |diag(Q E Q)_a| <= Q_aa ||E||. So the whole error is at most
    1 + max_a sum_b |(Q o Q)^-1|_ab Q_bb times ||E||. Where actions are many the inverse is not formed: the other
    entries of row a of Q o Q add up to Q_aa (1 - Q_aa), and with h the largest 1 - Q_aa the sum is at most
    1 / (1 - 2 h) if h < 1/2.

    >>> round(completion_factor(np.full((100, 1), 0.1)), 3)
    2.02
    """
    free = 1.0 - (basis**2).sum(axis=1)  # Q_aa
    if len(basis) > LARGEST_INVERSE:
        return float(1.0 + 1.0 / (2.0 * free.min() - 1.0)) if free.min() > 0.5 else 0.0
    squares = (basis @ basis.T) ** 2
    np.fill_diagonal(squares, free**2)
    try:
        return float(1.0 + (np.abs(np.linalg.inv(squares)) @ free).max())
    except np.linalg.LinAlgError:
        return 0.0


def complete_diagonal(matrix: Floats, rank: int, bounds: Floats | None = None) -> Floats:
    """A symmetric matrix (c, c) with the diagonal of its best positive approximation of this rank, found by turns.

    Each turn takes the leading eigenvectors of the matrix with the diagonal so far, and the diagonal of what they make
    up (the principal factor method), cut at the `bounds` (c,): neither half of a turn increases the squared distance
    of a matrix of this rank from one with these entries off the diagonal and a diagonal within the bounds.

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
        now = now if bounds is None else np.minimum(now, bounds)
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
