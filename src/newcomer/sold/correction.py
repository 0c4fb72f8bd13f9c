"""SOLD's correction: from the moment of half estimates to the second moment E[beta beta^T] of users.

Within a history length, E[b1 b2^T] = E[D1] S E[D2] with S = E[beta beta^T], which the paper inverts. Two slips of it
are avoided by default, and kept with `literal=True`.

The paper symmetrises b1 b2^T to M *before* the correction, and D1^-1 M D2^-1 is S only if D1 and D2 have the same mean.
With an odd number of steps they have not: the odd steps are one more. With X, the mean of b1 b2^T as it is, D1^-1 X
D2^-1 is right, and its symmetric part is taken last.

Over users of different lengths D1 and D2 are dependent (they share the length), and inverting the pooled means is
biased. What holds for any mixture of lengths is

    sum_s w_s D1_s S D2_s = X            (s: strata of equal length, w_s their shares of users),

a linear equation in S, positive semi-definite in the Frobenius inner product. It says nothing about pairs of
directions that no stratum holds together (say, two items that only short, and only long, histories contain), so the
pooled equation D1 S D2 = X is added with weight 1/sqrt(N): what the strata identify is left with 1/sqrt(N) of the
pooled bias, the rest is the paper's. Solved by conjugate gradients with the pooled inverse as preconditioner. For
equal, even lengths the paper's estimator differs by sampling only. One-hot features have a correction of their own
(`JointCorrection`).

**One-hot features**, where each entry of the moment can be corrected by itself (`JointCorrection`).

With one-hot features D1 and D2 of a user are diagonal, d1 and d2, and given the actions E[X_ab] = d1_a S_ab d2_b for X
= b1 b2^T. So for any logger that does not look at preferences, and for any mixture of history lengths,

    S_ab = E[X_ab + X_ba] / E[d1_a d2_b + d1_b d2_a],

entry by entry, by the *joint* coverage of the two halves. The product of their means, which the paper divides by, is
something else wherever halves depend on each other. In a ratings file they do: nobody rates a film twice, so the halves
exclude each other, X has a zero diagonal, and more users do not help. Pairs (a, b) that few users meet together are
noisy, and a share 1/sqrt(N) of the paper's pooled equation is added, as for strata.

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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, eigsh

from newcomer.arrays import Floats, Ints, symmetric_part
from newcomer.sold.moments import Moments

TURNS = 1000
TOLERANCE = 1e-9  # change of the diagonal, relative to its largest entry, at which the turns end
DENSE = 300  # up to this size all of a matrix is decomposed
LARGEST_INVERSE = 2000  # actions up to which Q o Q is inverted


class MomentCorrection(Protocol):
    """What undoes the coverage in X, the mean of b1 b2^T; c x c in coordinates of the covered span.

    `Correction` is by strata of history length; `JointCorrection`, of one-hot features, by entries.
    """

    @property
    def span(self) -> Floats:
        """The covered span (d, c)."""

    @property
    def symmetric_first(self) -> bool:
        """Whether the moment may be symmetrised before it is corrected."""

    @property
    def most(self) -> int:
        """The largest rank that can be found."""

    def pooled(self, matrices: Floats) -> Floats:
        """The corrected moments (..., c, c) of `matrices` (..., d, d), lengths pooled."""

    def stratified(self, matrix: Floats, /) -> Floats:
        """The corrected moment (c, c) of a matrix (d, d), by strata of length where there are some."""

    def norm_of_inverse(self, rank: int) -> float:
        """A bound on how much the correction of a moment of this rank enlarges an error."""

    def completes(self, rank: int) -> bool:
        """Whether the diagonal of a moment of this rank is completed."""

    def hollow(self, matrices: Floats) -> Floats:
        """Corrected moments as a test of the rank may see them."""

    def filled(self, matrix: Floats, rank: int) -> Floats:
        """A corrected moment with what was not observed filled in."""

    def of_covariance(self) -> MomentCorrection:
        """The same correction for a covariance."""

    def bound_actions(self, moment: Floats, rank: int) -> Ints:
        """The actions whose completed entry in a moment (d, d) is at its bound."""


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
        return cls(np.eye(moments.dim)[:, both], symmetric_part(mixed), *rewards)

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
        inside: Floats = symmetric_part(matrices[..., places[:, None], places]) / self.divisor
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
        return correct_diagonal(self.hollow(matrix), min(rank, self.most), self.bounds if len(self.bounds) else None)

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


def diagonal_correction_factor(basis: Floats) -> float:
    """By how much the error of a completed moment may exceed its error ||E|| off the diagonal; 0: by any factor.

    To the first order an error E off the diagonal moves the completed diagonal by x with (Q o Q) x = -diag(Q E Q), Q =
    I - U U^T for the `basis` U (d, k) that is found, and |diag(Q E Q)_a| <= Q_aa ||E||. So the whole error is at most
    1 + max_a sum_b |(Q o Q)^-1|_ab Q_bb times ||E||. Where actions are many the inverse is not formed: the other
    entries of row a of Q o Q add up to Q_aa (1 - Q_aa), and with h the largest 1 - Q_aa the sum is at most
    1 / (1 - 2 h) if h < 1/2.

    >>> round(diagonal_correction_factor(np.full((100, 1), 0.1)), 3)
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


