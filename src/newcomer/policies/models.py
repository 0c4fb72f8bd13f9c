"""Baselines that believe in finitely many kinds of users: mUCB, mmUCB and mTS (Hong et al. 2020, "Latent Bandits").

Offline, users are clustered into S models m_1..m_S (newcomer.clusters); online, the only question is which of them the
newcomer is. phi are features, r a reward, sigma the noise's standard deviation, T the horizon.

mUCB   Model s is plausible, s in C, while G_s <= sigma sqrt(6 N_s log T): it has been the optimistic model N_s times
       and promised G_s more than was paid. Index of an action: max over s in C of phi . m_s. A reward is charged to the
       model B in C that promises most for the played action: N_B += 1, G_B += phi . m_B - r.
mmUCB  The same with G_B += phi . m_B - epsilon - r, where epsilon bounds the models' error in reward.
mTS    log p_s = log w_s - sum (r - phi . m_s)^2 / (2 sigma^2); draw s from p, play its best action.

If no model is plausible (the text does not say), the one of least G_s / (sigma sqrt(N_s)) is kept. A late reward is
charged by the C of the moment when it arrives; when rewards arrive at once this is the algorithm as printed.

The guarantees, regret of order sqrt(S T), hold if the newcomer is exactly one of the models (mUCB, mTS) or within
epsilon of one in every reward (mmUCB). Otherwise the regret is linear in T: a wrong model is never unlearned, only
preferred to others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from newcomer.linear import scoring_loops
from newcomer.linear.state import State
from newcomer.policies import base
from newcomer.policies.base import Bools, Floats, Ints, Offer, Random
from newcomer.policies.latent import NOISE_SD, draw, models, own, positive, posterior, promised, rewarded, shares, waves


@dataclass
class Charges(State):
    """What mUCB remembers: rounds N_s charged to each model (n, S), and its broken promises G_s (n, S)."""

    count: Ints
    gap: Floats

    def check(self) -> None:
        """Refuse arrays that are not one whole number and one float for each user and model."""
        super().check()
        fits = self.count.ndim == 2 and self.count.dtype == np.int64 and self.gap.dtype == np.float64
        self.refuse_unless(fits and self.gap.shape == self.count.shape)


@dataclass
class Beliefs(State):
    """What mTS remembers: the logarithms of the models' weights (n, S), up to a constant per user."""

    log_weights: Floats

    def check(self) -> None:
        """Refuse anything but one float for each user and model."""
        super().check()
        self.refuse_unless(self.log_weights.ndim == 2 and self.log_weights.dtype == np.float64)


