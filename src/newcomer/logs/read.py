"""read_logs: logs from files, folders, patterns, pipes and tables; `newcomer.logs.logs` tells the way of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import polars as pl

from newcomer import validate
from newcomer.errors import LogsError, NewcomerError
from newcomer.logs import engine as engines
from newcomer.logs.catalogue import catalogue_of
from newcomer.logs.columns import Epoch
from newcomer.logs.engine import Engine
from newcomer.logs.files import Paths
from newcomer.logs.frames import is_table
from newcomer.logs.logs import Logs
from newcomer.logs.memory_store import Clip, Grouped, Source, collect
from newcomer.logs.options import FeatureChoice, check_options, checked_clip
from newcomer.logs.parallel_read import read_in_parallel
from newcomer.logs.reader import Progress, Reader
from newcomer.logs.schema import Missing, Renames
from newcomer.logs.service_store import is_store, read_store
from newcomer.logs.text_columns import Dates
from newcomer.logs.workers import WorkerPool
from newcomer.transforms import Transform

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
    """Read and check logs from Parquet, CSV, JSON lines or a service's store. What was decided on the way is said in `Logs.advice`.

    Parameters
    ----------
    path
        A file, folder or glob, or a list of these; a pipe, or "-" for standard input; a table, as `Logs.from_frame`
        takes it; or the store of a decision service, `sqlite:///FILE` or `postgresql://...`, which may be running: items
        and users are then those of the store, unless they are passed. Files may be compressed with gzip. Folders named `key=value` give a column each. The separator of a
        CSV and decimal commas are found out; true and false, yes and no are numbers.
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
        rewards as they are; gains are told in the units of the rewards. `clip` has the units of the rewards, too, but
        for "auto", which looks at the logarithms.
    progress
        Called while reading with (rows done, rows in all).
    engine
        Workers that read, sort and later pass over the logs: a `newcomer.logs.workers.WorkerPool` of processes, or a
        `newcomer.logs.dask.Dask`. They read a file each, and need not all see the others' files. Logs of less than
        200,000 rows are read and passed over by this process: that is quicker than to start workers.
    """
    options = check_options(
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
    if not isinstance(path, str | PathLike) and is_table(path):
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
    limits, store = checked_clip(clip, options.reward_transform), None
    if is_store(path):
        store = read_store(path, None if engine is None else engine.room())
        path, items, features, users = store.given(items, features, users)
    chosen = FeatureChoice.of(features, items, columns)
    with chosen.resolving():
        reader = Reader.of(path, chosen.columns, epoch, options.on)
    if not reader.total:
        raise LogsError("no rows", where=reader.tables[0].name, todo="pass logs with at least one row")
    in_rows = reader.layout.features is not None
    text = bool(reader.text_ids.get(str(reader.layout.action)))
    catalogue = catalogue_of(
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
            source, total = read_in_parallel(
                engine, reader, catalogue, clip=limits, grouped=grouped, memory=space, progress=progress
            )
        elif grouped:
            source = Grouped(reader, catalogue, limits)
            total = source.totals(progress)
        else:
            chunks = reader.rows(catalogue, progress)
            source, total = collect(chunks, catalogue, memory=space, rows=reader.total, clip=limits)
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
def opened(logs: Any, workers: int | None = None, *, kind: type[NewcomerError] = NewcomerError) -> Iterator[Logs]:
    """Logs, or those at a path, passed over by so many processes until the block is left.

    Logs that are on an engine already, or whose `workers` is None or 1, stay where they are. A number of workers that
    makes no sense is refused as an error of this `kind`.
    """
    read = logs if isinstance(logs, Logs) else read_logs(logs)
    if workers is None or validate.whole(workers, "workers", kind=kind) == 1 or read.engine is not None:
        yield read
        return
    with WorkerPool(workers) as pool:
        yield read.on(pool)
