"""Every figure of the paper, and every study past it, by id, and the run that makes some: fits, what depends on them, pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from newcomer.errors import NewcomerError, nearest
from newcomer.experiments import (
    attributes,
    eigenvalues,
    geometry,
    insufficiency,
    logger,
    movielens,
    overview,
    replaying,
    samples,
    simulation,
)
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.registry import STUDIES
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import slow_first
from newcomer.experiments.places import Setting
from newcomer.experiments.pool import Crew, Progress
from newcomer.experiments.scale import Scale
from newcomer.worlds.download import cache_folder, find_movielens
from newcomer.worlds.movielens_standin import write_standin

_MODULES = (
    overview,
    eigenvalues,
    simulation,
    movielens,
    samples,
    geometry,
    insufficiency,
    logger,
    replaying,
    attributes,
)
FIGURES: dict[str, Figure] = {figure.name: figure for module in _MODULES for figure in module.FIGURES}
EVERYTHING = {**FIGURES, **STUDIES}


@dataclass(frozen=True)
class Made:
    """A finished figure."""

    figure: Figure
    picture: Path
    table: Path


def chosen(names: Sequence[str]) -> list[Figure]:
    """The figures of these ids, each once, in the order of the catalogue; `all`, or nothing, is all figures of the paper."""
    for name in names:
        if name not in EVERYTHING and name != "all":
            raise NewcomerError(f"there is no figure '{name}'{nearest(name, EVERYTHING)}", todo="--list shows all ids")
    if not names or "all" in names:
        return list(FIGURES.values())
    return [figure for name, figure in EVERYTHING.items() if name in names]


def open_bench(scale: Scale, *, data: Path | None, work: Path | None) -> Bench:
    """The place of work for a scale; made-up ratings are written there if the scale wants them."""
    folder = work or cache_folder() / "reproduce"
    if scale.standin and data is None:
        source = folder / "standin" / "ml-1m"
        source = source if (source / "README").is_file() else write_standin(folder / "standin")
    else:
        source = find_movielens(data)
    setting = Setting(scale.name, str(source.absolute()), str(cache_folder()))
    return Bench.at(folder / scale.name, setting)


def reproduce(
    figures: Sequence[Figure], bench: Bench, *, out: Path, workers: int, progress: Callable[[str], Progress]
) -> list[Made]:
    """Make figures: PNG and CSV in `out`. `progress(stage)` gives a callback for each stage: fits, runs, pictures."""
    scale = bench.setting.sizes
    out.mkdir(parents=True, exist_ok=True)
    with Crew(workers) as crew:
        fits = [fit for figure in figures for fit in figure.fits(scale)]
        bench.do_all(slow_first(fits), crew, progress=progress("fits"))
        jobs = [job for figure in figures for job in figure.jobs(scale, bench)]
        bench.do_all(slow_first(jobs), crew, progress=progress("runs"))
        calls = [(figure.name, str(out), *bench.words) for figure in figures]
        crew.run(_make, calls, progress=progress("pictures"))
    return [Made(figure, out / f"{figure.name}.png", out / f"{figure.name}.csv") for figure in figures]


def _make(name: str, out: str, folder: str, setting: str, identity: str) -> None:
    """Table and picture of one figure, from finished jobs."""
    figure, bench = EVERYTHING[name], Bench.from_words(folder, setting, identity)
    frame = figure.table(bench.setting.sizes, bench)
    frame.write_csv(Path(out, f"{name}.csv"))
    figure.draw(frame, Path(out, f"{name}.png"))
