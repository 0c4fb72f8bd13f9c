"""Reading: from files to validated rows, a bounded chunk at a time, in the order (file name, row).

Parquet carries its types. CSV is read as text and converted column by column, so that a value which is not a number
can be named; ids are integers if every value in every file is one, else text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path

import polars as pl

from newcomer.errors import LogsError, nearest
from newcomer.logs.intake.columns import Place, identifiers
from newcomer.logs.intake.histories import Rows
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.layout import Layout, extract

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 1024  # at least
Progress = Callable[[int, int], None]


def find_files(paths: Paths) -> list[str]:
    """The files that a path, folder, glob or list of these names, each once, sorted by name."""
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    files = sorted({file for path in given for file in _expand(fspath(path))})
    if not files:
        raise LogsError("no files given", todo="pass a path, a glob or a list of paths")
    for file in files:
        _kind(file)
        if Path(file).stat().st_size == 0:
            raise LogsError("the file is empty", where=file, todo="remove it or write it again")
    return files


def read_table(path: str | PathLike[str]) -> pl.DataFrame:
    """A small table, whole: numbers and integers in CSV are recognised column by column."""
    (file,) = find_files(path)
    with _translated(file):
        frame = scan(file).collect()
    return frame if _kind(file) == "parquet" else frame.with_columns(_recognised(column) for column in frame)


def scan(file: str) -> pl.LazyFrame:
    """A lazy frame of a file; columns of CSV are text."""
    kind = _kind(file)
    if kind == "parquet":
        return pl.scan_parquet(file, glob=False)
    separator = "\t" if kind == "tsv" else ","
    return pl.scan_csv(file, infer_schema=False, separator=separator, glob=False)


def column_names(file: str) -> list[str]:
    """Names of the columns of a file."""
    with _translated(file):
        return scan(file).collect_schema().names()


@dataclass(frozen=True)
class Reader:
    """Files of one layout, to be read any number of times."""

    files: tuple[str, ...]
    layout: Layout

    @cached_property
    def total(self) -> int:
        """Rows in all files."""
        return sum(self._count(file) for file in self.files)

    def distinct_actions(self) -> pl.Series:
        """Every distinct action, in no particular order."""
        assert self.layout.action is not None
        found = [self._distinct(file, self.layout.action) for file in self.files]
        if len({column.dtype for column in found}) > 1:
            raise self._mixed(self.layout.action, [column.dtype for column in found])
        return pl.concat(found)

    def rows(self, items: Items | None, progress: Progress | None = None) -> Iterator[Rows]:
        """Validated rows, chunk after chunk; every file must have the types of the first."""
        first: Rows | None = None
        done = 0
        for file in self.files:
            start = 0
            for frame in self._frames(file):
                dim = None if first is None or first.features is None else first.features.shape[1]
                rows = extract(frame, self.layout, items, Place(file, start), dim=dim)
                first = first or rows
                self._same_types(first, rows, file)
                start += len(rows)
                done += len(rows)
                yield rows
                if progress is not None:
                    progress(done, self.total)

    def _frames(self, file: str) -> Iterator[pl.DataFrame]:
        size = max(CHUNK_ROWS, CHUNK_BYTES // self._row_bytes(file))
        with _translated(file):
            for frame in scan(file).select(self.layout.names()).collect_batches(chunk_size=size):
                if len(frame):
                    yield self._converted(frame)

    def _converted(self, frame: pl.DataFrame) -> pl.DataFrame:
        if not self._text_ids:
            return frame
        ids = {self.layout.user, self.layout.action} - {None}
        return frame.with_columns(self._typed(column, column.name in ids) for column in frame)

    def _typed(self, column: pl.Series, is_id: bool) -> pl.Series:
        if column.dtype != pl.String or (is_id and self._text_ids[column.name]):
            return column
        return _as(column, pl.Int64 if is_id or column.name == self.layout.step else pl.Float64)

    @cached_property
    def _text_ids(self) -> dict[str, bool]:
        """For id columns of CSV: does any file hold a value that is not an integer? Empty without CSV."""
        files = [file for file in self.files if _kind(file) != "parquet"]
        names = [name for name in (self.layout.user, self.layout.action) if name is not None]
        tests = [(pl.col(n).cast(pl.Int64, strict=False).is_null() & pl.col(n).is_not_null()).any() for n in names]
        found: dict[str, bool] = dict.fromkeys(names, False) if files else {}
        for file in files:
            with _translated(file):
                answer = scan(file).select(tests).collect(engine="streaming")
            found = {name: found[name] or bool(answer[name][0]) for name in names}
        return found

    def _distinct(self, file: str, name: str) -> pl.Series:
        with _translated(file):
            column = scan(file).select(pl.col(name).drop_nulls().unique()).collect(engine="streaming")
        return identifiers(self._converted(column)[name], Place(file))

    def _count(self, file: str) -> int:
        with _translated(file):
            return int(scan(file).select(pl.len()).collect(engine="streaming").item())

    def _row_bytes(self, file: str) -> int:
        layout = self.layout
        if not isinstance(layout.features, str):
            return 64 + 8 * len(layout.features or ())
        with _translated(file):
            head = scan(file).select(layout.features).head(1).collect().to_series()
        return 64 + max(64, 2 * int(head.estimated_size()))

    def _same_types(self, first: Rows, rows: Rows, file: str) -> None:
        if rows.users.dtype != first.users.dtype:
            raise self._mixed(self.layout.user, [first.users.dtype, rows.users.dtype], file)
        if rows.timestamps != first.timestamps:
            names = ["timestamps" if chunk.timestamps else "integers" for chunk in (first, rows)]
            raise _mixed(str(self.layout.step), names, file)

    def _mixed(self, name: str, types: Sequence[pl.DataType], file: str | None = None) -> LogsError:
        other = file or next(f for f, dtype in zip(self.files, types, strict=True) if dtype != types[0])
        return _mixed(name, ["text" if dtype == pl.String else "integers" for dtype in types], other)


def _mixed(name: str, kinds: Sequence[str], file: str) -> LogsError:
    found = next(kind for kind in kinds if kind != kinds[0])
    return LogsError(
        f"{name} holds {found} here and {kinds[0]} in earlier rows",
        where=f"{file}, column {name}",
        todo="write all files with the same types",
    )


def _recognised(column: pl.Series) -> pl.Series:
    whole = _as(column, pl.Int64)
    return whole if whole.dtype == pl.Int64 else _as(column, pl.Float64)


def _as(column: pl.Series, dtype: type[pl.Int64 | pl.Float64]) -> pl.Series:
    """The column as numbers if every value is one, else unchanged."""
    if column.dtype != pl.String:
        return column
    values = column.cast(dtype, strict=False)
    return values if values.null_count() == column.null_count() else column


def _expand(path: str) -> list[str]:
    if Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        found = [str(file) for file in Path(path).iterdir() if file.name.endswith(SUFFIXES)]
    else:
        found = [file for file in glob(path, recursive=True) if Path(file).is_file()] if has_magic(path) else []
    if not found:
        raise _nothing(path)
    return found


def _nothing(path: str) -> LogsError:
    if Path(path).is_dir():
        return LogsError("no logs in this folder", where=path, todo=f"put files {', '.join(SUFFIXES)} into it")
    if has_magic(path):
        return LogsError("no file matches", where=path, todo="check the pattern and the current folder")
    folder = Path(path).parent
    there = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return LogsError("no such file", where=path, todo="check the path" + nearest(Path(path).name, there))


def _kind(file: str) -> str:
    name = file.lower()
    if not name.endswith(SUFFIXES):
        todo = f"use {', '.join(SUFFIXES)}"
        raise LogsError("unknown kind of file", where=file, todo=todo)
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    return "tsv" if ".tsv" in name[-7:] else "csv"


@contextmanager
def _translated(file: str) -> Iterator[None]:
    """Turn what the table library raises into one sentence about the file."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        kind = "Parquet" if _kind(file) == "parquet" else "CSV"
        todo = f"check that it is complete, readable {kind} in UTF-8"
        raise LogsError(f"cannot read the file: {reason}", where=file, todo=todo) from error
