"""Histories: rows grouped by user and put in time order, the compact form in which logs are held.

Rows arrive in the order (file name, row). A stable sort by (user, step) therefore breaks ties by file name, then row.
Users are ordered by their id, so that the result does not depend on the order in which they arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.batch import Floats, Ints
from newcomer.users import mix

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True)
class Rows:
    """Validated rows in arrival order: `users` is Int64 or String; features come as rows or as item positions."""

    users: pl.Series
    rewards: Floats
    actions: NDArray[np.int32] | None = None
    features: NDArray[np.floating] | None = None
    propensities: Floats | None = None
    steps: Ints | None = None
    timestamps: bool = False

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        arrays = (self.rewards, self.actions, self.features, self.propensities, self.steps)
        return int(self.users.estimated_size()) + sum(array.nbytes for array in arrays if array is not None)

    def slice(self, start: int, stop: int) -> Rows:
        """Rows `start:stop`, as views."""
        columns = ("users", "rewards", "actions", "features", "propensities", "steps")
        return replace(self, **{name: _part(getattr(self, name), start, stop) for name in columns})


@dataclass(frozen=True)
class Histories:
    """Whole histories of users: user i owns rows `offsets[i]:offsets[i + 1]` of the columns, in time order."""

    users: pl.Series
    hashes: NDArray[np.uint64]
    offsets: Ints
    rewards: Floats
    actions: NDArray[np.int32] | None = None
    features: NDArray[np.floating] | None = None
    propensities: Floats | None = None
    ties: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.rewards)

    def cuts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of users with at most `rows` rows each, or one user."""
        first, users = 0, len(self.offsets) - 1
        while first < users:
            last = int(np.searchsorted(self.offsets, self.offsets[first] + rows, side="right")) - 1
            last = min(max(last, first + 1), users)
            yield first, last
            first = last

    def slice(self, first: int, last: int) -> Histories:
        """Users `first:last`, as views; ties stay with the whole."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        columns = ("rewards", "actions", "features", "propensities")
        return replace(
            self,
            users=self.users[first:last],
            hashes=self.hashes[first:last],
            offsets=self.offsets[first : last + 1] - start,
            ties=0,
            **{name: _part(getattr(self, name), start, stop) for name in columns},
        )

    def ids(self) -> NDArray[np.generic]:
        """Ids of the users: integers, or an object array of str."""
        return self.users.to_numpy(writable=True)


def arrange(rows: Rows) -> Histories:
    """Group rows by user and sort each user's by step; equal integer steps of a user are refused, times counted."""
    users, codes = _encode(rows.users)
    order = _order(codes, rows.steps)
    codes = _take(codes, order)
    offsets = np.searchsorted(codes, np.arange(len(users) + 1)).astype(np.int64)
    steps = None if rows.steps is None else _take(rows.steps, order)
    return Histories(
        users=users,
        hashes=hash_users(users),
        offsets=offsets,
        rewards=_take(rows.rewards, order),
        actions=None if rows.actions is None else _take(rows.actions, order),
        features=None if rows.features is None else _take(rows.features, order),
        propensities=None if rows.propensities is None else _take(rows.propensities, order),
        ties=0 if steps is None else _ties(users, codes, steps, timestamps=rows.timestamps),
    )


def hash_users(users: pl.Series) -> NDArray[np.uint64]:
    """64-bit hashes of ids, the same on every machine: SplitMix64 of integers, BLAKE2b of UTF-8 text."""
    if users.dtype != pl.String:
        return mix(users.to_numpy().astype(np.int64, copy=False).view(np.uint64))
    digests = b"".join(blake2b(user.encode(), digest_size=8).digest() for user in users)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _encode(users: pl.Series) -> tuple[pl.Series, Ints]:
    """Distinct ids in ascending order, and each row's position among them."""
    if users.dtype == pl.String:
        distinct = users.unique().sort()
        return distinct, users.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64)
    values = users.to_numpy()
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values) + 1024:
        ids, codes = np.unique(values, return_inverse=True)
        return pl.Series(ids), codes.astype(np.int64, copy=False)
    present = np.zeros(high - low + 1, dtype=bool)
    present[values - low] = True
    return pl.Series(np.flatnonzero(present) + low), (np.cumsum(present) - 1)[values - low]


def _order(codes: Ints, steps: Ints | None) -> Ints | None:
    """The stable order by (code, step), or None if the rows are already in it."""
    if _ascending(codes, steps):
        return None
    if steps is None or bool(np.all(steps[1:] >= steps[:-1])):
        return _packed(codes)
    low, high = int(steps.min()), int(steps.max())
    span = high - low + 1
    if (int(codes.max()) + 1) * span * len(codes) < 2**63:
        return _packed(codes * span + (steps - low))
    return np.lexsort((steps, codes))


def _ascending(codes: Ints, steps: Ints | None) -> bool:
    later = codes[1:] > codes[:-1]
    same = codes[1:] == codes[:-1]
    return bool(np.all(later | same if steps is None else later | (same & (steps[1:] >= steps[:-1]))))


def _packed(keys: Ints) -> Ints:
    # Sorting key * rows + row as plain numbers is several times faster than an indirect stable sort.
    rows = len(keys)
    if (int(keys.max()) + 1) * rows >= 2**63:
        return np.argsort(keys, kind="stable")
    packed = keys * rows + np.arange(rows)
    packed.sort()
    packed %= rows
    return packed


def _ties(users: pl.Series, codes: Ints, steps: Ints, *, timestamps: bool) -> int:
    """Rows that share user and time with another row; with integer steps these are an error."""
    equal = (codes[1:] == codes[:-1]) & (steps[1:] == steps[:-1])
    if not equal.any():
        return 0
    if not timestamps:
        first = int(np.argmax(equal))
        raise LogsError(
            f"user {users[int(codes[first])]!r} has step {int(steps[first])} more than once",
            where="column step",
            todo="give each row of a user its own step, store times as timestamps (equal ones are allowed), or pass "
            "epoch='s' if the steps are Unix seconds",
        )
    return int(np.count_nonzero(np.append(equal, False) | np.append(False, equal)))


def _take(column: NDArray[Kind], order: Ints | None) -> NDArray[Kind]:
    if order is not None:
        return column[order]
    return column if column.flags.writeable else column.copy()  # compiled loops would be compiled twice otherwise


def _part(column: Any, start: int, stop: int) -> Any:
    return None if column is None else column[start:stop]
