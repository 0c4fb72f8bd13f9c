"""Run: how a fit, a check, an evaluation or a report is carried out, apart from what it computes.

Workers, checkpoints and who is told of progress change no number. They stand together in one record, so that the
arguments of `fit` are the mathematics alone: `fit(logs, rank=2, run=nc.Run(workers=2, checkpoint="fit.partial"))`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from newcomer import validate
from newcomer.errors import ModelError

if TYPE_CHECKING:
    from newcomer.em.passes import Progress
    from newcomer.logs.logs import Logs


NAMES = {"journal": "checkpoint"}  # what keywords of before are called in a `Run`


@dataclass(frozen=True, kw_only=True)
class Run:
    """How something is run over logs; nothing here changes an answer.

    Parameters
    ----------
    workers : processes that pass over the logs, a core each; None or 1: this one alone. Logs that are already on an
        engine (`Logs.on`, `read_logs(engine=)`) are passed over by it. The numbers do not depend on it but for
        rounding, and not even so on the number of workers beyond one.
    checkpoint : a folder in which the results of passes of a fit are kept until it is done; a fit that was interrupted
        leaves it.
    resume : passes that the checkpoint holds are not made again: the answer is the same. Other logs are refused.
    moments : where a fit keeps SOLD's moments, for a later `start`. Of few users they tell about single ones.
    progress : called again and again with (done, total): rows of each pass of a fit, units of work of an evaluation.
    listen : called after each pass of em with how many there were, at which stage, and the log-likelihood a row; and
        whether it was one over a sample of the users, who choose where there are many.

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
            validate.whole(self.workers, "workers", kind=ModelError)
        validate.flag(self.resume, "resume", kind=ModelError)
        for name in ("progress", "listen"):
            validate.callback(getattr(self, name), name, kind=ModelError)
        for name in ("checkpoint", "moments"):
            if getattr(self, name) is not None:
                validate.location(getattr(self, name), name, kind=ModelError)
        if self.resume and self.checkpoint is None:
            raise ModelError("there is nothing to resume from", todo="name the folder, nc.Run(checkpoint=)")

    @classmethod
    def asked(cls, run: Run | None, *, who: str, **before: Any) -> Run:
        """The run of a call, by `run=` or by keywords of `before`, which are warned of once a call."""
        named = {name: value for name, value in before.items() if value is not None and value is not False}
        if run is None and named:
            new = ", ".join(f"{NAMES.get(name, name)}=..." for name in named)
            what = f"{who}: pass run=nc.Run({new}) in place of {', '.join(named)}, which the next release does not take"
            warn(what, FutureWarning, stacklevel=3)
        if run is None:
            return cls(**{NAMES.get(name, name): value for name, value in named.items()})
        validate.instance(run, cls, "run", todo="pass nc.Run(workers=..., progress=...)", kind=ModelError)
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
        from newcomer.logs.checkpoint import Checkpoint

        folder = Path(self.checkpoint)
        try:
            book = Checkpoint(folder, identity, resume=self.resume)
        except OSError as error:
            what = f"passes cannot be kept here: {error.strerror}"
            raise ModelError(what, where=str(folder), todo="name another folder, nc.Run(checkpoint=)") from error
        try:
            yield logs.with_checkpoint(book)
        except Exception:
            if not book.broken:
                book.remove()
            raise
        book.remove()
