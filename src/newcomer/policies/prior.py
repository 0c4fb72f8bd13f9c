"""PriorUCB and PriorTS: a newcomer is one more draw from the distribution of users.

The model says beta = m + L z with z ~ N(0, I_k) and noise of variance s2. After a newcomer's rewards z has a Gaussian posterior, a k x k
system of features L^T phi / s and rewards (r - phi^T m) / s (s = sqrt(s2), so that scaling all rewards changes no choice):

    PriorUCB   argmax_a  phi^T (m + L E[z]) + width * deviation of phi^T L z        PriorTS   argmax_a  phi^T (m + L z), z drawn

Nothing has to be learnt that the population already shows, and only k numbers about the user. That is as good as the prior is right for
this user, so every reward also feeds a test (`policies.escape`) of whether it is. A user who contradicts it, at `level`, is served from then
on, and with all rewards since the first, in all d dimensions with beta ~ N(m, L L^T + tau^2 I), where tau^2 is the one of a few sizes around
|L|^2 / d (the population's spread, in any direction) that is likeliest for this user. Under the prior this happens to a share of at most
`level` of users, ever.

In coordinates w with beta = m + G w, G G^T = L L^T + tau^2 I, both systems start at the identity, and the small one is the projection
of the full one; so the phases of ProBALL (`policies.phases`) carry them, with the test in the place of its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer import array_loops
from newcomer.errors import PolicyError
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies import base, escape, phases
from newcomer.policies.base import Bools, Floats, Generators, Ints, Offer, Random
from newcomer.policies.escape import Suspicion
from newcomer.policies.phases import Phases

OUT = 1e300  # in the place of the sum of kappa^2: a user who has left for good


@dataclass
class Acquaintance(State):
    """What is known of n users: their systems, and the evidence that the prior is wrong for them."""

    phases: Phases
    doubt: Suspicion

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        super().check()
        self.refuse_unless(len(self.phases) == len(self.doubt))
        self.refuse_unless(self.doubt.pull.shape[1] == self.phases.full.dim)


@dataclass(frozen=True, eq=False)
class _Belief:
    """What both versions share: the prior in coordinates where it is standard normal, and the two phases."""

    model: Model
    level: float
    width: float

    def check(self) -> None:
        base.number(self.width, "width")
        if not 0 <= self.level < 1:
            raise PolicyError(f"level must be a probability, 0 for never, not {self.level!r}")

    @cached_property
    def axes(self) -> tuple[Floats, Floats]:
        """Orthonormal directions (d, k) of the factor and the variances (k,) along them; one empty direction for rank 0."""
        factor = self.model.factor if self.model.factor.shape[1] else np.zeros((self.model.dim, 1))
        left, lengths, _ = np.linalg.svd(factor, full_matrices=False)
        return np.ascontiguousarray(left), lengths**2

    @cached_property
    def stray(self) -> float:
        """tau^2: variance per coordinate of the full prior beyond the factor."""
        power = float(self.axes[1].sum()) or float(self.model.mean @ self.model.mean)
        return (power or self.model.noise_variance) / self.model.dim

    @cached_property
    def stretch(self) -> Floats:
        """(k,): G = tau I + Q diag(stretch) Q^T."""
        stretch: Floats = np.sqrt(self.axes[1] + self.stray) - np.sqrt(self.stray)
        return stretch

    @cached_property
    def basis(self) -> Floats:
        """(k, d): takes features in the coordinates w to those of z."""
        left, variances = self.axes
        return np.ascontiguousarray((left * np.sqrt(variances / (variances + self.stray))).T)

    @cached_property
    def rule(self) -> Floats:
        """ProBALL's, with weights under which a user stays until `OUT` is written in its state (if there is a test)."""
        return np.array([0.0, float(self.level > 0), *self.basis.shape])

    @cached_property
    def scale(self) -> float:
        return float(np.sqrt(self.model.noise_variance))

    @cached_property
    def extra(self) -> Floats:
        """(g, d, d): precision of w when strays have another size than tau, less the identity."""
        left, variances = self.axes
        sizes = self.stray * escape.SIZES
        along = (variances + self.stray) / (variances + sizes[:, None]) - (self.stray / sizes)[:, None]
        across = (self.stray / sizes - 1.0)[:, None, None] * np.eye(self.model.dim)
        extra: Floats = across + np.einsum("dk,gk,ek->gde", left, along, left)
        return extra

    def start(self, n: int) -> Acquaintance:
        rank, dim = self.basis.shape
        count = base.newcomers(n)
        return Acquaintance(phases.start(count, dim, rank, self.rule, bends=False), escape.start(count, dim))

    def own(self, state: Acquaintance) -> Acquaintance:
        own = base.own(state, Acquaintance).phases
        if (own.small.dim, own.full.dim) != self.basis.shape:
            raise base.foreign("a prior of this rank and dimension")
        return state

    def offer(self, state: Acquaintance, actions: ArrayLike, mask: ArrayLike | None, users: ArrayLike | None) -> Offer:
        return base.offer(self.own(state), actions, dim=self.model.dim, mask=mask, users=users)

    def turn(self, features: Floats) -> Floats:
        """G phi / s of features (..., K, d): a product per user, so that users do not depend on their neighbours."""
        left = self.axes[0]
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            turned = np.sqrt(self.stray) * features + np.matmul(np.matmul(features, left) * self.stretch, left.T)
            return np.ascontiguousarray(turned / self.scale)

    def inside(self, state: Acquaintance) -> Bools:
        return phases.inside(self.own(state).phases, self.rule)

    def expected(self, asked: Offer) -> Floats:
        """phi^T m / s (m, K)."""
        out = asked.table()
        array_loops.mean_scores(np.array(self.model.mean)[None], np.zeros(len(out), dtype=np.int64), asked.actions, out)
        return out / self.scale

    def optimistic(self, state: Acquaintance, asked: Offer) -> Floats:
        out = asked.table()
        self._each(scoring_loops.phase_scores, state.phases, asked.users, self.turn(asked.actions), out)
        return (out + self.expected(asked)) * self.scale

    def drawn(self, state: Acquaintance, asked: Offer, turned: Floats, rngs: Generators) -> Floats:
        """Rewards (m, K) under one draw of each user's reward vector."""
        coefficients, out = self._coefficients(state, asked.users, rngs), asked.table()
        array_loops.mean_scores(coefficients, np.arange(len(out)), turned, out)
        return (out + self.expected(asked)) * self.scale

    def means(self, state: Acquaintance, asked: Offer) -> Floats:
        own, out = state.phases, asked.table()
        low = np.stack([mean @ self.basis for mean in own.small.mean[asked.users]]) if len(out) else np.empty((0, 1))
        inside = phases.inside(own, self.rule)[asked.users, None]
        array_loops.mean_scores(
            np.ascontiguousarray(np.where(inside, low, own.full.mean[asked.users])),
            np.arange(len(out)),
            self.turn(asked.actions),
            out,
        )
        return (out + self.expected(asked)) * self.scale

    def learn(self, state: Acquaintance, features: ArrayLike, reward: ArrayLike, users: ArrayLike | None) -> None:
        told = base.rewards(self.own(state), features, reward, dim=self.model.dim, users=users)
        rows = np.arange(len(told.users))
        while len(rows):  # a user who occurs again waits for the next turn: the test is one step at a time
            _, first = np.unique(told.users[rows], return_index=True)
            now = np.sort(rows[first])
            self._learn(state, told.features[now], told.reward[now], told.users[now])
            rows = np.setdiff1d(rows, now)

    def _learn(self, state: Acquaintance, features: Floats, reward: Floats, users: Ints) -> None:
        target = (reward - np.einsum("md,d->m", features, self.model.mean)) / self.scale
        turned = self.turn(features[:, None, :])[:, 0]
        if self.level:
            self._doubt(state, features, turned, target, users)
        phases.learn(state.phases, self.basis, self.rule, turned, target, users)
        if self.level:
            self._release(state, users)

    def _doubt(self, state: Acquaintance, features: Floats, turned: Floats, target: Floats, users: Ints) -> None:
        """Standardised errors of the small system, and features outside its directions, go to the test."""
        low, left = np.einsum("md,kd->mk", turned, self.basis), self.axes[0]
        system = state.phases.small
        roots = np.einsum("mij,mj->mi", ridge.unpack(system.factor[users], system.dim), low)
        deviation = np.sqrt(1.0 + np.einsum("mi,mi->m", roots, roots))
        error = (target - np.einsum("mk,mk->m", low, system.mean[users])) / deviation
        outside = features - np.einsum("mk,dk->md", np.einsum("md,dk->mk", features, left), left)
        escape.learn(state.doubt, users, outside / self.scale, error, deviation, self.stray)

    def _release(self, state: Acquaintance, users: Ints) -> None:
        """Users whom the test has convinced move to the full system."""
        own = state.phases
        caught = escape.evidence(state.doubt, users) > -np.log(self.level)
        for user in users[caught & (own.squares[users] == 0)]:
            own.squares[user] = OUT
            phases.leave(own, int(user), extra=self.extra[escape.likeliest(state.doubt, int(user))])

    def _coefficients(self, state: Acquaintance, users: Ints, rngs: Generators) -> Floats:
        noise = base.normals(rngs, self.model.dim)
        out = np.empty_like(noise)
        self._each(scoring_loops.phase_samples, state.phases, users, noise, out)
        return out

    def _each(self, kernel: Callable[..., bool], own: Phases, users: Ints, given: Floats, out: Floats) -> None:
        small, full = own.small, own.full
        systems = (small.factor, small.mean), (full.factor, full.mean)
        if not kernel(
            self.basis, *systems, own.place(self.rule), users, given, np.array([self.width]), self.width, out
        ):
            raise base.foreign("these settings: a user has left the subspace and has no full system")


