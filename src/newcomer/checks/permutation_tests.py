"""Chance: what permutations and flips of sign make of a statistic, and the p-value that follows.

Three tests, exact where their null holds, whatever the distribution of the data.

`cross_permutation_test`: are two sums of vectors x_u (n, a) and y_u (n, b), of the same users, independent? Which y
goes with which x is permuted among users of equal stratum (equally long histories). With C = sum_u x_u y_u^T, centred
by stratum, two statistics look for different things: sum_ij C_ij^2 / V_ij, V = sum_u x_u^2 y_u^2 entry by entry, for
any dependence, and |sum_i C_ii| / sqrt(sum_i V_ii) for dependence along the same direction. Dividing by V keeps the
level, in large samples, also where x and y are uncorrelated but not independent (Chung and Romano 2013): actions that
come once each are. The larger of the two, each in deviations of its permutations, is the statistic.

`paired_permutation_test`: do x_u (n, a) and y_u (n, a) of the same users point the same way? The same permutations; the
statistic is sum_u t_u / sqrt(sum_u t_u^2) with t_u = x_u . y_u, centred by stratum, and only large values of it count.

`sign_flip_permutation_test`: is the mean of vectors t_u (n, p) zero, if t_u and -t_u are equally likely? Signs of users
are flipped; the statistic is S^T (sum_u t_u t_u^T)^-1 S with S = sum_u t_u, whose middle is the same for all flips.

All return how large the effect is beside what chance gives: sizes of the observed and of every permuted matrix.

Drafts: findings before their verdict, which all tests of a check decide together; and the pictures they share.

A draft has what was measured and what to say in each case. `findings_by_permutation_tests` puts Holm's step-down over
the p-values of those that accuse the logs, and gives each its verdict: an effect that chance does not explain is
doubtful or broken by its size; one that chance explains is fine if the logs were many enough to see an effect that
breaks them, else unknowable.

Remedies: what to do about each finding, by verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.findings import Finding, Picture, Verdict, finding_chance, holm_adjusted_findings

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
        """The effect that chance alone exceeds in one of twenty cases: a smaller one cannot be seen."""
        beyond = np.maximum(self.null**2 - np.mean(self.null**2), 0.0)
        return float(np.sqrt(np.quantile(beyond, 0.95)))


def cross_permutation_test(
    x: Floats, y: Floats, strata: Ints, weights: Floats, *, seed: int, matched: int = 0, norm: Norm = "nuclear"
) -> PermutationTest | None:
    """Whether y (n, b) depends on x (n, a) among users of equal stratum; None where nothing can be tested.

    The last `matched` columns of x and y belong together, pair by pair. `weights` (n,) are the products of the numbers
    of rows that were summed: sizes are norms of C over the sum of weights.
    """
    if not users_with_permutation_peers(strata).any() or not x.shape[1] or not y.shape[1]:
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


def paired_permutation_test(
    x: Floats, y: Floats, strata: Ints, weights: Floats, *, seed: int
) -> PermutationTest | None:
    """Whether x (n, a) and y (n, a) of a user point the same way; None where nothing can be tested.

    Sizes are sums of products over the sum of weights, zero where the sum is negative.
    """
    if not users_with_permutation_peers(strata).any() or not x.shape[1]:
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
    usable = users_with_permutation_peers(strata)
    order = np.argsort(strata[usable], kind="stable")
    x, y, weights = (one[usable][order] for one in (x, y, weights))
    _, groups, counts = np.unique(strata[usable][order], return_inverse=True, return_counts=True)
    total = float((weights * (1 - 1 / counts[groups])).sum())
    return _deviations(x, groups, counts), _deviations(y, groups, counts), groups, total


def _deviations(values: Floats, groups: Ints, counts: Ints) -> Floats:
    """Columns (n, a) less their means in each group; zero where all that is left is rounding."""
    left = _centred(values, groups, counts)
    return np.where(np.abs(left).max(axis=0) > ROUNDING * np.abs(values).max(axis=0), left, 0.0)


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


def sign_flip_permutation_test(vectors: Floats, scale: float, *, seed: int) -> PermutationTest | None:
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


def users_with_permutation_peers(strata: Ints) -> Bools:
    """Which users (n,) have another in their stratum.

    >>> users_with_permutation_peers(np.array([4, 7, 4])).tolist()
    [True, False, True]
    """
    _, which, counts = np.unique(strata, return_inverse=True, return_counts=True)
    return np.asarray(counts[which] > 1)


def _centred(values: Floats, groups: Ints, counts: Ints) -> Floats:
    """Values (n, q) less the mean of their group; groups are runs of users."""
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(values, starts, axis=0) / counts[:, None]
    return np.asarray(values - means[groups])


BINS = 10
FEW = (
    "{who} too few for this test: by chance alone 5% of effects exceed {blind:.2g}, and an effect of {broken:g} "
    "already breaks a fit."
)


@dataclass(frozen=True)
class Limits:
    """Effects from which logs are doubtful, and from which they are broken."""

    doubtful: float
    broken: float


@dataclass(frozen=True)
class Draft:
    """A test that accuses the logs: what it measured, and what to do by verdict. `scale` turns sizes into effects."""

    name: str
    chance: PermutationTest
    scale: float
    unit: str
    limits: Limits
    what: str  # with {effect} and {unit} to fill in
    advice: Mapping[Verdict, str]
    picture: Picture | None = None
    in_time: bool = False  # whether the test reads the order of a user's rows

    @property
    def effect(self) -> float:
        """The effect in its unit."""
        return self.chance.effect * self.scale

    def finding(self, adjusted: float, level: float, tested: UsersTested) -> Finding:
        """The finding, once Holm's p-value is known."""
        verdict, blind = self._verdict(adjusted, level), self.chance.blind * self.scale
        advice = self.advice[verdict]
        what = self.what.format(effect=f"{self.effect:.2g}", unit=self.unit)
        by_chance = f"not significant ({finding_chance(self.chance.p_value)})"
        if self.effect > blind:  # the statistic of the test is another than the effect
            weighed = "by a test that weights precise users more"
            by_chance = f"not significant ({finding_chance(self.chance.p_value)}, {weighed})"
        if self.chance.p_value <= level < adjusted:  # significant in this test alone, not with all tests counted
            by_chance = f"not significant ({finding_chance(adjusted)} with all tests counted)"
        sure = f"significant ({finding_chance(self.chance.p_value)})"
        slight = ", but too small to matter" if verdict == "fine" and adjusted <= level else ""
        told = f"{what}; {sure if adjusted <= level else by_chance}{slight}."
        if verdict == "unknowable":
            told = f"{told} {FEW.format(who=tested.who, blind=blind, broken=self.limits.broken)}"
            advice = tested.more
        if self.in_time and tested.by_reward:
            told, verdict, advice = f"{told} {BY_REWARD}", "unknowable", NAME_TIME
        elif self.in_time and not tested.ordered:
            told = f"{told} {FILE_ORDER}"
            verdict, advice = ("unknowable", NAME_TIME) if verdict == "fine" else (verdict, f"{advice} {NAME_TIME}")
        return Finding(
            name=self.name,
            verdict=verdict,
            what=told,
            advice=advice,
            effect=self.effect,
            unit=self.unit,
            p_value=self.chance.p_value,
            adjusted=adjusted,
            doubtful=self.limits.doubtful,
            broken=self.limits.broken,
            picture=self.picture,
        )

    def _verdict(self, adjusted: float, level: float) -> Verdict:
        if adjusted > level:
            return "unknowable" if self.chance.blind * self.scale > self.limits.broken else "fine"
        sizes: tuple[tuple[float, Verdict], ...] = ((self.limits.broken, "broken"), (self.limits.doubtful, "doubtful"))
        return next((verdict for limit, verdict in sizes if self.effect >= limit), "fine")


