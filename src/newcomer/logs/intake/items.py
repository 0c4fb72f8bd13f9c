"""Items: the catalogue of actions, their features, and the position of an action id in it.

Plain (user, item, reward) logs have no features; there every distinct action is its own direction (one-hot), and the
feature matrix is the identity, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.errors import LogsError, nearest
from newcomer.logs.batch import Floats
from newcomer.logs.intake.columns import Place, feature_array, feature_lists, identifiers, numbers

ONE_HOT_LIMIT = 2000


@dataclass(frozen=True)
class Items:
    """Ids (unique; Int64 or String), features (items, d) or None for one-hot, and names where the table has them."""

    ids: pl.Series
    matrix: Floats | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def one_hot(cls, actions: pl.Series) -> Items:
        """Every distinct action its own direction, in ascending order of id."""
        distinct = actions.unique().sort()
        if len(distinct) > ONE_HOT_LIMIT:
            raise LogsError(
                f"{len(distinct):,} distinct actions without features, one-hot works up to {ONE_HOT_LIMIT:,}",
                where="column action",
                todo="pass items= with the features of each action, or keep the most frequent actions",
            )
        return cls(distinct)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, *, source: str = "items", other: str = "action") -> Items:
        """A table with unique ids in `action` (or as the logs call it, `other`) and features.

        Features are the list column `features`, or else all other numeric columns in order; `name` is optional.
        """
        place = Place(source)
        action = "action" if "action" in frame.columns or other not in frame.columns else other
        if action not in frame.columns:
            todo = f"columns are {', '.join(frame.columns[:12])}{nearest(action, frame.columns)}"
            raise LogsError(f"items have no column '{action}'", where=source, todo=todo)
        if not len(frame):
            raise LogsError("the items table has no rows", where=source, todo="give every action a row")
        ids = _unique(identifiers(frame[action], place), place)
        names = tuple(map(str, frame["name"])) if "name" in frame.columns and action != "name" else None
        return cls(ids, _feature_matrix(frame.drop(action, *(["name"] if names else [])), place), names)

    @classmethod
    def from_array(cls, features: ArrayLike) -> Items:
        """Row i of the features (items, d) is action i."""
        matrix = feature_array(features, "items").astype(np.float64, copy=False)
        return cls(pl.Series(np.arange(len(matrix))), matrix)

    @property
    def dim(self) -> int:
        """Number of features of an item."""
        return len(self.ids) if self.matrix is None else int(self.matrix.shape[1])

    def locate(self, actions: pl.Series, *, place: Place) -> NDArray[np.int32]:
        """Positions of action ids in the catalogue; an unknown id is an error."""
        if actions.dtype != self.ids.dtype:
            raise _other_type(actions.dtype, self.ids.dtype, place.column(actions.name))
        positions = pl.Series(np.arange(len(self.ids), dtype=np.int32))
        found = actions.replace_strict(self.ids, positions, default=None, return_dtype=pl.Int32)
        if found.null_count():
            row = int(found.is_null().arg_max() or 0)
            raise LogsError(
                f"action {actions[row]!r} is not among the {len(self.ids):,} items",
                where=place.column(actions.name, row),
                todo="add it to the items table or remove its rows",
            )
        return found.to_numpy()

    @property
    def features(self) -> Floats:
        """The features (items, d); those of one-hot actions are the identity."""
        return np.eye(len(self.ids)) if self.matrix is None else self.matrix


def _unique(ids: pl.Series, place: Place) -> pl.Series:
    if ids.n_unique() == len(ids):
        return ids
    row = int(ids.is_first_distinct().arg_min() or 0)
    todo = "keep one row per action"
    raise LogsError(f"item {ids[row]!r} is there more than once", where=place.column(ids.name, row), todo=todo)


def _feature_matrix(frame: pl.DataFrame, place: Place) -> Floats:
    if "features" in frame.columns:
        return feature_lists(frame["features"], place).astype(np.float64)
    columns = [column for column in frame if column.dtype.is_numeric() or column.dtype == pl.Boolean or _meant(column)]
    if not columns:
        todo = "add numeric columns, or a column features of lists; or leave items out for one-hot features"
        raise LogsError("items have no numeric columns", where=place.source, todo=todo)
    return np.column_stack([numbers(column, place) for column in columns])


def _meant(column: pl.Series) -> bool:
    """Text that is mostly numbers was meant as numbers: `numbers` then names the value that is not one."""
    return column.dtype == pl.String and 2 * column.cast(pl.Float64, strict=False).count() > len(column)


def _other_type(found: pl.DataType, wanted: pl.DataType, where: str) -> LogsError:
    words = {True: "text", False: "integers"}
    return LogsError(
        f"actions are {words[found == pl.String]} here and {words[wanted == pl.String]} in the items",
        where=where,
        todo="use one type for action ids in logs and items",
    )