def correct_diagonal(matrix: Floats, rank: int, bounds: Floats | None = None) -> Floats:
    """A symmetric matrix (c, c) with the diagonal of its best positive approximation of this rank, found by turns.

    Each turn takes the leading eigenvectors of the matrix with the diagonal so far, and the diagonal of what they make
    up (the principal factor method), cut at the `bounds` (c,): neither half of a turn increases the squared distance
    of a matrix of this rank from one with these entries off the diagonal and a diagonal within the bounds.

    >>> u = np.array([1.0, 2.0, -1.0, 0.5])
    >>> correct_diagonal(np.outer(u, u) * (1 - np.eye(4)), 1).diagonal().round(6).tolist()
    [1.0, 4.0, 1.0, 0.25]
    """
    filled = matrix.copy()
    np.fill_diagonal(filled, 0.0)
    if not rank:
        return filled
    diagonal, start = np.zeros(len(matrix)), np.ones(len(matrix))
    for _ in range(TURNS):
        values, vectors = leading_for_correction(filled, rank, start)
        now = (vectors**2) @ np.maximum(values, 0.0)
        now = now if bounds is None else np.minimum(now, bounds)
        change = np.abs(now - diagonal).max()
        diagonal, start = now, vectors.sum(axis=1)
        np.fill_diagonal(filled, diagonal)
        if change <= TOLERANCE * max(diagonal.max(), np.finfo(np.float64).tiny):
            break
    return filled


def leading_for_correction(matrix: Floats, rank: int, start: Floats) -> tuple[Floats, Floats]:
    """The `rank` largest eigenvalues (rank,) and their eigenvectors (c, rank); `start` (c,) is near their span."""
    count = len(matrix)
    if count <= DENSE or rank > count // 4:
        return eigh(matrix, subset_by_index=[count - rank, count - 1])  # type: ignore[no-any-return]
    try:
        return eigsh(matrix, rank, which="LA", v0=start)  # type: ignore[no-any-return]
    except ArpackError:  # of a matrix of zeros, or a start outside the span
        return eigh(matrix, subset_by_index=[count - rank, count - 1])  # type: ignore[no-any-return]


# Neighbouring lengths share a stratum until even the weakest direction is reached about this often in it.
REACHED = 10.0
# A direction is uncovered where its coverage is below this share of the best covered one.
UNCOVERED = 1e-8


@dataclass(frozen=True)
class Coverage:
    """How well logged actions reach the feature space.

    `smallest` is the paper's lambda_A, min_i lambda_min(D_i), over the covered directions; `inverse_norm` its B = max_i
    ||D_i^-1||; `covered` (d, c) and `uncovered` (d, d - c) are orthonormal; `missed` are orthonormal bases of what each
    half does not reach.
    """

    smallest: float
    inverse_norm: float
    covered: Floats
    uncovered: Floats
    missed: tuple[Floats, Floats]


