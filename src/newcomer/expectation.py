"""The marginal likelihood of a Gaussian prior of reward vectors, and its gradient, in one pass over the logs.

User n has beta_n = m + L z_n with z_n ~ N(0, I_k), and rewards r = X beta_n + noise of variance s2. With A = X L, e = r - X m:

    P = I + A^T A / s2,   mu = P^-1 A^T e / s2   (posterior mean of z; its covariance is P^-1),
    log p(r) = -1/2 [ h log(2 pi s2) + log det P + (e^T e - e^T A mu) / s2 ].

By Fisher's identity the gradient of the marginal likelihood in W = [m, L] is that of EM's expected complete one,

    s2 dl/dW = sum_n X_n^T [ f_n,  f_n mu_n^T - A_n P_n^-1 ],   f = e - A mu,

so a pass costs two products of the features with d x (k + 1) matrices and small systems per user; nothing d x d.
Several priors can be judged in one pass, each on its own share of the users (a task): folds, halves, and held-out users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from newcomer.batch import Batch
from newcomer.kernels import invert_cholesky
from newcomer.moments import bucket_count, bucket_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CHUNK_BYTES = 2 << 20  # features worked on at a time: stays in a second-level cache


@dataclass(frozen=True)
class Prior:
    """beta ~ N(mean (d,), factor factor^T), factor (d, k); rewards have noise variance `noise`."""

    mean: Floats
    factor: Floats
    noise: float

    @property
    def weights(self) -> Floats:
        """W = [m, L], (d, k + 1)."""
        return np.column_stack([self.mean, self.factor])


@dataclass(frozen=True)
class Task:
    """A prior, the buckets (B,) whose users it is fitted to, and those on whose users it is only judged."""

    prior: Prior
    fitted: Bools
    judged: Bools


@dataclass(frozen=True)
class Sums:
    """What a pass finds for one task; everything but `judged_*` is over the users it is fitted to.

    `gradient` (d, k + 1) is s2 dl/dW; `weights` (k + 1, k + 1) the sum over rows of E[(1, z)(1, z)^T]; `residual` the expected
    sum of squared noise.
    """

    users: int
    rows: int
    likelihood: float
    gradient: Floats
    weights: Floats
    residual: float
    judged_rows: int
    judged_users: int
    judged_likelihood: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Posterior:
    """Of n users with equally long histories: what rewards say of z, and how likely they were."""

    noise: Floats  # f (n, h): rewards less their posterior mean
    product: Floats  # A (n, h, k)
    mean: Floats  # mu (n, k)
    covariance: Floats  # P^-1 (n, k, k)
    likelihood: Floats  # (n,)


def posterior_of(prior: Prior, features: Floats, rewards: Floats) -> Posterior:
    """E-step of users with features (n, h, d) and rewards (n, h)."""
    count, length, dim = features.shape
    product = (features.reshape(-1, dim) @ prior.weights).reshape(count, length, -1)
    e, A = rewards - product[:, :, 0], np.ascontiguousarray(product[:, :, 1:])
    rank = A.shape[2]
    if rank == 0:
        spread, cross, logdet = np.empty((count, 0, 0)), np.empty((count, 0)), np.zeros(count)
    else:
        precision = A.transpose(0, 2, 1) @ A / prior.noise
        precision[:, np.arange(rank), np.arange(rank)] += 1.0
        root, fine = np.empty_like(precision), np.empty(count, dtype=np.bool_)
        invert_cholesky(precision, 0.0, root, fine)
        spread = root.transpose(0, 2, 1) @ root
        cross = np.matmul(A.transpose(0, 2, 1), e[:, :, None])[:, :, 0] / prior.noise
        logdet = -2.0 * np.log(np.einsum("nii->ni", root)).sum(axis=1)
    mean = np.matmul(spread, cross[:, :, None])[:, :, 0]
    f = e - np.matmul(A, mean[:, :, None])[:, :, 0]
    fit = np.einsum("nh,nh->n", e, f) / prior.noise
    likelihood = -0.5 * (length * np.log(2 * np.pi * prior.noise) + logdet + fit)
    return Posterior(f, A, mean, spread, likelihood)


def expect(batch: Batch, tasks: tuple[Task, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of a batch."""
    where = bucket_of(batch.hashes, bucket_count(batch.features.shape[1]))
    totals = [_empty(task.prior) for task in tasks]
    for length, who, features, rewards in batch.by_length():
        buckets = where[who]
        for i, task in enumerate(tasks):
            for X, r in _chunks(features, rewards, task.fitted[buckets], length):
                totals[i] += _fitted(task.prior, X, r)
            for X, r in _chunks(features, rewards, task.judged[buckets], length):
                totals[i] += _judged(task.prior, X, r)
    return tuple(totals)


