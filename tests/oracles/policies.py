"""Slow, obvious versions of the linear policies, from their definitions, for one user."""

from __future__ import annotations

import numpy as np

from newcomer.linear import ridge


def practical_width(dim, horizon):
    """alpha = 0.33 sqrt(dim log(1 + 10 T / dim)), the appendix on experiments."""
    return 0.33 * np.sqrt(dim * np.log(1 + 10 * horizon / dim))


def theoretical_width(dim, horizon, bound=1.0, delta=0.05, constant=1.0):
    """alpha_2 of the ProBALL-UCB theorem with mu = 1: R + C R sqrt(dim log(T / delta))."""
    return bound + constant * bound * np.sqrt(dim * np.log(horizon / delta))


def system(history, dim):
    """V = I + sum phi phi^T and b = sum phi r over a history of (phi, r)."""
    v, b = np.eye(dim), np.zeros(dim)
    for phi, reward in history:
        v += np.outer(phi, phi)
        b += reward * phi
    return v, b


def optimistic(v, b, actions, alpha):
    """phi^T V^-1 b + alpha sqrt(phi^T V^-1 phi) for each action (K, d): LinUCB."""
    inverse = np.linalg.inv(v)
    return np.array([phi @ inverse @ b + alpha * np.sqrt(phi @ inverse @ phi) for phi in actions])


def kappas(history, basis):
    """kappa_1 = 0, kappa_t = sqrt(|C^T (U^T V U)^-1 C|_2), C = U^T sum_{s<t} phi phi^T, t = 1 .. len + 1 (notes 4)."""
    out = [0.0]
    for t in range(1, len(history) + 1):
        v, _ = system(history[:t], len(basis))
        cross = basis.T @ (v - np.eye(len(basis)))
        out.append(np.sqrt(np.linalg.norm(cross.T @ np.linalg.inv(basis.T @ v @ basis) @ cross, 2)))
    return np.array(out)


def stays(history, basis, radius, tau, tau_prime):
    """The switch of Algorithm ProBALL-UCB, line 4, for the round after `history`."""
    dim, rank = basis.shape
    t = len(history) + 1
    bend = np.sqrt(rank * np.sum(kappas(history, basis) ** 2) / t) if tau_prime else 0.0
    return radius * tau * np.sqrt(t) + radius * tau_prime * bend <= dim


def proball_scores(history, basis, actions, radius, tau, tau_prime, alphas):
    """Lines 5 to 9 of Algorithm ProBALL-UCB: optimism for U^T phi while the switch holds, else for phi."""
    v, b = system(history, len(basis))
    if stays(history, basis, radius, tau, tau_prime):
        return optimistic(basis.T @ v @ basis, basis.T @ b, actions @ basis, alphas[0])
    return optimistic(v, b, actions, alphas[1])


def inverse(systems):
    """V^-1 = W^T W (n, d, d) of the systems that a state keeps as packed triangles W."""
    w = ridge.unpack_ridge(systems.factor, systems.dim)
    return np.swapaxes(w, 1, 2) @ w


def self_normalised_width(v, noise, bound, delta):
    """Width (n,) of the ellipsoid that holds beta at all times with probability 1 - delta, if |beta| <= bound.

    Abbasi-Yadkori, Pal and Szepesvari (2011), Theorem 2, for `noise`-subgaussian noise, V (n, d, d) that starts at I:
    noise sqrt(log det V + 2 log(1 / delta)) + bound.
    """
    return noise * np.sqrt(np.linalg.slogdet(v)[1] + 2.0 * np.log(1.0 / delta)) + bound