def coverage_for_correction(moments: Moments) -> Coverage:
    """Coverage of the pooled logs. A direction counts as covered if both halves of the histories reach it."""
    halves, missed = moments.mean_coverage, []
    for half in halves:
        values, vectors = np.linalg.eigh(half)
        missed.append(vectors[:, values <= UNCOVERED * max(values[-1], 0.0)])
    covered, uncovered = _split(np.hstack(missed))
    inside = covered.T @ halves @ covered
    smallest = float(np.linalg.eigvalsh(inside)[:, 0].min()) if covered.shape[1] else 0.0
    largest = 1.0 / max(smallest, np.finfo(np.float64).eps)
    return Coverage(smallest, largest, covered, uncovered, (missed[0], missed[1]))


def _split(missed: Floats) -> tuple[Floats, Floats]:
    """Orthonormal bases of the complement of the span of `missed` (d, m), and of that span."""
    if not missed.shape[1]:
        return np.eye(len(missed)), missed  # the standard basis: no rounding from a change of coordinates
    vectors, sizes, _ = np.linalg.svd(missed)
    count = int((sizes > 1e-6).sum())  # what both halves miss is there twice
    return vectors[:, count:], vectors[:, :count]


@dataclass(frozen=True)
class Correction:
    """Undoes what coverage did to X. All matrices but `span` are in coordinates of the covered span, c x c."""

    span: Floats  # (d, c)
    weights: Floats  # (S,) shares of users
    strata: Floats  # (S, 2, c, c) mean D1, D2 of a stratum
    pooled_means: Floats  # (2, c, c) mean D1, D2 of all users
    inverses: Floats  # (2, c, c) their inverses
    damping: float  # weight of the pooled equation
    inverse_norm: float  # the paper's B
    symmetric_first: bool  # as the paper does

    @classmethod
    def of(cls, moments: Moments, coverage: Coverage, *, literal: bool = False) -> Correction:
        """From the strata of `moments`: neighbouring lengths are joined until each stratum has users enough.

        `literal` has one stratum of all lengths and symmetrises first.
        """
        span = coverage.covered
        first = [0] if literal else correction_strata(moments.users, coverage.smallest)
        sizes = np.add.reduceat(moments.users, first)
        strata = span.T @ (np.add.reduceat(moments.coverage, first) / sizes[:, None, None, None]) @ span
        pooled = span.T @ moments.mean_coverage @ span
        inverses = np.linalg.inv(pooled).astype(np.float64)
        weights, damping = sizes / moments.count, 1.0 / np.sqrt(moments.count)
        return cls(span, weights, strata, pooled, inverses, damping, coverage.inverse_norm, literal)

    @property
    def most(self) -> int:
        """The largest rank that can be found: everything is observed."""
        return int(self.span.shape[1])

    def pooled(self, matrices: Floats) -> Floats:
        """D1^-1 X D2^-1, symmetrised last, of each of `matrices` X (..., d, d), lengths pooled; (..., c, c)."""
        return symmetric_part(self._pooled(self._inside(matrices)))

    def stratified(self, matrix: Floats) -> Floats:
        """The symmetrised solution S (c, c) of sum_s w_s D1_s S D2_s + damping D1 S D2 = (1 + damping) X, X (d, d)."""
        inside = self._inside(matrix)
        if len(self.weights) == 1:
            return symmetric_part(self._pooled(inside))
        return symmetric_part(
            _correction_by_conjugate_gradients(self._mixture, (1 + self.damping) * inside, self._pooled)
        )

    def norm_of_inverse(self, rank: int) -> float:
        """The paper's B, whatever the rank (see `JointCorrection`)."""
        return self.inverse_norm

    def completes(self, rank: int) -> bool:
        """Whether a part of the moment is completed: nothing is."""
        return False

    def bound_actions(self, moment: Floats, rank: int) -> Ints:
        """Actions whose completed entry is at its bound: there are none."""
        return np.zeros(0, dtype=np.int64)

    def of_covariance(self) -> Correction:
        """The correction of a covariance: the same."""
        return self

    def hollow(self, matrices: Floats) -> Floats:
        """Corrected moments as a test of the rank may see them: as they are (see `JointCorrection`)."""
        return matrices

    def filled(self, matrix: Floats, rank: int) -> Floats:
        """A corrected moment with what was not observed filled in: as it is (see `JointCorrection`)."""
        return matrix

    def _inside(self, matrices: Floats) -> Floats:
        """The matrices in coordinates of the covered span, symmetrised if that is to be done first."""
        inside: Floats = self.span.T @ matrices @ self.span
        return symmetric_part(inside) if self.symmetric_first else inside

    def _pooled(self, matrices: Floats) -> Floats:
        """D1^-1 X D2^-1: exact for equal lengths, and close enough to precondition the mixture otherwise."""
        corrected: Floats = self.inverses[0] @ matrices @ self.inverses[1]
        return corrected

    def _mixture(self, matrix: Floats) -> Floats:
        """The left-hand side of the equation at S = `matrix` (c, c)."""
        first, second = self.pooled_means
        total: Floats = self.damping * (first @ matrix @ second)
        for weight, (first, second) in zip(self.weights, self.strata, strict=True):
            total += weight * (first @ matrix @ second)
        return total


