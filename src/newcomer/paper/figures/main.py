"""main: the paper's first figure, four panels side by side.

Simulation, ProBALL-UCB against optimistic and against Thompson algorithms on MovieLens, and regret against N, drawn
from the same runs as the figures of their own, at one tau for each world (`Scale.shown`). The third panel has
ProBALL-TS as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, Panel, draw_panels
from newcomer.paper.figure import Figure
from newcomer.paper.figures import movielens, regret_vs_n, simulation
from newcomer.paper.jobs import JobFolder, Play
from newcomer.paper.lines import Line, curve_table, fits, newcomer_table
from newcomer.paper.panels import REGRET, within_sight
from newcomer.paper.scale import BALANCED, FILMS, LEARNABLE, SIMULATIONS, Scale

LAST_PANEL = "4"  # regret against N; panels are numbered as in the paper


def _curves(kept: JobFolder) -> list[tuple[str, list[Line]]]:
    """The lines of the first three panels, with the world that is shown of each."""
    return [
        (LEARNABLE, simulation.lines(kept, simulation.ABLATION)),
        (BALANCED, movielens.ucb_lines(kept)),
        (BALANCED, movielens.against_samplers(kept)),
    ]


def jobs(kept: JobFolder) -> list[Play]:
    """Everything that the four panels' own figures need."""
    against_n = [line for _, line in regret_vs_n.regret_lines(kept, regret_vs_n.UCB)]
    return [line.play for lines in (*(lines for _, lines in _curves(kept)), against_n) for line in lines]


def table(kept: JobFolder) -> pl.DataFrame:
    """`panel`, `policy`, `x` (round, or offline users), `regret`, `regret_se`, `left_at`.

    Of each panel's own figure the rows of one world and one tau are taken, with the lines that have no tau.
    """
    parts = [curve_table(kept, lines) for _, lines in _curves(kept)]
    parts.append(regret_vs_n.table(kept, regret_vs_n.UCB).rename({"users": "t"}))
    left = pl.col("left_at").cast(pl.Float64)
    shown = [
        own.select("panel", "policy", pl.col("t").alias("x"), "regret", "regret_se", left)
        for own in _of_panels(kept, parts)
    ]
    return pl.concat(shown)


def newcomers(kept: JobFolder) -> pl.DataFrame:
    """The regret of every newcomer in each panel, in the last at the largest N."""
    parts = [newcomer_table(kept, lines) for _, lines in _curves(kept)]
    against_n = regret_vs_n.newcomers(kept, regret_vs_n.UCB)
    parts.append(against_n.filter(pl.col("users") == pl.col("users").max()).drop("users"))
    return pl.concat([own.select("panel", "policy", "value", "^n[0-9]+$") for own in _of_panels(kept, parts)])


def _of_panels(kept: JobFolder, parts: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The rows of each panel's world at its one tau, with the name of the `panel`."""
    worlds = [*(world for world, _ in _curves(kept)), BALANCED]
    for number, (world, part) in enumerate(zip(worlds, parts, strict=True), start=1):
        tau = kept.scale.shown[world]
        here = part.filter(pl.col("world") == world, pl.col("tau").is_null() | (pl.col("tau") == tau))
        yield here.with_columns(pl.lit(f"{number}. {world}, tau = {tau:g}").alias("panel"))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Four panels with one legend; a diamond where the subspace is left, which has no place against N."""
    panels = []
    frame = within_sight(frame)
    for name in frame["panel"].unique(maintain_order=True):
        own, against_n = frame.filter(pl.col("panel") == name), name.startswith(LAST_PANEL)
        leaving = None if against_n else own.filter((pl.col("x") == pl.col("left_at")) & (pl.col("x") > 1))
        x = Axis("x", "offline users N", log=True) if against_n else Axis("x", "round")
        panels.append(Panel(name, own, x, regret_vs_n.LAST if against_n else REGRET, leaving, marked=against_n))
    return draw_panels(panels, path, error="regret_se")


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        "Simulation at the learnable scale, MovieLens with balanced factors; the remaining panels (other tau, literal "
        "factors, the printed scale) are in the figures of their own. tau is ours: at the paper's 5 and 0.1 every "
        "radius leaves the subspace in round 1. " + movielens.caption(scale)
    )


FIGURES = (
    Figure(
        name="main",
        claim="ProBALL-UCB outperforms all other algorithms, and approaches LinUCB with Hoeffding sets; with more "
        "offline users its subspace is almost as good as the true one.",
        caption=caption,
        fits=lambda scale: [*fits(scale, (*SIMULATIONS, *FILMS), local=True), *regret_vs_n.fits(scale)],
        jobs=jobs,
        table=table,
        draw=draw,
        newcomers=newcomers,
    ),
)
