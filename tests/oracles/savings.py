"""A slow, obvious version of ProBALL's data-driven exit (policies/exits.py), for one user."""

from __future__ import annotations

import numpy as np

from tests.oracles.policies import optimistic, system


def saving(history, basis, phi, alphas):
    """alpha_2 |phi|_{V^-1} - alpha_1 |U^T phi|_{V_U^-1} with V of the rounds before."""
    v, _ = system(history, len(basis))
    low = basis.T @ phi
    return alphas[1] * np.sqrt(phi @ np.linalg.inv(v) @ phi) - alphas[0] * np.sqrt(
        low @ np.linalg.inv(basis.T @ v @ basis) @ low
    )


def left_after(history, basis, radius, bound, alphas):
    """The first t with R Delta t > sum_{s<=t} saving_s; None if there is none."""
    total = 0.0
    for t, (phi, _) in enumerate(history, start=1):
        total += saving(history[: t - 1], basis, phi, alphas)
        if bound * radius * t > total:
            return t
    return None


def scores(history, basis, actions, radius, bound, alphas):
    """Optimism in the subspace until it is left, then in all d dimensions."""
    v, b = system(history, len(basis))
    if left_after(history, basis, radius, bound, alphas) is None:
        return optimistic(basis.T @ v @ basis, basis.T @ b, actions @ basis, alphas[0])
    return optimistic(v, b, actions, alphas[1])
