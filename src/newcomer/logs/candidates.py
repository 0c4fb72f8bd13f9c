"""What was on offer: the candidates of each row as positions in the catalogue.

Lists of candidates are most of what logs weigh that have them, so an id is four bytes here, whatever it was in the
file. Rows on their way hold a Polars column of lists, which can be cut, reordered and written to disk as it is; sorted
histories and batches hold two flat arrays (`Candidates`), which can be mapped from disk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Ints
from newcomer.errors import LogsError, error_in_one_line
from newcomer.logs.columns import Place, column_kind, refuse_null_column
from newcomer.logs.items import Items
from newcomer.records import Shown, freeze_record

NOWHERE = -1  # the position of an id that is no action of the catalogue: it was shown and never chosen


@dataclass(frozen=True)
class Candidates(Shown):
    """The ids on offer in each row: those of row i are `actions[offsets[i] : offsets[i + 1]]`, in the order shown.

    `offsets` is (rows + 1,); `actions` holds positions in `Logs.action_ids`. Where no items table lists the actions, an
    id that was shown and never chosen has no position: it is -1, and nothing is known of it. A row without any is one
    that offered the whole catalogue.
    """

    offsets: Ints
    actions: NDArray[np.int32]

    def __post_init__(self) -> None:
        freeze_record(self)

    @classmethod
    def of(cls, lists: pl.Series) -> Candidates:
        """From a column of lists of positions, none of them empty; null is the whole catalogue."""
        lengths = lists.list.len().fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return cls(offsets, lists.drop_nulls().explode(empty_as_null=False).to_numpy())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> Candidates:
        """Those of neighbouring rows, as views."""
        start, stop, _ = rows.indices(len(self))
        bounds = self.offsets[start : stop + 1]
        return Candidates(bounds - bounds[0], self.actions[int(bounds[0]) : int(bounds[-1])])

    @property
    def lengths(self) -> Ints:
        """How many were on offer in each row, (rows,)."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self.offsets.nbytes + self.actions.nbytes)


def locate_candidates(
    column: pl.Series, chosen: NDArray[np.int32], items: Items, place: Place, *, gaps: bool = False
) -> pl.Series:
    """A column of lists of ids as lists of positions; every row must offer what was `chosen`, and nothing twice.

    With `gaps` a row may have no list: it offered the whole catalogue.

    >>> items = Items.one_hot(pl.Series(["milk", "tea"]))
    >>> shown = pl.Series("candidates", [["tea", "milk"], ["tea", "gin"]])
    >>> locate_candidates(shown, np.array([0, 1], dtype=np.int32), items, Place()).to_list()
    [[1, 0], [1, -1]]
    """
    lists = _lists(column, items, place, gaps=gaps)
    positions = pl.Series(np.arange(len(items.ids), dtype=np.int32))
    number = pl.element().replace_strict(items.alike(items.ids), positions, default=NOWHERE, return_dtype=pl.Int32)
    found = lists.list.eval(number)
    _refuse_unknown(lists, found, items, place)
    todo = "list every action that was on offer once, the chosen one among them"
    again = (lists.list.n_unique() < lists.list.len()).fill_null(False)
    place.refuse(
        column.name, again, "has an action twice", lambda row: "an action occurs twice among the candidates", todo
    )
    lacking = (~found.list.contains(pl.Series(chosen))).fill_null(False)
    text = "the chosen action is not among its candidates"
    place.refuse(column.name, lacking, "lacks the chosen action", lambda row: text, todo)
    return found


def _lists(column: pl.Series, items: Items, place: Place, *, gaps: bool) -> pl.Series:
    """The column as lists of ids of the type that the catalogue has; none is empty, and no id is missing."""
    if not gaps:
        refuse_null_column(column, place)
    lists = _parsed(column, place) if column.dtype == pl.String else column
    if isinstance(lists.dtype, pl.Array):
        lists = lists.cast(pl.List(lists.dtype.inner))
    if not isinstance(lists.dtype, pl.List):
        todo = "store candidates as lists of action ids, or in a CSV as text such as 3|7|12"
        raise LogsError(f"candidates are {column_kind(lists.dtype)}", where=place.column(column.name), todo=todo)
    empty = (lists.list.len() == 0).fill_null(False)
    todo = "list every action that was on offer, the chosen one among them"
    place.refuse(column.name, empty, "is empty", lambda row: "candidates are empty", todo)
    return _typed(lists, column, items, place)


def _parsed(column: pl.Series, place: Place) -> pl.Series:
    """Lists written as text, as JSON writes them or with bars between the ids: 3|7|12."""
    plain = column.str.strip_chars()
    if not plain.str.starts_with("[").any():
        lists = plain.str.split("|")
        return lists.list.eval(pl.element().filter(pl.element() != ""))
    try:
        return plain.str.json_decode(pl.List(pl.String))
    except pl.exceptions.PolarsError as error:
        todo = "write every list as JSON does, or all with bars between the ids: 3|7|12"
        raise LogsError("candidates that are no list", where=place.column(column.name), todo=todo) from error


def _typed(lists: pl.Series, column: pl.Series, items: Items, place: Place) -> pl.Series:
    """Lists of ids as integers or text, whichever the actions are: 7 and "7" mean the same."""
    inner = lists.list.eval(pl.element().head(0)).explode().dtype
    if not (inner.is_integer() or inner in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        todo = "use integers or text for ids"
        raise LogsError(f"candidates are lists {column_kind(inner)}", where=place.column(column.name), todo=todo)
    element = pl.element() if inner.is_integer() else pl.element().cast(pl.String)
    typed = lists.list.eval(items.spelled(element, pl.Int64() if inner.is_integer() else pl.String()))
    missing = typed.list.eval(pl.element().is_null()).list.any().fill_null(False)
    text = lambda row: f"a candidate of {error_in_one_line(str(lists[row].to_list()))} is no action id"
    todo = "use one type for the ids of actions and candidates"
    place.refuse(
        column.name, missing, "has an entry that is not an action id", text, todo, lambda row: lists[row].to_list()
    )
    return typed


def _refuse_unknown(lists: pl.Series, found: pl.Series, items: Items, place: Place) -> None:
    """Refuse candidates that an items table does not have; without a table they were shown and never chosen."""
    lost = found.list.contains(NOWHERE).fill_null(False)
    if items.matrix is None or not lost.any():
        return

    def strange(row: int) -> object:
        return next(one for one, at in zip(lists[row], found[row], strict=True) if at == NOWHERE)

    kind, todo = f"is not among the {len(items.ids):,} items", "add it to the items table or remove it from the lists"
    place.refuse(
        lists.name, lost, f"has one that {kind}", lambda row: f"candidate {strange(row)!r} {kind}", todo, strange
    )
