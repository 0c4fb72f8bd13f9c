"""Shelf: sorted histories on disk, in parts that any process can open by their path.

A part is a folder: an .npy file for each array of its histories, the ids of its users, and what was counted while it
was sorted. Arrays are mapped into memory, not read, so that a process pays for the rows that it looks at. A part is
written under another name and renamed, so that it is there whole or not at all; whoever writes it a second time finds
that it is there.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from newcomer.arrays import Ints
from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Limits
from newcomer.logs.intake.scratch import Scratch, no_room
from newcomer.logs.intake.shown_lists import Candidates

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


class Shelf:
    """Parts in a folder, in a fixed order: where `Logs` of several processes take histories from.

    The folder is removed with the `scratch` that made it; the copies of a shelf in other processes have none.
    """

    def __init__(
        self, folder: Path, names: Iterable[str], *, limits: Limits | None = None, scratch: Scratch | None = None
    ) -> None:
        self.folder, self.names, self.limits, self._scratch = folder, tuple(names), limits, scratch
        self._open: dict[int, Histories] = {}  # parts that a worker has open, the last used last
        self._dealt: dict[tuple[int, int], Dealt] = {}  # passes by size of batch

    @classmethod
    def holding(cls, parts: Iterable[Histories], scratch: Scratch, limits: Limits | None) -> Shelf:
        """Put parts that are elsewhere on a shelf in a new folder."""
        names = []
        for number, part in enumerate(parts):
            names.append(f"part-{number}")
            save_part(part, scratch.path / names[-1])
        return cls(scratch.path, names, limits=limits, scratch=scratch)

    def part(self, number: int) -> Histories:
        """One part. The last few stay open: where there are few, a pass over them costs no opening."""
        part = self._open.pop(number, None) or load_part(self.folder / self.names[number])
        self._open[number] = part
        while len(self._open) > 1 and sum(map(_bytes, self._open.values())) > OPEN:
            del self._open[next(iter(self._open))]
        return part

    def parts(self) -> Iterator[Histories]:
        """All parts, one at a time."""
        self._check_open()
        for number in range(len(self.names)):
            yield load_part(self.folder / self.names[number])

    def tasks(self, rows: int, dim: int, total: int) -> Dealt:
        """The pass in tasks, each some pieces of about `rows` rows at most; and how many of the `total` rows each has.

        A task is large enough that adding up its d x d sums costs little beside computing them. How the pass is dealt
        out depends on the logs and on nothing else: so does the rounding of what is added up.
        """
        self._check_open()
        count = task_count(total, dim)
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
                ends = even(offsets[first : last + 1] - offsets[first], rows)
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


def task_count(rows: int, dim: int) -> int:
    """How many tasks a pass over so many rows of d features is dealt out in.

    >>> task_count(430_000, 5), task_count(20_000_000, 50), task_count(10**9, 50)
    (4, 24, 504)
    """
    many = TASKS[-1]
    if rows > many * MOST:
        return many * -(-rows // (many * MOST))
    return max(count for count in TASKS if count == 1 or count * max(FEWEST, 16 * dim) <= rows)


def even(offsets: Ints, rows: int) -> list[int]:
    """Where histories are cut into pieces of equal size, about `rows` rows or less: positions of users, ends included.

    >>> even(np.array([0, 2, 4, 6, 8, 9]), 6)
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


def save_part(part: Histories, folder: Path) -> None:
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
        raise no_room(folder.parent, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load_part(folder: Path) -> Histories:
    """A part, its arrays mapped into memory."""
    # A mapped array is of a class of its own, for which loops would be compiled again: a plain view of it is not.
    arrays: dict[str, Any]
    arrays = {file.stem: np.asarray(np.load(file, mmap_mode="r", allow_pickle=False)) for file in folder.glob("*.npy")}
    if "candidates" in arrays:
        arrays["candidates"] = Candidates(arrays.pop("candidates-offsets"), arrays["candidates"])
    ties, clipped = arrays.pop("counted").tolist()
    return Histories(users=pl.read_ipc(folder / "users.arrow")["users"], ties=ties, clipped=clipped, **arrays)
