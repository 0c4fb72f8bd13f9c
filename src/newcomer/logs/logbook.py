"""Logs: what happened, read and checked once, then served as batches of whole histories.

A log is rows (user, step, action or features, reward). `read_logs` takes a row of a file this way:

    Reader.of         files found and asked how they are to be read                       intake/finding.py, opening.py
    Reader.rows       a chunk of the file, its columns typed                              intake/reading.py, texts.py
    extract           ids, rewards, features checked; the action's position: Rows         intake/layout.py, columns.py
    collect           rows held in memory, or spilled to hash buckets on disk             intake/sources.py, spilling.py
    arrange           grouped by user and sorted by step: Histories                       intake/histories.py
    survey            counted, hashed: Summary                                            intake/survey.py

and `Logs.batches` cuts the histories into batches of whole users. Features of actions are looked up in the items table
batch by batch and never stored per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer import arguments
from newcomer.arrays import Floats
from newcomer.errors import LogsError
from newcomer.evidence import Summary
from newcomer.logs import carrying
from newcomer.logs.batch import Batch
from newcomer.logs.carrying import Engine
from newcomer.logs.intake.advice import SAMPLE, candidate_advice, intercept_advice, reward_advice, short_advice
from newcomer.logs.intake.choosing import Keep, sift
from newcomer.logs.intake.columns import Epoch, Place, feature_array, unix_note, unix_unit
from newcomer.logs.intake.finding import Paths
from newcomer.logs.intake.frames import from_arrays, held, is_table, names_of, to_polars, unequal, with_lists
from newcomer.logs.intake.histories import Histories
from newcomer.logs.intake.items import Items, action_column
from newcomer.logs.intake.layout import Layout, Renames, extract, resolve
from newcomer.logs.intake.reading import Progress, Reader, read_table
from newcomer.logs.intake.shelving import Piece, Shelf
from newcomer.logs.intake.shuffling import shuffled
from newcomer.logs.intake.sketch import Sketch
from newcomer.logs.intake.sources import Clip, Grouped, Held, Source, collect
from newcomer.logs.intake.survey import Survey, survey
from newcomer.logs.intake.wishes import Chosen, check_options, checked_clip, column_names
from newcomer.logs.journal import Journal
from newcomer.onehot import Catalogue, OneHot, is_wide
from newcomer.records import Shown

BATCH_BYTES = 64 << 20  # of the features of a batch
MEMORY = 128 << 20  # sorting needs about three times as much for a moment


def read_logs(
    path: Paths | Any,
    *,
    items: Any = None,
    features: str | Sequence[str] | None = None,
    columns: Renames | None = None,
    intercept: bool = False,
    clip: Clip = None,
    grouped: bool = False,
    memory: int | None = None,
    epoch: Epoch | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Logs:
    """Read and check logs from Parquet, CSV or JSON lines. What was decided on the way is said in `Logs.advice`.

    Parameters
    ----------
    path
        A file, folder or glob, or a list of these; a pipe, or "-" for standard input; or a table, as `Logs.from_frame`
        takes it. Files may be compressed with gzip. Folders named `key=value` give a column each. The separator of a
        CSV and decimal commas are found out; true and false, yes and no are numbers.
    items
        Features of the actions: a file or a table with a column `action` and either lists `features` or numeric
        columns, or an array whose row i is action i. Without items and without a column `features`, every distinct
        action is its own direction (one-hot; any number of them, never written out).
    features
        Names of the columns to be features: of the items table if there is one, else of the logs. Without it all
        numeric columns of the items are, and one that looks like an id or dwarfs the others is refused.
    columns
        Names that differ from `user`, `step`, `action`, `features`, `reward`, `propensity`, `candidates`,
        `arm`, as `{"user": "uid"}`. `features` may name several numeric columns, and None leaves an optional column
        out. Common names (userId, item_id, rating, timestamp and the like) need not be given.
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
    progress
        Called while reading with (rows done, rows in all).
    engine
        Workers that read, sort and later pass over the logs: a `newcomer.logs.crew.Crew` of processes, or a
        `newcomer.engines.dask.Dask`. They read a file each, and need not all see the others' files. Logs of less than
        200,000 rows are read and passed over by this process: that is quicker than to start workers.
    """
    check_options(intercept=intercept, grouped=grouped, memory=memory, epoch=epoch, progress=progress)
    if is_table(path):
        return Logs.from_frame(
            path, items=items, features=features, columns=columns, intercept=intercept, clip=clip, epoch=epoch
        )
    limits, chosen = checked_clip(clip), Chosen.of(features, items, columns)
    reader = Reader.of(path, chosen.columns, epoch)
    if not reader.total:
        raise LogsError("no rows", where=reader.tables[0].name, todo="pass logs with at least one row")
    in_rows = reader.layout.features is not None
    text = bool(reader.text_ids.get(str(reader.layout.action)))
    catalogue = _catalogue(items, reader.layout, reader.distinct_actions, chosen.of_items, in_rows=in_rows, text=text)
    if catalogue is not None and catalogue.ids.dtype == pl.String:
        reader = reader.with_text(reader.layout.action)
    source: Source
    space = MEMORY if memory is None else memory
    if engine is not None and (grouped or reader.total >= carrying.ENOUGH):
        source, total = shuffled(
            engine, reader, catalogue, clip=limits, grouped=grouped, memory=space, progress=progress
        )
    elif grouped:
        source = Grouped(reader, catalogue, limits)
        total = source.survey(progress)
    else:
        chunks = reader.rows(catalogue, progress)
        source, total = collect(chunks, catalogue, memory=space, rows=reader.total, clip=limits)
    logs = Logs(
        source,
        total,
        catalogue,
        intercept=intercept,
        ignored_items=in_rows and items is not None,
        row_names=reader.layout.features,
        arms=reader.layout.arms,
        notes=list(reader.notes),
    )
    return logs if engine is None else logs.on(engine)


class Logs(Shown):
    """Users' histories, checked and in time order. Make one with `read_logs`, `from_arrays` or `from_frame`.

    `dim` is the number of features d, the constant included; `intercept` whether there is one; `feature_names` the
    columns that features come from, without the constant (None where they have no names); `arms` the names in a column
    `arm`, sorted; `summary` the logs in a few numbers. Everything else that is to be known of logs is computed by
    `newcomer.logs.engine.reduce`. Logs are equal if a fit would read the same from both.
    """

    def __init__(
        self,
        source: Source,
        total: Survey,
        items: Items | None,
        *,
        intercept: bool = False,
        ignored_items: bool = False,
        row_names: str | tuple[str, ...] | None = None,
        arms: tuple[str, ...] = (),
        notes: Sequence[str] = (),
    ) -> None:
        arguments.instance(
            total, Survey, "total", todo="make logs with read_logs, from_arrays or from_frame", kind=LogsError
        )
        self._source, self._items, self._ignored_items = source, items, ignored_items
        self.engine: Engine | None = None
        self.journal: Journal | None = None
        self._notes = [*notes, *(items.notes if items is not None else ())]
        self.intercept, self.total, self.arms = intercept, total, arms
        self.dim = (items.dim if items is not None and self.by_action else total.dim) + intercept
        self.feature_names = items.feature_names if items is not None and self.by_action else _several(row_names)
        self.summary: Summary = total.summary(dim=self.dim, intercept=intercept, limits=source.limits, arms=arms)

    @classmethod
    def from_arrays(
        cls,
        *,
        user: ArrayLike,
        reward: ArrayLike,
        features: ArrayLike | None = None,
        action: ArrayLike | None = None,
        items: Any = None,
        step: ArrayLike | None = None,
        propensity: ArrayLike | None = None,
        candidates: Any = None,
        arm: ArrayLike | None = None,
        intercept: bool = False,
        clip: Clip = None,
        epoch: Epoch | None = None,
    ) -> Logs:
        """Logs from arrays with one entry per row; rows of a user in time order, or `step` to sort them by.

        The arrays are copied: what becomes of them later changes nothing.

        Parameters
        ----------
        user
            Ids (rows,), integers or text.
        features
            Features of the chosen actions, (rows, d); or, beside a table as items, the names of its columns to use.
        action, items
            Instead of features: ids (rows,) of actions, and their features as an array (items, d) whose row i is
            action i, a table or a file. Without items every distinct action is its own direction (one-hot). Beside
            features, the ids are kept and the features stay those of the rows.
        step
            Integers, unique within a user, or times (ties keep the order of rows).
        propensity, candidates, arm
            What else was logged: the probability of the chosen action, the ids on offer (a list for each row) and the
            arm of the experiment.
        clip, epoch
            As in `read_logs`.

        >>> logs = Logs.from_arrays(user=["ann", "ben", "ann"], action=[3, 5, 5], reward=[1.0, 0.0, 0.5])
        >>> logs.summary.users, logs.summary.too_short, logs.dim, logs.action_ids
        (2, 1, 2, (3, 5))
        """
        check_options(intercept=intercept, epoch=epoch)
        given = {"user": user, "reward": reward, "action": action, "step": step, "propensity": propensity, "arm": arm}
        frame = from_arrays({name: values for name, values in given.items() if values is not None})
        if candidates is not None:
            frame = with_lists(frame, "candidates", candidates)
        names = column_names(features)
        matrix = None if features is None or names is not None else feature_array(features)
        if names is not None and items is None:
            todo = "pass features of shape (rows, d), or items= with these columns"
            raise LogsError("features= names columns and there is no table", where="features", todo=todo)
        for name in ("user", "reward"):
            if given[name] is None:
                raise LogsError(f"{name} is None", where=name, todo="pass one value per row")
        if matrix is not None and len(matrix) != len(frame):
            raise unequal({"user": len(frame), "features": len(matrix)})
        if matrix is None and action is None:
            raise LogsError("neither features nor actions", todo="pass features= or action=")
        layout = Layout(
            step=None if step is None else "step",
            action=None if action is None else "action",
            propensity=None if propensity is None else "propensity",
            candidates=None if candidates is None or action is None else "candidates",
            arm=None if arm is None else "arm",
            epoch=epoch,
        )
        return cls._from_frame(
            frame, layout, items=items, intercept=intercept, clip=clip, features=matrix, chosen=names
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        items: Any = None,
        features: str | Sequence[str] | None = None,
        columns: Renames | None = None,
        intercept: bool = False,
        clip: Clip = None,
        epoch: Epoch | None = None,
    ) -> Logs:
        """Logs from a Polars or pandas frame, or any table that exports Arrow; arguments as in `read_logs`.

        A lazy frame is collected; a reader of record batches is read once, to its end.

        >>> frame = pl.DataFrame({"uid": [1, 1, 2, 2], "action": ["a", "b", "b", "a"], "reward": [1, 0, 1, 1]})
        >>> Logs.from_frame(frame, columns={"user": "uid"})
        Logs(2 users, 4 rows, 2 features)
        """
        check_options(intercept=intercept, epoch=epoch)
        table, chosen = held(frame), Chosen.of(features, items, columns)
        layout = resolve(names_of(table), chosen.columns, epoch=epoch)
        rows = to_polars(table, layout.names())
        return cls._from_frame(rows, layout, items=items, intercept=intercept, clip=clip, chosen=chosen.of_items)

    @classmethod
    def _from_frame(
        cls,
        frame: pl.DataFrame,
        layout: Layout,
        *,
        items: Any,
        intercept: bool,
        clip: Clip,
        features: NDArray[np.floating] | None = None,
        chosen: Sequence[str] | None = None,
    ) -> Logs:
        """Logs from one frame, held in memory; `features` (rows, d), if given, stand beside it."""
        limits = checked_clip(clip)
        if not len(frame):
            raise LogsError("no rows", todo="pass logs with at least one row")
        layout = _looked_at(frame, layout, spare_action=features is not None)
        in_rows = features is not None or layout.features is not None
        catalogue = _catalogue(items, layout, lambda: layout.action_ids(frame, Place()), chosen, in_rows=in_rows)
        rows = extract(frame, layout, catalogue, Place(), features=features)
        source, total = collect([rows], catalogue, memory=rows.nbytes, rows=len(rows), clip=limits)
        return cls(
            source,
            total,
            catalogue,
            intercept=intercept,
            ignored_items=in_rows and items is not None,
            row_names=layout.features,
            arms=layout.arms,
            notes=layout.notes,
        )

    @cached_property
    def advice(self) -> list[str]:
        """What was decided in reading, and what might be done better, in plain sentences.

        Features are looked at in the first batch only; rows are searched where some rewards are far from all others.
        """
        far = reward_advice(self.summary, self._source.parts, self.action_ids or ())
        far += candidate_advice(self.total)
        said = [*self._notes, *far, *short_advice(self.summary)]
        if self._ignored_items:
            said.append(
                "The logs bring their own features, so items= was not used; columns={'features': None} uses it."
            )
        if not self.intercept and not self.one_hot:
            said += intercept_advice(self.summary, next(self.batches(rows=SAMPLE)).features)
        return said

    @cached_property
    def action_ids(self) -> tuple[int | str, ...] | None:
        """Ids of the actions, position i being action i of `Batch.actions`; None for logs that name no actions.

        These are the items, or the one-hot directions, or, where rows bring features, the actions that occur.
        """
        return None if self._items is None else tuple(self._items.ids.to_list())

    @property
    def item_names(self) -> tuple[str, ...] | None:
        """Names of the items, if the items table has a column `name`."""
        return None if self._items is None else self._items.names

    @property
    def item_features(self) -> Floats | None:
        """Features (items, d) of the items table as they are used, with the constant if there is one; else None."""
        return None if not self.by_action or isinstance(self._table, OneHot) else self._table

    @property
    def table(self) -> Catalogue | None:
        """Features (A, d) of the actions that rows name, as they are used; None where rows bring their own."""
        return self._table if self.by_action else None

    @property
    def direction_names(self) -> tuple[str, ...]:
        """What to call each of the d features: its column, the action whose it is if one-hot, or its number."""
        names = self.feature_names or (self.one_hot and tuple(str(one) for one in self.action_ids or ()))
        named = names or tuple(f"feature {i}" for i in range(self.dim - self.intercept))
        return (*named, *(["the constant"] if self.intercept else []))

    @property
    def one_hot(self) -> bool:
        """Whether features are one-hot of the actions."""
        return self._items is not None and self.by_action and self._items.matrix is None

    @property
    def wide(self) -> bool:
        """Whether features are one-hot of so many actions that nothing of d x d entries is formed."""
        return self.one_hot and is_wide(len(self.action_ids or ()))

    @property
    def by_action(self) -> bool:
        """Whether features are those of the action that a row names, in place of the row's own."""
        return self._items is not None and not self._items.in_rows

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Batches of whole users in a fixed order, each of about `rows` rows (default: 64 MB of features).

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 3], features=np.eye(4), reward=[1, 0, 1, 0])
        >>> [batch.users.tolist() for batch in logs.batches(rows=2)]
        [[1], [2, 3]]
        """
        target = self._target(rows)
        for part in self._source.parts():
            for first, last in part.cuts(target):
                yield self._batch(part.slice(first, last))

    def _target(self, rows: int | None) -> int:
        """Rows of a batch, as asked for or by the size of its features."""
        width = 1 if self.wide else self.dim  # features that are never written out take no room
        size = max(1, BATCH_BYTES // (8 * width)) if rows is None else rows
        return arguments.whole(size, "rows of a batch", todo="ask for at least one", kind=LogsError)

    def on(self, engine: Engine) -> Logs:
        """The same logs, passed over by the workers of an engine; what is in memory is written to disk for them.

        They are the engine's as long as it is open; the logs themselves stay as they are. Logs that are too small for
        workers to pay are this process's still: how small depends on the logs alone, and so do the numbers.
        """
        if self.summary.rows < carrying.ENOUGH:
            return self
        shelf = self._source
        if not isinstance(shelf, Shelf):
            shelf = Shelf.holding(self._source.parts(), engine.room(), self._source.limits)
        engine.visible(shelf.folder)
        moved = copy(self)
        moved._source, moved.engine = shelf, engine
        return moved

    def holding(self, part: Histories) -> Logs:
        """Logs of some of these users, their histories held in memory and passed over by this process."""
        held = copy(self)
        held._source, held.journal = Held(part, self._source.limits), self.journal
        held.total = survey(part, self._items) + Survey(rewards=Sketch().seeing(part.rewards))
        held.summary = held.total.summary(dim=self.dim, intercept=self.intercept, limits=self._source.limits)
        return held

    def some(self, keep: Keep) -> Logs:
        """The logs of the users for whose hashes (n,) `keep` is true, with the catalogue and the engine of all.

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 3], features=np.eye(4), reward=[1, 0, 1, 0])
        >>> logs.some(lambda hashes: np.arange(len(hashes)) > 0)
        Logs(2 users, 2 rows, 4 features)
        """
        part = copy(self)
        part.__dict__.pop("advice", None)
        part._source, part.total = sift(self._source, keep, self._items, self.engine)
        limits = self._source.limits
        part.summary = part.total.summary(dim=self.dim, intercept=self.intercept, limits=limits, arms=self.arms)
        return part

    def noted(self, journal: Journal) -> Logs:
        """The same logs, the results of whose passes are kept in a journal."""
        noted = copy(self)
        noted.engine, noted.journal = self.engine, journal
        return noted

    def tasks(self, rows: int | None) -> tuple[list[tuple[Piece, ...]], list[int]]:
        """A pass in tasks for workers, and the rows of each; only of logs that are on an engine."""
        assert isinstance(self._source, Shelf)
        return self._source.tasks(self._target(rows), self.dim, self.summary.rows)

    def piece(self, piece: Piece) -> Batch:
        """The batch of a piece of a task."""
        assert isinstance(self._source, Shelf)
        return self._batch(self._source.part(piece.part).slice(piece.first, piece.last))

    def __getstate__(self) -> dict[str, Any]:
        # Workers make what is derived anew, and have no workers of their own.
        derived = ("_table", "advice", "action_ids")
        return {name: value for name, value in self.__dict__.items() if name not in derived} | {
            "engine": None,
            "journal": None,
        }

    def _batch(self, part: Histories) -> Batch:
        """Histories as computations see them: features in float64 and with the constant, if there is one."""
        return Batch(
            users=part.users.to_numpy(writable=True),  # integers, or an object array of str
            hashes=part.hashes,
            offsets=part.offsets,
            rewards=part.rewards,
            row_features=None if part.features is None else self._with_constant(part.features),
            table=self._table if part.features is None else None,
            actions=None if part.actions is None else part.actions.astype(np.int64),
            propensities=part.propensities,
            candidates=part.candidates,
            arms=None if part.arms is None else part.arms.astype(np.int64),
        )

    @cached_property
    def _table(self) -> Catalogue:
        """Features (items, d) of the catalogue, made once for all batches; one-hot ones are not written out."""
        assert self._items is not None
        features = self._items.features
        return (
            replace(features, constant=self.intercept)
            if isinstance(features, OneHot)
            else self._with_constant(features)
        )

    def _with_constant(self, features: NDArray[np.floating]) -> Floats:
        """Features (n, d), the last of them 1 if the logs were read with an intercept."""
        if not self.intercept:
            return features.astype(np.float64, copy=False)
        return np.column_stack([features, np.ones(len(features))]).astype(np.float64, copy=False)

    def close(self) -> None:
        """Remove temporary files; done by itself when the logs are no longer used."""
        self._source.close()

    def __repr__(self) -> str:
        s = self.summary
        return f"Logs({s.users:,} users, {s.rows:,} rows, {s.dim} features)"

    def facts(self) -> dict[str, Any]:
        """The logs in a few numbers and words."""
        s, named = self.summary, self.feature_names or self.action_ids or ()
        told: dict[str, Any] = {"users": s.users, "rows": s.rows, "dim": s.dim, "users of one row": s.too_short}
        told |= {"features" if self.feature_names else "actions": named} if named else {}
        told |= {"mean reward": s.mean_reward, "deviation of rewards": s.reward_deviation}
        return told | {f"advice {i}": said for i, said in enumerate(self.advice, start=1)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Logs) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        """What a fit would read, by its fingerprint, and what it would call it."""
        return self.summary.fingerprint, self.dim, self.intercept, self.action_ids, self.feature_names


def _several(names: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of features in the rows, where each has a column."""
    return names if isinstance(names, tuple) else None


