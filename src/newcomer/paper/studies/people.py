"""Real people: newcomers answer questions that other people answered, and no simulator stands behind them.

Young People is a complete table: 705 people gave 134 questions an answer from 1 to 5. 70% of them are in the logs, with
20 or with 60 answers each; the others come as newcomers, for 40 rounds of ten questions. A question may come again, and
then gets the very same answer (retest 0) or one of which half the personal residual is drawn afresh (retest 0.5); or
each question comes once, for 13 rounds. Ten random splits of the people, a hundred newcomers each; intervals are over
splits, and all policies meet the same people and the same offers. "Told" are policies whose newcomers begin with what
twenty earlier newcomers told of how much comes again. Likes (0/1: an answer of at least 4) of Young People, 20 logged,
and of the 25 questions of bfi, 12 logged, are met in four ways, by 300 newcomers each: the same answer again, an answer
redrawn with probability one half or always, and half of the people consistent while the others redraw everything. The
films are those of the replay of MovieLens, each film once, 40 rounds; there intervals are over newcomers. "Limit" is
PriorUCB with the mean and the covariance of the complete rows of the people in the logs: as much as anybody could know
of them. `way` is how far a policy gets from the regret of PopulationMean to that of the limit, `arms` the ratio of its
regret to that of EmpiricalArms (told, if it is told), `ratio` that of PriorUCB's regret to its own. "Share 0.5 assumed"
is PriorUCB that takes half of the residual to come again, whatever it sees. ALS and EASE are
`newcomer.evaluation.recommenders`, 18 factors, greedy.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import draw_lines
from newcomer.evaluation.recommenders import recommenders
from newcomer.paper.figure import Point, study
from newcomer.paper.named_worlds import real_ratings
from newcomer.paper.panels import REGRET, ROUND
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, regrets
from newcomer.paper.studies.earlier_users import EARLIER, TOLD, after, deal
from newcomer.simulate import simulated_mean_and_error
from newcomer.worlds.people import MadeUp, People

FILMS = "films, each once"
AGAIN, WAVERING, ONCE = "same answer again", "half redrawn", "each once"
REDRAWN, MIXED = "everything redrawn", "half of the people redraw"
CASES: dict[str, dict[str, Any]] = {AGAIN: {}, WAVERING: {"retest": 0.5}, ONCE: {"repeat": False}}
LIKES: dict[str, dict[str, Any]] = {
    AGAIN: {},
    WAVERING: {"retest": 0.5},
    REDRAWN: {"retest": 1.0},
    MIXED: {"retest": 1.0, "steady": 0.5},
}
LIKED, LIKERS = {"young 0/1": 20, "bfi 0/1": 12}, 300  # logged answers of each table of likes, and newcomers
ANSWERS, SPLITS, ROUNDS, EVERY = (20, 60), 10, 40, 4
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
OURS, MEAN, ARMS, LIMIT = "PriorUCB", "PopulationMean", "EmpiricalArms", "limit"
HEARD = f", {TOLD}"  # ends the names of policies whose newcomers start with the repeatability of earlier ones


def sweep(scale: Scale) -> list[Point]:
    """Every split with few and with many answers, and the films; quick takes one split."""
    newcomers, splits, answers = (10, 1, ANSWERS[:1]) if scale.quick else (100, SPLITS, ANSWERS)
    found: list[Point] = [
        {"people": "young", "answers": steps, "newcomers": newcomers, "seed": seed}
        for seed in range(1, splits + 1)
        for steps in answers
    ]
    found += [
        {"people": people, "answers": steps, "newcomers": newcomers if scale.quick else LIKERS, "seed": seed}
        for seed in range(1, splits + 1)
        for people, steps in LIKED.items()
    ]
    return [*found, {"people": "films", "answers": 0, "newcomers": newcomers, "seed": 0}]


def run(setting: Setting, *, people: str, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of newcomers of one split, or of the replay: `case`, `answers`, `unit`, `policy`, `t`, `regret`."""
    if people == "films":
        return _films(setting, newcomers, seed)
    if people in LIKED:
        return _likes(setting, people, answers, newcomers, seed)
    world = young(setting, seed)
    logs = world.logs(steps=min(answers, world.dim), seed=seed)
    model = fit(logs, null=False, calibrate=False)
    policies = _policies(model) | recommenders(logs, model)
    fixed = {f"share {share:g} assumed": nc.PriorUCB(replace(model, persistence=share)) for share in SHARES}
    found = []
    for case, settings in CASES.items():
        place = replace(world, **settings)
        best = {LIMIT: nc.PriorUCB(place.limit(), width=0.0, level=0.0)}
        played = {**policies, **best, **({**fixed, **_told(model, place, seed)} if place.repeat else {})}
        horizon = ROUNDS if place.repeat else place.dim // place.choices
        rows = regrets(played, place, horizon=horizon, users=newcomers, seed=seed, every=EVERY)
        found.append(_averaged(rows, case, answers, seed))
    return pl.concat(found).with_columns(rank=pl.lit(model.factor.shape[1])).select(COLUMNS)


