"""Clusters of users: the finite set of models that the latent-model baselines choose between.

k-means (Lloyd 1982) on users' reward vectors beta_n, started by k-means++ (Arthur and Vassilvitskii 2007) and restarted
a few times, the tightest partition kept. Cluster s gives the model m_s (its mean), the weight w_s (its share of the
users) and how far its users stray from it: a variance per coordinate (mmTS), a covariance with a ridge (MixTS) and the
reward error epsilon that nine users in ten stay within (mmUCB).

Source: Hong et al. 2020 and 2022 for the algorithms; the clustering and the ridge are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError

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


def cluster_users(vectors: ArrayLike, count: int, *, seed: int, restarts: int = 10, ridge: float = 0.1) -> Clusters:
    """Group users' reward vectors (N, d) into `count` clusters.

    `ridge`, in units of the pooled within-cluster variance per coordinate, is added to the diagonal of every cluster's
    covariance, so that a cluster of few users does not rule out directions it has never seen. The same vectors, count
    and seed always give the same clusters.

    >>> cluster_users([[0.0], [0.1], [9.0]], 2, seed=0).centers.round(3).tolist()
    [[0.05], [9.0]]
    """
    users = _vectors(vectors, "vectors")
    _check(users, count, restarts, ridge)
    shift = users.mean(axis=0)
    centred = users - shift  # distances by |x|^2 - 2 x.c + |c|^2 lose digits far from the origin
    runs = [_lloyd(centred, _spread_out(centred, count, rng)) for rng in np.random.default_rng(seed).spawn(restarts)]
    labels = _canonical(min(runs, key=lambda run: run[1])[0], centred, count)
    return _describe(users, labels, count, ridge)


def cluster_reward_error(vectors: ArrayLike, clusters: Clusters, actions: ArrayLike, *, quantile: float = 0.9) -> float:
    """The epsilon of mmUCB: how wrong a user's cluster is about the rewards of that user.

    The `quantile` over users of max_a |phi_a . (beta_n - m_c(n))|, for the vectors (N, d) that were clustered and the
    feature vectors `actions` (A, d) of the catalogue, or a sample of it.

    >>> users = [[0.0], [0.1], [9.0]]
    >>> round(cluster_reward_error(users, cluster_users(users, 2, seed=0), [[2.0]]), 3)
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
