"""Sources: where logs take whole histories from (memory, spilled buckets, or files grouped by user).

Some of the users of logs: the same histories without the others, the catalogue as it was.

Who is taken is decided by the hash of the user alone, so that every source, engine and order gives the same users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Literal, Protocol

import numpy as np
import polars as pl

from newcomer.arrays import Bools, Hashes, Ints
from newcomer.errors import LogsError
from newcomer.logs.disk_store import DiskStore, Scratch, Spill
from newcomer.logs.histories import (
    Histories,
    Limits,
    Rows,
    arrange_histories,
    concatenate_histories,
    gather_history_rows,
)
from newcomer.logs.items import Items
from newcomer.logs.reader import Progress, Reader
from newcomer.logs.summary import LogTotals, RewardHistogram, summary_reward_limits, summary_totals
from newcomer.logs.workers import Engine

Clip = Limits | Literal["auto"] | None


class Source(Protocol):
    """Histories in parts, each of whole users, in the same order every time; `limits` are those of the rewards."""

    limits: Limits | None

    def parts(self) -> Iterator[Histories]:
        """Read the parts one after another."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class Watched:
    """Chunks that are read once, and the histogram of the rewards read so far."""

    def __init__(self, chunks: Iterable[Rows]) -> None:
        self._chunks, self.rewards = chunks, RewardHistogram()

    def __iter__(self) -> Iterator[Rows]:
        for chunk in self._chunks:
            self.rewards = self.rewards.seeing(chunk.rewards)
            yield chunk

    def limits(self, clip: Clip) -> Limits | None:
        """What rewards are brought within, once all chunks are read."""
        return memory_store_reward_limits(clip, self.rewards)


def memory_store_reward_limits(clip: Clip, rewards: RewardHistogram) -> Limits | None:
    """What rewards are brought within, from what was asked for and the histogram of all of them."""
    return summary_reward_limits(rewards) if clip == "auto" else clip


class Held:
    """Histories held in memory: the usual case, one part with everybody."""

    def __init__(self, part: Histories, limits: Limits | None) -> None:
        self._part, self.limits = part, limits

    def parts(self) -> Iterator[Histories]:
        """The one part."""
        yield self._part

    def close(self) -> None:
        """Nothing to release."""


class Grouped:
    """Files whose rows are grouped by user, read again for every pass; nothing is kept but a chunk.

    The cheapest in memory and the dearest in time, since text is parsed and checked anew each time.
    """

    def __init__(self, reader: Reader, items: Items | None, clip: Clip = None) -> None:
        self._reader, self._items = reader, items
        watched = Watched(reader.rows(items) if clip == "auto" else ())
        for _ in watched:  # limits found from the rewards need a look at all of them first
            pass
        self.limits = watched.limits(clip)

    def parts(self, progress: Progress | None = None) -> Iterator[Histories]:
        """Histories chunk by chunk; the last user of a chunk waits for the next, where it may go on."""
        for _, part in self.blocks(self._reader.rows(self._items, progress)):
            yield part

    def blocks(self, chunks: Iterable[Rows]) -> Iterator[tuple[Rows, Histories]]:
        """Chunks cut anew, between users: rows as they came, and their histories."""
        for rows in self._recut(chunks):
            yield rows, _contiguous(rows, self.limits)

    def _recut(self, chunks: Iterable[Rows]) -> Iterator[Rows]:
        waiting: Rows | None = None
        for chunk in chunks:
            rows = chunk if waiting is None else concatenate_histories([waiting, chunk])
            changes = _changes(rows.users)
            cut = int(changes[-1]) if len(changes) else 0
            waiting = rows.slice(cut, len(rows))
            if cut:
                yield rows.slice(0, cut)
        if waiting is not None:
            yield waiting

    def totals(self, progress: Progress | None = None) -> LogTotals:
        """The totals of all users. A user who comes back after their block has ended is refused.

        Within a chunk the ids tell; across chunks the hashes do, 8 bytes a user.
        """
        total, seen = LogTotals(), []
        watched = Watched(self._reader.rows(self._items, progress))
        for _, part in self.blocks(watched):
            total += summary_totals(part, self._items)
            seen.append(part.hashes)
        hashes, counts = np.unique(np.concatenate(seen), return_counts=True)
        if (counts > 1).any():
            again = hashes[np.argmax(counts > 1)]
            raise _returns(next(p.users[int(np.argmax(p.hashes == again))] for p in self.parts() if again in p.hashes))
        return total + LogTotals(rewards=watched.rewards)

    def close(self) -> None:
        """Nothing to release."""


