"""Batch: some users' whole histories as flat arrays, the only form in which computations see logs.

Rows of a user are contiguous and in time order; user i has rows `offsets[i]:offsets[i + 1]`. A row's features x (d,)
are either its own (`row_features`), or those of the action that it names, a row of `table`. A catalogue is much smaller
than a log, so whatever is linear in features can then be computed once for each action instead of once for each row:
`coded` hands out the catalogue exactly when that is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints, read_only_array
from newcomer.encoding import Column
from newcomer.logs.candidates import Candidates
from newcomer.one_hot import Catalogue
from newcomer.records import Shown, freeze_record
from newcomer.transforms import Transform, untransform_rewards


class Coded(NamedTuple):
    """Rows written as numbers of actions: the features of row i are `table[actions[i]]`, `table` being (items, d)."""

    table: Catalogue
    actions: Ints


@dataclass(frozen=True)
class Batch(Shown):
    """Whole histories of n users, rows in all. The arrays are views of the logs, and cannot be written to.

    `users` (n,) are the ids. `hashes` (n,) are 64-bit hashes of the ids that depend on nothing else, so that whatever
    is drawn from them (buckets, signs, arms) does not change with the order of users or files. `offsets` (n + 1,) say
    where each history begins. `rewards` and `propensities` are (rows,). With a `reward_transform`, `rewards` are on the
    scale that is learned on, and `paid` are the rewards themselves.

    `actions` (rows,) are positions in `Logs.action_ids`. They are there whenever the logs name actions, also beside
    `row_features` (rows, d). Features are looked up in `table` (items, d) only where rows bring none; that of one-hot
    actions is not written out (`newcomer.one_hot`). `candidates` are the actions that each row offered, `arms` (rows,)
    positions in `Logs.arms`; both only if they were logged. `attributes` (n, p) are those of the users, encoded
    (`newcomer.encoding`), by `attribute_columns`, NaN where they are not known; only if the logs have a table of users.
    """

    users: NDArray[np.generic]
    hashes: NDArray[np.uint64]
    offsets: Ints
    rewards: Floats
    row_features: Floats | None = None
    table: Catalogue | None = None
    actions: Ints | None = None
    propensities: Floats | None = None
    candidates: Candidates | None = None
    arms: Ints | None = None
    reward_transform: Transform | None = None
    attributes: Floats | None = None
    attribute_columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        freeze_record(self)

    @cached_property
    def features(self) -> Floats:
        """Features (rows, d); looked up when first asked for, since one-hot features of many actions are large."""
        return read_only_array(self.take(slice(None)))

    @cached_property
    def paid(self) -> Floats:
        """The rewards (rows,) in their own units: the units of gains."""
        return untransform_rewards(self.rewards, self.reward_transform)

    @property
    def coded(self) -> Coded | None:
        """Catalogue and actions if these give the features; None where rows bring features, whatever they name."""
        if self.row_features is not None:
            return None
        assert self.table is not None and self.actions is not None
        return Coded(self.table, self.actions)

    def take(self, rows: slice | Ints) -> Floats:
        """Features (len(rows), d) of some rows."""
        if self.row_features is not None:
            return self.row_features[rows]
        assert self.table is not None and self.actions is not None
        return self.table[self.actions[rows]]

    @property
    def dim(self) -> int:
        """Number of features d."""
        held = self.table if self.row_features is None else self.row_features
        assert held is not None
        return int(held.shape[1])

    @property
    def lengths(self) -> Ints:
        """Number of rows of each user, (n,)."""
        return np.diff(self.offsets)

    def by_length(self) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """For each history length H: (H, positions of its m users (m,), features (m, H, d), rewards (m, H)).

        Equally long histories stack into one array, so that a user costs no turn of a Python loop.
        """
        lengths = self.lengths
        for length in np.unique(lengths):
            who = np.flatnonzero(lengths == length)
            if len(who) == len(lengths):  # equal lengths: a view, no copy
                yield int(length), who, self.features.reshape(len(who), length, -1), self.rewards.reshape(-1, length)
                continue
            rows = self.offsets[who][:, None] + np.arange(length)
            yield int(length), who, self.features[rows], self.rewards[rows]
