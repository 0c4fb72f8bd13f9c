"""Columns of logs that are features: patterns as names, and which of the columns are levels, learned in one look.

Numbers and booleans are features as they are. Text that is mostly numbers was meant as numbers; other text and
categories are levels, which become indicators (`newcomer.feature_levels`). A level must have `FEW` rows, so that its
effect can be learned at all; the others are pooled, as rows of the average level. A column of which most rows have rare
levels is an id, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import has_magic

import numpy as np
import polars as pl

from newcomer.arrays import Floats
from newcomer.encoding import MOST, Column
from newcomer.errors import LogsError, nearest
from newcomer.feature_levels import indicators
from newcomer.logs.columns import Place, refuse_nulls
from newcomer.logs.text_columns import WORDS

FEW, FEWER = 20, 5  # rows of a level below which it is pooled; and where there are less than MANY rows
MANY = 1_000
SCATTERED = 0.5  # share of rows in pooled levels, from which a column is taken for an id
Counted = Callable[[str], pl.DataFrame]  # the distinct values of a column as text, `value`, with how many rows, `len`


def expand_names(names: Sequence[str], available: Sequence[str], *, where: str = "") -> tuple[str, ...]:
    """The columns that names or patterns such as `tax*` stand for, each once; a column of that very name comes first.

    >>> expand_names(["b", "x*"], ["x1", "x2", "b", "y"])
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
            raise LogsError(f"no column '{name}'", where=where, todo=f"columns are {listed}{nearest(name, available)}")
        found += matching
    return tuple(dict.fromkeys(found))


def learn_levels(
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


def encoded(column: pl.Series, levels: Column, place: Place) -> Floats:
    """A column of text as indicators (rows, width); rows of pooled levels have the average."""
    refuse_nulls(column, place)
    places = pl.Series(np.arange(levels.width))
    known = pl.Series(levels.levels, dtype=pl.String)
    codes = column.cast(pl.String).replace_strict(known, places, default=-1, return_dtype=pl.Int64)
    return indicators(levels, codes.fill_null(-1).to_numpy())


def _levels(name: str, counts: pl.DataFrame, where: str) -> tuple[Column, list[str]]:
    """The levels of a column by their counts, the commonest first, and a note on those that are pooled."""
    rows = int(counts["len"].sum())
    few = FEW if rows >= MANY else FEWER
    kept = counts.head(MOST).filter(pl.col("len") >= few)
    pooled = rows - int(kept["len"].sum())
    if pooled > SCATTERED * rows:
        what = f"column '{name}' has {len(counts):,} levels in {rows:,} rows, most of them in few rows, as an id has"
        raise LogsError(what, where=where, todo="leave it out of features= (--features), or group its levels")
    kept = kept.sort("value")
    shares = tuple(float(count) / rows for count in kept["len"])
    note = []
    if pooled:
        others = f"{len(counts) - len(kept):,} of {len(counts):,} levels of {name}"
        note.append(f"{others}, in {pooled:,} of {rows:,} rows, are rare and count as the average level.")
    return Column(name, "level", levels=tuple(kept["value"]), shares=shares), note


def _is_text(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Categorical) or isinstance(dtype, pl.Enum)


def _meant_as_numbers(counts: pl.DataFrame) -> bool:
    """Whether most of the text of a column is numbers, or all of it words such as yes and no; codes as 007 are not."""
    plain = counts.select(value=pl.col("value").str.strip_chars(), len="len")
    if plain["value"].str.contains(r"^[+-]?0[0-9]+$").any():
        return False
    if plain["value"].str.to_lowercase().is_in(list(WORDS)).all():
        return True
    number = plain["value"].str.replace(",", ".", literal=True).str.replace_all(r"[ \u00a0\u202f]", "")
    numeric = number.cast(pl.Float64, strict=False).is_not_null()
    return 2 * int(plain.filter(numeric)["len"].sum()) > int(plain["len"].sum())
