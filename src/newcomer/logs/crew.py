"""Crew: worker processes on this machine, the local engine when there is more than one core to use.

A worker is a fresh Python that knows nothing but the package and one end of a socket. It is told what to work on once
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
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from newcomer import arguments
from newcomer.errors import EngineError, LogsError
from newcomer.logs.carrying import Closing
from newcomer.logs.intake.scratch import Scratch

Partial = TypeVar("Partial")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
DEATHS = 3  # workers that a task may cost
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from newcomer.logs.crew import serve; "
    "serve(int(sys.argv[1]), int(sys.argv[3]))"
)


class Crew(Closing):
    """`workers` processes, to be used in a `with` block; none is started before there is work."""

    def __init__(self, workers: int) -> None:
        self.workers = arguments.whole(workers, "workers", todo="ask for at least one", kind=LogsError)
        self._hands: list[_Hand] = []

    def room(self) -> Scratch:
        """A private folder that the workers can open."""
        return Scratch()

    def visible(self, folder: object) -> None:
        """Whether the workers can open a folder of this machine: they can."""

    def each(
        self, work: Callable[[Any, Any], Partial], tasks: Sequence[Any], *, given: object = None
    ) -> Iterator[Partial]:
        """`work(given, task)` for every task, in the order of tasks; the workers are ahead of who asks."""
        found: dict[int, Partial] = {}
        asked = 0
        with closing(self.as_done(work, tasks, given=given)) as answers:
            for task, answer in answers:
                found[task] = answer
                while asked in found:
                    yield found.pop(asked)
                    asked += 1

    def as_done(
        self, work: Callable[[Any, Any], Partial], tasks: Sequence[Any], *, given: object = None
    ) -> Generator[tuple[int, Partial]]:
        """The number of each task and its answer, begun in the order of tasks and told as they end."""
        told, waiting = pickle.dumps(work), deque(range(len(tasks)))
        deaths = dict.fromkeys(waiting, 0)
        left = len(tasks)
        try:
            while left:
                self._hire(left)
                for hand in self._hands:
                    if hand.task is None and waiting:
                        hand.ask(waiting.popleft(), tasks, told, given)
                busy = {hand.pipe: hand for hand in self._hands if hand.task is not None}
                for pipe in wait(list(busy)):
                    hand = busy[pipe]  # type: ignore[index]
                    task, hand.task = hand.task, None
                    assert task is not None
                    try:
                        fine, answer = pickle.loads(hand.pipe.recv_bytes())
                    except (EOFError, OSError):
                        deaths[task] += 1
                        self._bury(hand, deaths[task])
                        waiting.appendleft(task)
                        continue
                    if not fine:
                        raise answer
                    left -= 1
                    if waiting:  # before whoever asked works on the answer
                        hand.ask(waiting.popleft(), tasks, told, given)
                    yield task, answer
        finally:  # whoever is still at work works for nobody now
            for hand in [hand for hand in self._hands if hand.task is not None]:
                self._bury(hand)

    def fold(
        self,
        work: Callable[[Any, Any], Partial],
        tasks: Sequence[Any],
        merge: Callable[[Partial, Partial], Partial],
        *,
        given: object = None,
        tell: Callable[[int], None],
    ) -> Partial:
        """What the tasks give, merged in their order; `tell` hears of the tasks that are done."""
        answers = self.each(work, tasks, given=given)
        total = next(answers)
        tell(0)
        for number, answer in enumerate(answers, start=1):
            total = merge(total, answer)
            tell(number)
        return total

    def close(self) -> None:
        """End the workers."""
        while self._hands:
            self._hands.pop().end()

    def _hire(self, tasks: int) -> None:
        while len(self._hands) < min(self.workers, tasks):
            self._hands.append(_Hand())

    def _bury(self, hand: _Hand, deaths: int = 0) -> None:
        self._hands.remove(hand)
        hand.end()
        if deaths >= DEATHS:
            todo = "free some memory or ask for fewer workers"
            raise EngineError(f"{deaths} worker processes died of the same task", todo=todo)


class _Hand:
    """One worker: its process, our end of the socket, the task it is at (None: idle), and what it knows already."""

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
        self.task: int | None = None
        self._told: bytes | None = None
        self._given: object = self  # nothing that anybody would give
        self._kill = weakref.finalize(self, _end, self.process)

    def ask(self, task: int, tasks: Sequence[Any], told: bytes, given: object) -> None:
        """Send a task, and before it what it is about, if that has changed. A worker that is gone is noticed later."""
        self.task = task
        try:
            if self._given is not given:
                self.pipe.send_bytes(pickle.dumps(("given", given)))
                self._given = given
            if self._told is not told:
                self.pipe.send_bytes(pickle.dumps(("work", told)))
                self._told = told
            self.pipe.send_bytes(pickle.dumps(("task", tasks[task])))
        except OSError:
            pass

    def end(self) -> None:
        """End the process at once: nothing that it holds is needed."""
        self._kill()
        self.pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def serve(number: int, parent: int) -> None:
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
