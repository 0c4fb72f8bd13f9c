"""Feature columns: which columns of an items table are features, and which of those must not be taken by themselves.

All numeric columns are, unless `features=` chooses. A number that is no measure (a stock number, a bar code, a Unix
time) would be one of them, and being huge beside the others it would be all that a fit sees: its square is the norm
that the ridge is set by. Measured with six 0/1 features and a seventh that is irrelevant: nothing changes while the
seventh is up to 100 times as large as the others, from 1,000 times on users' preferences are no longer found. So a
column is refused that is more than 100 times as large as the others, or looks like an id. A caller who names it gets
it, with a note. Nothing is scaled silently, because the caller serves features in the same units.

Columns of logs that are features: patterns as names, and which of the columns are levels, learned in one look.

Numbers and booleans are features as they are. Text that is mostly numbers was meant as numbers; other text and
categories are levels, which become indicators (`newcomer.encoding`). A level of few rows has no effect that could be
learned, so that those are pooled, as rows of the average level. A column of which most rows have rare
levels is an id, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import has_magic

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.encoding import (
    DISTINCT,
    MOST,
    SCATTERED,
    TRUTHS,
    Column,
    encode_level_indicators,
    fewest_to_encode,
)
from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.columns import (
    FILL_IN,
    Place,
    column_kind,
    finite_column,
    number_column,
    refuse_masked_column,
    refuse_null_column,
)

DWARFS = 100.0  # times the size of the others
ENOUGH = 20  # items from which on whole numbers that hardly repeat look like ids
SHOWN = 12  # names in a sentence


@dataclass(frozen=True)
class FeatureColumns:
    """Features (items, d) of a table, the names of their columns (None: a list column) and what to say of them."""

    matrix: Floats
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def feature_columns(frame: pl.DataFrame, place: Place, chosen: Sequence[str] | None = None) -> FeatureColumns:
    """The chosen columns of a table of items, without ids; else the list column `features`, or all that are numeric."""
    if chosen is not None:
        return _chosen(frame, place, chosen)
    if "features" in frame.columns:
        return FeatureColumns(feature_list_column(frame["features"], place).astype(np.float64))
    columns = [column for column in frame if is_feature_column(column)]
    if not columns:
        todo = "add numeric columns, or a column features of lists, or a column name for one-hot features with names"
        raise LogsError("items have no numeric columns", where=place.source, todo=todo)
    names = tuple(column.name for column in columns)
    matrix = np.column_stack([number_column(column, place) for column in columns])
    if not place.faults:  # nothing is to be said of the size of what is not there
        _refuse_odd(matrix, names, place)
    others = [name for name in frame.columns if name not in names]
    left = f"; not numeric and left out: {_listed_feature_names(others)}" if others else ""
    note = (
        f"Features are the {_count_feature_columns(names)} {_listed_feature_names(names)} of the "
        f"items{left} (features= or --features chooses)."
    )
    return FeatureColumns(matrix, names, (note,))


def _chosen(frame: pl.DataFrame, place: Place, chosen: Sequence[str]) -> FeatureColumns:
    """The columns that the caller named, in that order; one of them may hold lists."""
    for name in chosen:
        if name not in frame.columns:
            todo = f"columns are {_listed_feature_names(frame.columns)}{error_name_hint(name, frame.columns)}"
            raise LogsError(f"items have no column '{name}'", where=place.source, todo=todo)
    if len(chosen) == 1 and isinstance(frame[chosen[0]].dtype, pl.List | pl.Array):
        return FeatureColumns(feature_list_column(frame[chosen[0]], place).astype(np.float64))
    names, matrix = tuple(chosen), np.column_stack([number_column(frame[name], place) for name in chosen])
    return FeatureColumns(matrix, names, tuple(feature_column_size_notes(matrix, names)))


def feature_column_size_notes(matrix: Floats, names: Sequence[str]) -> list[str]:
    """A note on each feature beside which the others hardly count."""
    return [
        f"Feature {names[i]} is about {ratio:,.0f} times as large as the others, which will hardly count: scale it."
        for i, ratio in enumerate(_sizes(matrix))
        if ratio > DWARFS
    ]


def _listed_feature_names(names: Sequence[str]) -> str:
    """Names in a sentence, not too many.

    >>> _listed_feature_names(["a", "b"])
    'a, b'
    """
    return ", ".join([*names[:SHOWN], *(["..."] if len(names) > SHOWN else [])])


def _count_feature_columns(names: Sequence[str]) -> str:
    """`column`, or how many columns."""
    return "column" if len(names) == 1 else f"{len(names):,} columns"


def _refuse_odd(matrix: Floats, names: tuple[str, ...], place: Place) -> None:
    """Refuse columns that look like ids or dwarf the others, all of them in one sentence."""
    if len(names) == 1:
        return  # there is nothing that it could drown
    ids = [_is_id(column) for column in matrix.T]
    ratios = _sizes(matrix)
    odd = [i for i in range(len(names)) if ids[i] or ratios[i] > DWARFS]
    if not odd:
        return
    first = odd[0]
    why = "looks like an id" if ids[first] else f"is about {ratios[first]:,.0f} times as large as the others"
    more = "" if len(odd) == 1 else f" (these do not fit either: {_listed_feature_names([names[i] for i in odd[1:]])})"
    rest = ",".join(name for i, name in enumerate(names) if i not in odd) or "a,b,c"
    scale = "" if ids[first] else ", or scale it"
    raise LogsError(
        f"column '{names[first]}' {why}{more}",
        where=place.column(names[first]),
        todo=f"choose the feature columns with features= (--features {rest}){scale}",
    )


def _sizes(matrix: Floats) -> Floats:
    """How many times as large (root mean square) each column is as the others typically are; 0 where none counts."""
    scale = np.abs(matrix).max(axis=0, initial=0.0)
    sizes = scale * np.sqrt(np.mean((matrix / np.where(scale > 0, scale, 1.0)) ** 2, axis=0))
    ratios = np.zeros(len(sizes))
    for i, size in enumerate(sizes):
        others = np.sort(sizes[(np.arange(len(sizes)) != i) & (sizes > 0)])
        if len(others):
            ratios[i] = size / others[(len(others) - 1) // 2]
    return ratios


def _is_id(column: Floats) -> bool:
    """Whole numbers that hardly ever repeat, in a table large enough for that to mean something."""
    if len(column) < ENOUGH or not np.array_equal(column, np.round(column)):
        return False
    return len(np.unique(column)) >= DISTINCT * len(column)


def is_feature_column(column: pl.Series) -> bool:
    """Whether a column holds numbers, or text that was meant as numbers."""
    return column.dtype.is_numeric() or column.dtype == pl.Boolean or _meant(column)


def _meant(column: pl.Series) -> bool:
    """Text that is mostly numbers was meant as numbers: `numbers` then names the value that is not one.

    Codes with leading zeros were not.
    """
    if column.dtype != pl.String or column.str.contains(r"^[+-]?0[0-9]+$").any():
        return False
    return 2 * column.cast(pl.Float64, strict=False).count() > len(column)


Counted = Callable[[str], pl.DataFrame]  # the distinct values of a column as text, `value`, with how many rows, `len`


def expand_feature_column_names(names: Sequence[str], available: Sequence[str], *, where: str = "") -> tuple[str, ...]:
    """The columns that names or patterns such as `tax*` stand for, each once; a column of that very name comes first.

    >>> expand_feature_column_names(["b", "x*"], ["x1", "x2", "b", "y"])
    ('b', 'x1', 'x2')
    """
    found: list[str] = []
    for name in names:
        matching = [name] if name in available else [one for one in available if fnmatchcase(one, name)]
        if not matching and has_magic(name):
            todo = f"columns are {', '.join(available[:12])}{', ...' * (len(available) > 12)}"
            raise LogsError(f"no column matches '{name}'", where=where, todo=todo)
        if not matching:
            listed = ", ".join(available[:12]) + ", ..." * (len(available) > 12)
            raise LogsError(
                f"no column '{name}'", where=where, todo=f"columns are {listed}{error_name_hint(name, available)}"
            )
        found += matching
    return tuple(dict.fromkeys(found))


def feature_column_levels(
    names: Sequence[str],
    types: Sequence[Mapping[str, pl.DataType]],
    counted: Counted,
    *,
    action: str | None = None,
    where: str = "",
) -> tuple[tuple[Column, ...], list[str]]:
    """The columns among `names` that are levels, and what is to be said of them; `types` are those of each file.

    The column of the `action`, if it is one of them, is levels whatever its type.
    """
    texts = [name for name in names if name == action or any(_is_text(one[name]) for one in types)]
    found, notes = [], []
    for name in texts:
        counts = counted(name).drop_nulls("value").sort(["len", "value"], descending=[True, False])
        if len(counts) and (name == action or not _meant_as_numbers(counts)):
            column, note = _levels(name, counts, where)
            found.append(column)
            notes += note
    return tuple(found), notes


def encoded_feature_column(column: pl.Series, levels: Column, place: Place) -> Floats:
    """A column of text as indicators (rows, width); rows of pooled levels have the average."""
    refuse_null_column(column, place)
    places = pl.Series(np.arange(levels.width))
    known = pl.Series(levels.levels, dtype=pl.String)
    codes = column.cast(pl.String).replace_strict(known, places, default=-1, return_dtype=pl.Int64)
    return encode_level_indicators(levels, codes.fill_null(-1).to_numpy())


def _levels(name: str, counts: pl.DataFrame, where: str) -> tuple[Column, list[str]]:
    """The levels of a column by their counts, the commonest first, and a note on those that are pooled."""
    rows = int(counts["len"].sum())
    kept = counts.head(MOST).filter(pl.col("len") >= fewest_to_encode(rows))
    pooled = rows - int(kept["len"].sum())
    if pooled > SCATTERED * rows:
        what = f"column '{name}' has {len(counts):,} levels in {rows:,} rows, most of them in few rows, as an id has"
        raise LogsError(what, where=where, todo="leave it out of features= (--features), or group its levels")
    kept = kept.sort("value")
    shares = tuple(float(count) / rows for count in kept["len"])
    note = []
    if pooled:
        others = f"{len(counts) - len(kept):,} of {len(counts):,} levels of {name}"
        note.append(
            f"{others}, in {pooled:,} of {rows:,} rows, are rare or beyond the {MOST} commonest, and count as the "
            "average level."
        )
    return Column(name, "level", levels=tuple(kept["value"]), shares=shares), note


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)


def _meant_as_numbers(counts: pl.DataFrame) -> bool:
    """Whether most of the text of a column is numbers, or all of it words such as yes and no; codes as 007 are not."""
    plain = counts.select(value=pl.col("value").str.strip_chars(), len="len")
    if plain["value"].str.contains(r"^[+-]?0[0-9]+$").any():
        return False
    if plain["value"].str.to_lowercase().is_in(list(TRUTHS)).all():
        return True
    number = plain["value"].str.replace(",", ".", literal=True).str.replace_all(r"[ \u00a0\u202f]", "")
    numeric = number.cast(pl.Float64, strict=False).is_not_null()
    return 2 * int(plain.filter(numeric)["len"].sum()) > int(plain["len"].sum())


def feature_list_column(column: pl.Series, place: Place, dim: int | None = None) -> NDArray[np.floating]:
    """A column of equally long lists of finite numbers as an array (rows, d).

    float32 stays float32: features are most of what logs weigh, and a batch is made of float64 when it is handed out.

    >>> feature_list_column(pl.Series("features", [[1, 2], [3, 4]]), Place()).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    refuse_null_column(column, place)
    if not isinstance(column.dtype, pl.List | pl.Array):
        todo = "store features as lists of numbers, or name their columns: columns={'features': ['x1', 'x2', ...]}"
        raise LogsError(f"features are {column_kind(column.dtype)}", where=place.column(column.name), todo=todo)
    lists = column.cast(pl.List(column.dtype.inner)) if isinstance(column.dtype, pl.Array) else column
    dim, right = _common_length(lists, place, dim)
    if not right:
        return np.zeros((len(column), dim))
    flat = lists.explode(empty_as_null=False)
    if not (flat.dtype.is_numeric() or flat.dtype == pl.Boolean):
        words = lists.list.eval(pl.element().cast(pl.Float64, strict=False).is_null()).list.any().fill_null(False)
        row = int(words.arg_max() or 0)
        bad = (
            lists[row].filter(lists[row].cast(pl.Float64, strict=False).is_null())[0] if words.any() else lists[row][0]
        )
        what = (
            f"text {bad!r} where numbers belong" if isinstance(bad, str) else f"features are {column_kind(flat.dtype)}"
        )
        raise LogsError(what, where=place.column(column.name, row), todo="use numbers")
    if flat.null_count():
        gaps = np.asarray(flat.is_null().to_numpy().reshape(-1, dim).any(axis=1))
        place.refuse(column.name, gaps, "is missing", lambda row: f"{column.name} is missing", FILL_IN)
    kept = pl.Float32 if flat.dtype == pl.Float32 else pl.Float64
    return finite_column(flat.cast(kept).fill_null(0.0).to_numpy().reshape(-1, dim), column.name, place)


