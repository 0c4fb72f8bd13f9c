"""Logs: what happened, read and checked once, then served as batches of whole histories.

A log is rows (user, step, action or features, reward). Small logs are held as compact columns sorted by user and step;
larger ones are spilled to hash buckets on disk and sorted bucket by bucket. Features of actions are looked up in the
items table batch by batch and never stored per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.batch import Batch, Floats
from newcomer.columns import Epoch, Place, feature_array, identifiers
from newcomer.errors import LogsError
from newcomer.histories import Histories, Rows, arrange
from newcomer.items import Items
from newcomer.survey import Summary, Survey, survey
from newcomer.tables import Layout, extract

BATCH_BYTES = 32 << 20


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


class Logs:
    """Users' histories, checked and in time order. Make one with `read_logs`, `from_arrays` or `from_frame`."""

    def __init__(self, source: Source, *, items: Items | None, dim: int, total: Survey, intercept: bool) -> None:
        self._source, self._items = source, items
        self.intercept = intercept
        self.dim = dim + intercept
        self.summary: Summary = total.summary(dim=self.dim, intercept=intercept)
        self.advice: list[str] = []

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
        columns = {"user": user, "reward": reward, "action": action, "step": step, "propensity": propensity}
        frame = _frame({name: values for name, values in columns.items() if values is not None})
        matrix = None if features is None else feature_array(np.asarray(features))
        if matrix is not None and len(matrix) != len(frame):
            raise _lengths({"user": len(frame), "features": len(matrix)})
        if matrix is None and action is None:
            raise LogsError("neither features nor actions", todo="pass features= or action=")
        layout = Layout(
            step=None if step is None else "step",
            action="action" if matrix is None else None,
            propensity=None if propensity is None else "propensity",
            epoch=epoch,
        )
        return cls._from_table(frame, layout, items=items, intercept=intercept, features=matrix)

    @classmethod
    def _from_table(
        cls,
        frame: pl.DataFrame,
        layout: Layout,
        *,
        items: Any,
        intercept: bool,
        features: NDArray[np.floating] | None = None,
    ) -> Logs:
        if not len(frame):
            raise LogsError("no rows", todo="pass at least one row")
        catalogue = None if layout.action is None else _catalogue(items, frame[layout.action])
        rows = extract(frame, layout, catalogue, Place(), features=features)
        part = arrange(rows)
        return cls(
            Held(part), items=catalogue, dim=_dim(rows, catalogue), total=survey(part, catalogue), intercept=intercept
        )

    @property
    def action_ids(self) -> tuple[int | str, ...] | None:
        """Ids of the items, or of the one-hot directions, in the order of `Batch.actions`; None without either."""
        return None if self._items is None else tuple(self._items.ids.to_list())

    @property
    def item_names(self) -> tuple[str, ...] | None:
        """Names of the items, if the items table has a column `name`."""
        return None if self._items is None else self._items.names

    @property
    def one_hot(self) -> bool:
        """Whether features are one-hot of the actions."""
        return self._items is not None and self._items.matrix is None

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Batches of whole users in a fixed order, each of about `rows` rows (default: 32 MB of features)."""
        target = max(1, BATCH_BYTES // (8 * self.dim)) if rows is None else rows
        if target < 1:
            raise LogsError(f"batches of {rows} rows", todo="ask for at least one row")
        for part in self._source.parts():
            for first, last in _cuts(part.offsets, target):
                yield self._batch(part, first, last)

    def _batch(self, part: Histories, first: int, last: int) -> Batch:
        start, stop = int(part.offsets[first]), int(part.offsets[last])
        codes = None if part.actions is None else part.actions[start:stop]
        return Batch(
            users=part.ids(first, last),
            hashes=part.hashes[first:last],
            offsets=part.offsets[first : last + 1] - start,
            features=self._features(part, codes, start, stop),
            rewards=part.rewards[start:stop],
            actions=None if codes is None else codes.astype(np.int64),
            propensities=None if part.propensities is None else part.propensities[start:stop],
        )

    def _features(self, part: Histories, codes: NDArray[np.int32] | None, start: int, stop: int) -> Floats:
        if part.features is not None and not self.intercept:
            return part.features[start:stop].astype(np.float64, copy=False)
        out = np.empty((stop - start, self.dim))
        plain = out[:, :-1] if self.intercept else out
        if part.features is not None:
            plain[:] = part.features[start:stop]
        elif self._items is not None and codes is not None:
            self._items.fill(codes, plain)
        if self.intercept:
            out[:, -1] = 1.0
        return out

    def close(self) -> None:
        """Remove temporary files; done by itself when the logs are no longer used."""
        self._source.close()

    def __repr__(self) -> str:
        s = self.summary
        return f"Logs({s.users:,} users, {s.rows:,} rows, {s.dim} features)"


def _cuts(offsets: NDArray[np.int64], rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of users with at most `rows` rows each, or one user."""
    first, users = 0, len(offsets) - 1
    while first < users:
        last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
        last = min(max(last, first + 1), users)
        yield first, last
        first = last


def _frame(columns: dict[str, ArrayLike]) -> pl.DataFrame:
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    lengths = {name: len(values) if values.ndim == 1 else -1 for name, values in arrays.items()}
    if -1 in lengths.values() or len(set(lengths.values())) > 1:
        raise _lengths({name: values.shape for name, values in arrays.items()})
    return pl.DataFrame([_series(name, values) for name, values in arrays.items()])


def _series(name: str, values: NDArray[np.generic]) -> pl.Series:
    try:
        return pl.Series(name, values.tolist() if values.dtype.kind in "OU" else values)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise LogsError(f"{name} mixes types", where=name, todo="use one type throughout") from error


def _lengths(shapes: dict[str, Any]) -> LogsError:
    found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    return LogsError(f"arrays differ in shape: {found}", todo="pass one entry per row in every array")


def _catalogue(items: Any, actions: pl.Series) -> Items:
    if items is None:
        return Items.one_hot(identifiers(actions, Place()))
    return Items.from_array(np.asarray(items))


def _dim(rows: Rows, items: Items | None) -> int:
    if rows.features is not None:
        return int(rows.features.shape[1])
    assert items is not None
    return items.dim
