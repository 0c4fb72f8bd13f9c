"""Newcomers who are not of the population: what PriorUCB costs them against LinUCB, which never believed in a subspace.

The learnable world (d = 50, k = 2, 5000 users of 20 steps) is fitted with `nc.fit`; newcomers have reward vectors at an angle to its subspace whose
sine is 0.1, 0.5 or 1 ("10%, 50%, 100% outside"), of length 1 or 6, and 2000 rounds. A world of its own for each seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import Verdict, ask, compared, finished, grid, nothing, quick, regrets, rounded
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit
from newcomer.worlds.synthetic import Synthetic

NAME = "prior-outside"
STEPS, EVERY = 20, 100
SHARES, LENGTHS = (0.1, 0.5, 1.0), (1.0, 6.0)
TARGETS = {0.1: 1.1, 0.5: 1.1, 1.0: 1.2}


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each world."""
    sizes = (
        {"users": 1000, "rounds": 200, "newcomers": 2}
        if quick(scale)
        else {"users": 5000, "rounds": 2000, "newcomers": 5}
    )
    return grid(NAME, [{**sizes, "seed": seed} for seed in range(1, (2 if quick(scale) else 20) + 1)])


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Regret of every newcomer, at every angle and length."""
    users, rounds, newcomers, seed = (int(arguments[name] or 0) for name in ("users", "rounds", "newcomers", "seed"))
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


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Regret by angle, length, policy and round; `ratio` is that of PriorUCB's to it. Units are worlds."""
    rows = finished(jobs(scale), bench)
    return rounded(compared(rows, "PriorUCB", ["outside", "length", "t"], ["seed"]))


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """PriorUCB against LinUCB in the last round."""
    end = frame.filter(pl.col("t") == pl.col("t").max(), pl.col("policy") == "LinUCB")
    return [
        ask(
            f"PriorUCB / LinUCB, {100 * line['outside']:g}% outside, length {line['length']:g}",
            line["ratio"],
            TARGETS[line["outside"]],
            line["ratio_se"],
        )
        for line in end.iter_rows(named=True)
    ]


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret after the last round."""
    end = frame.filter(pl.col("t") == pl.col("t").max())
    told = pl.format("{} (se {})", pl.col("regret").round(1), pl.col("regret_se").round(1))
    return end.with_columns(told=told).pivot("policy", index=["outside", "length"], values="told")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, a panel for each angle and length."""
    title = pl.format(
        "{}% outside, length {}", (100 * pl.col("outside")).cast(pl.Int64), pl.col("length").cast(pl.Int64)
    )
    return draw_lines(
        frame.with_columns(panel=title),
        path,
        x=Axis("t", "round"),
        y=Axis("regret", "cumulative regret"),
        error="regret_se",
        facet="panel",
    )


FIGURE = Figure(
    name=NAME,
    claim="A newcomer whom the subspace does not fit is no worse off than with LinUCB, up to a tenth.",
    caption=lambda scale: (
        "d = 50, k = 2, 5000 users of 20 steps, 20 worlds with five newcomers each; bands of one standard error over worlds."
    ),
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
