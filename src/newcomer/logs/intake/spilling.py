"""Spill: rows that do not fit into memory, scattered by user into bucket files and sorted one bucket at a time.

A user's rows all fall into one bucket and keep their order of arrival there, so sorting each bucket by (user, step)
gives whole histories in time order with only one bucket in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Rows, arrange
from newcomer.users import mix

_ROW_COLUMNS = ("users", "rewards", "actions", "features", "propensities", "steps")
_PART_COLUMNS = ("hashes", "offsets", "rewards", "actions", "features", "propensities")
_SEED = 0x6E6577636F6D6572


class Spill:
    """Bucket files in a private folder that goes away with this object, at `close`, or when the program ends."""

    def __init__(self, buckets: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._slices: list[list[int]] = [[] for _ in range(buckets)]
        self._sorted: list[int] = []
        self._timestamps = False

    def add(self, rows: Rows) -> None:
        """Append rows to the buckets of their users."""
        self._timestamps = rows.timestamps
        buckets = _bucket(rows.users, len(self._slices))
        order = np.argsort(buckets, kind="stable")
        frame = _to_frame(rows)[order]
        bounds = np.searchsorted(buckets[order], np.arange(len(self._slices) + 1))
        for bucket in np.flatnonzero(np.diff(bounds)):
            self._append(int(bucket), frame[int(bounds[bucket]) : int(bounds[bucket + 1])])

    def sort(self) -> Iterator[Histories]:
        """Sort every bucket once, keep the result on disk instead of the rows, and show it."""
        for bucket, slices in enumerate(self._slices):
            if slices:
                part = arrange(self._load(bucket))
                self._raw(bucket).unlink()
                self._save(part, bucket)
                self._sorted.append(bucket)
                yield part

    def parts(self) -> Iterator[Histories]:
        """The sorted buckets, read one at a time."""
        if not self._remove.alive:
            raise LogsError("these logs are closed", todo="read them again")
        for bucket in self._sorted:
            yield _open(self._folder / f"part-{bucket}")

    def close(self) -> None:
        """Remove the folder."""
        self._remove()

    def _append(self, bucket: int, frame: pl.DataFrame) -> None:
        buffer = BytesIO()
        frame.write_ipc_stream(buffer)
        try:
            with self._raw(bucket).open("ab") as file:
                file.write(buffer.getbuffer())
        except OSError as error:
            raise _no_room(self._folder, error) from error
        self._slices[bucket].append(buffer.tell())

    def _load(self, bucket: int) -> Rows:
        with self._raw(bucket).open("rb") as file:
            frames = [pl.read_ipc_stream(file.read(size)) for size in self._slices[bucket]]
        return concatenate([_from_frame(frame, timestamps=self._timestamps) for frame in frames])

    def _save(self, part: Histories, bucket: int) -> None:
        try:
            _save(part, self._folder / f"part-{bucket}")
        except OSError as error:
            raise _no_room(self._folder, error) from error

    def _raw(self, bucket: int) -> Path:
        return self._folder / f"rows-{bucket}"


def concatenate(chunks: Sequence[Rows]) -> Rows:
    """Chunks of rows one after another."""
    if len(chunks) == 1:
        return chunks[0]
    columns = {name: [getattr(chunk, name) for chunk in chunks] for name in _ROW_COLUMNS if name != "users"}
    joined: dict[str, Any] = {name: np.concatenate(column) for name, column in columns.items() if column[0] is not None}
    users = pl.concat([chunk.users for chunk in chunks], rechunk=True)
    return replace(chunks[0], users=users, **joined)


def _bucket(users: pl.Series, buckets: int) -> NDArray[np.uint16]:
    """The bucket of each row's user; 16-bit numbers because NumPy sorts those by radix."""
    if users.dtype == pl.String:
        hashes = users.hash(seed=_SEED).to_numpy()
    else:
        hashes = mix(users.to_numpy().view(np.uint64))
    return (hashes % np.uint64(buckets)).astype(np.uint16)


def _to_frame(rows: Rows) -> pl.DataFrame:
    columns = {name: getattr(rows, name) for name in _ROW_COLUMNS}
    return pl.DataFrame([pl.Series(name, column) for name, column in columns.items() if column is not None])


def _from_frame(frame: pl.DataFrame, *, timestamps: bool) -> Rows:
    arrays = {name: frame[name].to_numpy() for name in frame.columns if name != "users"}
    return Rows(users=frame["users"], timestamps=timestamps, **arrays)


def _save(part: Histories, folder: Path) -> None:
    folder.mkdir()
    for name in _PART_COLUMNS:
        if (column := getattr(part, name)) is not None:
            np.save(folder / f"{name}.npy", column, allow_pickle=False)
    part.users.to_frame("users").write_ipc(folder / "users.arrow")


def _open(folder: Path) -> Histories:
    arrays = {file.stem: np.load(file, allow_pickle=False) for file in folder.glob("*.npy")}
    users = pl.read_ipc(folder / "users.arrow")["users"]
    return Histories(users=users, **arrays)


def _no_room(folder: Path, error: OSError) -> LogsError:
    todo = "free some space, or let TMPDIR name a folder that has more"
    return LogsError(f"cannot write temporary files: {error.strerror}", where=str(folder), todo=todo)
