"""Histories: rows grouped by user and put in time order, the compact form in which logs are held.

Rows arrive in the order (file name, row). A stable sort by (user, step) therefore breaks ties by file name, then row.
Users are ordered by their id, so that the result does not depend on the order in which they arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints
from newcomer.logs.candidates import Candidates
from newcomer.logs.faults import SHOWN, repeated_steps_fault
from newcomer.users import mix_user_hashes

Kind = TypeVar("Kind", bound=np.generic)
Limits = tuple[float, float]  # the lowest and the highest reward that is let through
# What a row may have besides its user, as fields of Rows; all but the step are kept in Histories.
_COLUMNS = ("rewards", "actions", "features", "propensities", "candidates", "arms", "steps")


@dataclass(frozen=True)
class Rows:
    """Validated rows in the order of arrival, every column (rows, ...).

    `users` is Int64 or String. `actions` are positions in the catalogue; `features` (rows, d) are there if rows bring
    their own. `candidates` are lists of positions, `arms` positions in `LogLayout.arms`. `steps` are integers, or
    nanoseconds if `timestamps`, whose ties are allowed.
    """

    users: pl.Series
    rewards: Floats
    actions: NDArray[np.int32] | None = None
    features: NDArray[np.floating] | None = None
    propensities: Floats | None = None
    candidates: pl.Series | None = None
    arms: NDArray[np.int16] | None = None
    steps: Ints | None = None
    timestamps: bool = False

    def __len__(self) -> int:
        return len(self.rewards)

    def columns(self) -> dict[str, Any]:
        """The columns that are there, by name, without the users."""
        return _present(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return int(self.users.estimated_size() + sum(map(_nbytes, self.columns().values())))

    def slice(self, start: int, stop: int) -> Rows:
        """Rows `start:stop`, as views."""
        parts = {name: column[start:stop] for name, column in self.columns().items()}
        return replace(self, users=self.users[start:stop], **parts)


def concatenate_histories(chunks: Sequence[Rows]) -> Rows:
    """Chunks of rows one after another, all with the columns of the first."""
    if len(chunks) == 1:
        return chunks[0]
    names = chunks[0].columns()
    joined: dict[str, Any] = {name: _join([getattr(chunk, name) for chunk in chunks]) for name in names}
    return replace(chunks[0], users=pl.concat([chunk.users for chunk in chunks], rechunk=True), **joined)


@dataclass(frozen=True)
class Histories:
    """Whole histories of n users: user i has rows `offsets[i]:offsets[i + 1]` of the columns, in time order.

    `users`, `hashes` are (n,), `offsets` (n + 1,), the columns (rows, ...) as in `Rows`; `ties` counts rows that share
    user and time with another, `clipped` those whose reward was outside the limits.
    """

    users: pl.Series
    hashes: NDArray[np.uint64]
    offsets: Ints
    rewards: Floats
    actions: NDArray[np.int32] | None = None
    features: NDArray[np.floating] | None = None
    propensities: Floats | None = None
    candidates: Candidates | None = None
    arms: NDArray[np.int16] | None = None
    ties: int = 0
    clipped: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.rewards)

    def columns(self) -> dict[str, Any]:
        """The columns with an entry for each row that are there, by name."""
        return _present(self)

    def cuts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges (first user, last user + 1) with at most `rows` rows each, or one user who has more."""
        return _history_cuts(self.offsets, rows)

    def slice(self, first: int, last: int) -> Histories:
        """Users `first:last`, as views; the counts of ties and clipped rows stay with the whole."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return replace(
            self,
            users=self.users[first:last],
            hashes=self.hashes[first:last],
            offsets=self.offsets[first : last + 1] - start,
            ties=0,
            clipped=0,
            **{name: column[start:stop] for name, column in self.columns().items()},
        )


def _history_cuts(offsets: Ints, rows: int) -> Iterator[tuple[int, int]]:
    """Ranges (first user, last user + 1) with at most `rows` rows each, or one user who has more.

    This is what cuts batches: between users and never within one.

    >>> list(_history_cuts(np.array([0, 2, 4, 9]), 4))
    [(0, 2), (2, 3)]
    """
    first, users = 0, len(offsets) - 1
    while first < users:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        last = min(max(last, first + 1), users)
        yield first, last
        first = last


def arrange_histories(rows: Rows, limits: Limits | None = None) -> Histories:
    """Group rows by user and sort each user's by step; equal integer steps of a user are refused, times counted.

    Rewards outside the `limits` are set to the nearer one, and counted.

    Users become small integers (codes) first, in the order of their ids: sorting rows by code is sorting by user, and
    the offsets are where the codes change.

    >>> rows = Rows(pl.Series([8, 7, 8]), rewards=np.array([1.0, 2.0, 3.0]), steps=np.array([5, 1, 4]))
    >>> found = arrange_histories(rows)
    >>> found.users.to_list(), found.offsets.tolist(), found.rewards.tolist()
    ([7, 8], [0, 1, 3], [2.0, 3.0, 1.0])
    """
    users, codes = _encode(rows.users)
    order = _order(codes, rows.steps)
    codes = _take(codes, order)
    columns = {name: _take(column, order) for name, column in rows.columns().items()}
    steps = columns.pop("steps", None)
    clipped = 0 if limits is None else _clip(columns["rewards"], limits)
    return Histories(
        users=users,
        hashes=hash_history_users(users),
        offsets=np.searchsorted(codes, np.arange(len(users) + 1)).astype(np.int64),
        ties=0 if steps is None else _ties(users, codes, steps, timestamps=rows.timestamps),
        clipped=clipped,
        **columns,
    )


def _clip(rewards: Floats, limits: Limits) -> int:
    """Bring rewards (rows,) within the limits, in place, and count those that were not."""
    outside = int(np.count_nonzero((rewards < limits[0]) | (rewards > limits[1])))
    np.clip(rewards, *limits, out=rewards)
    return outside


def hash_history_users(users: pl.Series) -> NDArray[np.uint64]:
    """64-bit hashes of ids, the same on every machine: SplitMix64 of integers, BLAKE2b of UTF-8 text.

    >>> hash_history_users(pl.Series(["ann"])).item() % 1000, hash_history_users(pl.Series([7])).item() % 1000
    (957, 487)
    """
    if users.dtype != pl.String:
        return mix_user_hashes(users.to_numpy().astype(np.int64, copy=False).view(np.uint64))
    digests = b"".join(blake2b(user.encode(), digest_size=8).digest() for user in users)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _encode(users: pl.Series) -> tuple[pl.Series, Ints]:
    """Distinct ids in ascending order (n,), and each row's position among them (rows,).

    Integer ids that lie close together need no sort: a table of which ids occur, counted up, gives the positions.
    """
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
    """The stable order (rows,) by (code, step), or None if the rows are already in it.

    Where steps never fall from row to row, a stable sort by code is enough. Else code and step are packed into one
    number if they fit into 63 bits together with the row, and sorted one after the other only if not.
    """
    later, same = codes[1:] > codes[:-1], codes[1:] == codes[:-1]
    rising = np.True_ if steps is None else steps[1:] >= steps[:-1]
    if bool(np.all(later | (same & rising))):
        return None
    if steps is None or bool(np.all(rising)):
        return _stable_order(codes)
    low, high = int(steps.min()), int(steps.max())
    span = high - low + 1
    if (int(codes.max()) + 1) * span * len(codes) < 2**63:
        return _stable_order(codes * span + (steps - low))
    return np.lexsort((steps, codes))


def _stable_order(keys: Ints) -> Ints:
    """The order that sorts keys, equal ones in the order of rows."""
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
        found = np.flatnonzero(equal & ~np.append(False, equal[:-1]))  # the first of each run of equal steps
        named = [(users[int(codes[row])], int(steps[row])) for row in found[:SHOWN]]
        raise repeated_steps_fault(named, len(found))
    return int(np.count_nonzero(np.append(equal, False) | np.append(False, equal)))


def _nbytes(column: Any) -> int:
    return int(column.estimated_size() if isinstance(column, pl.Series) else column.nbytes)


def _join(columns: Sequence[Any]) -> Any:
    """A column of several chunks as one."""
    return pl.concat(columns, rechunk=True) if isinstance(columns[0], pl.Series) else np.concatenate(columns)


def _take(column: Any, order: Ints | None) -> Any:
    """The column in this order, always writable: a compiled loop would be compiled again for a read-only array."""
    if isinstance(column, pl.Series):
        return Candidates.of(column if order is None else column.gather(order))
    if order is not None:
        return column[order]
    return column if column.flags.writeable else column.copy()


def _present(held: Rows | Histories) -> dict[str, Any]:
    """The columns of rows that are not None, by name."""
    found = {name: getattr(held, name, None) for name in _COLUMNS}
    return {name: column for name, column in found.items() if column is not None}


def gather_history_rows(column: Any, rows: Ints) -> Any:
    """Some rows of a column: of an array, or of lists that are kept as one array and where each begins."""
    if isinstance(column, np.ndarray):
        return column[rows]
    lengths = np.diff(column.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(column.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(column, offsets=offsets, actions=column.actions[places])
