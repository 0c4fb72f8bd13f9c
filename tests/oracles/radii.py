"""The radii from the list of users' matrices, formula by formula."""

from __future__ import annotations

import numpy as np


def norm(A):
    return np.linalg.norm(A, 2)


def hoeffding(d, N, L, delta):
    """Matrix Hoeffding (Tropp 2012, Theorem 1.3) for M_n - E M of norm at most 2L, two-sided."""
    return L * np.sqrt(32 * np.log(2 * d / delta) / N)


def dilation(X):
    """[[0, X], [X^T, 0]]: symmetric, with the singular values of X and their negatives as eigenvalues."""
    zero = np.zeros_like(X)
    return np.block([[zero, X], [X.T, zero]])


def bernstein(Ms, L, delta, dim):
    """The proposition on M_N with the mean of M^2, and half of delta for each inequality.

    Ms are symmetric; `dim` in the logarithm is 2d, for the two sides of d x d matrices or one side of dilations.
    """
    N = len(Ms)
    log = np.log(dim / (delta / 2))
    second = norm(np.mean([M @ M for M in Ms], axis=0)) + L**2 * np.sqrt(8 * np.log(len(Ms[0]) / (delta / 2)) / N)
    return np.sqrt(2 * second * log / N) + 4 * L * log / (3 * N)


def predictable(groups, L, c):
    """Steps and centres of the groups (lists of symmetric M_n) from the groups before; steps are at most 1/2."""
    d, N = len(next(M for g in groups for M in g)), sum(map(len, groups))
    past, found = [], []
    for group in groups:
        centre, variance = np.zeros((d, d)) if not past else np.mean(past, axis=0), 0.25
        if len(past) >= 2:
            spread = np.linalg.eigvalsh(np.mean([M @ M for M in past], axis=0) - centre @ centre)[-1] / (2 * L) ** 2
            variance = min(0.25, max(spread, 1 / len(past) ** 2))
        found.append((min(c * np.sqrt(2 / (N * variance)), 0.5), centre))
        past += group
    return found


def martingale(groups, L, delta, dim):
    """Matrix martingale Bernstein (Wang and Ramdas 2024), c next to sqrt(log(dim / delta)) among the powers of 1.25."""
    d = len(next(M for g in groups for M in g))
    log = np.log(dim / delta)
    c = min((1.25**i for i in range(1, 9)), key=lambda factor: abs(factor - np.sqrt(log)))
    total, weight, mean = np.zeros((d, d)), 0.0, np.zeros((d, d))
    for group, (g, centre) in zip(groups, predictable(groups, L, c), strict=True):
        for M in group:
            X, Xhat = (M + L * np.eye(d)) / (2 * L), (centre + L * np.eye(d)) / (2 * L)
            total += (-np.log(1 - g) - g) * (X - Xhat) @ (X - Xhat)
            weight += g
            mean += g * M
    plain = np.mean([M for g in groups for M in g], axis=0)
    return 2 * L * (log + np.linalg.eigvalsh(total)[-1]) / weight + norm(mean / weight - plain)


def printed(Ms, R, H, mu, delta):
    """The proposition on M_N exactly as printed, which holds with probability 1 - delta/2."""
    N, d = len(Ms), len(Ms[0])
    log, L = np.log(4 * d / delta), R**2 * (2 + H / (2 * mu))
    first = np.sqrt(2 * norm(np.sum([M @ M for M in Ms], axis=0)) * log / N)
    return first + 2 * L * (2 * log / N) ** (3 / 4) + 4 * L * log / (3 * N)


def theorem(k, gap, B, R, dM, dD):
    """Theorem 1, Frobenius."""
    if B * dD >= 1:
        return np.inf
    first = B**3 * (2 - B * dD) / (1 - B * dD) ** 2 * (R**2 + dM) * dD
    return 2 * np.sqrt(2 * k) / gap * (first + (B / (1 - B * dD)) ** 2 * dM)
