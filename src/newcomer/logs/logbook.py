"""Logs: what happened, read and checked once, then served as batches of whole histories.

A log is rows (user, step, action or features, reward). `read_logs` takes a row of a file this way:

    Reader.rows       a chunk of the file, its columns typed                              intake/reading.py
    extract           ids, rewards, features checked; the action's position: Rows         intake/layout.py, columns.py
    collect           rows held in memory, or spilled to hash buckets on disk             intake/sources.py, spilling.py
    arrange           grouped by user and sorted by step: Histories                       intake/histories.py
    survey            counted, hashed: Summary                                            intake/survey.py

and `Logs.batches` cuts the histories into batches of whole users. Features of actions are looked up in the items table
batch by batch and never stored per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.errors import LogsError
from newcomer.evidence import Summary
from newcomer.logs.batch import Batch
from newcomer.logs.intake.advice import SAMPLE, intercept_advice, short_advice
from newcomer.logs.intake.columns import Epoch, Place, feature_array
from newcomer.logs.intake.frames import from_arrays, is_table, names_of, to_polars, unequal
from newcomer.logs.intake.histories import Histories
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.layout import Layout, Renames, extract, resolve
from newcomer.logs.intake.reading import Paths, Progress, Reader, read_table
from newcomer.logs.intake.sources import Grouped, Source, collect
from newcomer.logs.intake.survey import Survey

BATCH_BYTES = 64 << 20  # of the features of a batch
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
    reader = Reader.of(path, columns, epoch)
    if not reader.total:
        raise LogsError("no rows", where=reader.files[0], todo="pass logs with at least one row")
    in_rows = reader.layout.features is not None
    catalogue = _catalogue(items, reader.layout, reader.distinct_actions, in_rows=in_rows)
    source: Source
    if grouped:
        source = Grouped(reader, catalogue)
        total = source.survey(progress)
    else:
        chunks = reader.rows(catalogue, progress)
        source, total = collect(chunks, catalogue, memory=MEMORY if memory is None else memory, rows=reader.total)
    return Logs(source, total, catalogue, intercept=intercept, ignored_items=in_rows and items is not None)


class Logs:
    """Users' histories, checked and in time order. Make one with `read_logs`, `from_arrays` or `from_frame`.

    `dim` is the number of features d, the constant included; `intercept` whether there is one; `summary` the logs in a
    few numbers. Everything else that is to be known of logs is computed by `newcomer.logs.engine.reduce`.
    """

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
        self.dim = (items.dim if items is not None and self.by_action else total.dim) + intercept
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
            action i, a table or a file. Without items every distinct action is its own direction (one-hot). Beside
            features, the ids are kept and the features stay those of the rows.
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
            action=None if action is None else "action",
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
        """Logs from one frame, held in memory; `features` (rows, d), if given, stand beside it."""
        if not len(frame):
            raise LogsError("no rows", todo="pass logs with at least one row")
        in_rows = features is not None or layout.features is not None
        catalogue = _catalogue(items, layout, lambda: layout.action_ids(frame, Place()), in_rows=in_rows)
        rows = extract(frame, layout, catalogue, Place(), features=features)
        source, total = collect([rows], catalogue, memory=rows.nbytes, rows=len(rows))
        return cls(source, total, catalogue, intercept=intercept, ignored_items=in_rows and items is not None)

    @cached_property
    def advice(self) -> list[str]:
        """What might be done better, in plain sentences; features are looked at in the first batch only."""
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
        return self._table if self.by_action and not self.one_hot else None

    @property
    def one_hot(self) -> bool:
        """Whether features are one-hot of the actions."""
        return self._items is not None and self.by_action and self._items.matrix is None

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
        target = max(1, BATCH_BYTES // (8 * self.dim)) if rows is None else rows
        if target < 1:
            raise LogsError(f"batches of {rows} rows", todo="ask for at least one row")
        for part in self._source.parts():
            for first, last in part.cuts(target):
                yield self._batch(part.slice(first, last))

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
        )

    @property
    def table(self) -> Floats | None:
        """Features (A, d) of the actions that rows name, as they are used; None where rows bring their own."""
        return self._table if self.by_action else None

    @cached_property
    def _table(self) -> Floats:
        """Features (items, d) of the catalogue, made once for all batches."""
        assert self._items is not None
        return self._with_constant(self._items.features)

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


def _catalogue(items: Any, layout: Layout, actions: Callable[[], pl.Series], *, in_rows: bool) -> Items | None:
    """The actions and, unless they are `in_rows`, their features; None for logs that name no actions.

    `actions` gives every action id of the logs; it is called only where no items table lists them.
    """
    if layout.action is None:
        return None
    if in_rows:
        return Items.named(actions())
    if items is None:
        return Items.one_hot(actions())
    if isinstance(items, str | PathLike):
        return Items.from_frame(read_table(items), source=fspath(items), other=layout.action)
    if is_table(items):
        return Items.from_frame(to_polars(items), other=layout.action)
    return Items.from_array(items)
