"""Two baselines that never personalise: uniform random, and the population mean.

Uniform draws each allowed action with equal probability: logs of it are what SOLD asks for. PopulationMean scores an
action by phi^T E[beta], the mean reward vector of the users in the logs; on MovieLens this alone beats every policy of
the paper at T = 200. Neither has a regret guarantee: the regret of both grows linearly in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from newcomer.array_loops import HUGE
from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear.state import LATER, State
from newcomer.model import Model
from newcomer.policies import attributes, calls, prior_loops
from newcomer.policies.actions import KnownActions
from newcomer.policies.base import Contract, the_policy_model
from newcomer.policies.calls import Generators, Query, Random, Rewards


@dataclass
class Counts(State):
    """Rewards seen by each user (n,), and what attributes shift the user's coordinates by, (n, k) or (n, 0)."""

    count: Ints
    shift: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=LATER)

    def __post_init__(self) -> None:
        if len(self.shift) != len(self.count):
            self.shift = np.zeros((len(self.count), 0))

    def untouched(self) -> Bools:
        """Of each row (n,) whether its users have had no reward."""
        return np.asarray(self.count == 0)

    def check_values(self) -> None:
        """Any numbers do."""

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
    shares_rows = True

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
        calls.masked_call_scores(self.score(state, query), query)
        allowed = query.allowed()
        chances: Floats = allowed / allowed.sum(axis=1, keepdims=True)
        return chances

    def learn(self, state: Counts, observed: Rewards) -> None:
        """Count the rewards."""
        np.add.at(state.count, observed.users, 1)


@dataclass(frozen=True)
class PopulationMean(Contract[Counts]):
    """The action that is best for the average user of the logs: phi^T E[beta], and what everybody thinks beyond it.

    With attributes, the average user who has these.
    """

    model: Model

    by_ids = True
    shares_rows = True

    def __post_init__(self) -> None:
        the_policy_model(self.model)

    @cached_property
    def _known(self) -> KnownActions:
        return KnownActions(self.model)

    def init(self, n: int) -> Counts:
        """Nothing seen."""
        return Counts(np.zeros(n, dtype=np.int64))

    def choose_codes(self, state: Counts, users: Ints, codes: Ints) -> Ints | None:
        """The best by the catalogue's population means."""
        if state.shift.shape[1] or self.model.outcome == "binary":  # means differ by user, or are not those of rewards
            return None
        chosen = np.empty(len(users), dtype=np.int64)
        known = self._known
        return (
            chosen
            if known.named and prior_loops.choose_means_by_prior(known.population_mean, users, codes, chosen)
            else None
        )

    def learn_codes(self, state: Counts, users: Ints, codes: Ints, reward: Floats) -> bool:
        """Count the rewards, of which none is missing."""
        if not bool((np.abs(reward) <= min(self.largest_reward, HUGE)).all()):
            return False
        if len(users) == 1:
            state.count[users[0]] += 1
        else:
            np.add.at(state.count, users, 1)
        return True

    def score(self, state: Counts, query: Query) -> Floats:
        """phi^T E[beta] + o (m, K), or its probability where rewards are clicks."""
        if state.shift.shape[1]:
            seen = self._known.describe(query.actions, query.ids, query.codes).rows(len(query.users))
            with np.errstate(invalid="ignore", over="ignore"):
                seen = attributes.shifted_by_attributes(self.model, seen, state.shift[query.users])
                return np.asarray(self._known.on_reward_scale(seen).population_mean)
        if self.model.outcome == "gaussian" and query.actions.shape[2] and not np.any(self.model.offsets):
            return calls.call_mean_rewards(self._known.mean[None], query)
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            seen = self._known.on_reward_scale(self._known.describe(query.actions, query.ids, query.codes))
        means = seen.population_mean
        return np.array(np.broadcast_to(means, (len(query.users), means.shape[1])))

    def apply_attributes(self, state: Counts, users: Ints, x: Floats) -> None:
        """The mean given attributes."""
        state.shift = attributes.widened_for_attributes(state.shift, self._known.factor.shape[1])
        state.shift[users] = self.model.attribute_prior.given(x)[0]

    def learn(self, state: Counts, observed: Rewards) -> None:
        """Count the rewards; they change nothing else."""
        np.add.at(state.count, observed.users, 1)
