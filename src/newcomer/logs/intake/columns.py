"""Columns: one function per kind of column, from whatever type it has to a checked array, or one clear error.

Columns are checked whole (null counts, one finiteness test per column); the row at fault is looked for only once a
check has failed. Rows in messages are counted from 1 within their file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats, Ints
from newcomer.errors import LogsError
from newcomer.logs.intake.texts import first_bad

Epoch = Literal["s", "ms", "us", "ns"]
Real = TypeVar("Real", bound=np.floating)
_WORDS: dict[Epoch, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_NANOSECONDS: dict[Epoch, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_OLDEST, _NEWEST = 300_000_000, 4_200_000_000  # Unix seconds from 1979 to 2103: smaller numbers count something else


@dataclass(frozen=True)
class Place:
    """Where rows come from: a file (or nothing, for arrays and frames) and the number of rows before them."""

    source: str = ""
    start: int = 0

    def column(self, name: str, row: int | None = None) -> str:
        """The place in words; rows are counted on from those of earlier chunks.

        >>> Place("logs.csv", start=10).column("reward", 1)
        'logs.csv, row 12, column reward'
        """
        at = [] if row is None else [f"row {self.start + row + 1}"]
        return ", ".join([*([self.source] if self.source else []), *at, f"column {name}"])


def identifiers(column: pl.Series, place: Place) -> pl.Series:
    """User or action ids as Int64 or String, so that there are two kinds of ids and not a dozen.

    Unsigned and short integers become Int64 if they fit; numbers with a point are refused, since 7.0 and "7" would not
    be found again.

    >>> identifiers(pl.Series("user", [3, 9], dtype=pl.UInt16), Place()).dtype
    Int64
    """
    refuse_nulls(column, place)
    if column.dtype in (pl.Categorical, pl.Enum) or column.dtype == pl.String:
        return column.cast(pl.String)
    if not column.dtype.is_integer():
        todo = "use integers or text for ids"
        raise LogsError(f"ids are {kind_of(column.dtype)}", where=place.column(column.name), todo=todo)
    exact = column.cast(pl.Int64, strict=False)
    row = _first(exact.is_null())
    if row is not None:
        todo = "use ids below 2^63, or text"
        raise LogsError(f"id {column[row]} is too large", where=place.column(column.name, row), todo=todo)
    return exact


def numbers(column: pl.Series, place: Place) -> Floats:
    """A column of finite numbers as float64, (rows,): where a reward, or a feature in a column, becomes a number.

    >>> numbers(pl.Series("reward", [1, 0, 1]), Place("logs.csv"))
    array([1., 0., 1.])
    """
    refuse_nulls(column, place)
    _refuse_text(column, column.dtype, place)
    return _finite(column.cast(pl.Float64).to_numpy(), column.name, place)


def probabilities(column: pl.Series, place: Place) -> Floats:
    """A column of numbers in (0, 1], (rows,): the probability with which the shown action was chosen.

    >>> probabilities(pl.Series("propensity", [0.25, 1.0]), Place())
    array([0.25, 1.  ])
    """
    values = numbers(column, place)
    bad = (values <= 0.0) | (values > 1.0)
    if bad.any():
        row = int(np.argmax(bad))
        todo = "log the probability with which the shown action was chosen"
        raise LogsError(
            f"propensity {values[row]:g} is outside (0, 1]", where=place.column(column.name, row), todo=todo
        )
    return values


def times(column: pl.Series, place: Place, epoch: Epoch | None = None) -> tuple[Ints, bool]:
    """Steps as int64 (rows,) and whether they are times, whose ties are allowed; times are in nanoseconds.

    Text is parsed as times; integers are steps unless `epoch` names the unit in which they count Unix time.

    >>> times(pl.Series("step", [1, 2]), Place()), times(pl.Series("step", [1, 2]), Place(), "s")
    ((array([1, 2]), False), (array([1000000000, 2000000000]), True))
    """
    refuse_nulls(column, place)
    if column.dtype == pl.String:
        column = _parse_times(column, place)
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("ms"))
    if isinstance(column.dtype, pl.Datetime | pl.Duration):
        return _nanoseconds(column, column.dtype.time_unit or "us", place), True
    if not column.dtype.is_integer():
        todo = "use integers or timestamps"
        raise LogsError(f"steps are {kind_of(column.dtype)}", where=place.column(column.name), todo=todo)
    if epoch is not None:
        return _nanoseconds(column, epoch, place), True
    return identifiers(column, place).to_numpy(), False


def unix_unit(low: int, high: int) -> Epoch | None:
    """The unit in which integers from `low` to `high` are Unix times by their size; None if they are not.

    >>> unix_unit(956_703_932, 1_046_454_590), unix_unit(1_700_000_000_000, 1_700_000_360_000), unix_unit(0, 50)
    ('s', 'ms', None)
    """
    for unit, scale in _NANOSECONDS.items():
        if _OLDEST * 10**9 <= low * scale <= high * scale < _NEWEST * 10**9:
            return unit
    return None


def unix_note(name: str, unit: Epoch, steps: tuple[int, int]) -> str:
    """What is said of steps that are Unix times by their size.

    >>> unix_note("when", "s", (956_703_932, 1_046_454_590))
    'when holds Unix times in seconds by their size (2000-04-25 to 2003-02-28): equal times of a user keep file order.'
    """
    first, last = (datetime.fromtimestamp(step * _NANOSECONDS[unit] / 10**9, UTC).date() for step in steps)
    days = f"{first}" if first == last else f"{first} to {last}"
    return f"{name} holds Unix times in {_WORDS[unit]} by their size ({days}): equal times of a user keep file order."


def feature_lists(column: pl.Series, place: Place, dim: int | None = None) -> NDArray[np.floating]:
    """A column of equally long lists of finite numbers as an array (rows, d).

    float32 stays float32: features are most of what logs weigh, and a batch is made of float64 when it is handed out.

    >>> feature_lists(pl.Series("features", [[1, 2], [3, 4]]), Place()).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    refuse_nulls(column, place)
    if not isinstance(column.dtype, pl.List | pl.Array):
        todo = "store features as lists of numbers, or name their columns: columns={'features': ['x1', 'x2', ...]}"
        raise LogsError(f"features are {kind_of(column.dtype)}", where=place.column(column.name), todo=todo)
    lists = column.cast(pl.List(column.dtype.inner)) if isinstance(column.dtype, pl.Array) else column
    dim = _common_length(lists, place, dim)
    flat = lists.explode(empty_as_null=False)
    _refuse_text(flat, flat.dtype, place)
    if flat.null_count():
        raise _null(column.name, place, (_first(flat.is_null()) or 0) // dim)
    kept = pl.Float32 if flat.dtype == pl.Float32 else pl.Float64
    return _finite(flat.cast(kept).to_numpy().reshape(-1, dim), column.name, place)


def feature_array(given: ArrayLike, name: str = "features") -> NDArray[np.floating]:
    """An array (rows, d) of finite numbers; float32 stays float32. A copy: what is done to `given` stays there."""
    refuse_masked(given, name)
    try:
        values = np.asarray(given)
    except ValueError as error:
        todo = "give every row the same number of features"
        raise LogsError(f"{name} are not an array of shape (rows, d)", where=name, todo=todo) from error
    if values.ndim != 2 or values.shape[1] == 0:
        todo = "pass an array of shape (rows, d)"
        raise LogsError(f"{name} have shape {values.shape}", where=name, todo=todo)
    if values.dtype.kind not in "fiub":
        raise LogsError(f"{name} are not numbers", where=name, todo="pass a numeric array")
    kept = np.float32 if values.dtype == np.float32 else np.float64
    exact: NDArray[np.floating] = np.array(values, dtype=kept, order="C")
    return _finite(exact, name, Place())


def refuse_masked(given: object, name: str) -> None:
    """Refuse a masked array: what it hides would be read like everything else."""
    if isinstance(given, np.ma.MaskedArray):
        todo = "leave the masked rows out, or pass array.filled(value) or array.data"
        raise LogsError(f"{name} is a masked array", where=name, todo=todo)


def _finite(values: NDArray[Real], name: str, place: Place) -> NDArray[Real]:
    """The values, if all are finite; else the error names the first that is not."""
    # A sum is finite only if every term is (or overflows, which the second look settles); it needs no temporary.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return values
    bad = ~np.isfinite(values)
    if bad.any():
        first = int(np.argmax(bad)) // max(1, int(np.prod(values.shape[1:])))
        found = values.reshape(-1)[int(np.argmax(bad))]
        todo = "remove the row or mend the value"
        raise LogsError(f"{name} is {found}, not a finite number", where=place.column(name, first), todo=todo)
    return values


def _common_length(lists: pl.Series, place: Place, dim: int | None) -> int:
    """The number d of features that every list has, `dim` if earlier rows have set it."""
    lengths = lists.list.len()
    dim = int(lengths[0]) if dim is None else dim
    row = _first(lengths != dim)
    if row is not None or dim == 0:
        raise LogsError(
            f"{lengths[row or 0]} features where other rows have {dim}" if row is not None else "no features",
            where=place.column(lists.name, row or 0),
            todo="give every row the same number of features, at least one",
        )
    return dim


def _nanoseconds(column: pl.Series, unit: Epoch, place: Place) -> Ints:
    """Times in one unit, so that files which differ in theirs can be sorted together."""
    values = column.cast(pl.Int64).to_numpy()
    scale = _NANOSECONDS[unit]
    if len(values) and max(-int(values.min()), int(values.max())) * scale >= 2**63:
        todo = "use times between the years 1678 and 2261"
        raise LogsError("a time is out of range", where=place.column(column.name), todo=todo)
    return values * scale


def _parse_times(column: pl.Series, place: Place) -> pl.Series:
    """Text as times; the error names the first value that is neither a time nor a whole number, if there is one."""
    try:
        parsed = column.str.to_datetime(strict=False, time_unit="us")
    except pl.exceptions.PolarsError:
        parsed = pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
    if parsed.null_count():
        neither = parsed.is_null() & column.cast(pl.Int64, strict=False).is_null()
        row = int((neither if neither.any() else parsed.is_null()).arg_max() or 0)
        raise _text(column[row], column.name, place, row, "integers or timestamps such as 2024-05-01 12:30:00")
    return parsed


def refuse_nulls(column: pl.Series, place: Place) -> None:
    """Refuse a column in which values are missing."""
    if column.null_count():
        raise _null(column.name, place, _first(column.is_null()) or 0)


def _refuse_text(column: pl.Series, dtype: pl.DataType, place: Place) -> None:
    """Refuse what is not numeric; of text, the first value that is not a number is named."""
    if dtype == pl.String:
        bad = first_bad(column)
        raise _text(column[bad], column.name, place, bad, "numbers")
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        raise LogsError(f"{column.name} is {kind_of(dtype)}", where=place.column(column.name), todo="use numbers")


def _null(name: str, place: Place, row: int) -> LogsError:
    return LogsError(f"{name} is missing", where=place.column(name, row), todo="fill the value in or remove the row")


def _text(value: object, name: str, place: Place, row: int, wanted: str) -> LogsError:
    return LogsError(f"text {value!r} where {wanted} belong", where=place.column(name, row), todo=f"use {wanted}")


def _first(found: pl.Series) -> int | None:
    """Position of the first True, or None."""
    return int(found.arg_max() or 0) if found.any() else None


def kind_of(dtype: pl.DataType) -> str:
    """What a column holds, in words."""
    return "text" if dtype == pl.String else f"of type {dtype}"
