"""SOLD straight from the paper, one d x d matrix per user: slow, obvious, and what the fast code must match."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


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
    """(beta_n1 beta_n2^T, D_n1, D_n2, beta_n1, beta_n2) of one user, not symmetrised; mu None or 0: pseudo-inverse."""
    halves = [(X[i::2], r[i::2]) for i in (0, 1)]
    (b1, D1), (b2, D2) = (half_ridge(x, y, mu) if mu else half_pseudo(x, y) for x, y in halves)
    return np.outer(b1, b2), D1, D2, b1, b2


def sym(A):
    return (A + A.T) / 2


def literal(histories, mu):
    """Algorithm 1, steps 4 to 6: D1^-1 M D2^-1 of the symmetrised M, symmetrised again, lengths pooled."""
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    M, D1, D2 = (np.mean([t[i] for t in terms], axis=0) for i in range(3))
    return sym(np.linalg.inv(D1) @ sym(M) @ np.linalg.inv(D2))


def pooled(histories, mu):
    """The same with nothing symmetrised before the end."""
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    X, D1, D2 = (np.mean([t[i] for t in terms], axis=0) for i in range(3))
    return sym(np.linalg.inv(D1) @ X @ np.linalg.inv(D2))


def entrywise(histories, mu):
    """One-hot features: S_ab = (X_ab + X_ba) / (J_ab + J_ba), J_ab the mean over users of D1_aa D2_bb.

    With a share e = 1/sqrt(N) of the product of the means, as in `stratified`. The diagonal is as observed.
    """
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    X, D1, D2 = (np.mean([t[i] for t in terms], axis=0) for i in range(3))
    d, e = len(X), 1 / np.sqrt(len(terms))
    S = np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            joint = np.mean([t[1][a, a] * t[2][b, b] + t[1][b, b] * t[2][a, a] for t in terms])
            apart = D1[a, a] * D2[b, b] + D1[b, b] * D2[a, a]
            S[a, b] = (1 + e) * (X[a, b] + X[b, a]) / (joint + e * apart)
    return S


def stratified(histories, mu):
    """The solution S of sum_s w_s D1_s S D2_s + e D1 S D2 = (1 + e) X, e = 1/sqrt(N), by one d^2 x d^2 system.

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
    return sym(np.linalg.solve(system, (1 + e) * M.ravel()).reshape(M.shape))


def mean(histories, mu):
    """E[beta]: the sum of all half estimates, corrected by the sum of all D."""
    terms = [user_terms(X, r, mu) for X, r in histories if len(r) >= 2]
    return np.linalg.solve(sum(t[1] + t[2] for t in terms), sum(t[3] + t[4] for t in terms))


def completed(matrix, rank, bounds):
    """The diagonal within bounds that is nearest to a positive matrix of this rank, and the least squared distance.

    For a matrix A = L L^T the best entry of the diagonal is min(A_aa, bound_a), so that A is charged for what it has
    above the bounds, and for its error off the diagonal.
    """
    size = len(matrix)
    off = ~np.eye(size, dtype=bool)

    def charge(flat):
        A = flat.reshape(size, rank) @ flat.reshape(size, rank).T
        error = np.where(off, A - matrix, np.diag(np.maximum(A.diagonal() - bounds, 0.0)))
        return (error**2).sum(), (4 * error @ flat.reshape(size, rank)).ravel()

    starts = np.random.default_rng(0).standard_normal((20, size * rank))
    fits = [minimize(charge, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15}) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    L = best.x.reshape(size, rank)
    return np.minimum((L**2).sum(axis=1), bounds), best.fun


def off_by(matrix, rank):
    """The squared distance of a symmetric matrix from the nearest positive one of this rank."""
    values = np.linalg.eigvalsh(matrix)
    return (values**2).sum() - (np.maximum(values[-rank:], 0.0) ** 2).sum()
