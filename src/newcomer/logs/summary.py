"""Totals of logs: counts, moments and the fingerprint, as sums over users, from which the summary is made.

The fingerprint is a sum, modulo 2^64, of one hash per user over its id and the sequence of (features, reward), so it
changes with any value or with the order within a user, and with no other order. A row of features x is hashed by
multiply-shift, h(x) = mix(sum_j bits(x_j) a_j) with fixed odd a_j (Dietzfelbinger et al. 1997): one pass, no copies.

Histogram of rewards, in bounded memory and one pass; it does not depend on the order or on batches.

Every float64 has a key, an integer of 64 bits in the order of the numbers. The histogram counts keys. Once more than
`LIMIT` different ones have been seen, low bits are dropped from all of them until no more than `LIMIT` remain: the
fewest bits that will do. How many that is depends on the set of rewards alone, because seeing more never needs fewer;
so joining histograms in any order gives the same counts to the bit. Few distinct rewards (stars, clicks) are counted
exactly; others to within the width of a bin, a few thousandths of their spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Hashes, Ints
from newcomer.evidence import Summary
from newcomer.logs.candidates import NOWHERE
from newcomer.logs.histories import Histories, Limits, hash_history_users
from newcomer.logs.items import Items
from newcomer.transforms import Transform
from newcomer.users import mix_user_hashes

LIMIT = 1 << 14
HISTOGRAM_CHUNK = 1 << 18  # rewards sorted at a time
SCALE = 50  # different rewards up to which they are a scale with steps
FAR = 20.0  # robust deviations from the median beyond which a reward may be far outside all others
GAP = 4.0  # and is, where it is so many times as far away as the next: the tails of prices and counts have no such gap
TAIL = 5.0  # and beyond which it belongs to the tails: of normal rewards one in two million does
LOST = 1e-6  # share of the squared mean below which the difference of sums of squares has lost digits of the variance
NORMAL = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_SIGN = np.uint64(1 << 63)


class RewardSpread(NamedTuple):
    """Rewards described by what a few of them cannot change.

    `deviation` is the median distance from the `median`, times 1.48 (a standard deviation, were they normal); `far`
    counts rewards more than 20 deviations away and beyond a gap; `tails` is the share of the sum of squares due to
    those beyond 5.
    `step` is the least distance of two different rewards where there are few of them (clicks, stars), else 0.
    """

    median: float
    deviation: float
    far: int
    tails: float
    step: float = 0.0


@dataclass(frozen=True)
class RewardHistogram:
    """Counts (n,) of ascending keys (n,), from which `dropped` low bits were dropped."""

    keys: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    dropped: int = 0

    def seeing(self, values: Floats) -> RewardHistogram:
        """The histogram with these values."""
        total = self
        for i in range(0, len(values), HISTOGRAM_CHUNK):
            keys = np.sort(_keys(values[i : i + HISTOGRAM_CHUNK]) >> np.uint64(total.dropped))
            first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
            total += _bounded(keys[first], np.diff(np.append(first, len(keys))), total.dropped)
        return total

    def __add__(self, other: RewardHistogram) -> RewardHistogram:
        if not (len(self.keys) and len(other.keys)):
            return self if len(self.keys) else other
        dropped = max(self.dropped, other.dropped)
        shifted = [one.keys >> np.uint64(dropped - one.dropped) for one in (self, other)]
        keys, place = np.unique(np.concatenate(shifted), return_inverse=True)
        counts = np.bincount(place, weights=np.concatenate([self.counts, other.counts])).astype(np.int64)
        return _bounded(keys, counts, dropped)

    def listed(self, limits: tuple[float, float] | None = None) -> tuple[Floats, Ints]:
        """The different rewards (n,), ascending, and how often each occurs, once brought within the limits.

        >>> [column.tolist() for column in RewardHistogram().seeing(np.array([1.0, 5.0, 1.0])).listed((0.0, 4.0))]
        [[1.0, 4.0], [2, 1]]
        """
        values = _values(self.keys, self.dropped)
        values, place = np.unique(values if limits is None else np.clip(values, *limits), return_inverse=True)
        return values, np.bincount(place, weights=self.counts, minlength=len(values)).astype(np.int64)

    def spread(self, limits: tuple[float, float] | None = None) -> RewardSpread:
        """The rewards in four numbers, as they are once brought within the limits.

        Where more than half of the rewards are equal (few clicks), the distances of the others tell the deviation.

        >>> RewardHistogram().seeing(np.array([1.0, 2.0, 3.0, 4.0, 100.0])).spread().median
        3.0
        """
        values = _values(self.keys, self.dropped)
        values = values if limits is None else np.clip(values, *limits)
        median = _median(values, self.counts)
        with np.errstate(over="ignore"):
            away = np.abs(values - median)
        deviation = NORMAL * (_median(away, self.counts) or _median(away[away > 0], self.counts[away > 0]))
        if not 0 < deviation < np.inf:
            return RewardSpread(median, 0.0, 0, 0.0, self.step)
        scores = np.minimum(away / deviation, 1e100)
        squares = self.counts * scores**2
        tails = float(squares[scores > TAIL].sum() / squares.sum())
        return RewardSpread(median, deviation, _outside(scores, self.counts), tails, self.step)

    @property
    def step(self) -> float:
        """The least distance of two different rewards, 0 where there are more than `SCALE` of them.

        >>> RewardHistogram().seeing(np.array([1.0, 5.0, 3.0, 1.5])).step
        0.5
        """
        if self.dropped or not 2 <= len(self.keys) <= SCALE:
            return 0.0
        with np.errstate(over="ignore"):
            return float(np.diff(_values(self.keys, 0)).min())


def _outside(scores: Floats, counts: Ints) -> int:
    """How many rewards are far outside all others: beyond `FAR` deviations, and after a gap.

    A long tail of play counts or prices goes on without a gap, and none of its rewards is outside of it.
    """
    order = np.argsort(scores, kind="stable")
    away, before = scores[order], np.maximum(np.append(0.0, scores[order][:-1]), 1.0)
    gaps = np.flatnonzero((away > FAR) & (away >= GAP * before))
    return int(counts[order][gaps[0] :].sum()) if len(gaps) else 0


def summary_reward_limits(rewards: RewardHistogram) -> tuple[float, float]:
    """What `clip="auto"` lets through: 5 robust deviations to each side of the median."""
    found = rewards.spread()
    return (found.median - TAIL * found.deviation, found.median + TAIL * found.deviation)


def _keys(values: Floats) -> Hashes:
    """Integers in the order of the values; -0.0 counts as 0.0."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _values(keys: Hashes, dropped: int) -> Floats:
    """Of each bin the value nearest to zero, so that round numbers are shown as they are."""
    low = keys << np.uint64(dropped)
    negative = low < _SIGN
    bits = np.where(negative, ~(low | np.uint64((1 << dropped) - 1)), low & ~_SIGN)
    return bits.view(np.float64)