def feature_array_columns(given: ArrayLike, name: str = "features", *, gaps: bool = False) -> NDArray[np.floating]:
    """An array (rows, d) of finite numbers; float32 stays float32. A copy: what is done to `given` stays there.

    With `gaps`, some may be NaN: their rows are to be left out.
    """
    refuse_masked_column(given, name)
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
    if gaps and np.isnan(exact).any():
        finite_column(exact[~np.isnan(exact).any(axis=1)], name, Place())
        return exact
    return finite_column(exact, name, Place())


def _common_length(lists: pl.Series, place: Place, dim: int | None) -> tuple[int, bool]:
    """The number d of features that every list should have, `dim` if earlier rows have set it, and whether all do."""
    lengths = lists.list.len()
    dim = int(lengths.drop_nulls()[0] if lengths.null_count() < len(lengths) else 1) if dim is None else dim
    wrong = (lengths != dim).fill_null(False) if dim else lists.is_not_null()
    todo, kind = "give every row the same number of features, at least one", "has another number of entries"
    other = "no features" if not dim else ""
    text = lambda row: other or f"{lengths[row]} features where other rows have {dim}"
    place.refuse(lists.name, wrong, "is empty" if other else kind, text, todo, lambda row: lengths[row])
    return max(dim, 1), not wrong.any() and not lists.null_count()
