"""What PriorUCB and PriorTS believe of a user whose rewards are clicks: 0 or 1, through a logistic link.

    P(reward = 1) = sigma(phi^T (m + L z) + o),      z ~ N(0, I_k).

**The posterior of z** has no closed form; it is kept as a normal distribution, a k x k system. All rewards of one
action together are a *site*: a precision and a shift along its features f = L^T phi. When one more reward of the action
comes, the site is taken out, the mean and the variance of the log-odds f^T z + c are matched to those after all rewards
of the action (`logistic_loops.tilted`), and the new site is put in: expectation propagation with one visit a reward, no
randomness, O(k^2) and a triangle of k numbers to refresh. The order of rewards matters little
(docs/explanation/prior.md measures it). A site of a log-concave likelihood never has a negative precision.

**Repeats.** What this user thinks of this very action is on the scale of rewards: with n earlier rewards of mean y,
and p = E[sigma] by z, the share s_p of p (1 - p) comes again (beta-binomial), and the reward is expected to be

    P = p + c (y - p),      c = sum_s w_s n s_p / (1 - s_p + n s_p),

w the weights of shares s as in policies/repeatability.py. The per-action effect acts on log-odds, with
variance 4 s / (1 - s) whatever the action. Where p = 1/2 that is the share s of p (1 - p); of rare clicks it is less,

    s_p / (1 - s_p) = 4 p (1 - p) s / (1 - s):

a single click at a rate of 2% is not yet a habit. The n rewards are worth sum_s w_s n / (1 + (n - 1) s_p) rows for z.
The model's own error about an action's log-odds, of variance u, repeats too: it is added to 4 s / (1 - s).

Outlier users are not looked for: the test takes errors for normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear import scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.linear.state import GROWS, LATER, State
from newcomer.model import Model
from newcomer.policies import action_memory, attributes, calls, click_loops
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.actions import Described, KnownActions
from newcomer.policies.belief import Belief
from newcomer.policies.calls import Generators, Query, Rewards, call_rows_each_once
from newcomer.policies.memory_loops import MOST, Predicted, Recalled
from newcomer.policies.protocol import Learner
from newcomer.policies.repeatability import SHARES, Repeatability, repeatability_after
from newcomer.transforms import expected_sigmoid, sigmoid, sigmoid_moments

SCALE = np.array([1.0, 0.0, 1.0])  # of rewards: a step of 1 from 0 to 1


@dataclass
class BinaryState(State):
    """What is known of n users by their clicks: z (small), the actions they met, and what each adds to z (sites)."""

    small: Ridge
    memory: ActionMemory
    # (n, M, 3), of each entry of memory: precision and shift along its features, and 4 p (1 - p)
    sites: Floats = field(metadata=GROWS)
    # (n, p), packed: what attributes have added to the precision of z, (n, 0) without; they shift it by memory.shift
    known: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=LATER)

    def __post_init__(self) -> None:
        if len(self.known) != len(self.sites):
            self.known = np.zeros((len(self.sites), 0))

    def untouched(self) -> Bools:
        """Of each row (n,) whether its users have had no reward."""
        return self.memory.untouched() & self.small.untouched()

    def lengths(self) -> dict[str, int]:
        """Sites of entries that somebody uses."""
        return {"sites": int(self.memory.used.max(initial=0))}

    def check_values(self) -> None:
        """Refuse entries that are not there."""
        self.memory.check_values()

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        super().check()
        fits = self.sites.ndim == 3 and self.sites.dtype == np.float64 and self.sites.shape[2] == 3
        self.refuse_unless(self.small.complete and fits and self.sites.shape[:2] == self.memory.keys.shape)


@dataclass(frozen=True, eq=False)
class BinaryBelief(Learner[BinaryState]):
    """What the policies share on a model of clicks: the prior, and how rewards change what is believed."""

    model: Model
    level: float

    @cached_property
    def _gaussian(self) -> Belief:
        """What does not depend on the link: the known actions, and weights of shares."""
        return Belief(self.model, self.level)

    @property
    def known(self) -> KnownActions:
        """What the model knows of each action."""
        return self._gaussian.known

    @property
    def starting(self) -> Floats | None:
        """Weights of shares for users who have met nothing twice; None if the model knows the share."""
        return self._gaussian.starting

    @property
    def remembers(self) -> bool:
        """Whether anything may last."""
        return self._gaussian.remembers

    @cached_property
    def shares(self) -> Floats:
        """Shares (S,) that may last: a grid, or the one that the model knows."""
        return SHARES if self.starting is not None else np.array([float(self.model.persistence or 0.0)])

    def state_settings(self) -> dict[str, str | float]:
        """Those of the Gaussian link: nobody is taken for an outlier here, whatever the level."""
        return self._gaussian.state_settings()

    def in_subspace(self, state: BinaryState) -> Bools:
        """Everybody (n,) is taken for one of the population."""
        return np.ones(len(state.sites), dtype=np.bool_)

    def init(self, n: int) -> BinaryState:
        """n users at the prior."""
        begun = self._gaussian.init(n)
        return BinaryState(begun.small, begun.memory, np.zeros((n, begun.memory.keys.shape[1], 3)))

    def apply_repeatability(self, state: BinaryState, given: Repeatability) -> None:
        """Let users who have met nothing yet start with the repeatability of earlier users."""
        self._gaussian.start_from(state.memory, given)

    def pool_repeatability(self, state: BinaryState) -> Repeatability:
        """What the repeats of all users together say."""
        return self._gaussian.pooled(state.memory)

    def apply_attributes(self, state: BinaryState, users: Ints, x: Floats) -> None:
        """Let the prior of `users` (m,) be the one given their encoded attributes (m, p), in place of what was known.

        Sites of rewards that came before stay as they were, which is nearly what they would have been.
        """
        state.memory.shift, state.known = attributes.condition_on_attributes(
            self.model, state.small, state.memory.shift, state.known, users, x
        )

    def choose_codes(self, state: BinaryState, users: Ints, codes: Ints, curiosity: float) -> None:
        """The compiled choice is of the Gaussian link."""
        return

    def weights(self, own: ActionMemory, users: Ints) -> Floats:
        """Weights (m, S) of the shares of users."""
        if self.starting is None:
            return np.ones((len(users), 1))
        return repeatability_after(self.starting, own.log_prior[users] + own.log_likelihood[users])

    def look_at(self, state: BinaryState, query: Query) -> ClickView:
        """Candidates as this state sees them."""
        keys = self.remembers or self.known.named
        seen = self.known.describe(query.actions, query.ids, query.codes, keys=keys).rows(len(query.users))
        return ClickView(self, state, query, seen)

    def learn(self, state: BinaryState, observed: Rewards) -> None:
        """Write each reward down, with what it says about repeatability, and condition z on it."""
        for part in call_rows_each_once(observed):
            self._learn(state, part)

    def _learn(self, state: BinaryState, observed: Rewards) -> None:
        """The same, with each user at most once."""
        users, own = observed.users, state.memory
        seen = self.known.describe(observed.features[:, None], *observed.columns())
        keys, levels = np.ascontiguousarray(seen.keys[:, 0]), plain(np.array(seen.population_mean[:, 0]))
        low = np.ascontiguousarray(seen.loadings[:, 0])
        odds, variance = _log_odds(state.small, users, levels[:, None], low[:, None])
        p = expected_sigmoid(odds[:, 0], variance[:, 0])
        nothing, before = np.zeros(len(users)), self.weights(own, users)
        reward = plain(observed.reward)
        if self.starting is not None:
            effect = plain(seen.effect[:, 0])
            click_loops.hear_clicks(own.entries, users, keys, p, effect, reward, self.shares, own.log_likelihood)
        self._make_room(state, users, keys)
        features = self._gaussian.remembered(observed, seen)
        predicted = Predicted(nothing, nothing, nothing, nothing, nothing)  # shares have been heard of it already
        again = action_memory.remember_in_action_memory(own, users, keys, reward, features, predicted, SCALE, None)
        state.sites = _widened(state.sites, own.keys.shape[1])
        after = self.weights(own, users)
        if self.starting is not None and len(again):
            action_memory.believe_action_memory(own, again, self.starting)
            self._rescale(state, users, np.isin(users, again), before, after)
        click_loops.learn_click(
            own.entries, users, keys, state.small.parts, state.sites, levels, low, p, reward, after, self.shares
        )

    def _make_room(self, state: BinaryState, users: Ints, keys: Ints) -> None:
        """Where memory is about to drop its oldest action outside the catalogue, drop its site; z keeps it."""
        own = state.memory
        for user, key in zip(users.tolist(), keys.tolist(), strict=True):
            used = int(own.used[user])
            if key >= 0 or used < MOST or (own.keys[user, :used] == key).any():
                continue
            kept = own.slots[user, :used] >= 0
            if int(kept.sum()) >= MOST:
                oldest = int(np.argmax(kept))
                state.sites[user, oldest : used - 1] = state.sites[user, oldest + 1 : used]
                state.sites[user, used - 1] = 0.0

    def _rescale(self, state: BinaryState, users: Ints, again: Bools, before: Floats, after: Floats) -> None:
        """Actions met several times count for other numbers of rows once their users have other weights of shares."""
        known = self.known
        through = np.zeros((0, 0)) if self.model.by_ids_alone else known.factor
        for row in np.flatnonzero(again):
            click_loops.rescale_clicks(
                state.memory.entries, int(users[row]), state.small.parts, state.sites, known.loadings, through,
                self.shares, before[row], after[row],
            )  # fmt: skip


def _log_odds(system: Ridge, users: Ints, levels: Floats, low: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (m, K) of the log-odds of candidates with levels (m, K) and features (m, K, k)."""
    rows, size = levels.shape
    length = np.empty(rows * size)
    scoring_loops.score_lengths(
        system.factor, np.repeat(users, size), plain(low.reshape(rows * size, low.shape[2])), length
    )
    with np.errstate(invalid="ignore", over="ignore"):
        odds = levels + np.einsum("mak,mk->ma", low, system.mean[users])
        return np.asarray(odds), length.reshape(rows, size) ** 2


