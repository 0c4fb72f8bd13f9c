"""How much of an answer comes again? What a newcomer should suppose, alone and after twenty others were served.

The list was written down before the first run. Tables: Young People (20 of 134 answers logged), bfi (12 of 25), their
0/1 versions (answer at least 4), three splits of 200 newcomers each; and of each of the four, ten random sub-tables of
16 and ten of 20 questions, half of them logged, with 100 newcomers each, 300 on 0/1, where regrets are small. 40 rounds
of ten questions that come again: with the same answer; with half redrawn (of the residual of ratings; 0/1 answers are
drawn afresh with probability one half); with everything redrawn; and from people of whom half are consistent and the
others redraw everything.

PriorUCB and EmpiricalArms begin with a weight of 0.5, 0.25 or 0.1 on "nothing comes again" (0.9, 0.5 or 0.25 where the
model finds nothing shared) and the rest even, or with what twenty earlier users told; PriorUCB on 0/1 with a curiosity
of 0.5 or 0.25; PriorTS, on whole tables, with 0.5 or told. (After two seeds the list was changed once: starts where
nothing is shared were added, and the test for outlier users, which takes errors for normal, was left out on 0/1.)

To be chosen: the start and the curiosity with the least regret on average (mean of log ratios over tables and cases),
if no table and case is worse than before this study by more than 1% beyond two standard errors; of starts within 0.2%
of each other the more sceptical. `ratio` is a policy's regret to that of PriorUCB with 0.5 and curiosity 0.5, `arms` to
that of EmpiricalArms in the same situation, alone or told; standard errors are over splits or sub-tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means
from newcomer.paper.studies.earlier_users import EARLIER, TOLD, Dealt, deal, serve
from newcomer.paper.studies.people import LIKES, ROUNDS, people_table
from newcomer.policies.repeatability import SHARES, Repeatability
from newcomer.simulate import simulated_mean_and_error

TABLES = ("young", "bfi", "young 0/1", "bfi 0/1")
STARTS, ALONE, CURIOSITIES = (0.5, 0.25, 0.1), (0.9, 0.5, 0.25), (0.5, 0.25)  # ALONE: where nothing is shared
LOGGED = {"young": 20, "bfi": 12}  # answers of each person in the logs of whole tables
SPLITS, SUBTABLES, SIZES = 3, 10, (16, 20)
BASE = "PriorUCB, start 0.5, curiosity 0.5"


def start_fit(weight: float) -> Repeatability:
    """A start with this weight on "nothing comes again", the rest even."""
    weights = np.full(len(SHARES), (1.0 - weight) / (len(SHARES) - 1))
    weights[0] = weight
    return Repeatability(tuple(SHARES.tolist()), tuple(weights.tolist()))


def sweep(scale: Scale) -> list[Point]:
    """Whole tables by split, and sub-tables."""
    splits, subtables = (1, 1) if scale.quick else (SPLITS, SUBTABLES)
    return [
        {"people": people, "size": size, "newcomers": 8 if scale.quick else _newcomers(people, size), "seed": seed}
        for people in TABLES
        for size in (0, *SIZES)
        for seed in range(1, (subtables if size else splits) + 1)
    ]


def _newcomers(people: str, size: int) -> int:
    """How many newcomers a table is tried on."""
    return 200 if not size else 300 if people.endswith("0/1") else 100


def run(setting: Setting, *, people: str, size: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Mean regret of every candidate in every case of one table: `people`, `size`, `seed`, `case`, `policy`."""
    world = people_table(setting, people, seed)
    world = world.some(size, seed) if size else world
    steps = world.dim // 2 if size else min(LOGGED[people.split()[0]], world.dim // 2)
    model = fit(world.logs(steps=steps, seed=seed), null=False, calibrate=False)
    found = []
    for case, settings in LIKES.items():
        place = replace(world, **settings)
        dealt, earlier = deal(place, newcomers, ROUNDS, seed), deal(place, EARLIER, ROUNDS, seed, "earlier")
        for name, policy, told in candidates(model, earlier, likes=people.endswith("0/1"), whole=not size):
            regret = float(serve(policy, dealt, told)[0].mean())
            found.append({"case": case, "policy": name, "regret": regret})
    labels = {"people": people, "size": size, "seed": seed, "rank": model.factor.shape[1]}
    return pl.DataFrame(found).with_columns(**{name: pl.lit(value) for name, value in labels.items()})


def candidates(
    model: nc.Model, earlier: Dealt, *, likes: bool, whole: bool
) -> Iterator[tuple[str, Any, Repeatability | None]]:
    """The list: names, policies, and what newcomers begin with."""
    makers = {f"PriorUCB, start {{}}, curiosity {one:g}": one for one in CURIOSITIES[: 2 if likes else 1]}
    policies: dict[str, Any] = {name: nc.PriorUCB(model, curiosity=one) for name, one in makers.items()}
    policies["EmpiricalArms, start {}"] = nc.EmpiricalArms(model)
    for name, policy in policies.items():
        for weight in STARTS if np.any(model.factor) else ALONE:
            yield name.format(f"{weight:g}"), policy, start_fit(weight)
        yield name.format(TOLD), policy, policy.repeatability(serve(policy, earlier)[1])
    if whole:
        drawing = nc.PriorTS(model)
        yield "PriorTS, start 0.5", drawing, start_fit(0.5)
        yield f"PriorTS, start {TOLD}", drawing, drawing.repeatability(serve(drawing, earlier)[1])


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every candidate on every kind of table in every case, beside the base's and EmpiricalArms'."""
    by, unit = ["people", "size", "case"], ["people", "size", "case", "seed"]
    base = rows.filter(policy=BASE).select(*unit, base="regret")
    begins = pl.when(pl.col("policy").str.contains(TOLD)).then(pl.lit(TOLD)).otherwise(pl.lit("0.5")).alias("begins")
    arms = rows.filter(pl.col("policy").is_in([f"EmpiricalArms, start {one}" for one in (TOLD, "0.5")]))
    arms = arms.with_columns(begins).select(*unit, "begins", arm="regret")
    whole = rows.with_columns(begins).join(base, on=unit, how="left", maintain_order="left")
    whole = whole.join(arms, on=[*unit, "begins"], how="left", maintain_order="left")
    return whole.group_by(*by, "policy", maintain_order=True).agg(
        units=pl.len(),
        rank=pl.col("rank").mean(),
        **simulated_mean_and_error("regret"),
        **ratio_of_means("regret", "base"),
        **{key.replace("ratio", "arms"): value for key, value in ratio_of_means("regret", "arm").items()},
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the weight of "nothing comes again", over the base's: a line a table, a panel a case."""
    own = frame.filter(pl.col("policy").str.contains(r"^PriorUCB.*start 0\..*curiosity 0.5"))
    size = pl.when(pl.col("size") > 0).then(pl.format(", {} questions", "size")).otherwise(pl.lit(""))
    shown = own.with_columns(
        t=pl.col("policy").str.extract(r"start ([0-9.]+)").cast(pl.Float64), policy=pl.col("people") + size
    )
    x, y = Axis("t", 'weight of "nothing comes again"'), Axis("ratio", "regret, over that with 0.5", zero=False)
    return draw_lines(shown, path, x=x, y=y, error="ratio_se", facet="case", columns=2, marked=True)


STUDY = study(
    "repeatability",
    claim="Told by earlier users, newcomers lose less on average than with any fixed start.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
