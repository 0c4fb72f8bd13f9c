"""What rewards are learned as: themselves, or their logarithm, for play counts, money and seconds.

Such rewards are never negative and have a long tail: a few of them make up most of the sum of squares, and a fit sees
little else. log(1 + r) brings them to one scale. What is expected on it, taken back by exp(.) - 1, is a *typical*
reward (a median, were the logarithms normal), not the mean. Rewards are always reported in their own units.

The logistic link: from log-odds to probabilities, averaged over log-odds that are not known.

With eta ~ N(c, v) the probability of a click is E[sigma(eta)], sigma(x) = 1 / (1 + exp(-x)). It has no closed form; a
Gauss-Hermite rule of `ORDER` points along eta is exact to 1e-6 up to a standard deviation of 2 and to 1e-4 up to 4.
The usual sigma(c / sqrt(1 + pi v / 8)) is not used: for rare clicks it is wrong by a fifth.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from newcomer.arrays import Floats

Transform = Literal["log1p"]
TRANSFORMS: tuple[Transform, ...] = ("log1p",)
LEAST = -1.0  # rewards have to be above it for a logarithm
NEEDED = "log1p needs rewards above -1: leave it out, or leave these rewards out"


def transform_rewards(rewards: Any, transform: Transform | None) -> Floats:
    """Rewards on the scale that is learned on; NaN stays NaN.

    >>> transform_rewards([0.0, 99.0], "log1p").round(2).tolist()
    [0.0, 4.61]
    """
    given = np.asarray(rewards, dtype=np.float64)
    return given if transform is None else np.asarray(np.log1p(given))


def untransform_rewards(values: Floats, transform: Transform | None) -> Floats:
    """Values of that scale in the units of the rewards; what is expected becomes typical.

    >>> untransform_rewards(transform_rewards([0.0, 99.0], "log1p"), "log1p").round(9).tolist()
    [0.0, 99.0]
    """
    return values if transform is None else np.asarray(np.expm1(values))


ORDER = 31
NOISE = np.pi**2 / 3  # variance of the standard logistic distribution: the residual on the scale of log-odds
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(ORDER)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
CHUNK = 1 << 18  # numbers times ORDER that are worked on at a time


def sigmoid(odds: Floats) -> Floats:
    """sigma(x), without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(odds))
    return np.asarray(np.where(odds >= 0, 1.0, small) / (1.0 + small))


def softplus(odds: Floats) -> Floats:
    """log(1 + exp(x)) = -log(1 - sigma(x)), without overflow."""
    return np.asarray(np.maximum(odds, 0.0) + np.log1p(np.exp(-np.abs(odds))))


def logit(probability: Floats) -> Floats:
    """The log-odds of a probability."""
    return np.asarray(np.log(probability) - np.log1p(-probability))


def sigmoid_moments(level: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """E[sigma], E[sigma'] and E[sigma^2] of log-odds N(level, variance), each of their common shape.

    E[sigma'] is the slope: the covariance of sigma(eta) with anything normal is that of eta with it times the slope
    (Stein). sigma' = sigma - sigma^2, so the second moment comes for nothing.

    >>> p, slope, square = sigmoid_moments(np.array([0.0, -4.0]), np.array([4.0, 1.0]))
    >>> p.round(4).tolist(), slope.round(4).tolist()
    ([0.5, 0.0281], [0.1514, 0.0263])
    """
    shape = np.broadcast_shapes(np.shape(level), np.shape(variance))
    levels = np.broadcast_to(np.asarray(level, dtype=np.float64), shape).ravel()
    spread = np.sqrt(np.broadcast_to(np.asarray(variance, dtype=np.float64), shape).ravel())
    mean, square = np.empty((2, levels.size))
    for first in range(0, levels.size, CHUNK):
        some = slice(first, first + CHUNK)
        at = sigmoid(levels[some, None] + spread[some, None] * _POINTS)
        mean[some] = (at * _WEIGHTS).sum(axis=1)  # not a product with a vector, whose sums depend on the rows beside
        square[some] = (at * at * _WEIGHTS).sum(axis=1)
    return mean.reshape(shape), (mean - square).reshape(shape), square.reshape(shape)


def expected_sigmoid(level: Floats, variance: Floats) -> Floats:
    """E[sigma(eta)], eta ~ N(level, variance)."""
    return sigmoid_moments(level, variance)[0]
