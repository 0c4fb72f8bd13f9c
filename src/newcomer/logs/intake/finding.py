"""Finding: from what a person passed as path to files that can be read again and again.

A path may be a file, a folder, a glob, a list of these, a pipe, or "-" for standard input. Pipes are read once, into a
temporary file, because reading takes several looks. Folders named `key=value` (Hive's way to partition) are gone into,
and their keys are columns of the files in them.
"""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from newcomer.arguments import shown
from newcomer.errors import LogsError, nearest
from newcomer.logs.intake.scratch import Scratch, no_room

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]
SUFFIXES = tuple(
    [".parquet", ".pq"] + [name + gz for name in (".csv", ".tsv", ".jsonl", ".ndjson") for gz in ("", ".gz")]
)
STDIN = "-"
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive writes for a missing value


@dataclass(frozen=True)
class Found:
    """A file: what to call it, and where its bytes are (elsewhere only if they came through a pipe, in `scratch`)."""

    name: str
    path: str
    scratch: Scratch | None = None

    @property
    def partition(self) -> dict[str, str | None]:
        """Columns that the folders of the file give, as text.

        >>> Found("logs/day=2024-05-01/arm=a%20b/part.csv", "").partition
        {'day': '2024-05-01', 'arm': 'a b'}
        """
        pairs = [folder.partition("=") for folder in Path(self.name).parts[:-1] if _is_partition(folder)]
        return {key: None if value == _NULL else unquote(value) for key, _, value in pairs}


def find_files(paths: Paths) -> list[Found]:
    """The files that a path, folder, glob, pipe or list of these names, each once, sorted by name.

    The order counts: rows of a user without a step, or at equal times, stand in the order of their files.
    """
    several = isinstance(paths, Sequence) and not isinstance(paths, str)
    given: list[Any] = list(paths) if several else [paths]  # type: ignore[arg-type]
    for one in given:
        if not isinstance(one, str | PathLike) or "\0" in str(one):
            raise LogsError(f"{shown(one)} is no path", todo="pass a path, a glob, a list of paths, or a frame")
    try:
        files = {file.name: file for path in given for file in _expand(fspath(path))}
        empty = next((file.name for file in files.values() if Path(file.path).stat().st_size == 0), None)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        what, where = f"the path cannot be read: {error.strerror}", str(error.filename or given[0])
        raise LogsError(what, where=where, todo="check the path") from error
    if not files:
        raise LogsError("no files given", todo="pass a path, a glob or a list of paths")
    if empty is not None:
        raise LogsError("the file is empty", where=empty, todo="remove it or write it again")
    return [files[name] for name in sorted(files)]


def _expand(path: str) -> list[Found]:
    """The files that one path names."""
    if path == STDIN:
        return [_spooled("standard input", _standard_input())]
    if Path(path).is_file():
        return [Found(path, path)]
    if Path(path).exists() and stat.S_ISFIFO(Path(path).stat().st_mode):
        with Path(path).open("rb") as pipe:
            return [_spooled(path, pipe)]
    if Path(path).is_dir():
        found = _inside(Path(path))
    else:
        found = [file for file in glob(path, recursive=True) if Path(file).is_file()] if has_magic(path) else []
    if not found:
        raise _nothing(path)
    return [Found(file, file) for file in found]


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


def _spooled(name: str, stream: IO[bytes]) -> Found:
    """The bytes of a stream in a temporary file."""
    scratch = Scratch()
    path = scratch.path / "stream"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        raise no_room(scratch.path, error) from error
    return Found(name, str(path), scratch)


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
