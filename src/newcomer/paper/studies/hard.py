"""The lower bound, tried: mean regret over its families of worlds, against the bound as printed and as proven.

d = 10, k = 2, actions the unit ball (20 random unit vectors a round and the policy's greedy direction), noise N(0, 1),
T = 200 and 800 rounds, N = 100 to 6,400 offline users of H = 2 steps, and of 20, where H k is larger than d and the
logs may tell what the bound takes for hidden. Each cell has the family that the theorem names for its (N, T), eight
members of it (LOCAL-UCB, whose rounds take longest, serves the first four and H = 2 alone), a fit of rank 2 for each
and one newcomer. The theorem is about scale 1, where beta is so short that nothing can be learned in T rounds:
everybody loses about T |beta|, what random actions lose. At scale 10, beta ten times as long, learning begins. "bound,
as printed" has the constants of the paper; "bound, as proven" is what its steps give with the best action of the ball
and the true divergence of the logs (paper/theory/hard.py), at either scale; where it is missing they give nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.model import Model
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import SIZE
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.theory.ball import Ball
from newcomer.paper.theory.hard import Hard
from newcomer.simulate import simulated_mean_and_error
from newcomer.worlds.world import world_stream

DIM, RANK, CHOICES = 10, 2, 20
HORIZONS, SIZES, STEPS, SCALES = (200, 800), (100, 400, 1600, 6400), (2, 20), (1.0, 10.0)
MEMBERS, FEW = 8, 4  # of a family; those that LOCAL-UCB serves
LOCAL, PRINTED, PROVEN, BLIND = "LOCAL-UCB", "bound, as printed", "bound, as proven", "knowing nothing"


def sweep(scale: Scale) -> list[Point]:
    """Every cell and member, member by member, so that an unfinished run has every cell."""
    horizons, sizes, members = ((50,), (100, 400), 2) if scale.quick else (HORIZONS, SIZES, MEMBERS)
    return [
        {"horizon": horizon, "users": users, "steps": steps, "scale": size, "seed": member}
        for member in range(1, members + 1)
        for horizon in horizons
        for users in sizes
        for steps in STEPS
        for size in SCALES
    ]


def run(setting: Setting, *, horizon: int, users: int, steps: int, scale: float, seed: int) -> pl.DataFrame:
    """The regret of each policy on one member, and what bounds it from below and above."""
    world = Hard(DIM, RANK, users, steps, horizon, member=seed, scale=scale)
    model = fit(world.logs(users, steps, seed), rank=RANK, null=False)
    limits = {PROVEN: world.proven, BLIND: world.largest} | ({PRINTED: world.printed} if scale == 1 else {})
    found = {name: value for name, value in limits.items() if value > 0}
    for name, policy in policies(model, horizon).items():
        if name != LOCAL or (seed <= FEW and steps == min(STEPS)):
            found[name] = regret(world, name, policy, seed)
    where = {"horizon": horizon, "users": users, "steps": steps, "scale": scale, "family": world.family, "seed": seed}
    return pl.DataFrame({**where, "policy": list(found), "regret": list(found.values())})


def policies(model: Model, horizon: int) -> dict[str, Any]:
    """Who plays, with the defaults of each."""
    return {
        "LinUCB": nc.LinUCB(DIM, horizon=horizon),
        "ProBALL-UCB": nc.ProBALLUCB(model, horizon=horizon),
        "PriorUCB": nc.PriorUCB(model),
        LOCAL: nc.LocalUCB(model, horizon=horizon),
    }


def regret(world: Hard, name: str, policy: Any, seed: int) -> float:
    """Cumulative regret of the member's newcomer; actions and noise are the same for every policy, choices apart.

    LOCAL-UCB's greedy direction is that of its ridge estimate: its scores of twenty axes would double its time.
    """
    estimate = (lambda state: np.asarray(state.mean[0])) if name == LOCAL else None
    rounds = Ball(world, CHOICES).serve(policy, world_stream(seed, "hard ball"), world.horizon, estimate=estimate)
    return float(rounds.sum())


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean regret over members; `blind` is its ratio to that of knowing nothing, `bound` to the bound as proven."""
    cell = ["scale", "steps", "horizon", "users"]
    groups = rows.group_by(*cell, "family", "policy", maintain_order=True)
    own = groups.agg(members=pl.len(), **simulated_mean_and_error("regret"))
    for name, limit in (("blind", BLIND), ("bound", PROVEN)):
        base = own.filter(policy=limit).select(*cell, base="regret")
        own = own.join(base, on=cell, how="left", maintain_order="left")
        own = own.with_columns((pl.col("regret") / pl.col("base")).alias(name)).drop("base")
    order = {name: place for place, name in enumerate([*policies_in(own), PROVEN, PRINTED, BLIND])}
    return own.sort(*cell, pl.col("policy").replace_strict(order, return_dtype=pl.Int64))


def policies_in(frame: pl.DataFrame) -> list[str]:
    """The policies of a table, in order of appearance, without the bounds."""
    return [name for name in frame["policy"].unique(maintain_order=True) if name not in (PROVEN, PRINTED, BLIND)]


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against N, a panel for each scale, H and T."""
    panel = pl.format("scale {}, H = {}, T = {}", pl.col("scale").cast(pl.Int64), "steps", "horizon")
    y = Axis("regret", "mean regret over the family", log=True)
    shown = frame.with_columns(panel=panel).filter(pl.col("regret") > 0)
    return draw_lines(shown, path, x=SIZE, y=y, error="regret_se", facet="panel", columns=4, marked=True)


STUDY = study(
    "hard",
    claim="No policy's mean regret over a hard family is below the bound, and at the theorem's scale none clearly "
    "saves more than a fifth.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
