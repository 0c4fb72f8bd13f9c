"""Linear Gaussian bandits with any prior: the posterior, and the two rules that choose by it.

A newcomer's reward vector is beta ~ N(m, S), a reward phi^T beta + noise of variance v. After one reward r of phi

    c = S phi,    g = c / (phi^T c + v),    m <- m + g (r - phi^T m),    S <- S - g c^T,

and the rules are

    UCB   argmax_a  phi_a^T m + width * sqrt(phi_a^T S phi_a)
    TS    argmax_a  phi_a^T beta,  beta ~ N(m, width^2 S).

Which prior makes which algorithm is in rivals/priors.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from newcomer import files
from newcomer.arrays import Floats
from newcomer.errors import PolicyError
from newcomer.linear.state import State
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Generators, Query, Rewards
from newcomer.validate import validate_number, validate_whole


@dataclass
class Posterior(State):
    """Mean (n, d) and covariance (n, d, d) of each user's reward vector."""

    mean: Floats
    covariance: Floats

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        n, dim = self.mean.shape if self.mean.ndim == 2 else (-1, -1)
        self.refuse_unless(self.covariance.shape == (n, dim, dim))

    def condition(self, user: int, features: Floats, reward: float, noise: float) -> None:
        """Take one reward of a user in."""
        mean, covariance = self.mean[user], self.covariance[user]
        carried = covariance @ features
        gain = carried / (features @ carried + noise)
        mean += gain * (reward - features @ mean)
        covariance -= np.multiply.outer(gain, carried)


@dataclass(frozen=True, eq=False)
class Prior:
    """What is believed of a newcomer: N(mean (d,), covariance (d, d)), and the variance of the noise of rewards.

    `unsure` (d,) is the variance by which the mean itself is known, for an algorithm that draws it.
    """

    mean: Floats
    covariance: Floats
    noise: float
    unsure: Floats | None = None

    def __post_init__(self) -> None:
        dim = len(self.mean)
        fits = self.mean.shape == (dim,) and self.covariance.shape == (dim, dim) and self.noise > 0
        if not (fits and np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise PolicyError("a prior has a finite mean (d,), a covariance (d, d) and a positive noise variance")

    @cached_property
    def digest(self) -> str:
        """By what states of this prior are recognised."""
        return files.file_digest({"mean": self.mean, "covariance": self.covariance, "noise": np.array([self.noise])})


@dataclass(frozen=True, eq=False)
class Gaussian(Contract[Posterior]):
    """What both rules share: the state and how it learns."""

    prior: Prior
    _: KW_ONLY
    width: float = 1.0

    def __post_init__(self) -> None:
        validate_number(self.width, "width")

    @property
    def dimension(self) -> int:
        """Entries of a feature vector."""
        return len(self.prior.mean)

    def init(self, n: int) -> Posterior:
        """n newcomers at the prior."""
        return Posterior(np.tile(self.prior.mean, (n, 1)), np.tile(self.prior.covariance, (n, 1, 1)))

    def learn(self, state: Posterior, observed: Rewards) -> None:
        """One reward after another."""
        for user, features, reward in zip(observed.users, observed.features, observed.reward, strict=True):
            state.condition(int(user), features, float(reward), self.prior.noise)

    def state_settings(self) -> dict[str, str | float]:
        """States mean something under their prior alone."""
        return {"prior": self.prior.digest}


@dataclass(frozen=True, eq=False)
class GaussianUCB(Gaussian):
    """Optimism by `width` posterior deviations; a width of 0 is greedy.

    >>> policy = GaussianUCB(Prior(np.zeros(2), np.diag([4.0, 1.0]), 1.0))
    >>> policy.scores(policy.start(1), np.eye(2)).tolist()
    [[2.0, 1.0]]
    """

    def score(self, state: Posterior, query: Query) -> Floats:
        """phi^T m + width sqrt(phi^T S phi) (m, K)."""
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            return np.asarray(expected(state, query) + self.width * deviations(state, query))


@dataclass(frozen=True, eq=False)
class GaussianTS(Gaussian):
    """Thompson sampling; `votes` draws estimate probabilities.

    With `drawn_mean`, each newcomer's prior mean is itself drawn, once: m + sqrt(unsure) z, as MetaTS does.
    """

    votes: int = 256
    drawn_mean: bool = False
    seed: int = 0

    sampled = True

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_whole(self.votes, "votes")
        if self.drawn_mean and self.prior.unsure is None:
            raise PolicyError("a drawn mean needs the variance `unsure` of the prior's mean")

    def init(self, n: int) -> Posterior:
        """n newcomers at the prior, or at their own draws of it."""
        state = super().init(n)
        if self.drawn_mean and self.prior.unsure is not None:
            normals = [np.random.default_rng([self.seed, user]).standard_normal(self.dimension) for user in range(n)]
            state.mean += np.sqrt(self.prior.unsure) * np.reshape(normals, (n, self.dimension))
        return state

    def score(self, state: Posterior, query: Query) -> Floats:
        """Expected rewards (m, K)."""
        return expected(state, query)

    def draws(self, state: Posterior, query: Query, rngs: Generators) -> Iterator[Floats]:
        """Rewards (m, K) of one draw of beta after another: only their joint distribution is needed, K x K a user."""
        mean, root = expected(state, query), self.width * roots(state, query)
        while True:
            yield mean + np.einsum("mkj,mj->mk", root, calls.call_normals(rngs, root.shape[2]))

    def state_settings(self) -> dict[str, str | float]:
        """Where means were drawn, also by which seed."""
        return super().state_settings() | ({"drawn_mean": self.seed} if self.drawn_mean else {})


def expected(state: Posterior, query: Query) -> Floats:
    """phi^T m (m, K)."""
    return calls.call_mean_rewards(state.mean[query.users], query)


def deviations(state: Posterior, query: Query) -> Floats:
    """sqrt(phi^T S phi) (m, K)."""
    with np.errstate(invalid="ignore", over="ignore"):
        carried = query.actions @ state.covariance[query.users]
        squares = np.einsum("mkd,mkd->mk", np.broadcast_to(query.actions, carried.shape), carried)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def roots(state: Posterior, query: Query) -> Floats:
    """Matrices R (m, K, K) with R R^T the covariance of the rewards of a user's candidates."""
    with np.errstate(invalid="ignore", over="ignore"):
        spread = query.actions @ state.covariance[query.users] @ np.swapaxes(query.actions, 1, 2)
    spread[~np.isfinite(spread).all(axis=(1, 2))] = 0.0  # features that are not finite are refused by their means
    values, vectors = np.linalg.eigh(spread)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])


def precision(covariance: Floats) -> Floats:
    """The inverse of a covariance (d, d), symmetric to the last bit."""
    inverse = np.linalg.inv(covariance)
    return np.asarray((inverse + inverse.T) / 2.0)
