"""How much of a person's per-action effect repeats: the true share against the share that a policy assumes.

20 or 60 actions, each its own direction, means N(0, 0.5^2), two shared directions with entries N(0, 0.5^2), and a
residual of variance 1 for each person and action, of which a share repeats when the action comes again. The logs are
1000 people with 10 different actions each: nobody meets an action twice, so that they say nothing of the share, and one
fit serves all true shares. Newcomers have 40 rounds of ten random actions. "Unknown" is what `fit` leaves here: each
newcomer's own repeats decide. Four worlds of each size, fifty newcomers in each and at each true share; regret counts
the part that repeats, and `ratio` is the regret of the unknown share to that of the assumed one, paired by world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.logs import Logs
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, regrets
from newcomer.simulate import simulated_mean_and_error
from newcomer.worlds.world import Episode, world_stream

ACTIONS, TRUE, ASSUMED, UNKNOWN = (20, 60), (0.0, 0.25, 0.5, 0.75), (0.0, 0.25, 0.5, 0.75), "unknown"
STEPS, CHOICES, ROUNDS, WORLDS = 10, 10, 40, 4
METHODS: dict[str, Any] = {"PriorUCB": nc.PriorUCB, "PriorTS": nc.PriorTS, "EmpiricalArms": nc.EmpiricalArms}


@dataclass(frozen=True)
class Opinions:
    """People with a population mean, two shared directions, and per-action effects of which a `share` repeats."""

    actions: int
    share: float = 0.0
    seed: int = 0

    @property
    def dim(self) -> int:
        """One direction for each action."""
        return self.actions

    @cached_property
    def _common(self) -> tuple[Floats, Floats]:
        rng = world_stream(self.seed, "opinions")
        return 0.5 * rng.standard_normal(self.actions), 0.5 * rng.standard_normal((self.actions, 2))

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """`steps` different actions of each of `users` people."""
        rng, (mean, factor) = world_stream(seed, "logs of opinions"), self._common
        met = np.argsort(rng.random((users, self.actions)), axis=1)[:, :steps]
        liked = mean + rng.standard_normal((users, 2)) @ factor.T + rng.standard_normal((users, self.actions))
        reward = np.take_along_axis(liked, met, axis=1)
        return Logs.from_arrays(user=np.repeat(np.arange(users), steps), action=met.ravel(), reward=reward.ravel())

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer; means are the repeatable part."""
        mean, factor = self._common
        own = np.sqrt(self.share) * rng.standard_normal(self.actions)
        lasting = mean + factor @ rng.standard_normal(2) + own
        offered = np.stack([rng.permutation(self.actions)[:CHOICES] for _ in range(horizon)])
        noise = np.sqrt(1.0 - self.share) * rng.standard_normal(offered.shape)
        return Episode(np.eye(self.actions)[offered], lasting[offered], lasting[offered] + noise, ids=offered)


def sweep(scale: Scale) -> list[Point]:
    """Every world."""
    users, newcomers, worlds = (300, 5, 1) if scale.quick else (1000, 50, WORLDS)
    return [
        {"actions": actions, "users": users, "newcomers": newcomers, "seed": seed}
        for seed in range(1, worlds + 1)
        for actions in ACTIONS
    ]


def run(setting: Setting, *, actions: int, users: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Mean regret of every method with every assumed share, at every true share."""
    world = Opinions(actions, seed=seed)
    model = fit(world.logs(users, STEPS, seed), null=False, calibrate=False)
    believed = {UNKNOWN: model} | {f"{share:g}": replace(model, persistence=share) for share in ASSUMED}
    policies = {f"{name}|{said}": make(own) for name, make in METHODS.items() for said, own in believed.items()}
    policies["PopulationMean|"] = nc.PopulationMean(model)
    found = []
    for share in TRUE:
        rows = regrets(policies, replace(world, share=share), horizon=ROUNDS, users=newcomers, seed=seed)
        own = rows.group_by("policy", maintain_order=True).agg(pl.col("regret").mean())
        found.append(own.with_columns(true=pl.lit(share)))
    names = pl.col("policy").str.split("|").list
    labelled = pl.concat(found).with_columns(policy=names.get(0), assumed=names.get(1))
    return labelled.with_columns(actions=pl.lit(actions), seed=pl.lit(seed), rank=pl.lit(model.factor.shape[1]))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret by number of actions, method, true and assumed share."""
    by = ["actions", "policy", "true"]
    base = rows.filter(assumed=UNKNOWN).select(*by, "seed", base="regret")
    both = rows.join(base, on=[*by, "seed"], how="left", maintain_order="left")
    groups = both.group_by("actions", "policy", "true", "assumed", maintain_order=True)
    made = groups.agg(worlds=pl.len(), **simulated_mean_and_error("regret"), **ratio_of_means("base", "regret"))
    return made.sort("actions", "policy", "true", maintain_order=True)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret of PriorUCB against the true share, a line for each assumed one and a panel for each number of actions."""
    label = (
        pl.when(pl.col("assumed") == UNKNOWN)
        .then(pl.lit("PriorUCB, unknown"))
        .otherwise(pl.format("{} assumed", "assumed"))
    )
    shown = frame.filter(policy="PriorUCB").with_columns(assumed=label, panel=pl.format("{} actions", "actions"))
    x, y = Axis("true", "true share that repeats"), Axis("regret", "regret after 40 rounds")
    return draw_lines(shown, path, x=x, y=y, series="assumed", error="regret_se", facet="panel", marked=True)


STUDY = study(
    "persistence",
    claim="No assumed share is safe; a newcomer's own repeats tell it.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
