"""Finding: from what a person passed as path to files that can be read again and again.

A path may be a file, a folder, a glob, a list of these, a pipe, or "-" for standard input. Pipes are read once, into a
temporary file, because reading takes several looks. Folders named `key=value` (Hive's way to partition) are gone into,
and their keys are columns of the files in them.

Opening: a file as a lazy table. What kind it is, how a CSV separates its columns, and which columns are text.

Parquet and JSON lines carry their types. CSV is read as text, and so are the columns that come from folders; `texts`
turns text into numbers.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from glob import glob, has_magic
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import unquote

import polars as pl

from newcomer.errors import LogsError, nearest
from newcomer.logs.disk_store import Scratch, no_room
from newcomer.logs.text_columns import MISSING
from newcomer.validate import shown

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
SUFFIXES = tuple(
    [".parquet", ".pq"] + [name + gz for name in (".csv", ".tsv", ".jsonl", ".ndjson") for gz in ("", ".gz")]
)
STDIN = "-"
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive writes for a missing value


@dataclass(frozen=True)
class LogFile:
    """A file: what to call it, and where its bytes are (elsewhere only if they came through a pipe, in `scratch`)."""

    name: str
    path: str
    scratch: Scratch | None = None

    @property
    def partition(self) -> dict[str, str | None]:
        """Columns that the folders of the file give, as text.

        >>> LogFile("logs/day=2024-05-01/arm=a%20b/part.csv", "").partition
        {'day': '2024-05-01', 'arm': 'a b'}
        """
        pairs = [folder.partition("=") for folder in Path(self.name).parts[:-1] if _is_partition(folder)]
        return {key: None if value == _NULL else unquote(value) for key, _, value in pairs}


def find_files(paths: Paths) -> list[LogFile]:
    """The files that a path, folder, glob, pipe or list of these names, each once, sorted by name.

    The order counts: rows of a user without a step, or at equal times, stand in the order of their files.
    """
    several = isinstance(paths, Sequence) and not isinstance(paths, str)
    given: list[Any] = list(paths) if several else [paths]  # type: ignore[arg-type]
    for one in given:
        if isinstance(one, LogFile):
            continue
        if not isinstance(one, str | PathLike) or "\0" in str(one):
            raise LogsError(f"{shown(one)} is no path", todo="pass a path, a glob, a list of paths, or a frame")
    try:
        files = {file.name: file for path in given for file in _expand(path)}
        empty = next((file.name for file in files.values() if Path(file.path).stat().st_size == 0), None)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        what, where = f"the path cannot be read: {error.strerror}", str(error.filename or given[0])
        raise LogsError(what, where=where, todo="check the path") from error
    if not files:
        raise LogsError("no files given", todo="pass a path, a glob or a list of paths")
    if empty is not None:
        raise LogsError("the file is empty", where=empty, todo="remove it or write it again")
    return [files[name] for name in sorted(files)]


def _expand(given: str | PathLike[str] | LogFile) -> list[LogFile]:
    """The files that one path names; a file that was found already is itself."""
    if isinstance(given, LogFile):
        return [given]
    path = fspath(given)
    if path == STDIN:
        return [_spooled("standard input", _standard_input())]
    if Path(path).is_file():
        return [LogFile(path, path)]
    if Path(path).exists() and stat.S_ISFIFO(Path(path).stat().st_mode):
        with Path(path).open("rb") as pipe:
            return [_spooled(path, pipe)]
    if Path(path).is_dir():
        found = _inside(Path(path))
    else:
        found = [file for file in glob(path, recursive=True) if Path(file).is_file()] if has_magic(path) else []
    if not found:
        raise _nothing(path)
    return [LogFile(file, file) for file in found]


def _inside(folder: Path) -> list[str]:
    """The files of a folder that are tables by their name, and those of its folders `key=value`."""
    found = []
    for one in folder.iterdir():
        if one.is_dir() and _is_partition(one.name):
            found += _inside(one)
        elif one.is_file() and one.name.lower().endswith(SUFFIXES) and not one.name.startswith((".", "_")):
            found.append(str(one))
    return found


def _is_partition(folder: str) -> bool:
    key, equals, value = folder.partition("=")
    return bool(key and equals and value)


def _standard_input() -> IO[bytes]:
    """Standard input as bytes; a keyboard is refused, for a person would wait for the program and it for the person."""
    if sys.stdin is None or sys.stdin.isatty():
        todo = "pipe the logs in (... | newcomer fit -), or name a file"
        raise LogsError("nothing is piped in", where="standard input", todo=todo)
    return getattr(sys.stdin, "buffer", None) or BytesIO(sys.stdin.read().encode())


def _spooled(name: str, stream: IO[bytes]) -> LogFile:
    """The bytes of a stream in a temporary file."""
    scratch = Scratch()
    path = scratch.path / "stream"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        raise no_room(scratch.path, error) from error
    return LogFile(name, str(path), scratch)


def _nothing(path: str) -> LogsError:
    """The error for a path that names no file, with the nearest name in its folder."""
    if Path(path).is_dir():
        todo = f"put files {', '.join(SUFFIXES)} into it, or pass a pattern such as {Path(path) / '**' / '*.csv'}"
        return LogsError("no logs in this folder", where=path, todo=todo)
    if has_magic(path):
        return LogsError("no file matches", where=path, todo="check the pattern and the current folder")
    if Path(path).exists():
        return LogsError("this is neither a file nor a folder", where=path, todo="pass a file, a folder or a pipe")
    folder = Path(path).parent
    there = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return LogsError("no such file", where=path, todo="check the path" + nearest(Path(path).name, there))


Kind = Literal["parquet", "csv", "jsonl"]
HEAD = 1 << 16  # bytes that are looked at to find the kind and the separator
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_TITLES: dict[Kind, str] = {"parquet": "Parquet", "csv": "CSV in UTF-8", "jsonl": "JSON lines (an object a line)"}
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class TableFile:
    """A file that can be scanned any number of times."""

    file: LogFile
    kind: Kind
    separator: str = ","

    @classmethod
    def of(cls, file: LogFile) -> TableFile:
        """Open a file: its kind by its name (by its first bytes if it came through a pipe), the separator by its head.

        The separator is the one that cuts the first line into the most columns: names of columns hardly ever contain
        one, and values may (decimal commas).
        """
        if file.scratch is None and not file.name.lower().endswith(SUFFIXES):
            raise LogsError("unknown kind of file", where=file.name, todo=f"use {', '.join(SUFFIXES)}")
        kind = _kind_by_name(file.name) if file.scratch is None else None
        if kind == "parquet":
            return cls(file, "parquet")
        with translated(file.name, kind or "csv"):
            head = _head(file.path)
        kind = kind or _kind_by_content(head)
        if kind == "csv":
            refuse_twins(_columns(head, _separator(head)), where=file.name)
        return cls(file, kind, _separator(head) if kind == "csv" else ",")

    @property
    def name(self) -> str:
        """What errors call the file."""
        return self.file.name

    @cached_property
    def schema(self) -> pl.Schema:
        """Columns and types of the file, without those of its folders; of JSON lines every line is looked at, once."""
        with translated(self.name, self.kind):
            return self._scan_file().collect_schema()

    @cached_property
    def partition(self) -> dict[str, str | None]:
        """Columns that come from the folders of the file: those that it does not have itself."""
        return {key: value for key, value in self.file.partition.items() if key not in self.schema}

    @property
    def names(self) -> list[str]:
        """All columns."""
        return [*self.schema.names(), *self.partition]

    @property
    def types(self) -> dict[str, pl.DataType]:
        """All columns and their types."""
        return {**self.schema, **dict.fromkeys(self.partition, pl.String())}

    def is_text(self, name: str) -> bool:
        """Whether the column is text because this kind of file knows nothing else."""
        return self.kind == "csv" or name in self.partition

    def scan(self) -> pl.LazyFrame:
        """A lazy frame of the file with all its columns."""
        schema = self.schema
        frame = pl.scan_ndjson(self.file.path, schema=schema) if self.kind == "jsonl" else self._scan_file()
        values = [pl.lit(value, dtype=pl.String).alias(key) for key, value in self.partition.items()]
        return frame.with_columns(values) if values else frame

    def ask(self, *questions: pl.Expr) -> pl.DataFrame:
        """What the file says, computed as a stream, so that no file need fit into memory."""
        with translated(self.name, self.kind):
            return self.scan().select(questions).collect(engine="streaming")

    def _scan_file(self) -> pl.LazyFrame:
        path = self.file.path
        if self.kind == "parquet":
            return pl.scan_parquet(path, glob=False, hive_partitioning=False)
        if self.kind == "jsonl":
            return pl.scan_ndjson(path, infer_schema_length=None)
        return pl.scan_csv(path, infer_schema=False, separator=self.separator, glob=False, null_values=list(MISSING))


@contextmanager
def translated(name: str, kind: Kind) -> Iterator[None]:
    """Turn what the table library raises into one sentence about the file."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, EOFError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        todo = f"check that it is complete, readable {_TITLES[kind]}"
        raise LogsError(f"cannot read the file: {reason}", where=name, todo=todo) from error


