"""PriorUCB and PriorTS: a newcomer is one more draw from the distribution of users.

The model says beta = m + L z with z ~ N(0, I_k) and noise of variance s2. After a newcomer's rewards z has a Gaussian
posterior, a k x k system of features L^T phi / s and rewards (r - phi^T m) / s (s = sqrt(s2), so that scaling all
rewards changes no choice):

    PriorUCB   argmax_a  phi^T (m + L E[z]) + width * deviation of phi^T L z
    PriorTS    argmax_a  phi^T (m + L z), z drawn

Nothing has to be learnt that the population already shows, and only k numbers about the user. That is as good as the
prior is right for this user, so every reward also feeds a test (`Stranger` of policies/exits.py) of whether it is. A
user who contradicts it, at `level`, is served from then on, and with all rewards since the first, in all d dimensions
with beta ~ N(m, L L^T + tau^2 I), where tau^2 is the one of a few sizes around |L|^2 / d (the population's spread, in
any direction) that is likeliest for this user. Under the prior this happens to a share of at most `level` of users,
ever.

In coordinates w with beta = m + G w, G G^T = L L^T + tau^2 I, both systems start at the identity, and the small one is
the projection of the full one: the pair of policies/two_systems.py, which the test takes users out of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.errors import PolicyError
from newcomer.linear import scoring_loops
from newcomer.linear.state import State
from newcomer.model import Model
from newcomer.policies import questions, two_systems
from newcomer.policies.contract import Contract
from newcomer.policies.exits import SIZES, Stranger, Suspicion
from newcomer.policies.hyperparameters import number, whole
from newcomer.policies.questions import Generators, Question, Rewards, each_once, floats
from newcomer.policies.two_systems import TwoSystems


@dataclass
class PriorState(State):
    """What is known of n users: their systems, and the evidence that the prior is wrong for them."""

    systems: TwoSystems
    doubt: Suspicion

    def __len__(self) -> int:
        return len(self.systems)

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        super().check()
        self.refuse_unless(self.doubt.pull.shape[1] == self.systems.full.dim)


@dataclass(frozen=True, eq=False)
class _Belief:
    """What both policies share: the prior in coordinates w where it is standard normal, and how rewards change it."""

    model: Model
    level: float

    def __post_init__(self) -> None:
        if not 0 <= self.level < 1:
            raise PolicyError(f"level must be a probability, 0 for never, not {self.level!r}")

    @cached_property
    def axes(self) -> tuple[Floats, Floats]:
        """Orthonormal directions Q (d, k) of the factor L and the variances (k,) along them; one of none at rank 0."""
        factor = self.model.factor if self.model.factor.shape[1] else np.zeros((self.model.dim, 1))
        left, sizes, _ = np.linalg.svd(factor, full_matrices=False)
        return np.ascontiguousarray(left), sizes**2

    @cached_property
    def stray(self) -> float:
        """tau^2: variance per coordinate of the full prior beyond the factor."""
        power = float(self.axes[1].sum()) or float(self.model.mean @ self.model.mean)
        return (power or self.model.noise_variance) / self.model.dim

    @cached_property
    def basis(self) -> Floats:
        """(k, d): takes features in the coordinates w to those of z."""
        left, variances = self.axes
        return np.ascontiguousarray((left * np.sqrt(variances / (variances + self.stray))).T)

    @cached_property
    def scale(self) -> float:
        """s, the standard deviation of the noise."""
        return float(np.sqrt(self.model.noise_variance))

    @cached_property
    def stranger(self) -> Stranger:
        """The test that takes users out of the prior."""
        return Stranger(self.level, self.stray, self.extra)

    def extra(self, size: int) -> Floats:
        """(d, d): precision of w when strays have variance tau^2 SIZES[size] in place of tau^2, less the identity."""
        (left, variances), other = self.axes, self.stray * SIZES[size]
        along = (variances + self.stray) / (variances + other) - self.stray / other
        extra: Floats = (self.stray / other - 1.0) * np.eye(self.model.dim) + (left * along) @ left.T
        return extra

    def start(self, n: int) -> PriorState:
        """n users of whom nothing is known but where they come from."""
        rank, dim = self.basis.shape
        return PriorState(two_systems.start(n, dim, rank), self.stranger.start(n, dim))

    def turn(self, features: Floats) -> Floats:
        """G phi / s of features (..., K, d), where G = tau I + Q diag(stretch) Q^T is a root of L L^T + tau^2 I.

        A product for each user, not one for all, so that users do not depend on their neighbours.
        """
        left, variances = self.axes
        stretch = np.sqrt(variances + self.stray) - np.sqrt(self.stray)
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            turned = np.sqrt(self.stray) * features + np.matmul(np.matmul(features, left) * stretch, left.T)
            return np.ascontiguousarray(turned / self.scale)

    def rewards(self, scores: Floats, asked: Question) -> Floats:
        """Scores (m, K) of G phi / s against some w, as rewards: with phi^T m added, in the units of rewards."""
        expected = questions.mean_rewards(floats(self.model.mean, "the model's mean")[None], asked)
        with np.errstate(invalid="ignore", over="ignore"):
            total: Floats = (scores + expected / self.scale) * self.scale
        return total

    def learn(self, state: PriorState, told: Rewards) -> None:
        """Every reward feeds the test, with what the small system expected of it, then the systems."""
        systems, mean = state.systems, self.model.mean
        for part in each_once(told):
            target = (part.reward - np.einsum("md,d->m", part.features, mean)) / self.scale
            turned = Rewards(self.turn(part.features[:, None, :])[:, 0], target, part.users)
            if self.level:
                self._doubt(state, part.features, turned)
            two_systems.learn(systems, self.basis, turned, keep=self.level > 0)
            if self.level:
                self.stranger.decide(systems, state.doubt, part.users)

    def _doubt(self, state: PriorState, features: Floats, turned: Rewards) -> None:
        """Standardised errors of the small system, and features outside its directions, go to the test."""
        (left, _), users, small = self.axes, turned.users, state.systems.small
        low, length = np.empty((len(users), len(self.basis))), np.empty(len(users))
        scoring_loops.project(self.basis, turned.features, low)
        scoring_loops.lengths(small.factor, users, low, length)
        deviation = np.sqrt(1.0 + length**2)
        error = (turned.reward - np.einsum("mk,mk->m", low, small.mean[users])) / deviation
        outside = features - np.einsum("mk,dk->md", np.einsum("md,dk->mk", features, left), left)
        self.stranger.look(state.doubt, users, outside / self.scale, error, deviation)


@dataclass(frozen=True, eq=False)
class PriorUCB(Contract[PriorState]):
    """Optimism under the posterior that starts from the population.

    `width` counts posterior standard deviations; `level` is the probability with which a user of the population is ever
    taken for a stranger (0: nobody is).

    >>> model = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), 2 * np.eye(2)[:, :1], noise_variance=1.0)
    >>> policy = PriorUCB(model)
    >>> policy.scores(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[2.0, 0.0]]
    """

    model: Model
    _: KW_ONLY
    width: float = 1.0
    level: float = 0.1

    def __post_init__(self) -> None:
        number(self.width, "width")
        self._belief  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def _belief(self) -> _Belief:
        return _Belief(self.model, self.level)

    def state_settings(self) -> dict[str, float]:
        """Who is taken for a stranger depends on the level."""
        return {"level": self.level}

    def begin(self, n: int) -> PriorState:
        """The prior."""
        return self._belief.start(n)

    def rank(self, state: PriorState, asked: Question) -> Floats:
        """Expected reward plus `width` deviations (m, K)."""
        belief, out, width = self._belief, asked.table(), np.array([self.width])
        turned = belief.turn(asked.actions)
        two_systems.scores(state.systems, belief.basis, (width, width), asked.users, turned, out)
        return belief.rewards(out, asked)

    def inside(self, state: PriorState) -> Bools:
        """Who (n,) is still taken for one of the population."""
        return state.systems.inside

    def learn(self, state: PriorState, told: Rewards) -> None:
        """Condition the prior on the rewards, and test it."""
        self._belief.learn(state, told)


@dataclass(frozen=True, eq=False)
class PriorTS(Contract[PriorState]):
    """Thompson sampling from the posterior that starts from the population; `votes` draws estimate probabilities."""

    model: Model
    _: KW_ONLY
    level: float = 0.1
    votes: int = 256

    sampled = True

    def __post_init__(self) -> None:
        whole(self.votes, "votes")
        self._belief  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def _belief(self) -> _Belief:
        return _Belief(self.model, self.level)

    def state_settings(self) -> dict[str, float]:
        """Who is taken for a stranger depends on the level."""
        return {"level": self.level}

    def begin(self, n: int) -> PriorState:
        """The prior."""
        return self._belief.start(n)

    def rank(self, state: PriorState, asked: Question) -> Floats:
        """Expected rewards (m, K)."""
        belief = self._belief
        coefficients = two_systems.means(state.systems, belief.basis, asked.users)
        turned = asked._replace(actions=belief.turn(asked.actions))
        return belief.rewards(questions.mean_rewards(coefficients, turned), asked)

    def draws(self, state: PriorState, asked: Question, rngs: Generators) -> Iterator[Floats]:
        """Rewards (m, K) under one draw of each user's reward vector from its posterior."""
        belief, systems, ones = self._belief, state.systems, (np.ones(1), np.ones(1))
        turned = asked._replace(actions=belief.turn(asked.actions))
        while True:
            noise = questions.normals(rngs, self.model.dim)
            coefficients = two_systems.samples(systems, belief.basis, ones, asked.users, noise)
            yield belief.rewards(questions.mean_rewards(coefficients, turned), asked)

    def inside(self, state: PriorState) -> Bools:
        """Who (n,) is still taken for one of the population."""
        return state.systems.inside

    def learn(self, state: PriorState, told: Rewards) -> None:
        """Condition the prior on the rewards, and test it."""
        self._belief.learn(state, told)
