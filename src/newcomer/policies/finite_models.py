"""Baselines that believe in finitely many kinds of users: mUCB, mmUCB and mTS (Hong et al. 2020, "Latent Bandits").

Offline, users are clustered into S models m_1..m_S (newcomer.policies.finite_models); online, the only question is
which of them the newcomer is. phi are features, r a reward, sigma the noise's standard deviation, T the horizon.

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

Clusters of users: the finite set of models that the latent-model baselines choose between.

k-means (Lloyd 1982) on users' reward vectors beta_n, started by k-means++ (Arthur and Vassilvitskii 2007) and restarted
a few times, the tightest partition kept. Cluster s gives the model m_s (its mean), the weight w_s (its share of the
users) and how far its users stray from it: a variance per coordinate (mmTS), a covariance with a ridge (MixTS) and the
reward error epsilon that nine users in ten stay within (mmUCB).

Source: Hong et al. 2020 and 2022 for the algorithms; the clustering and the ridge are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from newcomer import files
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import ModelError, PolicyError
from newcomer.linear import scoring_loops
from newcomer.linear.state import State
from newcomer.policies import calls
from newcomer.policies.base import Contract
from newcomer.policies.calls import Generators, Query, Random, Rewards, call_floats, call_rows_each_once
from newcomer.policies.protocol import Learner
from newcomer.validate import validate_number, validate_positive, validate_whole

NOISE_SD = 0.5  # of the paper's simulation; its MovieLens study has sqrt(0.5)


# What policies with finitely many kinds of users share; those of mixtures.py too.


def checked_finite_models(centers: ArrayLike) -> Floats:
    """Models as a read-only (S, d) array, checked."""
    given = np.array(call_floats(centers, "centers"))
    if given.ndim != 2 or 0 in given.shape or not np.isfinite(given).all():
        raise PolicyError(f"centers must be a finite (S, d) array, not {given.shape}")
    given.flags.writeable = False
    return given


def finite_model_weights(weights: ArrayLike | None, count: int) -> Floats:
    """Prior weights (S,) that sum to one; equal if none are given.

    >>> finite_model_weights([1.0, 3.0], 2).tolist()
    [0.25, 0.75]
    """
    given = np.ones(count) if weights is None else np.array(call_floats(weights, "weights"))
    if given.shape != (count,) or not np.isfinite(given).all() or not (given > 0).all():
        raise PolicyError(f"weights must be {count} positive numbers", todo="leave out a model of weight zero")
    normal: Floats = given / given.sum()
    return normal


def finite_model_posterior(log_weights: Floats) -> Floats:
    """Weights that sum to one from logarithms known up to a constant, along the last axis.

    >>> finite_model_posterior(np.log([1.0, 3.0])).round(6).tolist()
    [0.25, 0.75]
    """
    raw = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    normal: Floats = raw / raw.sum(axis=-1, keepdims=True)
    return normal


def draw_finite_model(chances: Floats, rngs: Generators) -> Ints:
    """One model (m,) for each row of probabilities (m, S), by one uniform number from the row's generator."""
    uniform = np.array([rng.random() for rng in rngs])
    above = np.cumsum(chances, axis=1) > uniform[:, None]
    # Rounding may leave the last sum below one, and the number above it: then the last model is meant.
    drawn: Ints = np.where(above.any(axis=1), above.argmax(axis=1), chances.shape[1] - 1).astype(np.int64)
    return drawn


def _promised(centers: Floats, query: Query) -> Floats:
    """phi_a . m_s (m, K, S): one small product for each user, never one across users."""
    with np.errstate(invalid="ignore", over="ignore"):
        products: Floats = query.actions @ centers.T
    return np.broadcast_to(products, (len(query.users), *products.shape[1:]))


def _rewarded(centers: Floats, features: Floats) -> Floats:
    """phi . m_s (m, S), one product for each row."""
    products: Floats = (features[:, None, :] @ centers.T)[:, 0, :]
    return products


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


