"""Do the intervals of `nc.evaluate` have the truth in them? 400 worlds in which it is known.

`python -m experiments.evaluate_coverage` writes experiments/results/evaluate-coverage.csv, a row for each estimate: how
many worlds, the bias, its standard error, and the share of intervals (nominal 95%) that had the truth.

A world has 12 actions, people who differ along two directions, noise, and a logging policy that prefers some actions;
300 people have 14 rows each, with propensities. Five folds are fitted (SOLD with two directions, which is quick: how
good a fit is does not matter here) and judged as `nc.evaluate` does, by the same functions. The truth is what the same
five fits are worth to other people of that world, a thousand for each fit: by their rewards for what choices among own
rows are worth, by their expected rewards for the value of a decision. (Its own error lowers the coverage of perfect
intervals to about 94%.)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from newcomer.arrays import Floats, Ints
from newcomer.evaluation import propensities
from newcomer.evaluation.contenders import MEAN, OURS, POSTERIOR
from newcomer.evaluation.judging import CHANCE, REWARD, ByPolicy, judge
from newcomer.evaluation.replaying import replay
from newcomer.evaluation.splitting import Fold
from newcomer.evaluation.stretches import CurveStep, PolicyRow
from newcomer.evaluation.summing import STEPS, curves_of, table_rows
from newcomer.fitting import fit
from newcomer.gain.per_user import Persons, Table
from newcomer.interval import Stretch
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.prior_policies import PriorTS, PriorUCB
from newcomer.users import folds as split

WORLDS, USERS, OTHERS, ROWS, ACTIONS = 400, 300, 1000, 14, 12  # OTHERS: for each fit
CHOICES, LOOK, ROUNDS = 5, 5, 5
RESULTS = Path(__file__).parent / "results"


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
    said = _judged([_look(*pair) for pair in zip(models, held_out, strict=True)])
    true = _judged([_look(model, crowd.logs, deals=1) for model, crowd in zip(models, others, strict=True)])
    values = propensities.rows_of(Table.joined([_weigh(*pair) for pair in zip(models, held_out, strict=True)]))[0]
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
    return [_told(name, seed, stretch, float(truth)) for name, (stretch, truth) in pairs.items()]


def _told(name: str, seed: int, said: Stretch, truth: float) -> dict[str, float | str | int]:
    inside = int(said.low <= truth <= said.high)
    return {"estimate": name, "world": seed, "error": said.value - truth, "deviation": said.error, "covered": inside}


def _look(model: Model, logs: Logs, deals: int = 2) -> tuple[Table, Table]:
    """What the predictors and policies are worth to the people of some logs."""
    ours, mean = PriorUCB(model), PopulationMean(model)
    predictors = {OURS: ByPolicy(ours), MEAN: ByPolicy(mean), POSTERIOR: ByPolicy(PriorTS(model))}
    found = judge(predictors, logs, steps=(LOOK,), choices=CHOICES, deals=deals)
    every = np.full((*found.people.values.shape[:2], len(STEPS), 3), np.nan)
    every[:, :, STEPS.index(LOOK)] = found.people.values[:, :, 0]
    games = replay({OURS: ours, MEAN: mean}, logs, rounds=ROUNDS)
    return Table(found.names, Persons(found.people.hashes, every)), games


def _judged(found: list[tuple[Table, Table]]) -> dict[str, Stretch]:
    """The estimates of the folds together."""
    judged, played = (Table.joined([one[i] for one in found]) for i in (0, 1))
    ours, mean, chance = (judged.of(name)[:, STEPS.index(LOOK), REWARD] for name in (OURS, MEAN, CHANCE))
    curve: CurveStep = next(
        step for step in curves_of(judged) if (step.predictor, step.interactions) == (POSTERIOR, LOOK)
    )
    game: PolicyRow = next(row for row in table_rows(played, (ROUNDS,)) if (row.policy, row.rounds) == (OURS, ROUNDS))
    return {
        "choice, reward": Stretch.of(ours),
        "choice, over the population mean": Stretch.of(ours - mean),
        "choice, over logging": Stretch.of(ours - chance),
        "prediction, squared error": curve.squared_error,
        "prediction, squared error saved": curve.saved,
        "prediction, concordance": curve.concordance,
        "replay, over the population mean": game.over_mean,
    }


def _weigh(model: Model, logs: Logs) -> Table:
    return propensities.weigh({OURS: PriorUCB(model)}, PriorTS(model), logs)


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
        coverage=pl.col("covered").mean(),
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS
    found = table(pl.DataFrame([row for seed in range(count) for row in run(seed)]))
    print(found)
    if count == WORLDS:
        found.write_csv(RESULTS / "evaluate-coverage.csv", float_precision=5)