@dataclass(frozen=True, eq=False)
class PriorUCB:
    """Optimism under the posterior that starts from the population.

    `width` counts posterior standard deviations; `level` is the probability with which a user of the population is ever
    taken for a stranger (0: nobody is).
    """

    model: Model
    _: KW_ONLY
    width: float = 1.0
    level: float = 0.1

    def __post_init__(self) -> None:
        self._belief.check()

    def start(self, n: int) -> Acquaintance:
        """The state of n newcomers."""
        return self._belief.start(n)

    def choose(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) of largest optimistic reward."""
        asked = self._belief.offer(state, actions, mask, users)
        return base.pick(self._belief.optimistic(state, asked), asked)

    def probabilities(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """One-hot (m, K)."""
        asked = self._belief.offer(state, actions, mask, users)
        return base.one_hot(base.pick(self._belief.optimistic(state, asked), asked), asked)

    def scores(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Expected reward plus `width` deviations (m, K)."""
        asked = self._belief.offer(state, actions, mask, users)
        return base.masked(self._belief.optimistic(state, asked), asked)

    def in_subspace(self, state: Acquaintance) -> Bools:
        """Whether each user (n,) is still taken for one of the population."""
        return self._belief.inside(state)

    def update(
        self, state: Acquaintance, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None
    ) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        self._belief.learn(state, features, reward, users)

    @cached_property
    def _belief(self) -> _Belief:
        return _Belief(self.model, self.level, self.width)


