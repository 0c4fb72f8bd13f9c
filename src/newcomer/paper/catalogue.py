"""Every figure of the paper and every study past it, by id, and the run that makes some of them.

This is the top of the experiments: it knows all figures, so it is here that a worker process finds the computation of
a `Table` job, by the id of its figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from newcomer.errors import NewcomerError, error_name_hint
from newcomer.files import file_errors_told, write_file
from newcomer.logs.workers import WorkerPool
from newcomer.paper import contents
from newcomer.paper.figure import Figure
from newcomer.paper.figures import (
    eigenvalues,
    geometry,
    insufficiency,
    lowdim,
    main,
    movielens,
    privacy,
    readings,
    regret_vs_n,
    replay,
    reward_seeking_logger,
    simulation,
    subspace_error,
    truth,
)
from newcomer.paper.jobs import (
    PLAYS,
    Fit,
    Job,
    JobFolder,
    Play,
    Progress,
    from_text,
    guess,
    in_order,
    kind_of,
    run,
    to_text,
)
from newcomer.paper.performing import perform_fit, perform_play
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies import (
    check_rates,
    exploration,
    hard,
    local_regret,
    outlook,
    people,
    persistence,
    prior_calibration,
    prior_movielens,
    prior_ratings,
    prior_robust,
    prior_subspace,
    prior_users,
    rates,
    repeatability,
    weak_directions,
)
from newcomer.paper.studies import (
    kept as study_kept,
)
from newcomer.paper.worlds.download import cache_folder, find_movielens
from newcomer.paper.worlds.movielens_standin import write_standin

_OF_FIGURES = (
    main,
    eigenvalues,
    simulation,
    movielens,
    lowdim,
    truth,
    subspace_error,
    regret_vs_n,
    geometry,
    insufficiency,
    reward_seeking_logger,
    replay,
    privacy,
)
_OF_STUDIES = (
    prior_subspace,
    prior_movielens,
    prior_users,
    prior_robust,
    prior_calibration,
    prior_ratings,
    local_regret,
    people,
    persistence,
    exploration,
    outlook,
    hard,
    rates,
    weak_directions,
    study_kept,
    check_rates,
    repeatability,
)
FIGURES: dict[str, Figure] = {figure.name: figure for module in _OF_FIGURES for figure in module.FIGURES}
APART: dict[str, Figure] = {figure.name: figure for figure in readings.FIGURES}
STUDIES: dict[str, Figure] = {module.STUDY.name: module.STUDY for module in _OF_STUDIES}
EVERYTHING = FIGURES | APART | STUDIES
# The module of each figure, by its id.
HOMES = {figure.name: module.__name__ for module in (*_OF_FIGURES, readings) for figure in module.FIGURES}
HOMES |= {module.STUDY.name: module.__name__ for module in _OF_STUDIES}
DRAWING = 2.0  # guessed seconds of a picture


@dataclass(frozen=True)
class Made:
    """A finished figure."""

    figure: Figure
    picture: Path
    table: Path


def chosen(names: Sequence[str]) -> list[Figure]:
    """The figures of these ids, each once, in the order of the catalogue.

    `all`, or no id, is all figures of the paper; studies, and figures that take long (`APART`), must be named.

    >>> [figure.name for figure in chosen(["prior-users", "main"])]
    ['main', 'prior-users']
    """
    for name in names:
        if name not in EVERYTHING and name != "all":
            raise NewcomerError(
                f"there is no figure '{name}'{error_name_hint(name, EVERYTHING)}", todo="--list shows all ids"
            )
    if not names or "all" in names:
        return list(FIGURES.values())
    return [figure for name, figure in EVERYTHING.items() if name in names]


def open_folder(scale: Scale, *, data: Path | None, work: Path | None, repeats: int = 0) -> JobFolder:
    """The folder of finished jobs for a scale, in `work` or in the user's cache.

    The full scale needs MovieLens-1M, in `data` or where `find_movielens` looks. The quick scale takes `data` if it is
    given, and writes made-up ratings beside its results if not. With `repeats` studies take the first so many splits or
    worlds of their sweeps: their tables say how many.
    """
    folder = work or cache_folder() / "reproduce"
    if scale.quick and data is None:
        source = folder / "standin" / "ml-1m"
        source = source if (source / "README").is_file() else write_standin(folder / "standin")
    else:
        source = find_movielens(data)
    return JobFolder.at(folder / scale.name, Setting(scale.name, str(source.absolute()), str(cache_folder()), repeats))


def reproduce(
    figures: Sequence[Figure], kept: JobFolder, *, out: Path, workers: int, progress: Callable[[str], Progress]
) -> list[Made]:
    """Make figures: a picture and a table of each in `out`, and one of newcomers where policies are compared.

    There are three stages. Fits come first, because the jobs of regret figures say which radius was found. Then every
    job of every figure that is not in the folder yet, each once however many figures ask for it. Pictures are made
    last, from tables of finished jobs. `progress(stage)` gives the callback of the stages "fits", "runs" and
    "pictures"; the seconds left that it gets are those of all that is still to be done.
    """
    with file_errors_told(out):
        out.mkdir(parents=True, exist_ok=True)
    with WorkerPool(workers) as pool:

        def finish(stage: str, jobs: Sequence[Job], later: float) -> None:
            missing = in_order(kept.missing(jobs))
            kinds, calls = [kind_of(job) for job in missing], [(to_text(job), *kept.words) for job in missing]
            guesses = dict(zip(kinds, map(guess, missing), strict=True))
            run(pool, _work, calls, kinds, progress=progress(stage), guesses=guesses, later=later)

        def runs() -> list[Job]:
            return [job for figure in figures for job in figure.jobs(kept)]

        drawing = DRAWING * len(figures)
        finish(
            "fits",
            [fit for figure in figures for fit in figure.fits(kept.scale)],
            drawing + sum(map(guess, kept.missing(runs()))),
        )
        finish("runs", runs(), drawing)
        names = [figure.name for figure in figures]
        run(pool, _draw, [(name, str(out), *kept.words) for name in names], names, progress=progress("pictures"))
    for figure in figures:
        _note(figure, kept, out)
    return [Made(figure, out / f"{figure.name}.png", out / f"{figure.name}.csv") for figure in figures]


def do(job: Job, kept: JobFolder) -> None:
    """Do one job in this process and keep its result.

    The fit behind a play must be finished. A `Table` job names its figure, whose `run` is called with the job's
    arguments.
    """
    begun = time.process_time()  # not the clock: other work on the machine says nothing about a job
    if isinstance(job, Fit):
        kept.keep(job, perform_fit(job, kept.setting))
    elif isinstance(job, Play):
        kept.keep(job, perform_play(job, kept.setting, kept.model(job.fit) if job.fit else None))
    else:
        own = EVERYTHING[job.figure].run
        assert own is not None
        kept.keep(job, own(kept.setting, **dict(job.arguments)))
    write_file(_clock(kept, job), f"{time.process_time() - begun:.3f}".encode())


def _clock(kept: JobFolder, job: Job) -> Path:
    """The file that has the processor seconds that a job took."""
    return kept.place(job).with_suffix(".seconds")


def _note(figure: Figure, kept: JobFolder, out: Path) -> None:
    """Enter the tables of a figure in the table of contents."""
    clocks = {_clock(kept, job) for job in (*figure.fits(kept.scale), *figure.jobs(kept))}
    seconds = sum(float(clock.read_text()) for clock in clocks if clock.is_file())
    command = f"newcomer reproduce {figure.name}{' --quick' if kept.scale.quick else ''}"
    command += f" --repeats {kept.setting.repeats}" if kept.setting.repeats and figure.run else ""
    for table in (f"{figure.name}.csv", *([f"{figure.name}-newcomers.csv"] if figure.newcomers else [])):
        contents.record(
            out,
            table,
            command=command,
            modules=modules_behind(figure),
            seconds=seconds,
            packages={"newcomer": contents.PACKAGE},
        )


def modules_behind(figure: Figure) -> list[str]:
    """The modules whose code, with all that they import, the tables of a figure rest on."""
    return [HOMES[figure.name], *([PLAYS] if figure.run is None else [])]


def _work(text: str, *words: str) -> None:
    """What a worker does for one job."""
    do(from_text(text), JobFolder.from_words(*words))


def _draw(name: str, out: str, *words: str) -> None:
    """What a worker does for one figure whose jobs are finished: the table and the picture."""
    figure, kept = EVERYTHING[name], JobFolder.from_words(*words)
    rounded = pl.col(pl.Float64).round_sig_figs(figure.digits)
    frame = figure.table(kept).with_columns(rounded)
    write_file(Path(out, f"{name}.csv"), frame.write_csv().encode())
    if figure.newcomers is not None:
        write_file(
            Path(out, f"{name}-newcomers.csv"), figure.newcomers(kept).with_columns(rounded).write_csv().encode()
        )
    figure.draw(frame, Path(out, f"{name}.png"))