@dataclass(frozen=True, eq=False)
class _Elimination(Learner[Charges]):
    """The rules that mUCB (epsilon = 0) and mmUCB share."""

    centers: Floats
    horizon: int
    noise_sd: float
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        validate_whole(self.horizon, "horizon")
        validate_positive(self.noise_sd, "noise_sd")
        validate_number(self.epsilon, "epsilon")

    def init(self, n: int) -> Charges:
        """No rounds charged."""
        shape = n, len(self.centers)
        return Charges(np.zeros(shape, dtype=np.int64), np.zeros(shape))

    def plausible(self, state: Charges, users: Ints) -> Bools:
        """The set C (m, S), never empty."""
        count, gap = state.count[users], state.gap[users]
        plausible: Bools = gap <= self.noise_sd * np.sqrt(6.0 * count * np.log(self.horizon))
        for row in np.flatnonzero(
            ~plausible.any(axis=1)
        ):  # there every count is positive: gap = 0 at count = 0 is plausible
            plausible[row, np.argmin(gap[row] / np.sqrt(count[row]))] = True
        return plausible

    def index(self, state: Charges, query: Query) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        plausible, promises = self.plausible(state, query.users), _promised(self.centers, query)
        best: Floats = np.max(promises, axis=2, initial=-np.inf, where=plausible[:, None, :])
        return best

    def learn(self, state: Charges, observed: Rewards) -> None:
        """Charge each reward, less epsilon, to the plausible model that promised most for it."""
        for part in call_rows_each_once(observed):
            users, promises, rows = part.users, _rewarded(self.centers, part.features), np.arange(len(part.users))
            guilty = np.empty(len(users), dtype=np.int64)
            scoring_loops.first_best_scores(promises, self.plausible(state, users), guilty)
            state.count[users, guilty] += 1
            state.gap[users, guilty] += promises[rows, guilty] - self.epsilon - part.reward

    def state_settings(self) -> dict[str, str | float]:
        """Charges are about these models, with this epsilon; the thresholds they are held against are not in them."""
        return {"centers": files.file_digest({"centers": self.centers}), "epsilon": self.epsilon}


