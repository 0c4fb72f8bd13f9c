"""Stars and clicks: regret of newcomers, in the worlds of `prior-ratings`.

Forty rounds of ten movies that the newcomer really rated (a hundred newcomers), and 200 rounds of twenty actions to
click (five worlds of forty newcomers).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import REGRET, ROUND
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import compared, regrets
from newcomer.paper.studies.stars_and_clicks import CLICKS, STARS, rewarded_by

ROUNDS, EVERY = {STARS: 40, CLICKS: 200}, {STARS: 2, CLICKS: 10}
NEWCOMERS = {STARS: 100, CLICKS: 40}


def sweep(scale: Scale) -> list[Point]:
    """The replay once, clicks in several worlds."""
    worlds = [(STARS, 0), *((CLICKS, seed) for seed in range(1, (2 if scale.quick else 5) + 1))]
    sizes = {name: (5, 10) if scale.quick else (NEWCOMERS[name], ROUNDS[name]) for name in ROUNDS}
    return [
        {"rewards": name, "newcomers": sizes[name][0], "rounds": sizes[name][1], "seed": seed} for name, seed in worlds
    ]


def run(setting: Setting, *, rewards: str, newcomers: int, rounds: int, seed: int) -> pl.DataFrame:
    """Regret of every newcomer; ProBALL-UCB plays where SOLD finds a subspace."""
    place, logs = rewarded_by(rewards, setting, seed)
    model, sold = fit(logs, null=False, calibrate=False), fit(logs, estimator="sold")
    policies = {
        "PriorUCB": nc.PriorUCB(model),
        "PriorTS": nc.PriorTS(model),
        "PopulationMean": nc.PopulationMean(model),
        "LinUCB": nc.LinUCB(place.dim, horizon=rounds),
        **({"ProBALL-UCB": nc.ProBALLUCB(sold, horizon=rounds)} if sold.rank else {}),
        "Uniform": nc.Uniform(),
    }
    rows = regrets(policies, place, horizon=rounds, users=newcomers, seed=seed, every=EVERY[rewards])
    return rows.with_columns(rewards=pl.lit(rewards), seed=pl.lit(seed))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret by world, policy and round; `ratio` is that of PriorUCB's to it."""
    return compared(rows, "PriorUCB", ["rewards", "t"], ["seed", "user"])


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds."""
    return draw_lines(frame, path, x=ROUND, y=REGRET, error="regret_se", facet="rewards")


STUDY = study(
    "prior-ratings-regret",
    claim="Stars and clicks: PriorUCB has less regret than the population mean and than LinUCB.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
