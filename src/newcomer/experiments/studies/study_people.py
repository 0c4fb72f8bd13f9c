"""Real people: newcomers answer questions that other people answered, and no simulator stands behind them.

Young People is a complete table: 705 people gave 134 questions an answer from 1 to 5. 70% of them are in the logs, with
20 or with 60 answers each; the others come as newcomers, for 40 rounds of ten questions. A question may come again, and
then gets the very same answer (retest 0) or one of which half the personal residual is drawn afresh (retest 0.5); or
each question comes once, for 13 rounds. Ten random splits of the people, a hundred newcomers each; intervals are over
splits, and all policies meet the same people and the same offers. The films are those of the replay of MovieLens, each
film once, 40 rounds; there intervals are over newcomers. "Limit" is PriorUCB with the mean and the covariance of the
complete rows of the people in the logs: as much as anybody could know of them. `way` is how far a policy gets from the
regret of PopulationMean to that of the limit, `arms` the ratio of its regret to that of EmpiricalArms, `ratio` that of
PriorUCB's regret to its own. "Share 0.5 assumed" is PriorUCB that takes half of the residual to last, whatever it sees.
ALS and EASE are `newcomer.evaluation.fold_in`, 18 factors, greedy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer.charts.pictures import draw_lines
from newcomer.evaluation.fold_in import recommenders
from newcomer.experiments.figure import Point, study
from newcomer.experiments.named_worlds import real_ratings
from newcomer.experiments.panels import REGRET, ROUND
from newcomer.experiments.scale import Scale, Setting
from newcomer.experiments.studies.comparison import ratio_of_means, regrets
from newcomer.fitting import fit
from newcomer.outcomes import mean_and_error
from newcomer.worlds.made_up import MadeUp
from newcomer.worlds.people import People

FILMS = "films, each once"
AGAIN, WAVERING, ONCE = "same answer again", "half redrawn", "each once"
CASES: dict[str, dict[str, Any]] = {AGAIN: {}, WAVERING: {"retest": 0.5}, ONCE: {"repeat": False}}
ANSWERS, SPLITS, ROUNDS, EVERY = (20, 60), 10, 40, 4
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
OURS, MEAN, ARMS, LIMIT = "PriorUCB", "PopulationMean", "EmpiricalArms", "limit"


def sweep(scale: Scale) -> list[Point]:
    """Every split with few and with many answers, and the films; quick takes one split."""
    newcomers, splits, answers = (10, 1, ANSWERS[:1]) if scale.quick else (100, SPLITS, ANSWERS)
    found: list[Point] = [
        {"people": "young", "answers": steps, "newcomers": newcomers, "seed": seed}
        for seed in range(1, splits + 1)
        for steps in answers
    ]
    return [*found, {"people": "films", "answers": 0, "newcomers": newcomers, "seed": 0}]


def run(setting: Setting, *, people: str, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of newcomers of one split, or of the replay: `case`, `answers`, `unit`, `policy`, `t`, `regret`."""
    if people == "films":
        return _films(setting, newcomers, seed)
    world = young(setting, seed)
    logs = world.logs(steps=min(answers, world.dim), seed=seed)
    model = fit(logs, null=False, calibrate=False)
    policies = _policies(model) | recommenders(logs, model)
    fixed = {f"share {share:g} assumed": nc.PriorUCB(replace(model, persistence=share)) for share in SHARES}
    found = []
    for case, settings in CASES.items():
        place = replace(world, **settings)
        best = {LIMIT: nc.PriorUCB(place.limit(), width=0.0, level=0.0)}
        played = {**policies, **best, **(fixed if place.repeat else {})}
        horizon = ROUNDS if place.repeat else place.dim // place.choices
        rows = regrets(played, place, horizon=horizon, users=newcomers, seed=seed, every=EVERY)
        own = rows.group_by("policy", "t", maintain_order=True).agg(pl.col("regret").mean())
        found.append(own.with_columns(case=pl.lit(case), answers=pl.lit(answers), unit=pl.lit(seed)))
    return pl.concat(found).with_columns(rank=pl.lit(model.factor.shape[1])).select(COLUMNS)


COLUMNS = ["case", "answers", "unit", "policy", "t", "regret", "rank"]


def _policies(model: nc.Model) -> dict[str, Any]:
    """Ours and the honest baselines."""
    return {
        OURS: nc.PriorUCB(model),
        "PriorTS": nc.PriorTS(model),
        ARMS: nc.EmpiricalArms(model),
        MEAN: nc.PopulationMean(model),
        "Uniform": nc.Uniform(),
    }


def _films(setting: Setting, newcomers: int, seed: int) -> pl.DataFrame:
    """The replay of real ratings."""
    place = real_ratings(setting)
    logs = place.logs()
    model = fit(logs, null=False, calibrate=False)
    policies = _policies(model) | recommenders(logs, model)
    policies = {name: policy for name, policy in policies.items() if not name.endswith("own answers")}
    horizon = setting.sizes.replay_rounds
    rows = regrets(policies, place, horizon=horizon, users=newcomers, seed=seed, every=EVERY)
    told = rows.with_columns(case=pl.lit(FILMS), answers=pl.lit(0), rank=pl.lit(model.factor.shape[1]))
    return told.rename({"user": "unit"}).select(COLUMNS).with_columns(pl.col("unit").cast(pl.Int32))


def young(setting: Setting, seed: int) -> People:
    """Young People, beside the films or in NEWCOMER_DATA; quick takes made-up people where they are not beside."""
    beside = Path(setting.data).parent
    here = (beside / "young-people").is_dir()
    if setting.sizes.quick and not here:
        return replace(MadeUp.draw(150, 40).world, held_out=0.3, retest=0.0, seed=seed)
    return People.young(beside if here else None, seed=seed)


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy in every case, beside that of the mean, the limit, EmpiricalArms and PriorUCB."""
    by = ["case", "answers", "t"]
    whole = rows
    for name, policy in {"mean": MEAN, "limit": LIMIT, "arm": ARMS, "ours": OURS}.items():
        own = rows.filter(pl.col("policy") == policy).select(*by, "unit", pl.col("regret").alias(name))
        whole = whole.join(own, on=[*by, "unit"], how="left", maintain_order="left")
    whole = whole.with_columns(gain=pl.col("mean") - pl.col("regret"), most=pl.col("mean") - pl.col("limit"))
    return whole.group_by(*by, "policy", maintain_order=True).agg(
        units=pl.len(),
        rank=pl.col("rank").mean(),
        **mean_and_error("regret"),
        **_named("way", "gain", "most"),
        **_named("arms", "regret", "arm"),
        **_named("ratio", "ours", "regret"),
    )


def _named(name: str, above: str, below: str) -> dict[str, pl.Expr]:
    """The ratio of two means under another name."""
    return {key.replace("ratio", name): value for key, value in ratio_of_means(above, below).items()}


def last(frame: pl.DataFrame) -> pl.DataFrame:
    """The last round of each case."""
    return frame.filter(pl.col("t") == pl.col("t").max().over("case", "answers"))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, a panel a case: logs of 20 answers, and the films."""
    hidden = pl.col("policy").str.contains("assumed|Uniform|own answers|EASE")  # EASE lies on the population mean
    shown = frame.filter(pl.col("answers").is_in([0, ANSWERS[0]]), ~hidden)
    return draw_lines(shown, path, x=ROUND, y=REGRET, error="regret_se", facet="case", columns=2)


STUDY = study(
    "people",
    claim="Where actions come again the prior with a memory serves real people better than a mean per action.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
