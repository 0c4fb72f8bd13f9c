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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from newcomer.arrays import Ints
from newcomer.errors import LogsError
from newcomer.logs.intake.histories import Histories, Limits, cuts
from newcomer.logs.intake.scratch import Scratch, no_room
from newcomer.logs.intake.shown_lists import Candidates

TASKS = 16  # that a pass is dealt out in, where the logs are large enough: whatever the number of workers
OPEN = 256 << 20  # bytes of parts that a worker keeps mapped
FEWEST, MOST = 20_000, 2_000_000  # rows of a task


class Piece(NamedTuple):
    """Users `first` to `last` (excluded) of a part: what becomes one batch."""

    part: int
    first: int
    last: int


class Shelf:
    """Parts in a folder, in a fixed order: where `Logs` of several processes take histories from.

    The folder is removed with the `scratch` that made it; the copies of a shelf in other processes have none.
    """

    def __init__(
        self, folder: Path, names: Iterable[str], *, limits: Limits | None = None, scratch: Scratch | None = None
    ) -> None:
        self.folder, self.names, self.limits, self._scratch = folder, tuple(names), limits, scratch
        self._open: dict[int, Histories] = {}  # parts that a worker has open, the last used last

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

    def tasks(self, rows: int, dim: int, total: int) -> tuple[list[tuple[Piece, ...]], list[int]]:
        """The pass in tasks, each some pieces of at most `rows` rows; and how many of the `total` rows each has.

        A task is large enough that adding up its d x d sums costs little beside computing them. How the pass is dealt
        out depends on the logs and on nothing else: so does the rounding of what is added up.
        """
        self._check_open()
        size = min(max(-(-total // TASKS), 16 * dim, FEWEST), MOST)
        tasks: list[tuple[Piece, ...]] = []
        counts: list[int] = []
        pieces: list[Piece] = []
        held = 0
        for number in range(len(self.names)):
            offsets: Ints = np.load(self.folder / self.names[number] / "offsets.npy", allow_pickle=False)
            for first, last in cuts(offsets, min(rows, size)):
                pieces.append(Piece(number, first, last))
                held += int(offsets[last] - offsets[first])
                if 4 * held >= 3 * size:  # pieces end between users, a little short of what was asked for
                    tasks.append(tuple(pieces))
                    counts.append(held)
                    pieces, held = [], 0
        if pieces:
            tasks.append(tuple(pieces))
            counts.append(held)
        return tasks, counts

    def _check_open(self) -> None:
        if self._scratch is not None and not self._scratch.alive:
            raise LogsError("these logs are closed", todo="read them again")

    def close(self) -> None:
        """Remove the folder, if it is ours."""
        if self._scratch is not None:
            self._scratch.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scratch": None, "_open": {}}


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
