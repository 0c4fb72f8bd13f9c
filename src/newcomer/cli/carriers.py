"""Who carries out a fit: this process alone, several of this machine, or a cluster, as the options say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from newcomer.logs.carrying import Engine

ENGINES = ("local", "dask")


def check(engine: str, scheduler: str | None, workers: int | None) -> None:
    """Refuse options that contradict each other, before any file is read."""
    if engine not in ENGINES:
        raise typer.BadParameter(f"the engine is one of {', '.join(ENGINES)}, not '{engine}'", param_hint="--engine")
    if scheduler is not None and engine != "dask":
        raise typer.BadParameter("a scheduler is one of --engine dask", param_hint="--scheduler")
    if scheduler is not None and workers is not None:
        raise typer.BadParameter("the cluster has its own number of workers", param_hint="--workers")
    if workers is not None and workers < 1:
        raise typer.BadParameter(f"there must be at least one worker, not {workers}", param_hint="--workers")


@contextmanager
def engine_of(engine: str, scheduler: str | None, workers: int | None) -> Iterator[Engine | None]:
    """The workers that were asked for, ended when the block is left; None where this process will do."""
    if engine == "dask":
        from newcomer.engines.dask import Dask

        with Dask(scheduler, workers=workers) as cluster:
            yield cluster
    elif workers is not None and workers > 1:
        from newcomer.logs.crew import Crew

        with Crew(workers) as crew:
            yield crew
    else:
        yield None
