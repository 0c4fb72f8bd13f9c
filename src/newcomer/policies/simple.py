"""Two baselines that never personalise: uniform random, and the population mean.

Uniform draws each allowed action with equal probability: logs of it are what SOLD asks for. PopulationMean scores an
action by phi^T E[beta], the mean reward vector of the users in the logs; on MovieLens this alone beats every policy of
the paper at T = 200. Neither has a regret guarantee: the regret of both grows linearly in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from newcomer import array_loops
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies import base
from newcomer.policies.base import Bools, Floats, Ints, Offer, Random


@dataclass
class Counts(State):
    """Rewards seen by each user (n,)."""

    count: Ints

    def check(self) -> None:
        """Refuse anything but one whole number a user."""
        super().check()
        self.refuse_unless(self.count.ndim == 1 and self.count.dtype == np.int64)


def _count(state: Counts, told: base.Rewards) -> None:
    np.add.at(state.count, told.users, 1)


@dataclass(frozen=True)
class Uniform:
    """Every allowed action is equally likely."""

    def start(self, n: int) -> Counts:
        """The state of n newcomers."""
        return Counts(np.zeros(base.newcomers(n), dtype=np.int64))

    def choose(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """A uniform draw (m,) among the allowed actions, one number per row from its generator."""
        chances = self.probabilities(state, actions, mask=mask, users=users)
        rngs = base.generators(rng, len(chances), "Uniform")
        draws = np.array([one.random() for one in rngs])
        allowed = chances > 0
        place = np.minimum((draws * allowed.sum(axis=1)).astype(np.int64), allowed.sum(axis=1) - 1)
        chosen: Ints = np.argmax(np.cumsum(allowed, axis=1) > place[:, None], axis=1)
        return chosen

    def probabilities(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One over the number of allowed actions (m, K)."""
        allowed = self._allowed(state, actions, mask, users)
        chances: Floats = allowed / allowed.sum(axis=1, keepdims=True)
        return chances

    def scores(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Zero for every allowed action (m, K)."""
        return np.where(self._allowed(state, actions, mask, users), 0.0, -np.inf)

    def in_subspace(self, state: Counts) -> Bools:
        """Never (n,)."""
        return np.zeros(len(base.own(state, Counts)), dtype=np.bool_)

    def update(self, state: Counts, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Count the rewards."""
        _count(state, base.rewards(base.own(state, Counts), features, reward, dim=None, users=users))

    def _allowed(self, state: Counts, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Bools:
        asked = base.offer(base.own(state, Counts), actions, dim=None, mask=mask, users=users)
        base.masked(asked.actions.sum(axis=2), asked)
        return asked.mask if asked.mask.size else np.ones(asked.table().shape, dtype=np.bool_)


@dataclass(frozen=True)
class PopulationMean:
    """The action that is best for the average user of the logs."""

    model: Model

    def start(self, n: int) -> Counts:
        """The state of n newcomers."""
        return Counts(np.zeros(base.newcomers(n), dtype=np.int64))

    def choose(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) of largest mean reward over the population."""
        asked = self._offer(state, actions, mask, users)
        return base.pick(self._means(asked), asked)

    def probabilities(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._means(asked), asked), asked)

    def scores(
        self,
        state: Counts,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """phi^T E[beta] (m, K)."""
        asked = self._offer(state, actions, mask, users)
        return base.masked(self._means(asked), asked)

    def in_subspace(self, state: Counts) -> Bools:
        """Never (n,)."""
        return np.zeros(len(base.own(state, Counts)), dtype=np.bool_)

    def update(self, state: Counts, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Count the rewards; they change nothing else."""
        _count(state, base.rewards(base.own(state, Counts), features, reward, dim=self.model.dim, users=users))

    def _offer(self, state: Counts, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        return base.offer(base.own(state, Counts), actions, dim=self.model.dim, mask=mask, users=users)

    def _means(self, asked: Offer) -> Floats:
        out = asked.table()
        mean = base.floats(self.model.mean, "the model's mean")
        array_loops.mean_scores(mean[None], np.zeros_like(asked.users), asked.actions, out)
        return out
