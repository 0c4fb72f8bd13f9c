"""The time of a row: which column of a table says when a row was logged, where the caller has not named it.

Without a step the rows of a user stand in file order, and every check of an order in time (drift, adaptive logging)
then speaks of the order of a file. `schema.resolve` recognises the common names (timestamp, date). This module looks
further, at names that end like a time (`visit_date`, `sentAt`, `t`, `day`) and at columns of times: one such column
whose values can all be read is taken, and every other case is said in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from newcomer.logs.schema import Layout, Renames
from newcomer.logs.text_columns import date_questions

Ask = Callable[[Sequence[pl.Expr]], list[pl.DataFrame]]  # one answer for each file, or for the one frame
LAST_WORDS = {"at", "date", "day", "time", "timestamp", "datetime", "ts", "t", "when", "dt"}
# Dates that belong to a user or to an item, or that say when something else happened.
OTHER_DATES = {
    *("birth", "born", "dob", "release", "released", "publish", "published", "signup", "sign", "register"),
    *("registered", "registration", "join", "joined", "account", "hire", "hired", "expiry", "expire", "expires"),
    *("due", "end", "ended", "closed", "deleted", "first", "last", "week", "of"),
}
_ISO = r"^[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([T ].*)?$"


@dataclass(frozen=True)
class TimeValues:
    """What a column that may be the time holds: of `rows`, how many are missing, and whether the rest can be read."""

    rows: int
    missing: int
    readable: bool
    two_ways: bool = False  # dates such as 03/02/2020 that nothing settles
    whole: bool = False  # text that is whole numbers


def time_names(names: Iterable[str]) -> list[str]:
    """The names that end like the time of a row.

    >>> time_names(["visit_date", "sentAt", "t", "birth_date", "day_of_week", "reward", "format"])
    ['visit_date', 'sentAt', 't']
    """
    return [name for name in names if _words(name)[-1:] and _is_time(_words(name))]


def find_time(
    layout: Layout,
    names: Sequence[str],
    types: Sequence[Mapping[str, pl.DataType]],
    ask: Ask,
    columns: Renames | None,
) -> Layout:
    """The layout with the column of times that was recognised, or with a note on what looks like one.

    `types` are those of each file. A `step` that the caller left out with None is not looked for.
    """
    if "step" in (columns or {}):
        return layout
    free = [name for name in names if name not in layout.names()]
    named = [name for name in time_names(free) if not (_may_be_duration(name) and _is_numeric(name, types))]
    found = named or [name for name in free if all(_is_time_type(one.get(name)) for one in types)]
    if not found:
        return layout
    if len(found) > 1:
        return layout.noting(_several(found))
    values = _values(found[0], types, ask, layout)
    if values.whole and _may_be_duration(found[0]):
        return layout
    return _taken(layout, found[0], values)


def _taken(layout: Layout, name: str, values: TimeValues) -> Layout:
    """The layout with this column as its step, if all of its values can be read as times or steps."""
    looks = f"Column {name} looks like the time of a row"
    order = "rows of a user are taken in file order"
    if not values.readable:
        return layout.noting(f"{looks} but cannot be read as one: {order}.")
    if values.two_ways:
        which = "dates='day-first' or 'month-first' (--dates day-first|month-first)"
        return layout.noting(f"{looks} but its dates can be read two ways: {order} unless {which} says which.")
    if values.missing and layout.missing != "drop":
        lacks = f"is missing in {values.missing:,} of {values.rows:,} rows"
        drop = "missing='drop' (--missing drop) leaves those rows out and uses it"
        return layout.noting(f"{looks} and {lacks}: {order}; {drop}.")
    other = "columns={'step': ...} (--column step=...) chooses another, columns={'step': None} (--column step=) none"
    note = f"Column {name} is taken as the time of a row, by its name or type; {other}."
    return layout.noting(note, step=name, ties=True)


def _several(found: Sequence[str]) -> str:
    """The note for a table of which several columns may be the time."""
    both = " and ".join(f"'{name}'" for name in found)
    how = f"columns={{'step': '{found[0]}'}} (--column step={found[0]}) chooses one"
    return f"{both} could each be the time of a row; rows of a user are taken in file order: {how}."


def _values(name: str, types: Sequence[Mapping[str, pl.DataType]], ask: Ask, layout: Layout) -> TimeValues:
    """What the column holds in all files: dates or whole numbers throughout, or something else."""
    column, plain = pl.col(name), pl.col(name)
    text = any(one[name] == pl.String for one in types)
    asked = [pl.len().alias(" rows"), column.null_count().alias(" missing")]
    if text:
        plain = column.cast(pl.String).str.strip_chars()
        dates, first, second = date_questions(name)
        asked += [dates, first, second, plain.str.contains(_ISO).sum().alias(" iso")]
        asked += [plain.cast(pl.Int64, strict=False).count().alias(" whole")]
    answers = ask(asked)
    total = {key: sum(int(one[key][0] or 0) for one in answers) for key in answers[0].columns}
    rows, missing = total[" rows"], total[" missing"]
    if not text:
        kinds = {one[name] for one in types}
        return TimeValues(rows, missing, missing < rows and all(_is_step_type(kind) for kind in kinds))
    known = rows - missing
    readable = known > 0 and known in (total[" dates"] + total[" iso"], total[" whole"])
    day, month = (max(int(one[key][0] or 0) for one in answers) > 12 for key in (" first", " second"))
    unsettled = total[" dates"] > 0 and layout.dates is None and day == month
    return TimeValues(rows, missing, readable, unsettled, known > 0 and known == total[" whole"])


def _words(name: str) -> list[str]:
    """The words of a name, whether joined by capitals, underscores or blanks."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _is_time(words: Sequence[str]) -> bool:
    return words[-1] in LAST_WORDS and not OTHER_DATES & set(words)


def _may_be_duration(name: str) -> bool:
    """Whether numbers under this name, such as watch_time, say how long, not when."""
    return _words(name)[-1] == "time" and len(_words(name)) > 1


def _is_numeric(name: str, types: Sequence[Mapping[str, pl.DataType]]) -> bool:
    return any(one[name].is_numeric() for one in types)


def _is_time_type(dtype: pl.DataType | None) -> bool:
    return isinstance(dtype, pl.Datetime) or dtype == pl.Date


def _is_step_type(dtype: pl.DataType) -> bool:
    return _is_time_type(dtype) or isinstance(dtype, pl.Duration) or dtype.is_integer()
