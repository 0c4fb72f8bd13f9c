"""The shared subspace: SOLD's corrected second moment, its eigenvectors, and the distance of two subspaces.

Within a history length, E[M] = E[D1] S E[D2] with S = E[beta beta^T], which the paper inverts: S = D1^-1 M D2^-1. Over
users of different lengths D1 and D2 are dependent (they share the length), and inverting the pooled means is biased. What
holds for any mixture of lengths is

    sum_s w_s D1_s S D2_s = M            (s: strata of equal length, w_s their shares of users),

a linear equation in S, positive semi-definite in the Frobenius inner product. It says nothing about pairs of directions that no
stratum holds together (say, two items that only short, and only long, histories contain), so the pooled equation D1 S D2 = M is added with weight 1/sqrt(N): what the strata
identify is left with 1/sqrt(N) of the pooled bias, the rest is the paper's. Solved by conjugate gradients with the pooled inverse as
preconditioner. For equal lengths both are the paper's estimator; `literal=True` gives the paper's for ragged ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from newcomer.sold.moments import Moments, symmetric

Floats = NDArray[np.float64]
Norm = Literal["spectral", "frobenius"]

# Neighbouring lengths share a stratum until even the weakest direction is reached about this often in it.
REACHED = 10.0
# A direction is uncovered where its coverage is below this share of the best covered one.
UNCOVERED = 1e-8


@dataclass(frozen=True)
class Coverage:
    """How well logged actions reach the feature space.

    `smallest` is the paper's lambda_A, min_i lambda_min(D_i), over the covered directions; `inverse_norm` its B = max_i
    ||D_i^-1||; `covered` (d, c) and `uncovered` (d, d - c) are orthonormal.
    """

    smallest: float
    inverse_norm: float
    covered: Floats
    uncovered: Floats


def coverage_of(moments: Moments) -> Coverage:
    """Coverage of the pooled logs; a direction counts as covered if both halves reach it."""
    halves = moments.mean_coverage
    covered, uncovered = _split(np.hstack([_unreached(half) for half in halves]))
    inside = covered.T @ halves @ covered
    smallest = float(np.linalg.eigvalsh(inside)[:, 0].min()) if covered.shape[1] else 0.0
    return Coverage(smallest, 1.0 / max(smallest, np.finfo(np.float64).eps), covered, uncovered)


def _unreached(half: Floats) -> Floats:
    """Orthonormal directions (d, m) that one half never reaches."""
    values, vectors = np.linalg.eigh(half)
    missed: Floats = vectors[:, values <= UNCOVERED * max(values[-1], 0.0)]
    return missed


def _split(missed: Floats) -> tuple[Floats, Floats]:
    """Orthonormal bases of the complement of the span of `missed` (d, m), and of that span."""
    if not missed.shape[1]:
        return np.eye(len(missed)), missed  # the standard basis: no rounding from a change of coordinates
    vectors, sizes, _ = np.linalg.svd(missed)
    count = int((sizes > 1e-6).sum())  # what both halves miss is there twice
    return vectors[:, count:], vectors[:, :count]


@dataclass(frozen=True)
class Correction:
    """Undoes what coverage did to M, in coordinates of the covered span (d, c)."""

    span: Floats
    weights: Floats  # (S,) shares of users
    strata: Floats  # (S, 2, c, c) mean D1, D2 of a stratum
    pooled_means: Floats  # (2, c, c) mean D1, D2 of all users
    inverses: Floats  # (2, c, c) their inverses
    damping: float  # weight of the pooled equation

    @classmethod
    def of(cls, moments: Moments, coverage: Coverage) -> Correction:
        """From the strata of `moments`, restricted to the covered span."""
        span = coverage.covered
        first = stratum_starts(moments.users, coverage.smallest)
        sizes = np.add.reduceat(moments.users, first)
        strata = span.T @ (np.add.reduceat(moments.coverage, first) / sizes[:, None, None, None]) @ span
        pooled = span.T @ moments.mean_coverage @ span
        inverses = np.linalg.inv(pooled).astype(np.float64)
        return cls(span, sizes / moments.count, strata, pooled, inverses, 1.0 / np.sqrt(moments.count))

    def pooled(self, matrices: Floats) -> Floats:
        """The paper's D1^-1 M D2^-1, symmetrised, of each of `matrices` (..., d, d)."""
        return symmetric(self._pooled(self.span.T @ matrices @ self.span))

    def stratified(self, matrix: Floats) -> Floats:
        """The symmetrised solution S of sum_s w_s D1_s S D2_s + damping D1 S D2 = (1 + damping) M (d, d)."""
        inside = self.span.T @ matrix @ self.span
        if len(self.weights) == 1:
            return symmetric(self._pooled(inside))
        return symmetric(conjugate_gradients(self._mixture, (1 + self.damping) * inside, self._pooled))

    def _pooled(self, matrices: Floats) -> Floats:
        corrected: Floats = self.inverses[0] @ matrices @ self.inverses[1]
        return corrected

    def _mixture(self, matrix: Floats) -> Floats:
        first, second = self.pooled_means
        total: Floats = self.damping * (first @ matrix @ second)
        for weight, (first, second) in zip(self.weights, self.strata, strict=True):
            total += weight * (first @ matrix @ second)
        return total


