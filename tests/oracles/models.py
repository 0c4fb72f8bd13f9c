"""Naive latent-model baselines, one user, one round at a time, straight from the definitions (Hong et al. 2020, 2022).

Everything is recomputed from the whole history at every call: slow, obvious, and independent of the package.
Notation: models m_s (rows of `centers`), features phi, rewards r, noise sd sigma, horizon T.
"""

from __future__ import annotations

import numpy as np


def elimination(centers, history, *, horizon, noise_sd, epsilon=0.0):
    """mUCB / mmUCB replayed: (N, G, C) after a history of (phi, r), from the definition.

    C = {s: G_s <= sigma sqrt(6 N_s log T)}; B = argmax over s in C of phi . m_s; N_B += 1;
    G_B += phi . m_B - epsilon - r. C empty: the s of least G_s / (sigma sqrt(N_s)).
    """
    counts, gaps = [0] * len(centers), [0.0] * len(centers)
    for phi, reward in history:
        alive = _alive(counts, gaps, horizon, noise_sd)
        best = max(alive, key=lambda s: (float(np.dot(phi, centers[s])), -s))
        counts[best] += 1
        gaps[best] += float(np.dot(phi, centers[best])) - epsilon - reward
    return counts, gaps, _alive(counts, gaps, horizon, noise_sd)


def elimination_index(centers, alive, actions):
    """The index of each action: max over s in C of phi_a . m_s."""
    return np.array([max(float(np.dot(phi, centers[s])) for s in alive) for phi in actions])


def _alive(counts, gaps, horizon, noise_sd):
    alive = [
        s
        for s, (count, gap) in enumerate(zip(counts, gaps, strict=True))
        if gap <= noise_sd * np.sqrt(6 * count * np.log(horizon))
    ]
    if alive:
        return alive
    ratios = [gap / (noise_sd * np.sqrt(count)) for count, gap in zip(counts, gaps, strict=True)]
    return [int(np.argmin(ratios))]


def model_weights(centers, weights, history, *, noise_sd):
    """mTS: p_s proportional to w_s prod exp(-(r - phi . m_s)^2 / (2 sigma^2))."""
    logs = np.log(np.asarray(weights, dtype=float))
    for phi, reward in history:
        for s, center in enumerate(centers):
            logs[s] -= (reward - np.dot(phi, center)) ** 2 / (2 * noise_sd**2)
    return _normalise(logs)


def model_law(centers, posterior, actions):
    """mTS: P(a) = sum of p_s over the models whose best action is a."""
    law = np.zeros(len(actions))
    for s, center in enumerate(centers):
        law[int(np.argmax([np.dot(phi, center) for phi in actions]))] += posterior[s]
    return law


def gaussian_posterior(mean, covariance, history, *, noise_sd):
    """beta | history for beta ~ N(mean, covariance) and r = phi . beta + N(0, sigma^2), by the normal equations."""
    if not history:
        return np.array(mean, dtype=float), np.array(covariance, dtype=float)
    phi = np.array([row for row, _ in history])
    rewards = np.array([reward for _, reward in history])
    prior_precision = np.linalg.inv(covariance)
    posterior = np.linalg.inv(prior_precision + phi.T @ phi / noise_sd**2)
    return posterior @ (prior_precision @ mean + phi.T @ rewards / noise_sd**2), posterior


def mixture_weights(centers, covariances, weights, history, *, noise_sd):
    """mmTS / MixTS: p_s proportional to w_s times the density of all rewards at once under component s."""
    logs = np.log(np.asarray(weights, dtype=float))
    if history:
        phi = np.array([row for row, _ in history])
        rewards = np.array([reward for _, reward in history])
        for s, (center, covariance) in enumerate(zip(centers, covariances, strict=True)):
            spread = phi @ covariance @ phi.T + noise_sd**2 * np.eye(len(phi))
            error = rewards - phi @ center
            logs[s] -= (error @ np.linalg.solve(spread, error) + np.linalg.slogdet(spread)[1]) / 2
    return _normalise(logs)


def mixture_law(centers, covariances, weights, history, actions, *, noise_sd, draws, seed):
    """P(a) of mmTS / MixTS by drawing (s, beta) from the posterior `draws` times and playing argmax phi . beta."""
    rng = np.random.default_rng(seed)
    posterior = mixture_weights(centers, covariances, weights, history, noise_sd=noise_sd)
    law = np.zeros(len(actions))
    for s, size in enumerate(rng.multinomial(draws, posterior)):
        mean, spread = gaussian_posterior(centers[s], covariances[s], history, noise_sd=noise_sd)
        betas = rng.multivariate_normal(mean, spread, size=size)
        law += np.bincount(np.argmax(betas @ np.asarray(actions).T, axis=1), minlength=len(actions))
    return law / draws


def _normalise(logs):
    raw = np.exp(logs - logs.max())
    return raw / raw.sum()
