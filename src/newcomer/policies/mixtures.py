"""The posterior of a mixture of Gaussians over a user's reward vector, through the rows seen.

Prior: s ~ w, beta | s ~ N(m_s, Sig_s); rewards r = phi . beta + N(0, sigma^2). With X the t rows seen, the rewards
under component s are N(X m_s, K_s), K_s = X Sig_s X^T + sigma^2 I = L_s L_s^T, and y_s = L_s^-1 (r - X m_s):

    log p_s   = log w_s - sum_i log L_ii - |y_s|^2 / 2,  growing by log N(r; phi . mean_s, sigma^2 + phi . Cov_s phi)
    mean_s    = m_s + Sig_s X^T L_s^-T y_s
    a draw    = b + Sig_s X^T K_s^-1 (r - X b - e),          b ~ N(m_s, Sig_s), e ~ N(0, sigma^2 I)   (Matheron's rule)

A reward appends one row to each L_s, so a user costs S t^2/2 + t d numbers and S (d^2 + t d + t^2/2) multiplications a
reward, where S covariances of size d x d would take S d^2 numbers from the first moment (5.8 MB a user at d = 200,
S = 18, against 0.1 MB after 20 rewards). Long histories are folded: at t = 2d rows the triangle R of [X r] = Q [R z]
replaces them, d rows with the same posterior under every component, so that nothing grows beyond that.
Nothing is inverted; singular Sig_s, even zero, are welcome.

Thompson sampling with a mixture prior: mmTS (Hong et al. 2020) and MixTS (Hong et al. 2022).

Users come in S kinds, and users of a kind differ: beta | s ~ N(m_s, Sig_s), s ~ w. Each round draws a kind s from its
posterior p, then beta from its posterior given s, and plays the action of largest phi . beta. Both algorithms have this
posterior and differ only in Sig_s (our reading): mmTS isotropic, the variance within the cluster; MixTS the covariance
within the cluster plus a ridge. `newcomer.policies.finite_models.cluster_into_finite_models` gives the models, the
weights and both spreads. The maths of the posterior is in policies/mixtures.py.

The Bayes regret is of order sqrt(d T) plus what it costs to find the kind, if newcomers do come from the mixture and
the noise is Gaussian of the given size. With one component it is linear Thompson sampling with that prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from newcomer import array_loops, files
from newcomer.arrays import Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear.state import GROWS, State
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Generators, Query, Random, Rewards, call_floats
from newcomer.policies.finite_models import (
    NOISE_SD,
    checked_finite_models,
    draw_finite_model,
    finite_model_posterior,
    finite_model_weights,
)
from newcomer.policies.protocol import Learner
from newcomer.validate import validate_positive, validate_whole


@dataclass
class MixtureState(State):
    """What mmTS and MixTS remember of n users with room for c rows.

    `log_weights` (n, S) up to a constant, `count` (n,) rows in use, `features` (n, c, d), `reward` (n, c), the packed
    lower triangles `factor` (n, S, c (c + 1) / 2) and the whitened errors `residual` (n, S, c).
    """

    saved_as: ClassVar[str] = "Evidence"
    log_weights: Floats
    count: Ints
    features: Floats = field(metadata=GROWS)
    reward: Floats = field(metadata=GROWS)
    factor: Floats = field(metadata=GROWS)
    residual: Floats = field(metadata=GROWS)

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        self.refuse_unless(self.log_weights.ndim == 2 and self.features.ndim == 3 and self.count.ndim == 1)
        models, room = self.log_weights.shape[1], self.features.shape[1]
        shapes = (self.reward.shape[1:], self.factor.shape[1:], self.residual.shape[1:])
        self.refuse_unless(shapes == ((room,), (models, room * (room + 1) // 2), (models, room)))
        self.refuse_unless(self.count.dtype == np.int64 and bool(((self.count >= 0) & (self.count <= room)).all()))
        self.refuse_unless(all(array.dtype == np.float64 for name, array, _ in self.arrays() if name != "count"))


class Covariances(Protocol):
    """The covariances Sig_s of the components."""

    def times(self, vector: Floats) -> Floats:
        """Sig_s v for all s: (d,) to (S, d)."""

    def rows(self, component: int, rows: Floats) -> Floats:
        """Sig_s applied to each row (q, d)."""

    def deviates(self, component: int, normals: Floats) -> Floats:
        """Draws from N(0, Sig_s) (q, d) out of standard normal ones."""


@dataclass(frozen=True, eq=False)
class Isotropic:
    """Sig_s = v_s I, for variances (S,)."""

    variances: Floats

    def times(self, vector: Floats) -> Floats:
        """Sig_s v for all s: (d,) to (S, d)."""
        return np.multiply.outer(self.variances, vector)

    def rows(self, component: int, rows: Floats) -> Floats:
        """Sig_s applied to each row (q, d)."""
        scaled: Floats = self.variances[component] * rows
        return scaled

    def deviates(self, component: int, normals: Floats) -> Floats:
        """Draws from N(0, Sig_s) (q, d) out of standard normal ones."""
        scaled: Floats = np.sqrt(self.variances[component]) * normals
        return scaled


@dataclass(frozen=True, eq=False)
class Full:
    """Any covariances (S, d, d), with symmetric `roots` (S, d, d): root root = Sig_s."""

    covariances: Floats
    roots: Floats

    def times(self, vector: Floats) -> Floats:
        """Sig_s v for all s: (d,) to (S, d)."""
        count, dim, _ = self.covariances.shape
        return (self.covariances.reshape(count * dim, dim) @ vector).reshape(count, dim)

    def rows(self, component: int, rows: Floats) -> Floats:
        """Sig_s applied to each row (q, d)."""
        products: Floats = rows @ self.covariances[component]
        return products

    def deviates(self, component: int, normals: Floats) -> Floats:
        """Draws from N(0, Sig_s) (q, d) out of standard normal ones."""
        draws: Floats = normals @ self.roots[component]
        return draws


@dataclass(frozen=True, eq=False)
class GaussianMixture(Learner[MixtureState]):
    """The prior sum_s weights[s] N(centers[s], Sig_s) and the noise of rewards around phi . beta."""

    centers: Floats
    weights: Floats
    spread: Covariances
    noise_sd: float

    def init(self, n: int) -> MixtureState:
        """n users at the prior."""
        count, dim = self.centers.shape
        empty = np.zeros((n, count, 0))
        log_weights = np.tile(np.log(self.weights), (n, 1))
        rows, reward = np.zeros((n, 0, dim)), np.zeros((n, 0))
        return MixtureState(log_weights, np.zeros(n, dtype=np.int64), rows, reward, empty, empty.copy())

    def learn(self, state: MixtureState, observed: Rewards) -> None:
        """Take in checked rewards, in order."""
        limit = max(16, 2 * self.centers.shape[1])
        for user, features, reward in zip(observed.users, observed.features, observed.reward, strict=True):
            if state.count[user] == limit:
                self._fold(state, user)
            _make_room(state, int(state.count[user]) + 1, limit)
            state.log_weights[user] += self._append(state, user, features, reward)

    def mean(self, state: MixtureState, user: int, component: int) -> Floats:
        """The posterior mean (d,) of beta given the component."""
        count = state.count[user]
        weights = np.zeros((1, count))
        array_loops.solve_rows(state.factor[user, component], state.residual[user, component], weights)
        pulled = self.spread.rows(component, weights @ state.features[user, :count])
        mean: Floats = self.centers[component] + pulled[0]
        return mean

    def sample(self, state: MixtureState, user: int, component: int, rng: Generator, *, size: int) -> Floats:
        """Posterior draws (size, d) of beta given the component."""
        count = state.count[user]
        rows = state.features[user, :count]
        deviates = self.spread.deviates(component, rng.standard_normal((size, self.centers.shape[1])))
        seen = deviates @ rows.T + self.noise_sd * rng.standard_normal((size, count))
        array_loops.solve_rows(state.factor[user, component], state.residual[user, component], seen)
        draws: Floats = self.centers[component] + deviates + self.spread.rows(component, seen @ rows)
        return draws

    def _append(self, state: MixtureState, user: int, features: Floats, reward: float) -> Floats:
        """Add one row and return the log density (S,) of its reward given the rows before."""
        count, gain = state.count[user], np.empty(len(self.centers))
        carried = self.spread.times(features)
        cross = carried @ state.features[user, :count].T
        variance = carried @ features + self.noise_sd**2
        error = reward - self.centers @ features
        array_loops.append_triangle_row(
            state.factor[user], state.residual[user], cross, variance, error, self.noise_sd**2, gain
        )
        state.features[user, count], state.reward[user, count] = features, reward
        state.count[user] += 1
        return gain

    def _fold(self, state: MixtureState, user: int) -> None:
        """Replace a user's rows by as few as d that say the same."""
        count = state.count[user]
        table = np.column_stack([state.features[user, :count], state.reward[user, :count]])
        triangle = np.linalg.qr(table, mode="r")[: self.centers.shape[1]]
        for array in (state.features, state.reward, state.factor, state.residual):
            array[user] = 0.0
        state.count[user] = 0
        for row in triangle:
            self._append(state, user, np.ascontiguousarray(row[:-1]), row[-1])


