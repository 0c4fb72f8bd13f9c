"""LinUCB and LinTS: every newcomer starts from nothing and learns all d coordinates.

With V = I + sum phi phi^T, b = sum phi r over the user's own rewards and mean = V^-1 b:

    LinUCB   argmax_a  phi_a^T mean + alpha |phi_a|_{V^-1}          (Li et al. 2010; Abbasi-Yadkori et al. 2011, OFUL)
    LinTS    argmax_a  phi_a^T beta,  beta ~ N(mean, alpha^2 V^-1)  (Agrawal and Goyal 2013)

alpha is the practical width of the paper's experiments by default. Guarantee: with the theoretical width and
noise and reward vectors bounded by R, regret is O(d sqrt(T)) up to logarithms (LinTS: d^1.5, with alpha of that order);
with the practical width there is none. Both ignore what users share, which is why they need about d rounds to be of
use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Floats, Ints
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.linear.state import one_state_call_at_a_time
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Generators, Query, Random, Rewards
from newcomer.policies.protocol import Learner
from newcomer.policies.widths import DEFAULT, Theory, resolve_widths
from newcomer.validate import validate_whole


@dataclass(frozen=True)
class RidgeLearner(Learner[Ridge]):
    """Ridge regression of a user's rewards on features of `dim` entries."""

    dim: int

    def init(self, n: int) -> Ridge:
        """V = I, b = 0."""
        return ridge.start_ridge(n, self.dim)

    def learn(self, state: Ridge, observed: Rewards) -> None:
        """V += phi phi^T, b += r phi."""
        ridge.learn_ridge(state, observed.features, observed.reward, observed.users)

    def learn_plain(self, state: Ridge, users: Ints, features: Floats, reward: Floats) -> bool:
        """The same, in one compiled loop that looks at the numbers too."""
        return ridge.learn_ridge(state, features, reward, users)


def _width(policy: LinUCB | LinTS) -> float:
    """alpha, from checked settings."""
    validate_whole(policy.dim, "dim")
    validate_whole(policy.horizon, "horizon")
    return resolve_widths(policy.widths, [policy.dim], policy.horizon, policy.theory)[0]


@dataclass(frozen=True)
class LinUCB(Contract[Ridge]):
    """LinUCB: each user is learned from nothing, in all d dimensions.

    `widths` is "practical", "theoretical" or the width alpha itself.

    >>> policy = LinUCB(2, horizon=100, widths=1.0)
    >>> state = policy.start(1)
    >>> policy.update(state, [1.0, 0.0], 2.0)
    >>> policy.scores(state, [[1.0, 0.0], [0.0, 1.0]]).round(3).tolist()
    [[1.707, 1.0]]
    """

    dim: int
    _: KW_ONLY
    horizon: int
    widths: str | float = "practical"
    theory: Theory = DEFAULT

    shares_rows = True

    def __post_init__(self) -> None:
        self._alpha  # noqa: B018  (settings that make no sense are refused here, not in the first round)

    @cached_property
    def _alpha(self) -> float:
        return _width(self)

    @cached_property
    def learner(self) -> RidgeLearner:
        """The user's own system."""
        return RidgeLearner(self.dim)

    def score(self, state: Ridge, query: Query) -> Floats:
        """phi^T mean + alpha |phi|_{V^-1} (m, K)."""
        out, system = query.table(), Ellipsoid(state.factor, state.mean, np.array([self._alpha]))
        scoring_loops.ucb_scores(system, query.users, query.actions, out)
        return out

    def choose_plain(self, state: Ridge, users: Ints, actions: Floats) -> Ints | None:
        """Scores and choice in one compiled loop, which gives up where a score is not finite."""
        chosen = np.empty(len(users), calls.INT)
        fine = scoring_loops.choose_by_ucb_scores(state.factor, state.mean, users, actions, self._alpha, chosen)
        return chosen if fine else None


@dataclass(frozen=True)
class LinTS(Contract[Ridge]):
    """Linear Thompson sampling: each user is learned from nothing. `votes` draws estimate the probabilities."""

    dim: int
    _: KW_ONLY
    horizon: int
    widths: str | float = "practical"
    theory: Theory = DEFAULT
    votes: int = 256

    sampled = True
    shares_rows = True

    def __post_init__(self) -> None:
        validate_whole(self.votes, "votes")
        self._alpha  # noqa: B018  (settings that make no sense are refused here, not in the first round)

    @cached_property
    def _alpha(self) -> float:
        return _width(self)

    @cached_property
    def learner(self) -> RidgeLearner:
        """The user's own system."""
        return RidgeLearner(self.dim)

    def score(self, state: Ridge, query: Query) -> Floats:
        """Expected rewards phi^T mean (m, K)."""
        return calls.call_mean_rewards(state.mean[query.users], query)

    def draws(self, state: Ridge, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi^T beta (m, K) with beta drawn from N(mean, alpha^2 V^-1)."""
        while True:
            yield calls.call_mean_rewards(self._coefficients(state, query.users, rngs), query)

    @one_state_call_at_a_time
    def sample(self, state: Ridge, rng: Random, *, users: ArrayLike | None = None) -> Floats:
        """One draw (m, d) of each user's reward vector from N(mean, alpha^2 V^-1)."""
        who = self.positions(state, users)
        return self._coefficients(state, state.rows_of(who), calls.call_generators(rng, len(who), "LinTS"))

    def _coefficients(self, state: Ridge, users: Ints, rngs: Generators) -> Floats:
        noise = calls.call_normals(rngs, self.dim)
        out = np.empty_like(noise)
        scoring_loops.score_samples(Ellipsoid(state.factor, state.mean, np.array([self._alpha])), users, noise, out)
        return out
