"""Does the outlook keep its word? What `fit` says of newcomers, and what then happens to other people.

Twenty random splits of each table of real people: 70% are logged and fitted, the rest are newcomers whom no log has.
`fit` measures the gain over the population's mean after 1, 2, 5, 10 and 20 interactions on people it held out; the
interval is one for another group, of the newcomers' size. Then PriorUCB as it comes serves these, who are told t of
their own rows and choose among as many candidates. Young People with 20 and with 60 logged answers a person;
MovieLens's 300 most rated films, 1,500 people in the logs with at most 100 ratings each, 1,000 newcomers. `covered`
counts the splits whose interval has what happened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.arrays import Floats, Ints
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.evaluation.off_policy import off_policy_choice_rewards
from newcomer.logs import Logs
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.people import young
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.simulate import simulated_mean_and_error
from newcomer.users import hold_out_users
from newcomer.worlds.world import world_stream

SPLITS, ANSWERS = 20, (20, 60)
FILMS, LOGGED, NEWCOMERS, LONGEST = 300, 1500, 1000, 100
TABLES = ("young, 20 answers", "young, 60 answers", "films")


def sweep(scale: Scale) -> list[Point]:
    """Every split of every table."""
    tables, splits = (TABLES[:1], 1) if scale.quick else (TABLES, SPLITS)
    return [{"people": people, "seed": seed} for people in tables for seed in range(1, splits + 1)]


def run(setting: Setting, *, people: str, seed: int) -> pl.DataFrame:
    """What was said and what happened: `people`, `seed`, `interactions`, `said`, `low`, `high`, `happened`, `mean`."""
    logs, newcomers = _films(setting, seed) if people == "films" else _young(setting, people, seed)
    model = fit(logs, null=False, calibrate=False)
    facts = model.evidence.population
    if facts is None or facts.outlook is None:
        return pl.DataFrame(schema=SCHEMA)
    policies = {"ours": nc.PriorUCB(model), "mean": nc.PopulationMean(model)}
    rows = []
    for step in facts.outlook.steps:
        got = off_policy_choice_rewards(
            policies, newcomers, steps=step.interactions, choices=facts.outlook.choices, deals=12, seed=seed
        )
        gain = got["ours"] - got["mean"]
        error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        said = (step.gain, *step.over_mean.again(len(gain)))
        rows.append((people, seed, step.interactions, *said, float(gain.mean()), error, float(got["mean"].mean())))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


SCHEMA = {
    "people": pl.String,
    "seed": pl.Int64,
    "interactions": pl.Int64,
    "said": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "happened": pl.Float64,
    "happened_error": pl.Float64,
    "mean": pl.Float64,
}


def _young(setting: Setting, people: str, seed: int) -> tuple[Logs, Logs]:
    """Logs of 70% of the people, and the complete rows of the others."""
    world = young(setting, seed)
    answers = min(int(people.split()[1]), world.dim)
    who = np.repeat(world.newcomers, world.dim)
    asked = np.tile(np.array(world.questions), len(world.newcomers))
    return world.logs(steps=answers, seed=seed), Logs.from_arrays(
        user=who, action=asked, reward=world.table[world.newcomers].ravel()
    )


def _films(setting: Setting, seed: int) -> tuple[Logs, Logs]:
    """Ratings of the most rated films: of people in the logs, and of newcomers."""
    ratings = read_ratings(setting.data)
    often = np.argsort(-np.bincount(ratings.movie), kind="stable")[:FILMS]
    kept = np.isin(ratings.movie, often)
    user, movie, reward = ratings.user[kept], ratings.movie[kept], ratings.rating[kept]
    logged, others = hold_out_users(len(ratings.users), 0.3, world_stream(seed, "outlook"))
    some = _some(user, movie, reward, logged[:LOGGED], seed)
    return some, _some(user, movie, reward, others[:NEWCOMERS], seed)


def _some(user: Ints, movie: Ints, reward: Floats, people: Ints, seed: int) -> Logs:
    """Up to `LONGEST` ratings, drawn at random, of some people."""
    own = np.flatnonzero(np.isin(user, people))
    order = own[np.lexsort((world_stream(seed, "outlook rows").random(len(own)), user[own]))]
    who = user[order]
    place = np.arange(len(who)) - np.searchsorted(who, who)
    kept = order[place < LONGEST]
    return Logs.from_arrays(user=user[kept], action=movie[kept], reward=reward[kept])


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Averages over splits, and how many intervals had what happened."""
    inside = (pl.col("happened") >= pl.col("low")) & (pl.col("happened") <= pl.col("high"))
    return rows.group_by("people", "interactions", maintain_order=True).agg(
        splits=pl.len(),
        covered=inside.sum(),
        **simulated_mean_and_error("said"),
        width=(pl.col("high") - pl.col("low")).mean(),
        **simulated_mean_and_error("happened"),
        mean=pl.col("mean").mean(),
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """What was said and what happened, a panel a table."""
    long = [
        frame.select(
            "people", pl.col("interactions").alias("t"), pl.lit(name).alias("policy"),
            pl.col(column).alias("gain"), pl.col(f"{column}_se").alias("se"),
        )
        for name, column in {"said by fit": "said", "happened to newcomers": "happened"}.items()
    ]  # fmt: skip
    x, y = Axis("t", "interactions"), Axis("gain", "gain over the mean")
    return draw_lines(pl.concat(long), path, x=x, y=y, error="se", facet="people", columns=3, marked=True)


STUDY = study(
    "outlook",
    claim="The intervals that fit gives hold what then happens to other people.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
