"""Checkpoint of a fit: what its passes over the logs gave, kept on disk until the fit is done.

A fit is a function of its settings and of what its passes give, and of nothing else. So a fit that was interrupted is
resumed by making it again, with the finished passes taken from the checkpoint: the same answer to the bit, for the time
of the passes that are missing. Each pass is kept with a hash of what was asked; from the first that was
asked for something else, none is taken.

The checkpoint knows its logs and settings (`identity`) and refuses others. Where it cannot be written, the fit goes on
without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from newcomer.errors import LogsError, ModelError, NewcomerError
from newcomer.files import read, write
from newcomer.serialize import digest_of, pack_record, unpack_record

Partial = TypeVar("Partial")
KIND = "pass"
LARGEST = 1 << 28  # bytes of what is kept of a pass: what is larger is computed again


class Checkpoint:
    """The passes of one fit in a folder. `begin` empties it; `resume` goes on where an earlier fit ended."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self.folder, self.identity = folder, dict(identity)
        self.count = 0  # passes asked for
        self.taken = 0  # of these, from the checkpoint
        self.broken = False  # whether a pass ended in an error
        self._reading, self._writing = resume and folder.is_dir(), True
        if self._reading:
            self._check()
        else:
            self.remove()

    def pass_over(self, work: Callable[..., Any], made: Callable[[], Partial]) -> Partial:
        """What a pass with this map gave, or gives now: `made` makes it."""
        self.count += 1
        file, asked = self._file(self.count), _described(work)
        if self._reading and asked and (found := self._found(file, asked)) is not None:
            self.taken += 1
            kept: Partial = found[0]
            return kept
        self.broken = True
        answer = made()
        self.broken = False
        if asked:
            self._keep(file, answer, asked)
        return answer

    def remove(self) -> None:
        """Forget all passes."""
        if self._file(1).exists() or (self.folder.is_dir() and not any(self.folder.iterdir())):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _check(self) -> None:
        """Refuse the passes of other logs, or of other settings."""
        first = self._file(1)
        if not first.exists():
            return
        _, facts = unpack_record(read(first), KIND, where=str(first))
        for name, value in self.identity.items():
            if facts["identity"].get(name) != value:
                what = "the logs have changed since" if name == "fingerprint" else f"another {name} was asked for then"
                todo = "fit without resuming, from the beginning"
                raise LogsError(f"these passes cannot be resumed: {what}", where=str(self.folder), todo=todo)

    def _found(self, file: Path, asked: str) -> tuple[Any] | None:
        """What a file has kept, if it is what is asked for now; from the first that is not, nothing is taken."""
        if not file.exists():
            return None
        try:
            answer, facts = unpack_record(read(file), KIND, where=str(file))
        except ModelError:  # cut short when the fit was
            return None
        if facts["identity"] == self.identity and facts["asked"] == asked:
            return (answer,)
        self._reading = False
        return None

    def _keep(self, file: Path, answer: object, asked: str) -> None:
        if not self._writing:
            return
        try:
            data = pack_record(KIND, answer, {"identity": self.identity, "asked": asked})
            if len(data) <= LARGEST:
                self.folder.mkdir(mode=0o700, exist_ok=True)
                write(file, data)
        except TypeError:  # no record: it is made again
            return
        except (NewcomerError, OSError):
            self._writing = False

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:04d}.{KIND}"


def _described(work: Callable[..., Any]) -> str | None:
    """A hash of what is asked of a pass, None where it cannot be told: such a pass is not kept."""
    try:
        return digest_of(work)
    except (TypeError, AttributeError):
        return None