@dataclass(frozen=True)
class UsersTested:
    """Who took part in the tests: `sample` users of `users`; `ordered` says whether an order in time is known.

    `by_reward`: it is not, and the rows of a user stand in the order of their rewards.
    """

    users: int
    sample: int
    ordered: bool = True
    by_reward: bool = False
    arm: bool = False  # whether they are those of the random arm

    @property
    def who(self) -> str:
        """The subject of a sentence that says that they are too few."""
        if self.arm and 2 * self.sample >= self.users:
            return f"The {self.users:,} users of the random arm are"
        if 2 * self.sample < self.users:
            return f"The {self.sample:,} users drawn for the tests (of {self.users:,}) are"
        return f"These {self.users:,} users are"

    @property
    def more(self) -> str:
        """What would tell more; a larger number of users would not change how many are drawn."""
        if self.arm and 2 * self.sample >= self.users:
            return "Serve more users at random."
        return "Longer histories would tell more." if 2 * self.sample < self.users else MORE


def findings_by_permutation_tests(
    drafts: Sequence[Draft | Finding], level: float, tested: UsersTested
) -> list[Finding]:
    """Findings in the order of the drafts; those that are findings already stay."""
    tests = [one for one in drafts if isinstance(one, Draft)]
    adjusted = dict(zip(map(id, tests), holm_adjusted_findings([one.chance.p_value for one in tests]), strict=True))
    return [one.finding(adjusted[id(one)], level, tested) if isinstance(one, Draft) else one for one in drafts]


