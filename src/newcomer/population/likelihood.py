"""The marginal likelihood of a Gaussian population of reward vectors, and its gradient, in one pass over the logs.

User n has beta_n = m + L z_n with z_n ~ N(0, I_k), and rewards r = X beta_n + noise of variance s2. With A = X L and
e = r - X m:

    P = I + A^T A / s2,   mu = P^-1 A^T e / s2   (posterior mean of z; its covariance is P^-1),
    log p(r) = -1/2 [ h log(2 pi s2) + log det P + (e^T e - e^T A mu) / s2 ].

By Fisher's identity the gradient of the marginal likelihood in W = [m, L] is that of EM's expected complete one,

    s2 dl/dW = sum_n X_n^T [ f_n,  f_n mu_n^T - A_n P_n^-1 ],   f = e - A mu,

so a pass costs two products of the features with d x (k + 1) matrices and, between them, small systems per user
(`likelihood_loops`). Where rows name actions of a catalogue, the products are with the catalogue: their cost does not
grow with the logs. Several populations can be judged in one pass, each on its own share of the users (a task): folds,
halves, and held-out users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.logs.batch import Batch
from newcomer.population import likelihood_loops
from newcomer.population.record import Population
from newcomer.users import bucket_count, bucket_of

CHUNK_BYTES = 2 << 20  # features worked on at a time: stays in a second-level cache


@dataclass(frozen=True)
class Task:
    """A population, the buckets (B,) whose users it is fitted to, and those on whose users it is only judged."""

    population: Population
    fitted: Bools
    judged: Bools


@dataclass(frozen=True)
class Sums:
    """What a pass finds for one task; everything but `judged_*` is over the users it is fitted to.

    `gradient` (d, k + 1) is s2 dl/dW; `weights` (k + 1, k + 1) the sum over rows of E[(1, z)(1, z)^T]; `residual` the
    expected sum of squared noise.
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


def posterior_of(population: Population, features: Floats, rewards: Floats) -> Posterior:
    """What n users' features (n, h, d) and rewards (n, h) say of their z, and how likely the rewards were.

    One user, one direction, s2 = 1: after the rewards 1 and 3 of phi = 1, mu = 4 / (1 + 2).

    >>> one = Population(np.zeros(1), np.ones((1, 1)), 1.0)
    >>> posterior_of(one, np.ones((1, 2, 1)), np.array([[1.0, 3.0]])).mean.round(4).tolist()
    [[1.3333]]
    """
    count, length, dim = features.shape
    starts = length * np.arange(count)
    view = _View(features.reshape(-1, dim), np.arange(count * length), rewards.ravel(), starts, starts + length)
    return view.judge(population)


@dataclass(frozen=True)
class _View:
    """Some users of a batch: row i has the features `table[codes[i]]`; user n owns rows `starts[n]` to `stops[n]`."""

    table: Floats  # (rows or items, d)
    codes: Ints
    rewards: Floats
    starts: Ints
    stops: Ints

    def judge(self, population: Population) -> Posterior:
        """Posterior means and likelihoods, and nothing that only a gradient needs."""
        found = Posterior(np.empty((len(self.starts), population.rank)), np.empty(len(self.starts)))
        rows = self.codes, self.rewards, self.starts, self.stops
        product = self.table @ population.weights
        likelihood_loops.likelihoods(product, *rows, population.noise_variance, found.mean, found.likelihood)
        return found

    def fit(self, population: Population) -> Sums:
        """The sums of the users of the view: X W once for all, small systems in the loop, X^T (...) once for all."""
        product, size = self.table @ population.weights, population.rank + 1
        pull, weights = np.zeros_like(product), np.zeros((size, size))
        rows = self.codes, self.rewards, self.starts, self.stops
        likelihood, residual = likelihood_loops.expectations(product, *rows, population.noise_variance, weights, pull)
        return replace(
            _nothing(population),
            users=len(self.starts),
            rows=int((self.stops - self.starts).sum()),
            likelihood=likelihood,
            gradient=self.table.T @ pull,
            weights=weights,
            residual=residual,
        )


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
    return _View(batch.take(rows), np.arange(total), batch.rewards[rows], ends - lengths, ends)


def expect(batch: Batch, tasks: tuple[Task, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of a batch: the map of a pass of EM."""
    where = bucket_of(batch.hashes, bucket_count(batch.dim))
    totals = [_nothing(task.population) for task in tasks]
    for i, task in enumerate(tasks):
        for view in _views(batch, task.fitted[where]):
            totals[i] += view.fit(task.population)
        for view in _views(batch, task.judged[where]):
            totals[i] += replace(
                _nothing(task.population),
                judged_rows=int((view.stops - view.starts).sum()),
                judged_users=len(view.starts),
                judged_likelihood=float(view.judge(task.population).likelihood.sum()),
            )
    return tuple(totals)


def merge(a: tuple[Sums, ...], b: tuple[Sums, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of both."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _nothing(population: Population) -> Sums:
    """The sums over nobody."""
    dim, size = len(population.mean), population.rank + 1
    return Sums(0, 0, 0.0, np.zeros((dim, size)), np.zeros((size, size)), 0.0, 0, 0, 0.0)


@dataclass(frozen=True)
class Comparison:
    """Log-likelihoods of P populations on the same users: sums (P,) and sums of products (P, P)."""

    users: int
    sums: Floats
    products: Floats

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(self.users + other.users, self.sums + other.sums, self.products + other.products)

    def deficits(self) -> tuple[Floats, Floats]:
        """The mean log-likelihood per user that each lacks to the best, and the standard error of that, (P,) each.

        Users are the same for all, so the error is that of the *difference*, which varies less than either.

        >>> twice = Comparison(2, np.array([4.0, 2.0]), np.array([[10.0, 4.0], [4.0, 2.0]]))
        >>> [values.tolist() for values in twice.deficits()]
        [[0.0, 1.0], [0.0, 1.0]]
        """
        means, best = self.sums / self.users, int(np.argmax(self.sums))
        second = self.products / self.users - np.outer(means, means)
        spread = np.diag(second) + second[best, best] - 2 * second[best]
        return means[best] - means, np.sqrt(np.maximum(spread, 0.0) / max(self.users - 1, 1))


def compare(batch: Batch, rivals: tuple[tuple[Population, ...], ...], judged: tuple[Bools, ...]) -> Comparison:
    """Judge, fold by fold, the P rivals that were fitted without the fold on the users of its buckets."""
    where = bucket_of(batch.hashes, bucket_count(batch.dim))
    size = len(rivals[0])
    total = Comparison(0, np.zeros(size), np.zeros((size, size)))
    for populations, buckets in zip(rivals, judged, strict=True):
        for view in _views(batch, buckets[where]):
            values = np.stack([view.judge(population).likelihood for population in populations])
            total += Comparison(len(view.starts), values.sum(axis=1), values @ values.T)
    return total
