"""How much does the rank wobble, and does it matter? The smallest rank within one standard error against the best one.

Twenty times the same people of the Young People Survey are logged with other answers, 20 or 60 each. `fit` takes the
smallest rank whose held-out gain is within one (paired) standard error, or a hundredth, of the best; the rival takes
the best rank itself. Newcomers as in the study `people`, a hundred in each resampling. `ratio` is the regret with the
smaller rank over that with the best one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.metrics import mean_and_error
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, regrets
from newcomer.paper.studies.people import ANSWERS, CASES, ROUNDS, young

RESAMPLINGS = 20
SMALLER, BEST = "within one standard error", "best"


def sweep(scale: Scale) -> list[Point]:
    """Every resampling of the logs."""
    times, answers, newcomers = (1, ANSWERS[:1], 8) if scale.quick else (RESAMPLINGS, ANSWERS, 100)
    return [
        {"answers": steps, "newcomers": newcomers, "seed": seed} for steps in answers for seed in range(1, times + 1)
    ]


def run(setting: Setting, *, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret with both ranks: `case`, `answers`, `unit`, `policy`, `rank`, `regret`."""
    world = young(setting, 1)
    logs = world.logs(steps=min(answers, world.dim), seed=seed)
    chosen = fit(logs, null=False, calibrate=False)
    facts = chosen.evidence.population
    assert facts is not None
    best = int(np.argmin(facts.ranks.deficits)) if facts.ranks else chosen.factor.shape[1]
    same = best == chosen.factor.shape[1] or not chosen.factor.any()
    models = {SMALLER: chosen, BEST: chosen if same else fit(logs, rank=best, null=False, calibrate=False)}
    found = []
    for case, settings in CASES.items():
        place = replace(world, **settings)
        horizon = ROUNDS if place.repeat else place.dim // place.choices
        policies = {name: nc.PriorUCB(model) for name, model in models.items()}
        rows = regrets(policies, place, horizon=horizon, users=newcomers, seed=seed)
        own = rows.group_by("policy", maintain_order=True).agg(pl.col("regret").mean())
        ranks = pl.col("policy").replace_strict({name: model.factor.shape[1] for name, model in models.items()})
        found.append(own.with_columns(case=pl.lit(case), answers=pl.lit(answers), unit=pl.lit(seed), rank=ranks))
    return pl.concat(found).select("case", "answers", "unit", "policy", "rank", "regret")


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranks and regrets of both, and their ratio."""
    base = rows.filter(policy=BEST).select("case", "answers", "unit", base="regret")
    both = rows.join(base, on=["case", "answers", "unit"], maintain_order="left")
    return both.group_by("case", "answers", "policy", maintain_order=True).agg(
        units=pl.len(),
        least=pl.col("rank").min(),
        rank=pl.col("rank").mean(),
        most=pl.col("rank").max(),
        **mean_and_error("regret"),
        **ratio_of_means("regret", "base"),
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the answers in the logs, a panel a case."""
    x, y = Axis("answers", "answers of each person in the logs"), Axis("regret", "regret", zero=False)
    return draw_lines(frame, path, x=x, y=y, error="regret_se", facet="case", columns=3, marked=True)


STUDY = study(
    "ranks",
    claim="The smallest rank within one standard error of the best serves as well as the best.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
