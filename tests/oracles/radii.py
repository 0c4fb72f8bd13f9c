"""The radii from the list of users' matrices, formula by formula."""

from __future__ import annotations

import numpy as np


def norm(A):
    return np.linalg.norm(A, 2)


def hoeffding(d, N, L, delta):
    """Matrix Hoeffding (Tropp 2012, Theorem 1.3) for M_n - E M of norm at most 2L, two-sided."""
    return L * np.sqrt(32 * np.log(2 * d / delta) / N)


def bernstein(Ms, L, delta):
    """The proposition on M_N with the mean of M^2, 2d in the logarithm, and half of delta for each inequality."""
    N, d = len(Ms), len(Ms[0])
    log = np.log(2 * d / (delta / 2))
    second = norm(np.mean([M @ M for M in Ms], axis=0)) + L**2 * np.sqrt(8 * np.log(d / (delta / 2)) / N)
    return np.sqrt(2 * second * log / N) + 4 * L * log / (3 * N)


def martingale(groups, L, delta):
    """Matrix martingale Bernstein (Wang and Ramdas 2024) with step and centre constant in a group, from earlier groups.

    groups: lists of M_n in the order of the groups. psi(g)/g^2 is bounded by its value at the largest g.
    """
    d = len(next(M for g in groups for M in g))
    N = sum(map(len, groups))
    log = np.log(2 * d / delta)
    past, steps, centres = [], [], []
    for group in groups:
        if len(past) < 2:
            centre, variance = np.zeros((d, d)), 0.25
        else:
            centre = np.mean(past, axis=0)
            spread = np.linalg.eigvalsh(np.mean([M @ M for M in past], axis=0) - centre @ centre)[-1] / (2 * L) ** 2
            variance = min(0.25, max(spread, 1 / len(past) ** 2))
        steps.append(np.sqrt(2 / (N * variance)))
        centres.append(centre)
        past += group
    used = [s for s, g in zip(steps, groups, strict=True) if g]
    c = min(np.sqrt(log), 0.5 / max(used))
    top = c * max(used)
    psi = (-np.log(1 - top) - top) / top**2
    total, weight, mean = np.zeros((d, d)), 0.0, np.zeros((d, d))
    for group, step, centre in zip(groups, steps, centres, strict=True):
        for M in group:
            X, Xhat = (M + L * np.eye(d)) / (2 * L), (centre + L * np.eye(d)) / (2 * L)
            total += psi * (c * step) ** 2 * (X - Xhat) @ (X - Xhat)
            weight += c * step
            mean += c * step * M
    plain = np.mean([M for g in groups for M in g], axis=0)
    return 2 * L * (log + np.linalg.eigvalsh(total)[-1]) / weight + norm(mean / weight - plain)


def theorem(k, gap, B, R, dM, dD):
    """Theorem 1, Frobenius."""
    if B * dD >= 1:
        return np.inf
    first = B**3 * (2 - B * dD) / (1 - B * dD) ** 2 * (R**2 + dM) * dD
    return 2 * np.sqrt(2 * k) / gap * (first + (B / (1 - B * dD)) ** 2 * dM)
