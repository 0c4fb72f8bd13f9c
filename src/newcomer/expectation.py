"""The marginal likelihood of a Gaussian prior of reward vectors, and its gradient, in one pass over the logs.

User n has beta_n = m + L z_n with z_n ~ N(0, I_k), and rewards r = X beta_n + noise of variance s2. With A = X L, e = r - X m:

    P = I + A^T A / s2,   mu = P^-1 A^T e / s2   (posterior mean of z; its covariance is P^-1),
    log p(r) = -1/2 [ h log(2 pi s2) + log det P + (e^T e - e^T A mu) / s2 ].

By Fisher's identity the gradient of the marginal likelihood in W = [m, L] is that of EM's expected complete one,

    s2 dl/dW = sum_n X_n^T [ f_n,  f_n mu_n^T - A_n P_n^-1 ],   f = e - A mu,

so a pass costs two products of the features with d x (k + 1) matrices and, between them, small systems per user (`prior_kernels`).
Several priors can be judged in one pass, each on its own share of the users (a task): folds, halves, and held-out users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from newcomer import prior_kernels
from newcomer.batch import Batch
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

    mean: Floats  # mu (n, k)
    likelihood: Floats  # (n,)


def posterior_of(prior: Prior, features: Floats, rewards: Floats) -> Posterior:
    """E-step of users with features (n, h, d) and rewards (n, h), as far as means and likelihoods go."""
    product, count = _product(prior, features), len(rewards)
    found = Posterior(np.empty((count, product.shape[2] - 1)), np.empty(count))
    prior_kernels.likelihoods(product, np.ascontiguousarray(rewards), prior.noise, found.mean, found.likelihood)
    return found


def _product(prior: Prior, features: Floats) -> Floats:
    """X [m, L], (n, h, k + 1)."""
    count, length, dim = features.shape
    return (features.reshape(-1, dim) @ prior.weights).reshape(count, length, -1)


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
    pull, size = _product(prior, features), prior.factor.shape[1] + 1
    weights = np.zeros((size, size))
    likelihood, residual = prior_kernels.expectations(pull, np.ascontiguousarray(rewards), prior.noise, weights)
    return Sums(
        users=count,
        rows=count * length,
        likelihood=likelihood,
        gradient=features.reshape(-1, dim).T @ pull.reshape(count * length, -1),
        weights=length * weights,
        residual=residual,
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
