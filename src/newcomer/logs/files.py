"""Finding: from what a caller passed as path to files that can be read again and again.

A path may be a file, a folder, a glob, a list of these, a pipe, or "-" for standard input. Pipes are read once, into a
temporary file, because reading takes several looks. Folders named `key=value` (Hive's way to partition) are gone into,
and their keys are columns of the files in them.

Opening: a file as a lazy table. What kind it is, how a CSV separates its columns, and which columns are text.

Parquet and JSON lines carry their types. CSV is read as text, and so are the columns that come from folders; `texts`
turns text into numbers.

What files say before their rows are read: what decides how each column is read, found by a few questions.

A question is a Polars expression that is computed as a stream over each file (`TableFile.ask`), so that no file has to
fit into memory: whether ids are integers in all files, whether decimals are written with a comma, whether steps are
whole numbers, how often each level of a feature occurs. What was decided without being asked for becomes a note.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import stat
import sys
import zlib
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import glob, has_magic
from io import BytesIO, TextIOWrapper
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, Literal, cast
from urllib.parse import unquote

import polars as pl

from newcomer.errors import LogsError, error_name_hint
from newcomer.logs.columns import Epoch, first_line_hint
from newcomer.logs.disk_store import Scratch, no_disk_room
from newcomer.logs.schema import LogLayout, Renames, resolve_schema
from newcomer.logs.text_columns import (
    MISSING,
    text_date_questions,
    text_dates_found,
    text_has_comma,
    text_has_point,
    text_is_no_id,
    text_spellings_note,
)
from newcomer.validate import show_invalid_value

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


def find_log_files(paths: Paths) -> list[LogFile]:
    """The files that a path, folder, glob, pipe or list of these names, each once, sorted by name.

    The order counts: rows of a user without a step, or at equal times, stand in the order of their files.
    """
    several = isinstance(paths, Sequence) and not isinstance(paths, str)
    given: list[Any] = list(paths) if several else [paths]  # type: ignore[arg-type]
    for one in given:
        if isinstance(one, LogFile):
            continue
        if not isinstance(one, str | PathLike) or "\0" in str(one):
            raise LogsError(
                f"{show_invalid_value(one)} is not a path", todo="pass a path, a glob, a list of paths, or a frame"
            )
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
    """Standard input as bytes; a keyboard is refused, because the person would wait for the program, and the program
    for the person.
    """
    if sys.stdin is None or sys.stdin.isatty():
        todo = "pipe the logs in (... | newcomer fit -), or name a file"
        raise LogsError("there is no input on the pipe", where="standard input", todo=todo)
    return getattr(sys.stdin, "buffer", None) or BytesIO(sys.stdin.read().encode())


def _spooled(name: str, stream: IO[bytes]) -> LogFile:
    """The bytes of a stream in a temporary file."""
    scratch = Scratch()
    path = scratch.path / "stream"
    try:
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        raise no_disk_room(scratch.path, error) from error
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
    return LogsError("no such file", where=path, todo="check the path" + error_name_hint(Path(path).name, there))


Kind = Literal["parquet", "csv", "jsonl"]
HEAD = 1 << 16  # bytes that are looked at to find the kind and the separator
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_TITLES: dict[Kind, str] = {"parquet": "Parquet", "csv": "CSV in UTF-8", "jsonl": "JSON lines (an object a line)"}
_GZIP = b"\x1f\x8b"
_RAGGED = "found more fields than defined"  # in what Polars says of a row that is too long
KILOBYTE = 1024  # bytes that tell text from what is none
UTF16_ZEROS = 0.2  # share of NUL bytes: half of UTF-16 in Latin letters, 1 in 256 of what is compressed
UTF16_SIDE = 5  # times as many of them stand on one side of the pairs of bytes: numbers in binary have them on both
CONTROL = 0.02  # share of control characters among bytes that are no UTF-8: text in another encoding has none


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
        with log_file_errors(file.name, kind or "csv"):
            head = _head(file.path)
        kind = kind or _kind_by_content(head)
        if kind != "parquet":
            _refuse_what_is_no_text(head, file.name)
        if kind == "csv":
            refuse_twin_columns_of_log_file(_columns(head, _separator(head)), where=file.name)
        return cls(file, kind, _separator(head) if kind == "csv" else ",")

    @property
    def name(self) -> str:
        """What errors call the file."""
        return self.file.name

    @cached_property
    def schema(self) -> pl.Schema:
        """Columns and types of the file, without those of its folders; of JSON lines every line is looked at, once."""
        with self.errors():
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
        with self.errors():
            return self.scan().select(questions).collect(engine="streaming")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what the table library raises over this file into one sentence; of a ragged CSV it names the line."""
        try:
            with log_file_errors(self.name, self.kind):
                yield
        except LogsError as error:
            found = _ragged_line(self.file.path, self.separator) if _RAGGED in error.what else None
            if found is None:
                raise
            line, row, values, columns = found
            raise LogsError(
                f"a row has {values:,} values, and there are {columns:,} columns",
                where=f"{self.name}, line {line:,}, data row {row:,}",
                todo="mend the row, or put values that hold the separator into quotes",
            ) from error

    def _scan_file(self) -> pl.LazyFrame:
        path = self.file.path
        if self.kind == "parquet":
            return pl.scan_parquet(path, glob=False, hive_partitioning=False)
        if self.kind == "jsonl":
            return pl.scan_ndjson(path, infer_schema_length=None)
        return pl.scan_csv(path, infer_schema=False, separator=self.separator, glob=False, null_values=list(MISSING))


