"""Run: how a fit, a check, an evaluation or a report is carried out, apart from what it computes.

Workers, checkpoints and callbacks for progress change no number. They stand together in one record, so that the
arguments of `fit` are the mathematics alone: `fit(logs, rank=2, run=nc.Run(workers=2, checkpoint="fit.partial"))`.

Checkpoint of a fit: what its passes over the logs gave, kept on disk until the fit is done.

A fit is a function of its settings and of what its passes give, and of nothing else. So a fit that was interrupted is
resumed by making it again, with the finished passes taken from the checkpoint: the same answer to the bit, for the time
of the passes that are missing. Each pass is kept with a hash of what was asked; from the first that was
asked for something else, none is taken.

The checkpoint knows its logs and settings (`identity`) and refuses others. Where it cannot be written, the fit goes on
without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import warn

from newcomer.errors import LogsError, ModelError, NewcomerError
from newcomer.files import read_file, write_file
from newcomer.serialize import deserialize_record, serialize_record, serialized_digest
from newcomer.validate import validate_callback, validate_flag, validate_instance, validate_path, validate_whole

if TYPE_CHECKING:
    from newcomer.em.passes import Progress
    from newcomer.logs.logs import Logs


NAMES = {"journal": "checkpoint"}  # what keywords of before are called in a `Run`


@dataclass(frozen=True, kw_only=True)
class Run:
    """How to run a fit, a check or an evaluation; nothing here changes its result.

    Parameters
    ----------
    workers : processes that read the logs, a core each; None or 1: this process alone. Logs that are already on an
        engine (`Logs.on`, `read_logs(engine=)`) stay on it. Two workers or ten give the same numbers; one process the
        same up to rounding.
    checkpoint : a folder that keeps the results of the passes of a fit until it is done. An interrupted fit leaves it.
    resume : take the passes that the checkpoint holds, and make only the others; the answer is the same. Other logs
        are refused.
    moments : a file to save SOLD's moments in, for a later `start`. Moments of few users reveal single users.
    progress : called with (done, total): rows of each pass of a fit, units of work of an evaluation.
    listen : called after each pass of EM with the number of passes, the stage, the log-likelihood per row, and whether
        the pass was over a sample of the users.

    >>> Run(workers=2).workers
    2
    """

    workers: int | None = None
    checkpoint: str | PathLike[str] | None = None
    resume: bool = False
    moments: str | PathLike[str] | None = None
    progress: Callable[[int, int], None] | None = None
    listen: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            validate_whole(self.workers, "workers", kind=ModelError)
        validate_flag(self.resume, "resume", kind=ModelError)
        for name in ("progress", "listen"):
            validate_callback(getattr(self, name), name, kind=ModelError)
        for name in ("checkpoint", "moments"):
            if getattr(self, name) is not None:
                validate_path(getattr(self, name), name, kind=ModelError)
        if self.resume and self.checkpoint is None:
            raise ModelError("there is nothing to resume from", todo="name the folder, nc.Run(checkpoint=)")

    @classmethod
    def asked(cls, run: Run | None, *, who: str, **before: Any) -> Run:
        """The run of a call, by `run=` or by keywords of `before`, which are warned of once a call."""
        named = {name: value for name, value in before.items() if value is not None and value is not False}
        if run is None and named:
            new = ", ".join(f"{NAMES.get(name, name)}=..." for name in named)
            what = f"{who}: pass run=nc.Run({new}) in place of {', '.join(named)}, which the next release removes"
            warn(what, FutureWarning, stacklevel=3)
        if run is None:
            return cls(**{NAMES.get(name, name): value for name, value in named.items()})
        validate_instance(run, cls, "run", todo="pass nc.Run(workers=..., progress=...)", kind=ModelError)
        if named:
            raise ModelError(f"{who} was given {', '.join(named)} beside run=", todo="put everything into nc.Run")
        return run

    def for_reading(self, who: str) -> Run:
        """Itself, for something that is no single fit: what only a fit can do with a run is refused."""
        for name in ("checkpoint", "moments", "listen"):
            if getattr(self, name) is not None:
                raise ModelError(f"{who} has no {name}", todo=f"leave {name}= out of nc.Run, or fit with it")
        return self

    @contextmanager
    def kept(self, logs: Logs, identity: dict[str, Any]) -> Iterator[Logs]:
        """The logs with passes kept in the checkpoint, if there is one, under what the fit is.

        It is left behind where resuming would help: by what interrupts a fit, or ends a pass of it.
        """
        if self.checkpoint is None:
            yield logs
            return

        folder = Path(self.checkpoint)
        try:
            book = Checkpoint(folder, identity, resume=self.resume)
        except OSError as error:
            what = f"the passes of the fit cannot be saved here: {error.strerror}"
            raise ModelError(what, where=str(folder), todo="name another folder, nc.Run(checkpoint=)") from error
        try:
            yield logs.with_checkpoint(book)
        except Exception:
            if not book.broken:
                book.remove()
            raise
        book.remove()


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
        _, facts = deserialize_record(read_file(first), KIND, where=str(first))
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
            answer, facts = deserialize_record(read_file(file), KIND, where=str(file))
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
            data = serialize_record(KIND, answer, {"identity": self.identity, "asked": asked})
            if len(data) <= LARGEST:
                self.folder.mkdir(mode=0o700, exist_ok=True)
                write_file(file, data)
        except TypeError:  # no record: it is made again
            return
        except (NewcomerError, OSError):
            self._writing = False

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:04d}.{KIND}"


def _described(work: Callable[..., Any]) -> str | None:
    """A hash of what is asked of a pass, None where it has none: such a pass is not kept."""
    try:
        return serialized_digest(work)
    except (TypeError, AttributeError):
        return None
