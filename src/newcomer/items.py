"""Items: the catalogue of actions, their features, and the position of an action id in it.

Plain (user, item, reward) logs have no features; there every distinct action is its own direction (one-hot), and the
feature matrix is the identity, never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.batch import Floats
from newcomer.columns import Place, feature_array
from newcomer.errors import LogsError

ONE_HOT_LIMIT = 2000


@dataclass(frozen=True)
class Items:
    """Ids (unique; Int64 or String), features (items, d) or None for one-hot, and names where the table has them."""

    ids: pl.Series
    matrix: Floats | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def one_hot(cls, actions: pl.Series) -> Items:
        """Every distinct action its own direction, in ascending order of id."""
        distinct = actions.unique().sort()
        if len(distinct) > ONE_HOT_LIMIT:
            raise LogsError(
                f"{len(distinct):,} distinct actions without features, one-hot works up to {ONE_HOT_LIMIT:,}",
                where="column action",
                todo="pass items= with the features of each action, or keep the most frequent actions",
            )
        return cls(distinct)

    @classmethod
    def from_array(cls, matrix: NDArray[np.generic]) -> Items:
        """Row i of the matrix (items, d) is action i."""
        return cls(pl.Series(np.arange(len(matrix))), feature_array(matrix, "items").astype(np.float64, copy=False))

    @property
    def dim(self) -> int:
        """Number of features of an item."""
        return len(self.ids) if self.matrix is None else int(self.matrix.shape[1])

    def locate(self, actions: pl.Series, *, place: Place) -> NDArray[np.int32]:
        """Positions of action ids in the catalogue; an unknown id is an error."""
        if actions.dtype != self.ids.dtype:
            raise _other_type(actions.dtype, self.ids.dtype, place.column(actions.name))
        positions = pl.Series(np.arange(len(self.ids), dtype=np.int32))
        found = actions.replace_strict(self.ids, positions, default=None, return_dtype=pl.Int32)
        if found.null_count():
            row = int(found.is_null().arg_max() or 0)
            raise LogsError(
                f"action {actions[row]!r} is not among the {len(self.ids):,} items",
                where=place.column(actions.name, row),
                todo="add it to the items table or remove its rows",
            )
        return found.to_numpy()

    def fill(self, codes: NDArray[np.int32], out: Floats) -> None:
        """Write the features of items `codes` (n,) into `out` (n, d)."""
        if self.matrix is not None:
            np.take(self.matrix, codes, axis=0, out=out, mode="clip")  # mode="clip" lets take skip its buffer
            return
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0


def _other_type(found: pl.DataType, wanted: pl.DataType, where: str) -> LogsError:
    words = {True: "text", False: "integers"}
    return LogsError(
        f"actions are {words[found == pl.String]} here and {words[wanted == pl.String]} in the items",
        where=where,
        todo="use one type for action ids in logs and items",
    )