@dataclass(frozen=True, eq=False)
class MUCB:
    """UCB over the plausible models `centers` (S, d); see the module."""

    centers: Floats
    horizon: int = field(kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", models(self.centers))
        self._court().check()

    def start(self, n: int) -> Charges:
        """The state of n newcomers."""
        return self._court().start(n)

    def choose(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) that a plausible model promises most for."""
        asked = self._court().offer(state, actions, mask, users)
        return base.pick(self._court().index(state, asked), asked)

    def probabilities(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._court().offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._court().index(state, asked), asked), asked)

    def scores(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        asked = self._court().offer(state, actions, mask, users)
        return base.masked(self._court().index(state, asked), asked)

    def in_subspace(self, state: Charges) -> Bools:
        """Never (n,): models are points, not a subspace."""
        return np.zeros(len(own(state, Charges, len(self.centers), "MUCB")), dtype=np.bool_)

    def update(self, state: Charges, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Charge each reward to the plausible model that promised most."""
        self._court().charge(state, features, reward, users)

    def _court(self) -> _Court:
        return _Court(self.centers, self.horizon, self.noise_sd, 0.0, "MUCB")


@dataclass(frozen=True, eq=False)
class MmUCB:
    """mUCB for models (S, d) that are wrong by at most `epsilon` in the reward of any action; see the module.

    `newcomer.clusters.reward_error` measures an epsilon that nine training users in ten stay within. The paper sets it
    to the radius of the subspace, a distance of projections; unclipped that never rules out a model.
    """

    centers: Floats
    epsilon: float
    horizon: int = field(kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", models(self.centers))
        self._court().check()

    def start(self, n: int) -> Charges:
        """The state of n newcomers."""
        return self._court().start(n)

    def choose(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) that a plausible model promises most for."""
        asked = self._court().offer(state, actions, mask, users)
        return base.pick(self._court().index(state, asked), asked)

    def probabilities(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._court().offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._court().index(state, asked), asked), asked)

    def scores(
        self,
        state: Charges,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        asked = self._court().offer(state, actions, mask, users)
        return base.masked(self._court().index(state, asked), asked)

    def in_subspace(self, state: Charges) -> Bools:
        """Never (n,): models are points, not a subspace."""
        return np.zeros(len(own(state, Charges, len(self.centers), "MmUCB")), dtype=np.bool_)

    def update(self, state: Charges, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Charge each reward, less epsilon, to the plausible model that promised most."""
        self._court().charge(state, features, reward, users)

    def _court(self) -> _Court:
        return _Court(self.centers, self.horizon, self.noise_sd, self.epsilon, "MmUCB")


@dataclass(frozen=True, eq=False)
class MTS:
    """Thompson sampling over the models `centers` (S, d) with prior `weights` (S,), equal by default."""

    centers: Floats
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", models(self.centers))
        object.__setattr__(self, "weights", shares(self.weights, len(self.centers)))
        positive(self.noise_sd, "noise_sd")

    def start(self, n: int) -> Beliefs:
        """The state of n newcomers."""
        assert self.weights is not None
        return Beliefs(np.tile(np.log(self.weights), (base.newcomers(n), 1)))

    def choose(
        self,
        state: Beliefs,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The best allowed action (m,) under a model drawn from the posterior, by one number per row."""
        asked = self._offer(state, actions, mask, users)
        rngs = base.generators(rng, len(asked.users), "MTS")
        drawn = draw(posterior(state.log_weights[asked.users]), rngs)
        promises = promised(self.centers, asked)[np.arange(len(drawn)), :, drawn]
        return base.pick(np.ascontiguousarray(promises), asked)

    def probabilities(
        self,
        state: Beliefs,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """P(a) = sum of p_s over the models whose best allowed action is a (m, K): exact, no generator needed."""
        asked = self._offer(state, actions, mask, users)
        chances, promises = posterior(state.log_weights[asked.users]), promised(self.centers, asked)
        out, rows = np.zeros(promises.shape[:2]), np.arange(len(promises))
        for s in range(len(self.centers)):
            out[rows, base.pick(np.ascontiguousarray(promises[:, :, s]), asked)] += chances[:, s]
        return out

    def scores(
        self,
        state: Beliefs,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """The posterior mean reward, sum_s p_s phi . m_s (m, K)."""
        asked = self._offer(state, actions, mask, users)
        chances = posterior(state.log_weights[asked.users])
        return base.masked((promised(self.centers, asked) * chances[:, None, :]).sum(axis=2), asked)

    def in_subspace(self, state: Beliefs) -> Bools:
        """Never (n,): models are points, not a subspace."""
        return np.zeros(len(own(state, Beliefs, len(self.centers), "MTS")), dtype=np.bool_)

    def update(self, state: Beliefs, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Weigh each model by the density of the rewards under it."""
        own(state, Beliefs, len(self.centers), "MTS")
        told = base.rewards(state, features, reward, dim=self.centers.shape[1], users=users)
        errors = told.reward[:, None] - rewarded(self.centers, told.features)
        np.subtract.at(state.log_weights, told.users, np.square(errors) / (2 * self.noise_sd**2))

    def _offer(self, state: Beliefs, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        own(state, Beliefs, len(self.centers), "MTS")
        return base.offer(state, actions, dim=self.centers.shape[1], mask=mask, users=users)


@dataclass(frozen=True, eq=False)
class _Court:
    """The rules that mUCB and mmUCB share, on behalf of the policy called `who`."""

    centers: Floats
    horizon: int
    noise_sd: float
    epsilon: float
    who: str

    def check(self) -> None:
        base.whole(self.horizon, "horizon")
        positive(self.noise_sd, "noise_sd")
        base.number(self.epsilon, "epsilon")

    def start(self, n: int) -> Charges:
        shape = (base.newcomers(n), len(self.centers))
        return Charges(np.zeros(shape, dtype=np.int64), np.zeros(shape))

    def offer(self, state: Charges, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        own(state, Charges, len(self.centers), self.who)
        return base.offer(state, actions, dim=self.centers.shape[1], mask=mask, users=users)

    def index(self, state: Charges, asked: Offer) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        plausible = self.plausible(state, asked.users)
        promises = promised(self.centers, asked)
        best: Floats = np.max(promises, axis=2, initial=-np.inf, where=plausible[:, None, :])
        return best

    def plausible(self, state: Charges, users: Ints) -> Bools:
        """The set C (m, S), never empty."""
        count, gap = state.count[users], state.gap[users]
        inside: Bools = gap <= self.noise_sd * np.sqrt(6.0 * count * np.log(self.horizon))
        for row in np.flatnonzero(~inside.any(axis=1)):  # there every count is positive: gap = 0 at count = 0 is inside
            inside[row, np.argmin(gap[row] / np.sqrt(count[row]))] = True
        return inside

    def charge(self, state: Charges, features: ArrayLike, reward: ArrayLike, users: ArrayLike | None) -> None:
        own(state, Charges, len(self.centers), self.who)
        told = base.rewards(state, features, reward, dim=self.centers.shape[1], users=users)
        promises = rewarded(self.centers, told.features)
        for rows in waves(told.users):
            who, guilty = told.users[rows], np.empty(len(rows), dtype=np.int64)
            scoring_loops.first_best(promises[rows], self.plausible(state, who), guilty)
            state.count[who, guilty] += 1
            state.gap[who, guilty] += promises[rows, guilty] - self.epsilon - told.reward[rows]
