"""Processes that share nothing but plain arguments: spawned, one thread each, cancelled together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from newcomer.errors import NewcomerError

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
Progress = Callable[[int, int], None]
Plain = str | int | float | None


def run_all(work: Callable[..., None], calls: Sequence[tuple[Plain, ...]], *, workers: int, progress: Progress) -> None:
    """Call `work` with each of the plain argument lists, in any order, in `workers` processes."""
    if not calls:
        return
    with _one_thread(), ProcessPoolExecutor(min(workers, len(calls)), mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(work, *call) for call in calls}
        try:
            _watch(futures, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
