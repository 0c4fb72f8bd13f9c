"""The posterior of a user: what rewards say of latent coordinates z, a priori N(0, I).

Rewards r_s = x_s^T z + noise of variance v_s make z Gaussian with

    precision   P = I + sum x_s x_s^T / v_s,      mean   P^-1 sum x_s r_s / v_s,

which is the ridge system (linear/ridge.py) of the rows x_s / sqrt(v_s) and rewards r_s / sqrt(v_s): the posterior of z
is the system's mean and V^-1. Policies keep it up to date reward by reward. The same posterior of whole histories at
once, as a fit and `Model.transform` need it, is `em.likelihood_loops.posterior`; tests/linear holds both to each other.
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge


def condition_posterior(system: Ridge, users: Ints, rows: Floats, rewards: Floats, variance: Floats) -> None:
    """Take rewards (m,) = rows (m, k) . z + noise of this variance (m,) into the posteriors of `users` (m,).

    >>> system = ridge.start_ridge(1, 1)
    >>> condition_posterior(system, np.array([0]), np.array([[1.0]]), np.array([3.0]), np.array([0.5]))
    >>> system.mean.round(6).tolist()
    [[2.0]]
    """
    root = np.sqrt(variance)
    ridge.learn_ridge(system, np.ascontiguousarray(rows / root[:, None]), rewards / root, users)


def predict_by_posterior(system: Ridge, users: Ints, rows: Floats) -> tuple[Floats, Floats]:
    """What the posteriors of `users` (m,) expect of rows (m, k): mean (m,) and variance (m,) of rows . z."""
    x, length = np.ascontiguousarray(rows), np.empty(len(users))
    scoring_loops.score_lengths(system.factor, users, x, length)
    return np.einsum("mq,mq->m", x, system.mean[users]), length**2
