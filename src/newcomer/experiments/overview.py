"""The paper's first figure: simulation, optimistic and Thompson algorithms on MovieLens, and regret against N, side by side.

Drawn from the same runs as the other figures, at one tau for each world (`Scale.shown`).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, Panel, draw_panels
from newcomer.experiments import movielens, samples, simulation
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import Figure, curve_table, within_sight
from newcomer.experiments.jobs import Job
from newcomer.experiments.scale import BALANCED, FILMS, LEARNABLE, SIMULATIONS, Scale
from newcomer.experiments.sweeps import fits

SWEEP = ("1", "2", "3", "4")  # panels, numbered as in the paper
REGRET = Axis("regret", "cumulative regret")


def jobs(scale: Scale, bench: Bench) -> list[Job]:
    """Everything that the four panels' own figures need."""
    sim = simulation.lines(scale, bench, simulation.SWEEP["simulation-ablation"])
    films = movielens.ucb(scale, bench) + movielens.ts(scale, bench)
    return [line.play for line in sim + films + [line for _, line in samples.regret_lines(scale, bench, _N)]]


_N = "regret-vs-n-ucb"


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """`panel`, `policy`, `x` (round, or offline users), `regret`, `regret_se`, `left_at`."""
    sim = curve_table(lambda s, b: simulation.lines(s, b, simulation.SWEEP["simulation-ablation"]))(scale, bench)
    parts = [
        _shown(sim, scale, LEARNABLE),
        _shown(curve_table(movielens.ucb)(scale, bench), scale, BALANCED),
        _shown(curve_table(movielens.ts)(scale, bench), scale, BALANCED),
        _shown(samples.regret_table(scale, bench, _N).rename({"users": "t"}), scale, BALANCED),
    ]
    worlds = (LEARNABLE, BALANCED, BALANCED, BALANCED)
    names = [f"{name}. {world}, tau = {scale.shown[world]:g}" for name, world in zip(SWEEP, worlds, strict=True)]
    kept = ["policy", "t", "regret", "regret_se", "left_at"]
    return pl.concat(
        part.select(pl.lit(name).alias("panel"), pl.col(kept)).with_columns(pl.col("left_at").cast(pl.Float64))
        for name, part in zip(names, parts, strict=True)
    ).rename({"t": "x"})


def _shown(frame: pl.DataFrame, scale: Scale, world: str) -> pl.DataFrame:
    """One world at its tau."""
    here = frame.filter(pl.col("world") == world)
    return here.filter(pl.col("tau").is_null() | (pl.col("tau") == scale.shown[world]))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Four panels with one legend."""
    panels = []
    frame = within_sight(frame)
    for name in frame["panel"].unique(maintain_order=True):
        own, against_n = frame.filter(pl.col("panel") == name), name.startswith(SWEEP[-1])
        leaving = None if against_n else own.filter((pl.col("x") == pl.col("left_at")) & (pl.col("x") > 1))
        x = Axis("x", "offline users N", log=True) if against_n else Axis("x", "round")
        y = Axis("regret", "regret after the last round") if against_n else REGRET
        panels.append(Panel(name, own, x, y, leaving, marked=against_n))
    return draw_panels(panels, path, error="regret_se")


def _caption(scale: Scale) -> str:
    return (
        "Simulation at the learnable scale, MovieLens with balanced factors; the remaining panels (other tau, "
        "literal factors, the printed scale) are in "
        "the figures of their own. tau is ours: at the paper's 5 and 0.1 every radius leaves the subspace in round 1. "
        + movielens.caption(scale)
    )


FIGURES = (
    Figure(
        name="main",
        claim="ProBALL-UCB outperforms all others on both problems; with more offline users it nears the true subspace.",
        caption=_caption,
        fits=lambda scale: [*fits(scale, (*SIMULATIONS, *FILMS)), *samples.regret_fits(scale)],
        jobs=jobs,
        table=table,
        draw=draw,
    ),
)
