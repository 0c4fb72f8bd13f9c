"""Frames: from arrays and from other libraries' tables to Polars, needing none of those libraries.

pandas frames are taken column by column as NumPy arrays (their Arrow export would need pyarrow); everything else that
speaks the Arrow PyCapsule interface is taken whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.errors import LogsError


def from_arrays(columns: Mapping[str, ArrayLike]) -> pl.DataFrame:
    """A frame of equally long one-dimensional arrays.

    >>> from_arrays({"user": [1, 2], "reward": [0.5, 1.0]}).shape
    (2, 2)
    """
    arrays = {name: _array(name, values) for name, values in columns.items()}
    if any(array.ndim != 1 for array in arrays.values()) or len({len(array) for array in arrays.values()}) > 1:
        raise unequal({name: array.shape for name, array in arrays.items()})
    return pl.DataFrame([_series(name, array) for name, array in arrays.items()])


def names_of(frame: Any) -> list[str]:
    """Names of a table's columns, found without reading its rows where that is possible."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect_schema().names()
    if _is_pandas(frame):
        return [str(name) for name in frame.columns]
    return to_polars(frame).columns


def to_polars(frame: Any, names: Sequence[str] | None = None) -> pl.DataFrame:
    """The named columns (all if None) of a Polars, pandas or Arrow table; a lazy frame is collected."""
    if isinstance(frame, pl.LazyFrame):
        return _collected(frame if names is None else frame.select(names))
    if _is_pandas(frame):
        chosen = frame.columns if names is None else names
        return pl.DataFrame([_from_pandas(str(name), frame[name]) for name in chosen])
    table = frame if isinstance(frame, pl.DataFrame) else _from_arrow(frame)
    return table if names is None else table.select(names)


def is_table(value: object) -> bool:
    """Whether `to_polars` takes the value."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or _is_pandas(value) or hasattr(value, "__arrow_c_stream__")


def unequal(shapes: Mapping[str, object]) -> LogsError:
    """The error for arrays that do not belong together."""
    found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    return LogsError(f"arrays differ in shape: {found}", todo="pass one entry per row in every array")


def _is_pandas(value: object) -> bool:
    """Known by its looks, since pandas may not be installed."""
    return hasattr(value, "iloc") and hasattr(value, "columns")


def _array(name: str, values: ArrayLike) -> NDArray[np.generic]:
    """An array of whatever was passed; a ragged list is refused."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise LogsError(f"{name} is not an array", where=name, todo="pass one value per row") from error


def _collected(frame: pl.LazyFrame) -> pl.DataFrame:
    try:
        return frame.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        what = f"the lazy frame cannot be read: {str(error).splitlines()[0]}"
        raise LogsError(what, todo="collect it first and see what fails") from error


def _from_pandas(name: str, column: Any) -> pl.Series:
    """One column of a pandas frame; its many kinds of missing values in columns of objects become null."""
    values = column.to_numpy()
    if values.dtype.kind not in "OU":
        return _series(name, values)
    values = values.astype(object)
    values[column.isna().to_numpy()] = None
    return _series(name, values)


def _from_arrow(frame: Any) -> pl.DataFrame:
    if not hasattr(frame, "__arrow_c_stream__"):
        todo = "pass a Polars or pandas frame, or anything that exports Arrow; for arrays use Logs.from_arrays"
        raise LogsError(f"a {type(frame).__name__} is not a table", todo=todo)
    try:
        return pl.DataFrame(frame)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        todo = "pass a table with named columns"
        raise LogsError(f"the {type(frame).__name__} cannot be read as a table", todo=todo) from error


def _series(name: str, values: NDArray[np.generic]) -> pl.Series:
    """An array as a column; times in units that Polars does not have become microseconds."""
    if values.dtype.kind == "M" and values.dtype not in ("M8[D]", "M8[ms]", "M8[us]", "M8[ns]"):
        values = values.astype("M8[us]")
    try:
        return pl.Series(name, values.tolist() if values.dtype.kind in "OU" else values)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        todo = "use one type throughout: numbers, or text"
        raise LogsError(f"{name} mixes types", where=f"column {name}", todo=todo) from error
