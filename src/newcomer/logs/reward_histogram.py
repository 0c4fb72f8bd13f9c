"""Histogram of rewards, in bounded memory and one pass; it does not depend on the order or on batches.

Every float64 has a key, an integer of 64 bits in the order of the numbers. The histogram counts keys. Once more than
`LIMIT` different ones have been seen, low bits are dropped from all of them until no more than `LIMIT` remain: the
fewest bits that will do. How many that is depends on the set of rewards alone, because seeing more never needs fewer;
so joining histograms in any order gives the same counts to the bit. Few distinct rewards (stars, clicks) are counted
exactly; others to within the width of a bin, a few thousandths of their spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints

LIMIT = 1 << 14
CHUNK = 1 << 18  # rewards sorted at a time
SCALE = 50  # different rewards up to which they are a scale with steps
FAR = 20.0  # robust deviations from the median beyond which a reward may be far outside all others
GAP = 4.0  # and is, where it is so many times as far away as the next: the tails of prices and counts have no such gap
TAIL = 5.0  # and beyond which it belongs to the tails: of normal rewards one in two million does
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
        for i in range(0, len(values), CHUNK):
            keys = np.sort(_keys(values[i : i + CHUNK]) >> np.uint64(total.dropped))
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


def automatic_limits(rewards: RewardHistogram) -> tuple[float, float]:
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
