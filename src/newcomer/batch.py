"""Batch: some users' whole histories as flat arrays, the only form in which computations see logs.

Rows of a user are contiguous and in time order; user i owns rows `offsets[i]:offsets[i + 1]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Whole histories of a few users.

    `hashes` are 64-bit hashes of the user ids that depend on nothing else, so that whatever is drawn from them
    (buckets, signs, arms) does not change with the order of users or files.
    """

    users: NDArray[np.generic]
    hashes: NDArray[np.uint64]
    offsets: Ints
    features: Floats
    rewards: Floats
    actions: Ints | None = None
    propensities: Floats | None = None

    @property
    def lengths(self) -> Ints:
        """Number of rows of each user."""
        return np.diff(self.offsets)

    def by_length(self) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """For each history length H: (H, users' positions (n,), features (n, H, d), rewards (n, H))."""
        lengths = self.lengths
        for length in np.unique(lengths):
            who = np.flatnonzero(lengths == length)
            if len(who) == len(lengths):  # equal lengths: a view, no copy
                yield int(length), who, self.features.reshape(len(who), length, -1), self.rewards.reshape(-1, length)
                continue
            rows = self.offsets[who][:, None] + np.arange(length)
            yield int(length), who, self.features[rows], self.rewards[rows]


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): a fixed bijection that scatters 64-bit integers."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
