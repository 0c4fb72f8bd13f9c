"""Two baselines that never personalise: uniform random, and the population mean.

Uniform draws each allowed action with equal probability: logs of it are what SOLD asks for. PopulationMean scores an
action by phi^T E[beta], the mean reward vector of the users in the logs; on MovieLens this alone beats every policy of
the paper at T = 200. Neither has a regret guarantee: the regret of both grows linearly in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies import calls
from newcomer.policies.actions import KnownActions
from newcomer.policies.base import Contract, the_model
from newcomer.policies.calls import Generators, Query, Random, Rewards


@dataclass
class Counts(State):
    """Rewards seen by each user (n,)."""

    count: Ints

    def check(self) -> None:
        """Refuse anything but one whole number a user."""
        super().check()
        self.refuse_unless(self.count.ndim == 1 and self.count.dtype == np.int64)


@dataclass(frozen=True)
class Uniform(Contract[Counts]):
    """Every allowed action is equally likely.

    >>> policy = Uniform()
    >>> policy.probabilities(policy.start(1), ids=["a", "b", "c"], mask=[True, True, False]).tolist()
    [[0.5, 0.5, 0.0]]
    """

    sampled = True
    by_ids = True

    def init(self, n: int) -> Counts:
        """Nothing seen."""
        return Counts(np.zeros(n, dtype=np.int64))

    def score(self, state: Counts, query: Query) -> Floats:
        """Zero for every action (m, K); not zero but NaN where features are not finite, so that they are refused."""
        with np.errstate(invalid="ignore", over="ignore"):
            nothing: Floats = 0.0 * query.actions.sum(axis=2)
        return np.broadcast_to(nothing, (len(query.users), nothing.shape[1]))

    def draws(self, state: Counts, query: Query, rngs: Generators) -> Iterator[Floats]:
        """One for an action drawn uniformly among the allowed ones, zero for the others; one number a row."""
        allowed = query.allowed()
        count, place = allowed.sum(axis=1), np.cumsum(allowed, axis=1)
        while True:
            number = np.array([rng.random() for rng in rngs]) * count
            # Rounding can make the product as large as the count; the last allowed action is then meant.
            drawn = np.argmax(place > np.minimum(number.astype(np.int64), count - 1)[:, None], axis=1)
            yield self.score(state, query) + (np.arange(place.shape[1]) == drawn[:, None])

    def choice_probabilities(self, state: Counts, query: Query, rng: Random) -> Floats:
        """One over the number of allowed actions (m, K): exact, no generator needed."""
        calls.masked(self.score(state, query), query)
        allowed = query.allowed()
        chances: Floats = allowed / allowed.sum(axis=1, keepdims=True)
        return chances

    def learn(self, state: Counts, observed: Rewards) -> None:
        """Count the rewards."""
        np.add.at(state.count, observed.users, 1)


@dataclass(frozen=True)
class PopulationMean(Contract[Counts]):
    """The action that is best for the average user of the logs: phi^T E[beta], and what everybody thinks beyond it."""

    model: Model

    by_ids = True

    def __post_init__(self) -> None:
        the_model(self.model)

    @cached_property
    def _known(self) -> KnownActions:
        return KnownActions(self.model)

    def init(self, n: int) -> Counts:
        """Nothing seen."""
        return Counts(np.zeros(n, dtype=np.int64))

    def score(self, state: Counts, query: Query) -> Floats:
        """phi^T E[beta] + o (m, K)."""
        if query.actions.shape[2] and not np.any(self.model.offsets):
            return calls.mean_rewards(self._known.mean[None], query)
        means = self._known.describe(query.actions, query.ids, query.codes).population_mean
        return np.array(np.broadcast_to(means, (len(query.users), means.shape[1])))

    def learn(self, state: Counts, observed: Rewards) -> None:
        """Count the rewards; they change nothing else."""
        np.add.at(state.count, observed.users, 1)
