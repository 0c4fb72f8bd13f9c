"""Clusters of users: CLUB (Gentile, Li and Zappella 2014, arXiv 1401.8257), with clusters learned from logs.

CLUB keeps a graph of users, estimates each user's own vector by ridge regression, w_i = (I + M_i)^-1 b_i, and cuts the
edge of two users whose estimates are too far apart,

    |w_i - w_j| > alpha2 (CB(T_i) + CB(T_j)),        CB(T) = sqrt((1 + log(1 + T)) / (1 + T)).

A user is served by the ridge regression of all rows of the connected users: phi^T w + alpha sqrt(phi^T V^-1 phi
log(1 + t)). Here k-means clusters of logged people stand for the graph among them: a newcomer begins connected to all
clusters, loses edges for good, and is served by the rows of the clusters that are left and by own rows. Rewards are
taken less phi^T m, m the mean person, so that somebody without any edge left begins at m and not at zero.

The ridge regression of rows is the posterior of beta ~ N(0, I) with noise of variance 1, so both the cluster's system
and the newcomer's own are `Posterior`s (rivals/gaussian.py).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from newcomer import files
from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear.state import State
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Query, Rewards
from newcomer.policies.finite_models import cluster_into_finite_models
from newcomer.rivals.gaussian import Posterior, deviations, expected, precision
from newcomer.rivals.priors import Partial
from newcomer.validate import validate_number

KINDS = 10


@dataclass(frozen=True, eq=False)
class Kinds:
    """Clusters of logged people: grams M_c (C, d, d), moments b_c (C, d), rows T_c (C,) and the mean person m (d,)."""

    grams: Floats
    moments: Floats
    rows: Floats
    mean: Floats
    scale: float  # the deviation of answers, by which alpha and alpha2 are multiplied

    @classmethod
    def of(cls, logged: Partial, vectors: Floats, *, count: int = KINDS, seed: int = 0) -> Kinds:
        """k-means clusters of people's vectors (N, A), with the answers that their people really gave."""
        labels = cluster_into_finite_models(vectors, count, seed=seed).labels
        grams = [np.diag(logged.met[labels == kind].sum(axis=0).astype(np.float64)) for kind in range(count)]
        moments = [logged.centred[labels == kind].sum(axis=0) for kind in range(count)]
        rows = [float(logged.met[labels == kind].sum()) for kind in range(count)]
        return cls(np.stack(grams), np.stack(moments), np.array(rows), logged.mean, float(np.sqrt(logged.variance)))

    @cached_property
    def estimates(self) -> Floats:
        """w_c (C, d)."""
        identity = np.eye(self.moments.shape[1])
        return np.stack([np.linalg.solve(identity + g, b) for g, b in zip(self.grams, self.moments, strict=True)])

    def joined(self, which: Bools) -> tuple[Floats, Floats]:
        """M (d, d) and b (d,) of some clusters together."""
        return self.grams[which].sum(axis=0), self.moments[which].sum(axis=0)


@dataclass
class Linked(State):
    """The system (n, ...) by which users are served, their own, rows T_i (n,), and edges to clusters (n, C)."""

    served: Posterior
    own: Posterior
    count: Ints
    edges: Bools


@dataclass(frozen=True, eq=False)
class Club(Contract[Linked]):
    """CLUB for newcomers of logged clusters; `alpha` and `alpha2` are in units of the answers' deviation."""

    kinds: Kinds
    _: KW_ONLY
    alpha: float = 0.1
    alpha2: float = 1.0

    def __post_init__(self) -> None:
        validate_number(self.alpha, "alpha")
        validate_number(self.alpha2, "alpha2")

    @property
    def dimension(self) -> int:
        """Entries of a feature vector."""
        return len(self.kinds.mean)

    def init(self, n: int) -> Linked:
        """Everybody is connected to every cluster."""
        dim, clusters = self.dimension, len(self.kinds.rows)
        nothing = Posterior(np.zeros((n, dim)), np.tile(np.eye(dim), (n, 1, 1)))
        mean, covariance = self._everybody
        served = Posterior(np.tile(mean, (n, 1)), np.tile(covariance, (n, 1, 1)))
        return Linked(served, nothing, np.zeros(n, dtype=np.int64), np.ones((n, clusters), dtype=np.bool_))

    @cached_property
    def _everybody(self) -> tuple[Floats, Floats]:
        return self._system(np.ones(len(self.kinds.rows), dtype=np.bool_), np.zeros(()), np.zeros(()))

    def _system(self, edges: Bools, gram: Floats, moment: Floats) -> tuple[Floats, Floats]:
        """Mean and V^-1 of connected clusters and own rows."""
        grams, moments = self.kinds.joined(edges)
        inverse = precision(np.eye(self.dimension) + grams + gram)
        return inverse @ (moments + moment), inverse

    def score(self, state: Linked, query: Query) -> Floats:
        """phi^T (m + w) + alpha sqrt(phi^T V^-1 phi log(1 + t)) (m, K)."""
        common = calls.call_mean_rewards(self.kinds.mean[None], query)
        width = self.alpha * self.kinds.scale * np.sqrt(np.log1p(state.count[query.users]))[:, None]
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            return np.asarray(common + expected(state.served, query) + width * deviations(state.served, query))

    def learn(self, state: Linked, observed: Rewards) -> None:
        """One reward after another: both systems learn, then edges are cut."""
        for user, features, reward in zip(observed.users.tolist(), observed.features, observed.reward, strict=True):
            error = float(reward - features @ self.kinds.mean)
            for system in (state.served, state.own):
                system.condition(user, features, error, 1.0)
            state.count[user] += 1
            self._cut(state, user)

    def _cut(self, state: Linked, user: int) -> None:
        """Lose the edges to clusters that are too far away, and be served by what is left."""
        own, covariance = state.own.mean[user], state.own.covariance[user]
        apart = np.linalg.norm(self.kinds.estimates - own, axis=1)
        near = apart <= self.alpha2 * self.kinds.scale * (_bound(self.kinds.rows) + _bound(state.count[user]))
        left = state.edges[user] & near
        if (left == state.edges[user]).all():
            return
        state.edges[user] = left
        gram = precision(covariance) - np.eye(self.dimension)
        moment = own + gram @ own
        state.served.mean[user], state.served.covariance[user] = self._system(left, gram, moment)

    def state_settings(self) -> dict[str, str | float]:
        """States mean something with these clusters and this threshold."""
        arrays = {"grams": self.kinds.grams, "moments": self.kinds.moments, "mean": self.kinds.mean}
        return {"kinds": files.file_digest(arrays), "alpha2": self.alpha2}


def _bound(rows: Floats | Ints) -> Floats:
    """CB(T)."""
    return np.asarray(np.sqrt((1.0 + np.log1p(rows)) / (1.0 + rows)))
