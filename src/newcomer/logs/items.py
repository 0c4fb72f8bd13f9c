"""Items: the catalogue of actions, their features, and the position of an action id in it.

Features of an action come from one of three places. An items table has them. Plain (user, item, reward) logs have none;
there every distinct action is a direction of its own (one-hot), and the feature matrix is the identity, never stored.
Or every row of the logs brings the features of its action, which may then differ from row to row; the catalogue only
names the actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.columns import Place, identifier_column, known_column_names
from newcomer.logs.faults import Faults
from newcomer.logs.feature_columns import feature_array_columns, feature_columns, is_feature_column
from newcomer.logs.text_columns import text_is_no_id, text_spellings_note, tidied_text
from newcomer.one_hot import Catalogue, OneHot


@dataclass(frozen=True)
class Items:
    """`ids` (items,), unique, Int64 or String; `matrix` (items, d) the features of a table; `names` where it has them.

    Without a matrix, features are one-hot, or, with `in_rows`, brought by the rows of the logs; with both, a row has
    those of its action and then its own. `feature_names` (d,)
    are those of the table's columns, `notes` what is to be said of them. With `tidy`, an id is found whatever its case
    and the blanks at its ends.
    """

    ids: pl.Series
    matrix: Floats | None = None
    names: tuple[str, ...] | None = None
    in_rows: bool = False
    feature_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    tidy: bool = False

    @classmethod
    def named(cls, actions: pl.Series, *, tidy: bool = False) -> Items:
        """The distinct actions of logs whose rows bring their features, in ascending order of id; any number."""
        return cls(_distinct(actions, tidy=tidy), in_rows=True, tidy=tidy)

    @classmethod
    def one_hot(cls, actions: pl.Series, *, tidy: bool = False) -> Items:
        """Every distinct action a direction of its own, in ascending order of id; any number.

        With `tidy`, spellings that differ in case or in blanks at their ends are one action, under the commonest of
        them; of equally common ones, under the first.

        >>> Items.one_hot(pl.Series(["b", " B", "B", "a"]), tidy=True).ids.to_list()
        ['B', 'a']
        """
        return cls(_distinct(actions, tidy=tidy), tidy=tidy)

    @classmethod
    def from_frame(
        cls,
        frame: pl.DataFrame,
        *,
        source: str = "items",
        other: str = "action",
        features: Sequence[str] | None = None,
        tidy: bool = False,
    ) -> Items:
        """A table with unique ids in its `item_action_column` (the logs call theirs `other`) and features.

        Features are the chosen columns; else the list column `features`, or all numeric columns in order. `name` is
        optional.
        """
        faults = Faults()
        place = Place(source, faults=faults)
        action = item_action_column(frame.columns, other)
        if action is None:
            todo = f"columns are {', '.join(frame.columns[:12])}{error_name_hint('action', frame.columns)}"
            raise LogsError("items have no column 'action'", where=source, todo=todo)
        if not len(frame):
            raise LogsError("the items table has no rows", where=source, todo="give every action a row")
        ids = _unique(identifier_column(frame[action], place), place, tidy=tidy)
        names, column = item_names(frame, action), _item_name_column(frame, action)
        found = feature_columns(frame.drop(action, *([] if column is None else [column])), place, features)
        faults.refuse()
        return cls(ids, found.matrix, names, feature_names=found.names, notes=found.notes, tidy=tidy)

    def naming(self, frame: pl.DataFrame, *, other: str, source: str) -> Items:
        """The same actions under the names of a table; one that is not in it goes by its id."""
        action = str(item_action_column(frame.columns, other))
        ids, names = self.alike(identifier_column(frame[action].drop_nulls(), Place(source))), item_names(frame, action)
        named = pl.DataFrame({"id": self.alike(frame[action]), "name": names}).drop_nulls().unique("id", keep="first")
        found = (
            self.ids.to_frame("own")
            .with_columns(id=self.alike(self.ids))
            .join(named, on="id", how="left", maintain_order="left")
        )
        told = tuple(found.select(pl.coalesce(pl.col("name"), pl.col("own").cast(pl.String)))["name"])
        lost = int(found["name"].null_count())
        note = f"Items have names and no features: every action is its own direction ({len(ids):,} names"
        note += f"; {lost:,} of {len(self.ids):,} actions of the logs have none)." if lost else ")."
        return replace(self, names=told, notes=(*self.notes, note))

    @classmethod
    def from_array(cls, features: ArrayLike) -> Items:
        """Row i of the features (items, d) is action i."""
        matrix = feature_array_columns(features, "items").astype(np.float64, copy=False)
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
        found = actions.replace_strict(self.alike(self.ids), positions, default=None, return_dtype=pl.Int32)
        lost = found.is_null() & given.is_not_null()
        if lost.any():
            kind, todo = f"is not among the {len(self.ids):,} items", "add it to the items table or remove its rows"
            todo += self._other_spelling(given.filter(lost))
            text = lambda row: f"action {given[row]!r} {kind}"
            place.refuse(given.name, lost, kind, text, todo, lambda row: given[row])
        return found.fill_null(0).to_numpy()

    def _other_spelling(self, lost: pl.Series) -> str:
        """Advice for unknown ids that differ from known ones in case or blanks alone."""
        if lost.dtype != pl.String or self.ids.dtype != pl.String or self.tidy:
            return ""
        known = self.ids.to_frame("id").with_columns(key=tidied_text(pl.col("id")))
        both = lost.unique().sort().to_frame("lost").with_columns(key=tidied_text(pl.col("lost"))).join(known, on="key")
        if not len(both):
            return ""
        one = both.sort("lost").row(0, named=True)
        return f"; {one['lost']!r} is likely {one['id']!r}: tidy_ids=True (--tidy-ids) joins them"

    def alike(self, ids: pl.Series) -> pl.Series:
        """Ids as the catalogue spells them: in its type, for 7 and "7" mean the same, and tidied if it is tidy.

        Null where text is no integer and has to be.

        >>> Items.one_hot(pl.Series([7, 8])).alike(pl.Series(["8", "08", "x"])).to_list()
        [8, None, None]
        """
        return ids.to_frame("id").select(self.spelled(pl.col("id"), ids.dtype))["id"]

    def spelled(self, ids: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        """`alike` of an expression of ids, of integers or text."""
        if self.ids.dtype == pl.String:
            text = ids.cast(pl.String)
            return tidied_text(text) if self.tidy else text
        return (
            ids
            if dtype != pl.String
            else pl.when(~text_is_no_id(ids)).then(ids.str.strip_chars().cast(pl.Int64, strict=False))
        )

    @property
    def features(self) -> Catalogue:
        """The features (items, d); those of one-hot actions are the identity, which is not written out."""
        return OneHot(len(self.ids)) if self.matrix is None else self.matrix


def item_action_column(names: Sequence[str], other: str) -> str | None:
    """Which column of an items table holds the ids: `action`, the logs' name for it, or the one with a common name.

    >>> item_action_column(["movieId", "title", "year"], "item")
    'movieId'
    """
    common = known_column_names("action", names)
    return next((name for name in ("action", other) if name in names), common[0] if len(common) == 1 else None)


def _distinct(actions: pl.Series, *, tidy: bool) -> pl.Series:
    """The distinct ids in ascending order; of those that are the same once tidied, the commonest spelling."""
    if not tidy or actions.dtype != pl.String:
        return actions.unique().sort()
    counted = (
        _commonest_items_first(actions.str.strip_chars()).to_frame("id").with_columns(key=tidied_text(pl.col("id")))
    )
    return counted.unique("key", keep="first", maintain_order=True)["id"].sort()


def _commonest_items_first(ids: pl.Series) -> pl.Series:
    """The distinct ids, the commonest first and equally common ones in the order of their first occurrence.

    >>> _commonest_items_first(pl.Series(["a", "b", "b", "c"])).to_list()
    ['b', 'a', 'c']
    """
    counted = ids.to_frame("id").group_by("id", maintain_order=True).len()
    return counted.sort("len", descending=True, maintain_order=True)["id"]


def _item_name_column(frame: pl.DataFrame, action: str) -> str | None:
    """Which column of an items table holds the names: `name`, or `title`."""
    return next((name for name in ("name", "title") if name in frame.columns and name != action), None)


def item_names(frame: pl.DataFrame, action: str) -> tuple[str, ...] | None:
    """The names of the items; an item without one goes by its id."""
    column = _item_name_column(frame, action)
    if column is None:
        return None
    return tuple(frame.select(pl.coalesce(pl.col(column).cast(pl.String), pl.col(action).cast(pl.String)))[column])


def only_item_names(frame: pl.DataFrame, other: str) -> bool:
    """Whether an items table has names of actions, and nothing that could be a feature."""
    action = item_action_column(frame.columns, other)
    if action is None or _item_name_column(frame, action) is None or "features" in frame.columns:
        return False
    return not any(
        is_feature_column(frame[name])
        for name in frame.columns
        if name not in (action, _item_name_column(frame, action))
    )


def item_spellings_note(items: Items | None) -> list[str]:
    """A note on actions that are likely the same, where they were not joined."""
    return [] if items is None or items.tidy else text_spellings_note(items.ids, "action")


def _unique(ids: pl.Series, place: Place, *, tidy: bool) -> pl.Series:
    """The ids, if none is there twice: an action must have one row of features."""
    keys = ids.to_frame("id").select(tidied_text(pl.col("id")))["id"] if tidy and ids.dtype == pl.String else ids
    again = ~keys.is_first_distinct() & keys.is_not_null()
    told, kind = (lambda row: f"item {ids[row]!r} occurs more than once"), "occurs more than once"
    place.refuse(ids.name, again, kind, told, "keep one row per action", lambda row: ids[row])
    return ids
