"""Can a subspace that was learned from too little hurt? ProBALL-UCB that never leaves it, beside LinUCB.

The simulation of the paper at both scales of its hidden factor: as printed, where 5,000 users of 20 steps leave the
subspace at chance, and at the learnable scale. SOLD as printed with ridge 1 and the true rank, 1,000 rounds of 20 fresh
candidates, 300 newcomers who are the same for both policies. `more` is what a newcomer loses more than with LinUCB
(`ProBALLUCB(tau=0)`: the rule keeps everybody in the subspace), with its standard error over newcomers.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.lines import RANK, RIDGE
from newcomer.paper.named_worlds import world_named
from newcomer.paper.scale import SIMULATIONS, Scale, Setting
from newcomer.paper.studies.comparison import regrets
from newcomer.simulate import simulated_mean_and_error

BLOCKS, NEWCOMERS, EVERY = 10, 30, 50  # newcomers in all are the product of the first two
KEPT, PLAIN = "ProBALL-UCB", "LinUCB"


def sweep(scale: Scale) -> list[Point]:
    """Blocks of newcomers of both worlds."""
    blocks, newcomers = (2, 5) if scale.quick else (BLOCKS, NEWCOMERS)
    return [
        {"world": world, "newcomers": newcomers, "seed": seed} for world in SIMULATIONS for seed in range(1, blocks + 1)
    ]


def run(setting: Setting, *, world: str, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of both policies: `world`, `unit`, `t`, `policy`, `regret`; all blocks share the logs of seed 1."""
    scale, place = setting.sizes, world_named(world, setting)
    logs = place.logs(scale.users, scale.steps, seed=1)
    model = fit(logs, rank=RANK, estimator="sold", ridge=RIDGE, literal=True, null=False, calibrate=False)
    policies = {
        PLAIN: nc.LinUCB(model.dim, horizon=scale.rounds),
        KEPT: nc.ProBALLUCB(model, horizon=scale.rounds, tau=0.0),
    }
    rows = regrets(policies, place, horizon=scale.rounds, users=newcomers, seed=seed, every=EVERY)
    unit = pl.format("{}-{}", pl.lit(seed), "user")
    return rows.select(world=pl.lit(world), unit=unit, t="t", policy="policy", regret="regret")


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean regret of both policies as rounds go by, and what the one loses more than the other."""
    base = rows.filter(policy=PLAIN).select("world", "unit", "t", base="regret")
    both = rows.join(base, on=["world", "unit", "t"], maintain_order="left")
    both = both.with_columns(more=pl.col("regret") - pl.col("base"))
    groups = both.group_by("world", "policy", "t", maintain_order=True)
    return groups.agg(
        newcomers=pl.len(), **simulated_mean_and_error("regret"), **simulated_mean_and_error("more")
    ).sort("world", "policy", "t")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """What is lost more than with LinUCB against rounds, a panel a world."""
    own = frame.filter(policy=KEPT)
    x, y = Axis("t", "round"), Axis("more", "regret beyond LinUCB's")
    return draw_lines(own, path, x=x, y=y, error="more_se", facet="world", columns=2)


STUDY = study(
    "kept",
    claim="A subspace at chance that is not left costs a newcomer more than no subspace.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
