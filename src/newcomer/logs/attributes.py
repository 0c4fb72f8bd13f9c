"""Attributes of users: a table with one row a user, encoded once, and looked up by the hash of the id.

Numbers are standardised, booleans too; texts and categories become levels (`newcomer.encoding`). Values may be missing,
and users may have no row at all: they count as average. A column that cannot be of use (constant, or a level a user,
as an id) is left out and pointed out; it is refused where it was chosen by name. Means, levels and covariances are
those of the users of the logs; other users in the table do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import polars as pl

from newcomer.arrays import Floats, Hashes, read_only_array
from newcomer.encoding import DISTINCT, MANY, SCATTERED, Column, fewest_to_encode
from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.frames import frame_to_polars, is_frame
from newcomer.logs.histories import hash_history_users
from newcomer.logs.reader import reader_of_small_table
from newcomer.population import population_attribute_covariance
from newcomer.users import mix_user_hashes

NAMES = ("user", "user_id", "userid", "uid", "UserID", "userId", "User")


@dataclass(frozen=True)
class UserTable:
    """Encoded attributes (n, p) of the users with these hashes (n,), ascending; NaN where missing.

    `covariance` (p, p) is that over users who have both values. `missing` users of the logs have no row.
    """

    hashes: Hashes
    values: Floats
    columns: tuple[Column, ...]
    covariance: Floats
    missing: int = 0
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Entries p of all attributes."""
        return int(self.values.shape[1])

    @property
    def users(self) -> int:
        """Users of the logs, with a row or without."""
        return len(self.hashes) + self.missing

    def of(self, hashes: Hashes) -> Floats:
        """The attributes (m, p) of users, NaN for those who have no row."""
        if not len(self.hashes):
            return np.full((len(hashes), self.width), np.nan)
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return read_only_array(np.where((self.hashes[place] == hashes)[:, None], self.values[place], np.nan))

    @property
    def fingerprint(self) -> int:
        """A number that depends on every value, and on no order of rows."""
        exact = np.nan_to_num(self.values, nan=-1.5e300) + 0.0
        rows = self.hashes.copy()
        for j in range(self.width):
            rows = mix_user_hashes(
                rows + mix_user_hashes(np.ascontiguousarray(exact[:, j]).view(np.uint64) + np.uint64(j))
            )
        return int(rows.sum()) if len(rows) else 1


def read_user_attributes(
    given: Any, hashes: Hashes, ids: pl.DataType, *, attributes: Sequence[str] | None = None, tidy: bool = False
) -> UserTable:
    """The attributes of the users with these hashes (n,), whose ids have the type `ids`, from a file or a table.

    `attributes` chooses columns by name; else all that can be used are.
    """
    frame, source = _table(given)
    user = next((name for name in NAMES if name in frame.columns), None)
    if user is None:
        todo = f"columns are {', '.join(frame.columns[:12])}{error_name_hint('user', frame.columns)}"
        raise LogsError("the table of users has no column 'user'", where=source, todo=todo)
    frame, own = _matched(frame, user, hashes, ids, source, tidy=tidy)
    chosen = _chosen(frame.columns, user, attributes, source)
    found = [_column(frame[name], source, asked=attributes is not None) for name in chosen]
    columns = tuple(column for column, _, _ in found if column is not None)
    if not columns:
        raise LogsError(
            "no column of the table of users can be used", where=source, todo=" ".join(n for *_, n in found)
        )
    values = np.concatenate([values for column, values, _ in found if column is not None], axis=1)
    order = np.argsort(own, kind="stable")
    values = np.ascontiguousarray(values[order])
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    covariance = population_attribute_covariance(there.T.astype(np.float64) @ there, filled.T @ filled)
    lacking = len(hashes) - len(own)
    notes = [note for *_, note in found if note]
    if lacking:
        notes.append(f"{lacking:,} of {len(hashes):,} users have no row in {source}: they count as average users.")
    return UserTable(own[order], values, columns, covariance, lacking, tuple(notes))


def _table(given: Any) -> tuple[pl.DataFrame, str]:
    """The table, and what to call it."""
    if is_frame(given):
        return frame_to_polars(given), "users="
    if isinstance(given, dict):
        return pl.DataFrame(given, strict=False), "users="
    if not isinstance(given, str | PathLike):
        todo = "pass a file or a frame with a column user"
        raise LogsError(f"users= is a {type(given).__name__}", where="users=", todo=todo)
    return reader_of_small_table(given, text=lambda names: []), str(given)


