"""Scratch: a private temporary folder that goes away with whatever holds it, or when the program ends."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from newcomer.errors import LogsError

TRIES, PAUSE = 20, 0.05  # to remove a folder, and the seconds between them


class Scratch:
    """A folder that only its owner may read, until `close`, until nobody holds this object, or until the end.

    It is made `below` a folder, or where temporary files go.
    """

    def __init__(self, below: Path | None = None) -> None:
        where = below or Path(tempfile.gettempdir())
        self.path = where.absolute() / f"newcomer-{secrets.token_hex(8)}"
        self._remove = weakref.finalize(self, _remove, self.path)  # before it is there: an interrupt may come between
        try:
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise no_room(where, error) from error

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


def no_room(folder: Path, error: OSError) -> LogsError:
    """The error for temporary files that cannot be written."""
    todo = "free some space, or let TMPDIR name a folder that has more"
    return LogsError(f"cannot write temporary files: {error.strerror}", where=str(folder), todo=todo)
