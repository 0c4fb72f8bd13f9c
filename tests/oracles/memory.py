"""The posterior with memory, by conditioning one dense Gaussian on all that was seen (paper notes, section 12)."""

from __future__ import annotations

import numpy as np


def joint(events, *, factor, mean):
    """Covariance (t + K, t + K) parts of rewards: `events` are (key, features (d,), share_variance, noise_variance).

    Reward i is phi_i^T (m + L z) + e_key + noise, z ~ N(0, I), e_key ~ N(0, share_variance) once for each key: its
    mean, the covariance of what two events have in common, and the noise of each.
    """
    phi = np.array([event[1] for event in events])
    low = phi @ factor
    same = np.array([[a[0] == b[0] for b in events] for a in events])
    lasting = np.array([event[2] for event in events])
    shared = low @ low.T + same * np.sqrt(np.outer(lasting, lasting))
    return phi @ mean, shared, np.array([event[3] for event in events])


def posterior(seen, rewards, candidates, *, factor, mean):
    """Mean (K,) and covariance (K, K) of what candidates are worth (without noise) given the rewards of `seen`."""
    means, shared, noise = joint([*seen, *candidates], factor=factor, mean=mean)
    t = len(seen)
    if t == 0:
        return means, shared
    gain = np.linalg.solve(shared[:t, :t] + np.diag(noise[:t]), shared[:t, t:])
    return means[t:] + gain.T @ (rewards - means[:t]), shared[t:, t:] - shared[t:, :t] @ gain


def log_likelihood(seen, rewards, *, factor, mean):
    """Log density of the rewards."""
    means, shared, noise = joint(seen, factor=factor, mean=mean)
    covariance, error = shared + np.diag(noise), rewards - means
    sign, size = np.linalg.slogdet(covariance)
    assert sign > 0
    return -0.5 * (size + error @ np.linalg.solve(covariance, error) + len(error) * np.log(2 * np.pi))
