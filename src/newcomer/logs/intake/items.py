"""Items: the catalogue of actions, their features, and the position of an action id in it.

Features of an action come from one of three places. An items table has them. Plain (user, item, reward) logs have none;
there every distinct action is a direction of its own (one-hot), and the feature matrix is the identity, never stored.
Or every row of the logs brings the features of its action, which may then differ from row to row; the catalogue only
names the actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.errors import LogsError, nearest
from newcomer.logs.intake.columns import Place, feature_array, identifiers
from newcomer.logs.intake.feature_columns import feature_columns
from newcomer.logs.intake.naming import known_as
from newcomer.logs.intake.texts import is_no_id
from newcomer.onehot import Catalogue, OneHot


@dataclass(frozen=True)
class Items:
    """`ids` (items,), unique, Int64 or String; `matrix` (items, d) the features of a table; `names` where it has them.

    Without a matrix, features are one-hot, or, with `in_rows`, brought by the rows of the logs. `feature_names` (d,)
    are those of the table's columns, `notes` what is to be said of them.
    """

    ids: pl.Series
    matrix: Floats | None = None
    names: tuple[str, ...] | None = None
    in_rows: bool = False
    feature_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def named(cls, actions: pl.Series) -> Items:
        """The distinct actions of logs whose rows bring their features, in ascending order of id; any number."""
        return cls(actions.unique().sort(), in_rows=True)

    @classmethod
    def one_hot(cls, actions: pl.Series) -> Items:
        """Every distinct action a direction of its own, in ascending order of id; any number."""
        return cls(actions.unique().sort())

    @classmethod
    def from_frame(
        cls,
        frame: pl.DataFrame,
        *,
        source: str = "items",
        other: str = "action",
        features: Sequence[str] | None = None,
    ) -> Items:
        """A table with unique ids in its `action_column` (the logs call theirs `other`) and features.

        Features are the chosen columns; else the list column `features`, or all numeric columns in order. `name` is
        optional.
        """
        place = Place(source)
        action = action_column(frame.columns, other)
        if action is None:
            todo = f"columns are {', '.join(frame.columns[:12])}{nearest('action', frame.columns)}"
            raise LogsError("items have no column 'action'", where=source, todo=todo)
        if not len(frame):
            raise LogsError("the items table has no rows", where=source, todo="give every action a row")
        ids = _unique(identifiers(frame[action], place), place)
        names = tuple(map(str, frame["name"])) if "name" in frame.columns and action != "name" else None
        found = feature_columns(frame.drop(action, *(["name"] if names else [])), place, features)
        return cls(ids, found.matrix, names, feature_names=found.names, notes=found.notes)

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
        """Positions (rows,) of action ids in the catalogue; an unknown id is an error.

        >>> Items.one_hot(pl.Series(["tea", "milk"])).locate(pl.Series(["tea", "tea", "milk"]), place=Place()).tolist()
        [1, 1, 0]
        """
        given, actions = actions, self.alike(actions)
        positions = pl.Series(np.arange(len(self.ids), dtype=np.int32))
        found = actions.replace_strict(self.ids, positions, default=None, return_dtype=pl.Int32)
        if found.null_count():
            row = int(found.is_null().arg_max() or 0)
            raise LogsError(
                f"action {given[row]!r} is not among the {len(self.ids):,} items",
                where=place.column(given.name, row),
                todo="add it to the items table or remove its rows",
            )
        return found.to_numpy()

    def alike(self, ids: pl.Series) -> pl.Series:
        """Ids in the type of the catalogue's: 7 and "7" mean the same; null where text is no integer and has to be.

        >>> Items.one_hot(pl.Series([7, 8])).alike(pl.Series(["8", "08", "x"])).to_list()
        [8, None, None]
        """
        if ids.dtype == self.ids.dtype:
            return ids
        if self.ids.dtype == pl.String:
            return ids.cast(pl.String)
        return ids.to_frame("ids").select(pl.when(~is_no_id("ids")).then(pl.col("ids").cast(pl.Int64, strict=False)))[
            "ids"
        ]

    @property
    def features(self) -> Catalogue:
        """The features (items, d); those of one-hot actions are the identity, which is not written out."""
        return OneHot(len(self.ids)) if self.matrix is None else self.matrix


def action_column(names: Sequence[str], other: str) -> str | None:
    """Which column of an items table holds the ids: `action`, the logs' name for it, or the one with a common name.

    >>> action_column(["movieId", "title", "year"], "item")
    'movieId'
    """
    common = known_as("action", names)
    return next((name for name in ("action", other) if name in names), common[0] if len(common) == 1 else None)


def _unique(ids: pl.Series, place: Place) -> pl.Series:
    """The ids, if none is there twice: an action must have one row of features."""
    if ids.n_unique() == len(ids):
        return ids
    row = int(ids.is_first_distinct().arg_min() or 0)
    todo = "keep one row per action"
    raise LogsError(f"item {ids[row]!r} is there more than once", where=place.column(ids.name, row), todo=todo)