def _matched(
    frame: pl.DataFrame, user: str, hashes: Hashes, ids: pl.DataType, source: str, *, tidy: bool
) -> tuple[pl.DataFrame, Hashes]:
    """The rows of users whom the logs have, and the hashes (m,) of these users."""
    column = frame[user]
    if column.null_count():
        raise LogsError("a row has no user", where=f"{source}, column {user}", todo="fill it in, or leave the row out")
    if ids == pl.String:
        column = column.cast(pl.String)
        column = column.str.strip_chars().str.to_lowercase() if tidy else column
    else:
        column = column.cast(pl.Int64, strict=False)
        frame, column = frame.filter(column.is_not_null()), column.drop_nulls()
    if column.is_duplicated().any():
        twice = column.filter(column.is_duplicated())[0]
        raise LogsError(f"user {twice!r} has two rows", where=source, todo="keep one row a user")
    own = hash_history_users(column) if len(column) else np.zeros(0, dtype=np.uint64)
    here = np.isin(own, hashes)
    if not here.any():
        todo = "write ids as the logs do"
        raise LogsError("no user of the logs is in the table of users", where=f"{source}, column {user}", todo=todo)
    return frame.filter(pl.Series(here)), own[here]


def _chosen(names: Sequence[str], user: str, attributes: Sequence[str] | None, source: str) -> list[str]:
    """The columns that are attributes."""
    if attributes is None:
        return [name for name in names if name != user]
    asked = [attributes] if isinstance(attributes, str) else list(attributes)
    for name in asked:
        if name not in names or name == user:
            todo = (
                f"columns are {', '.join(one for one in names if one != user)}{error_name_hint(str(name), list(names))}"
            )
            raise LogsError(f"there is no attribute {name!r}", where=source, todo=todo)
    if not asked:
        raise LogsError("attributes= is empty", where="attributes=", todo="name some columns, or leave it out")
    return list(dict.fromkeys(asked))


def _column(series: pl.Series, source: str, *, asked: bool) -> tuple[Column | None, Floats, str]:
    """A column as it is encoded, its entries (n, width), and what is to be said of it; None if it is of no use."""
    name, nothing = series.name, np.zeros((len(series), 0))
    problem, note = _problem(series), ""
    if problem is None:
        if series.dtype.is_numeric() or series.dtype == pl.Boolean:
            values = series.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
            if np.isinf(values).any():
                raise LogsError(f"'{name}' is infinite for some user", where=source, todo="leave the value empty")
            column = Column.of_numbers(name, values, "boolean" if series.dtype == pl.Boolean else "number")
            return column, (values[:, None] - column.mean) / column.deviation, ""
        texts = series.cast(pl.String).to_list()
        column = Column.of_levels(name, texts, fewest_to_encode(len(series)))
        values = column.encode(texts)
        rare = int(np.isnan(values).any(axis=1).sum()) - series.null_count()
        if rare:
            others = series.n_unique() - bool(series.null_count()) - column.width
            who = f"{rare:,} user{'s' * (rare != 1)}"
            note = (
                f"A level of '{name}' with few users ({who}) counts as average."
                if others == 1
                else f"{others:,} levels of '{name}' with few users each ({who}) are pooled: they count as average."
            )
        return column, values, note
    if asked:
        raise LogsError(f"the attribute '{name}' {problem}", where=source, todo="leave it out of attributes=")
    return None, nothing, f"The column '{name}' of {source} {problem}, and is left out."


def _problem(series: pl.Series) -> str | None:
    """Why a column is of no use, if it is not."""
    known = series.drop_nulls()
    kind = series.dtype
    usable = kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Categorical) or isinstance(kind, pl.Enum)
    if not usable:
        return f"holds {str(kind).lower()} values, neither numbers nor levels"
    if kind.is_float():
        known = known.drop_nans()
    different = known.n_unique() if len(known) else 0
    if different < 2:
        return "is the same for every user" if different else "is empty"
    if kind.is_integer() and len(known) >= MANY // 10 and different >= DISTINCT * len(known):
        return f"has {different:,} different whole numbers among {len(known):,} users, as an id has"
    if kind.is_numeric() or kind == pl.Boolean:
        return None
    counts = known.cast(pl.String).value_counts()["count"]
    rare = counts.filter(counts < fewest_to_encode(len(series)))
    if float(rare.sum()) > SCATTERED * len(known):
        return f"has {different:,} levels among {len(known):,} users, most of them of few users, as an id has"
    return None
