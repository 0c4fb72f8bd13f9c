"""Frames: from arrays and from other libraries' tables to Polars, needing none of those libraries.

pandas frames are taken column by column as NumPy arrays (their Arrow export would need pyarrow); everything else that
speaks the Arrow PyCapsule interface is taken whole, and only once: a reader of record batches is empty thereafter. A
relation of a database is asked for its rows as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.errors import LogsError
from newcomer.logs.columns import refuse_masked_column


def frame_from_arrays(columns: Mapping[str, ArrayLike]) -> pl.DataFrame:
    """A frame of equally long one-dimensional arrays.

    >>> frame_from_arrays({"user": [1, 2], "reward": [0.5, 1.0]}).shape
    (2, 2)
    """
    arrays = {name: _array(name, values) for name, values in columns.items()}
    if any(array.ndim != 1 for array in arrays.values()) or len({len(array) for array in arrays.values()}) > 1:
        raise unequal_frame_error({name: array.shape for name, array in arrays.items()})
    return pl.DataFrame([_series(name, array) for name, array in arrays.items()])


def frame_with_lists(frame: pl.DataFrame, name: str, lists: Any) -> pl.DataFrame:
    """The frame with a column of lists, one for each row: a list of lists, an array (rows, K), or a Polars column."""
    refuse_masked_column(lists, name)
    try:
        if not isinstance(lists, pl.Series | pl.DataFrame) and hasattr(lists, "to_numpy"):  # pandas, in all its kinds
            lists = lists.to_numpy().tolist()
        column = pl.Series(name, np.asarray(lists) if isinstance(lists, np.ndarray) else lists).alias(name)
    except Exception as error:  # whatever other libraries make of what is no list of lists
        todo = "pass a list of ids for each row"
        raise LogsError(f"{name} is not a list of lists", where=name, todo=todo) from error
    if len(column) != len(frame):
        raise unequal_frame_error({"user": len(frame), name: len(column)})
    return frame.with_columns(column)


def held_frame(table: Any) -> Any:
    """A table that may be looked at more than once: what can be read only once is read into a Polars frame here."""
    return table if isinstance(table, pl.DataFrame | pl.LazyFrame) or _is_pandas(table) else _from_arrow(table)


def frame_column_names(table: Any) -> list[str]:
    """Names of the columns of a `held_frame` table."""
    if isinstance(table, pl.LazyFrame):
        with _collecting():
            return table.collect_schema().names()
    return [str(name) for name in table.columns]


def frame_temporal_names(table: Any) -> list[str]:
    """Names of the columns of a `held_frame` table that hold times by their type."""
    if isinstance(table, pl.LazyFrame):
        with _collecting():
            types = dict(table.collect_schema())
        return [name for name, dtype in types.items() if dtype in (pl.Date, pl.Datetime)]
    if _is_pandas(table):
        return [str(name) for name, dtype in zip(table.columns, table.dtypes, strict=True) if dtype.kind == "M"]
    return [name for name, dtype in table.schema.items() if dtype in (pl.Date, pl.Datetime)]


def frame_to_polars(table: Any, names: Sequence[str] | None = None) -> pl.DataFrame:
    """The named columns (all if None) of a Polars, pandas or Arrow table; a lazy frame is collected."""
    table = held_frame(table)
    if isinstance(table, pl.LazyFrame):
        with _collecting():
            return (table if names is None else table.select(names)).collect()
    if _is_pandas(table):
        places = {str(name): place for place, name in enumerate(table.columns)}
        return pl.DataFrame([_from_pandas(name, table.iloc[:, places[name]]) for name in names or places])
    frame: pl.DataFrame = table
    return frame if names is None else frame.select(names)


def is_frame(value: object) -> bool:
    """Whether `frame_to_polars` takes the value."""
    arrow = ("__arrow_c_stream__", "__arrow_c_array__", "arrow", "to_arrow_table")
    return (
        isinstance(value, pl.DataFrame | pl.LazyFrame)
        or _is_pandas(value)
        or any(hasattr(value, name) for name in arrow)
    )


def unequal_frame_error(shapes: Mapping[str, object]) -> LogsError:
    """The error for arrays that do not belong together."""
    found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    return LogsError(f"arrays differ in shape: {found}", todo="pass one entry per row in every array")


def _is_pandas(value: object) -> bool:
    """Known by its looks, since pandas may not be installed."""
    return hasattr(value, "iloc") and hasattr(value, "columns")


def _array(name: str, values: ArrayLike) -> NDArray[np.generic]:
    """An array of whatever was passed; a ragged list is refused."""
    refuse_masked_column(values, name)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise LogsError(f"{name} is not an array", where=name, todo="pass one value per row") from error


@contextmanager
def _collecting() -> Iterator[None]:
    """Turn what goes wrong in a lazy frame into one sentence."""
    try:
        yield
    except Exception as error:  # also errors of functions that the caller put into the frame
        said = (str(error).splitlines() or [type(error).__name__])[0]
        what = f"the lazy frame cannot be read: {said}"
        raise LogsError(what, todo="collect it first and see what fails") from error


def _from_pandas(name: str, column: Any) -> pl.Series:
    """One column of a pandas frame; its many kinds of missing values, NaN among them, become null."""
    values = column.to_numpy()
    if values.dtype.kind not in "OU":
        return _series(name, values).fill_nan(None) if values.dtype.kind == "f" else _series(name, values)
    values = values.astype(object)
    values[column.isna().to_numpy()] = None
    return _series(name, values)


def _from_arrow(table: Any) -> pl.DataFrame:
    """What exports Arrow, or has a method that gives something that does, as a frame."""
    name = type(table).__name__
    if not is_frame(table):
        todo = "pass a Polars or pandas frame, or anything that exports Arrow; for arrays use Logs.from_arrays"
        raise LogsError(f"a {name} is not a table", todo=todo)
    try:
        if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
            table = (getattr(table, "arrow", None) or table.to_arrow_table)()
        return pl.DataFrame(table)
    except Exception as error:  # the other library's own errors come through here as well
        said = (str(error).splitlines() or [type(error).__name__])[0]
        todo = "pass a table with named columns"
        raise LogsError(f"the {name} cannot be read as a table: {said}", todo=todo) from error


def _series(name: str, values: NDArray[np.generic]) -> pl.Series:
    """An array as a column; times in units that Polars does not have become microseconds."""
    if values.dtype.kind == "M" and values.dtype not in ("M8[D]", "M8[ms]", "M8[us]", "M8[ns]"):
        values = values.astype("M8[us]")
    try:
        return pl.Series(name, values.tolist() if values.dtype.kind in "OU" else values)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        todo = "use one type throughout: numbers, or text"
        raise LogsError(f"{name} mixes types", where=f"column {name}", todo=todo) from error
