"""Spill: rows that do not fit into memory, scattered by user into bucket files and sorted one bucket at a time.

A user's rows all fall into one bucket and keep their order of arrival there, so sorting each bucket by (user, step)
gives whole histories in time order with only one bucket in memory.

A `Scatter` writes rows as they arrive: one file a bucket, slices of Arrow one after another. `Slices` says where they
are. `sort_bucket` loads what one or several writers wrote to a bucket, and puts the histories on a shelf. One process
does both here; several do it in `shuffling`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.logs.intake.histories import Histories, Limits, Rows, arrange, concatenate
from newcomer.logs.intake.scratch import Scratch, no_room
from newcomer.logs.intake.shelving import Shelf, load_part, save_part
from newcomer.users import mix

_SEED = 0x6E6577636F6D6572  # of the hash of text ids; any fixed number


@dataclass(frozen=True)
class Slices:
    """What one writer wrote to one bucket: a file, the bytes of each slice in it, and whether steps are times."""

    file: Path
    sizes: tuple[int, ...]
    timestamps: bool


class Scatter:
    """Writes rows to the bucket files of one writer.

    The names of its files are its own: of two writers of the same rows, one of them lost, nothing is mixed up.
    """

    def __init__(self, folder: Path, buckets: int) -> None:
        self._folder, self._token = folder, secrets.token_hex(8)
        self._sizes: list[list[int]] = [[] for _ in range(buckets)]  # bytes of each slice in a bucket's file
        self._timestamps = False

    def add(self, rows: Rows) -> None:
        """Append rows to the buckets of their users."""
        self._timestamps = rows.timestamps
        buckets = _bucket(rows.users, len(self._sizes))
        order = np.argsort(buckets, kind="stable")
        columns = {"users": rows.users, **rows.columns()}
        frame = pl.DataFrame([pl.Series(name, column) for name, column in columns.items()])[order]
        bounds = np.searchsorted(buckets[order], np.arange(len(self._sizes) + 1))
        for bucket in np.flatnonzero(np.diff(bounds)):
            self._append(int(bucket), frame[int(bounds[bucket]) : int(bounds[bucket + 1])])

    def slices(self) -> dict[int, Slices]:
        """What was written, by bucket."""
        return {
            bucket: Slices(self._file(bucket), tuple(sizes), self._timestamps)
            for bucket, sizes in enumerate(self._sizes)
            if sizes
        }

    def _append(self, bucket: int, frame: pl.DataFrame) -> None:
        """Write a slice behind the others of its bucket, and remember its size, by which it is found again."""
        buffer = BytesIO()
        frame.write_ipc_stream(buffer)
        try:
            with self._file(bucket).open("ab") as file:
                file.write(buffer.getbuffer())
        except OSError as error:
            raise no_room(self._folder, error) from error
        self._sizes[bucket].append(buffer.tell())

    def _file(self, bucket: int) -> Path:
        return self._folder / f"rows-{bucket}-{self._token}"


def sort_bucket(written: Sequence[Slices], folder: Path, limits: Limits | None) -> Histories:
    """The histories of a bucket, in which several writers wrote in this order; they are kept as the part `folder`.

    What was sorted before is not sorted again, and rows are removed once they are.
    """
    if not folder.exists():
        save_part(arrange(concatenate([rows for one in written for rows in _load(one)]), limits), folder)
    for one in written:
        one.file.unlink(missing_ok=True)
    return load_part(folder)


def _load(written: Slices) -> Iterator[Rows]:
    """Slices in the order of arrival."""
    with written.file.open("rb") as file:
        for size in written.sizes:
            frame = pl.read_ipc_stream(file.read(size))
            columns: dict[str, Any] = {name: frame[name] for name in frame.columns}
            users, shown = columns.pop("users"), columns.pop("candidates", None)
            arrays = {name: column.to_numpy() for name, column in columns.items()}
            yield Rows(users=users, candidates=shown, timestamps=written.timestamps, **arrays)


class Spill:
    """Rows on their way to a shelf, in a private folder that goes away with the shelf, or when the program ends."""

    def __init__(self, buckets: int) -> None:
        self._scratch = Scratch()
        self._scatter = Scatter(self._scratch.path, buckets)

    def add(self, rows: Rows) -> None:
        """Append rows to the buckets of their users."""
        self._scatter.add(rows)

    def sort(self, limits: Limits | None = None) -> Iterator[Histories]:
        """Sort every bucket once, keep the result on disk instead of the rows, and show it; rewards within limits."""
        for bucket, written in self._scatter.slices().items():
            yield sort_bucket([written], self._scratch.path / f"part-{bucket}", limits)

    def shelf(self, limits: Limits | None = None) -> Shelf:
        """Where the sorted histories are, once all are."""
        names = [f"part-{bucket}" for bucket in self._scatter.slices()]
        return Shelf(self._scratch.path, names, limits=limits, scratch=self._scratch)

    def close(self) -> None:
        """Remove the folder."""
        self._scratch.close()


def _bucket(users: pl.Series, buckets: int) -> NDArray[np.uint16]:
    """The bucket of each row's user, (rows,); 16-bit numbers because NumPy sorts those by radix.

    Buckets decide only which file a user waits in, so Polars' quick hash of text will do, although it is not the hash
    that histories keep.
    """
    if users.dtype == pl.String:
        hashes = users.hash(seed=_SEED).to_numpy()
    else:
        hashes = mix(users.to_numpy().view(np.uint64))
    return (hashes % np.uint64(buckets)).astype(np.uint16)