def _looked_at(frame: pl.DataFrame, layout: Layout, *, spare_action: bool) -> Layout:
    """The layout without empty columns, and with the unit of steps that are Unix times by their size."""
    features = "beside" if spare_action else layout.features
    layout = replace(layout, features=features).without_empty(
        lambda name: name != "beside" and frame[name].null_count() == len(frame)
    )
    layout = replace(layout, features=None) if spare_action else layout
    layout = layout if layout.arm is None else layout.with_arms([frame[layout.arm]], Place())
    if layout.step is None or layout.epoch is not None or not frame[layout.step].dtype.is_integer():
        return layout
    steps = frame[layout.step].min(), frame[layout.step].max()
    if not (isinstance(steps[0], int) and isinstance(steps[1], int)):
        return layout
    unit = unix_unit(steps[0], steps[1])
    return layout if unit is None else layout.noting(unix_note(layout.step, unit, (steps[0], steps[1])), epoch=unit)


def _catalogue(
    items: Any,
    layout: Layout,
    actions: Callable[[], pl.Series],
    features: Sequence[str] | None = None,
    *,
    in_rows: bool,
    text: bool = False,
) -> Items | None:
    """The actions and, unless they are `in_rows`, their features; None for logs that name no actions.

    `actions` gives every action id of the logs; it is called only where no items table lists them. `text` says that ids
    in the logs came as text and stay so: those of a CSV of items then do as well.
    """
    other = layout.action
    if other is None:
        return None
    if in_rows:
        return Items.named(actions())
    if items is None:
        return Items.one_hot(actions())
    if isinstance(items, str | PathLike):
        frame = read_table(items, text=lambda names: [action_column(names, other) or ""] if text else [])
        return Items.from_frame(frame, source=fspath(items), other=other, features=features)
    if is_table(items):
        return Items.from_frame(to_polars(items), other=other, features=features)
    if features is not None:
        todo = "pass a table with named columns as items=, or only the columns that are to be features"
        raise LogsError("features= names columns and items is an array", where="features=", todo=todo)
    return Items.from_array(items)