@dataclass(frozen=True, eq=False)
class PriorTS:
    """Thompson sampling from the posterior that starts from the population; `votes` draws estimate the probabilities."""

    model: Model
    _: KW_ONLY
    level: float = 0.1
    votes: int = 256

    def __post_init__(self) -> None:
        self._belief.check()
        base.whole(self.votes, "votes")

    def start(self, n: int) -> Acquaintance:
        """The state of n newcomers."""
        return self._belief.start(n)

    def choose(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Ints:
        """The allowed action (m,) that is best for one draw of the reward vector."""
        return self._draw(state, self._belief.offer(state, actions, mask, users), rng)()

    def probabilities(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """How often each action (m, K) wins in `votes` draws."""
        asked = self._belief.offer(state, actions, mask, users)
        return base.votes(self._draw(state, asked, rng), asked, self.votes)

    def scores(
        self,
        state: Acquaintance,
        actions: ArrayLike,
        rng: Random = None,
        *,
        mask: ArrayLike | None = None,
        users: ArrayLike | None = None,
    ) -> Floats:
        """Expected rewards (m, K); a draw, not this, decides."""
        asked = self._belief.offer(state, actions, mask, users)
        return base.masked(self._belief.means(state, asked), asked)

    def in_subspace(self, state: Acquaintance) -> Bools:
        """Whether each user (n,) is still taken for one of the population."""
        return self._belief.inside(state)

    def update(
        self, state: Acquaintance, features: ArrayLike, reward: ArrayLike, *, users: ArrayLike | None = None
    ) -> None:
        """Learn from rewards (m,) for features (m, d)."""
        self._belief.learn(state, features, reward, users)

    @cached_property
    def _belief(self) -> _Belief:
        return _Belief(self.model, self.level, 1.0)

    def _draw(self, state: Acquaintance, asked: Offer, rng: Random) -> Callable[[], Ints]:
        rngs = base.generators(rng, len(asked.users), "PriorTS")
        turned = self._belief.turn(asked.actions)
        return lambda: base.pick(self._belief.drawn(state, asked, turned, rngs), asked)
