"""Newcomers who are not of the population: what PriorUCB costs them against LinUCB, which never believed in a subspace.

The learnable world (d = 50, k = 2, 5000 users of 20 steps) is fitted with `nc.fit`; newcomers have reward vectors at an
angle to its subspace whose sine is 0.1, 0.5 or 1 ("10%, 50%, 100% outside"), of length 1 or 6, and 2000 rounds. A world
of its own for each seed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import REGRET, ROUND
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import compared, regrets
from newcomer.worlds.synthetic import Synthetic

STEPS, EVERY = 20, 100
SHARES, LENGTHS = (0.1, 0.5, 1.0), (1.0, 6.0)


def sweep(scale: Scale) -> list[Point]:
    """Every world."""
    users, rounds, newcomers, seeds = (1000, 200, 2, 2) if scale.quick else (5000, 2000, 5, 20)
    sizes = {"users": users, "rounds": rounds, "newcomers": newcomers}
    return [{**sizes, "seed": seed} for seed in range(1, seeds + 1)]


def run(setting: Setting, *, users: int, rounds: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of every newcomer, at every angle and length.

    Logs and fit are those of the world as it is; only its newcomers change, and all policies serve the same ones.
    """
    world = Synthetic.learnable(seed=seed)
    model = fit(world.logs(users, STEPS, seed=seed), null=False)
    policies = {
        "PriorUCB": nc.PriorUCB(model),
        "PriorUCB, no test": nc.PriorUCB(model, level=0.0),
        "ProBALL-UCB": nc.ProBALLUCB(model, horizon=rounds),
        "ProBALL-UCB, savings exit": nc.ProBALLUCB(model, horizon=rounds, exit="savings"),
        "LinUCB": nc.LinUCB(world.dim, horizon=rounds),
    }
    parts = []
    for share in SHARES:
        for length in LENGTHS:
            away = replace(world, outside=share, length=length)
            rows = regrets(policies, away, horizon=rounds, users=newcomers, seed=seed, every=EVERY)
            parts.append(rows.with_columns(outside=pl.lit(share), length=pl.lit(length), seed=pl.lit(seed)))
    return pl.concat(parts)


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret by angle, length, policy and round; `ratio` is that of PriorUCB's to it. Units are worlds."""
    return compared(rows, "PriorUCB", ["outside", "length", "t"], ["seed"])


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, a panel for each angle and length."""
    share, length = (100 * pl.col("outside")).cast(pl.Int64), pl.col("length").cast(pl.Int64)
    panels = frame.with_columns(panel=pl.format("{}% outside, length {}", share, length))
    return draw_lines(panels, path, x=ROUND, y=REGRET, error="regret_se", facet="panel")


STUDY = study(
    "prior-outside",
    claim="A newcomer whom the subspace does not fit is no worse off than with LinUCB, up to a tenth.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
