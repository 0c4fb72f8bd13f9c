"""read_logs: logs from files, folders, patterns, pipes and tables; `newcomer.logs.logs` tells the way of a row.

Shuffling: files read and sorted by the workers of an engine, a file a task and then a bucket a task.

The readers scatter the rows of their file to hash buckets, files in a folder that all workers see; the sorters take a
bucket each, write its histories to the disk store and sum them up. Between the two the reading process learns how
rewards are distributed and whether all files agree. Logs that are `grouped` by user are not shuffled: each file is a
partition with whole users, whose histories go straight to the disk store; hashes tell whether a user is in two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from newcomer.arrays import Hashes
from newcomer.errors import LogsError, NewcomerError
from newcomer.logs import workers as engines
from newcomer.logs.columns import Epoch
from newcomer.logs.disk_store import (
    DiskStore,
    Scatter,
    Scratch,
    Slices,
    load_disk_store_part,
    save_disk_store_part,
    sort_disk_store_bucket,
)
from newcomer.logs.files import Paths
from newcomer.logs.frames import is_frame
from newcomer.logs.histories import Limits, Rows
from newcomer.logs.items import Items
from newcomer.logs.logs import Logs
from newcomer.logs.memory_store import Clip, Grouped, Source, Watched, memory_store_reward_limits, store_rows_in_memory
from newcomer.logs.read_options import FeatureChoice, check_read_options, clip_read_option
from newcomer.logs.reader import Progress, Reader, reader_catalogue
from newcomer.logs.schema import Missing, Renames
from newcomer.logs.service_store import is_service_store, read_service_store
from newcomer.logs.summary import LogTotals, RewardHistogram, summary_totals
from newcomer.logs.text_columns import Dates
from newcomer.logs.workers import Engine, WorkerPool
from newcomer.transforms import Transform
from newcomer.validate import validate_whole

MEMORY = 128 << 20  # sorting needs about three times as much for a moment


def read_logs(
    path: Paths | Any,
    *,
    items: Any = None,
    features: str | Sequence[str] | None = None,
    columns: Renames | None = None,
    users: Any = None,
    attributes: Sequence[str] | None = None,
    intercept: bool = False,
    clip: Clip = None,
    grouped: bool = False,
    memory: int | None = None,
    epoch: Epoch | None = None,
    missing: Missing = "error",
    tidy_ids: bool = False,
    dates: Dates | None = None,
    reward_transform: Transform | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Logs:
    """Read and check logs from Parquet, CSV, JSON lines or a service's store. `Logs.advice` says what was decided.

    Parameters
    ----------
    path
        A file, folder or glob, or a list of these; a pipe, or "-" for standard input; a table, as `Logs.from_frame`
        takes it; or the store of a decision service, `sqlite:///FILE` or `postgresql://...`, which may be running:
        items and users are then those of the store, unless they are passed. Files may be compressed with gzip. Folders
        named `key=value` give a column each. The separator of a CSV and decimal commas are found out; true and false,
        yes and no are numbers.
    items
        Features of the actions: a file or a table with a column `action` and either lists `features` or numeric
        columns, or an array whose row i is action i. A column `name` names them; where there are names and no
        features, every action is its own direction. Without items and without a column `features`, every distinct
        action is its own direction (one-hot; any number of them, never written out).
    features
        Names of the columns to be features, or patterns such as "tax*": of the items table if it has them, else of the
        logs, where numbers are features as they are and text becomes an indicator for each level (rare levels are
        pooled). Named beside items, columns of the logs stand beside the features of the action; `action` itself may be
        one of them, with an indicator for each action. Without `features` all numeric columns of the items are, and one
        that looks like an id or dwarfs the others is refused.
    columns
        Names that differ from `user`, `step`, `action`, `features`, `reward`, `propensity`, `candidates`,
        `arm`, as `{"user": "uid"}`. `features` may name several numeric columns, and None leaves an optional column
        out. Common names (userId, item_id, rating, timestamp and the like) need not be given.
    users
        Attributes of users, known before the first interaction: a file or a table with a column `user`, one row a user,
        and numbers, booleans, texts or categories. Values may be missing, and users may have no row.
    attributes
        Names of the columns of `users` to use; without it all that can be are.
    intercept
        Add a constant feature, last.
    clip
        Bring rewards within these limits (low, high), or, with "auto", within 5 robust deviations of their median.
    grouped
        Rows are already grouped by user: stream the files on every pass and keep nothing.
    memory
        Bytes of columns to hold; larger logs are spilled to a temporary folder. Default 128 MB.
    epoch
        The unit, if `step` holds Unix times as integers; equal times of a user are then allowed. Times since 1979 are
        recognised by their size.
    missing
        What becomes of rows that lack a value: "error" refuses them, all at once and with how many there are; "drop"
        leaves them out and says how many. In a CSV nothing, NA, N/A, NaN, null and - are missing values.
    tidy_ids
        Take ids of users and actions that differ in case, or in blanks at their ends, for the same. The model keeps
        this, and finds ids in the same way when it serves. Without it such ids are pointed out.
    dates
        "day-first" or "month-first", where `step` holds dates such as 03/02/2020, which can be read two ways, and none
        of them settles it.
    reward_transform
        "log1p" learns log(1 + reward), for play counts, money and seconds. The model keeps this, and policies take
        rewards as they are; gains have the units of the rewards. `clip` has the units of the rewards, too, but
        for "auto", which looks at the logarithms.
    progress
        Called while reading with (rows done, rows in all).
    engine
        Workers that read, sort and later pass over the logs: a `newcomer.logs.workers.WorkerPool` of processes, or a
        `newcomer.logs.dask.Dask`. They read a file each, and need not all see the others' files. Logs of less than
        200,000 rows are read and passed over by this process: that is quicker than to start workers.
    """
    options = check_read_options(
        intercept=intercept,
        grouped=grouped,
        memory=memory,
        epoch=epoch,
        progress=progress,
        missing=missing,
        tidy_ids=tidy_ids,
        dates=dates,
        reward_transform=reward_transform,
    )
    if not isinstance(path, str | PathLike) and is_frame(path):
        return Logs.from_frame(
            path,
            items=items,
            features=features,
            columns=columns,
            users=users,
            attributes=attributes,
            intercept=intercept,
            clip=clip,
            epoch=epoch,
            **options._asdict(),
        )
    limits, store = clip_read_option(clip, options.reward_transform), None
    if isinstance(path, list | tuple) and any(map(is_service_store, path)):
        todo = "pass its address alone; a fit adds its rows to what a model knows with start= (--from)"
        raise LogsError("a store is no part of a list of files", where="path", todo=todo)
    if is_service_store(path):
        store = read_service_store(path, Scratch if engine is None else engine.room)
        path, items, features, users = store.given(items, features, users)
    chosen = FeatureChoice.of(features, items, columns)
    with chosen.resolving():
        reader = Reader.of(path, chosen.columns, epoch, options.on)
    if not reader.total:
        raise LogsError("no rows", where=reader.tables[0].name, todo="pass logs with at least one row")
    in_rows = reader.layout.features is not None
    text = bool(reader.text_ids.get(str(reader.layout.action)))
    catalogue = reader_catalogue(
        items,
        reader.layout,
        reader.distinct_actions if store is None else lambda: store.actions(reader.distinct_actions()),
        chosen.of_items,
        in_rows=in_rows,
        beside=chosen.beside,
        text=text,
    )
    if catalogue is not None and catalogue.ids.dtype == pl.String:
        reader = reader.with_text(reader.layout.action)
    source: Source
    space = MEMORY if memory is None else memory
    with reader.telling_all(catalogue):
        if engine is not None and (grouped or reader.total >= engines.ENOUGH):
            source, total = _read_logs_in_parallel(
                engine, reader, catalogue, clip=limits, grouped=grouped, memory=space, progress=progress
            )
        elif grouped:
            source = Grouped(reader, catalogue, limits)
            total = source.totals(progress)
        else:
            chunks = reader.rows(catalogue, progress)
            source, total = store_rows_in_memory(chunks, catalogue, memory=space, rows=reader.total, clip=limits)
    logs = Logs(
        source,
        total,
        catalogue,
        intercept=intercept,
        ignored_items=in_rows and items is not None and not chosen.beside,
        row_names=reader.layout.feature_names or (store.row_names if store is not None else None),
        levels=reader.layout.levels,
        arms=reader.layout.arms,
        notes=[*(store.notes if store is not None else ()), *reader.notes],
        tidy_ids=options.tidy_ids,
        reward_transform=options.reward_transform,
        ordered=reader.layout.step is not None,
    )
    logs = logs.with_users(users, attributes)
    return logs if engine is None else logs.on(engine)


@contextmanager
def read_logs_if_path(
    logs: Any, workers: int | None = None, *, kind: type[NewcomerError] = NewcomerError
) -> Iterator[Logs]:
    """Logs, or those at a path, passed over by so many processes until the block is left.

    Logs that are on an engine already, or whose `workers` is None or 1, stay where they are. A number of workers that
    makes no sense is refused as an error of this `kind`.
    """
    read = logs if isinstance(logs, Logs) else read_logs(logs)
    if workers is None or validate_whole(workers, "workers", kind=kind) == 1 or read.engine is not None:
        yield read
        return
    with WorkerPool(workers) as pool:
        yield read.on(pool)


Given = tuple[Reader, Items | None]


@dataclass(frozen=True)
class Arrived:
    """The facts about a file that was read: rows, what they look like, their rewards, and where they are now."""

    rows: int
    sample: Rows  # the first row, by which files are compared
    rewards: RewardHistogram
    notes: tuple[str, ...]
    buckets: dict[int, Slices]
    parts: tuple[str, ...] = ()
    total: LogTotals = field(default_factory=LogTotals)
    hashes: Hashes | None = None


def _read_logs_in_parallel(
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
        read = partial(read_and_scatter_file, folder=scratch.path, buckets=buckets)
        arrived = list(_read(engine, read, given, progress))
        rewards = sum((one.rewards for one in arrived), RewardHistogram())
        limits = memory_store_reward_limits(clip, rewards)
        written = {b: [one.buckets[b] for one in arrived if b in one.buckets] for b in range(buckets)}
        tasks = [(f"part-{bucket}", several) for bucket, several in written.items() if several]
        total = LogTotals(rewards=rewards)
        for found in engine.each(partial(_sort_read_bucket, folder=scratch.path, limits=limits), tasks, given=items):
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


def read_and_scatter_file(given: Given, number: int, *, folder: Path, buckets: int) -> Arrived | None:
    """Read a file and scatter its rows: the task of a reader."""
    reader, items = given
    alone = replace(reader, tables=(reader.tables[number],), notes={})
    scatter, watched = Scatter(folder, buckets), Watched(alone.rows(items))
    rows, sample = 0, None
    for chunk in watched:
        rows, sample = rows + len(chunk), sample or chunk.slice(0, 1)
        scatter.add(chunk)
    return None if sample is None else Arrived(rows, sample, watched.rewards, tuple(alone.notes), scatter.slices())


def _sort_read_bucket(
    items: Items | None, task: tuple[str, list[Slices]], *, folder: Path, limits: Limits | None
) -> LogTotals:
    """Sort a bucket into the disk store and sum it up: the task of a sorter."""
    name, written = task
    return summary_totals(sort_disk_store_bucket(written, folder / name, limits), items)


def _partitioned(
    engine: Engine, given: Given, scratch: Scratch, clip: Clip, progress: Progress | None
) -> tuple[DiskStore, LogTotals]:
    """Files with whole users, written to the disk store as they are."""
    if clip == "auto":
        todo = "give the limits, clip=(low, high) (--clip LOW,HIGH), or leave grouped out"
        raise LogsError("grouped logs are not read twice by workers, so limits cannot be found out", todo=todo)
    arrived = list(_read(engine, partial(_read_grouped_file, folder=scratch.path, limits=clip), given, progress))
    hashes = np.concatenate([one.hashes for one in arrived if one.hashes is not None])
    found, counts = np.unique(hashes, return_counts=True)
    names = [name for one in arrived for name in one.parts]
    if (counts > 1).any():
        raise _met_twice(scratch.path, names, found[np.argmax(counts > 1)], given[0])
    total = sum((one.total for one in arrived), LogTotals())
    return DiskStore(scratch.path, names, limits=clip, scratch=scratch), total


def _read_grouped_file(given: Given, number: int, *, folder: Path, limits: Limits | None) -> Arrived | None:
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
        save_disk_store_part(part, folder / parts[-1])
        total += summary_totals(part, items)
        hashes.append(part.hashes)
    if sample is None:
        return None
    total += LogTotals(rewards=watched.rewards)
    both = np.concatenate(hashes)
    return Arrived(total.rows, sample, watched.rewards, tuple(alone.notes), {}, tuple(parts), total, both)


def _met_twice(folder: Path, names: list[str], again: np.uint64, reader: Reader) -> LogsError:
    """The error for a user who is in two partitions, with both."""
    met = [name for name in names if again in np.load(folder / name / "hashes.npy")]
    part = load_disk_store_part(folder / met[0])
    user = part.users[int(np.argmax(part.hashes == again))]
    files = list(dict.fromkeys(reader.tables[int(name.split("-")[1])].name for name in met))
    what = f"user {user!r} is in two partitions" if len(files) > 1 else f"user {user!r} comes back"
    return LogsError(what, where=" and ".join(files), todo="write each user to one file, or leave grouped out")
