"""Naive versions of what the checks compute: loops over users, rows and permutations, one equation each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Holm (1979): reject the smallest while p_(i) <= level / (m - i + 1)."""
    rejected = [False] * len(p_values)
    for rank, i in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[i] > level / (len(p_values) - rank):
            break
        rejected[i] = True
    return rejected


def centred(values: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Each row less the mean of its stratum."""
    return np.array([row - values[strata == own].mean(axis=0) for row, own in zip(values, strata, strict=True)])


def crossed(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C = sum_u x_u y_u^T and V = sum_u x_u^2 y_u^2, entry by entry."""
    products, squares = np.zeros((x.shape[1], y.shape[1])), np.zeros((x.shape[1], y.shape[1]))
    for one, other in zip(x, y, strict=True):
        for i, a in enumerate(one):
            for j, b in enumerate(other):
                products[i, j] += a * b
                squares[i, j] += a**2 * b**2
    return products, squares


def expected_draw(table: np.ndarray, weights: np.ndarray, before: Sequence[int]) -> np.ndarray:
    """E[z of the next action | those before it are gone]: the weighted mean over actions that are left."""
    left = [a for a in range(len(weights)) if a not in before]
    total = sum(weights[a] for a in left)
    return sum(weights[a] / total * table[a] for a in left)


def log_likelihood(weights: np.ndarray, histories: Sequence[Sequence[int]]) -> float:
    """Plackett and Luce: each action is drawn by weight from those that are left."""
    total = 0.0
    for history in histories:
        left = float(weights.sum())
        for action in history:
            total += np.log(weights[action] / left)
            left -= weights[action]
    return total


def half_sums(user: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the first and the second half of each user's rows, in order; the first half is the shorter one."""
    first, second = [], []
    for one in np.unique(user):
        rows = values[user == one]
        first.append(rows[: len(rows) // 2].sum(axis=0))
        second.append(rows[len(rows) // 2 :].sum(axis=0))
    return np.array(first), np.array(second)


def repeated(user: np.ndarray, action: np.ndarray, residual: np.ndarray) -> tuple[float, float]:
    """Mean product of residuals over pairs of rows of a user: same action, and different actions."""
    same, other = [], []
    for i in range(len(user)):
        for j in range(i):
            if user[i] == user[j]:
                (same if action[i] == action[j] else other).append(residual[i] * residual[j])
    return float(np.mean(same)), float(np.mean(other))
