"""Compiled loops over users for the likelihood of a prior and its gradient; the maths is told in likelihood.py.

A user with rewards r and products A = X L, e = r - X m of the features with W = [m, L] has the small system

    P = I + A^T A / s2 (k, k),   c = A^T e / s2 (k,),   mu = P^-1 c,
    log p(r) = -1/2 [ h log(2 pi s2) + log det P + e^T e / s2 - c^T P^-1 c ].

With P = L L^T and the root R = L^-1, P^-1 is R^T R and c^T P^-1 c is |R c|^2. Arrays of one user are allocated once and
written again for every user: k is small, and there are many users.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import cholesky, dot, fast, invert_lower
from newcomer.arrays import Floats, Ints


class Histories(NamedTuple):
    """The rows of some users times W: row i is row codes[i] of `product`; user n owns rows starts[n] up to stops[n]."""

    product: Floats  # (A, k + 1), features of the distinct actions, or of all rows, times W = [m, L]
    codes: Ints  # (rows,)
    rewards: Floats  # (rows,)
    starts: Ints  # (users,)
    stops: Ints  # (users,)
    noise: float  # s2


class Posteriors(NamedTuple):
    """Of each user: the posterior mean mu of z, and the log-likelihood of the rewards."""

    mean: Floats  # (users, k)
    likelihood: Floats  # (users,)


class Expectations(NamedTuple):
    """Sums over users; X^T `pull`, with X (A, d) the features in `product` = X W, is s2 times the gradient in W."""

    likelihood: float
    residual: float  # the expected sum of squared noise
    weights: Floats  # (k + 1, k + 1), the sum over rows of E[(1, z)(1, z)^T]
    pull: Floats  # (A, k + 1), the sum over rows of [f, f mu^T - A P^-1] in row codes[i], f = e - A mu


@fast
def posterior(seen: Histories, n: int, mean: Floats, root: Floats) -> float:
    """Of user n: write mu (k,) and the root R of P^-1 (k, k), lower triangular; returns the log-likelihood.

    `root` holds the lower triangle of P first, then its Cholesky factor, then the inverse of that; `mean` holds c, R c
    and mu. Rows are read once, each a rank-one addition to P, so the cost is h k^2 + k^3 for a history of h rows.
    """
    begin, end, rank = seen.starts[n], seen.stops[n], mean.size
    # P and c: first the sums over rows, then the division by s2 and the identity.
    square = 0.0
    root[:] = 0.0
    mean[:] = 0.0
    for i in range(begin, end):
        row = seen.product[seen.codes[i]]
        error = seen.rewards[i] - row[0]
        square += error * error
        for a in range(rank):
            weight = row[a + 1]
            mean[a] += weight * error
            for b in range(a + 1):
                root[a, b] += weight * row[b + 1]
    for a in range(rank):
        mean[a] /= seen.noise
        for b in range(a + 1):
            root[a, b] /= seen.noise
        root[a, a] += 1.0
    if not cholesky(root, root, 0.0):  # numbers that are not finite: P itself is never singular
        root[:] = np.nan
    logdet = 0.0
    for a in range(rank):
        logdet += 2.0 * np.log(root[a, a])
    invert_lower(root)
    # mu = R^T (R c). Entry a of R c needs the entries of c up to a, so it is written from the last.
    for a in range(rank - 1, -1, -1):
        mean[a] = dot(root[a, : a + 1], mean)
    explained = dot(mean, mean)
    for a in range(rank):
        total = 0.0
        for b in range(a, rank):
            total += root[b, a] * mean[b]
        mean[a] = total
    fit = square / seen.noise - explained
    value: float = -0.5 * ((end - begin) * np.log(2.0 * np.pi * seen.noise) + logdet + fit)
    return value


@fast
def likelihoods(seen: Histories) -> Posteriors:
    """What the rewards say of each user, and how likely they were: enough for users who are judged, not fitted."""
    users, rank = seen.starts.size, seen.product.shape[1] - 1
    found, root = Posteriors(np.empty((users, rank)), np.empty(users)), np.empty((rank, rank))
    for n in range(users):
        found.likelihood[n] = posterior(seen, n, found.mean[n], root)
    return found


@fast
def expectations(seen: Histories) -> Expectations:
    """The sums of EM's expectation step, and of the gradient, over all users.

    Users may share rows of `product` (the actions of a catalogue), whose entries of `pull` then add up.
    """
    size, rank = seen.product.shape[1], seen.product.shape[1] - 1
    root, covariance, mean, spread = np.empty((rank, rank)), np.empty((rank, rank)), np.empty(rank), np.empty(rank)
    weights, pull = np.zeros((size, size)), np.zeros(seen.product.shape)
    likelihood = residual = 0.0
    for n in range(seen.starts.size):
        likelihood += posterior(seen, n, mean, root)
        # The posterior covariance P^-1 = R^T R, by rows of R.
        covariance[:] = 0.0
        for p in range(rank):
            for a in range(p + 1):
                weight = root[p, a]
                for b in range(p + 1):
                    covariance[a, b] += weight * root[p, b]
        # Every row of the user has the same E[(1, z)(1, z)^T]; the first column is the first row, filled in at the end.
        length = float(seen.stops[n] - seen.starts[n])
        weights[0, 0] += length
        for a in range(rank):
            weights[0, a + 1] += length * mean[a]
            for b in range(rank):
                weights[a + 1, b + 1] += length * (covariance[a, b] + mean[a] * mean[b])
        for i in range(seen.starts[n], seen.stops[n]):
            row, out = seen.product[seen.codes[i]], pull[seen.codes[i]]
            left = seen.rewards[i] - row[0]  # becomes the residual f of this row
            spread[:] = 0.0  # becomes its row of A P^-1
            for a in range(rank):
                weight = row[a + 1]
                left -= weight * mean[a]
                for b in range(rank):
                    spread[b] += weight * covariance[a, b]
            residual += left * left
            out[0] += left
            for a in range(rank):
                residual += spread[a] * row[a + 1]
                out[a + 1] += left * mean[a] - spread[a]
    for a in range(rank):
        weights[a + 1, 0] = weights[0, a + 1]
    return Expectations(likelihood, residual, weights, pull)


def warm() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    first, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    seen = Histories(np.ones((1, 2)), first, np.ones(1), first, one, 1.0)
    posterior(seen, 0, np.empty(1), np.empty((1, 1)))
    likelihoods(seen)
    expectations(seen)