def store_rows_in_memory(
    chunks: Iterable[Rows], items: Items | None, *, memory: int, rows: int, clip: Clip = None
) -> tuple[Source, LogTotals]:
    """Hold rows in memory, or spill them by user once they outgrow `memory` bytes; `rows` are expected in all.

    Returns where histories can be read from, any number of times, and what there is to say about them as a whole.
    Rewards are counted as they come, so that limits are known once all rows are there, before any is handed out.
    """
    held: list[Rows] = []
    size = 0
    watched = Watched(chunks)
    coming = iter(watched)
    for chunk in coming:
        held.append(chunk)
        size += chunk.nbytes
        if size > memory:
            # So many buckets that one takes an eighth of the memory: loading and sorting need several copies of it.
            expected = size * rows // sum(map(len, held))
            buckets = int(np.clip(-(-8 * expected // max(1, memory)), 8, 4096))
            source, total = _spilled(chain(_drain(held), coming), items, buckets, lambda: watched.limits(clip))
            return source, total + LogTotals(rewards=watched.rewards)
    joined = concatenate_histories(held)
    held.clear()
    part = arrange_histories(joined, watched.limits(clip))
    return Held(part, watched.limits(clip)), summary_totals(part, items) + LogTotals(rewards=watched.rewards)


def _spilled(
    chunks: Iterable[Rows], items: Items | None, buckets: int, limits: Callable[[], Limits | None]
) -> tuple[Source, LogTotals]:
    """Scatter all rows to disk, then sort and sum up bucket by bucket; a failure leaves no file behind.

    The `limits` of rewards are asked for once all chunks are read.
    """
    spill, total = Spill(buckets), LogTotals()
    try:
        for chunk in chunks:
            spill.add(chunk)
        for part in spill.sort(limits()):
            total += summary_totals(part, items)
    except BaseException:
        spill.close()
        raise
    return spill.store(limits()), total


def _drain(chunks: list[Rows]) -> Iterator[Rows]:
    """The chunks, each let go of when the next is asked for."""
    while chunks:
        yield chunks.pop(0)


def _changes(users: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the rows whose user is not that of the row before."""
    return np.flatnonzero((users[1:] != users[:-1]).to_numpy()) + 1


def _contiguous(rows: Rows, limits: Limits | None) -> Histories:
    """The histories of rows that should be grouped by user: as many runs of equal users as there are users."""
    part = arrange_histories(rows, limits)
    runs = rows.users.gather(np.append(0, _changes(rows.users)))
    if len(runs) > len(part.users):
        raise _returns(runs.filter(runs.is_duplicated())[0])
    return part


def _returns(user: object) -> LogsError:
    todo = "group the rows by user, or read without grouped=True"
    return LogsError(f"user {user!r} has rows that are not adjacent", todo=todo)


Keep = Callable[[Hashes], Bools]


class UserFilter:
    """A source that hands out some users of another, chosen anew at every pass: nothing is copied to keep."""

    def __init__(self, source: Source, keep: Keep) -> None:
        self._source, self._keep = source, keep
        self.limits: Limits | None = source.limits

    def parts(self) -> Iterator[Histories]:
        """What is left of each part, if anybody is."""
        for part in self._source.parts():
            who = np.flatnonzero(self._keep(part.hashes))
            if len(who):
                yield _histories_taken_from_store(part, who)

    def close(self) -> None:
        """Nothing of its own to release."""


class Kept:
    """Parts held in memory."""

    def __init__(self, parts: list[Histories], limits: Limits | None) -> None:
        self._parts, self.limits = parts, limits

    def parts(self) -> Iterator[Histories]:
        """One after another."""
        return iter(self._parts)

    def close(self) -> None:
        """Nothing to release."""


def memory_store_of_some_users(
    source: Source, keep: Keep, items: Items | None, engine: Engine | None
) -> tuple[Source, LogTotals]:
    """The users for whose hashes `keep` is true, in a disk store where workers are to read them, and their totals."""
    left: Source = UserFilter(source, keep)
    if engine is not None:
        left = DiskStore.holding(left.parts(), engine.room(), left.limits)
    elif isinstance(source, Held | Kept):  # what is in memory is copied once
        left = Kept(list(left.parts()), left.limits)
    total = _totals(left, items)
    if not total.users:
        raise LogsError("no user is left", todo="keep some of them")
    return left, total


def keep_memory_store_parts(
    source: Source, choose: Callable[[Histories], Histories | None], items: Items | None, engine: Engine | None
) -> tuple[Source, LogTotals]:
    """What is chosen of each part, written to disk where the parts are there; nobody may be left."""
    found = (part for part in map(choose, source.parts()) if part is not None)
    left: Source
    if engine is None and isinstance(source, Held | Kept):
        left = Kept(list(found), source.limits)
    else:
        left = DiskStore.holding(found, Scratch() if engine is None else engine.room(), source.limits)
    return left, _totals(left, items)


def _totals(source: Source, items: Items | None) -> LogTotals:
    total = LogTotals()
    for part in source.parts():
        total += summary_totals(part, items) + LogTotals(rewards=RewardHistogram().seeing(part.rewards))
    return total


def _histories_taken_from_store(part: Histories, who: Ints) -> Histories:
    """The histories of the users at positions `who` (m,), in this order."""
    lengths = np.diff(part.offsets)[who]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(part.offsets[who] - offsets[:-1], lengths) + np.arange(offsets[-1])
    columns = {name: gather_history_rows(column, rows) for name, column in part.columns().items()}
    return replace(
        part, users=part.users.gather(who), hashes=part.hashes[who], offsets=offsets, ties=0, clipped=0, **columns
    )
