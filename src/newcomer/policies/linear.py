"""LinUCB and LinTS: every newcomer starts from nothing and learns all d coordinates.

With V = I + sum phi phi^T, b = sum phi r over the user's own rewards and mean = V^-1 b:

    LinUCB   argmax_a  phi_a^T mean + alpha |phi_a|_{V^-1}          (Li et al. 2010; Abbasi-Yadkori et al. 2011, OFUL)
    LinTS    argmax_a  phi_a^T beta,  beta ~ N(mean, alpha^2 V^-1)  (Agrawal and Goyal 2013)

alpha is the practical width of the paper's experiments unless told otherwise. Guarantee: with the theoretical width and
noise and reward vectors bounded by R, regret is O(d sqrt(T)) up to logarithms (LinTS: d^1.5, with alpha of that order);
with the practical width there is none. Both ignore what users share, which is why they need about d rounds to be of use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer import array_loops
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.policies import base
from newcomer.policies.base import Bools, Floats, Ints, Offer, Random
from newcomer.policies.widths import DEFAULT, Theory, resolve


def _check(dim: int, horizon: int) -> None:
    base.whole(dim, "dim")
    base.whole(horizon, "horizon")


def _offer(state: Ridge, actions: ArrayLike, dim: int, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
    return base.offer(_own(state, dim), actions, dim=dim, mask=mask, users=users)


def _own(state: Ridge, dim: int) -> Ridge:
    if base.own(state, Ridge).dim != dim or not state.complete:
        raise base.foreign(f"a system of dimension {dim}")
    return state


def _learn(state: Ridge, dim: int, features: ArrayLike, reward: ArrayLike, users: ArrayLike | None) -> None:
    told = base.told(_own(state, dim), features, reward, dim=dim, users=users)
    if not ridge.learn(state, *told):
        ridge.learn(state, *base.sift(*told))


@dataclass(frozen=True)
class LinUCB:
    """Optimism in the user's own ellipsoid; `widths` is "practical", "theoretical" or alpha itself."""

    dim: int
    _: KW_ONLY
    horizon: int
    widths: str | float = "practical"
    theory: Theory = DEFAULT

    def __post_init__(self) -> None:
        _check(self.dim, self.horizon)
        resolve(self.widths, [self.dim], self.horizon, self.theory)

    def start(self, n: int) -> Ridge:
        """The state of n newcomers."""
        return ridge.start(base.newcomers(n), self.dim)

    def choose(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) of largest optimistic reward."""
        given, asked, free = base.question(_own(state, self.dim), actions, dim=self.dim, mask=mask, users=users)
        chosen = np.empty(len(asked), base.INT)
        if scoring_loops.ucb_choose(state.factor, state.mean, asked, given, self._alpha, free, chosen):
            return chosen
        offer = Offer(given, asked, free)
        return base.pick(self._scores(state, offer), offer)  # which says what is wrong

    def probabilities(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = _offer(state, actions, self.dim, mask, users)
        return base.one_hot(base.pick(self._scores(state, asked), asked), asked)

    def scores(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """phi^T mean + alpha |phi|_{V^-1} (m, K)."""
        asked = _offer(state, actions, self.dim, mask, users)
        return base.masked(self._scores(state, asked), asked)

    def in_subspace(self, state: Ridge) -> Bools:
        """Never (n,)."""
        return np.zeros(len(_own(state, self.dim)), dtype=np.bool_)

    def update(self, state: Ridge, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        _learn(state, self.dim, features, reward, users)

    @cached_property
    def _width(self) -> Floats:
        return np.array(resolve(self.widths, [self.dim], self.horizon, self.theory))

    @cached_property
    def _alpha(self) -> float:
        return float(self._width[0])

    def _scores(self, state: Ridge, asked: Offer) -> Floats:
        out = asked.table()
        scoring_loops.ucb_scores(state.factor, state.mean, asked.users, asked.actions, self._width, out)
        return out


@dataclass(frozen=True)
class LinTS:
    """Thompson sampling from the user's own posterior; `votes` draws estimate the probabilities."""

    dim: int
    _: KW_ONLY
    horizon: int
    widths: str | float = "practical"
    theory: Theory = DEFAULT
    votes: int = 256

    def __post_init__(self) -> None:
        _check(self.dim, self.horizon)
        base.whole(self.votes, "votes")
        resolve(self.widths, [self.dim], self.horizon, self.theory)

    def start(self, n: int) -> Ridge:
        """The state of n newcomers."""
        return ridge.start(base.newcomers(n), self.dim)

    def choose(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) that is best for one draw of the reward vector."""
        asked = _offer(state, actions, self.dim, mask, users)
        return self._draw(state, asked, rng)()

    def probabilities(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """How often each action (m, K) wins in `votes` draws."""
        asked = _offer(state, actions, self.dim, mask, users)
        return base.votes(self._draw(state, asked, rng), asked, self.votes)

    def scores(
        self,
        state: Ridge,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Expected rewards phi^T mean (m, K); a draw, not this, decides."""
        asked = _offer(state, actions, self.dim, mask, users)
        out = asked.table()
        array_loops.mean_scores(state.mean, asked.users, asked.actions, out)
        return base.masked(out, asked)

    def in_subspace(self, state: Ridge) -> Bools:
        """Never (n,)."""
        return np.zeros(len(_own(state, self.dim)), dtype=np.bool_)

    def update(self, state: Ridge, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        _learn(state, self.dim, features, reward, users)

    def sample(self, state: Ridge, rng: Random, *, users: ArrayLike | None = None) -> Floats:
        """One draw (m, d) of each user's reward vector from N(mean, alpha^2 V^-1)."""
        who = base.who(_own(state, self.dim), users)
        return self._coefficients(state, who, base.generators(rng, len(who), "LinTS"))

    @cached_property
    def _width(self) -> Floats:
        return np.array(resolve(self.widths, [self.dim], self.horizon, self.theory))

    def _coefficients(self, state: Ridge, users: Ints, rngs: base.Generators) -> Floats:
        noise = base.normals(rngs, self.dim)
        out = np.empty_like(noise)
        scoring_loops.samples(state.factor, state.mean, users, noise, self._width, out)
        return out

    def _draw(self, state: Ridge, asked: Offer, rng: Random) -> Callable[[], Ints]:
        rngs = base.generators(rng, len(asked.users), "LinTS")
        return lambda: base.best_for(self._coefficients(state, asked.users, rngs), asked)
