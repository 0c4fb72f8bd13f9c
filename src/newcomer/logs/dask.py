"""Dask: the engine of a cluster. Futures on the contract of `newcomer.logs.workers`, and nothing else of Dask.

What it needs: workers that have newcomer installed, in the client's version, and that see the logs and one folder for
shuffled rows under the same paths as the client (a network file system; on one machine any folder will do). The folder
is made below `folder`, below TMPDIR if none is named, and removed at the end.

A worker that dies is Dask's to replace: what it held is computed again, from files that are still there, because every
task writes under names of its own or all at once. Answers are merged on the cluster in pairs, in an order that depends
on the number of tasks alone, so that the numbers do not depend on who was quick or who died.

Between its processes Dask sends pickles, and anyone who reaches its ports can run code there: use it in a network that
you trust. A cluster that is started here listens on the loopback interface alone.
"""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from newcomer.errors import EngineError, LogsError, MissingExtra
from newcomer.logs.disk_store import Scratch
from newcomer.logs.workers import Engine, Work
from newcomer.validate import validate_whole

Partial = TypeVar("Partial")
PATIENCE = 20.0  # seconds in which a scheduler must answer
# What a cluster of our own would watch of itself, a hundred times a second, for a dashboard that is not there.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}


class Dask(Engine):
    """Workers of a Dask cluster: of the one at `scheduler`, or of one started here with `workers` processes.

    `folder` is seen by client and workers alike, and private files go below it. To be used in a `with` block.
    """

    def __init__(
        self, scheduler: str | None = None, *, workers: int | None = None, folder: str | Path | None = None
    ) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtra.of("dask", purpose="clusters") from error
        count = (os.cpu_count() or 1) if workers is None else workers
        self.workers = validate_whole(count, "workers", todo="ask for at least one", kind=LogsError)
        self._folder = None if folder is None else Path(folder)
        self._own: Scratch | None = None
        self._held: tuple[object, Any] = (self, None)  # what was last given, and where the cluster has it
        with _told("the cluster cannot be reached", scheduler):
            self._cluster = self._start() if scheduler is None else None
            self._client: Any = distributed.Client(  # type: ignore[no-untyped-call]
                self._cluster or scheduler, timeout=PATIENCE, set_as_default=False
            )

    def _start(self) -> Any:
        """A cluster of our own: processes of one thread, reached through the loopback interface."""
        import dask.config
        import distributed

        self._own = self.room()
        with _started(), dask.config.set({"temporary-directory": str(self._own.path), **QUIET}):
            return distributed.LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=self.workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any free port: 8787 may be another cluster's
                local_directory=str(self._own.path),
                silence_logs=logging.CRITICAL,
            )

    def room(self) -> Scratch:
        """A private folder that the workers can open, if `folder` is one."""
        return Scratch(self._folder)

    def visible(self, folder: Path) -> None:
        """Refuse a folder that some worker cannot open and write to."""
        with _told("the workers do not answer", self._client.scheduler.address):
            seen = self._client.run(_opens, str(folder), on_error="ignore")
        blind = [address for address, fine in seen.items() if fine is not True]
        if blind:
            todo = "name a folder of a shared file system that they may write to (folder=, or TMPDIR)"
            raise EngineError(f"the worker {blind[0]} cannot open the client's folder", where=str(folder), todo=todo)

    def answers(self, work: Work[Partial]) -> Iterator[Partial]:
        """What comes of each task, in the order of tasks."""
        futures = self._submit(work)
        try:
            while futures:
                with _told("the cluster failed"):
                    answer = futures[0].result()
                del futures[0]
                yield answer
        finally:
            for future in futures:  # where the caller stopped reading answers
                future.cancel()

    def merged(
        self, work: Work[Partial], merge: Callable[[Partial, Partial], Partial], tell: Callable[[int], None]
    ) -> Partial:
        """What comes of all tasks, merged in pairs on the cluster, and pairs of pairs, until one answer is left."""
        leaves = self._submit(work)
        top = list(leaves)
        while len(top) > 1:
            odd = top[len(top) - len(top) % 2 :]
            pairs = zip(top[::2], top[1::2], strict=False)
            top = [self._client.submit(merge, a, b, pure=False) for a, b in pairs] + odd
        self._hear(leaves, tell)
        with _told("the cluster failed"):
            answer: Partial = top[0].result()
        return answer

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        self._held = (self, None)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._own is not None:
            self._own.close()

    def _submit(self, work: Work[Any]) -> list[Any]:
        """A future for each task. What all tasks share goes to the cluster once, `given` once for many passes."""
        if self._held[0] is not work.given:
            self._held = (work.given, self._send(work.given))
        shared = self._send(work.do)
        return [self._client.submit(_answer, shared, self._held[1], task, pure=False) for task in work.tasks]

    def _send(self, value: object) -> Any:
        """A future of a value: one that is lost with a worker comes back, which scattered data would not."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self._client.submit(pickle.loads, pickle.dumps(value), pure=False)

    def _hear(self, leaves: list[Any], tell: Callable[[int], None]) -> None:
        """Tell of tasks as they end; their answers are let go of, for only the merged ones are asked for."""
        import distributed

        place = {future.key: number for number, future in enumerate(leaves)}
        ended = distributed.as_completed(leaves, loop=self._client.loop)  # type: ignore[no-untyped-call]
        leaves.clear()
        with _told("the cluster failed"):
            for future in ended:
                tell(place[future.key])


def _answer(work: Callable[[Any, Any], Partial], given: object, task: object) -> Partial:
    """What a worker does."""
    return work(given, task)


def _opens(folder: str) -> bool:
    """Whether this process may look into a folder and write to it."""
    return os.path.isdir(folder) and os.access(folder, os.R_OK | os.W_OK | os.X_OK)


@contextmanager
def _started() -> Iterator[None]:
    """Say why processes do not start: Dask's import the script that starts them, and must not start them again."""
    try:
        yield
    except RuntimeError as error:
        todo = "in a script, put what it does below `if __name__ == '__main__':`"
        raise EngineError("the processes of the cluster cannot be started", todo=todo) from error


@contextmanager
def _told(what: str, where: str | None = None) -> Iterator[None]:
    """Turn what Dask raises into one sentence; our own errors come through as they are."""
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        yield
    except KilledWorker as error:
        todo = "give the workers more memory, or read with less (memory=, --memory)"
        raise EngineError("several workers died on the same task", todo=todo) from error
    except (CommClosedError, OSError, TimeoutError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        todo = "check that the scheduler runs and can be reached from here"
        raise EngineError(f"{what}: {reason}", where=where or "", todo=todo) from error
