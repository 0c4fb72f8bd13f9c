"""Compiled loops over users for the expectation of a prior; the maths is told in expectation.py.

Row i of the logs has X [m, L] in row `codes[i]` of `product` (m, k + 1), and the reward `rewards[i]`; user n owns the rows from `starts[n]` up to
`stops[n]`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from newcomer.array_loops import FAST, Floats, Ints


@njit(cache=True, error_model="numpy", fastmath=FAST)
def posterior(product: Floats, codes: Ints, rewards: Floats, noise: float, mean: Floats, root: Floats) -> float:
    """Of one user's rows: write mu (k,) and the inverse Cholesky factor (k, k) of P; the log-likelihood."""
    length, rank = len(codes), product.shape[1] - 1
    square = 0.0
    root[:] = 0.0
    mean[:] = 0.0
    for i in range(length):
        row = product[codes[i]]
        error = rewards[i] - row[0]
        square += error * error
        for a in range(rank):
            weight = row[a + 1]
            mean[a] += weight * error
            for b in range(a + 1):
                root[a, b] += weight * row[b + 1]
    for a in range(rank):
        mean[a] /= noise
        for b in range(a + 1):
            root[a, b] /= noise
        root[a, a] += 1.0
    logdet = 0.0
    for a in range(rank):  # Cholesky, in place
        for b in range(a + 1):
            total = root[a, b]
            for p in range(b):
                total -= root[a, p] * root[b, p]
            root[a, b] = np.sqrt(total) if a == b else total / root[b, b]
        logdet += 2.0 * np.log(root[a, a])
    for a in range(rank):  # its inverse, in place: row a from the rows above it
        scale = 1.0 / root[a, a]
        for b in range(a):
            total = 0.0
            for p in range(b, a):
                total += root[a, p] * root[p, b]
            root[a, b] = -total * scale
        root[a, a] = scale
    explained = 0.0
    for a in range(rank - 1, -1, -1):  # |root c|^2 and, from the last entry, root c
        total = 0.0
        for b in range(a + 1):
            total += root[a, b] * mean[b]
        mean[a] = total
        explained += total * total
    for a in range(rank):
        total = 0.0
        for b in range(a, rank):
            total += root[b, a] * mean[b]
        mean[a] = total
    fit = square / noise - explained
    value: float = -0.5 * (length * np.log(2.0 * np.pi * noise) + logdet + fit)
    return value


@njit(cache=True, error_model="numpy", fastmath=FAST)
def likelihoods(
    product: Floats,
    codes: Ints,
    rewards: Floats,
    starts: Ints,
    stops: Ints,
    noise: float,
    means: Floats,
    values: Floats,
) -> None:
    """Posterior means (n, k) and log-likelihoods (n,)."""
    rank = product.shape[1] - 1
    root = np.empty((rank, rank))
    for n in range(len(starts)):
        rows = slice(starts[n], stops[n])
        values[n] = posterior(product, codes[rows], rewards[rows], noise, means[n], root)


@njit(cache=True, error_model="numpy", fastmath=FAST)
def expectations(
    product: Floats,
    codes: Ints,
    rewards: Floats,
    starts: Ints,
    stops: Ints,
    noise: float,
    weights: Floats,
    pull: Floats,
) -> tuple[float, float]:
    """Add [f, f mu^T - A P^-1] of every row to row `codes[i]` of `pull`, and sums over rows of E[(1, z)(1, z)^T] to `weights`.

    Returns the log-likelihood and the expected sum of squared noise.
    """
    rank = product.shape[1] - 1
    root, covariance, mean, spread = np.empty((rank, rank)), np.empty((rank, rank)), np.empty(rank), np.empty(rank)
    likelihood = residual = 0.0
    for n in range(len(starts)):
        rows = slice(starts[n], stops[n])
        likelihood += posterior(product, codes[rows], rewards[rows], noise, mean, root)
        covariance[:] = 0.0
        for p in range(rank):
            for a in range(p + 1):
                weight = root[p, a]
                for b in range(p + 1):
                    covariance[a, b] += weight * root[p, b]
        length = float(stops[n] - starts[n])
        weights[0, 0] += length
        for a in range(rank):
            weights[0, a + 1] += length * mean[a]
            for b in range(rank):
                weights[a + 1, b + 1] += length * (covariance[a, b] + mean[a] * mean[b])
        for i in range(starts[n], stops[n]):
            row, out = product[codes[i]], pull[codes[i]]
            left = rewards[i] - row[0]
            for a in range(rank):
                left -= row[a + 1] * mean[a]
            spread[:] = 0.0
            for a in range(rank):
                weight = row[a + 1]
                for b in range(rank):
                    spread[b] += weight * covariance[a, b]
            residual += left * left
            out[0] += left
            for a in range(rank):
                residual += spread[a] * row[a + 1]
                out[a + 1] += left * mean[a] - spread[a]
    for a in range(rank):
        weights[a + 1, 0] = weights[0, a + 1]
    return likelihood, residual
