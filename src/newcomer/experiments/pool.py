"""Worker processes that share nothing but plain arguments: spawned, with one thread each, cancelled together.

Jobs differ in cost by a factor of a thousand, so the share of jobs that are done says nothing about the time left.
Each call therefore has a kind, the calls of which take about as long as each other, and the time left is told only
when every kind that is still to be done has been timed at least once (`time_left`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from types import TracebackType
from typing import Self

from newcomer.errors import NewcomerError
from newcomer.logs.crew import THREADS

Progress = Callable[[int, int, float | None], None]  # calls done, calls in all, seconds left or None if unknown
Plain = str | int | float | None


class Crew:
    """Worker processes, to be used in a `with` block; none is started before there is work.

    They are spawned, not forked: a forked child would share the threads' locks of NumPy and Polars. Leaving the block
    with an error cancels what has not begun.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=error is not None)

    def run(
        self, work: Callable[..., None], calls: Sequence[tuple[Plain, ...]], kinds: Sequence[str], *, progress: Progress
    ) -> None:
        """Call `work` with each of the argument lists, begun in their order; returns when all are done.

        `kinds` says of each call which others take about as long. `progress` is told of every call that ends.
        """
        with _one_thread():
            waiting = {self._pool.submit(_timed, work, *call): kind for call, kind in zip(calls, kinds, strict=True)}
        taken: dict[str, list[float]] = {}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                kind = waiting.pop(future)
                try:
                    taken.setdefault(kind, []).append(future.result())
                except BrokenProcessPool as error:
                    todo = "free some memory or lower --workers; what is finished is kept"
                    raise NewcomerError("a worker process died", todo=todo) from error
            progress(len(calls) - len(waiting), len(calls), time_left(list(waiting.values()), taken, self.workers))


def time_left(waiting: Sequence[str], taken: Mapping[str, Sequence[float]], workers: int) -> float | None:
    """Seconds until the calls of the kinds `waiting` are done, from the seconds `taken` by those of each kind before.

    Each is expected to take the mean of its kind. None while some kind that is waiting has never been timed.

    >>> time_left(["play", "play"], {"play": [3.0, 5.0]}, workers=2)
    4.0
    >>> time_left(["play", "fit"], {"play": [3.0, 5.0]}, workers=2) is None
    True
    """
    if not taken.keys() >= set(waiting):
        return None
    return sum(sum(taken[kind]) / len(taken[kind]) for kind in waiting) / workers


def _timed(work: Callable[..., None], *call: Plain) -> float:
    """What a worker does for one call; the seconds it took."""
    begun = time.perf_counter()
    work(*call)
    return time.perf_counter() - begun


def _follow() -> None:
    """End this worker when the process that started it ends, however that happens: nobody would wait for its work."""

    def wait_for_the_end() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes spawned inside have one thread each: they read the environment when they import NumPy."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
