"""DiskStore: sorted histories on disk, in parts that any process can open by their path.

A part is a folder: an .npy file for each array of its histories, the ids of its users, and what was counted while it
was sorted. Arrays are mapped into memory, not read, so that a process pays for the rows that it looks at. A part is
written under another name and renamed, so that it is there whole or not at all; a second writer finds
that it is there.

Spill: rows that do not fit into memory, scattered by user into bucket files and sorted one bucket at a time.

A user's rows all fall into one bucket and keep their order of arrival there, so sorting each bucket by (user, step)
gives whole histories in time order with only one bucket in memory.

A `Scatter` writes rows as they arrive: one file a bucket, slices of Arrow one after another. `Slices` says where they
are. `sort_disk_store_bucket` loads what one or several writers wrote to a bucket, and writes the histories as a part.
One process does both here; several do it in `parallel_read`.

Scratch: a private temporary folder that goes away with whatever holds it, or when the program ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Ints
from newcomer.errors import LogsError
from newcomer.logs.candidates import Candidates
from newcomer.logs.histories import Histories, Limits, Rows, arrange_histories, concatenate_histories
from newcomer.users import mix_user_hashes

TASKS = (1, 2, 4, 6, 8, 12, 24)  # that a pass is dealt out in: two, three or four workers, and more, share them evenly
OPEN = 256 << 20  # bytes of parts that a worker keeps mapped
FEWEST, MOST = 100_000, 2_000_000  # rows of a task
LEAST = 0.02  # of a task that is worth opening another part for


class Piece(NamedTuple):
    """Users `first` to `last` (excluded) of a part: what becomes one batch."""

    part: int
    first: int
    last: int


Dealt = tuple[list[tuple[Piece, ...]], list[int]]  # a pass in tasks, and the rows of each


class DiskStore:
    """Parts in a folder, in a fixed order: where `Logs` of several processes take histories from.

    The folder is removed with the `scratch` that made it; copies in other processes have none.
    """

    def __init__(
        self, folder: Path, names: Iterable[str], *, limits: Limits | None = None, scratch: Scratch | None = None
    ) -> None:
        self.folder, self.names, self.limits, self._scratch = folder, tuple(names), limits, scratch
        self._open: dict[int, Histories] = {}  # parts that a worker has open, the last used last
        self._dealt: dict[tuple[int, int], Dealt] = {}  # passes by size of batch

    @classmethod
    def holding(cls, parts: Iterable[Histories], scratch: Scratch, limits: Limits | None) -> DiskStore:
        """Write parts that are elsewhere to a new folder."""
        names = []
        for number, part in enumerate(parts):
            names.append(f"part-{number}")
            save_disk_store_part(part, scratch.path / names[-1])
        return cls(scratch.path, names, limits=limits, scratch=scratch)

    def part(self, number: int) -> Histories:
        """One part. The last few stay open: where there are few, a pass over them costs no opening."""
        part = self._open.pop(number, None) or load_disk_store_part(self.folder / self.names[number])
        self._open[number] = part
        while len(self._open) > 1 and sum(map(_bytes, self._open.values())) > OPEN:
            del self._open[next(iter(self._open))]
        return part

    def parts(self) -> Iterator[Histories]:
        """All parts, one at a time."""
        self._check_open()
        for number in range(len(self.names)):
            yield load_disk_store_part(self.folder / self.names[number])

    def tasks(self, rows: int, dim: int, total: int) -> Dealt:
        """The pass in tasks, each some pieces of about `rows` rows at most; and how many of the `total` rows each has.

        A task is large enough that adding up its d x d sums costs little beside computing them. How the pass is dealt
        out depends on the logs and on nothing else: so does the rounding of what is added up.
        """
        self._check_open()
        count = _disk_store_tasks(total, dim)
        if (rows, count) not in self._dealt:
            self._dealt[rows, count] = self._deal(min(rows, -(-total // count)), count, total)
        return self._dealt[rows, count]

    def _deal(self, rows: int, count: int, total: int) -> Dealt:
        """Every task has the rows of its share of the whole, wherever parts end."""
        share, begun = total / count, 0
        tasks: list[list[Piece]] = [[] for _ in range(count)]
        counts = [0] * count
        for number, name in enumerate(self.names):
            offsets: Ints = np.load(self.folder / name / "offsets.npy", allow_pickle=False)
            for first, last in pairwise(_crossings(offsets, begun, share)):
                size = int(offsets[last] - offsets[first])
                task = min(int((begun + offsets[first] + size / 2) / share), count - 1)
                ends = _even_store_cuts(offsets[first : last + 1] - offsets[first], rows)
                tasks[task] += [Piece(number, first + a, first + b) for a, b in pairwise(ends)]
                counts[task] += size
            begun += int(offsets[-1])
        return [tuple(pieces) for pieces in tasks if pieces], [held for held in counts if held]

    def _check_open(self) -> None:
        if self._scratch is not None and not self._scratch.alive:
            raise LogsError("these logs are closed", todo="read them again")

    def close(self) -> None:
        """Remove the folder, if it is ours."""
        if self._scratch is not None:
            self._scratch.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scratch": None, "_open": {}, "_dealt": {}}


def _disk_store_tasks(rows: int, dim: int) -> int:
    """How many tasks a pass over so many rows of d features is dealt out in.

    >>> _disk_store_tasks(430_000, 5), _disk_store_tasks(20_000_000, 50), _disk_store_tasks(10**9, 50)
    (4, 24, 504)
    """
    many = TASKS[-1]
    if rows > many * MOST:
        return many * -(-rows // (many * MOST))
    return max(count for count in TASKS if count == 1 or count * max(FEWEST, 16 * dim) <= rows)


def _even_store_cuts(offsets: Ints, rows: int) -> list[int]:
    """Where histories are cut into pieces of equal size, about `rows` rows or less: positions of users, ends included.

    >>> _even_store_cuts(np.array([0, 2, 4, 6, 8, 9]), 6)
    [0, 3, 5]
    """
    total = int(offsets[-1])
    count = max(1, -(-total // rows))
    inner = np.searchsorted(offsets, total * np.arange(1, count) / count)
    return sorted({0, *inner.tolist(), len(offsets) - 1})


def _crossings(offsets: Ints, begun: int, share: float) -> list[int]:
    """The users of a part at whom one task ends and the next begins, ends of the part included; `begun` rows before.

    A task that would get next to nothing of a part leaves that to its neighbour.
    """
    size = int(offsets[-1])
    marks = share * np.arange(begun // share + 1, (begun + size) // share + 1) - begun
    inner = marks[(marks > LEAST * share) & (marks < size - LEAST * share)]
    return sorted({0, *np.searchsorted(offsets, inner).tolist(), len(offsets) - 1})


def _bytes(part: Histories) -> int:
    return sum(column.nbytes for column in part.columns().values())


def save_disk_store_part(part: Histories, folder: Path) -> None:
    """Write sorted histories, all or nothing."""
    arrays = {"hashes": part.hashes, "offsets": part.offsets, **part.columns()}
    if part.candidates is not None:
        arrays |= {"candidates": part.candidates.actions, "candidates-offsets": part.candidates.offsets}
    counted = np.array([part.ties, part.clipped], dtype=np.int64)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        beside.mkdir(mode=0o700)
        for name, array in {**arrays, "counted": counted}.items():
            np.save(beside / f"{name}.npy", array, allow_pickle=False)
        with (beside / "users.arrow").open("wb") as file:
            part.users.to_frame("users").write_ipc(file)
        if not folder.exists():
            os.rename(beside, folder)
    except OSError as error:
        raise no_disk_room(folder.parent, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load_disk_store_part(folder: Path) -> Histories:
    """A part, its arrays mapped into memory."""
    # A mapped array is of a class of its own, for which loops would be compiled again: a plain view of it is not.
    arrays: dict[str, Any]
    arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False)) for file in folder.glob("*.npy")}
    if "candidates" in arrays:
        arrays["candidates"] = Candidates(arrays.pop("candidates-offsets"), arrays["candidates"])
    ties, clipped = arrays.pop("counted").tolist()
    return Histories(users=pl.read_ipc(folder / "users.arrow")["users"], ties=ties, clipped=clipped, **arrays)


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
            raise no_disk_room(self._folder, error) from error
        self._sizes[bucket].append(buffer.tell())

    def _file(self, bucket: int) -> Path:
        return self._folder / f"rows-{bucket}-{self._token}"


def sort_disk_store_bucket(written: Sequence[Slices], folder: Path, limits: Limits | None) -> Histories:
    """The histories of a bucket, in which several writers wrote in this order; they are kept as the part `folder`.

    What was sorted before is not sorted again, and rows are removed once they are.
    """
    if not folder.exists():
        save_disk_store_part(
            arrange_histories(concatenate_histories([rows for one in written for rows in _load(one)]), limits), folder
        )
    for one in written:
        one.file.unlink(missing_ok=True)
    return load_disk_store_part(folder)


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
    """Rows on their way to a disk store, in a private folder that is removed with it, or when the program ends."""

    def __init__(self, buckets: int) -> None:
        self._scratch = Scratch()
        self._scatter = Scatter(self._scratch.path, buckets)

    def add(self, rows: Rows) -> None:
        """Append rows to the buckets of their users."""
        self._scatter.add(rows)

    def sort(self, limits: Limits | None = None) -> Iterator[Histories]:
        """Sort every bucket once, keep the result on disk instead of the rows, and show it; rewards within limits."""
        for bucket, written in self._scatter.slices().items():
            yield sort_disk_store_bucket([written], self._scratch.path / f"part-{bucket}", limits)

    def store(self, limits: Limits | None = None) -> DiskStore:
        """Where the sorted histories are, once all are."""
        names = [f"part-{bucket}" for bucket in self._scatter.slices()]
        return DiskStore(self._scratch.path, names, limits=limits, scratch=self._scratch)

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
        hashes = mix_user_hashes(users.to_numpy().view(np.uint64))
    return (hashes % np.uint64(buckets)).astype(np.uint16)


TRIES, PAUSE = 20, 0.05  # to remove a folder, and the seconds between them


class Scratch:
    """A folder that only its owner may read, until `close`, until no object refers to this one, or until the end.

    It is made `below` a folder, or where temporary files go.
    """

    def __init__(self, below: Path | None = None) -> None:
        where = below or Path(tempfile.gettempdir())
        self.path = where.absolute() / f"newcomer-{secrets.token_hex(8)}"
        self._remove = weakref.finalize(self, _remove, self.path)  # before it is there: an interrupt may come between
        try:
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise no_disk_room(where, error) from error

    @property
    def alive(self) -> bool:
        """Whether the folder is still there."""
        return bool(self._remove.alive)

    def close(self) -> None:
        """Remove the folder."""
        self._remove()


def _remove(folder: Path) -> None:
    """Remove a folder, in which a worker that has not heard of its end yet may still be writing.

    Once the folder is gone, whatever is written next fails. An interrupt waits until then.
    """
    interrupt = None
    for _ in range(TRIES):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(PAUSE)
        except KeyboardInterrupt as told:
            interrupt = told
    if interrupt is not None:
        raise interrupt


def no_disk_room(folder: Path, error: OSError) -> LogsError:
    """The error for temporary files that cannot be written."""
    todo = "free some space, or let TMPDIR name a folder that has more"
    return LogsError(f"cannot write temporary files: {error.strerror}", where=str(folder), todo=todo)
