"""How much should a newcomer's policy explore? Fixed widths against a width that asks what a reward would tell.

The candidates were written down before the first run: PriorUCB with a `width` of 0, 0.25, 0.5 and 1 posterior
deviations, and with a `curiosity` of 0.5, 1 and 2 times what one more reward could change; PriorTS with a `scale` of 0
(which is greedy), 0.25, 0.5 and 1, and with a `curiosity` of 0.5 and 1. Two tables of real people and three simulated
worlds:

* Young People, 20 and 60 logged answers, ten questions a round: the same answer again, half redrawn (40 rounds), each
  question once (13 rounds); twenty splits of the people;
* films: replay of real ratings, each film once, 40 rounds of ten;
* MovieLens factors, literal and balanced, 200 rounds; and the synthetic world, 200 rounds.

Intervals are over splits of people, newcomers of the films, and newcomers of the simulated worlds. `ratio` is that of
a policy's regret to the least of any fixed width (or scale) of its kind, `mean` that to the regret of PopulationMean.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.named_worlds import films, real_ratings
from newcomer.paper.scale import BALANCED, LITERAL, Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, regrets
from newcomer.paper.studies.people import ANSWERS, CASES, FILMS, ROUNDS, young
from newcomer.simulate import simulated_mean_and_error
from newcomer.worlds.synthetic import Synthetic

WIDTHS, CURIOSITIES = (0.0, 0.25, 0.5, 1.0), (0.5, 1.0, 2.0)
SCALES, DRAWS = (0.0, 0.25, 0.5, 1.0), (0.5, 1.0)
MEAN, SYNTHETIC = "PopulationMean", "synthetic"
SPLITS, FITS = 20, 5


def sweep(scale: Scale) -> list[Point]:
    """Every split of people, the films, and every fit of the simulated worlds."""
    splits, fits, newcomers, answers = (1, 1, 8, ANSWERS[:1]) if scale.quick else (SPLITS, FITS, 100, ANSWERS)
    people: list[Point] = [
        {"world": "young", "answers": steps, "newcomers": newcomers, "seed": seed}
        for seed in range(1, splits + 1)
        for steps in answers
    ]
    simulated: list[Point] = [
        {"world": world, "answers": 0, "newcomers": newcomers, "seed": seed}
        for world in (SYNTHETIC, LITERAL, BALANCED)
        for seed in range(1, fits + 1)
    ]
    replayed: Point = {"world": FILMS, "answers": 0, "newcomers": newcomers if scale.quick else 1000, "seed": 0}
    return [*people, replayed, *simulated]


def run(setting: Setting, *, world: str, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret at the last round: `case`, `answers`, `unit`, `policy`, `regret`."""
    scale = setting.sizes
    if world == "young":
        return _people(setting, answers, newcomers, seed)
    if world == FILMS:
        place: Any = real_ratings(setting)
        logs, rounds = place.logs(), scale.replay_rounds
    elif world == SYNTHETIC:
        place, rounds = Synthetic.learnable(seed=seed), 200 if not scale.quick else 20
        logs = place.logs(scale.users, scale.steps, seed=seed)
    else:
        place, rounds = films(world, setting), scale.film_rounds
        logs = place.logs(scale.film_users, scale.film_steps, seed=seed)
    rows = regrets(
        candidates(fit(logs, null=False, calibrate=False)), place, horizon=rounds, users=newcomers, seed=seed
    )
    units = pl.col("user").cast(pl.Int64) + 1_000_000 * seed
    return rows.select(pl.lit(world).alias("case"), pl.lit(0).alias("answers"), units.alias("unit"), "policy", "regret")


def _people(setting: Setting, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """The three ways of meeting the newcomers of one split, who are one unit."""
    world, found = young(setting, seed), []
    model = fit(world.logs(steps=min(answers, world.dim), seed=seed), null=False, calibrate=False)
    for case, settings in CASES.items():
        place = replace(world, **settings)
        horizon = ROUNDS if place.repeat else place.dim // place.choices
        users = newcomers if place.repeat else 2 * newcomers
        rows = regrets(candidates(model), place, horizon=horizon, users=users, seed=seed)
        own = rows.group_by("policy", maintain_order=True).agg(pl.col("regret").mean())
        labels = {"case": pl.lit(case), "answers": pl.lit(answers), "unit": pl.lit(seed, dtype=pl.Int64)}
        found.append(own.with_columns(**labels).select("case", "answers", "unit", "policy", "regret"))
    return pl.concat(found)


def candidates(model: nc.Model) -> dict[str, Any]:
    """The list that was written down."""
    found: dict[str, Any] = {f"PriorUCB, width {width:g}": nc.PriorUCB(model, width=width) for width in WIDTHS}
    found |= {f"PriorUCB, curiosity {one:g}": nc.PriorUCB(model, curiosity=one) for one in CURIOSITIES}
    found |= {f"PriorTS, scale {scale:g}": nc.PriorTS(model, scale=scale) for scale in SCALES}
    found |= {f"PriorTS, curiosity {one:g}": nc.PriorTS(model, curiosity=one) for one in DRAWS}
    return {**found, MEAN: nc.PopulationMean(model)}


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every candidate in every case, beside the best fixed one of its kind and beside PopulationMean."""
    by = ["case", "answers"]
    means = rows.group_by(*by, "policy").agg(pl.col("regret").mean().alias("level"))
    fixed = means.filter(pl.col("policy").str.contains("width|scale"))
    kind = pl.col("policy").str.split(",").list.first().alias("kind")
    best = fixed.with_columns(kind).sort("level", "policy").group_by(*by, "kind", maintain_order=True).first()
    best = best.select(*by, "kind", pl.col("policy").alias("best"))
    whole = rows.with_columns(kind).join(best, on=[*by, "kind"], how="left", maintain_order="left")
    whole = whole.with_columns(best=pl.coalesce("best", pl.lit(MEAN)))
    for name, partner in {"least": "best", "base": None}.items():
        beside = rows.select(*by, "unit", pl.col("policy").alias("best"), pl.col("regret").alias(name))
        if partner is None:
            beside = beside.filter(best=MEAN).drop("best")
        keys = [*by, "unit", *([partner] if partner else [])]
        whole = whole.join(beside, on=keys, how="left", maintain_order="left")
    return whole.group_by(*by, "policy", maintain_order=True).agg(
        units=pl.len(),
        best=pl.col("best").first(),
        **simulated_mean_and_error("regret"),
        **ratio_of_means("regret", "least"),
        **{key.replace("ratio", "mean"): value for key, value in ratio_of_means("regret", "base").items()},
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the setting, a panel a case: fixed widths and scales, and curiosity."""
    setting = pl.col("policy").str.extract(r"(width|scale|curiosity) ([0-9.]+)$", 2).cast(pl.Float64)
    answers = pl.when(pl.col("answers") > 0).then(pl.format(", {} answers", "answers")).otherwise(pl.lit(""))
    shown = frame.filter(pl.col("policy") != MEAN).with_columns(
        t=setting, policy=pl.col("policy").str.replace(" [0-9.]+$", ""), panel=pl.col("case") + answers
    )
    x, y = Axis("t", "width, scale or curiosity"), Axis("regret", "regret", zero=False)
    return draw_lines(shown, path, x=x, y=y, error="regret_se", facet="panel", columns=3, marked=True)


STUDY = study(
    "exploration",
    claim="PriorUCB, exploring by what a reward would tell, is within 3% of the best fixed width; PriorTS mostly.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
