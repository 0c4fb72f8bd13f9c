"""The marginal likelihood of a Gaussian prior of reward vectors, and its gradient, in one pass over the logs.

User n has beta_n = m + L z_n with z_n ~ N(0, I_k), and rewards r = X beta_n + noise of variance s2. With A = X L, e = r - X m:

    P = I + A^T A / s2,   mu = P^-1 A^T e / s2   (posterior mean of z; its covariance is P^-1),
    log p(r) = -1/2 [ h log(2 pi s2) + log det P + (e^T e - e^T A mu) / s2 ].

By Fisher's identity the gradient of the marginal likelihood in W = [m, L] is that of EM's expected complete one,

    s2 dl/dW = sum_n X_n^T [ f_n,  f_n mu_n^T - A_n P_n^-1 ],   f = e - A mu,

so a pass costs two products of the features with d x (k + 1) matrices and, between them, small systems per user (`prior_kernels`). Where rows name
actions of a catalogue, the products are with the catalogue: their cost does not grow with the logs.
Several priors can be judged in one pass, each on its own share of the users (a task): folds, halves, and held-out users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from newcomer.logs.batch import Batch
from newcomer.population import likelihood_loops
from newcomer.sold.moments import bucket_count, bucket_of

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
    count, length, dim = features.shape
    starts = length * np.arange(count)
    return _View(features.reshape(-1, dim), _count(count * length), rewards.ravel(), starts, starts + length).judge(
        prior
    )


@dataclass(frozen=True)
class _View:
    """Some users of a batch: row i has the features `table[codes[i]]`; user n owns rows `starts[n]` up to `stops[n]`."""

    table: Floats
    codes: Ints
    rewards: Floats
    starts: Ints
    stops: Ints

    def judge(self, prior: Prior) -> Posterior:
        """Posterior means and likelihoods."""
        return Posterior(*likelihood_loops.likelihoods(self._seen(prior)))

    def fit(self, prior: Prior) -> Sums:
        """The sums of the users of the view."""
        found = likelihood_loops.expectations(self._seen(prior))
        return replace(
            _empty(prior),
            users=len(self.starts),
            rows=int((self.stops - self.starts).sum()),
            likelihood=found.likelihood,
            gradient=self.table.T @ found.pull,
            weights=found.weights,
            residual=found.residual,
        )

    def _seen(self, prior: Prior) -> likelihood_loops.Histories:
        """The rows multiplied by W = [m, L], as the compiled loops take them."""
        rows = self.codes, self.rewards, self.starts, self.stops
        return likelihood_loops.Histories(self.table @ prior.weights, *rows, prior.noise)


def _views(batch: Batch, chosen: Bools) -> Iterator[_View]:
    """The chosen users: all at once where rows share a table that is smaller than they are, else a few at a time."""
    who = np.flatnonzero(chosen)
    starts, stops = batch.offsets[who], batch.offsets[who + 1]
    coded = batch.coded
    if coded is not None and len(coded.table) <= int((stops - starts).sum()):
        yield _View(coded.table, coded.actions, batch.rewards, starts, stops)
        return
    step, ends, first = max(1, CHUNK_BYTES // (8 * batch.dim)), np.cumsum(stops - starts), 0
    while first < len(who):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + step, side="right")))
        yield _some(batch, starts[first:last], stops[first:last])
        first = last


def _some(batch: Batch, starts: Ints, stops: Ints) -> _View:
    """Users with these rows: a view if they are neighbours, else a copy."""
    lengths = stops - starts
    total, ends = int(lengths.sum()), np.cumsum(lengths)
    if total == stops[-1] - starts[0]:
        rows: slice | Ints = slice(int(starts[0]), int(stops[-1]))
    else:
        rows = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
    return _View(batch.take(rows), _count(total), batch.rewards[rows], ends - lengths, ends)


def _count(total: int) -> Ints:
    return np.arange(total, dtype=np.int64)


def expect(batch: Batch, tasks: tuple[Task, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of a batch."""
    where = bucket_of(batch.hashes, bucket_count(batch.dim))
    totals = [_empty(task.prior) for task in tasks]
    for i, task in enumerate(tasks):
        for view in _views(batch, task.fitted[where]):
            totals[i] += view.fit(task.prior)
        for view in _views(batch, task.judged[where]):
            totals[i] += _judged(task.prior, view)
    return tuple(totals)


def merge(a: tuple[Sums, ...], b: tuple[Sums, ...]) -> tuple[Sums, ...]:
    """The sums over the users of both."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _judged(prior: Prior, view: _View) -> Sums:
    return replace(
        _empty(prior),
        judged_rows=int((view.stops - view.starts).sum()),
        judged_users=len(view.starts),
        judged_likelihood=float(view.judge(prior).likelihood.sum()),
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
    where = bucket_of(batch.hashes, bucket_count(batch.dim))
    size = len(rivals[0])
    total = Comparison(0, np.zeros(size), np.zeros((size, size)))
    for priors, buckets in zip(rivals, judged, strict=True):
        for view in _views(batch, buckets[where]):
            values = np.stack([view.judge(prior).likelihood for prior in priors])
            total += Comparison(len(view.starts), values.sum(axis=1), values @ values.T)
    return total
