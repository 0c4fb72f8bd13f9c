"""Spill: rows that do not fit into memory, scattered by user into bucket files and sorted one bucket at a time.

A user's rows all fall into one bucket and keep their order of arrival there, so sorting each bucket by (user, step)
gives whole histories in time order with only one bucket in memory.

`rows-7` holds the rows of bucket 7 as they arrived, slices of Arrow one after another. Once sorted it is replaced by
the folder `part-7`: an .npy file for each array of the histories, and the ids of the users.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Limits, Rows, arrange, concatenate
from newcomer.logs.intake.scratch import Scratch, no_room
from newcomer.users import mix

_SEED = 0x6E6577636F6D6572  # of the hash of text ids; any fixed number


class Spill:
    """Bucket files in a private folder that goes away with this object, at `close`, or when the program ends."""

    def __init__(self, buckets: int) -> None:
        self._scratch = Scratch()
        self._folder = self._scratch.path
        self._slices: list[list[int]] = [[] for _ in range(buckets)]  # bytes of each slice in a bucket's file
        self._sorted: list[int] = []
        self._timestamps = False
        self.limits: Limits | None = None

    def add(self, rows: Rows) -> None:
        """Append rows to the buckets of their users."""
        self._timestamps = rows.timestamps
        buckets = _bucket(rows.users, len(self._slices))
        order = np.argsort(buckets, kind="stable")
        columns = {"users": rows.users, **rows.columns()}
        frame = pl.DataFrame([pl.Series(name, column) for name, column in columns.items()])[order]
        bounds = np.searchsorted(buckets[order], np.arange(len(self._slices) + 1))
        for bucket in np.flatnonzero(np.diff(bounds)):
            self._append(int(bucket), frame[int(bounds[bucket]) : int(bounds[bucket + 1])])

    def sort(self, limits: Limits | None = None) -> Iterator[Histories]:
        """Sort every bucket once, keep the result on disk instead of the rows, and show it; rewards within limits."""
        self.limits = limits
        for bucket, slices in enumerate(self._slices):
            if slices:
                part = arrange(self._load(bucket), limits)
                self._rows_file(bucket).unlink()
                self._save(part, self._folder / f"part-{bucket}")
                self._sorted.append(bucket)
                yield part

    def parts(self) -> Iterator[Histories]:
        """The sorted buckets, read one at a time."""
        if not self._scratch.alive:
            raise LogsError("these logs are closed", todo="read them again")
        for bucket in self._sorted:
            folder = self._folder / f"part-{bucket}"
            arrays = {file.stem: np.load(file, allow_pickle=False) for file in folder.glob("*.npy")}
            yield Histories(users=pl.read_ipc(folder / "users.arrow")["users"], **arrays)

    def close(self) -> None:
        """Remove the folder."""
        self._scratch.close()

    def _append(self, bucket: int, frame: pl.DataFrame) -> None:
        """Write a slice behind the others of its bucket, and remember its size, by which it is found again."""
        buffer = BytesIO()
        frame.write_ipc_stream(buffer)
        try:
            with self._rows_file(bucket).open("ab") as file:
                file.write(buffer.getbuffer())
        except OSError as error:
            raise no_room(self._folder, error) from error
        self._slices[bucket].append(buffer.tell())

    def _load(self, bucket: int) -> Rows:
        """The rows of a bucket in the order of arrival."""
        chunks = []
        with self._rows_file(bucket).open("rb") as file:
            for size in self._slices[bucket]:
                frame = pl.read_ipc_stream(file.read(size))
                arrays = {name: frame[name].to_numpy() for name in frame.columns if name != "users"}
                chunks.append(Rows(users=frame["users"], timestamps=self._timestamps, **arrays))
        return concatenate(chunks)

    def _save(self, part: Histories, folder: Path) -> None:
        """Write sorted histories; their ties have been counted and are not needed again."""
        arrays = {"hashes": part.hashes, "offsets": part.offsets, **part.columns()}
        try:
            folder.mkdir()
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array, allow_pickle=False)
            part.users.to_frame("users").write_ipc(folder / "users.arrow")
        except OSError as error:
            raise no_room(self._folder, error) from error

    def _rows_file(self, bucket: int) -> Path:
        return self._folder / f"rows-{bucket}"


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
