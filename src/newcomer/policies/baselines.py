"""Two baselines that never personalise: uniform random, and the population mean.

Uniform draws each allowed action with equal probability: logs of it are what SOLD asks for. PopulationMean scores an
action by phi^T E[beta], the mean reward vector of the users in the logs; on MovieLens this alone beats every policy of
the paper at T = 200. Neither has a regret guarantee: the regret of both grows linearly in time.

EmpiricalArms: each action has its mean, and a user's deviation from it, learned from that user's meetings of this
action alone. It knows no directions: the baseline that any team writes in an afternoon, and the one to beat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from newcomer.array_loops import HUGE, plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear.state import LATER, State
from newcomer.model import Model
from newcomer.policies import action_memory, attributes, calls, prior_loops
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.actions import Described, KnownActions
from newcomer.policies.base import Contract, the_policy_model
from newcomer.policies.belief import Belief
from newcomer.policies.calls import Generators, Query, Random, Rewards, call_rows_each_once
from newcomer.policies.memory_loops import Predicted
from newcomer.policies.repeatability import SHARES, Repeatability
from newcomer.validate import validate_number


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
    """The action that is best for the average user of the logs, by phi^T E[beta] plus the offset of the action.

    With attributes, the average user with these attributes.
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
            if known.named and prior_loops.choose_means_by_prior_loop(known.population_mean, users, codes, chosen)
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


