"""Compiled: the mean and the variance of log-odds after clicks, along one direction.

    density of x  ~  N(x; level, variance) sigma(x)^a (1 - sigma(x))^b,      a clicks, b without, not always whole.

Its logarithm is concave. Newton's steps find the mode; a Gauss-Hermite rule of `POINTS` points, centred there and as
wide as the curvature says, gives the moments to 1e-6 whatever the number of clicks.
"""

from __future__ import annotations

from math import exp, log1p, sqrt

import numpy as np

from newcomer.array_loops import compiled
from newcomer.arrays import Floats

NODES, WEIGHTS = (np.ascontiguousarray(part) for part in np.polynomial.hermite_e.hermegauss(21))
LOG_WEIGHTS = np.log(WEIGHTS)
STEPS = 30  # of Newton, which needs about five


@compiled
def logistic_probability(odds: float) -> float:
    """sigma(x)."""
    if odds >= 0.0:
        return 1.0 / (1.0 + exp(-odds))
    small = exp(odds)
    return small / (1.0 + small)


@compiled
def _logistic_log_density(x: float, level: float, variance: float, clicks: float, others: float) -> float:
    """log of the density, up to a constant."""
    soft = max(x, 0.0) + log1p(exp(-abs(x)))
    return clicks * x - (clicks + others) * soft - 0.5 * (x - level) ** 2 / variance


@compiled
def logistic_posterior(level: float, variance: float, clicks: float, others: float, out: Floats) -> None:
    """Write the mean and the variance (2,) of log-odds that were N(level, variance) before these clicks."""
    rows, x = clicks + others, level
    for _ in range(STEPS):
        p = logistic_probability(x)
        bend = rows * p * (1.0 - p) + 1.0 / variance
        move = (clicks - rows * p - (x - level) / variance) / bend
        x += min(max(move, -2.0), 2.0)
        if abs(move) < 1e-9 * (1.0 + abs(x)):
            break
    p = logistic_probability(x)
    scale = 1.0 / sqrt(rows * p * (1.0 - p) + 1.0 / variance)
    highest = _logistic_log_density(x, level, variance, clicks, others)
    total = first = second = 0.0
    for q in range(NODES.size):
        node = NODES[q]
        value = _logistic_log_density(x + scale * node, level, variance, clicks, others) - highest
        weight = exp(value + 0.5 * node * node + LOG_WEIGHTS[q])
        total += weight
        first += weight * node
        second += weight * node * node
    mean = first / total
    out[0] = x + scale * mean
    out[1] = scale * scale * (second / total - mean * mean)


def warm_logistic_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    logistic_probability(0.0)
    _logistic_log_density(0.0, 0.0, 1.0, 1.0, 0.0)
    logistic_posterior(0.0, 1.0, 1.0, 0.0, np.empty(2))