@dataclass(frozen=True, eq=False)
class MUCB(Contract[Charges]):
    """UCB over the plausible models `centers` (S, d); see the module.

    >>> policy = MUCB([[1.0, 0.0], [0.0, 1.0]], horizon=100)
    >>> policy.scores(policy.start(1), [[2.0, 0.0], [1.0, 3.0]]).tolist()
    [[2.0, 3.0]]
    """

    centers: Floats
    horizon: int = field(kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", checked_finite_models(self.centers))
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> _Elimination:
        """The rules, and the rounds charged to each model."""
        return _Elimination(self.centers, self.horizon, self.noise_sd)

    def score(self, state: Charges, query: Query) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        return self.learner.index(state, query)


@dataclass(frozen=True, eq=False)
class MmUCB(Contract[Charges]):
    """mUCB for models (S, d) that are wrong by at most `epsilon` in the reward of any action; see the module.

    `newcomer.policies.finite_models.finite_models_reward_error` measures an epsilon that nine training users in ten
    stay within. The paper sets it to the radius of the subspace, a distance of projections; unclipped that never rules
    out a model.
    """

    centers: Floats
    epsilon: float
    horizon: int = field(kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", checked_finite_models(self.centers))
        self.learner  # noqa: B018  (settings that make no sense are refused here)

    @cached_property
    def learner(self) -> _Elimination:
        """The rules, and the rounds charged to each model."""
        return _Elimination(self.centers, self.horizon, self.noise_sd, self.epsilon)

    def score(self, state: Charges, query: Query) -> Floats:
        """max over plausible s of phi . m_s (m, K)."""
        return self.learner.index(state, query)


@dataclass
class Beliefs(State):
    """What mTS remembers: the logarithms of the models' weights (n, S), up to a constant per user."""

    log_weights: Floats

    def check(self) -> None:
        """Refuse anything but one float for each user and model."""
        super().check()
        self.refuse_unless(self.log_weights.ndim == 2 and self.log_weights.dtype == np.float64)


@dataclass(frozen=True, eq=False)
class MTS(Contract[Beliefs]):
    """Thompson sampling over the models `centers` (S, d) with prior `weights` (S,), equal by default.

    >>> policy = MTS([[1.0, 0.0], [0.0, 1.0]], weights=[1.0, 3.0])
    >>> policy.probabilities(policy.start(1), [[1.0, 0.0], [0.0, 1.0]]).round(6).tolist()
    [[0.25, 0.75]]
    """

    centers: Floats
    weights: Floats | None = field(default=None, kw_only=True)
    noise_sd: float = field(default=NOISE_SD, kw_only=True)

    sampled = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", checked_finite_models(self.centers))
        object.__setattr__(self, "weights", finite_model_weights(self.weights, len(self.centers)))
        validate_positive(self.noise_sd, "noise_sd")

    def state_settings(self) -> dict[str, str | float]:
        """Log weights are about these models, from these weights, with this noise."""
        assert self.weights is not None
        arrays = {"centers": self.centers, "weights": self.weights}
        return {"centers": files.file_digest(arrays), "noise_sd": self.noise_sd}

    def init(self, n: int) -> Beliefs:
        """The prior weights."""
        assert self.weights is not None
        return Beliefs(np.tile(np.log(self.weights), (n, 1)))

    def score(self, state: Beliefs, query: Query) -> Floats:
        """The posterior mean reward, sum_s p_s phi . m_s (m, K)."""
        chances = finite_model_posterior(state.log_weights[query.users])
        mean: Floats = (_promised(self.centers, query) * chances[:, None, :]).sum(axis=2)
        return mean

    def draws(self, state: Beliefs, query: Query, rngs: Generators) -> Iterator[Floats]:
        """What a model drawn from the posterior promises (m, K); one number a row."""
        chances, promises = finite_model_posterior(state.log_weights[query.users]), _promised(self.centers, query)
        while True:
            drawn = draw_finite_model(chances, rngs)
            yield np.ascontiguousarray(promises[np.arange(len(drawn)), :, drawn])

    def choice_probabilities(self, state: Beliefs, query: Query, rng: Random) -> Floats:
        """P(a) = sum of p_s over the models whose best allowed action is a (m, K): exact, no generator needed."""
        chances, promises = finite_model_posterior(state.log_weights[query.users]), _promised(self.centers, query)
        out, rows = np.zeros(promises.shape[:2]), np.arange(len(promises))
        for s in range(len(self.centers)):
            out[rows, calls.pick_for_call(np.ascontiguousarray(promises[:, :, s]), query)] += chances[:, s]
        return out

    def learn(self, state: Beliefs, observed: Rewards) -> None:
        """Weigh each model by the density of the rewards under it."""
        errors = observed.reward[:, None] - _rewarded(self.centers, observed.features)
        np.subtract.at(state.log_weights, observed.users, np.square(errors) / (2 * self.noise_sd**2))


_CHUNK = 1 << 22  # users x actions looked at together when the reward error is measured


@dataclass(frozen=True)
class Clusters:
    """A partition of N users into S clusters, largest first.

    `centers` (S, d), `shares` (S,) summing to one, `labels` (N,) the cluster of each user, `variances` (S,) the mean
    squared deviation per coordinate, `covariances` (S, d, d) positive definite unless all users sit on their centers.
    """

    centers: Floats
    shares: Floats
    labels: Ints
    variances: Floats
    covariances: Floats


def cluster_into_finite_models(
    vectors: ArrayLike, count: int, *, seed: int, restarts: int = 10, ridge: float = 0.1
) -> Clusters:
    """Group users' reward vectors (N, d) into `count` clusters.

    `ridge`, in units of the pooled within-cluster variance per coordinate, is added to the diagonal of every cluster's
    covariance, so that a cluster of few users does not rule out directions it has never seen. The same vectors, count
    and seed always give the same clusters.

    >>> cluster_into_finite_models([[0.0], [0.1], [9.0]], 2, seed=0).centers.round(3).tolist()
    [[0.05], [9.0]]
    """
    users = _vectors(vectors, "vectors")
    _check(users, count, restarts, ridge)
    shift = users.mean(axis=0)
    centred = users - shift  # distances by |x|^2 - 2 x.c + |c|^2 lose digits far from the origin
    runs = [_lloyd(centred, _spread_out(centred, count, rng)) for rng in np.random.default_rng(seed).spawn(restarts)]
    labels = _canonical(min(runs, key=lambda run: run[1])[0], centred, count)
    return _describe(users, labels, count, ridge)


def finite_models_reward_error(
    vectors: ArrayLike, clusters: Clusters, actions: ArrayLike, *, quantile: float = 0.9
) -> float:
    """The epsilon of mmUCB: how wrong a user's cluster is about the rewards of that user.

    The `quantile` over users of max_a |phi_a . (beta_n - m_c(n))|, for the vectors (N, d) that were clustered and the
    feature vectors `actions` (A, d) of the catalogue, or a sample of it.

    >>> users = [[0.0], [0.1], [9.0]]
    >>> round(finite_models_reward_error(users, cluster_into_finite_models(users, 2, seed=0), [[2.0]]), 3)
    0.1
    """
    users, features = _vectors(vectors, "vectors"), _vectors(actions, "actions")
    if users.shape != (len(clusters.labels), clusters.centers.shape[1]) or features.shape[1] != users.shape[1]:
        raise ModelError(
            f"vectors {users.shape} and actions {features.shape} do not fit these clusters",
            todo=f"pass the {len(clusters.labels)} users that were clustered and actions of the same dimension",
        )
    strays = users - clusters.centers[clusters.labels]
    parts = np.array_split(strays, max(1, len(users) * len(features) // _CHUNK))
    worst = np.concatenate([np.abs(part @ features.T).max(axis=1) for part in parts])
    return float(np.quantile(worst, quantile))


def _spread_out(users: Floats, count: int, rng: np.random.Generator) -> Floats:
    """k-means++: each next center is a user drawn with probability proportional to the squared distance."""
    chosen = [int(rng.integers(len(users)))]
    nearest = np.square(users - users[chosen]).sum(axis=1)
    while len(chosen) < count:
        chosen.append(int(rng.choice(len(users), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.square(users - users[chosen[-1]]).sum(axis=1))
    return users[chosen]


def _lloyd(users: Floats, centers: Floats) -> tuple[Ints, float]:
    """Alternate nearest center and mean until nobody moves; labels and the inertia reached."""
    count, best = len(centers), np.inf
    while True:
        distances = _square_distances(users, centers)
        labels = _fill_empty(distances, distances.argmin(axis=1))
        centers = _means(users, labels, count)
        inertia = float(np.square(users - centers[labels]).sum())
        if not inertia < best * (1 - 1e-12):  # falls at every step that moves someone, up to rounding
            return labels, inertia
        best = inertia


def _fill_empty(distances: Floats, labels: Ints) -> Ints:
    """Give each empty cluster the user farthest from its center among those who are not alone."""
    count = distances.shape[1]
    for empty in np.flatnonzero(np.bincount(labels, minlength=count) == 0):
        alone = np.bincount(labels, minlength=count)[labels] == 1
        away = np.where(alone, -1.0, distances[np.arange(len(labels)), labels])
        labels[away.argmax()] = empty
    return labels


def _canonical(labels: Ints, users: Floats, count: int) -> Ints:
    """Renumber so that the largest cluster is first; equal sizes in the order of their centers' coordinates."""
    keys = [*_means(users, labels, count).T[::-1], -np.bincount(labels, minlength=count)]
    rank = np.empty(count, dtype=np.int64)
    rank[np.lexsort(keys)] = np.arange(count)
    return rank[labels]


def _describe(users: Floats, labels: Ints, count: int, ridge: float) -> Clusters:
    """Means of the clusters, and how far their users stray: per coordinate, and as covariances with the ridge."""
    centers = _means(users, labels, count)
    strays = users - centers[labels]
    pooled = float(np.square(strays).mean())
    groups = [strays[labels == s] for s in range(count)]
    return Clusters(
        centers=centers,
        shares=np.bincount(labels, minlength=count) / len(users),
        labels=labels,
        variances=np.array([float(np.square(group).mean()) for group in groups]),
        covariances=np.stack([g.T @ g / len(g) + ridge * pooled * np.eye(users.shape[1]) for g in groups]),
    )


def _means(users: Floats, labels: Ints, count: int) -> Floats:
    """Mean (S, d) of each cluster."""
    return np.stack([users[labels == s].mean(axis=0) for s in range(count)])


def _square_distances(users: Floats, centers: Floats) -> Floats:
    """|x - c|^2 = |x|^2 - 2 x.c + |c|^2 for every user and center, (N, S)."""
    cross = users @ centers.T
    squares: Floats = np.square(users).sum(axis=1)[:, None] - 2 * cross + np.square(centers).sum(axis=1)
    return squares


def _vectors(values: ArrayLike, name: str) -> Floats:
    """What was passed as finite rows (rows, d)."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} are not numbers", todo="pass an array with one row each") from error
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
        raise ModelError(f"{name} of shape {array.shape} are not finite rows", todo="pass a finite (rows, dim) array")
    return array


def _check(users: Floats, count: int, restarts: int, ridge: float) -> None:
    distinct = len(np.unique(users, axis=0))
    if not 1 <= count <= distinct:
        raise ModelError(f"{count} clusters of {distinct} distinct users", todo=f"choose 1 to {distinct} clusters")
    if restarts < 1 or not (np.isfinite(ridge) and ridge >= 0):
        raise ModelError(f"restarts = {restarts}, ridge = {ridge}", todo="use at least one restart and a ridge >= 0")
