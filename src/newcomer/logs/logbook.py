"""Logs: what happened, read and checked once, then served as batches of whole histories.

A log is rows (user, step, action or features, reward). Small logs are held as compact columns sorted by user and step;
larger ones are spilled to hash buckets on disk and sorted bucket by bucket. Features of actions are looked up in the
items table batch by batch and never stored per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.errors import LogsError
from newcomer.evidence import Summary
from newcomer.logs.batch import Batch, Floats
from newcomer.logs.intake.advice import SAMPLE, intercept_advice, short_advice
from newcomer.logs.intake.columns import Epoch, Place, feature_array, identifiers
from newcomer.logs.intake.frames import from_arrays, is_table, names_of, to_polars, unequal
from newcomer.logs.intake.histories import Histories
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.layout import Layout, Renames, extract, resolve
from newcomer.logs.intake.reading import Paths, Progress, Reader, column_names, find_files, read_table
from newcomer.logs.intake.sources import Grouped, Source, collect
from newcomer.logs.intake.survey import Survey

BATCH_BYTES = 64 << 20
MEMORY = 128 << 20  # sorting needs about three times as much for a moment


def read_logs(
    path: Paths,
    *,
    items: Any = None,
    columns: Renames | None = None,
    intercept: bool = False,
    grouped: bool = False,
    memory: int | None = None,
    epoch: Epoch | None = None,
    progress: Progress | None = None,
) -> Logs:
    """Read and check logs from Parquet or CSV.

    Parameters
    ----------
    path
        A file, folder or glob, or a list of these.
    items
        Features of the actions: a file or a table with a column `action` and either lists `features` or numeric
        columns, or an array whose row i is action i. Without items and without a column `features`, every distinct
        action is its own direction (one-hot, at most 2,000).
    columns
        Names that differ from `user`, `step`, `action`, `features`, `reward`, `propensity`, as `{"user": "uid"}`.
        `features` may name several numeric columns, and None leaves an optional column out.
    intercept
        Add a constant feature, last.
    grouped
        Rows are already grouped by user: stream the files on every pass and keep nothing.
    memory
        Bytes of columns to hold; larger logs are spilled to a temporary folder. Default 128 MB.
    epoch
        The unit, if `step` holds Unix times as integers; equal times of a user are then allowed.
    progress
        Called while reading with (rows done, rows in all).
    """
    files = tuple(find_files(path))
    layout = _layout(files, columns, epoch)
    reader = Reader(files, layout)
    if not reader.total:
        raise LogsError("no rows", where=files[0], todo="pass logs with at least one row")
    catalogue = _catalogue(items, layout, reader.distinct_actions)
    ignored = _ignored(items, catalogue)
    if grouped:
        streamed = Grouped(reader, catalogue)
        return Logs(streamed, streamed.survey(progress), catalogue, intercept=intercept, ignored_items=ignored)
    chunks = reader.rows(catalogue, progress)
    source, total = collect(chunks, catalogue, memory=MEMORY if memory is None else memory, rows=reader.total)
    return Logs(source, total, catalogue, intercept=intercept, ignored_items=ignored)


class Logs:
    """Users' histories, checked and in time order. Make one with `read_logs`, `from_arrays` or `from_frame`."""

    def __init__(
        self,
        source: Source,
        total: Survey,
        items: Items | None,
        *,
        intercept: bool = False,
        ignored_items: bool = False,
    ) -> None:
        self._source, self._items, self._ignored_items = source, items, ignored_items
        self.intercept = intercept
        self.dim = (total.dim if items is None else items.dim) + intercept
        self.summary: Summary = total.summary(dim=self.dim, intercept=intercept)

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
        intercept: bool = False,
        epoch: Epoch | None = None,
    ) -> Logs:
        """Logs from arrays with one entry per row; rows of a user in time order, or `step` to sort them by.

        Parameters
        ----------
        user
            Ids (rows,), integers or text.
        features
            Features of the chosen actions, (rows, d).
        action, items
            Instead of features: ids (rows,) of actions, and their features as an array (items, d) whose row i is
            action i, a table or a file. Without items every distinct action is its own direction (one-hot).
        step
            Integers, unique within a user, or times (ties keep the order of rows).

        >>> logs = Logs.from_arrays(user=["ann", "ben", "ann"], action=[3, 5, 5], reward=[1.0, 0.0, 0.5])
        >>> logs.summary.users, logs.summary.too_short, logs.dim, logs.action_ids
        (2, 1, 2, (3, 5))
        """
        given = {"user": user, "reward": reward, "action": action, "step": step, "propensity": propensity}
        frame = from_arrays({name: values for name, values in given.items() if values is not None})
        matrix = None if features is None else feature_array(features)
        if matrix is not None and len(matrix) != len(frame):
            raise unequal({"user": len(frame), "features": len(matrix)})
        if matrix is None and action is None:
            raise LogsError("neither features nor actions", todo="pass features= or action=")
        layout = Layout(
            step=None if step is None else "step",
            action="action" if matrix is None else None,
            propensity=None if propensity is None else "propensity",
            epoch=epoch,
        )
        return cls._from_frame(frame, layout, items=items, intercept=intercept, features=matrix)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        items: Any = None,
        columns: Renames | None = None,
        intercept: bool = False,
        epoch: Epoch | None = None,
    ) -> Logs:
        """Logs from a Polars or pandas frame, or any table that exports Arrow; arguments as in `read_logs`.

        >>> frame = pl.DataFrame({"uid": [1, 1, 2, 2], "action": ["a", "b", "b", "a"], "reward": [1, 0, 1, 1]})
        >>> Logs.from_frame(frame, columns={"user": "uid"})
        Logs(2 users, 4 rows, 2 features)
        """
        layout = resolve(names_of(frame), columns, epoch=epoch)
        return cls._from_frame(to_polars(frame, layout.names()), layout, items=items, intercept=intercept)

    @classmethod
    def _from_frame(
        cls,
        frame: pl.DataFrame,
        layout: Layout,
        *,
        items: Any,
        intercept: bool,
        features: NDArray[np.floating] | None = None,
    ) -> Logs:
        if not len(frame):
            raise LogsError("no rows", todo="pass logs with at least one row")
        catalogue = _catalogue(items, layout, lambda: identifiers(frame[str(layout.action)], Place()))
        rows = extract(frame, layout, catalogue, Place(), features=features)
        source, total = collect([rows], catalogue, memory=rows.nbytes, rows=len(rows))
        return cls(source, total, catalogue, intercept=intercept, ignored_items=_ignored(items, catalogue))

    @cached_property
    def advice(self) -> list[str]:
        """What might be done better, in plain sentences."""
        said = short_advice(self.summary)
        if self._ignored_items:
            said.append(
                "The logs bring their own features, so items= was not used; columns={'features': None} uses it."
            )
        if not self.intercept and not self.one_hot:
            said += intercept_advice(self.summary, next(self.batches(rows=SAMPLE)).features)
        return said

    @property
    def action_ids(self) -> tuple[int | str, ...] | None:
        """Ids of the items, or of the one-hot directions, in the order of `Batch.actions`; None without either."""
        return None if self._items is None else tuple(self._items.ids.to_list())

    @property
    def item_names(self) -> tuple[str, ...] | None:
        """Names of the items, if the items table has a column `name`."""
        return None if self._items is None else self._items.names

    @property
    def item_features(self) -> Floats | None:
        """Features (items, d) of the items as they are used, with the constant if there is one; None if one-hot."""
        return None if self.one_hot else self._table

    @property
    def one_hot(self) -> bool:
        """Whether features are one-hot of the actions."""
        return self._items is not None and self._items.matrix is None

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Batches of whole users in a fixed order, each of about `rows` rows (default: 64 MB of features)."""
        target = max(1, BATCH_BYTES // (8 * self.dim)) if rows is None else rows
        if target < 1:
            raise LogsError(f"batches of {rows} rows", todo="ask for at least one row")
        for part in self._source.parts():
            for first, last in part.cuts(target):
                yield self._batch(part.slice(first, last))

    def _batch(self, part: Histories) -> Batch:
        return Batch(
            users=part.ids(),
            hashes=part.hashes,
            offsets=part.offsets,
            rewards=part.rewards,
            own=None if part.features is None else self._own(part.features),
            table=self._table if part.features is None else None,
            actions=None if part.actions is None else part.actions.astype(np.int64),
            propensities=part.propensities,
        )

    @property
    def by_action(self) -> bool:
        """Whether rows name actions whose features are in a catalogue, in place of bringing their own."""
        return self._items is not None

    @cached_property
    def _table(self) -> Floats | None:
        return None if self._items is None else self._own(self._items.features)

    def _own(self, features: NDArray[np.floating]) -> Floats:
        """Features as they are used: with the constant, if there is one."""
        if not self.intercept:
            return features.astype(np.float64, copy=False)
        return np.column_stack([features, np.ones(len(features))]).astype(np.float64, copy=False)

    def close(self) -> None:
        """Remove temporary files; done by itself when the logs are no longer used."""
        self._source.close()

    def __repr__(self) -> str:
        s = self.summary
        return f"Logs({s.users:,} users, {s.rows:,} rows, {s.dim} features)"


def _layout(sources: Sequence[str], columns: Renames | None, epoch: Epoch | None) -> Layout:
    """The one layout of all files."""
    first = resolve(column_names(sources[0]), columns, source=sources[0], epoch=epoch)
    for source in sources[1:]:
        layout = resolve(column_names(source), columns, source=source, epoch=epoch)
        odd = sorted(set(layout.names()) ^ set(first.names()))
        if odd:
            here, there = ("only here", "not in") if odd[0] in layout.names() else ("missing here", "there in")
            todo = "write all files with the same columns"
            raise LogsError(f"column '{odd[0]}' is {here}, {there} {sources[0]}", where=source, todo=todo)
    return first


def _catalogue(items: Any, layout: Layout, actions: Callable[[], pl.Series]) -> Items | None:
    """Where features of actions come from; None if every row brings its own."""
    if layout.action is None:
        return None
    if items is None:
        return Items.one_hot(actions())
    if isinstance(items, str | PathLike):
        return Items.from_frame(read_table(items), source=fspath(items), other=layout.action)
    if is_table(items):
        return Items.from_frame(to_polars(items), other=layout.action)
    return Items.from_array(items)


def _ignored(items: Any, catalogue: Items | None) -> bool:
    return items is not None and catalogue is None
