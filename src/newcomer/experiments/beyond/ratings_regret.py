"""Stars and clicks: regret of newcomers, in the worlds of `beyond.ratings`.

Forty rounds of ten movies that the newcomer really rated (a hundred newcomers), and 200 rounds of twenty actions to click (five worlds of forty newcomers).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import Verdict, ask, compared, finished, grid, nothing, quick, regrets, rounded
from newcomer.experiments.beyond.ratings import CLICKS, STARS, place
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit

NAME = "prior-ratings-regret"
ROUNDS, EVERY = {STARS: 40, CLICKS: 200}, {STARS: 2, CLICKS: 10}
NEWCOMERS = {STARS: 100, CLICKS: 40}


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """The replay once, clicks in several worlds."""
    small = quick(scale)
    seeds = [(STARS, 0), *((CLICKS, seed) for seed in range(1, (2 if small else 5) + 1))]
    return grid(
        NAME,
        [
            {
                "rewards": name,
                "newcomers": 5 if small else NEWCOMERS[name],
                "rounds": 10 if small else ROUNDS[name],
                "seed": seed,
            }
            for name, seed in seeds
        ],
    )


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Regret of every newcomer."""
    name, newcomers, rounds, seed = (arguments[part] for part in ("rewards", "newcomers", "rounds", "seed"))
    where, logs = place(str(name), setting, int(seed or 0))
    model, sold = fit(logs, null=False, calibrate=False), fit(logs, estimator="sold")
    horizon = int(rounds or 0)
    policies = {
        "PriorUCB": nc.PriorUCB(model),
        "PriorTS": nc.PriorTS(model),
        "PopulationMean": nc.PopulationMean(model),
        "LinUCB": nc.LinUCB(where.dim, horizon=horizon),
        **({"ProBALL-UCB": nc.ProBALLUCB(sold, horizon=horizon)} if sold.rank else {}),
        "Uniform": nc.Uniform(),
    }
    every = EVERY[str(name)]
    rows = regrets(policies, where, horizon=horizon, users=int(newcomers or 0), seed=int(seed or 0), every=every)
    return rows.with_columns(rewards=pl.lit(str(name)), seed=pl.lit(seed))


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Regret by world, policy and round; `ratio` is that of PriorUCB's to it."""
    rows = finished(jobs(scale), bench)
    return rounded(compared(rows, "PriorUCB", ["rewards", "t"], ["seed", "user"]))


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """PriorUCB against the policies that ignore others, or this user."""
    end = frame.filter(pl.col("t") == pl.col("t").max().over("rewards"))
    end = end.filter(pl.col("policy").is_in(["PopulationMean", "LinUCB"]))
    return [
        ask(f"{line['rewards']}: regret of PriorUCB / {line['policy']}", line["ratio"], 1.0, line["ratio_se"])
        for line in end.iter_rows(named=True)
    ]


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret after the last round."""
    end = frame.filter(pl.col("t") == pl.col("t").max().over("rewards"))
    return end.select("rewards", "policy", "regret", "regret_se", pl.col("ratio").alias("PriorUCB / it"), "ratio_se")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds."""
    x, y = Axis("t", "round"), Axis("regret", "cumulative regret")
    return draw_lines(frame, path, x=x, y=y, error="regret_se", facet="rewards")


FIGURE = Figure(
    name=NAME,
    claim="Stars and clicks: PriorUCB has less regret than the population mean and than LinUCB.",
    caption=lambda scale: "Bands of one standard error over newcomers.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
