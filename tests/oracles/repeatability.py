"""The posterior over shares that come again, enumerated share by share from the joint law of all rewards.

Rewards are given action by action: a list of sequences, one for each action, in the order of the meetings. What is
told is the law of the repeats given the first meeting of each action, whose own law does not depend on the share.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad
from scipy.special import betaln
from scipy.stats import multivariate_normal, norm


def clicks(sequences, rates, share):
    """Log-likelihood of the repeats of 0/1 rewards: the user's own rate of an action is Beta with mean p, and variance
    share p (1 - p); rewards are Bernoulli draws with it.
    """
    total = 0.0
    for rewards, p in zip(sequences, rates, strict=True):
        ones, zeros = sum(rewards), len(rewards) - sum(rewards)
        if share == 0.0:
            whole = ones * np.log(p) + zeros * np.log(1 - p)
        else:
            a, b = p * (1 - share) / share, (1 - p) * (1 - share) / share
            whole = betaln(a + ones, b + zeros) - betaln(a, b)
        total += whole - np.log(p if rewards[0] else 1 - p)
    return total


def numbers(sequences, means, variances, share):
    """Log-likelihood of the repeats of rewards p + e + noise: e ~ N(0, share v), noise ~ N(0, (1 - share) v)."""
    total = 0.0
    for rewards, p, v in zip(sequences, means, variances, strict=True):
        n = len(rewards)
        covariance = v * (share * np.ones((n, n)) + (1 - share) * np.eye(n))
        total += multivariate_normal.logpdf(rewards, np.full(n, p), covariance) - norm.logpdf(rewards[0], p, np.sqrt(v))
    return total


def stars(sequences, means, variances, step, share):
    """The same for rewards that are the nearest of a scale with this step: an integral over e for each action.

    The variance v is that of the rounded rewards, of which step^2 / 12 is the rounding.
    """
    total = 0.0
    for rewards, p, v in zip(sequences, means, variances, strict=True):
        v = v - step**2 / 12
        stays, single = np.sqrt(share * v), np.sqrt((1 - share) * v)

        def together(e, rewards=rewards, p=p, single=single, stays=stays):
            ends = (np.array(rewards)[:, None] + 0.5 * step * np.array([-1, 1]) - p - e * stays) / single
            return np.prod(np.diff(norm.cdf(ends), axis=1)) * norm.pdf(e)

        first = np.diff(norm.cdf((rewards[0] + 0.5 * step * np.array([-1, 1]) - p) / np.sqrt(v)))[0]
        total += np.log(quad(together, -9, 9, points=[0.0], limit=400)[0]) - np.log(first)
    return total


def posterior(start, logs):
    """Weights, each share by itself."""
    raw = [weight * np.exp(log - max(logs)) for weight, log in zip(start, logs, strict=True)]
    return [one / sum(raw) for one in raw]


def pooled(start, logs, *, prior_users, rounds):
    """w <- (prior_users W + sum_u w l_u / sum_s w l_u) / (prior_users + m)."""
    w = list(start)
    for _ in range(rounds):
        theirs = [posterior(w, log) for log in logs]
        w = [
            (prior_users * first + sum(one[s] for one in theirs)) / (prior_users + len(logs))
            for s, first in enumerate(start)
        ]
    return w