@dataclass(frozen=True, eq=False)
class EmpiricalArms(Contract[ActionMemory]):
    """Each action by itself: the population mean, shrunk towards the user's own average of the action.

    The per-action effect has the whole personal variance of the action: what the shared directions explain of it, and
    the share of the residual that repeats, learned as in PriorUCB. `width` counts deviations of what is not yet known
    of it. Nothing is shared between actions; a model without actions is refused.
    """

    model: Model
    _: KW_ONLY
    width: float = 0.0

    by_ids = True
    shares_rows = True

    def __post_init__(self) -> None:
        validate_number(self.width, "width")
        if not self._belief.known.named:
            raise PolicyError("EmpiricalArms needs a model of named actions", todo="fit logs with a column action")

    @cached_property
    def _belief(self) -> Belief:
        return Belief(self.model, 0.0)

    @cached_property
    def _shared(self) -> Floats:
        """Variance (A + 1,) that the shared directions give to each action, the last that of an unknown one."""
        found = (self._belief.known.loadings[:-1] ** 2).sum(axis=1)
        return np.append(found, found.mean())

    def init(self, n: int) -> ActionMemory:
        """Nothing met."""
        return self._belief.init(n).memory

    def apply_repeatability(self, state: ActionMemory, given: Repeatability) -> None:
        """Start with the repeatability of earlier users."""
        self._belief.start_from(state, given)

    def apply_attributes(self, state: ActionMemory, users: Ints, x: Floats) -> None:
        """Shift the mean of every action; what was remembered of actions is beyond the new mean."""
        before = attributes.widened_for_attributes(state.shift, self._belief.known.factor.shape[1])
        state.shift = before.copy()
        state.shift[users] = self.model.attribute_prior.given(x)[0]
        for user in users.tolist():
            used = int(state.used[user])
            if used:
                seen = self._met(state, user, used)
                then, now = (self._shifted(seen, one[user][None]).population_mean[0] for one in (before, state.shift))
                state.totals[user, :used] -= state.counts[user, :used] * (now - then)

    def _met(self, state: ActionMemory, user: int, used: int) -> Described:
        """The actions (1, M) that a user has met, as candidates; of others than the catalogue's, their average rows."""
        known = self._belief.known
        keys, slots = state.keys[user, :used], state.slots[user, :used]
        there = np.where(slots < 0, keys, -1)
        levels, low = known.population_mean[there], known.loadings[there]
        for entry in np.flatnonzero(slots >= 0):
            row = state.rows[user, slots[entry]] / state.counts[user, entry]
            low[entry] = row if self.model.by_ids_alone else row @ known.factor
            levels[entry] = levels[entry] if self.model.by_ids_alone else row @ known.mean
        return Described(levels[None], low[None], there[None], known.variance[there][None], known.effect[there][None])

    def pool_repeatability(self, state: ActionMemory) -> Repeatability:
        """What the repeats of the users say."""
        return self._belief.pooled(state)

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats]:
        """Population means, residual variances and variances of the effect by place, as compiled loops take them."""
        known = self._belief.known
        return known.population_mean, known.variance, known.effect + self._shared

    def choose_codes(self, state: ActionMemory, users: Ints, codes: Ints) -> Ints | None:
        """Scores and choice in one compiled loop."""
        if state.shift.shape[1] or self.model.outcome == "binary":  # tables are of all users alike, and Gaussian
            return None
        chosen = np.empty(len(users), dtype=np.int64)
        memory = state.keys, state.counts, state.totals, state.used, state.share, state.extra
        given: tuple[Any, ...] = (*self._tables, *memory, users, codes, float(self.width), chosen)
        return chosen if prior_loops.choose_arms_by_prior_loop(*given) else None

    def learn_codes(self, state: ActionMemory, users: Ints, codes: Ints, reward: Floats) -> bool:
        """The same as `learn`, in one compiled loop; it stops where memory needs room."""
        if state.shift.shape[1] or self.model.outcome == "binary":
            return False
        starting = np.zeros(0) if self._belief.starting is None else self._belief.starting
        row, stopped = 0, np.zeros(1, dtype=np.int64)
        observed = starting, SHARES, self._belief.scale, min(self.largest_reward, HUGE), users, codes, reward
        while row < len(users):
            repeats = state.share, state.extra, state.repeats, state.log_likelihood, state.log_prior
            given: tuple[Any, ...] = (*self._tables, *state.entries[:6], *repeats, *observed, row, stopped)
            row = prior_loops.learn_arms_by_prior_loop(*given)
            if stopped[0] == prior_loops.REFUSED:
                return False
            if stopped[0] == prior_loops.NO_ROOM:
                action_memory.make_action_memory_room(state, users[row : row + 1], codes[row : row + 1])
            stopped[0] = 0
        return True

    def score(self, state: ActionMemory, query: Query) -> Floats:
        """The population mean, and what this user's meetings of the action add to it (m, K)."""
        seen = self._described(query.actions, query.ids, query.codes, state.shift[query.users])
        found = action_memory.recall_action_memory(state, query.users, seen.keys, seen.variance, seen.effect)
        return np.asarray(seen.population_mean + found.level + self.width * np.sqrt(found.left))

    def learn(self, state: ActionMemory, observed: Rewards) -> None:
        """Remember the meetings, and what repeats say of repeatability."""
        for part in call_rows_each_once(observed):
            seen = self._described(part.features[:, None], *part.columns(), state.shift[part.users])
            keys, target = seen.keys[:, 0], part.reward - seen.population_mean[:, 0]
            features, starting = self._belief.remembered(part, seen), self._belief.starting
            means, variance, effect = (plain(one[:, 0]) for one in (seen.population_mean, seen.variance, seen.effect))
            nothing = np.zeros(len(target))  # it knows no directions
            predicted = Predicted(means, nothing, nothing, variance, effect)
            again = action_memory.remember_in_action_memory(
                state, part.users, keys, target, features, predicted, self._belief.scale, starting
            )
            if starting is not None and len(again):
                action_memory.believe_action_memory(state, again, starting)

    def _described(self, actions: Floats, ids: calls.Ids | None, codes: Ints | None, shift: Floats) -> Described:
        """Candidates (m, K), with the variance along shared directions as a part of the effect of each.

        Attributes shift the population mean by loadings^T shift, of shift (m, k).
        """
        return self._shifted(self._belief.known.describe(actions, ids, codes).rows(len(shift)), shift)

    def _shifted(self, seen: Described, shift: Floats) -> Described:
        """The same of candidates that have been described."""
        if shift.shape[1]:
            seen = attributes.shifted_by_attributes(self.model, seen, shift)
        if self.model.outcome == "binary":
            with np.errstate(invalid="ignore", over="ignore"):
                return self._belief.known.on_reward_scale(seen)
        return seen._replace(effect=seen.effect + self._shared[np.maximum(seen.keys, -1)])
