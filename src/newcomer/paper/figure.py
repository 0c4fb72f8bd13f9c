"""What a figure is: the jobs it needs, the table it shows, how the table is drawn.

The table is the CSV in the results, and the picture is drawn from it alone. There are two ways to make a figure:
`swept`, below, from a sweep of parameters and a computation at each of them, and `newcomer.paper.lines.played`,
from policies that play.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from newcomer.paper.jobs import Fit, Job, JobFolder, Scalar, TableJob
from newcomer.paper.scale import Scale

Draw = Callable[[pl.DataFrame, Path], Path]
# A point of a sweep is the arguments of one computation by name; a run is called with the setting and a point.
Point = Mapping[str, Scalar]
Run = Callable[..., pl.DataFrame]


@dataclass(frozen=True)
class Figure:
    """One figure of the results.

    `claim` is the paper's, in one line; `caption` says what the paper does not state. `fits` are done before `jobs`
    are asked for, since the jobs of some figures depend on the radii found; `table` puts finished jobs together, its
    numbers are kept to so many significant `digits`, and `draw` makes the PNG of it. `run` is the computation behind
    the figure's own `Table` jobs. `newcomers` has what each newcomer got by each line, a column each, where policies
    are compared: newcomer by newcomer, since all policies meet the same ones.
    """

    name: str
    claim: str
    caption: Callable[[Scale], str]
    fits: Callable[[Scale], Sequence[Fit]]
    jobs: Callable[[JobFolder], Sequence[Job]]
    table: Callable[[JobFolder], pl.DataFrame]
    draw: Draw
    run: Run | None = None
    digits: int = 5
    newcomers: Callable[[JobFolder], pl.DataFrame] | None = None


def swept(
    name: str,
    *,
    claim: str,
    caption: Callable[[Scale], str],
    sweep: Callable[[Scale], Sequence[Point]],
    run: Run,
    table: Callable[[pl.DataFrame], pl.DataFrame],
    draw: Draw,
    digits: int = 5,
) -> Figure:
    """A figure from one computation at every point of a sweep.

    `sweep` gives the points as plain arguments, `run(setting, **point)` the rows of one point, and `table` makes of
    the rows of all points what is kept. Points whose job is not finished are left out: the table of a long study can
    be made before its end.
    """

    def jobs(kept: JobFolder) -> list[TableJob]:
        repeats = kept.setting.repeats
        points = [point for point in sweep(kept.scale) if not repeats or int(point.get("seed") or 0) <= repeats]
        return [TableJob(name, tuple(point.items()), run.__module__) for point in points]

    def whole(kept: JobFolder) -> pl.DataFrame:
        done = [job for job in jobs(kept) if kept.place(job).is_file()]
        return table(pl.concat([kept.rows(job) for job in done], how="vertical_relaxed"))

    return Figure(name, claim, caption, lambda scale: [], jobs, whole, draw, run, digits)


def study(
    name: str,
    *,
    claim: str,
    about: str | None,
    sweep: Callable[[Scale], Sequence[Point]],
    run: Run,
    table: Callable[[pl.DataFrame], pl.DataFrame],
    draw: Draw,
) -> Figure:
    """A measurement past the paper: a swept figure whose numbers have four digits.

    `about` is the docstring of its module, which says what was done and serves as the caption.
    """
    caption = " ".join((about or "").split())
    return swept(
        name, claim=claim, caption=lambda scale: caption, sweep=sweep, run=run, table=table, draw=draw, digits=4
    )


def data_sets(worlds: Iterable[str], sizes: Iterable[int], repeats: int) -> list[Point]:
    """The points of a sweep over worlds, numbers of offline users and data sets, whose seeds count from 1.

    >>> data_sets(["simulation"], [250, 500], 1)
    [{'world': 'simulation', 'users': 250, 'seed': 1}, {'world': 'simulation', 'users': 500, 'seed': 1}]
    """
    seeds = range(1, repeats + 1)
    return [{"world": name, "users": users, "seed": seed} for name in worlds for users in sizes for seed in seeds]
