"""The loop: serve newcomers, keep what happened, fit the next model from the store, promote it, serve again.

`python -m experiments.service_loop` writes experiments/results/service-loop.csv, and the table of
docs/paper/measured-loop.md is made of it. The truth of a seed is a model of `ACTIONS` one-hot actions and two
directions of preference. The first model is fitted to `FIRST` users ("few", "many") who were logged at random, `ROWS`
rows each. A generation serves `USERS` newcomers for `ROWS` decisions each, by the service itself on an SQLite store,
90% treated, 5% control, 5% random; the next model is fitted to everything that the store has by then
(`nc.read_logs("sqlite:///...")`), by EM: to the "store alone", or "from the first model", whose logs are not in the
store (`fit(logs, start=first, add=True)`, which is what `newcomer fit sqlite:///...` does).

Each model is judged by the same `JUDGES` other newcomers of the truth, whom PriorUCB serves for ten rounds from the
whole catalogue: `regret` is summed over rounds and averaged over newcomers. Differences to the first model are paired
by seed, in percent of the first model's average regret. The seeds, sizes and shares were set before the first run.

A service draws its key and the ids of decisions from the system, and with them arms and random actions. Here they are
drawn from the seed, and newcomers come one after another, so that a run can be repeated to the digit.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import polars as pl

import newcomer as nc
from experiments import markdown
from experiments.results_table import Command
from newcomer.arrays import Floats
from newcomer.interval import Interval
from newcomer.model import Model
from newcomer.serve import rewards, shapes, tables
from newcomer.serve.decide import decide
from newcomer.serve.service import Config, Service
from newcomer.serve.stores import store_of
from newcomer.worlds.fitted import FittedWorld

SEEDS = range(20)
FIRST = {"few": 40, "many": 400}  # users of the first model
ACTIONS, RANK, NOISE = 20, 2, 0.5
USERS, ROWS, GENERATIONS = 400, 10, 3
HOW = ("store alone", "from the first model")  # how the next models are fitted
JUDGES, ROUNDS = 1000, 10
OUT = "service-loop.csv"
START = "| next models | first model |"  # of the table on the page


def truth_of(seed: int, actions: int = ACTIONS) -> Model:
    """Means of sd 0.3, loadings of sd 0.5 along each of two directions, noise of sd 0.5."""
    rng = np.random.default_rng([seed, 29])
    factor = 0.5 * rng.standard_normal((actions, RANK))
    mean = 1.0 + 0.3 * rng.standard_normal(actions)
    basis = np.linalg.qr(factor)[0]
    ids = tuple(f"a{i:02}" for i in range(actions))  # in the order in which a fit sorts them, as `play` supposes
    return Model(basis, np.ones(actions), mean, factor, NOISE**2, action_ids=ids, one_hot=True)


def preferences_of(truth: Model, rng: np.random.Generator) -> Floats:
    """What a newcomer gets of each action on average, (A,)."""
    return np.asarray(truth.mean + truth.factor @ rng.standard_normal(truth.factor.shape[1]))


def logged_at_random(truth: Model, users: int, rows: int, seed: int) -> nc.Logs:
    """Logs of before there was a service."""
    ids, user, action, reward = truth.action_ids or (), [], [], []
    for one in range(users):
        rng = np.random.default_rng([seed, 1, one])
        means, shown = preferences_of(truth, rng), rng.integers(len(ids), size=rows)
        user += [one] * rows
        action += [ids[a] for a in shown]
        reward += (means[shown] + NOISE * rng.standard_normal(rows)).tolist()
    return nc.Logs.from_arrays(user=user, action=action, reward=reward)


@dataclass(frozen=True)
class KnownSecrets:
    """What stands for the module `secrets` in a service that is to be repeated."""

    random: Random

    def token_hex(self, size: int) -> str:
        """So many bytes."""
        return self.random.randbytes(size).hex()

    def randbits(self, size: int) -> int:
        """A whole number below 2^size."""
        return self.random.getrandbits(size)


async def serve(url: str, model: Model, truth: Model, users: int, rows: int, seed: int, config: Config) -> None:
    """Serve newcomers of the truth with a model, which is promoted if the store does not know it yet."""
    service = Service(store_of(url), config, model)
    await service.open()
    service.rng = np.random.default_rng([seed, 2])
    places = {name: place for place, name in enumerate(truth.action_ids or ())}

    async def meet(number: int) -> None:
        rng = np.random.default_rng([seed, 3, number])
        means = preferences_of(truth, rng)
        for _ in range(rows):
            told = json.loads(await decide(service, shapes.Decide(user=f"{seed}-{number}")))
            paid = float(means[places[told["action"]]] + NOISE * rng.standard_normal())
            await rewards.take_reward(service, shapes.Reward(decision=told["decision"], reward=paid))

    try:
        for number in range(users):
            await meet(number)
    finally:
        await service.close()


def regret_of(models: list[Model], truth: Model, seed: int, judges: int = JUDGES) -> list[float]:
    """The regret of each model over ten rounds, averaged over the same newcomers."""
    world = FittedWorld(truth, np.arange(ACTIONS), choices=ACTIONS)
    policies = {str(number): nc.PriorUCB(model) for number, model in enumerate(models)}
    rows = nc.play(policies, world, horizon=ROUNDS, users=judges, seed=seed, progress=False)
    means = rows.group_by("policy").agg(pl.col("regret").sum() / judges)
    found = dict(means.iter_rows())
    return [float(found[name]) for name in policies]


def generations(seed: int, first: int, how: str, folder: Path) -> list[Model]:
    """The models of one loop."""
    truth, url = truth_of(seed), f"sqlite:///{folder}/{seed}-{first}-{how.split()[0]}.store"
    models = [nc.fit(logged_at_random(truth, first, ROWS, seed))]
    for generation in range(1, GENERATIONS):
        number = 1000 * seed + 10 * generation
        with patch.object(tables, "secrets", KnownSecrets(Random(number))):
            asyncio.run(serve(url, models[-1], truth, USERS, ROWS, number, Config()))
        logs = nc.read_logs(url)
        start = {"start": models[0], "add": True} if how == HOW[1] else {}
        models.append(nc.fit(logs, **start))
        logs.close()
    return models


def run(command: Command) -> pl.DataFrame:
    """Every seed, way and size, or the first of each; a row for each model."""
    rows, first = [], list(FIRST.items())[: 1 if command.quick else None]
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS[:1] if command.quick else SEEDS:
            for how, (name, users) in product(command.parts, first):
                models = generations(seed, users, how, Path(folder))
                regrets = regret_of(models, truth_of(seed), seed)
                for number, (model, regret) in enumerate(zip(models, regrets, strict=True), start=1):
                    facts = {"seed": seed, "next": how, "first": name, "generation": number}
                    rows.append(facts | {"rank": model.rank, "regret": regret})
                print(f"seed {seed}, {name}: {', '.join(f'{one:.3f}' for one in regrets)}", file=sys.stderr, flush=True)
    return command.with_other_parts(pl.DataFrame(rows), OUT, pl.col("next"))


def table(found: pl.DataFrame) -> str:
    """The table of the page."""
    told = []
    for how, (name, users) in product(HOW, FIRST.items()):
        own = found.filter((pl.col("first") == name) & (pl.col("next") == how)).sort("seed")
        by = [own.filter(pl.col("generation") == one)["regret"].to_numpy() for one in range(1, GENERATIONS + 1)]
        for number, regret in enumerate(by, start=1):
            more = Interval.of(100.0 * (regret - by[0]) / by[0].mean())
            change = "" if number == 1 else f"{more.value:+.1f}% ({more.low:+.1f} to {more.high:+.1f})"
            told.append([how, f"{users} users", str(number), f"{regret.mean():.2f}", change, str(len(regret))])
    heads = ["next models", "first model", "generation", "regret of 10 rounds", "against the first model", "services"]
    return markdown.table(heads, told)


def with_table(page: str, results: Path) -> str:
    """The page with the table of the last run."""
    return markdown.replaced(page, START, table(pl.read_csv(results / OUT)))


if __name__ == "__main__":
    command = Command.read(*HOW)
    found = run(command)
    command.write(found, OUT, float_precision=5)
    if not command.quick:
        print(table(found))
