"""A slow, obvious version of ProBALL's exit by containment (policies/exits.py), for one user."""

from __future__ import annotations

import numpy as np

from tests.oracles.policies import optimistic, system


def farthest(centre, v, alpha, point, starts=12, steps=2000):
    """max |beta - point| over |beta - centre|_V <= alpha: from many starts, each step goes to the best point of the
    ellipsoid for the linear function at the last one, which never goes down."""
    rng, inverse = np.random.default_rng(0), np.linalg.inv(v)
    best = 0.0
    for _ in range(starts):
        beta = centre + 1e-3 * rng.standard_normal(len(centre))
        for _ in range(steps):
            slope = beta - point
            new = centre + alpha * inverse @ slope / np.sqrt(slope @ inverse @ slope)
            if np.linalg.norm(new - beta) < 1e-9 * np.linalg.norm(slope):
                break
            beta = new
        best = max(best, np.linalg.norm(beta - point))
    return best


def ball(history, basis, radius, bound, alphas):
    """Centre beta_1 and rho = sqrt((alpha_1 + R Delta kappa)^2 / lambda_min(V_U) + (R Delta)^2)."""
    v, b = system(history, len(basis))
    small, cross = basis.T @ v @ basis, basis.T @ (v - np.eye(len(basis)))
    kappa = np.sqrt(np.linalg.norm(cross.T @ np.linalg.inv(small) @ cross, 2))
    width = alphas[0] + bound * radius * kappa
    rho = np.sqrt(width**2 / np.linalg.eigvalsh(small)[0] + (bound * radius) ** 2)
    return basis @ np.linalg.solve(small, basis.T @ b), rho


def left_after(history, basis, radius, bound, alphas):
    """The first t after which the ball contains the ellipsoid; None if there is none."""
    for t in range(1, len(history) + 1):
        v, b = system(history[:t], len(basis))
        centre, rho = ball(history[:t], basis, radius, bound, alphas)
        if farthest(np.linalg.solve(v, b), v, alphas[1], centre) <= rho:
            return t
    return None


def scores(history, basis, actions, left, alphas):
    """Optimism in the subspace until it is left, then in all d dimensions."""
    v, b = system(history, len(basis))
    if left is None or len(history) < left:
        return optimistic(basis.T @ v @ basis, basis.T @ b, actions @ basis, alphas[0])
    return optimistic(v, b, actions, alphas[1])