def _kind_by_name(name: str) -> Kind:
    plain = name.lower().removesuffix(".gz")
    if plain.endswith((".parquet", ".pq")):
        return "parquet"
    return "jsonl" if plain.endswith((".jsonl", ".ndjson")) else "csv"


def _kind_by_content(head: bytes) -> Kind:
    """What came through a pipe has no name to go by."""
    if head.startswith(b"PAR1"):
        return "parquet"
    return "jsonl" if head.lstrip().startswith(b"{") else "csv"


def _head(path: str) -> bytes:
    """The first bytes of a file, unpacked if it is compressed."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if not head.startswith(_GZIP):
        return head
    with gzip.open(path) as unpacked:
        return unpacked.read(HEAD)


def _separator(head: bytes) -> str:
    """What separates the columns of a CSV that begins like this; a comma if nothing does.

    >>> _separator(b"user;action;reward\\n1;7;0,5\\n"), _separator(b'"a;b",c\\n')
    (';', ',')
    """
    widths = {one: len(_columns(head, one)) for one in SEPARATORS}
    return max(widths, key=lambda one: widths[one])  # the first of equals: a comma


def _columns(head: bytes, separator: str) -> list[str]:
    """The names of the columns of a CSV that begins like this."""
    first = head.decode("utf-8", errors="replace").lstrip("\ufeff").lstrip().splitlines()[:1]
    return next(csv.reader(first, delimiter=separator), [])


def refuse_twins(names: Sequence[str], *, where: str = "") -> None:
    """Refuse two columns of the same name: which of them is meant cannot be said. Without a name there may be many."""
    twins = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twins:
        what = f"there are {names.count(twins[0])} columns '{twins[0]}'"
        raise LogsError(what, where=where, todo="give every column a name of its own")
