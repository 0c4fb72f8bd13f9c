"""Do the intervals of `nc.evaluate` have the truth in them? Worlds in which it is known, and real people kept apart.

`python -m experiments.evaluate_coverage` writes two tables in experiments/results, which
docs/paper/measured-evaluate.md shows.

evaluate-coverage.csv: a row for each estimate, over 200 worlds: the bias, its standard error, and the share of 95%
intervals that had the truth, `before` by the spread of people alone and `coverage` as they are told. A world has 12
actions, people who differ along two directions, noise, and a logging policy that prefers some actions; 300 people have
14 rows each, with propensities. Five folds are fitted (SOLD with two directions, which is quick) and judged as
`nc.evaluate` does, by the same functions. The truth is what the same five fits are worth to other people of that world,
a thousand for each fit: by their rewards for what choices among own rows are worth, by their expected rewards for the
value of a decision. (Its own error lowers the coverage of perfect intervals to about 94%.)

evaluate-few.csv: a row for each table of 150 to 349 people and number of interactions: what is promised of the gain
over the population mean, as `nc.fit` and `nc.evaluate` promise it, and what happened to people kept apart when a fit
to *all* of the table served them. Tables are simulated (stars and clicks of 40 actions, wide: stars of 150 actions) or
drawn from the Young People Survey and bfi (NEWCOMER_DATA names the folder that holds them), whose other people are
those kept apart. `worlds` and `few` are the parts of the command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import fit, fit_and_fit_parts
from newcomer.arrays import Floats, Ints
from newcomer.evaluation import off_policy
from newcomer.evaluation.cold_start import CHANCE, REWARD, ByPolicy, Fold, judge_cold_start
from newcomer.evaluation.off_policy import off_policy_replay
from newcomer.evaluation.predictors import MEAN, OURS, POSTERIOR
from newcomer.evaluation.results import CurveStep, PolicyRow, result_curves, result_table_rows
from newcomer.evaluation.settings import EVALUATION
from newcomer.evidence import GainStep
from newcomer.gain import heldout_gain
from newcomer.gain.deals import PerUser, UserResults
from newcomer.interval import Interval
from newcomer.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.prior import PriorTS, PriorUCB
from newcomer.users import user_folds as split
from newcomer.worlds.people import People

WORLDS, USERS, OTHERS, ROWS, ACTIONS = 200, 300, 1000, 14, 12  # OTHERS: for each fit
CHOICES, LOOK, ROUNDS = 5, 5, 5
FEW = (  # kinds of tables: people, and rows of each; the rule was chosen among fifteen on other tables
    ("Young People", 349, 20),
    ("Young People", 250, 40),
    ("bfi", 150, 16),
    ("stars", 250, 14),
    ("weak stars", 200, 14),
    ("wide", 300, 20),
    ("clicks", 280, 14),
)
STRENGTH = {"stars": 0.45, "weak stars": 0.25, "wide": 0.4, "clicks": 0.8}  # sd of what a direction does to an action
APART, TABLES = 1500, 3  # simulated people kept apart; tables of each kind
PARTS, QUICK = ("worlds", "few"), (FEW[2], FEW[6])
ESTIMATES, TOLD = "| estimate | bias |", "| tables | of | intervals |"  # the tables on the page


class Crowd(NamedTuple):
    """People of a world: their logs, what each thinks of every action (n, A), and the actions logged (n, H)."""

    logs: Logs
    tastes: Floats
    actions: Ints
    rewards: Floats


class World(NamedTuple):
    """Means (A,), directions (A, 2) and logging probabilities (A,)."""

    mean: Floats
    factor: Floats
    logging: Floats

    @classmethod
    def of(cls, rng: np.random.Generator) -> World:
        """One world."""
        shares = np.exp(0.5 * rng.standard_normal(ACTIONS))
        return cls(0.5 * rng.standard_normal(ACTIONS), 0.7 * rng.standard_normal((ACTIONS, 2)), shares / shares.sum())

    def people(self, rng: np.random.Generator, count: int, first: int = 0) -> Crowd:
        """Some people and their logs."""
        tastes = self.mean + rng.standard_normal((count, 2)) @ self.factor.T
        actions = rng.choice(ACTIONS, size=(count, ROWS), p=self.logging)
        rewards = np.take_along_axis(tastes, actions, axis=1) + rng.standard_normal((count, ROWS))
        user = np.repeat(np.arange(first, first + count), ROWS)
        logs = Logs.from_arrays(
            user=user, action=actions.ravel(), reward=rewards.ravel(), propensity=self.logging[actions.ravel()]
        )
        return Crowd(logs, tastes, actions, rewards)


def run(seed: int) -> list[dict[str, float | str | int]]:
    """One world: estimates beside their truths."""
    rng = np.random.default_rng([seed, 16])
    world = World.of(rng)
    some = world.people(rng, USERS)
    folds = [Fold(one.fitted, one.judged, seed) for one in split(np.ones(64, dtype=np.int64), every=True)]
    models = [fit(fold.to_fit(some.logs), rank=2, estimator="sold", null=False, calibrate=False) for fold in folds]
    others = [world.people(rng, OTHERS, first=USERS + OTHERS * number) for number in range(len(folds))]
    held_out = [fold.held_out(some.logs) for fold in folds]
    looked = [_look(*pair) for pair in zip(models, held_out, strict=True)]
    said, alone = _judged(looked), _judged(looked, alone=True)
    true = _judged([_look(model, crowd.logs, deals=1) for model, crowd in zip(models, others, strict=True)])
    values = off_policy.off_policy_rows(
        UserResults.joined([_weigh(*pair) for pair in zip(models, held_out, strict=True)])
    )[0]
    row = next(one for one in values if one.policy == OURS and one.interactions == LOOK)
    worth = np.mean([_worth(model, crowd) for model, crowd in zip(models, others, strict=True)])
    logged = world.logging @ world.mean
    pairs = {name: (said[name], true[name].value) for name in said}
    pairs |= {
        "decision, IPS": (row.ips, worth),
        "decision, self-normalised IPS": (row.self_normalised, worth),
        "decision, doubly robust": (row.doubly_robust, worth),
        "decision, doubly robust, over logging": (row.over_logging, worth - logged),
    }
    return [_told(name, seed, one, alone.get(name, one), float(truth)) for name, (one, truth) in pairs.items()]


def _told(name: str, seed: int, said: Interval, alone: Interval, truth: float) -> dict[str, float | str | int]:
    inside, before = (int(one.low <= truth <= one.high) for one in (said, alone))
    told = {"estimate": name, "world": seed, "error": said.value - truth, "deviation": said.error}
    return told | {"covered": inside, "before": before}


def _look(model: Model, logs: Logs, deals: int = 2) -> tuple[UserResults, UserResults]:
    """What the predictors and policies are worth to the people of some logs."""
    ours, mean = PriorUCB(model), PopulationMean(model)
    predictors = {OURS: ByPolicy(ours), MEAN: ByPolicy(mean), POSTERIOR: ByPolicy(PriorTS(model))}
    found = judge_cold_start(predictors, logs, steps=(LOOK,), choices=CHOICES, deals=deals)
    every = np.full((*found.people.values.shape[:2], len(EVALUATION.steps), 3), np.nan)
    every[:, :, EVALUATION.steps.index(LOOK)] = found.people.values[:, :, 0]
    games = off_policy_replay({OURS: ours, MEAN: mean}, logs, rounds=ROUNDS)
    return UserResults(found.names, PerUser(found.people.hashes, every)), games


def _judged(found: list[tuple[UserResults, UserResults]], *, alone: bool = False) -> dict[str, Interval]:
    """The estimates of the folds together; `alone` with errors by the spread of people alone."""
    judged, played = (UserResults.joined([one[i] for one in found]) for i in (0, 1))
    if alone:
        judged, played = replace(judged, folds=None), replace(played, folds=None)
    ours, mean, chance = (judged.of(name)[:, EVALUATION.steps.index(LOOK), REWARD] for name in (OURS, MEAN, CHANCE))
    curve: CurveStep = next(
        step for step in result_curves(judged) if (step.predictor, step.interactions) == (POSTERIOR, LOOK)
    )
    game: PolicyRow = next(
        row for row in result_table_rows(played, (ROUNDS,)) if (row.policy, row.rounds) == (OURS, ROUNDS)
    )
    return {
        "choice, reward": Interval.of(ours, judged.folds),
        "choice, over the population mean": Interval.of(ours - mean, judged.folds),
        "choice, over logging": Interval.of(ours - chance, judged.folds),
        "prediction, squared error": curve.squared_error,
        "prediction, squared error saved": curve.saved,
        "prediction, concordance": curve.concordance,
        "replay, over the population mean": game.over_mean,
    }


def _weigh(model: Model, logs: Logs) -> UserResults:
    return off_policy.off_policy_sums({OURS: PriorUCB(model)}, PriorTS(model), logs)


def _worth(model: Model, crowd: Crowd) -> float:
    """Expected reward of PriorUCB's decisions after 5 to 9 logged interactions."""
    policy, ids = PriorUCB(model), np.array(model.action_ids)
    state, worth = policy.start(len(crowd.tastes)), []
    for t in range(10):
        if t >= LOOK:
            chosen = policy.choose(state, ids=ids)
            worth.append(crowd.tastes[np.arange(len(chosen)), ids[chosen]].mean())
        policy.update(state, reward=crowd.rewards[:, t], ids=ids[np.searchsorted(ids, crowd.actions[:, t])])
    return float(np.mean(worth))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Bias and coverage of each estimate over worlds."""
    return rows.group_by("estimate", maintain_order=True).agg(
        worlds=pl.len(),
        bias=pl.col("error").mean(),
        bias_se=pl.col("error").std() / pl.len().sqrt(),
        spread=pl.col("error").std(),
        said=pl.col("deviation").mean(),
        before=pl.col("before").mean(),
        coverage=pl.col("covered").mean(),
    )


def few_people(kind: str, people: int, rows: int, seed: int) -> tuple[Logs, Logs]:
    """The logs of a table of few people, and of the people kept apart."""
    if kind in STRENGTH:
        return _simulated(kind, people, rows, seed)
    path = Path(os.environ.get("NEWCOMER_DATA") or ".")
    world = People.young(path) if kind == "Young People" else People.bfi(path)
    rng = np.random.default_rng([seed, people, rows, 1 + (kind == "bfi")])
    order = rng.permutation(len(world.table))
    return _asked(world.table, order[:people], rows, rng), _asked(world.table, order[people:], rows, rng)


def _asked(table: Floats, who: Ints, rows: int, rng: np.random.Generator) -> Logs:
    """Answers to so many questions of each person, drawn at random."""
    action = np.argsort(rng.random((len(who), table.shape[1])), axis=1)[:, :rows].ravel()
    user = np.repeat(who, rows)
    return Logs.from_arrays(user=user, action=action, reward=table[user, action])


def _simulated(kind: str, people: int, rows: int, seed: int) -> tuple[Logs, Logs]:
    """Stars from 1 to 5, or clicks, of people who differ along three directions; popular actions come more often."""
    rng = np.random.default_rng([seed, people, rows, 3])
    actions, every = 150 if kind == "wide" else 40, people + APART
    mean, factor = 0.4 * rng.standard_normal(actions), STRENGTH[kind] * rng.standard_normal((actions, 3))
    popular = 0.5 * rng.standard_normal(actions)
    liked = mean + rng.standard_normal((every, 3)) @ factor.T
    action = np.argsort(-(popular + rng.gumbel(size=liked.shape)), axis=1)[:, :rows]
    liked = np.take_along_axis(liked, action, axis=1)
    if kind == "clicks":
        reward = (rng.random(liked.shape) < 1 / (1 + np.exp(1 - liked))).astype(np.float64)
    else:
        level, noise = 0.3 * rng.standard_normal((every, 1)), 0.8 * rng.standard_normal(liked.shape)
        reward = np.clip(np.rint(3.5 + liked + level + noise), 1, 5)
    return tuple(  # type: ignore[return-value]
        Logs.from_arrays(
            user=np.repeat(np.arange(*ends), rows), action=action[part].ravel(), reward=reward[part].ravel()
        )
        for ends, part in (((people,), slice(people)), ((people, every), slice(people, None)))
    )


def few(kind: str, people: int, rows: int, seed: int) -> Iterator[dict[str, float | str | int]]:
    """One table: what is promised, with and without chance in who was fitted to, and what happened."""
    mine, others = few_people(kind, people, rows, seed)
    fitted = fit_and_fit_parts(mine, calibrate=False, measure=False)
    said = _gains(mine, fitted.apart, rows)
    with patch("newcomer.interval.FEW", 0):
        alone = _gains(mine, fitted.apart, rows)
    every = np.ones_like(fitted.apart[0][1]) if fitted.apart else np.ones(1, dtype=np.bool_)
    happened = _gains(others, ((fitted.model, every),), rows)
    for t in sorted({*said} & {*happened}):
        one, true = said[t], happened[t]
        told = {"kind": kind, "people": people, "rows": rows, "seed": seed, "interactions": t, "judged": one.people}
        told |= {"said": one.gain, "error": one.error, "alone": alone[t].error, "low": one.low, "high": one.high}
        yield told | {"happened": true.gain, "happened_error": true.error}


def _gains(people: Logs, apart: heldout_gain.Apart, rows: int) -> dict[int, GainStep]:
    """Gains over the population mean of people who are served by fits without them, by number of interactions."""
    found = heldout_gain.measure_heldout_gain(partial(reduce, people), apart, people=people.summary.users, length=rows)
    return {} if found is None else {step.interactions: step for step in found.steps if step.interactions}


def held(rows: pl.DataFrame) -> pl.DataFrame:
    """Shares of intervals that held, of each kind of table and of all; `allowing` for the error of what happened."""
    off = (pl.col("said") - pl.col("happened")).abs()
    wide = (pl.col("high") - pl.col("low")) / 2
    ratio = pl.when(pl.col("error") > 0).then(pl.col("alone") / pl.col("error")).otherwise(1.0)
    other = 1.96 * pl.col("happened_error")
    nothing = (pl.col("error") == 0) & (pl.col("happened") == 0)  # promised, and so it was: that proves no interval
    told = rows.filter(~nothing).with_columns(
        held=off <= wide,
        before=off <= wide * ratio,
        allowing=off <= (wide**2 + other**2).sqrt(),
        allowing_before=off <= ((wide * ratio) ** 2 + other**2).sqrt(),
        table=pl.concat_str("kind", "people", "rows", "seed", separator=" "),
    )
    both = pl.concat([told, told.with_columns(kind=pl.lit("all"))])
    means = [pl.col(name).mean() for name in ("before", "held", "allowing_before", "allowing")]
    sizes = [pl.col("people").min().alias("least"), pl.col("people").max().alias("most")]
    bias = (pl.col("said") - pl.col("happened")).mean().alias("bias")
    found = both.group_by("kind", maintain_order=True)
    return found.agg(pl.col("table").n_unique().alias("tables"), *sizes, pl.len().alias("intervals"), bias, *means)


def with_tables(page: str, results: Path) -> str:
    """The page with its two tables made anew from what is in `results`."""
    if (results / "evaluate-coverage.csv").is_file():
        head = ["estimate", "bias", "spread", "said", "before", "coverage"]
        body = [
            [row["estimate"], f"{row['bias']:+.4f} ± {row['bias_se']:.4f}"]
            + [f"{row['spread']:.3f}", f"{row['said']:.3f}", f"{row['before']:.1%}", f"{row['coverage']:.1%}"]
            for row in pl.read_csv(results / "evaluate-coverage.csv").iter_rows(named=True)
        ]
        page = markdown.replaced(page, ESTIMATES, markdown.table(head, body))
    if (results / "evaluate-few.csv").is_file():
        head = ["tables", "of", "intervals", "bias", "before", "held", "before, allowing", "held, allowing"]
        body = [
            [f"{row['tables']} of {row['least']} to {row['most']} people", row["kind"], str(row["intervals"])]
            + [f"{row['bias']:+.4f}"]
            + [f"{row[name]:.0%}" for name in ("before", "held", "allowing_before", "allowing")]
            for row in held(pl.read_csv(results / "evaluate-few.csv")).iter_rows(named=True)
        ]
        page = markdown.replaced(page, TOLD, markdown.table(head, body))
    return page


def main(command: Command) -> None:
    """Write the tables asked for."""
    if "worlds" in command.parts:
        found = table(pl.DataFrame([row for seed in range(2 if command.quick else WORLDS) for row in run(seed)]))
        print(found)
        command.write(found, "evaluate-coverage.csv", float_precision=5)
    if "few" in command.parts:
        kinds, tables = (QUICK, 1) if command.quick else (FEW, TABLES)
        rows = pl.DataFrame([row for seed in range(1, tables + 1) for kind in kinds for row in few(*kind, seed)])
        print(held(rows))
        command.write(rows, "evaluate-few.csv", float_precision=5)


if __name__ == "__main__":
    main(Command.read(*PARTS))
