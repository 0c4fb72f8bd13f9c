"""Opening: a file as a lazy table. What kind it is, how a CSV separates its columns, and which columns are text.

Parquet and JSON lines carry their types. CSV is read as text, and so are the columns that come from folders; `texts`
turns text into numbers.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from newcomer.errors import LogsError
from newcomer.logs.intake.finding import SUFFIXES, Found
from newcomer.logs.intake.texts import MISSING

Kind = Literal["parquet", "csv", "jsonl"]
HEAD = 1 << 16  # bytes that are looked at to find the kind and the separator
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_TITLES: dict[Kind, str] = {"parquet": "Parquet", "csv": "CSV in UTF-8", "jsonl": "JSON lines (an object a line)"}
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Table:
    """A file that can be scanned any number of times."""

    file: Found
    kind: Kind
    separator: str = ","

    @classmethod
    def of(cls, file: Found) -> Table:
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
