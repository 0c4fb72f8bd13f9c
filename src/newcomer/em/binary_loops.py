"""Compiled loops over users for the marginal likelihood of clicks; the mathematics is in em/binary_likelihood.py.

A user whose rows have the log-odds c_i + l_i^T z has, at node z_q of weight 1 / Q, the log-likelihood

    A_q = sum_i w_i [ y_i (c_i + l_i^T z_q) - log(1 + exp(c_i + l_i^T z_q)) ],

the first part linear in z_q, so that it is added up before the nodes are looked at; the second is looked up in a table
with a row for each action. Posterior weights of nodes are exp(A_q) over their sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import fast
from newcomer.arrays import Floats, Ints
from newcomer.logistic_loops import logistic_posterior, logistic_probability


class ClickRows(NamedTuple):
    """The rows of some users: row i has the log-odds of row codes[i] of `odds`; user n owns starts[n] to stops[n]."""

    odds: Floats  # (C, k + 1), level and features of the distinct actions, or of all rows, in the coordinates of z
    partition: Floats  # (C, Q), log(1 + exp(log-odds)) at each node
    codes: Ints  # (rows,)
    rewards: Floats  # (rows,), from 0 to 1
    weights: Floats  # (rows,), less than 1 for rows of an action that the user met several times
    starts: Ints  # (users,)
    stops: Ints  # (users,)
    nodes: Floats  # (Q, k)


@fast
def binary_log_weights(seen: ClickRows, first: int, at: Floats, highest: Floats) -> None:
    """Write A_q less its largest value into `at` (m, Q), and that value into `highest` (m,), of m users from `first`.

    Python takes the exponential of all of them at once, which is several times as fast as one after another here.
    """
    size, rank = seen.nodes.shape
    linear = np.empty(rank + 1)
    for m in range(at.shape[0]):
        out, n = at[m], first + m
        linear[:] = 0.0
        out[:] = 0.0
        for i in range(seen.starts[n], seen.stops[n]):
            code, weight = seen.codes[i], seen.weights[i]
            part = seen.partition[code]
            for q in range(size):
                out[q] -= weight * part[q]
            pull = weight * seen.rewards[i]
            if pull != 0.0:
                for a in range(rank + 1):
                    linear[a] += pull * seen.odds[code, a]
        largest = -np.inf
        for q in range(size):
            value = out[q] + linear[0]
            for a in range(rank):
                value += linear[a + 1] * seen.nodes[q, a]
            out[q] = value
            largest = max(largest, value)
        for q in range(size):
            out[q] -= largest
        highest[m] = largest


@fast
def binary_expectations(
    seen: ClickRows, first: int, at: Floats, highest: Floats, shown: Floats, clicked: Floats
) -> float:
    """Add EM's expected counts of m users, whose exp(A_q - highest) are in `at` (m, Q); returns the log-likelihood.

    `shown` (C, Q) is how often each action (or row) was shown at each node, `clicked` (C, k + 1) the sum over rows of y
    E[(1, z)].
    """
    size, rank = seen.nodes.shape
    mean = np.empty(rank)
    likelihood = 0.0
    for m in range(at.shape[0]):
        here, n = at[m], first + m
        likelihood += _normalise(here, highest[m])
        mean[:] = 0.0
        for q in range(size):
            for a in range(rank):
                mean[a] += here[q] * seen.nodes[q, a]
        for i in range(seen.starts[n], seen.stops[n]):
            code, weight = seen.codes[i], seen.weights[i]
            out = shown[code]
            for q in range(size):
                out[q] += weight * here[q]
            pull = weight * seen.rewards[i]
            if pull != 0.0:
                clicked[code, 0] += pull
                for a in range(rank):
                    clicked[code, a + 1] += pull * mean[a]
    return likelihood


SWEEPS = 3  # visits of each row


@fast
def binary_coordinates(
    odds: Floats,
    codes: Ints,
    shifts: Floats,
    rewards: Floats,
    weights: Floats,
    starts: Ints,
    stops: Ints,
    means: Floats,
    covariances: Floats,
    sites: Floats,
) -> None:
    """Of each user: posterior mean (n, k) and covariance (n, k, k) of z, by expectation propagation.

    `means` and `covariances` come with the prior of z. Row i has the log-odds of row codes[i] of `odds`, and `shifts`
    (rows,) beyond its level. Every row is a site of a precision and a shift along its features, `sites` (rows, 2), zero
    at first. A visit takes it out, matches the mean and the variance of its log-odds to those after the reward
    (`logistic_loops.tilted`), and puts it back: rank one, O(k^2). A row that z says nothing of is a site too, of
    sigma' and r - sigma at its level.
    """
    rank = odds.shape[1] - 1
    image, moments = np.empty(rank), np.empty(2)
    for n in range(starts.size):
        mean, covariance = means[n], covariances[n]
        for _ in range(SWEEPS):
            for i in range(starts[n], stops[n]):
                row, site = odds[codes[i]], sites[i]
                level = row[0] + shifts[i]
                variance = personal = 0.0
                for a in range(rank):
                    image[a] = 0.0
                    for b in range(rank):
                        image[a] += covariance[a, b] * row[b + 1]
                    variance += image[a] * row[a + 1]
                    personal += mean[a] * row[a + 1]
                if not variance > 1e-12:
                    p = logistic_probability(level + personal)
                    site[0] = weights[i] * p * (1.0 - p)
                    site[1] = weights[i] * (rewards[i] - p) + site[0] * personal
                    continue
                less = max(1.0 - site[0] * variance, 1e-6)
                cavity, at = variance / less, (personal - variance * site[1]) / less
                logistic_posterior(
                    level + at, cavity, weights[i] * rewards[i], weights[i] * (1.0 - rewards[i]), moments
                )
                precision = max(1.0 / moments[1] - 1.0 / cavity, 0.0)
                shift = (moments[0] - level) / moments[1] - at / cavity
                more, pull = precision - site[0], shift - site[1]
                site[0], site[1] = precision, shift
                # Covariance and mean after V += more f f^T, b += pull f: the image C f says both.
                total = 1.0 + more * variance
                for a in range(rank):
                    mean[a] += image[a] * (pull - more * personal) / total
                    for b in range(rank):
                        covariance[a, b] -= more / total * image[a] * image[b]


@fast
def add_binary_sites(
    images: Floats, codes: Ints, sites: Floats, starts: Ints, stops: Ints, a: Floats, b: Floats
) -> None:
    """Add the sites (rows, 2) of each user up along directions: F^T diag(precision) F into `a` (n, q, q), F^T shift
    into `b` (n, q); row i has row codes[i] of `images` (C, q)."""
    size = images.shape[1]
    for n in range(starts.size):
        for i in range(starts[n], stops[n]):
            row = images[codes[i]]
            for p in range(size):
                if row[p] != 0.0:
                    b[n, p] += sites[i, 1] * row[p]
                    weight = sites[i, 0] * row[p]
                    for q in range(size):
                        a[n, p, q] += weight * row[q]


@fast
def _normalise(at: Floats, highest: float) -> float:
    """Let weights (Q,) of nodes sum to one; returns the log of the average that they had."""
    total = 0.0
    for q in range(at.size):
        total += at[q]
    for q in range(at.size):
        at[q] /= total
    value: float = highest + np.log(total / at.size)
    return value


def warm_binary_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    first, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    row, each = np.ones((1, 1)), np.ones(1)
    seen = ClickRows(np.ones((1, 2)), row, first, each, each.copy(), first, one, row.copy())
    binary_log_weights(seen, 0, row.copy(), each.copy())
    binary_expectations(seen, 0, row.copy(), each, np.zeros((1, 1)), np.zeros((1, 2)))
    whole, site = np.ones((1, 1, 1)), np.zeros((1, 2))
    binary_coordinates(seen.odds, first, each * 0.0, each, each, first, one, row.copy(), whole, site)
    add_binary_sites(row, first, site, first, one, whole, row.copy())
    _normalise(each.copy(), 0.0)