def _make_room(state: MixtureState, need: int, limit: int) -> None:
    """Grow the arrays so that a user can have `need` rows, by half as much again, up to `limit`."""
    room = state.features.shape[1]
    if need <= room:
        return
    room = min(limit, max(8, room + room // 2))
    state.features = _padded(state.features, room, axis=1)
    state.reward = _padded(state.reward, room, axis=1)
    state.factor = _padded(state.factor, room * (room + 1) // 2, axis=2)
    state.residual = _padded(state.residual, room, axis=2)


def _padded(array: Floats, size: int, *, axis: int) -> Floats:
    shape = list(array.shape)
    shape[axis] = size
    out = np.zeros(shape)
    out[tuple(map(slice, array.shape))] = array
    return out


@dataclass(frozen=True, eq=False)
class MmTS(Contract[MixtureState]):
    """Thompson sampling for users spread evenly around the models `centers` (S, d).

    `variances` (S,), or one number, are the variances of beta per coordinate within each cluster, `weights` (S,) the
    prior weights, equal by default; `probabilities` counts about `votes` draws.
    """

    centers: Floats
    variances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    sampled = True

    def __post_init__(self) -> None:
        validate_positive(self.noise_sd, "noise_sd")
        validate_whole(self.votes, "votes")
        self.mixture  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The prior."""
        centers = checked_finite_models(self.centers)
        spread = Isotropic(_variances(self.variances, len(centers)))
        return GaussianMixture(centers, finite_model_weights(self.weights, len(centers)), spread, self.noise_sd)

    @property
    def learner(self) -> GaussianMixture:
        """The prior, conditioned on rewards."""
        return self.mixture

    def state_settings(self) -> dict[str, str | float]:
        """What is remembered is about this prior."""
        return {"prior": _digest(self.mixture, _variances(self.variances, len(self.mixture.centers)))}

    def score(self, state: MixtureState, query: Query) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return _means(self.mixture, state, query)

    def draws(self, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi . beta (m, K) for a reward vector drawn from each user's posterior."""
        return _draws(self.mixture, state, query, rngs)

    def choice_probabilities(self, state: MixtureState, query: Query, rng: Random) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return _choice_probabilities(self.mixture, state, query, self._generators(rng, query), self.votes)


@dataclass(frozen=True, eq=False)
class MixTS(Contract[MixtureState]):
    """Thompson sampling with the prior sum_s weights[s] N(centers[s], covariances[s]).

    `centers` (S, d), `covariances` (S, d, d), or one (d, d) for all; `weights` (S,), equal by default; `probabilities`
    counts about `votes` draws.

    >>> policy = MixTS([[1.0, 0.0], [0.0, 1.0]], covariances=np.zeros((2, 2)), weights=[1.0, 3.0])
    >>> policy.scores(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[0.25, 0.75]]
    """

    centers: Floats
    covariances: Floats = field(kw_only=True)
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)
    votes: int = field(default=256, kw_only=True)

    sampled = True

    def __post_init__(self) -> None:
        validate_positive(self.noise_sd, "noise_sd")
        validate_whole(self.votes, "votes")
        self.mixture  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The prior."""
        centers = checked_finite_models(self.centers)
        weights = finite_model_weights(self.weights, len(centers))
        return GaussianMixture(centers, weights, _full(self.covariances, centers), self.noise_sd)

    @property
    def learner(self) -> GaussianMixture:
        """The prior, conditioned on rewards."""
        return self.mixture

    def state_settings(self) -> dict[str, str | float]:
        """What is remembered is about this prior."""
        return {"prior": _digest(self.mixture, call_floats(self.covariances, "covariances"))}

    def score(self, state: MixtureState, query: Query) -> Floats:
        """The posterior mean reward, phi . E[beta] (m, K)."""
        return _means(self.mixture, state, query)

    def draws(self, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
        """phi . beta (m, K) for a reward vector drawn from each user's posterior."""
        return _draws(self.mixture, state, query, rngs)

    def choice_probabilities(self, state: MixtureState, query: Query, rng: Random) -> Floats:
        """How often (m, K) each action wins: exact in the kind of user, by votes given the kind."""
        return _choice_probabilities(self.mixture, state, query, self._generators(rng, query), self.votes)


def _digest(mixture: GaussianMixture, spread: Floats) -> str:
    """A fingerprint of the prior and the noise."""
    noise = np.array([mixture.noise_sd])
    return files.file_digest({"centers": mixture.centers, "weights": mixture.weights, "spread": spread, "noise": noise})


def _means(mixture: GaussianMixture, state: MixtureState, query: Query) -> Floats:
    """phi . E[beta] (m, K), the mean over components of their posterior means."""
    chances = finite_model_posterior(state.log_weights[query.users])
    table = query.table()
    for row, user in enumerate(query.users):
        means = [mixture.mean(state, user, s) for s in range(chances.shape[1])]
        table[row] = _rewards(query, row, chances[row] @ np.array(means))
    return table


def _draws(mixture: GaussianMixture, state: MixtureState, query: Query, rngs: Generators) -> Iterator[Floats]:
    """phi . beta (m, K): for each row a component from its posterior, then beta from its posterior given that."""
    chances = finite_model_posterior(state.log_weights[query.users])
    while True:
        table = query.table()
        for row, (user, rng) in enumerate(zip(query.users, rngs, strict=True)):
            component = int(draw_finite_model(chances[row : row + 1], [rng])[0])
            table[row] = _rewards(query, row, mixture.sample(state, user, component, rng, size=1)[0])
        yield table


def _choice_probabilities(
    mixture: GaussianMixture, state: MixtureState, query: Query, rngs: Generators, votes: int
) -> Floats:
    """Probabilities (m, K): each component by its posterior weight, with a share of the votes in proportion."""
    chances = finite_model_posterior(state.log_weights[query.users])
    out = np.zeros((len(rngs), query.actions.shape[1]))
    for row, rng in enumerate(rngs):
        for component in np.flatnonzero(chances[row]):
            chance = chances[row, component]
            size = int(np.ceil(votes * chance))
            out[row] += chance * _share(mixture, state, query, row, int(component), rng, size)
    return out


def _share(
    mixture: GaussianMixture, state: MixtureState, query: Query, row: int, component: int, rng: Generator, size: int
) -> Floats:
    """The share (K,) of `size` draws given the component in which each action is best."""
    betas = mixture.sample(state, query.users[row], component, rng, size=size)
    block, mask = query.block(row), np.repeat(query.mask[row : row + 1], size, axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        chosen = calls.pick_for_call(betas @ block.T, Query(block[None], np.zeros(size, dtype=np.int64), mask))
    return np.bincount(chosen, minlength=len(block)) / size


def _rewards(query: Query, row: int, beta: Floats) -> Floats:
    """phi . beta (K,) for the actions of a row; features that are not finite show here, and are refused later."""
    with np.errstate(invalid="ignore", over="ignore"):
        products: Floats = query.block(row) @ beta
    return products


def _variances(values: ArrayLike, count: int) -> Floats:
    """Variances (S,) out of one for each component or one for all, checked."""
    given = call_floats(values, "variances")
    if given.shape not in ((), (count,)) or not np.isfinite(given).all() or (given < 0).any():
        raise PolicyError(f"variances must be {count} numbers of at least 0, or one")
    return np.array(np.broadcast_to(given, (count,)))


def _full(values: ArrayLike, centers: Floats) -> Full:
    """Covariances (S, d, d) out of one for each component or one for all, checked, with their symmetric roots."""
    count, dim = centers.shape
    given = call_floats(values, "covariances")
    if given.shape not in ((count, dim, dim), (dim, dim)) or not np.isfinite(given).all():
        raise PolicyError(f"covariances must be finite, of shape ({count}, {dim}, {dim}) or ({dim}, {dim})")
    given = np.array(np.broadcast_to(given, (count, dim, dim)))
    size = np.abs(given).max()
    if not np.allclose(given, given.transpose(0, 2, 1), rtol=0, atol=1e-10 * size):
        raise PolicyError("covariances must be symmetric")
    values_, vectors = np.linalg.eigh(given)
    if values_.min() < -1e-10 * size:
        raise PolicyError(f"covariances must not have negative eigenvalues, and one is {values_.min():g}")
    scaled = vectors * np.sqrt(np.maximum(values_, 0.0))[:, None, :]
    return Full(given, scaled @ vectors.transpose(0, 2, 1))
