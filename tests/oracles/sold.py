"""SOLD straight from the paper, one d x d matrix per user: slow, obvious, and what the fast code must match."""

from __future__ import annotations

import numpy as np


def half_ridge(X, r, mu):
    """Algorithm 1, step 3, and the definition of D in "Additional Notation"."""
    d = X.shape[1]
    V = mu * np.eye(d) + X.T @ X
    return np.linalg.inv(V) @ (X.T @ r), np.eye(d) - mu * np.linalg.inv(V)


def half_pseudo(X, r):
    """The pseudo-inverse version in "Additional Algorithms": V^+ b = X^+ r, and D = X^+ X projects onto the rows of X.

    From X, not from V = X^T X: whether a squared singular value is zero cannot be told below 1e-8.
    """
    inverse = np.linalg.pinv(X, rcond=max(X.shape) * np.finfo(float).eps)
    return inverse @ r, inverse @ X


def user_terms(X, r, mu):
    """(M_n, D_n1, D_n2, beta_n1, beta_n2) of one user; mu None or 0: pseudo-inverse."""
    halves = [(X[i::2], r[i::2]) for i in (0, 1)]
    (b1, D1), (b2, D2) = (half_ridge(x, y, mu) if mu else half_pseudo(x, y) for x, y in halves)
    return (np.outer(b1, b2) + np.outer(b2, b1)) / 2, D1, D2, b1, b2


def literal(histories, mu):
    """Algorithm 1, steps 4 to 6: D1^-1 M D2^-1, symmetrised, lengths pooled."""
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    M, D1, D2 = (np.mean([t[i] for t in terms], axis=0) for i in range(3))
    S = np.linalg.inv(D1) @ M @ np.linalg.inv(D2)
    return (S + S.T) / 2


def stratified(histories, mu):
    """The solution S of sum_s w_s D1_s S D2_s + e D1 S D2 = (1 + e) M, e = 1/sqrt(N), by one d^2 x d^2 system.

    Strata are runs of history lengths, each with so many users that users x lambda_A >= 10.
    """
    terms = sorted(((len(r), user_terms(X, r, mu)) for X, r in histories if len(r) >= 2), key=lambda pair: pair[0])
    M, D1, D2 = (np.mean([t[i] for _, t in terms], axis=0) for i in range(3))
    weakest = min(np.linalg.eigvalsh(D)[0] for D in (D1, D2))
    runs, e = [[]], 1 / np.sqrt(len(terms))
    for length in sorted({h for h, _ in terms}):
        left = [t for h, t in terms if h >= length]
        if len(runs[-1]) * weakest >= 10 and len(left) * weakest >= 10:
            runs.append([])
        runs[-1] += [t for h, t in terms if h == length]
    system = e * np.kron(D1, D2)  # row-major vec(D1 S D2) = (D1 kron D2^T) vec(S)
    for run in runs:
        system += len(run) / len(terms) * np.kron(*(np.mean([t[i] for t in run], axis=0) for i in (1, 2)))
    S = np.linalg.solve(system, (1 + e) * M.ravel()).reshape(M.shape)
    return (S + S.T) / 2


def mean(histories, mu):
    """E[beta]: the sum of all half estimates, corrected by the sum of all D."""
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    return np.linalg.solve(sum(t[1] + t[2] for t in terms), sum(t[3] + t[4] for t in terms))
