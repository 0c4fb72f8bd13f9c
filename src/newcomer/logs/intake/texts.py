"""Texts: columns of CSV as integers or numbers, value by value, so that chunks do not matter.

A number may be written with a decimal comma, if the file was found to do so, and as true or false, yes or no. An id is
an integer only if it is written as one writes integers: "01" and "1" are two ids.
"""

from __future__ import annotations

import polars as pl

WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_ODD = r"^\+|^-?0[0-9]|^-0$"  # integers as nobody writes them: +1, 007, -0
_COMMA = r"^([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)$"


def is_no_id(name: str | pl.Expr) -> pl.Expr:
    """Where a column of text (its name, or an expression) holds what is no integer, or not in its only spelling.

    >>> pl.DataFrame({"a": ["1", "01", "-7", "x", None]}).select(is_no_id("a"))["a"].to_list()
    [False, True, False, True, False]
    """
    column = pl.col(name) if isinstance(name, str) else name
    lost = column.cast(pl.Int64, strict=False).is_null() & column.is_not_null()
    return lost | column.str.contains(_ODD).fill_null(False)


def has_comma(name: str) -> pl.Expr:
    """Where a column of text holds a number with a decimal comma, such as 0,5."""
    return pl.col(name).str.contains(_COMMA).fill_null(False)


def has_point(name: str) -> pl.Expr:
    """Where a column of text holds a point."""
    return pl.col(name).str.contains(".", literal=True).fill_null(False)


def integers(column: pl.Series) -> pl.Series:
    """A column of text as integers if every value is one, else unchanged."""
    return _if_complete(column, column.cast(pl.Int64, strict=False)) if column.dtype == pl.String else column


def numbers_in(column: pl.Series, *, comma: bool = False) -> tuple[pl.Series, bool]:
    """A column of text as numbers if every value is one, else as text; and whether words such as yes stood for some.

    >>> numbers_in(pl.Series(["0,5", "2", "Yes"]), comma=True)[0].to_list()
    [0.5, 2.0, 1.0]
    """
    if column.dtype != pl.String:
        return column, False
    plain = column.str.replace(_COMMA, "$1.$2") if comma else column
    values = plain.cast(pl.Float64, strict=False)
    if values.null_count() == column.null_count():
        return values, False
    values = _if_complete(plain, values.fill_null(_words(column)))
    return values, values.dtype != pl.String


def first_bad(column: pl.Series) -> int:
    """The row of the first value of a column of text that is no number and none of the words."""
    bad = column.cast(pl.Float64, strict=False).is_null() & _words(column).is_null()
    return int(bad.arg_max() or 0)


def _words(column: pl.Series) -> pl.Series:
    """1 for true and yes, 0 for false and no, in any case of letters; null for everything else."""
    return column.str.to_lowercase().replace_strict(WORDS, default=None, return_dtype=pl.Float64)


def _if_complete(column: pl.Series, values: pl.Series) -> pl.Series:
    return values if values.null_count() == column.null_count() else column
