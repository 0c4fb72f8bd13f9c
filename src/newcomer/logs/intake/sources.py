"""Sources: where a Logs object takes whole histories from (memory, spilled buckets, or files grouped by user)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import numpy as np
import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Rows, arrange, concatenate
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.reading import Progress, Reader
from newcomer.logs.intake.spilling import Spill
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
    """Histories held in memory: the usual case, one part with everybody."""

    def __init__(self, part: Histories) -> None:
        self._part = part

    def parts(self) -> Iterator[Histories]:
        """The one part."""
        yield self._part

    def close(self) -> None:
        """Nothing to release."""


class Grouped:
    """Files whose rows are grouped by user, read again for every pass; nothing is kept but a chunk.

    The cheapest in memory and the dearest in time, since text is parsed and checked anew each time.
    """

    def __init__(self, reader: Reader, items: Items | None) -> None:
        self._reader, self._items = reader, items

    def parts(self, progress: Progress | None = None) -> Iterator[Histories]:
        """Histories chunk by chunk; the last user of a chunk waits for the next, where it may go on."""
        waiting: Rows | None = None
        for chunk in self._reader.rows(self._items, progress):
            rows = chunk if waiting is None else concatenate([waiting, chunk])
            changes = _changes(rows.users)
            cut = int(changes[-1]) if len(changes) else 0
            waiting = rows.slice(cut, len(rows))
            if cut:
                yield _contiguous(rows.slice(0, cut))
        if waiting is not None:
            yield _contiguous(waiting)

    def survey(self, progress: Progress | None = None) -> Survey:
        """Survey of all users, none of whom may come back after their block has ended.

        A chunk finds those who come back within it; across chunks the hashes tell, 8 bytes a user.
        """
        total, seen = Survey(), []
        for part in self.parts(progress):
            total += survey(part, self._items)
            seen.append(part.hashes)
        hashes, counts = np.unique(np.concatenate(seen), return_counts=True)
        if (counts > 1).any():
            again = hashes[np.argmax(counts > 1)]
            raise _returns(next(p.users[int(np.argmax(p.hashes == again))] for p in self.parts() if again in p.hashes))
        return total

    def close(self) -> None:
        """Nothing to release."""


def collect(chunks: Iterable[Rows], items: Items | None, *, memory: int, rows: int) -> tuple[Source, Survey]:
    """Hold rows in memory, or spill them by user once they outgrow `memory` bytes; `rows` are expected in all.

    Returns where histories can be read from, any number of times, and what there is to say about them as a whole.
    """
    held: list[Rows] = []
    size = 0
    chunks = iter(chunks)
    for chunk in chunks:
        held.append(chunk)
        size += chunk.nbytes
        if size > memory:
            # So many buckets that one takes an eighth of the memory: loading and sorting need several copies of it.
            expected = size * rows // sum(map(len, held))
            buckets = int(np.clip(-(-8 * expected // max(1, memory)), 8, 4096))
            return _spilled(chain(_drain(held), chunks), items, buckets)
    joined = concatenate(held)
    held.clear()
    part = arrange(joined)
    return Held(part), survey(part, items)


def _spilled(chunks: Iterable[Rows], items: Items | None, buckets: int) -> tuple[Source, Survey]:
    """Scatter all rows to disk, then sort and survey bucket by bucket; whatever fails leaves no file behind."""
    spill, total = Spill(buckets), Survey()
    try:
        for chunk in chunks:
            spill.add(chunk)
        for part in spill.sort():
            total += survey(part, items)
    except BaseException:
        spill.close()
        raise
    return spill, total


def _drain(chunks: list[Rows]) -> Iterator[Rows]:
    """The chunks, each let go of when the next is asked for."""
    while chunks:
        yield chunks.pop(0)


def _changes(users: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the rows whose user is not that of the row before."""
    return np.flatnonzero((users[1:] != users[:-1]).to_numpy()) + 1


def _contiguous(rows: Rows) -> Histories:
    """The histories of rows that should be grouped by user: as many runs of equal users as there are users."""
    part = arrange(rows)
    runs = rows.users.gather(np.append(0, _changes(rows.users)))
    if len(runs) > len(part.users):
        raise _returns(runs.filter(runs.is_duplicated())[0])
    return part


def _returns(user: object) -> LogsError:
    todo = "group the rows by user, or read without grouped=True"
    return LogsError(f"user {user!r} comes back after its rows had ended", todo=todo)
