"""Sources: where a Logs object takes whole histories from (memory, spilled buckets, or files grouped by user)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import chain
from operator import add
from typing import Protocol

import numpy as np
import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Rows, arrange
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.reading import Progress, Reader
from newcomer.logs.intake.spilling import Spill, concatenate
from newcomer.logs.intake.survey import Survey, survey


class Source(Protocol):
    """Histories in parts, each of whole users, in the same order every time."""

    def parts(self) -> Iterator[Histories]:
        """Read the parts one after another."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class Held:
    """Histories held in memory."""

    def __init__(self, part: Histories) -> None:
        self._part = part

    def parts(self) -> Iterator[Histories]:
        """The one part."""
        yield self._part

    def close(self) -> None:
        """Nothing to release."""


class Grouped:
    """Files whose rows are grouped by user, read again for every pass; nothing is kept but a chunk."""

    def __init__(self, reader: Reader, items: Items | None) -> None:
        self._reader, self._items = reader, items

    def parts(self, progress: Progress | None = None) -> Iterator[Histories]:
        """Histories chunk by chunk; the last user of a chunk waits for the next, where it may go on."""
        waiting: Rows | None = None
        for chunk in self._reader.rows(self._items, progress):
            rows = chunk if waiting is None else concatenate([waiting, chunk])
            cut = _start_of_last(rows.users)
            waiting = rows.slice(cut, len(rows))
            if cut:
                yield _contiguous(rows.slice(0, cut))
        if waiting is not None:
            yield _contiguous(waiting)

    def survey(self, progress: Progress | None = None) -> Survey:
        """Survey of all users, none of which may come back after its block has ended."""
        total, seen = Survey(), []
        for part in self.parts(progress):
            total += survey(part, self._items)
            seen.append(part.hashes)
        hashes, counts = np.unique(np.concatenate(seen) if seen else np.empty(0, np.uint64), return_counts=True)
        if (counts > 1).any():
            raise _returns(self._name(hashes[np.argmax(counts > 1)]))
        return total

    def close(self) -> None:
        """Nothing to release."""

    def _name(self, user_hash: np.uint64) -> object:
        found = (
            part.users[int(np.argmax(part.hashes == user_hash))] for part in self.parts() if user_hash in part.hashes
        )
        return next(found)


def collect(chunks: Iterable[Rows], items: Items | None, *, memory: int, rows: int) -> tuple[Source, Survey]:
    """Hold rows in memory, or spill them by user once they outgrow `memory` bytes; `rows` are expected in all."""
    held: list[Rows] = []
    size = 0
    chunks = iter(chunks)
    for chunk in chunks:
        held.append(chunk)
        size += chunk.nbytes
        if size > memory:
            buckets = _buckets(size * rows // sum(map(len, held)), memory)
            return _spilled(chain(_drain(held), chunks), items, buckets)
    joined = concatenate(held)
    held.clear()
    part = arrange(joined)
    return Held(part), survey(part, items)


def _spilled(chunks: Iterable[Rows], items: Items | None, buckets: int) -> tuple[Source, Survey]:
    spill = Spill(buckets)
    try:
        for chunk in chunks:
            spill.add(chunk)
        return spill, reduce(add, (survey(part, items) for part in spill.sort()))
    except BaseException:
        spill.close()
        raise


def _buckets(size: int, memory: int) -> int:
    """So many that a bucket takes an eighth of the memory, since loading and sorting need several copies of it."""
    return int(np.clip(-(-8 * size // max(1, memory)), 8, 4096))


def _drain(chunks: list[Rows]) -> Iterator[Rows]:
    while chunks:
        yield chunks.pop(0)


def _start_of_last(users: pl.Series) -> int:
    """Where the last run of equal users begins."""
    change = np.flatnonzero((users[1:] != users[:-1]).to_numpy())
    return int(change[-1]) + 1 if len(change) else 0


def _contiguous(rows: Rows) -> Histories:
    part = arrange(rows)
    starts = (rows.users[1:] != rows.users[:-1]).to_numpy()
    if np.count_nonzero(starts) + 1 > len(part.users):
        runs = rows.users.gather(np.append(0, np.flatnonzero(starts) + 1))
        raise _returns(runs.filter(runs.is_duplicated())[0])
    return part


def _returns(user: object) -> LogsError:
    return LogsError(
        f"user {user!r} comes back after its rows had ended",
        todo="group the rows by user, or read without grouped=True",
    )