def correction_strata(users: Ints, weakest: float) -> list[int]:
    """Where to begin new strata among history lengths with these numbers of users (S,).

    The mean coverage of a stratum with few users is mostly chance, and solving with it would take chance for coverage.
    `weakest` is how much a user covers of the weakest direction on average (`Coverage.smallest`).

    >>> correction_strata(np.array([50, 60, 10, 95, 30, 20]), 0.1)
    [0, 2]
    """
    starts, reached = [0], 0.0
    for i, count in enumerate(users):
        if reached >= REACHED and users[i:].sum() * weakest >= REACHED:
            starts.append(i)
            reached = 0.0
        reached += count * weakest
    return starts


def _correction_by_conjugate_gradients(
    apply: Callable[[Floats], Floats], target: Floats, precondition: Callable[[Floats], Floats], *, steps: int = 200
) -> Floats:
    """Solve apply(X) = target for a matrix X, to rounding (Hestenes and Stiefel 1952, preconditioned).

    Both `apply` and `precondition` must be self-adjoint and positive in the Frobenius inner product.
    """
    solution = precondition(target)
    residual = target - apply(solution)
    # The preconditioner D1^-1 . D2^-1 is self-adjoint and positive because D1 and D2 are.
    direction = scaled = precondition(residual)
    energy = float(np.vdot(residual, scaled))
    limit = 1e-14 * float(np.linalg.norm(target))
    for _ in range(steps):
        if np.linalg.norm(residual) <= limit or energy <= 0:
            break
        image = apply(direction)
        step = energy / float(np.vdot(direction, image))
        solution = solution + step * direction
        residual = residual - step * image
        scaled = precondition(residual)
        energy, last = float(np.vdot(residual, scaled)), energy
        direction = scaled + (energy / last) * direction
    return solution


def correction_of(moments: Moments, coverage: Coverage, *, literal: bool = False) -> MomentCorrection:
    """The correction for these moments: entry by entry for one-hot features, by strata of length for others.

    `literal` is the paper's for both.
    """
    joint = moments.joint.size and not literal
    return JointCorrection.of(moments) if joint else Correction.of(moments, coverage, literal=literal)


def corrected_second_moment(
    moments: Moments, *, literal: bool = False, correction: MomentCorrection | None = None, rank: int | None = None
) -> Floats:
    """SOLD's estimate of E[beta beta^T] (d, d), symmetrised; zero in directions that no logged action reaches.

    `rank` is needed for one-hot features alone, whose diagonal follows from the rest and the rank; None: the largest.
    """
    correction = correction or correction_of(moments, coverage_for_correction(moments), literal=literal)
    inside = correction.filled(correction.stratified(moments.product), correction.most if rank is None else rank)
    return symmetric_part(correction.span @ inside @ correction.span.T)


def corrected_population_mean(moments: Moments, *, coverage: Coverage | None = None) -> Floats:
    """Estimate of E[beta] (d,): summed half estimates over summed coverage.

    A half estimate has the mean D_i beta, linear in beta, so that the pooled equation is unbiased and needs no strata.
    """
    span = (coverage or coverage_for_correction(moments)).covered
    total = span.T @ moments.mean_coverage.sum(axis=0) @ span
    return span @ np.linalg.solve(total, span.T @ moments.pairs.estimates.sum(axis=(0, 1)) / max(moments.count, 1))
