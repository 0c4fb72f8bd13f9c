"""Texts: columns of CSV as integers or numbers, value by value, so that chunks do not matter.

A number may be written with a decimal comma, if the file was found to do so, and as true or false, yes or no; blanks
around it, and between groups of three digits, do not count. An id is an integer only if it is written as one writes
integers: "01" and "1" are two ids. Tidied, ids that differ in case or in blanks at their ends are the same.

Dates such as 03/02/2020 can be read two ways. One whose first number is above 12 settles it for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from newcomer.encoding import TRUTHS

Dates = Literal["day-first", "month-first"]
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "-")  # what stands in a CSV where nothing is known
NO_NUMBER = (*MISSING, "None", "none", "#N/A")  # and, where numbers belong, these too
_GROUPS = r"^([+-]?[0-9]{1,3})((?:[ \u00a0\u202f][0-9]{3})+)([.,][0-9]*)?$"
_DATE = r"^([0-9]{1,2})[/.-]([0-9]{1,2})[/.-]([0-9]{4}|[0-9]{2})([^0-9].*)?$"
_ODD = r"^\+|^-?0[0-9]|^-0$"  # integers in an unusual spelling: +1, 007, -0
_COMMA = r"^([+-]?[0-9 \u00a0\u202f]*),([0-9]+(?:[eE][+-]?[0-9]+)?)$"


def text_is_no_id(name: str | pl.Expr, *, blanks: bool = True) -> pl.Expr:
    """Where a column of text (its name, or an expression) holds what is no integer, or not in its only spelling.

    `blanks` at the ends do not count; to count them is quicker, and all that most files need.

    >>> pl.DataFrame({"a": ["1 ", "01", "-7", "x", None]}).select(text_is_no_id("a"))["a"].to_list()
    [False, True, False, True, False]
    """
    column = pl.col(name) if isinstance(name, str) else name
    column = column.str.strip_chars() if blanks else column
    lost = column.cast(pl.Int64, strict=False).is_null() & column.is_not_null()
    return lost | column.str.contains(_ODD).fill_null(False)


def text_has_comma(name: str) -> pl.Expr:
    """Where a column of text holds a number with a decimal comma, such as 0,5."""
    return pl.col(name).str.strip_chars().str.contains(_COMMA).fill_null(False)


def text_has_point(name: str) -> pl.Expr:
    """Where a column of text holds a point."""
    return pl.col(name).str.contains(".", literal=True).fill_null(False)


def tidied_text(column: pl.Expr) -> pl.Expr:
    """Text without blanks at its ends, in small letters: ids that are likely the same have the same."""
    return column.str.strip_chars().str.to_lowercase()


def text_spellings_note(ids: pl.Series, what: str) -> list[str]:
    """A note on distinct ids (n,) that differ in case or in blanks at their ends alone, with three of them.

    >>> text_spellings_note(pl.Series(["B", " B", "a"]), "action")
    ["' B' and 'B' are likely the same action; tidy_ids=True (--tidy-ids) joins them."]
    """
    if ids.dtype != pl.String:
        return []
    keyed = ids.unique().to_frame("id").with_columns(key=tidied_text(pl.col("id")))
    groups = keyed.group_by("key").agg(pl.col("id").sort()).filter(pl.col("id").list.len() > 1).sort("key")
    if not len(groups):
        return []
    shown = [" and ".join(repr(one) for one in group[:4].to_list()) for group in groups["id"][:3]]
    each = f"{shown[0]} are likely the same {what}"
    if len(groups) > 1:
        each = f"{len(groups):,} {what}s occur in several spellings that are likely the same ({'; '.join(shown)})"
    return [f"{each}; tidy_ids=True (--tidy-ids) joins them."]


def text_to_integers(column: pl.Series) -> pl.Series:
    """A column of text as integers if every value is one, blanks at its ends aside; else unchanged."""
    if column.dtype != pl.String:
        return column
    values = column.cast(pl.Int64, strict=False)
    if values.null_count() > column.null_count():
        values = column.str.strip_chars().cast(pl.Int64, strict=False)
    return _if_complete(column, values)


def text_to_numbers(column: pl.Series, *, comma: bool = False) -> tuple[pl.Series, bool]:
    """A column of text as numbers if every value is one, else as text; and whether words such as yes stood for some.

    Words for a missing value become null.

    >>> text_to_numbers(pl.Series(["0,5", " 2", "Yes", "1 000", "NA"]), comma=True)[0].to_list()
    [0.5, 2.0, 1.0, 1000.0, None]
    """
    if column.dtype != pl.String:
        return column, False
    values = column.cast(pl.Float64, strict=False)
    if values.null_count() == column.null_count() and not values.is_nan().any():
        return values, False
    plain = column.str.strip_chars()
    plain = plain.to_frame("").select(pl.when(~pl.col("").is_in(NO_NUMBER)).then(pl.col("")))[""]
    plain = _ungrouped(plain.str.replace(_COMMA, "$1.$2") if comma else plain, comma=comma).alias(column.name)
    values = plain.cast(pl.Float64, strict=False)
    if values.null_count() == plain.null_count():
        return values, False
    values = _if_complete(plain, values.fill_null(_words(plain)))
    return values, values.dtype != pl.String


def text_to_numbers_or_null(column: pl.Series) -> pl.Series:
    """A column of text as numbers; null for what is none, and none of the words."""
    return column.cast(pl.Float64, strict=False).fill_null(_words(column))


def text_is_missing(name: str, dtype: pl.DataType, *, number: bool) -> pl.Expr:
    """Where a column holds no value: null, NaN, a list with such a gap, or, of a `number`, a word that says so."""
    column = pl.col(name)
    if isinstance(dtype, pl.List | pl.Array):
        inner = (
            pl.element().is_null() if not dtype.inner.is_float() else (pl.element().is_null() | pl.element().is_nan())
        )
        lists = column.arr.to_list() if isinstance(dtype, pl.Array) else column
        return (column.is_null() | lists.list.eval(inner).list.any()).fill_null(True)
    if dtype.is_float():
        return column.is_null() | column.is_nan()
    if dtype == pl.String and number:
        return column.is_null() | column.str.strip_chars().is_in(NO_NUMBER)
    return column.is_null()


def text_date_questions(name: str) -> list[pl.Expr]:
    """Of dates such as 03/02/2020 in a column of text: how many there are, and the largest first and second number."""
    groups = pl.col(name).str.strip_chars().str.extract_groups(_DATE)
    first, second = (groups.struct.field(str(i)).cast(pl.Int64, strict=False) for i in (1, 2))
    return [first.count().alias(" dates"), first.max().alias(" first"), second.max().alias(" second")]


def text_dates_found(answers: Sequence[pl.DataFrame]) -> tuple[Dates | Literal["either"] | None, str]:
    """How the dates of all files are to be read, "either" where nothing settles it, None without any; and why."""
    firsts, seconds = ([int(one[name][0] or 0) for one in answers] for name in (" first", " second"))
    if not any(int(one[" dates"][0]) for one in answers):
        return None, ""
    day, month = max(firsts) > 12, max(seconds) > 12
    if day == month:
        return "either", ""
    why = f"a date with {max(firsts) if day else max(seconds)} as its {'first' if day else 'second'} number settles it"
    return ("day-first" if day else "month-first"), why


def text_dates_two_ways(column: pl.Series) -> pl.Series:
    """Where text is a date whose day and month may be exchanged, or that is written in that way."""
    return column.str.strip_chars().str.contains(_DATE).fill_null(False)


def text_to_iso_dates(column: pl.Series, dates: Dates) -> pl.Series:
    """Dates such as 3/2/2020 12:30 as 2020-02-03 12:30; other text as it is.

    >>> text_to_iso_dates(pl.Series(["3/2/2020 12:30", "2020-01-01"]), "day-first").to_list()
    ['2020-02-03 12:30', '2020-01-01']
    """
    frame = column.str.strip_chars().alias("text").to_frame()
    parts = [pl.col("text").str.extract(_DATE, i) for i in (1, 2, 3, 4)]
    day, month = (parts[0], parts[1]) if dates == "day-first" else (parts[1], parts[0])
    century = pl.when(parts[2].str.len_chars() == 4).then(pl.lit("")).when(parts[2] >= "69").then(pl.lit("19"))
    year = century.otherwise(pl.lit("20")) + parts[2]
    written = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + parts[3].fill_null("")
    return frame.select(pl.coalesce(written, pl.col("text")).alias(column.name))[column.name]


def _words(column: pl.Series) -> pl.Series:
    """1 for true and yes, 0 for false and no, in any case of letters; null for everything else."""
    return column.str.strip_chars().str.to_lowercase().replace_strict(TRUTHS, default=None, return_dtype=pl.Float64)


def _ungrouped(column: pl.Series, *, comma: bool) -> pl.Series:
    """Numbers written in groups of three digits, 1 234 567, without the blanks."""
    grouped = column.str.contains(_GROUPS).fill_null(False)
    if not grouped.any():
        return column
    plain = column.str.replace_all(r"[ \u00a0\u202f]", "")
    plain = plain.str.replace(",", ".", literal=True) if comma else plain
    return plain.zip_with(grouped, column)


def _if_complete(column: pl.Series, values: pl.Series) -> pl.Series:
    return values if values.null_count() == column.null_count() else column
