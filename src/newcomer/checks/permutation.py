"""Chance: what permutations and flips of sign make of a statistic, and the p-value that follows.

Three tests, exact where their null holds, whatever the distribution of the data.

`cross_test`: are two sums of vectors x_u (n, a) and y_u (n, b), of the same users, independent? Which y goes with which
x is permuted among users of equal stratum (equally long histories). With C = sum_u x_u y_u^T, centred by stratum, two
statistics look for different things: sum_ij C_ij^2 / V_ij, V = sum_u x_u^2 y_u^2 entry by entry, for any dependence,
and |sum_i C_ii| / sqrt(sum_i V_ii) for dependence along the same direction. Dividing by V keeps the level, in large
samples, also where x and y are uncorrelated but not independent (Chung and Romano 2013): actions that come once each
are. The larger of the two, each in deviations of its permutations, is the statistic.

`pair_test`: do x_u (n, a) and y_u (n, a) of the same users point the same way? The same permutations; the statistic is
sum_u t_u / sqrt(sum_u t_u^2) with t_u = x_u . y_u, centred by stratum, and only large values of it count.

`flip_test`: is the mean of vectors t_u (n, p) zero, if t_u and -t_u are equally likely? Signs of users are flipped; the
statistic is S^T (sum_u t_u t_u^T)^-1 S with S = sum_u t_u, whose middle is the same for all flips.

All return how large the effect is beside what chance gives: sizes of the observed and of every permuted matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from newcomer.arrays import Bools, Floats, Ints

Norm = Literal["nuclear", "spectral"]
DRAWS = 499
CHUNK = 500_000  # numbers of permuted vectors that are held at a time: what a cache holds
ROUNDING = 1e-9


@dataclass(frozen=True)
class PermutationTest:
    """A p-value, the size of the effect, and the sizes (draws,) that chance gives; `matrix` is what has that size."""

    p_value: float
    size: float
    null: Floats
    matrix: Floats

    @property
    def effect(self) -> float:
        """The size beyond what chance gives on average, in squares."""
        return float(np.sqrt(max(self.size**2 - float(np.mean(self.null**2)), 0.0)))

    @property
    def blind(self) -> float:
        """The effect that chance alone exceeds in one of twenty cases: a smaller one cannot be told from none."""
        beyond = np.maximum(self.null**2 - np.mean(self.null**2), 0.0)
        return float(np.sqrt(np.quantile(beyond, 0.95)))


def cross_test(
    x: Floats, y: Floats, strata: Ints, weights: Floats, *, seed: int, matched: int = 0, norm: Norm = "nuclear"
) -> PermutationTest | None:
    """Whether y (n, b) depends on x (n, a) among users of equal stratum; None where nothing can be told.

    The last `matched` columns of x and y belong together, pair by pair. `weights` (n,) are the products of the numbers
    of rows that were summed: sizes are norms of C over the sum of weights.
    """
    if not several(strata).any() or not x.shape[1] or not y.shape[1]:
        return None
    x, y, groups, total = _grouped(x, y, strata, weights)
    crossed = np.concatenate(list(_permuted(x, y, groups, np.random.default_rng(seed))))
    products, squares = crossed[:, 0], crossed[:, 1]
    if not squares[0].any():
        return None
    values = np.linalg.svd(products / total, compute_uv=False)
    sizes = np.asarray(values.sum(axis=1) if norm == "nuclear" else values[:, 0], np.float64)
    return PermutationTest(
        _p_value(_statistics(products, squares, matched)), float(sizes[0]), sizes[1:], products[0] / total
    )


def pair_test(x: Floats, y: Floats, strata: Ints, weights: Floats, *, seed: int) -> PermutationTest | None:
    """Whether x (n, a) and y (n, a) of a user point the same way; None where nothing can be told.

    Sizes are sums of products over the sum of weights, zero where the sum is negative.
    """
    if not several(strata).any() or not x.shape[1]:
        return None
    x, y, groups, total = _grouped(x, y, strata, weights)
    rng, step = np.random.default_rng(seed), max(1, CHUNK // x.size)
    parts = [np.einsum("na,na->n", x, y)[None]]
    for first in range(0, DRAWS, step):
        who = np.argsort(groups + rng.random((min(step, DRAWS - first), len(groups))), axis=1)
        parts.append(np.einsum("na,mna->mn", x, y[who]))
    sums = np.concatenate([np.stack([part.sum(axis=1), (part**2).sum(axis=1)]) for part in parts], axis=1)
    if not sums[1, 0] > 0:
        return None
    statistics = sums[0] / np.sqrt(np.maximum(sums[1], ROUNDING * sums[1].max()))
    means = sums[0] / total
    return PermutationTest(_p_value(statistics[:, None]), max(float(means[0]), 0.0), np.abs(means[1:]), means[:1])


def _grouped(x: Floats, y: Floats, strata: Ints, weights: Floats) -> tuple[Floats, Floats, Ints, float]:
    """Users who have another in their stratum, sorted by it: x and y less its mean, its number, and the sum of weights.

    The means of a stratum take away a part of the weights, as they do of degrees of freedom.
    """
    usable = several(strata)
    order = np.argsort(strata[usable], kind="stable")
    x, y, weights = (one[usable][order] for one in (x, y, weights))
    _, groups, counts = np.unique(strata[usable][order], return_inverse=True, return_counts=True)
    total = float((weights * (1 - 1 / counts[groups])).sum())
    return _centred(x, groups, counts), _centred(y, groups, counts), groups, total


def _permuted(x: Floats, y: Floats, groups: Ints, rng: np.random.Generator) -> list[Floats]:
    """C and V (draws + 1, 2, a, b) as they are, and for every permutation within groups, in parts."""
    parts = [np.stack([x.T @ y, (x**2).T @ y**2])[None]]
    step = max(1, CHUNK // max(1, x.shape[0] * y.shape[1]))
    for first in range(0, DRAWS, step):
        count = min(step, DRAWS - first)
        who = np.argsort(groups + rng.random((count, len(groups))), axis=1)
        other = y[who]  # (count, n, b)
        parts.append(np.stack([x.T @ other, (x**2).T @ other**2], axis=1))
    return parts


def _statistics(products: Floats, squares: Floats, matched: int) -> Floats:
    """The statistics (draws + 1, 1 or 2)."""
    squares = np.maximum(squares, ROUNDING * max(float(squares.max()), 1e-300))
    found = [(products**2 / squares).sum(axis=(1, 2))]
    if matched:
        diagonal, spread = (np.einsum("mii->m", one[:, -matched:, -matched:]) for one in (products, squares))
        found.append(np.abs(diagonal) / np.sqrt(spread))
    return np.stack(found, axis=1)


def _p_value(statistics: Floats) -> float:
    """The share of draws, the observed one in the first row among them, that are as extreme as it is."""
    spread = statistics.std(axis=0)
    scores = ((statistics - statistics.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).max(axis=1)
    return float(np.mean(scores >= scores[0] - ROUNDING))


def flip_test(vectors: Floats, scale: float, *, seed: int) -> PermutationTest | None:
    """Whether vectors (n, p) of users have mean zero; sizes are norms of their sum over `scale`."""
    middle = vectors.T @ vectors
    values, turned = np.linalg.eigh(middle)
    told = values > ROUNDING * max(float(values[-1]), 1e-300)
    if len(vectors) < 2 or not values[-1] > 0 or scale <= 0:
        return None
    sums = np.concatenate([vectors.sum(axis=0)[None], *_flipped(vectors, np.random.default_rng(seed))])
    statistics = ((sums @ turned[:, told]) ** 2 / values[told]).sum(axis=1)
    sizes = np.linalg.norm(sums, axis=1) / scale
    return PermutationTest(_p_value(statistics[:, None]), float(sizes[0]), sizes[1:], sums[0] / scale)


def _flipped(vectors: Floats, rng: np.random.Generator) -> list[Floats]:
    """Sums of the vectors with random signs, (draws, p), in parts."""
    step = max(1, CHUNK // len(vectors))
    counts = [min(step, DRAWS - first) for first in range(0, DRAWS, step)]
    return [(2.0 * rng.integers(2, size=(count, len(vectors))) - 1.0) @ vectors for count in counts]


def several(strata: Ints) -> Bools:
    """Which users (n,) have another in their stratum.

    >>> several(np.array([4, 7, 4])).tolist()
    [True, False, True]
    """
    _, which, counts = np.unique(strata, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1)


def _centred(values: Floats, groups: Ints, counts: Ints) -> Floats:
    """Values (n, q) less the mean of their group; groups are runs of users."""
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(values, starts, axis=0) / counts[:, None]
    return np.asarray(values - means[groups])
