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
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from newcomer import array_loops
from newcomer.arrays import Floats, Ints
from newcomer.linear.state import GROWS, State
from newcomer.policies.calls import Rewards
from newcomer.policies.learner import Learner


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
