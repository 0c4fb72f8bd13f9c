"""Is what all users share found where a sample of them cannot see it, and is it worth something?

`python -m experiments.large_worlds` (some minutes on one core) writes experiments/results/large-worlds.csv, a row a
fit: the directions found, their lengths beside the true ones, passes of EM over all rows, its processor seconds, and
what a round pays to 2,000 newcomers by PriorUCB, by PriorUCB without directions
(by memory alone, which is what a fit is worth that finds none), by PriorUCB that was told the true means and three
leading directions, by the best for all, and by somebody who knows them.

* `ratings`: 120,000 users rate 8 of 200 items; three directions, whose covariance has the eigenvalues .96, .77 and .39,
  explain 6% of the variance. Noise is normal. 20,000 users cannot show them: chance gives them eigenvalues of 1.07.
* `clicks`: 500,000 users click on 8 of 300 items, or do not; log-odds -3 + .7 N(0, 1) by item and three directions
  with entries N(0, .7^2). About 13% of the variance is shared. What a round can pay depends much on the items that
  are drawn: of eleven draws in which the best for all gets about .29 and somebody who knows a newcomer .66, PriorUCB
  that was told the truth got .51 to .55 in the eight that were looked at. Two are fitted: 34, whose lengths are
  nearest to .90 .87 .79 .43, and 37, where memory alone goes farthest (.50). Aim: .545 a round over 40 rounds, all
  items on offer, in the latter.
* `no taste`: clicks of items with such rates, and no directions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

import newcomer as nc
from experiments import markdown
from experiments.results_table import Command
from newcomer.arrays import Floats
from newcomer.em.fit import estimate_population
from newcomer.em.passes import Passes
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.population import Population

ROUNDS, NEWCOMERS, ROWS, CHUNK = 40, 2000, 8, 20_000
AIM = 0.545
START = "| world |"  # of the table on the page


@dataclass(frozen=True)
class World:
    """`base` (A,) and `directions` (A, k) of rewards, or of log-odds of clicks where there is no `noise`."""

    name: str
    users: int
    base: Floats
    directions: Floats
    noise: float | None

    def means(self, tastes: Floats) -> Floats:
        """Expected rewards (n, A) of users with z = tastes (n, k)."""
        scores = self.base + tastes @ self.directions.T
        return scores if self.noise is not None else 1.0 / (1.0 + np.exp(-scores))

    def drawn(self, rng: np.random.Generator, means: Floats) -> Floats:
        """Rewards with these expectations."""
        if self.noise is not None:
            return means + self.noise * rng.standard_normal(means.shape)
        return (rng.random(means.shape) < means).astype(np.float64)

    def logs(self, seed: int = 1) -> Logs:
        """Each user with `ROWS` different items at random."""
        rng, count = np.random.default_rng([seed, 22]), len(self.base)
        actions, rewards = [], []
        for first in range(0, self.users, CHUNK):
            size = min(CHUNK, self.users - first)
            means = self.means(rng.standard_normal((size, self.directions.shape[1])))
            shown = np.argpartition(rng.random((size, count)), ROWS, axis=1)[:, :ROWS]
            actions.append(shown.ravel())
            rewards.append(self.drawn(rng, np.take_along_axis(means, shown, axis=1)).ravel())
        user = np.repeat(np.arange(self.users), ROWS)
        return Logs.from_arrays(user=user, action=np.concatenate(actions), reward=np.concatenate(rewards))

    def truth(self) -> tuple[Floats, Floats]:
        """The mean (A,) of expected rewards, and the leading directions (A, 4) of their covariance."""
        means = self.means(np.random.default_rng(23).standard_normal((20_000, self.directions.shape[1])))
        values, vectors = np.linalg.eigh(np.cov(means.T))
        return means.mean(axis=0), vectors[:, :-5:-1] * np.sqrt(np.maximum(values[:-5:-1], 0.0))

    def served(self, model: Model, seed: int = 2) -> float:
        """What PriorUCB gets a round for newcomers, all items on offer."""
        rng, means = self.newcomers(seed)
        policy, ids, people = nc.PriorUCB(model), np.array(model.action_ids), np.arange(NEWCOMERS)
        state, paid = policy.start(NEWCOMERS), 0.0
        for _ in range(ROUNDS):
            chosen = policy.choose(state, ids=ids)
            expected = means[people, ids[chosen]]
            paid += float(expected.mean()) / ROUNDS
            policy.update(state, reward=self.drawn(rng, expected), ids=ids[chosen])
        return paid

    def newcomers(self, seed: int = 2) -> tuple[np.random.Generator, Floats]:
        """What newcomers like, (n, A), and the chance in what they are paid."""
        rng = np.random.default_rng([seed, 24])
        return rng, self.means(rng.standard_normal((NEWCOMERS, self.directions.shape[1])))


def ratings(users: int = 120_000) -> World:
    """The world of ratings."""
    rng = np.random.default_rng(21)
    axes = np.linalg.qr(rng.standard_normal((200, 3)))[0]
    return World("ratings", users, 0.2 * rng.standard_normal(200), axes * np.sqrt([0.96, 0.77, 0.39]), 0.42)


def clicks(draw: int = 37, users: int = 500_000, size: float = 0.7) -> World:
    """A draw of the world of clicks; of `size` zero, where nobody has a taste, with about the same rates."""
    rng = np.random.default_rng([draw, 21])
    base, directions = -3.0 + 0.7 * rng.standard_normal(300), size * rng.standard_normal((300, 3))
    name = f"clicks, draw {draw}" if size else "no taste"
    return World(name, users, base + (0.0 if size else 0.5), directions, None)


def known(world: World, like: Population) -> Population:
    """What a fit with three directions would find if it were told everything; of residuals all but the directions."""
    mean, directions = world.truth()
    factor = directions[:, :3]
    whole = mean * (1 - mean) if world.noise is None else world.noise**2 + (directions**2).sum(axis=1)
    left = np.maximum(whole - (factor**2).sum(axis=1), 0.05 * whole)
    return replace(like, mean=mean, factor=factor, noise_variance=float(left.mean()), by_action=left)


def model_of(logs: Logs, population: Population) -> Model:
    """A model to serve from, as `fit` makes it of logs without repeats."""
    return Model(
        basis=population.leading(max(population.rank, 1)),
        spectrum=np.zeros(logs.dim),
        mean=population.mean,
        factor=population.factor,
        noise_variance=population.noise_variance,
        estimator="em",
        action_ids=logs.action_ids,
        one_hot=True,
        residual_variance=population.variances,
        persistence=None,
        reward_step=logs.summary.reward_step,
    )


def run(world: World, rank: int | Literal["auto"] = "auto") -> dict[str, str | int | float]:
    """A row of the table."""
    logs, begun = world.logs(), time.process_time()
    passes = Passes(logs)
    found = estimate_population(passes, rank=rank)
    seconds, facts, one = time.process_time() - begun, found.counted(passes), found.population
    lengths, true = (np.linalg.norm(factor, axis=0) for factor in (one.factor, world.truth()[1]))
    told: dict[str, str | int | float] = {"world": world.name, "users": world.users, "asked": str(rank)}
    told |= {"directions": facts.directions, "by_all": facts.by_all}
    told |= {"lengths": " ".join(f"{x:.2f}" for x in lengths), "truth": " ".join(f"{x:.2f}" for x in true)}
    told |= {"passes": facts.passes, "cpu_s": seconds}
    told |= {"certainty": facts.ranks.certainty if facts.ranks else float("nan")}
    gram = found.pairs.gram.sum(axis=0) / logs.summary.rows
    alone = one.truncated(gram, 0, logs.table)
    _, means = world.newcomers()
    for name, population in {"prior_ucb": one, "memory_alone": alone, "told": known(world, one)}.items():
        told[name] = world.served(model_of(logs, population))
    return told | {"best_for_all": float(means.mean(axis=0).max()), "known": float(means.max(axis=1).mean())}


def with_table(page: str, results: Path) -> str:
    """The page with its table of large worlds made anew from large-worlds.csv; as it is if there is no such file."""
    if not (results / "large-worlds.csv").is_file():
        return page
    head = ["world", "rank asked", "found", "chosen by", "lengths", "true lengths", "passes", "CPU s"]
    head += ["PriorUCB pays", "by memory alone", "told the truth", "best for all", "who knows them"]
    paid = ("prior_ucb", "memory_alone", "told", "best_for_all", "known")
    body = [
        [
            f"{row['users']:,} users, {row['world']}", row["asked"], str(row["directions"]),
            "all users" if row["by_all"] else "the sample", row["lengths"] or "none", row["truth"], str(row["passes"]),
            f"{row['cpu_s']:.0f}", *(f"{row[name]:.3f}" for name in paid),
        ]
        for row in pl.read_csv(results / "large-worlds.csv", infer_schema_length=None).iter_rows(named=True)
    ]  # fmt: skip
    start = page.index(START)
    return page[:start] + markdown.table(head, body) + page[page.index("\n\n", start) :]


if __name__ == "__main__":
    command, rows = Command.read(), []
    asked: list[tuple[World, int | Literal["auto"]]]
    asked = [
        (ratings(), "auto"),
        (ratings(), 3),
        (clicks(), "auto"),
        (clicks(), 3),
        (clicks(34), "auto"),
        (clicks(size=0.0), "auto"),
    ]
    if command.quick:  # more users than the sample has, so that all of them are judged too
        asked = [(ratings(30_000), "auto"), (clicks(users=30_000), 3)]
    for world, rank in asked:
        rows.append(run(world, rank))
        print(rows[-1], flush=True)
    command.write(pl.DataFrame(rows), "large-worlds.csv", float_precision=4)
