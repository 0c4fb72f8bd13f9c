"""Shuffling: files read and sorted by the workers of an engine, a file a task and then a bucket a task.

The readers scatter the rows of their file to hash buckets, files in a folder that all workers see; the sorters take a
bucket each, write its histories to the disk store and sum them up. Between the two the reading process learns how
rewards are distributed and whether all files agree. Logs that are `grouped` by user are not shuffled: each file is a
partition with whole users, whose histories go straight to the disk store; hashes tell whether a user is in two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from newcomer.arrays import Hashes
from newcomer.errors import LogsError
from newcomer.logs.disk_store import DiskStore, Scatter, Scratch, Slices, load_part, save_part, sort_bucket
from newcomer.logs.engine import Engine
from newcomer.logs.histories import Limits, Rows
from newcomer.logs.items import Items
from newcomer.logs.memory_store import Clip, Grouped, Watched, final_limits
from newcomer.logs.reader import Progress, Reader
from newcomer.logs.reward_histogram import RewardHistogram
from newcomer.logs.summary import LogTotals, totals_of

Given = tuple[Reader, Items | None]


@dataclass(frozen=True)
class Arrived:
    """What is to be told of a file that was read: rows, what they look like, their rewards, and where they are now."""

    rows: int
    sample: Rows  # the first row, by which files are compared
    rewards: RewardHistogram
    notes: tuple[str, ...]
    buckets: dict[int, Slices]
    parts: tuple[str, ...] = ()
    total: LogTotals = field(default_factory=LogTotals)
    hashes: Hashes | None = None


def read_in_parallel(
    engine: Engine,
    reader: Reader,
    items: Items | None,
    *,
    clip: Clip,
    grouped: bool,
    memory: int,
    progress: Progress | None,
) -> tuple[DiskStore, LogTotals]:
    """The histories of all files in a disk store that the workers see, and their totals.

    `memory` is that of one worker: buckets are as many as leave each an eighth of it.
    """
    scratch = engine.room()
    try:
        engine.visible(scratch.path)
        given = (reader.portable(), items)
        if grouped:
            return _partitioned(engine, given, scratch, clip, progress)
        buckets = int(np.clip(-(-8 * reader.bytes_expected // max(1, memory)), 8, 4096))
        read = partial(scatter_file, folder=scratch.path, buckets=buckets)
        arrived = list(_read(engine, read, given, progress))
        rewards = sum((one.rewards for one in arrived), RewardHistogram())
        limits = final_limits(clip, rewards)
        written = {b: [one.buckets[b] for one in arrived if b in one.buckets] for b in range(buckets)}
        tasks = [(f"part-{bucket}", several) for bucket, several in written.items() if several]
        total = LogTotals(rewards=rewards)
        for found in engine.each(partial(sort_task, folder=scratch.path, limits=limits), tasks, given=items):
            total += found
    except BaseException:
        scratch.close()
        raise
    return DiskStore(scratch.path, [name for name, _ in tasks], limits=limits, scratch=scratch), total


def _read(
    engine: Engine, read: Callable[[Given, int], Arrived | None], given: Given, progress: Progress | None
) -> Iterator[Arrived]:
    """What comes of each file; all must have the types of the first."""
    reader, done, first = given[0], 0, None
    for number, one in enumerate(engine.each(read, range(len(reader.tables)), given=given)):
        if one is None:  # a file without rows
            continue
        first = first or one.sample
        reader.compare(first, one.sample, reader.tables[number])
        reader.notes.update(dict.fromkeys(one.notes))
        done += one.rows
        yield one
        if progress is not None:
            progress(done, reader.total)


def scatter_file(given: Given, number: int, *, folder: Path, buckets: int) -> Arrived | None:
    """Read a file and scatter its rows: the task of a reader."""
    reader, items = given
    alone = replace(reader, tables=(reader.tables[number],), notes={})
    scatter, watched = Scatter(folder, buckets), Watched(alone.rows(items))
    rows, sample = 0, None
    for chunk in watched:
        rows, sample = rows + len(chunk), sample or chunk.slice(0, 1)
        scatter.add(chunk)
    return None if sample is None else Arrived(rows, sample, watched.rewards, tuple(alone.notes), scatter.slices())


def sort_task(items: Items | None, task: tuple[str, list[Slices]], *, folder: Path, limits: Limits | None) -> LogTotals:
    """Sort a bucket into the disk store and sum it up: the task of a sorter."""
    name, written = task
    return totals_of(sort_bucket(written, folder / name, limits), items)


def _partitioned(
    engine: Engine, given: Given, scratch: Scratch, clip: Clip, progress: Progress | None
) -> tuple[DiskStore, LogTotals]:
    """Files with whole users, written to the disk store as they are."""
    if clip == "auto":
        todo = "give the limits, clip=(low, high) (--clip LOW,HIGH), or leave grouped out"
        raise LogsError("grouped logs are not read twice by workers, so limits cannot be found out", todo=todo)
    arrived = list(_read(engine, partial(keep_file, folder=scratch.path, limits=clip), given, progress))
    hashes = np.concatenate([one.hashes for one in arrived if one.hashes is not None])
    found, counts = np.unique(hashes, return_counts=True)
    names = [name for one in arrived for name in one.parts]
    if (counts > 1).any():
        raise _met_twice(scratch.path, names, found[np.argmax(counts > 1)], given[0])
    total = sum((one.total for one in arrived), LogTotals())
    return DiskStore(scratch.path, names, limits=clip, scratch=scratch), total


def keep_file(given: Given, number: int, *, folder: Path, limits: Limits | None) -> Arrived | None:
    """Read a file of whole users and write their histories to the disk store: the task of a reader of grouped logs."""
    reader, items = given
    alone = replace(reader, tables=(reader.tables[number],), notes={})
    watched = Watched(alone.rows(items))
    total, sample = LogTotals(), None
    parts: list[str] = []
    hashes: list[Hashes] = []
    for rows, part in Grouped(alone, items, limits).blocks(watched):
        sample = sample or rows.slice(0, 1)
        parts.append(f"part-{number}-{len(parts)}")
        save_part(part, folder / parts[-1])
        total += totals_of(part, items)
        hashes.append(part.hashes)
    if sample is None:
        return None
    total += LogTotals(rewards=watched.rewards)
    both = np.concatenate(hashes)
    return Arrived(total.rows, sample, watched.rewards, tuple(alone.notes), {}, tuple(parts), total, both)


def _met_twice(folder: Path, names: list[str], again: np.uint64, reader: Reader) -> LogsError:
    """The error for a user who is in two partitions, with both."""
    met = [name for name in names if again in np.load(folder / name / "hashes.npy")]
    part = load_part(folder / met[0])
    user = part.users[int(np.argmax(part.hashes == again))]
    files = list(dict.fromkeys(reader.tables[int(name.split("-")[1])].name for name in met))
    what = f"user {user!r} is in two partitions" if len(files) > 1 else f"user {user!r} comes back"
    return LogsError(what, where=" and ".join(files), todo="write each user to one file, or leave grouped out")