def _bounded(keys: Hashes, counts: Ints, dropped: int) -> RewardHistogram:
    """The histogram of distinct ascending keys, of which as many bits are dropped as it takes, and none more."""
    if len(keys) <= LIMIT:
        return RewardHistogram(keys, counts, dropped)
    # Two neighbours fall together once all bits up to the highest in which they differ are dropped.
    differ = keys[1:] ^ keys[:-1]
    high, low = (differ >> np.uint64(32)).astype(np.float64), (differ & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    more = int(np.sort(bits)[-LIMIT])
    keys = keys >> np.uint64(more)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return RewardHistogram(keys[first], np.add.reduceat(counts, first), dropped + more)


def _median(values: Floats, counts: Ints) -> float:
    """The median of values that occur so often."""
    if not len(values):
        return 0.0
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order])
    total = int(reached[-1])
    lower, upper = (
        values[order[np.searchsorted(reached, rank, side="right")]] for rank in ((total - 1) // 2, total // 2)
    )
    return float(lower / 2 + upper / 2)


CHUNK = 1 << 17


@dataclass(frozen=True)
class LogTotals:
    """Additive part of a summary; `+` joins those of disjoint users.

    Sums over rows (`squared_norm` of |x|^2, `reward`, `squared_reward`) and over users; `dim` is 0 where features come
    from the catalogue. Of the `candidates` in all rows, `nowhere` were never chosen in any. `rewards` is the histogram
    of all rewards as they were read, before any was clipped.
    """

    users: int = 0
    rows: int = 0
    too_short: int = 0
    ties: int = 0
    clipped: int = 0
    fingerprint: int = 0
    squared_norm: float = 0.0
    reward: float = 0.0
    squared_reward: float = 0.0
    max_reward: float = 0.0
    dim: int = 0
    candidates: int = 0
    nowhere: int = 0
    rewards: RewardHistogram = field(default_factory=RewardHistogram)

    def __add__(self, other: LogTotals) -> LogTotals:
        return LogTotals(
            users=self.users + other.users,
            rows=self.rows + other.rows,
            too_short=self.too_short + other.too_short,
            ties=self.ties + other.ties,
            clipped=self.clipped + other.clipped,
            fingerprint=self.fingerprint + other.fingerprint,
            squared_norm=self.squared_norm + other.squared_norm,
            reward=self.reward + other.reward,
            squared_reward=self.squared_reward + other.squared_reward,
            max_reward=max(self.max_reward, other.max_reward),
            dim=max(self.dim, other.dim),
            candidates=self.candidates + other.candidates,
            nowhere=self.nowhere + other.nowhere,
            rewards=self.rewards + other.rewards,
        )

    def summary(
        self,
        *,
        dim: int,
        intercept: bool,
        limits: Limits | None = None,
        arms: tuple[str, ...] = (),
        transform: Transform | None = None,
    ) -> Summary:
        """The public record; a constant feature adds 1 to every |x|^2, and changes the fingerprint.

        The names of the `arms` are part of the fingerprint, too: rows have their numbers alone.
        """
        mean, spread = self.reward / self.rows, self.rewards.spread(limits)
        values, counts = self.rewards.listed(limits)
        variance = self.squared_reward / self.rows - mean * mean
        if variance < LOST * mean * mean:
            variance = _listed_variance(values, counts)
        return Summary(
            users=self.users,
            rows=self.rows,
            dim=dim,
            usable=self.users - self.too_short,
            too_short=self.too_short,
            ties=self.ties,
            fingerprint=f"{(self.fingerprint + intercept + _named(arms)) % 2**64:016x}",
            mean_squared_norm=self.squared_norm / self.rows + intercept,
            mean_reward=mean,
            reward_deviation=float(np.sqrt(max(0.0, variance))),
            max_reward=self.max_reward,
            median_reward=spread.median,
            robust_deviation=spread.deviation,
            far_rewards=spread.far,
            tail_share=spread.tails,
            reward_step=spread.step if transform is None else 0.0,
            least_reward=float(values[0]) if len(values) else None,
            reward_transform=transform,
            clip=limits,
            clipped=self.clipped,
        )


def _listed_variance(values: Floats, counts: Ints) -> float:
    """The variance of rewards (n,) that occur so often, exact far from zero, too.

    >>> _listed_variance(np.array([1e12, 1e12 + 1.0]), np.array([2, 2]))
    0.25
    """
    away = values - values[np.argmax(counts)]
    shares = counts / counts.sum()
    return float(shares @ away**2 - (shares @ away) ** 2)


def _named(arms: tuple[str, ...]) -> int:
    """A number that depends on the names of arms; 0 without any."""
    return int(hash_history_users(pl.Series(arms)).sum()) if arms else 0


def summary_totals(part: Histories, items: Items | None) -> LogTotals:
    """The totals of some users' histories, a slice at a time so that temporaries stay small.

    What is said of features is worked out once for each item where features come from the catalogue.
    """
    described = _describe_items(items) if part.features is None and items is not None else None
    slices = (part.slice(first, last) for first, last in part.cuts(CHUNK))
    return reduce(
        add, (_batch_totals(piece, described) for piece in slices), LogTotals(ties=part.ties, clipped=part.clipped)
    )


def _batch_totals(part: Histories, items: tuple[Floats, Hashes] | None) -> LogTotals:
    """The totals of a slice; without features in the rows, what is known of `items` (norms, hashes) is looked up."""
    if part.features is not None:
        norms, hashes = _describe(part.features)
    else:
        assert items is not None and part.actions is not None
        norms, hashes = items[0][part.actions], items[1][part.actions]
    shown = part.candidates
    return LogTotals(
        users=len(part.users),
        rows=part.rows,
        too_short=int(np.count_nonzero(np.diff(part.offsets) < 2)),
        fingerprint=_fingerprint(part, hashes),
        squared_norm=float(norms.sum()),
        reward=float(part.rewards.sum()),
        squared_reward=float(part.rewards @ part.rewards),
        max_reward=float(np.abs(part.rewards).max()),
        dim=0 if part.features is None else int(part.features.shape[1]),
        candidates=0 if shown is None else len(shown.actions),
        nowhere=0 if shown is None else int(np.count_nonzero(shown.actions == NOWHERE)),
    )


def _describe_items(items: Items) -> tuple[Floats, Hashes]:
    """Squared norms and hashes (items,) of the catalogue: one-hot item j has norm 1 and hash mix(bits(1) a_j)."""
    if items.matrix is not None:
        return _describe(items.matrix)
    one = np.ones(1).view(np.uint64)
    return np.ones(items.dim), mix_user_hashes(one * _multipliers(items.dim))


def _describe(features: NDArray[np.floating]) -> tuple[Floats, Hashes]:
    """Squared norms (n,) and hashes (n,) of rows (n, d), some rows at a time."""
    norms, hashes = np.empty(len(features)), np.empty(len(features), np.uint64)
    multipliers, step = _multipliers(features.shape[1]), max(1, CHUNK // max(1, features.shape[1]))
    for i in range(0, len(features), step):
        exact = features[i : i + step].astype(np.float64) + 0.0  # + 0.0 turns -0.0 into 0.0
        norms[i : i + step] = np.einsum("ij,ij->i", exact, exact)
        hashes[i : i + step] = mix_user_hashes(exact.view(np.uint64) @ multipliers)
    return norms, hashes


def _multipliers(dim: int) -> Hashes:
    """The fixed odd numbers a_j, (d,)."""
    return mix_user_hashes(np.arange(dim, dtype=np.uint64)) | np.uint64(1)


def _fingerprint(part: Histories, features: Hashes) -> int:
    """Sum over users of a hash of (id, sequence of (features, reward, propensity)), from hashes of features (rows,).

    Within a user the hash of a row depends on its position, so that the order counts; across users it is a sum. Actions
    beside features are left out: the fingerprint is of what a fit reads. Candidates, as a set, and arms count where
    there are some.
    """
    columns = [column for column in (part.rewards, part.propensities) if column is not None]
    rows = reduce(lambda seen, column: mix_user_hashes(seen + (column + 0.0).view(np.uint64)), columns, features)
    if part.candidates is not None:
        each = mix_user_hashes(part.candidates.actions.astype(np.int64).view(np.uint64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each)])[part.candidates.offsets]
        rows = mix_user_hashes(rows + np.diff(sums))  # modulo 2^64: 0 for a row that offered the whole catalogue
    if part.arms is not None:
        rows = mix_user_hashes(rows + part.arms.astype(np.uint64))
    lengths = np.diff(part.offsets)
    positions = np.arange(part.rows) - np.repeat(part.offsets[:-1], lengths)  # 0, 1, 2, ... within each user
    rows = mix_user_hashes(rows + positions.astype(np.uint64))
    users = mix_user_hashes(part.hashes + np.add.reduceat(rows, part.offsets[:-1]))
    return int(users.sum())
