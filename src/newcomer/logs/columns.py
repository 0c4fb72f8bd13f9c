"""Columns: one function per kind of column, from whatever type it has to a checked array, or one clear error.

Columns are checked whole (null counts, one finiteness test per column); the row at fault is looked for only once a
check has failed. Rows in messages are counted from 1 within their file. Where faults are collected (`Place.faults`),
what is returned of a column with faults has the right length and type, and is used for nothing.

Naming: other names by which columns of logs commonly go, so that a file is read as it is and says what was guessed.

A name counts without regard to case, spaces and underscores: `userId`, `user_id` and `User ID` are one. Only a name
that a single column has is taken; which columns were recognised is always printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Ints
from newcomer.errors import LogsError
from newcomer.logs.faults import Example, Faults
from newcomer.logs.text_columns import (
    Dates,
    text_dates_two_ways,
    text_to_iso_dates,
    text_to_numbers,
    text_to_numbers_or_null,
)

Epoch = Literal["s", "ms", "us", "ns"]
Real = TypeVar("Real", bound=np.floating)
Result = TypeVar("Result")
_WORDS: dict[Epoch, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NANOSECONDS: dict[Epoch, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
FILL_IN = "fill the value in or remove the row, or missing='drop' (--missing drop) leaves such rows out"
_CURRENCIES = "$€£¥"
_OLDEST, _NEWEST = 300_000_000, 4_200_000_000  # Unix seconds from 1979 to 2103: smaller numbers count something else


@dataclass(frozen=True)
class Place:
    """Where rows come from: a file (or nothing, for arrays and frames) and the number of rows before them.

    `rows` are their numbers, from 0, where some were left out; `faults`, if there, collects what is wrong; `spare` is
    the part of the logs that can be done without, if what is looked at is one. Below a `header` the number of a row
    is not that of its line: it is called a data row.
    """

    source: str = ""
    start: int = 0
    rows: Ints | None = None
    faults: Faults | None = None
    spare: str = ""
    header: bool = False

    def column(self, name: str, row: int | None = None) -> str:
        """The place in words; rows are counted on from those of earlier chunks.

        >>> Place("logs.csv", start=10).column("reward", 1)
        'logs.csv, row 12, column reward'
        """
        kind = "data row" if self.header else "row"
        at = [] if row is None else [f"{kind} {self.number(row)}"]
        return ", ".join([*([self.source] if self.source else []), *at, f"column {name}"])

    def number(self, row: int) -> int:
        """The number of a row in its file, from 1."""
        return self.start + (row if self.rows is None else int(self.rows[row])) + 1

    def refuse(
        self,
        name: str,
        bad: pl.Series | NDArray[np.bool_],
        kind: str,
        what: Callable[[int], str],
        todo: str,
        value: Callable[[int], object] | None = None,
    ) -> None:
        """Refuse the rows of a column that are `bad` (rows,), if any is: all together are of a `kind`, each has a
        sentence, `what(row)`, and perhaps a value to be shown.
        """
        mask = np.asarray(bad)
        if self.faults is not None and mask.any():
            mask = self.faults.new((self.source, self.start), name, mask)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return
        if self.faults is None:
            raise LogsError(what(int(rows[0])), where=self.column(name, int(rows[0])), todo=todo)

        def example(i: int) -> Example:
            row = int(rows[i])
            shown = "" if value is None else repr(value(row))
            return Example(self.source, self.number(row), shown, what(row), self.column(name, row), self.header)

        self.faults.add(name, kind, len(rows), example, self._or_without(todo))

    def attempt(self, part: str, function: Callable[..., Result], *given: Any) -> Result | None:
        """What a function of some arguments and this place gives; its error is collected where faults are.

        Of a `part` that logs can do without, the error says how; of others it is "".
        """
        place = replace(self, spare=part)
        try:
            return function(*given, place)
        except LogsError as error:
            again = LogsError(error.what, where=error.where, todo=place._or_without(error.todo))
            if self.faults is None:
                raise again from error
            self.faults.note(again)
            return None

    def _or_without(self, todo: str) -> str:
        part = self.spare
        return f"{todo}, or leave the column out: columns={{'{part}': None}} (--column {part}=)" if part else todo


def identifier_column(column: pl.Series, place: Place) -> pl.Series:
    """User or action ids as Int64 or String, so that there are two kinds of ids and not a dozen.

    Unsigned and short integers become Int64 if they fit; numbers with a point are refused, since 7.0 and "7" would not
    be found again.

    >>> identifier_column(pl.Series("user", [3, 9], dtype=pl.UInt16), Place()).dtype
    Int64
    """
    refuse_null_column(column, place)
    if column.dtype in (pl.Categorical, pl.Enum) or column.dtype == pl.String:
        return column.cast(pl.String)
    if not column.dtype.is_integer():
        todo = "use integers or text for ids"
        raise LogsError(f"ids are {column_kind(column.dtype)}", where=place.column(column.name), todo=todo)
    exact = column.cast(pl.Int64, strict=False)
    if exact.null_count() > column.null_count():
        lost, todo = exact.is_null() & column.is_not_null(), "use ids below 2^63, or text"
        place.refuse(column.name, lost, "is too large", lambda row: f"id {column[row]} is too large", todo)
    return exact


def number_column(column: pl.Series, place: Place) -> Floats:
    """A column of finite numbers as float64, (rows,): where a reward, or a feature in a column, becomes a number.

    >>> number_column(pl.Series("reward", [1, 0, 1]), Place("logs.csv"))
    array([1., 0., 1.])
    """
    if column.dtype == pl.String:
        column = text_to_numbers(column)[0]
    refuse_null_column(column, place)
    _refuse_text(column, column.dtype, place)
    values = text_to_numbers_or_null(column) if column.dtype == pl.String else column.cast(pl.Float64)
    return finite_column(values.fill_null(0.0).to_numpy(), column.name, place)


def probability_column(column: pl.Series, place: Place, *, gaps: bool = False) -> Floats:
    """A column of numbers in (0, 1], (rows,): the probability with which the shown action was chosen.

    With `gaps` it may be unknown: NaN.

    >>> probability_column(pl.Series("propensity", [0.25, 1.0]), Place())
    array([0.25, 1.  ])
    """
    column = text_to_numbers(column)[0]
    gaps = gaps and column.dtype != pl.String
    unknown = column.is_null().to_numpy() if gaps else np.zeros(len(column), np.bool_)
    values = number_column(column.fill_null(1.0) if gaps else column, place)
    bad = ((values <= 0.0) | (values > 1.0)) & column.is_not_null().to_numpy()
    todo = "log the probability with which the shown action was chosen"
    told, kind = (lambda row: f"propensity {values[row]:g} is outside (0, 1]"), "is outside (0, 1]"
    place.refuse(column.name, bad, kind, told, todo, lambda row: float(values[row]))
    return np.where(unknown, np.nan, values) if unknown.any() else values


def time_column(
    column: pl.Series,
    place: Place,
    epoch: Epoch | None = None,
    dates: Dates | Literal["either"] | None = None,
    *,
    ties: bool = False,
) -> tuple[Ints, bool]:
    """Steps as int64 (rows,) and whether their ties are allowed, as those of times are; times are in nanoseconds.

    Text is parsed as times, `dates` such as 03/02/2020 as said; integers are steps unless `epoch` names the unit in
    which they count Unix time, and theirs are allowed where `ties` says so.

    >>> time_column(pl.Series("step", [1, 2]), Place()), time_column(pl.Series("step", [1, 2]), Place(), "s")
    ((array([1, 2]), False), (array([1000000000, 2000000000]), True))
    """
    refuse_null_column(column, place)
    if column.dtype == pl.String:
        column = _parse_times(column, place, dates)
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("ms"))
    if isinstance(column.dtype, pl.Datetime | pl.Duration):
        return _nanoseconds(column, column.dtype.time_unit or "us", place), True
    if not column.dtype.is_integer():
        todo = "use integers or timestamps"
        raise LogsError(f"steps are {column_kind(column.dtype)}", where=place.column(column.name), todo=todo)
    if epoch is not None:
        return _nanoseconds(column, epoch, place), True
    return identifier_column(column.fill_null(0), place).fill_null(0).to_numpy(), ties


def unix_time_column_unit(low: int, high: int) -> Epoch | None:
    """The unit in which integers from `low` to `high` are Unix times by their size; None if they are not.

    >>> spans = (956_703_932, 1_046_454_590), (1_700_000_000_000, 1_700_000_360_000), (0, 50)
    >>> tuple(unix_time_column_unit(*span) for span in spans)
    ('s', 'ms', None)
    """
    for unit, scale in _NANOSECONDS.items():
        if _OLDEST * 10**9 <= low * scale <= high * scale < _NEWEST * 10**9:
            return unit
    return None


def unix_time_column_note(name: str, unit: Epoch, steps: tuple[int, int]) -> str:
    """What is said of steps that are Unix times by their size.

    >>> unix_time_column_note("when", "s", (956_703_932, 1_046_454_590))
    'when holds Unix times in seconds by their size (2000-04-25 to 2003-02-28): equal times of a user keep file order.'
    """
    first, last = (datetime.fromtimestamp(step * _NANOSECONDS[unit] / 10**9, UTC).date() for step in steps)
    days = f"{first}" if first == last else f"{first} to {last}"
    return f"{name} holds Unix times in {_WORDS[unit]} by their size ({days}): equal times of a user keep file order."


def refuse_masked_column(given: object, name: str) -> None:
    """Refuse a masked array: what it hides would be read like everything else."""
    if isinstance(given, np.ma.MaskedArray):
        todo = "leave the masked rows out, or pass array.filled(value) or array.data"
        raise LogsError(f"{name} is a masked array", where=name, todo=todo)


def finite_column(values: NDArray[Real], name: str, place: Place) -> NDArray[Real]:
    """The values, if all are finite; else the error names the first that is not."""
    # A sum is finite only if every term is (or overflows, which the second look settles); it needs no temporary.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return values
    bad = ~np.isfinite(values)
    rows = bad.reshape(len(values), -1).any(axis=1)

    def found(row: int) -> float:
        cells = values[row].reshape(-1)
        return float(cells[~np.isfinite(cells)][0])

    told, todo = (lambda row: f"{name} is {found(row)}, not a finite number"), "remove the row or mend the value"
    place.refuse(name, rows, "is not a finite number", told, todo, found)
    return values


def _nanoseconds(column: pl.Series, unit: Epoch, place: Place) -> Ints:
    """Times in one unit, so that files which differ in theirs can be sorted together."""
    values = column.cast(pl.Int64).to_numpy()
    scale = _NANOSECONDS[unit]
    if len(values) and max(-int(values.min()), int(values.max())) * scale >= 2**63:
        todo = "use times between the years 1678 and 2261"
        raise LogsError("a time is out of range", where=place.column(column.name), todo=todo)
    return values * scale


def _parse_times(column: pl.Series, place: Place, dates: Dates | Literal["either"] | None = None) -> pl.Series:
    """Text as times; refused are values that are neither a time nor a whole number, and dates that may be either."""
    if dates == "either":
        todo = "say which: dates='day-first' or 'month-first' (--dates day-first|month-first)"
        told, kind = (lambda row: f"{column[row]!r} can be read two ways"), "can be read two ways"
        place.refuse(column.name, text_dates_two_ways(column), kind, told, todo, lambda row: column[row])
        dates = "day-first"
    text = column.str.strip_chars() if dates is None else text_to_iso_dates(column, dates)
    try:
        parsed = text.str.to_datetime(strict=False, time_unit="us")
    except pl.exceptions.PolarsError:
        parsed = pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
    if isinstance(parsed.dtype, pl.Datetime) and parsed.dtype.time_zone is not None:  # text with a zone
        parsed = parsed.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    lost = parsed.is_null() & column.is_not_null()
    if lost.any():
        neither = lost & text.cast(pl.Int64, strict=False).is_null()
        wanted = "integers or timestamps such as 2024-05-01 12:30:00"
        _refuse_words(column, neither if neither.any() else lost, place, wanted)
    return parsed.fill_null(datetime(1970, 1, 1))


def refuse_null_column(column: pl.Series, place: Place) -> None:
    """Refuse a column in which values are missing."""
    if column.null_count():
        place.refuse(column.name, column.is_null(), "is missing", lambda row: f"{column.name} is missing", FILL_IN)


def _refuse_text(column: pl.Series, dtype: pl.DataType, place: Place) -> None:
    """Refuse what is not numeric; of text, the values that are not numbers are named."""
    if dtype == pl.String:
        _refuse_words(column, text_to_numbers_or_null(column).is_null() & column.is_not_null(), place, "numbers")
    elif not (dtype.is_numeric() or dtype == pl.Boolean):
        raise LogsError(f"{column.name} is {column_kind(dtype)}", where=place.column(column.name), todo="use numbers")


def _refuse_words(column: pl.Series, bad: pl.Series, place: Place, wanted: str) -> None:
    """Refuse text that is not what it should be."""
    told, kind = (lambda row: f"text {column[row]!r} where {wanted} belong"), f"is text where {wanted} belong"
    todo = _better_number(str(column.filter(bad)[0])) if wanted == "numbers" and bad.any() else ""
    place.refuse(column.name, bad, kind, told, todo or f"use {wanted}", lambda row: column[row])


def _better_number(text: str) -> str:
    """How a price or a number with a decimal comma is to be written; nothing for other text.

    >>> _better_number("$4.00"), _better_number("4,5"), _better_number("1,000"), _better_number("good")
    ('remove the currency sign: write 4.00', 'write 4.5', '', '')
    >>> _better_number("-$1,234.50"), _better_number("US$4")
    ('remove the currency sign: write -1234.50', 'remove the currency sign: write 4')
    """
    plain = re.sub(rf"^([+-]?)\s*([A-Z]{{2,3}})?[{re.escape(_CURRENCIES)}]\s*", r"\1", text.strip())
    plain = plain.strip(_CURRENCIES).strip()
    better = plain.replace(",", ".") if re.fullmatch(r"[+-]?\d+,(\d{1,2}|\d{4,})", plain) else plain
    if plain != text.strip() and re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", plain):  # of prices that is no doubt
        better = plain.replace(",", "")
    if better == text.strip() or not re.fullmatch(r"[+-]?\d+(\.\d+)?", better):
        return ""
    return f"remove the currency sign: write {better}" if plain != text.strip() else f"write {better}"


def column_kind(dtype: pl.DataType) -> str:
    """What a column holds, in words."""
    return "text" if dtype == pl.String else f"of type {dtype}"


_PEOPLE = (
    *("user", "customer", "visitor", "member", "person", "subscriber", "respondent", "student", "patient"),
    *("listener", "viewer", "reader", "player", "shopper", "client", "learner", "participant", "household"),
)
_THINGS = (
    *("action", "item", "movie", "film", "product", "article", "song", "track", "book", "video", "show", "game"),
    *("question", "option", "content", "offer", "message", "exercise", "recipe", "restaurant", "hotel"),
    *("treatment", "template", "variant"),
)
KNOWN = {
    "user": {*_PEOPLE, *(f"{one}id" for one in _PEOPLE), "uid"},
    "action": {*_THINGS, *(f"{one}id" for one in _THINGS)},
    "reward": {
        *("reward", "rating", "ratings", "score", "stars", "click", "clicks", "clicked", "like", "liked", "outcome"),
        *("response", "answer", "value", "grade", "feedback", "purchase", "purchased", "conversion", "converted"),
        *("plays", "playcount"),
    },
    "step": {
        *("step", "timestamp", "ts", "time", "datetime", "date", "eventtime", "createdat", "unixtime", "timestep"),
        *("round", "trial", "turn"),
    },
    "propensity": {"propensity", "propensityscore", "pscore"},
}


def _plain_column_name(name: str) -> str:
    """A name without case, spaces and signs.

    >>> _plain_column_name("User_ID"), _plain_column_name("movieId")
    ('userid', 'movieid')
    """
    return "".join(letter for letter in name.lower() if letter.isalnum())


def first_line_hint(names: Iterable[str]) -> str:
    """A hint for a file whose first line may hold values in place of names: some of them are numbers; or nothing.

    >>> first_line_hint(["u0", "i39", "4.5"]), first_line_hint(["user", "item", "stars"])
    ('; is the first line data, not names?', '')
    """
    found = any(re.fullmatch(r"[+-]?\d+([.,]\d+)?", name.strip()) for name in names)
    return "; is the first line data, not names?" if found else ""


def known_column_names(part: str, names: Iterable[str]) -> list[str]:
    """The names under which a part of logs commonly goes.

    >>> known_column_names("reward", ["userId", "rating", "comment"])
    ['rating']
    """
    return [name for name in names if _plain_column_name(name) in KNOWN[part]]