def _averaged(rows: pl.DataFrame, case: str, answers: int, seed: int) -> pl.DataFrame:
    """Mean regrets of the newcomers of a split, who are one unit."""
    own = rows.group_by("policy", "t", maintain_order=True).agg(pl.col("regret").mean())
    return own.with_columns(case=pl.lit(case), answers=pl.lit(answers), unit=pl.lit(seed))


def _likes(setting: Setting, people: str, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Newcomers of a table of 0 and 1."""
    world, found = people_table(setting, people, seed), []
    logs = world.logs(steps=min(answers, world.dim // 2), seed=seed)
    model = fit(logs, null=False, calibrate=False)
    for case, settings in LIKES.items():
        place = replace(world, **settings)
        best = {LIMIT: nc.PriorUCB(place.limit(), width=0.0, level=0.0)}
        played = {**_policies(model), **_told(model, place, seed), **best}
        rows = regrets(played, place, horizon=ROUNDS, users=newcomers, seed=seed, every=EVERY)
        found.append(_averaged(rows, f"{people}, {case}", answers, seed))
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


def _told(model: nc.Model, place: People, seed: int) -> dict[str, Any]:
    """The policies that remember, whose newcomers start with the repeatability of earlier ones."""
    earlier = deal(place, EARLIER, ROUNDS, seed, "earlier")
    makers = {OURS: nc.PriorUCB, "PriorTS": nc.PriorTS, ARMS: nc.EmpiricalArms}
    return {name + HEARD: after(make(model), earlier) for name, make in makers.items()}


def _films(setting: Setting, newcomers: int, seed: int) -> pl.DataFrame:
    """The replay of real ratings."""
    place = real_ratings(setting)
    logs = place.logs()
    model = fit(logs, null=False, calibrate=False)
    policies = _policies(model) | recommenders(logs, model)
    policies = {name: policy for name, policy in policies.items() if not name.endswith("own answers")}
    horizon = setting.sizes.replay_rounds
    rows = regrets(policies, place, horizon=horizon, users=newcomers, seed=seed, every=EVERY)
    labelled = rows.with_columns(case=pl.lit(FILMS), answers=pl.lit(0), rank=pl.lit(model.factor.shape[1]))
    return labelled.rename({"user": "unit"}).select(COLUMNS).with_columns(pl.col("unit").cast(pl.Int32))


def young(setting: Setting, seed: int) -> People:
    """Young People, beside the films or in NEWCOMER_DATA; quick takes made-up people where they are not beside."""
    beside = Path(setting.data).parent
    here = (beside / "young-people").is_dir()
    if setting.sizes.quick and not here:
        return replace(MadeUp.draw(150, 40).world, held_out=0.3, retest=0.0, seed=seed)
    return People.young(beside if here else None, seed=seed)


def people_table(setting: Setting, people: str, seed: int) -> People:
    """Young People or bfi, or their likes, split by the seed; quick takes made-up people where they are not at hand."""
    beside = Path(setting.data).parent
    made_up = setting.sizes.quick and not (beside / "bfi").is_dir()
    if people.startswith("young") or made_up:
        world = young(setting, seed)
    else:
        world = People.bfi(beside if (beside / "bfi").is_dir() else None, seed=seed)
    return world.liked(4) if people.endswith("0/1") else world


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy in every case, beside that of the mean, the limit, EmpiricalArms and PriorUCB."""
    by = ["case", "answers", "t"]
    whole = rows
    heard = rows.filter(policy=ARMS + HEARD).select(*by, "unit", pl.col("regret").alias("heard"))
    whole = whole.join(heard, on=[*by, "unit"], how="left", maintain_order="left")
    for name, policy in {"mean": MEAN, "limit": LIMIT, "arm": ARMS, "ours": OURS}.items():
        own = rows.filter(pl.col("policy") == policy).select(*by, "unit", pl.col("regret").alias(name))
        whole = whole.join(own, on=[*by, "unit"], how="left", maintain_order="left")
    told = pl.col("policy").str.ends_with(HEARD)
    whole = whole.with_columns(arm=pl.when(told).then("heard").otherwise("arm"))
    whole = whole.with_columns(gain=pl.col("mean") - pl.col("regret"), most=pl.col("mean") - pl.col("limit"))
    return whole.group_by(*by, "policy", maintain_order=True).agg(
        units=pl.len(),
        rank=pl.col("rank").mean(),
        **simulated_mean_and_error("regret"),
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
    hidden = pl.col("policy").str.contains(f"assumed|Uniform|own answers|EASE|{TOLD}")  # EASE lies on the mean
    shown = frame.filter(pl.col("answers").is_in([0, ANSWERS[0]]), ~hidden, pl.col("case").is_in([*CASES, FILMS]))
    return draw_lines(shown, path, x=ROUND, y=REGRET, error="regret_se", facet="case", columns=2)


STUDY = study(
    "people",
    claim="Where actions come again the prior with a memory serves real people better than a mean per action, and on "
    "likes of Young People as well as it.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
