"""Batch: some users' whole histories as flat arrays, the only form in which computations see logs.

Rows of a user are contiguous and in time order; user i owns rows `offsets[i]:offsets[i + 1]`. Rows bring their features (`own`), or name an action
whose features are a row of `table`: a catalogue is much smaller than a log, and what is linear in features can be computed once for each
action instead of once for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Coded(NamedTuple):
    """Features (items, d), and the row of them that each row of a log names."""

    table: Floats
    actions: Ints


@dataclass(frozen=True)
class Batch:
    """Whole histories of a few users.

    `hashes` are 64-bit hashes of the user ids that depend on nothing else, so that whatever is drawn from them
    (buckets, signs, arms) does not change with the order of users or files.
    """

    users: NDArray[np.generic]
    hashes: NDArray[np.uint64]
    offsets: Ints
    rewards: Floats
    own: Floats | None = None  # (rows, d)
    table: Floats | None = None  # (items, d), of which `actions` names a row; used where there is no `own`
    actions: Ints | None = None
    propensities: Floats | None = None

    @cached_property
    def features(self) -> Floats:
        """Features (rows, d); looked up when first asked for."""
        return self.take(slice(None))

    @property
    def coded(self) -> Coded | None:
        """Catalogue and actions, where rows bring no features of their own."""
        if self.own is not None or self.table is None or self.actions is None:
            return None
        return Coded(self.table, self.actions)

    def take(self, rows: slice | Ints) -> Floats:
        """Features of some rows."""
        if self.own is not None:
            return self.own[rows]
        assert self.table is not None and self.actions is not None
        return self.table[self.actions[rows]]

    @property
    def dim(self) -> int:
        """Number of features d."""
        held = self.table if self.own is None else self.own
        assert held is not None
        return int(held.shape[1])

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
