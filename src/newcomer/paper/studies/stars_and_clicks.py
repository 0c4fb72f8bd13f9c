"""Rewards that are not Gaussian: the stars of real ratings, and a world of clicks.

Stars are the ratings, from 1 to 5, of held-out MovieLens users (`newcomer.paper.worlds.replay`). Clicks are 0 or 1,
with a probability that is logistic in a latent linear score: a newcomer of a synthetic world scores an action phi^T
beta and clicks it with probability 1 / (1 + exp(-(base + gain phi^T beta))). A constant feature is added to the
actions, so that a linear model can hold the average click rate. Regret counts probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from newcomer.arrays import Floats
from newcomer.logs import Logs
from newcomer.paper.named_worlds import real_ratings
from newcomer.paper.scale import Setting
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode, LogRows, Newcomers, world_stream

STARS, CLICKS = "stars, real ratings", "clicks, logistic"


def rewarded_by(rewards: str, setting: Setting, seed: int) -> tuple[Newcomers, Logs]:
    """The world of `STARS` or of `CLICKS`, and its logs; of stars there is one, of clicks one for each seed."""
    if rewards == STARS:
        replay = real_ratings(setting)
        return replay, replay.logs()
    clicks = Clicks(Synthetic(dim=20, offset=0.5, seed=seed))
    return clicks, clicks.logs(1000 if setting.sizes.quick else 5000, 20, seed)


@dataclass(frozen=True)
class Clicks:
    """Clicks of the users of a synthetic world.

    `base` is the log-odds of a click at score zero, `gain` multiplies scores. Noise of the synthetic world plays no
    part: chance is in the click.
    """

    scores: Synthetic
    base: float = -1.0
    gain: float = 1.5

    @property
    def dim(self) -> int:
        """The feature dimension, with the constant."""
        return self.scores.dim + 1

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer; means are click probabilities, rewards clicks."""
        drawn = self.scores.episode(rng, horizon)
        means = self._probability(drawn.means)
        return Episode(_constant(drawn.actions), means, (rng.random(means.shape) < means).astype(np.float64))

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories of uniform behaviour."""
        parts = list(self.histories(users, steps, seed))
        user = np.concatenate([part.user for part in parts])
        features = np.concatenate([part.features for part in parts])
        return Logs.from_arrays(user=user, features=features, reward=np.concatenate([part.reward for part in parts]))

    def histories(self, users: int, steps: int, seed: int) -> Iterator[LogRows]:
        """The same in blocks of users: the synthetic world's histories without noise, whose rewards are the scores."""
        exact = replace(self.scores, noise=0.0)
        for block, part in enumerate(exact.histories(users, steps, seed)):
            chance = self._probability(part.reward)
            clicked = world_stream(seed, "clicks", block).random(chance.shape) < chance
            yield replace(part, features=_constant(part.features), reward=clicked.astype(np.float64))

    def _probability(self, score: Floats) -> Floats:
        return np.asarray(1.0 / (1.0 + np.exp(-(self.base + self.gain * score))))


def _constant(features: Floats) -> Floats:
    """Features (..., d) with a one behind them."""
    return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)
