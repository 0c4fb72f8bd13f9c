"""Slow, obvious versions of the population's equations: dense matrices, one user at a time."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal


def rest(population, actions):
    """Offsets (H,) and covariance S (H, H) of what the directions leave of a user's rewards, entry by entry."""
    variances, levels = population.variances, population.levels
    S = np.zeros((len(actions), len(actions)))
    for i, a in enumerate(actions):
        for j, b in enumerate(actions):
            if a == b:
                S[i, j] = variances[a] if i == j else population.share * variances[a]
    return levels[actions], S


def named(part):
    """Features, rewards and actions of a history; all rows are of action 0 where it names none."""
    X, r = part[:2]
    return X, r, part[2] if len(part) > 2 else np.zeros(len(r), dtype=np.int64)


def likelihood(population, parts):
    """sum_n log N(r_n; X_n m + o, X_n L L^T X_n^T + S_n): the marginal likelihood, by SciPy's density."""
    total = 0.0
    for X, r, actions in map(named, parts):
        levels, S = rest(population, actions)
        covariance = X @ population.factor @ population.factor.T @ X.T + S
        total += multivariate_normal(X @ population.mean + levels, covariance).logpdf(r)
    return total


def posterior(population, X, r, actions=None):
    """Mean and covariance of z given one user's rewards, by Bayes' rule for joint Gaussians."""
    X, r, actions = named((X, r)) if actions is None else (X, r, actions)
    levels, S = rest(population, actions)
    A = X @ population.factor
    inverse = np.linalg.inv(A @ A.T + S)
    mean = A.T @ inverse @ (r - X @ population.mean - levels)
    return mean, np.eye(A.shape[1]) - A.T @ inverse @ A


def gain(population, X, r, actions):
    """How much better each action's mean reward is predicted from the other actions, by fitting without it."""
    total = 0.0
    units = population.variances if population.units is None else population.units
    for action in np.unique(actions):
        out = actions == action
        error = (r - X @ population.mean - population.levels[actions])[out].mean()
        mean, _ = posterior(population, X[~out], r[~out], actions[~out])
        left = error - X[out].mean(axis=0) @ population.factor @ mean
        total += (error**2 - left**2) / units[action]
    return total


def expectation(population, parts):
    """EM's E-step for rows whose residuals are independent, weighted by 1 / v: sum_n of X^T (r - o) E[z~]^T, of the
    operator kron(X^T X, E[z~ z~^T]), of H E[z~ z~^T], z~ = (1, z)."""
    d, size = len(population.mean), population.factor.shape[1] + 1
    cross, operator, weights = np.zeros((d, size)), np.zeros((d * size, d * size)), np.zeros((size, size))
    for X, r, actions in map(named, parts):
        mean, covariance = posterior(population, X, r, actions)
        inverse = 1.0 / population.variances[actions]
        first = np.concatenate([[1.0], mean])
        second = np.outer(first, first)
        second[1:, 1:] += covariance
        cross += np.outer(X.T @ (inverse * (r - population.levels[actions])), first)
        operator += np.kron(X.T @ (inverse[:, None] * X), second)
        weights += inverse.sum() * second
    return cross, operator, weights


def residual(population, parts):
    """sum_n E (r - X (m + L z) - o)^2 under the posterior of z, by action, for independent residuals."""
    total = np.zeros(len(population.variances))
    for X, r, actions in map(named, parts):
        mean, covariance = posterior(population, X, r, actions)
        A = X @ population.factor
        errors = (r - X @ population.mean - population.levels[actions] - A @ mean) ** 2
        np.add.at(total, actions, errors + np.diag(A @ covariance @ A.T))
    return total


def em_step(population, parts, penalty):
    """One exact EM iteration with one variance (E-step at `population`, M-step for m and L, then for s2): W, s2."""
    cross, operator, _ = expectation(population, parts)
    d, size = cross.shape
    operator = operator + np.kron(np.eye(d), np.diag(penalty))
    W = np.linalg.solve(operator, cross.ravel()).reshape(d, size)
    total, rows = 0.0, 0
    for X, r in parts:
        mean, covariance = posterior(population, X, r)
        A = X @ W[:, 1:]
        total += np.sum((r - X @ W[:, 0] - A @ mean) ** 2) + np.trace(A @ covariance @ A.T)
        rows += len(r)
    return W, total / rows


def all_pairs(parts):
    """mean_n of r_i r_j phi_i phi_j^T over pairs of rows of different actions (without actions: of different rows),
    users without such pairs left out, by two loops over rows."""
    terms = []
    for X, r, *names in parts:
        actions = names[0] if names else np.arange(len(r))
        H = len(r)
        pairs = [r[i] * r[j] * np.outer(X[i], X[j]) for i in range(H) for j in range(H) if actions[i] != actions[j]]
        if pairs:
            terms.append(sum(pairs) / len(pairs))
    return np.mean(terms, axis=0) if terms else np.zeros((X.shape[1], X.shape[1]))


def line_of_variances(rows, totals, variances, scatter):
    """Least squares of log v on 1 and log of total variances, each action by its share of the rows and all together as
    many as have most of them, errors of variance `scatter`; the slope is N(1/2, 1) beforehand: one row more."""
    share = rows / rows.sum()
    x = np.log(totals) - share @ np.log(totals)
    root = np.sqrt(share / (share @ share) / scatter)
    design = np.vstack([np.column_stack([root, root * x]), [0.0, 1.0]])
    level, slope = np.linalg.lstsq(design, np.append(root * np.log(variances), 0.5), rcond=None)[0]
    return np.exp(level + np.clip(slope, 0.0, 1.0) * x)