def merge(a: tuple[Sums, ...], b: tuple[Sums, ...]) -> tuple[Sums, ...]:
    """The sums over the users of both."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _chunks(features: Floats, rewards: Floats, chosen: Bools, length: int) -> Iterator[tuple[Floats, Floats]]:
    """The chosen users, a few at a time."""
    step = max(1, CHUNK_BYTES // (8 * length * features.shape[2]))
    if chosen.all():
        for start in range(0, len(rewards), step):
            yield features[start : start + step], rewards[start : start + step]
        return
    who = np.flatnonzero(chosen)
    for start in range(0, len(who), step):
        yield features[who[start : start + step]], rewards[who[start : start + step]]


def _fitted(prior: Prior, features: Floats, rewards: Floats) -> Sums:
    count, length, dim = features.shape
    post = posterior_of(prior, features, rewards)
    spread = post.product @ post.covariance
    pull = np.concatenate([post.noise[:, :, None], post.noise[:, :, None] * post.mean[:, None, :] - spread], axis=2)
    moments = np.column_stack([np.ones(count), post.mean])
    weights = moments.T @ moments
    weights[1:, 1:] += post.covariance.sum(axis=0)
    return Sums(
        users=count,
        rows=count * length,
        likelihood=float(post.likelihood.sum()),
        gradient=features.reshape(-1, dim).T @ pull.reshape(count * length, -1),
        weights=length * weights,
        residual=float(np.vdot(post.noise, post.noise) + np.vdot(spread, post.product)),
        judged_rows=0,
        judged_users=0,
        judged_likelihood=0.0,
    )


def _judged(prior: Prior, features: Floats, rewards: Floats) -> Sums:
    values = posterior_of(prior, features, rewards).likelihood
    return replace(
        _empty(prior),
        judged_rows=rewards.size,
        judged_users=len(rewards),
        judged_likelihood=float(values.sum()),
    )


def _empty(prior: Prior) -> Sums:
    dim, size = prior.factor.shape[0], prior.factor.shape[1] + 1
    return Sums(0, 0, 0.0, np.zeros((dim, size)), np.zeros((size, size)), 0.0, 0, 0, 0.0)


@dataclass(frozen=True)
class Comparison:
    """Log-likelihoods of P priors on the same users: sums (P,) and sums of products (P, P)."""

    users: int
    sums: Floats
    products: Floats

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(self.users + other.users, self.sums + other.sums, self.products + other.products)

    def deficits(self) -> tuple[Floats, Floats]:
        """Mean log-likelihood per user that each prior lacks to the best, and the standard error of that, (P,) each."""
        means, best = self.sums / self.users, int(np.argmax(self.sums))
        second = self.products / self.users - np.outer(means, means)
        spread = np.diag(second) + second[best, best] - 2 * second[best]
        return means[best] - means, np.sqrt(np.maximum(spread, 0.0) / max(self.users - 1, 1))


def compare(batch: Batch, rivals: tuple[tuple[Prior, ...], ...], judged: tuple[Bools, ...]) -> Comparison:
    """Judge, fold by fold, the rivals fitted without a fold on the users of its buckets."""
    where = bucket_of(batch.hashes, bucket_count(batch.features.shape[1]))
    size = len(rivals[0])
    total = Comparison(0, np.zeros(size), np.zeros((size, size)))
    for length, who, features, rewards in batch.by_length():
        for priors, buckets in zip(rivals, judged, strict=True):
            for X, r in _chunks(features, rewards, buckets[where[who]], length):
                values = np.stack([posterior_of(prior, X, r).likelihood for prior in priors])
                total += Comparison(len(r), values.sum(axis=1), values @ values.T)
    return total
