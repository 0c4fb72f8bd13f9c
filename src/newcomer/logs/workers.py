"""Engine: who carries out a pass over the logs, where that is not this process alone.

An engine has workers that see one folder, and two ways to use them: `each` for work with an answer per task, `fold` for
answers that are merged into one. What all engines do alike is written here; `WorkerPool` is the engine of this machine
and `newcomer.logs.dask.Dask` that of a cluster.

WorkerPool: worker processes on this machine, the local engine when there is more than one core to use.

A worker is a fresh Python that knows nothing but the package and one end of a socket. It receives what to work on once
a pass (`given` and `work`), then task after task; rows never travel, for a task says where on disk they are. The
workers have one thread each. They end with their parent: when it closes the socket, and at the latest a second after it
is gone. Ctrl-C is the parent's to answer.

A worker that dies is replaced and its task given to another; a task that kills several is given up in one sentence.

What parent and worker tell each other is pickled, as `multiprocessing` does it. The socket is a pair that only these
two processes have, so nothing that came from a file or from a network is ever unpickled.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from newcomer.errors import EngineError, LogsError
from newcomer.logs.disk_store import Scratch
from newcomer.validate import validate_whole

Partial = TypeVar("Partial")
ENOUGH = 200_000  # rows of logs below which starting workers costs more time than they save


@dataclass(frozen=True)
class Work(Generic[Partial]):
    """What is to be done for every task: `do(given, task)`.

    `given` is sent to a worker once, and a task says where the rows are. Tasks that are `alike` take about equally
    long: a worker may then receive its next one before it has ended the last, and never waits for it.
    """

    do: Callable[[Any, Any], Partial]
    tasks: Sequence[Any]
    given: object = None
    alike: bool = False


class Engine(ABC):
    """Workers, to be used in a `with` block or closed."""

    @abstractmethod
    def room(self) -> Scratch:
        """A private folder that this process and the workers can open."""

    @abstractmethod
    def visible(self, folder: Path) -> None:
        """Refuse, in one sentence, a folder that the workers cannot open."""

    @abstractmethod
    def answers(self, work: Work[Partial]) -> Iterator[Partial]:
        """What comes of each task, in the order of tasks."""

    @abstractmethod
    def close(self) -> None:
        """End the workers, if they are ours."""

    def merged(
        self, work: Work[Partial], merge: Callable[[Partial, Partial], Partial], tell: Callable[[int], None]
    ) -> Partial:
        """What comes of all tasks together; here, of one after another."""
        answers = self.answers(work)
        total = next(answers)
        tell(0)
        for number, answer in enumerate(answers, start=1):
            total = merge(total, answer)
            tell(number)
        return total

    def each(
        self, do: Callable[[Any, Any], Partial], tasks: Sequence[Any], *, given: object = None
    ) -> Iterator[Partial]:
        """`do(given, task)` for every task, in the order of tasks; the workers may be ahead of who asks."""
        return self.answers(Work(do, tasks, given))

    def fold(
        self,
        do: Callable[[Any, Any], Partial],
        tasks: Sequence[Any],
        merge: Callable[[Partial, Partial], Partial],
        *,
        given: object = None,
        tell: Callable[[int], None],
    ) -> Partial:
        """What the tasks give, merged in an order that depends on their number alone; `tell` hears of each one done."""
        return self.merged(Work(do, tasks, given, alike=True), merge, tell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
DEATHS = 3  # workers that a task may cost
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from newcomer.logs.workers import _serve_as_worker; "
    "_serve_as_worker(int(sys.argv[1]), int(sys.argv[3]))"
)


class WorkerPool(Engine):
    """`workers` processes, to be used in a `with` block; none is started before there is work."""

    def __init__(self, workers: int) -> None:
        self.workers = validate_whole(workers, "workers", todo="ask for at least one", kind=LogsError)
        self._hands: list[_Worker] = []

    def room(self) -> Scratch:
        """A private folder that the workers can open."""
        return Scratch()

    def visible(self, folder: object) -> None:
        """Whether the workers can open a folder of this machine: they can."""

    def answers(self, work: Work[Partial]) -> Iterator[Partial]:
        """What comes of each task, in the order of tasks; the workers are ahead of who asks."""
        found: dict[int, Partial] = {}
        asked = 0
        with closing(self.as_done(work)) as answers:
            for task, answer in answers:
                found[task] = answer
                while asked in found:
                    yield found.pop(asked)
                    asked += 1

    def as_done(self, work: Work[Partial]) -> Generator[tuple[int, Partial]]:
        """The number of each task and its answer, started in the order of tasks and yielded as they end."""
        desk = _TaskQueue(work)
        try:
            while desk.left:
                self._hire(desk.left)
                for hand in self._hands:
                    desk.supply(hand, len(self._hands))
                for hand, answer in self._heard():
                    if answer is None:
                        self._bury(hand, desk.take_back(hand))
                        continue
                    task = hand.tasks.popleft()
                    desk.left -= 1
                    desk.supply(hand, len(self._hands))  # before the caller works on the answer
                    yield task, _opened(answer)
        finally:  # answers of tasks that still run are not needed any more
            for hand in [hand for hand in self._hands if hand.tasks]:
                self._bury(hand)

    def _heard(self) -> Iterator[tuple[_Worker, bytes | None]]:
        """The first worker with an answer, and the answer: None of a worker that has died."""
        busy = {hand.pipe: hand for hand in self._hands if hand.tasks}
        for pipe in wait(list(busy)):
            hand = busy[pipe]  # type: ignore[index]
            try:
                yield hand, hand.pipe.recv_bytes()
            except (EOFError, OSError):
                yield hand, None

    def close(self) -> None:
        """End the workers."""
        while self._hands:
            self._hands.pop().end()

    def _hire(self, tasks: int) -> None:
        while len(self._hands) < min(self.workers, tasks):
            self._hands.append(_Worker())

    def _bury(self, hand: _Worker, deaths: int = 0) -> None:
        self._hands.remove(hand)
        hand.end()
        if deaths >= DEATHS:
            todo = "free some memory or ask for fewer workers"
            raise EngineError(f"{deaths} worker processes died of the same task", todo=todo)


class _TaskQueue:
    """The tasks of some work: those that wait, how many are left, and how many workers each has cost."""

    def __init__(self, work: Work[Any]) -> None:
        self.work, self.told, self.left = work, pickle.dumps(work.do), len(work.tasks)
        self._waiting = deque(range(self.left))
        self._deaths: Counter[int] = Counter()

    def supply(self, hand: _Worker, hands: int) -> None:
        """Give a worker a task if it has none; and the next as well if tasks are alike and there are enough for all."""
        if self._waiting and not hand.tasks:
            hand.ask(self._waiting.popleft(), self)
        if self.work.alike and len(hand.tasks) == 1 and len(self._waiting) >= hands:
            hand.ask(self._waiting.popleft(), self)

    def take_back(self, hand: _Worker) -> int:
        """The tasks of a worker that has died wait again; how many workers the one it was at has cost."""
        first = hand.tasks[0]
        self._waiting.extendleft(reversed(hand.tasks))
        self._deaths[first] += 1
        return self._deaths[first]


class _Worker:
    """One worker: its process, our end of the socket, the tasks it has (the first it is at), and what it knows."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, str(number), json.dumps(sys.path), str(os.getpid())],
                pass_fds=[number],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal goes to a group
            )
        self.pipe = Connection(ours.detach())
        self.tasks: deque[int] = deque()
        self._told: bytes | None = None
        self._given: object = self  # nothing that anybody would give
        self._kill = weakref.finalize(self, _end, self.process)

    def ask(self, task: int, desk: _TaskQueue) -> None:
        """Send a task, and before it what it is about, if that has changed. A worker that is gone is noticed later.

        What it is about may be large, and is sent to an idle worker, which reads it; a task is a few places on disk.
        """
        self.tasks.append(task)
        try:
            if self._given is not desk.work.given:
                self.pipe.send_bytes(pickle.dumps(("given", desk.work.given)))
                self._given = desk.work.given
            if self._told is not desk.told:
                self.pipe.send_bytes(pickle.dumps(("work", desk.told)))
                self._told = desk.told
            self.pipe.send_bytes(pickle.dumps(("task", desk.work.tasks[task])))
        except OSError:
            pass

    def end(self) -> None:
        """End the process at once: nothing that it holds is needed."""
        self._kill()
        self.pipe.close()


def _opened(answer: bytes) -> Any:
    """What a worker answered; the error that its task ended in is raised."""
    fine, value = pickle.loads(answer)
    if not fine:
        raise value
    return value


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _serve_as_worker(number: int, parent: int) -> None:
    """The life of a worker: answer tasks that come through the socket `number` until `parent` closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    pipe = Connection(number)
    given: Any = None
    work: Any = None
    while True:
        try:
            kind, value = pickle.loads(pipe.recv_bytes())
            if kind == "given":
                given = value
            elif kind == "work":
                work = pickle.loads(value)
            else:
                pipe.send_bytes(_answer(work, given, value))
        except (EOFError, OSError):
            return


def _answer(work: Callable[[Any, Any], object], given: object, task: object) -> bytes:
    """What comes of a task: (True, result), or (False, the error that it ended in)."""
    try:
        return pickle.dumps((True, work(given, task)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised again where the pass was asked for
        try:
            return pickle.dumps((False, pickle.loads(pickle.dumps(error))))
        except Exception:  # noqa: BLE001 - some errors of libraries cannot travel
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _follow(parent: int) -> None:
    """End this process once its parent has, however that happened, also in the middle of a task."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
