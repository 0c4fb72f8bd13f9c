"""Is what all users share found where a sample of them cannot see it, and is it worth something?

`python -m experiments.large_worlds` (some minutes on one core) writes experiments/results/large-worlds.csv, a row a
fit: the directions found, their lengths beside the true ones, passes over all rows, processor seconds, and what a round
pays to 2,000 newcomers by PriorUCB, by the best for all, and by somebody who knows them.

* `ratings`: 120,000 users rate 8 of 200 items; three directions, whose covariance has the eigenvalues .96, .77 and .39,
  explain 6% of the variance. Noise is normal. 20,000 users cannot show them: chance gives them eigenvalues of 1.07.
* `clicks`: 500,000 users click on 8 of 300 items, or do not; log-odds -3.1 + .7 N(0, 1) by item and three directions
  whose entries are N(0, .7^2). About 12% of the variance is shared. Aim: .545 a round over 40 rounds, all items on
  offer.
* `no taste`: the same clicks with the same rates, and no directions.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from newcomer.arrays import Floats
from newcomer.fitting import fit
from newcomer.logs import Logs
from newcomer.model import Model

ROUNDS, NEWCOMERS, ROWS, CHUNK = 40, 2000, 8, 20_000
AIM = 0.545
RESULTS = Path(__file__).parent / "results"


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

    def lengths(self) -> Floats:
        """The square roots of the leading eigenvalues of the covariance of expected rewards."""
        means = self.means(np.random.default_rng(23).standard_normal((20_000, self.directions.shape[1])))
        return np.sqrt(np.linalg.eigvalsh(np.cov(means.T))[::-1][:4])

    def served(self, model: Model, seed: int = 2) -> dict[str, float]:
        """What a round pays to newcomers, all items on offer."""
        rng, people = np.random.default_rng([seed, 24]), np.arange(NEWCOMERS)
        means = self.means(rng.standard_normal((NEWCOMERS, self.directions.shape[1])))
        policy, ids = nc.PriorUCB(model), np.array(model.action_ids)
        state, paid = policy.start(NEWCOMERS), 0.0
        for _ in range(ROUNDS):
            chosen = policy.choose(state, ids=ids)
            expected = means[people, ids[chosen]]
            paid += float(expected.mean()) / ROUNDS
            policy.update(state, reward=self.drawn(rng, expected), ids=ids[chosen])
        best = int(np.argmax(model.mean))
        return {
            "prior_ucb": paid,
            "best_for_all": float(means[:, best].mean()),
            "known": float(means.max(axis=1).mean()),
        }


def ratings(users: int = 120_000) -> World:
    """The world of ratings."""
    rng = np.random.default_rng(21)
    axes = np.linalg.qr(rng.standard_normal((200, 3)))[0]
    return World("ratings", users, 0.2 * rng.standard_normal(200), axes * np.sqrt([0.96, 0.77, 0.39]), 0.42)


def clicks(users: int = 500_000, size: float = 0.7) -> World:
    """The world of clicks; of `size` zero, where nobody has a taste, with about the same rates."""
    rng = np.random.default_rng(21)
    base, directions = -3.1 + 0.7 * rng.standard_normal(300), size * rng.standard_normal((300, 3))
    return World("clicks" if size else "no taste", users, base + (0.0 if size else 0.5), directions, None)


def run(world: World, rank: int | str = "auto") -> dict[str, str | int | float]:
    """A row of the table."""
    logs, begun = world.logs(), time.process_time()
    model = fit(logs, rank=rank, null=False)
    seconds, facts = time.process_time() - begun, model.evidence.population
    assert facts is not None
    found = np.linalg.norm(model.factor, axis=0)
    told: dict[str, str | int | float] = {"world": world.name, "users": world.users, "asked": str(rank)}
    told |= {"directions": facts.directions, "by_all": facts.by_all}
    told |= {"lengths": " ".join(f"{one:.2f}" for one in found), "truth": " ".join(f"{x:.2f}" for x in world.lengths())}
    told |= {"passes": facts.passes + 1, "cpu_s": seconds}  # and SOLD's
    told |= {"certainty": facts.ranks.certainty if facts.ranks else float("nan"), "taste": facts.forecast.personal}
    said = facts.outlook.steps[-1] if facts.outlook else None
    told |= {"said_gain": said.gain if said else float("nan"), "said_low": said.low if said else float("nan")}
    return told | world.served(model)


if __name__ == "__main__":
    asked = [(ratings(), "auto"), (ratings(), 3), (clicks(), "auto"), (clicks(), 3), (clicks(size=0.0), "auto")]
    wanted = [int(one) for one in sys.argv[1:]] or range(len(asked))
    rows = []
    for number in wanted:
        rows.append(run(*asked[number]))
        print(rows[-1], flush=True)
    if len(rows) == len(asked):
        pl.DataFrame(rows).write_csv(RESULTS / "large-worlds.csv", float_precision=4)
