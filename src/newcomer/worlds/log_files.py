"""Writing a world's logs as Parquet in a stream, so that logs of any size need the memory of a few blocks of users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.files import told
from newcomer.worlds.world import LogRows

_PART = "_part"  # which file a row goes to; not written


def write_rows(parts: Iterable[LogRows], path: str | Path, *, users: int, files: int, grouped: bool) -> None:
    """Write a stream of histories to one file, or to `files` files in the directory `path`.

    Grouped rows stand user by user and no user spans two files. Otherwise each block of users is written in the order
    of time and its rows are spread over all files: what a service that logs as it goes leaves behind.
    """
    if files < 1:
        raise NewcomerError("logs need a file to go to", where=f"files={files}", todo="pass files=1 or more")
    frames = (_frame(part, _parts(part, users, files, grouped), grouped) for part in parts)
    first = next(frames)
    source = register_io_source(_Frames(first, frames), schema=first.schema)
    with told(path):
        if files == 1:
            source.drop(_PART).sink_parquet(Path(path))
            return
        target = pl.PartitionBy(
            Path(path), key=_PART, include_key=False, approximate_bytes_per_file=None, file_path_provider=_name
        )
        source.sink_parquet(target, mkdir=True)


def write_items(features: Floats, path: str | Path) -> None:
    """Write an items table: `action`, `features`."""
    frame = pl.DataFrame({"action": np.arange(len(features)), "features": _lists(features)})
    with told(path):
        frame.write_parquet(Path(path))


def _parts(part: LogRows, users: int, files: int, grouped: bool) -> Ints:
    """The file of each row, in the order in which the rows will be written."""
    position = part.user * files // users if grouped else np.arange(len(part.user)) * files // len(part.user)
    return np.asarray(position, dtype=np.int64)


def _frame(part: LogRows, file: Ints, grouped: bool) -> pl.DataFrame:
    """A block of rows as they will be written, with the file that each goes to."""
    order = slice(None) if grouped else np.lexsort((part.user, part.step))
    columns: dict[str, object] = {"user": part.user[order], "step": part.step[order]}
    if part.action is None:
        columns["features"] = _lists(part.features[order])
    else:
        columns["action"] = part.action[order]
    return pl.DataFrame({**columns, "reward": part.reward[order], _PART: file})


def _lists(features: Floats) -> pl.Series:
    """Features (rows, d) as a column of lists."""
    return pl.Series(features, dtype=pl.Array(pl.Float64, features.shape[1])).arr.to_list()


class _Frames:
    """Hands frames to Polars as it asks for them; Polars may ask for some of the columns."""

    def __init__(self, first: pl.DataFrame, rest: Iterator[pl.DataFrame]) -> None:
        self.first, self.rest = first, rest

    def __call__(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch: int | None
    ) -> Iterator[pl.DataFrame]:
        yield self.first.select(columns or pl.all())
        for frame in self.rest:
            yield frame.select(columns or pl.all())


def _name(target: pl.io.partition.FileProviderArgs) -> str:
    """Numbered with leading zeros, so that files sort as their rows do."""
    return f"part-{target.partition_keys.item(0, 0):05d}.parquet"
