"""Shared rows: users who have learned nothing yet have one row of a state's arrays together.

A fresh user is the prior, so that a million of them need one row and an index. A user who learns first gets a row of
their own, a copy, at the end of the arrays, which grow by doubling. Only rows without any reward are ever shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.arrays import Bools, Ints
from newcomer.users import mix_user_hashes

FIRST = 64  # rows that arrays have room for once a user needs one of their own


@dataclass
class SharedRows:
    """Which row each user has: `index` (n,), how many users have a row, `holders` (R,), and the rows in use."""

    index: Ints
    holders: Ints
    used: int

    @classmethod
    def of(cls, index: Ints, rows: int) -> SharedRows:
        """Users with these rows, of so many."""
        return cls(index, np.bincount(index, minlength=rows), rows)

    def crowded(self, users: Ints) -> Ints:
        """Those of `users`, each once, who share their row with others."""
        found: Ints = np.unique(users[self.holders[self.index[users]] > 1])
        return found

    def reserve(self, count: int) -> int:
        """The length that arrays must have for so many more rows."""
        needed = self.used + count
        longer = max(needed, 2 * len(self.holders), FIRST) if needed > len(self.holders) else len(self.holders)
        self.holders = np.append(self.holders, np.zeros(longer - len(self.holders), dtype=np.int64))
        return longer

    def move(self, users: Ints, rows: Ints) -> None:
        """Give each of `users` one of these new rows."""
        np.subtract.at(self.holders, self.index[users], 1)
        self.holders[rows], self.index[users] = 1, rows
        self.used += len(rows)

    def taken(self, users: Ints) -> tuple[Ints, Ints]:
        """The index (m,) of users who are taken out, and the rows (r,) that go with them."""
        rows = self.index[users]
        return grouped_shared_rows(rows, self.holders[rows] == 1)


def grouped_shared_rows(keys: Ints, alone: Bools) -> tuple[Ints, Ints]:
    """Users with equal keys (n,) share a row, except those who are `alone`: index (n,), and the key of each row.

    Rows are in the order in which users first have them.

    >>> index, rows = grouped_shared_rows(np.array([7, 5, 7, 5]), np.array([False, True, False, True]))
    >>> index.tolist(), rows.tolist()
    ([0, 1, 0, 2], [7, 5, 5])
    """
    labels = np.where(alone, -1 - np.arange(len(keys)), keys)
    _, first, which = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[which.ravel()], keys[first[order]]


def alike_shared_rows(arrays: Sequence[NDArray[Any]], rows: Ints) -> Ints:
    """For each of `rows` (m,), the first of them that has the same entries, to the bit, in all arrays."""
    total = np.zeros(len(rows), dtype=np.uint64)
    for number, array in enumerate(arrays):
        words = _words(array, rows)
        total += words @ mix_user_hashes(np.arange(words.shape[1], dtype=np.uint64) + np.uint64(number << 32))
    _, first, which = np.unique(total, return_index=True, return_inverse=True)
    found = rows[first[which.ravel()]]
    same = all(np.array_equal(_words(array, rows), _words(array, found)) for array in arrays)
    return found if same else rows  # two sums that are equal by chance: each row by itself is right, too


def _words(array: NDArray[Any], rows: Ints) -> NDArray[np.uint64]:
    """Some rows of an array as words (m, w)."""
    block = array[rows].reshape(len(rows), int(np.prod(array.shape[1:])))
    return (block.astype(np.int64) if block.dtype.itemsize != 8 else np.ascontiguousarray(block)).view(np.uint64)
