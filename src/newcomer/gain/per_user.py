"""Numbers kept person by person through a pass over the logs: the record that every estimate here is made of.

Averages are taken at the end, over people sorted by their hashes: neither the order of users, nor how they fall into
batches, nor who carries out the pass changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PerUser:
    """`values` (n, ...) of n people, NaN where there is nothing to tell."""

    hashes: Hashes
    values: Floats

    def __add__(self, other: PerUser) -> PerUser:
        """Both groups of people, in an order that depends on nothing but the people."""
        hashes = np.concatenate([self.hashes, other.hashes])
        order = np.argsort(hashes, kind="stable")
        return PerUser(hashes[order], np.concatenate([self.values, other.values])[order])


def gather_per_user(logs: Logs, look: Callable[[Batch], PerUser], progress: Progress | None = None) -> PerUser:
    """What `look` keeps of the people of all batches."""
    return reduce(logs, look, _join, progress=progress)


def _join(one: PerUser, other: PerUser) -> PerUser:
    return one + other


@dataclass(frozen=True)
class UserTable:
    """Numbers of people by name of a predictor or policy: `people.values` are (n, names, ...).

    `folds` (n,) says by which of several fits each of the people was judged; None where there is one.
    """

    names: tuple[str, ...]
    people: PerUser
    folds: Ints | None = None

    def of(self, name: str) -> Floats:
        """The numbers (n, ...) under a name."""
        return np.asarray(self.people.values[:, self.names.index(name)])

    @classmethod
    def joined(cls, tables: Sequence[UserTable]) -> UserTable:
        """The people of several folds, under the names that all of these have."""
        names = tuple(name for name in tables[0].names if all(name in table.names for table in tables))
        hashes = np.concatenate([one.people.hashes for one in tables])
        values = np.concatenate([np.stack([one.of(name) for name in names], axis=1) for one in tables])
        folds = np.repeat(np.arange(len(tables)), [len(one.people.hashes) for one in tables])
        order = np.argsort(hashes, kind="stable")
        return cls(names, PerUser(hashes[order], values[order]), folds[order] if len(tables) > 1 else None)
