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
equal, even lengths the paper's estimator differs by sampling only. One-hot features have a correction of their own,
`newcomer.sold.joint_coverage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats, Ints, symmetric
from newcomer.sold.joint_coverage import JointCorrection
from newcomer.sold.moments import Moments

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


def coverage_of(moments: Moments) -> Coverage:
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
        first = [0] if literal else stratum_starts(moments.users, coverage.smallest)
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
        return symmetric(self._pooled(self._inside(matrices)))

    def stratified(self, matrix: Floats) -> Floats:
        """The symmetrised solution S (c, c) of sum_s w_s D1_s S D2_s + damping D1 S D2 = (1 + damping) X, X (d, d)."""
        inside = self._inside(matrix)
        if len(self.weights) == 1:
            return symmetric(self._pooled(inside))
        return symmetric(conjugate_gradients(self._mixture, (1 + self.damping) * inside, self._pooled))

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
        return symmetric(inside) if self.symmetric_first else inside

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


def stratum_starts(users: Ints, weakest: float) -> list[int]:
    """Where to begin new strata among history lengths with these numbers of users (S,).

    The mean coverage of a stratum with few users is mostly chance, and solving with it would take chance for coverage.
    `weakest` is how much a user covers of the weakest direction on average (`Coverage.smallest`).

    >>> stratum_starts(np.array([50, 60, 10, 95, 30, 20]), 0.1)
    [0, 2]
    """
    starts, reached = [0], 0.0
    for i, count in enumerate(users):
        if reached >= REACHED and users[i:].sum() * weakest >= REACHED:
            starts.append(i)
            reached = 0.0
        reached += count * weakest
    return starts


def conjugate_gradients(
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


AnyCorrection = Correction | JointCorrection


def correction_of(moments: Moments, coverage: Coverage, *, literal: bool = False) -> AnyCorrection:
    """The correction for these moments: entry by entry for one-hot features, by strata of length for others.

    `literal` is the paper's for both.
    """
    joint = moments.joint.size and not literal
    return JointCorrection.of(moments) if joint else Correction.of(moments, coverage, literal=literal)


def second_moment(
    moments: Moments, *, literal: bool = False, correction: AnyCorrection | None = None, rank: int | None = None
) -> Floats:
    """SOLD's estimate of E[beta beta^T] (d, d), symmetrised; zero in directions that no logged action reaches.

    `rank` is needed for one-hot features alone, whose diagonal follows from the rest and the rank; None: the largest.
    """
    correction = correction or correction_of(moments, coverage_of(moments), literal=literal)
    inside = correction.filled(correction.stratified(moments.product), correction.most if rank is None else rank)
    return symmetric(correction.span @ inside @ correction.span.T)


def population_mean(moments: Moments, *, coverage: Coverage | None = None) -> Floats:
    """Estimate of E[beta] (d,): summed half estimates over summed coverage.

    A half estimate has the mean D_i beta, linear in beta, so that the pooled equation is unbiased and needs no strata.
    """
    span = (coverage or coverage_of(moments)).covered
    total = span.T @ moments.mean_coverage.sum(axis=0) @ span
    return span @ np.linalg.solve(total, span.T @ moments.pairs.estimates.sum(axis=(0, 1)) / max(moments.count, 1))
