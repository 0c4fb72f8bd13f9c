"""Naive oracle of attributes in the prior: one dense Gaussian, covariances written out, nothing clever.

A user with attributes x (p,) has beta = m + B x + L z with z ~ N(0, I), B = L Gamma + F; rewards are X beta + noise of
variance v (one for each row). So rewards given x are normal with mean X (m + B x) and covariance X L L^T X^T + diag(v).
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats, Ints


def log_likelihood(X: Floats, r: Floats, v: Floats, m: Floats, B: Floats, L: Floats, x: Floats) -> float:
    """log N(r; X (m + B x), X L L^T X^T + diag(v)) of one user."""
    error = r - X @ (m + B @ x)
    covariance = X @ L @ L.T @ X.T + np.diag(v)
    _, logdet = np.linalg.slogdet(covariance)
    return float(-0.5 * (len(r) * np.log(2 * np.pi) + logdet + error @ np.linalg.solve(covariance, error)))


def dense_log_likelihood(X: Floats, r: Floats, S: Floats, mean: Floats, L: Floats) -> float:
    """log N(r; mean, X L L^T X^T + S) of one user, whatever the covariance S (h, h) of what is left."""
    covariance = X @ L @ L.T @ X.T + S
    _, logdet = np.linalg.slogdet(covariance)
    error = r - mean
    return float(-0.5 * (len(r) * np.log(2 * np.pi) + logdet + error @ np.linalg.solve(covariance, error)))


def residual_covariance(actions: Ints, v: Floats, share: float) -> Floats:
    """Var(e + noise) of rows of these actions: v_a on the diagonal, share v_a between rows of one action."""
    same = actions[:, None] == actions[None, :]
    return np.where(same, share * v[actions][:, None], 0.0) + np.diag((1.0 - share) * v[actions])


def posterior(X: Floats, r: Floats, v: Floats, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of beta ~ N(mean, covariance) after rewards r = X beta + noise, by the joint covariance."""
    gain = covariance @ X.T @ np.linalg.inv(X @ covariance @ X.T + np.diag(v))
    return mean + gain @ (r - X @ mean), covariance - gain @ X @ covariance


def prior(m: Floats, B: Floats, L: Floats, x: Floats, known: np.ndarray, C: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of beta given the `known` entries of x ~ N(0, C): condition the joint normal of (x, beta)."""
    joint = np.block([[C, C @ B.T], [B @ C, B @ C @ B.T + L @ L.T]])
    p = len(x)
    seen, rest = np.flatnonzero(known), np.arange(p, p + len(m))
    if not len(seen):
        return m, joint[np.ix_(rest, rest)]
    through = joint[np.ix_(rest, seen)] @ np.linalg.inv(joint[np.ix_(seen, seen)])
    return m + through @ x[seen], joint[np.ix_(rest, rest)] - through @ joint[np.ix_(seen, rest)]
