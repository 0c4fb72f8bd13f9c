"""Who carries out a fit, and what it starts from, as the options say.

A fit is carried out by this process alone, by several of this machine, or by a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from newcomer.logs.carrying import Engine
    from newcomer.model import Model
    from newcomer.refitting import Past

ENGINES = ("local", "dask")
SUFFIX = ".moments"  # of the file that --from looks for beside a model of sold


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


def start_of(path: Path | None, estimator: str, old: str | None) -> Model | Past | None:
    """What `--from` names: a model for em; for sold its moments, a file of that name or one beside the model."""
    if path is None:
        if old is not None:
            raise typer.BadParameter("old logs go with a model to start --from", param_hint="--old")
        return None
    from newcomer.model import load
    from newcomer.refitting import Past

    if estimator == "em":
        return load(path)
    if old is not None:
        raise typer.BadParameter("sold adds to moments, and needs no old logs", param_hint="--old")
    beside = path if path.suffix == SUFFIX else path.with_suffix(SUFFIX)
    if not beside.exists():
        todo = f"{beside} is not there: keep moments with --moments {beside.name} when {path.name} is fitted"
        raise typer.BadParameter(todo, param_hint="--from")
    return Past.load(beside)


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