@contextmanager
def log_file_errors(name: str, kind: Kind) -> Iterator[None]:
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
    with _unpacked(path) as file:
        return file.read(HEAD)


def _unpacked(path: str) -> IO[bytes]:
    """A file, opened to read its bytes as they are before it was compressed."""
    with open(path, "rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    return cast(IO[bytes], gzip.open(path)) if packed else open(path, "rb")


def _refuse_what_is_no_text(head: bytes, name: str) -> None:
    """Refuse UTF-16, and bytes that are no text in any encoding; text in another one is left to the reader."""
    head = head[:KILOBYTE]
    few, many = sorted((head[::2].count(0), head[1::2].count(0)))
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or (many > UTF16_ZEROS * len(head) and many > UTF16_SIDE * few):
        raise LogsError("the file looks like UTF-16", where=name, todo="save it as UTF-8")
    controls = len(head) - len(head.translate(None, bytes({*range(32)} - {*b"\t\n\v\f\r"})))
    if head.count(0) > CONTROL * len(head) or (controls > CONTROL * len(head) and not _is_utf8(head)):
        todo = f"pass CSV, JSON lines or Parquet under a name that says which ({', '.join(SUFFIXES)})"
        raise LogsError("this is not a text file", where=name, todo=todo)


def _is_utf8(head: bytes) -> bool:
    """Whether bytes, perhaps cut within a character, are UTF-8."""
    try:
        getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _ragged_line(path: str, separator: str) -> tuple[int, int, int, int] | None:
    """The first row of a CSV with more values than columns: its line, its number below the header, both counts."""
    with _unpacked(path) as file, suppress(csv.Error):
        rows = csv.reader(TextIOWrapper(file, "utf-8", errors="replace", newline=""), delimiter=separator)
        columns = len(next(rows, []))
        for number, row in enumerate(rows, 1):
            if len(row) > columns:
                return rows.line_num, number, len(row), columns
    return None


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


def refuse_twin_columns_of_log_file(names: Sequence[str], *, where: str = "") -> None:
    """Refuse two columns of the same name: which of them is meant cannot be said. Without a name there may be many."""
    twins = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twins:
        what = f"there are {names.count(twins[0])} columns '{twins[0]}'"
        raise LogsError(what, where=where, todo=f"give every column a name of its own{first_line_hint(twins)}")


MANY_USERS = 5_000_000  # above which ids are not compared for spellings: all of them would be held at once


def common_log_file_layout(tables: Sequence[TableFile], columns: Renames | None, epoch: Epoch | None) -> LogLayout:
    """The layout of the first file, if every other file has the same columns."""
    layouts = [resolve_schema(table.names, columns, source=table.name, epoch=epoch) for table in tables]
    expected = set(layouts[0].names())
    for table, layout in zip(tables, layouts, strict=True):
        odd = sorted(set(layout.names()) ^ expected)
        if odd:
            here, there = ("missing here", "there in") if odd[0] in expected else ("only here", "not in")
            todo = "write all files with the same columns"
            raise LogsError(f"column '{odd[0]}' is {here}, {there} {tables[0].name}", where=table.name, todo=todo)
    return layouts[0]


@dataclass(frozen=True)
class FileFacts:
    """What files say before their rows are read: how many rows, which ids stay text, the range of integer steps."""

    rows: int
    text_ids: dict[str, bool]
    steps: tuple[int, int] | None
    dropped: int = 0  # rows with a missing value, where they are to be dropped
    gaps: dict[str, int] = field(default_factory=dict)  # how many of them each column has

    def dropping(self, layout: LogLayout) -> LogLayout:
        """The layout that says how many rows are left out."""
        return layout.dropping(self.gaps, self.dropped, self.rows)

    @classmethod
    def of(cls, tables: Sequence[TableFile], layout: LogLayout) -> FileFacts:
        """One look at the columns concerned of every file; the metadata of a Parquet file will often do."""
        ids = [name for name in (layout.user, layout.action) if name is not None]
        rows, lows, highs, whole = 0, [], [], layout.step is not None and layout.epoch is None
        text: dict[str, bool] = {}
        dropped, gaps = 0, dict[str, int]()
        for table in tables:
            if layout.missing == "drop":
                missing = layout.incomplete(table.types)
                counts = table.ask(
                    pl.any_horizontal(*missing.values()).sum().alias(" any"),
                    *(one.sum().alias(name) for name, one in missing.items()),
                )
                dropped += int(counts[" any"][0])
                gaps = {name: gaps.get(name, 0) + int(counts[name][0]) for name in missing}
            asked = [name for name in ids if table.is_text(name)]
            steps = log_file_step_questions(table, layout.step) if whole else None
            plain = (text_is_no_id(name, blanks=False).any() for name in asked)
            answer = table.ask(pl.len().alias(" rows"), *plain, *(steps or ()))
            odd = [name for name in asked if answer[name][0]]
            if odd or (steps and not answer[" whole"][0]):  # perhaps only for the blanks
                again = [text_is_no_id(name).any() for name in odd] + (
                    log_file_step_questions(table, layout.step, blanks=True) or []
                )
                answer = answer.with_columns(table.ask(*(again if steps else again[: len(odd)])))
            rows += int(answer[" rows"][0])
            text |= {name: text.get(name, False) or bool(answer[name][0]) for name in asked}
            whole = whole and (steps is not None) and (not answer[" rows"][0] or bool(answer[" whole"][0]))
            if whole and answer[" low"][0] is not None:
                lows.append(int(answer[" low"][0]))
                highs.append(int(answer[" high"][0]))
        return cls(rows, text, (min(lows), max(highs)) if whole and lows else None, dropped, gaps)


def log_file_step_questions(table: TableFile, name: str | None, *, blanks: bool = False) -> list[pl.Expr] | None:
    """Are the steps of a file whole numbers, and from where to where? None if their type says that they are not."""
    if name is None:
        return None
    column = lost = pl.col(str(name))
    if table.is_text(str(name)):
        column = (column.str.strip_chars() if blanks else column).cast(pl.Int64, strict=False)
    elif not table.schema[str(name)].is_integer():
        return None
    return [
        (column.null_count() == lost.null_count()).alias(" whole"),
        column.min().alias(" low"),
        column.max().alias(" high"),
    ]


def is_empty_in_log_files(tables: Sequence[TableFile], name: str) -> bool:
    """Whether no file holds a value of a column. The first row of the first file nearly always tells."""
    with tables[0].errors():
        first = tables[0].scan().select(name).head(1).collect()
    if len(first) and first[name].null_count() == 0:
        return False
    counts = [table.ask(pl.len().alias("rows"), pl.col(name).count()) for table in tables]
    return sum(int(c["rows"][0]) for c in counts) > 0 and not any(int(c[name][0]) for c in counts)


def log_file_value_counts(tables: Sequence[TableFile], name: str) -> pl.DataFrame:
    """The distinct values of a column in all files, as text, with how many rows have each."""
    counts = []
    for table in tables:
        with table.errors():
            values = table.scan().select(value=pl.col(name).cast(pl.String))
            counts.append(values.group_by("value").len().collect(engine="streaming"))
    return pl.concat(counts).group_by("value").agg(pl.col("len").sum())


def log_file_date_layout(tables: Sequence[TableFile], layout: LogLayout) -> LogLayout:
    """The layout that knows how dates such as 03/02/2020 are to be read, where all files together settle it."""
    name = str(layout.step)
    texts = [table for table in tables if table.types[name] == pl.String]
    dates, why = text_dates_found([table.ask(*text_date_questions(name)) for table in texts]) if texts else (None, "")
    if dates is None or dates == "either":
        return replace(layout, dates=dates)
    return layout.noting(log_file_dates_note(name, dates, why), dates=dates)


def log_file_dates_note(name: str, dates: str, why: str) -> str:
    """What is said of dates that something settled."""
    return f"Dates in {name} are read with the {dates.removesuffix('-first')} first: {why} (dates= or --dates chooses)."


def same_users_in_log_files_note(tables: Sequence[TableFile], layout: LogLayout, texts: dict[str, bool]) -> list[str]:
    """A note on users whose ids differ in case or blanks alone; those of actions are looked at in the catalogue.

    Ids of one case and without blanks are all that most files have, and cost one look; of very many others nothing is
    said, because all of them would have to be held at a time.
    """
    name = layout.user
    if layout.tidy_ids or not texts.get(name, all(table.types[name] == pl.String for table in tables)):
        return []
    user, plain = pl.col(name), pl.col(name).str.strip_chars()
    cases = {"low": plain.str.to_lowercase(), "high": plain.str.to_uppercase()}
    asked = [(user == one).all().alias(case) for case, one in cases.items()]
    looks = pl.concat([table.ask(*asked, user.approx_n_unique().alias("users")) for table in tables])
    if looks["low"].all() or looks["high"].all() or looks["users"].sum() > MANY_USERS:
        return []
    distinct = pl.concat([table.ask(user.drop_nulls().unique()) for table in tables])[name].unique()
    return text_spellings_note(distinct, "user")


def numeric_columns_of_log_file(layout: LogLayout) -> list[str]:
    """The columns of plain numbers."""
    return [name for name in (layout.reward, layout.propensity, *layout.numeric_features) if name is not None]


def log_file_has_decimal_comma(table: TableFile, names: Sequence[str]) -> bool:
    """Whether a CSV writes decimals with a comma; where others have a point, 1.234 might be a thousand: refused.

    Between commas a comma in a number must stand in quotes, and is more likely to mark thousands.
    """
    asked = [name for name in names if table.is_text(name)]
    if table.kind != "csv" or table.separator == "," or not asked:
        return False
    answer = table.ask(
        *(text_has_comma(name).any() for name in asked),
        *(text_has_point(name).any().name.suffix(" points") for name in asked),
    )
    found = [name for name in asked if answer[name][0]]
    for name in asked if found else ():
        if answer[f"{name} points"][0]:
            todo = "write all numbers with a point, or all with a comma"
            where = f"{table.name}, column {name}"
            raise LogsError(f"{name} has points where {found[0]} has decimal commas", where=where, todo=todo)
    return bool(found)


def log_file_dialect_notes(tables: Sequence[TableFile], commas: frozenset[str]) -> list[str]:
    """What was found out about how CSV files are written, of the first file of each sort."""
    notes = {}
    for table in tables:
        if table.kind == "csv" and table.separator != ("\t" if ".tsv" in table.name.lower()[-7:] else ","):
            notes[f"separated by {SEPARATORS[table.separator]}"] = table.name
    said = [f"Columns are {what} ({name})." for what, name in notes.items()]
    return [*said, *(f"Decimals are written with a comma ({name})." for name in sorted(commas)[:1])]
