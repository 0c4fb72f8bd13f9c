"""Processes that share nothing but plain arguments: spawned, one thread each, cancelled together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from types import TracebackType
from typing import Self

from newcomer.errors import NewcomerError

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
Progress = Callable[[int, int], None]
Plain = str | int | float | None


class Crew:
    """Worker processes, to be used in a `with` block; none is started before there is work."""

    def __init__(self, workers: int) -> None:
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_follow)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=error is not None)

    def run(self, work: Callable[..., None], calls: Sequence[tuple[Plain, ...]], *, progress: Progress) -> None:
        """Call `work` with each of the plain argument lists, in any order; returns when all are done."""
        if calls:
            with _one_thread():
                _watch({self._pool.submit(work, *call) for call in calls}, progress)


def _follow() -> None:
    """End this worker when the process that started it ends, however that happens: nobody would wait for its work."""

    def wait_for_the_end() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def _watch(futures: set[Future[None]], progress: Progress) -> None:
    waiting, total = set(futures), len(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                future.result()
            except BrokenProcessPool as error:
                todo = "free some memory or lower --workers; what is finished is kept"
                raise NewcomerError("a worker process died", todo=todo) from error
        progress(total - len(waiting), total)


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
