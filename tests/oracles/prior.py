"""Slow, obvious versions of the population's equations: dense matrices, one user at a time."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal


def likelihood(population, parts):
    """sum_n log N(r_n; X_n m, X_n L L^T X_n^T + s2 I): the marginal likelihood, by SciPy's density."""
    total = 0.0
    for X, r in parts:
        covariance = X @ population.factor @ population.factor.T @ X.T + population.noise_variance * np.eye(len(r))
        total += multivariate_normal(X @ population.mean, covariance).logpdf(r)
    return total


def posterior(population, X, r):
    """Mean and covariance of z given one user's rewards, by Bayes' rule for joint Gaussians."""
    A = X @ population.factor
    inverse = np.linalg.inv(A @ A.T + population.noise_variance * np.eye(len(r)))
    mean = A.T @ inverse @ (r - X @ population.mean)
    return mean, np.eye(A.shape[1]) - A.T @ inverse @ A


def expectation(population, parts):
    """EM's E-step: sum_n of X^T r E[z~]^T, of the operator kron(X^T X, E[z~ z~^T]), of H E[z~ z~^T], z~ = (1, z)."""
    d, size = len(population.mean), population.factor.shape[1] + 1
    cross, operator, weights = np.zeros((d, size)), np.zeros((d * size, d * size)), np.zeros((size, size))
    for X, r in parts:
        mean, covariance = posterior(population, X, r)
        first = np.concatenate([[1.0], mean])
        second = np.outer(first, first)
        second[1:, 1:] += covariance
        cross += np.outer(X.T @ r, first)
        operator += np.kron(X.T @ X, second)
        weights += len(r) * second
    return cross, operator, weights


def residual(population, parts):
    """sum_n E |r - X (m + L z)|^2 under the posterior of z."""
    total = 0.0
    for X, r in parts:
        mean, covariance = posterior(population, X, r)
        A = X @ population.factor
        total += np.sum((r - X @ population.mean - A @ mean) ** 2) + np.trace(A @ covariance @ A.T)
    return total


def em_step(population, parts, penalty):
    """One exact EM iteration (E-step at `population`, M-step for m and L, then for s2): returns W (d, k + 1) and s2."""
    cross, operator, _ = expectation(population, parts)
    d, size = cross.shape
    operator = operator + population.noise_variance * np.kron(np.eye(d), np.diag(penalty))
    W = np.linalg.solve(operator, cross.ravel()).reshape(d, size)
    total, rows = 0.0, 0
    for X, r in parts:
        mean, covariance = posterior(population, X, r)
        A = X @ W[:, 1:]
        total += np.sum((r - X @ W[:, 0] - A @ mean) ** 2) + np.trace(A @ covariance @ A.T)
        rows += len(r)
    return W, total / rows


def all_pairs(parts):
    """mean_n sum_{i != j} r_i r_j phi_i phi_j^T / (H (H - 1)), users of one row left out, by two loops over rows."""
    terms = []
    for X, r in parts:
        H = len(r)
        if H > 1:
            pairs = [r[i] * r[j] * np.outer(X[i], X[j]) for i in range(H) for j in range(H) if i != j]
            terms.append(sum(pairs) / (H * (H - 1)))
    return np.mean(terms, axis=0)
