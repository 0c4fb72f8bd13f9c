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
from newcomer.logs.intake.columns import Epoch, Place
from newcomer.logs.intake.histories import Rows
from newcomer.logs.intake.items import Items
from newcomer.logs.intake.layout import Layout, Renames, extract, resolve

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 1024  # at least
Progress = Callable[[int, int], None]


def find_files(paths: Paths) -> list[str]:
    """The files that a path, folder, glob or list of these names, each once, sorted by name.

    The order counts: rows of a user without a step, or at equal times, stand in the order of their files.
    """
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
    """A small table, whole: a column of CSV is integers if all its values are, else numbers, else text."""
    (file,) = find_files(path)
    with _translated(file):
        frame = _scan(file).collect()
    if _kind(file) == "parquet":
        return frame
    return frame.with_columns(_as_numbers(_as_numbers(column, pl.Int64), pl.Float64) for column in frame)


@dataclass(frozen=True)
class Reader:
    """Files of one layout, to be read any number of times."""

    files: tuple[str, ...]
    layout: Layout

    @classmethod
    def of(cls, paths: Paths, columns: Renames | None, epoch: Epoch | None) -> Reader:
        """The files at `paths` and the one layout that all of them have."""
        files = tuple(find_files(paths))
        layouts = []
        for file in files:
            with _translated(file):
                names = _scan(file).collect_schema().names()
            layouts.append(resolve(names, columns, source=file, epoch=epoch))
        expected = set(layouts[0].names())
        for file, layout in zip(files, layouts, strict=True):
            odd = sorted(set(layout.names()) ^ expected)
            if odd:
                here, there = ("missing here", "there in") if odd[0] in expected else ("only here", "not in")
                todo = "write all files with the same columns"
                raise LogsError(f"column '{odd[0]}' is {here}, {there} {files[0]}", where=file, todo=todo)
        return cls(files, layouts[0])

    @cached_property
    def total(self) -> int:
        """Rows in all files."""
        return sum(int(self._ask(file, pl.len()).item()) for file in self.files)

    def distinct_actions(self) -> pl.Series:
        """Every distinct action, in no particular order."""
        name, found = self.layout.action, []
        for file in self.files:
            column = self._typed(self._ask(file, pl.col(str(name)).drop_nulls().unique()))
            found.append(self.layout.action_ids(column, Place(file)))
            self._same_kind(str(name), _id_kind(found[0]), _id_kind(found[-1]), file)
        return pl.concat(found)

    def rows(self, items: Items | None, progress: Progress | None = None) -> Iterator[Rows]:
        """Validated rows, chunk after chunk; every file must have the types of the first.

        Chunks bound the memory of reading. They may cut a user in two, which `arrange` mends, but carry on the number
        of the row, so that an error names the row of the file.
        """
        first: Rows | None = None
        done = 0
        for file in self.files:
            start = 0
            for frame in self._frames(file):
                dim = None if first is None or first.features is None else first.features.shape[1]
                rows = extract(frame, self.layout, items, Place(file, start), dim=dim)
                first = first or rows
                self._same_kind(self.layout.user, _id_kind(first.users), _id_kind(rows.users), file)
                self._same_kind(str(self.layout.step), _step_kind(first), _step_kind(rows), file)
                start += len(rows)
                done += len(rows)
                yield rows
                if progress is not None:
                    progress(done, self.total)

    def _frames(self, file: str) -> Iterator[pl.DataFrame]:
        """The columns of the layout, typed, in chunks of about `CHUNK_BYTES`."""
        with _translated(file):
            size = max(CHUNK_ROWS, CHUNK_BYTES // self._row_bytes(file))
            for frame in _scan(file).select(self.layout.names()).collect_batches(chunk_size=size):
                if len(frame):
                    yield self._typed(frame)

    def _typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame whose columns of text are numbers where they should be: this is where CSV turns into numbers.

        Ids stay text if any file holds one that is no integer. A column with a value that is no number stays text as
        well, for `columns` to name the value.
        """
        if not self._text_ids:
            return frame
        whole = {*self._text_ids, self.layout.step}
        return frame.with_columns(
            _as_numbers(column, pl.Int64 if column.name in whole else pl.Float64)
            for column in frame
            if not self._text_ids.get(column.name)
        )

    @cached_property
    def _text_ids(self) -> dict[str, bool]:
        """For id columns of CSV: does any file hold a value that is not an integer? Empty without CSV."""
        files = [file for file in self.files if _kind(file) != "parquet"]
        names = [name for name in (self.layout.user, self.layout.action) if name is not None]
        tests = [(pl.col(n).cast(pl.Int64, strict=False).is_null() & pl.col(n).is_not_null()).any() for n in names]
        answers = [self._ask(file, *tests) for file in files]
        return {name: any(bool(answer[name][0]) for answer in answers) for name in names if files}

    def _ask(self, file: str, *questions: pl.Expr) -> pl.DataFrame:
        """What a file says, computed as a stream, so that no file need fit into memory."""
        with _translated(file):
            return _scan(file).select(questions).collect(engine="streaming")

    def _row_bytes(self, file: str) -> int:
        """About how large a row is: 64 bytes and its features, whose lists are measured on the first row."""
        features = self.layout.features
        if not isinstance(features, str):
            return 64 + 8 * len(features or ())
        return 64 + max(64, 2 * int(_scan(file).select(features).head(1).collect().estimated_size()))

    def _same_kind(self, name: str, earlier: str, found: str, file: str) -> None:
        """Refuse a file whose column differs in kind from that of earlier files."""
        if found != earlier:
            raise LogsError(
                f"{name} holds {found} here and {earlier} in earlier rows",
                where=f"{file}, column {name}",
                todo="write all files with the same types",
            )


def _scan(file: str) -> pl.LazyFrame:
    """A lazy frame of a file; columns of CSV are text."""
    kind = _kind(file)
    if kind == "parquet":
        return pl.scan_parquet(file, glob=False)
    separator = "\t" if kind == "tsv" else ","
    return pl.scan_csv(file, infer_schema=False, separator=separator, glob=False)


def _as_numbers(column: pl.Series, dtype: type[pl.Int64 | pl.Float64]) -> pl.Series:
    """A column of text as numbers if every value is one, else unchanged."""
    if column.dtype != pl.String:
        return column
    values = column.cast(dtype, strict=False)
    return values if values.null_count() == column.null_count() else column


def _id_kind(ids: pl.Series) -> str:
    return "text" if ids.dtype == pl.String else "integers"


def _step_kind(rows: Rows) -> str:
    return "timestamps" if rows.timestamps else "integers"


def _expand(path: str) -> list[str]:
    """The files that one path names."""
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
    """The error for a path that names no file, with the nearest name in its folder."""
    if Path(path).is_dir():
        return LogsError("no logs in this folder", where=path, todo=f"put files {', '.join(SUFFIXES)} into it")
    if has_magic(path):
        return LogsError("no file matches", where=path, todo="check the pattern and the current folder")
    folder = Path(path).parent
    there = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return LogsError("no such file", where=path, todo="check the path" + nearest(Path(path).name, there))


def _kind(file: str) -> str:
    """`parquet`, `csv` or `tsv`, by the name of the file."""
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