def stratum_starts(users: NDArray[np.int64], weakest: float) -> list[int]:
    """Where to begin new strata among lengths with these users (S,): a stratum with few users would take chance for coverage."""
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
    """Solve apply(X) = target, X and target matrices, to rounding (Hestenes and Stiefel 1952, preconditioned)."""
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


def second_moment(moments: Moments, *, literal: bool = False, correction: Correction | None = None) -> Floats:
    """SOLD's estimate of E[beta beta^T] (d, d), symmetrised; zero in directions that no logged action reaches."""
    correction = correction or Correction.of(moments, coverage_of(moments))
    inside = correction.pooled(moments.product) if literal else correction.stratified(moments.product)
    return symmetric(correction.span @ inside @ correction.span.T)


def population_mean(moments: Moments, *, coverage: Coverage | None = None) -> Floats:
    """Estimate of E[beta] (d,): summed half estimates over summed coverage. Linear in beta, so free of strata."""
    span = (coverage or coverage_of(moments)).covered
    total = span.T @ moments.mean_coverage.sum(axis=0) @ span
    return span @ np.linalg.solve(total, span.T @ moments.pairs.estimates.sum(axis=(0, 1)) / max(moments.count, 1))


def top_eigenvectors(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """All eigenvalues (d,), largest first, and the `rank` leading eigenvectors (d, rank) with deterministic signs."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_signs(vectors[:, ::-1][:, :rank])


def fix_signs(basis: Floats) -> Floats:
    """The same columns with the largest entry of each positive."""
    if basis.shape[1] == 0:
        return basis.copy()
    # Rounding first: of two entries of equal size, the earlier decides on every machine.
    largest = np.argmax(np.round(np.abs(basis), 9), axis=0)
    signs = np.sign(basis[largest, np.arange(basis.shape[1])])
    return np.ascontiguousarray(basis * np.where(signs == 0, 1.0, signs))


def distance(basis: Floats, other: Floats, *, norm: Norm = "spectral") -> float:
    """Distance of two subspaces, each given by an orthonormal basis (d, k): the norm of the difference of projections.

    Spectral: the sine of the largest angle, in [0, 1]. Frobenius: at most sqrt(2k). Through residuals, which are exact
    for small angles where arccos is not.
    """
    there, back = basis - other @ (other.T @ basis), other - basis @ (basis.T @ other)
    if norm == "frobenius":
        return float(np.hypot(np.linalg.norm(there), np.linalg.norm(back)))
    return float(min(1.0, max((np.linalg.norm(x, 2) if x.size else 0.0) for x in (there, back))))