def binned_permutation_means(x: Floats, y: Floats, *, title: str, x_label: str, y_label: str) -> Picture | None:
    """Means of y (n,) in ten bins of x (n,) with as many users each, and two standard errors to either side."""
    if len(x) < 2 * BINS:
        return None
    parts = np.array_split(np.argsort(x, kind="stable"), BINS)
    middle, means = ([float(one[part].mean()) for part in parts] for one in (x, y))
    errors = [2.0 * float(y[part].std()) / np.sqrt(len(part)) for part in parts]
    low = tuple(float(m - e) for m, e in zip(means, errors, strict=True))
    high = tuple(float(m + e) for m, e in zip(means, errors, strict=True))
    return Picture(title, x_label, y_label, tuple(middle), tuple(means), low, high, band="two standard errors")


def leading_permutation_directions(matrix: Floats) -> tuple[Floats, Floats]:
    """The directions (a,) and (b,) along which a matrix (a, b) is largest."""
    left, _, right = np.linalg.svd(matrix)
    return left[:, 0], right[0]


FINE = "Nothing to do."
MORE = "Log more users, or longer histories, and check again."
FILE_ORDER = "The logs have no times that order a user's rows, so this is about the order of rows in the file."
BY_REWARD = (
    "The logs have no times that order a user's rows, and these stand in the order of their rewards, as in a file that"
    " was sorted."
)
NAME_TIME = "Name the column of times, columns={'step': ...} (--column step=...), and check again."

ADAPTIVE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Either the logger learned from rewards, or it chose actions by preference and the first action alone"
    " is too little data to show it. Fit with em, which allows adaptive logging, not with sold. Try the model on a"
    " small random share of new users first.",
    "broken": "Show random actions to some users, say 10%, for their whole history, and check those logs. Until then a"
    " model of these logs is an experiment to run beside what you have today.",
}
CHOSEN: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Actions were chosen by preference, by users or by a logger, so rarely shown actions look better than"
    " they are. Try the model on a small random share of new users first.",
    "broken": "Actions were chosen by preference, so these rewards do not tell what other actions would have paid. Show"
    " random actions to some users and check those logs. Until then a model of these logs is an experiment to run"
    " beside what you have today.",
}
LIKED: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users, or a logger that knew or learned their preferences, chose what was logged. The mean of a rarely"
    " logged action is the mean over users who like it, too high for others. Offer random actions to a small random"
    " share of new users, and compare the means.",
    "broken": "Users log what they like: the mean of an action is the mean over users who like it, too high for others."
    " The population mean and the model overestimate actions that a user would not have chosen. Show some users random"
    " actions and fit those logs; until then offer new users only what they chose to look at.",
}
SHOWN_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users were shown different kinds of actions: few users tell how preferences for the kinds correlate.",
    "broken": "Each user saw one kind of action only, so these logs cannot tell how preferences for the kinds"
    " correlate. Show all kinds to some users.",
}
LENGTH_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users who like what they see stay longer, so averages count them more often than new users.",
    "broken": "How long users stay depends on preferences: cut all histories to the same number of first rows, and fit"
    " those.",
}
DRIFT_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Rewards change with position: log the position, or the time, as a feature.",
    "broken": "Rewards at the end of a history differ from those at its beginning: log the position, or the time, as a"
    " feature, or fit the first rows alone, which are what new users meet.",
}