def _widened(sites: Floats, width: int) -> Floats:
    """Sites with room for as many entries as memory has."""
    if sites.shape[1] == width:
        return sites
    out = np.zeros((len(sites), width, 3))
    out[:, : sites.shape[1]] = sites
    return out


@dataclass(frozen=True, eq=False)
class ClickView:
    """Candidates as a state sees them: log-odds by z, and what memory adds to the probability."""

    belief: BinaryBelief
    state: BinaryState
    query: Query
    seen: Described

    @cached_property
    def _odds(self) -> tuple[Floats, Floats]:
        return _log_odds(self.state.small, self.query.users, self.seen.population_mean, self.seen.loadings)

    @cached_property
    def _clicks(self) -> tuple[Floats, Floats]:
        """Probability p and slope E[sigma'] (m, K), by z alone."""
        with np.errstate(invalid="ignore", over="ignore"):
            p, slope, _ = sigmoid_moments(*self._odds)
        return p, slope

    @cached_property
    def recalled(self) -> Recalled:
        """What memory says: c, c times the mean of earlier rewards, and the variance of the effect that is left."""
        p, own = self._clicks[0], self.state.memory
        weight, level, left = np.empty((3, *p.shape))
        out = Recalled(weight, level, left, np.empty(p.shape, dtype=np.int64))
        keys, users = np.require(self.seen.keys, requirements=("C", "W")), self.query.users
        effect = plain(self.seen.effect)
        weights = np.ascontiguousarray(self.belief.weights(own, users))
        click_loops.recall_clicks(own.entries, users, keys, plain(p), effect, weights, self.belief.shares, out)
        return out

    @cached_property
    def _personal(self) -> Floats:
        """Deviation (m, K) of the expected probability by what is not known of z."""
        return np.asarray((1.0 - self.recalled.weight) * self._clicks[1] * np.sqrt(self._odds[1]))

    def _with_memory(self, p: Floats) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(p + self.recalled.level - self.recalled.weight * p)

    def expected(self) -> Floats:
        """Probabilities (m, K) of a click."""
        return self._with_memory(self._clicks[0])

    def optimistic(self, width: float, memory_width: float) -> Floats:
        """Probabilities plus so many deviations of z, and of per-action effects (m, K)."""
        return np.asarray(self.expected() + width * self._personal + memory_width * np.sqrt(self.recalled.left))

    def curious(self, weight: float) -> Floats:
        """Probabilities plus `weight` deviations of how far one more reward would move them (m, K)."""
        expected, square = self.expected(), self._personal**2
        return np.asarray(expected + weight * square / np.sqrt(np.maximum(square + self._noise, 1e-300)))

    @cached_property
    def _noise(self) -> Floats:
        """Variance (m, K) of one more reward where the probability is known."""
        p = self._clicks[0]
        return np.asarray(p * (1.0 - p))

    def learned_share(self) -> Floats:
        """The share (m,) of the variance of one more reward that is z, on average over candidates."""
        square = self._personal**2
        return np.asarray((square / np.maximum(square + self._noise, 1e-300)).mean(axis=1))

    def drawn(self, rngs: Generators, scales: Floats, memory_scale: float) -> Floats:
        """Probabilities (m, K) under one draw of each user's z and, once for each distinct action, of its effect."""
        state, users, rank = self.state, self.query.users, self.seen.loadings.shape[2]
        noise, drawn = calls.call_normals(rngs, rank), np.empty((len(users), rank))
        system = Ellipsoid(state.small.factor, state.small.mean, scales)
        scoring_loops.score_samples(system, users, np.ascontiguousarray(noise), drawn)
        with np.errstate(invalid="ignore", over="ignore"):
            out = self._with_memory(
                sigmoid(self.seen.population_mean + np.einsum("mak,mk->ma", self.seen.loadings, drawn))
            )
        if memory_scale and self.belief.remembers:
            own, keys = calls.call_normals(rngs, out.shape[1]), self.seen.keys
            first = (keys[:, :, None] == keys[:, None, :]).argmax(axis=2)  # equal actions share their draw
            out += memory_scale * np.sqrt(self.recalled.left) * np.take_along_axis(own, first, axis=1)
        return out
