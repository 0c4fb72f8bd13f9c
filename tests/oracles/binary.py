"""Naive integrals of the binary outcome: P(r = 1 | z) = sigma(phi^T (m + L z) + o), z ~ N(0, I_k), for k = 1, 2.

Everything is a sum over a fine square grid of z, whose weights are the standard normal density: slow and obvious.
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats

EDGE, POINTS = 8.0, {1: 4001, 2: 401}  # the grid reaches from -EDGE to EDGE with so many points along each axis


def grid(rank: int) -> tuple[Floats, Floats]:
    """Points (P, k) and their weights (P,), which sum to one."""
    axis = np.linspace(-EDGE, EDGE, POINTS[rank])
    points = np.stack(np.meshgrid(*[axis] * rank, indexing="ij"), axis=-1).reshape(-1, rank)
    weights = np.exp(-0.5 * (points**2).sum(axis=1))
    return points, weights / weights.sum()


def probabilities(levels: Floats, low: Floats, points: Floats) -> Floats:
    """sigma(c_i + l_i^T z) (P, rows) of rows with levels c (rows,) and features l (rows, k)."""
    return np.asarray(1.0 / (1.0 + np.exp(-(levels + points @ low.T))))


def log_likelihood(levels: Floats, low: Floats, rewards: Floats, powers: Floats | None = None) -> float:
    """log of the integral of prod_i p_i^(w_i r_i) (1 - p_i)^(w_i (1 - r_i)) over z; all w_i are 1 by default."""
    points, weights = grid(low.shape[1])
    return float(np.log(weights @ np.exp(_each(levels, low, rewards, points, powers))))


def posterior(levels: Floats, low: Floats, rewards: Floats, powers: Floats | None = None) -> tuple[Floats, Floats]:
    """Mean (k,) and covariance (k, k) of z given the rewards of one user."""
    points, weights = grid(low.shape[1])
    density = weights * np.exp(_each(levels, low, rewards, points, powers))
    density /= density.sum()
    mean = density @ points
    away = points - mean
    return np.asarray(mean), np.asarray((away * density[:, None]).T @ away)


def predicted(levels: Floats, low: Floats, rewards: Floats, level: float, new: Floats) -> float:
    """P(next reward = 1 | rewards) of an action with this level and features (k,)."""
    points, weights = grid(low.shape[1])
    density = weights * np.exp(_each(levels, low, rewards, points, None))
    return float(density @ probabilities(np.array([level]), new[None], points)[:, 0] / density.sum())


def _each(levels: Floats, low: Floats, rewards: Floats, points: Floats, powers: Floats | None) -> Floats:
    """log prod_i p(r_i | z) (P,)."""
    if not len(rewards):
        return np.zeros(len(points))
    p = probabilities(levels, low, points)
    logs = np.where(rewards > 0.5, np.log(p), np.log1p(-p))
    return np.asarray((logs * (1.0 if powers is None else powers)).sum(axis=1))
