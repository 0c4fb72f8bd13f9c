"""Comparisons that may be watched: intervals that hold at every time at once, and a test of shares that does, too.

An interval of 95% is made for one look. Looked at after every hundred users, and believed when it first leaves zero
out, it is wrong far more often. A confidence sequence covers at all times together (the asymptotic one of Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas 2021, theorem 2.2, which is Robbins' normal mixture with an estimated variance):

    P(at some t: |mean_t - mu| > r_t) <= alpha
    r_t = s_t sqrt(2 (t rho^2 + 1) / (t^2 rho^2) log(sqrt(t rho^2 + 1) / alpha))

Two arms, 1 and 0, whose shares of new users change with the version v of the shares, are compared within versions, so
that a change of shares in a good season is not taken for a lift:

    lift = sum_v h_v (mean_1v - mean_0v) / t,    h_v = n_1v n_0v / (n_1v + n_0v),    t = sum_v h_v

t times the lift is, up to the estimated means, the sum over users of (A - p)(Y - m), with A whether the user is in arm
1 and p its share: a martingale whose time is t, the effective number of users. Its variance is sum_v h_v^2 (s_1^2 /
n_1v + s_0^2 / n_0v). In a small arm of rare or skewed rewards mean and variance err together (nobody clicked yet: no
variance), so each s^2 is the larger of the arm's own and that of all arms, both within versions and arms; below
`FEWEST` users of an arm nothing is said. tests/test_confidence_sequence.py measures what that is worth.

Sums are arrays (..., V, A, 3): number, sum and sum of squares of one value a user, by version and arm.
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats

ALPHA = 0.05
TUNED = 500.0  # effective users at which the interval is tightest; a tenth or ten times as many cost 27% or 7%
FEWEST = 50  # users of an arm before anything is said
CONCENTRATION = 100.0  # of the Dirichlet prior around the shares


def confidence_sequence_radius(t: Floats, variance: Floats, *, alpha: float = ALPHA, tuned: float = TUNED) -> Floats:
    """Half the width of the interval of a mean of t values of this variance, whenever it is looked at.

    >>> float(confidence_sequence_radius(np.array(500.0), np.array(1.0)).round(3)), 1.96 / 500**0.5 // 0.001 / 1000
    (0.136, 0.087)
    """
    rho2 = (-2.0 * np.log(alpha) + np.log1p(-2.0 * np.log(alpha))) / tuned
    x = t * rho2 + 1.0
    return np.asarray(np.sqrt(variance * 2.0 * x / (t * t * rho2) * np.log(np.sqrt(x) / alpha)))


def confidence_sequence_variances(sums: Floats) -> Floats:
    """The variance of each arm's users (..., A), within versions: the larger of its own and that of all arms."""
    count, total, squares = np.moveaxis(np.asarray(sums, dtype=np.float64), -1, 0)
    within = np.maximum(squares - total**2 / np.maximum(count, 1.0), 0.0)  # (..., V, A)
    degrees = np.maximum(count - 1.0, 0.0)
    own = within.sum(-2) / np.maximum(degrees.sum(-2), 1.0)
    pooled = within.sum((-2, -1)) / np.maximum(degrees.sum((-2, -1)), 1.0)
    return np.asarray(np.maximum(own, pooled[..., None]))


def confidence_sequence_mean(
    sums: Floats, arm: int, *, alpha: float = ALPHA, tuned: float = TUNED
) -> tuple[Floats, Floats]:
    """The mean of an arm and its radius; the radius is infinite where nothing can be said."""
    count, total = (np.asarray(sums)[..., arm, i].sum(-1) for i in (0, 1))
    t = np.maximum(count, 1.0)
    found = confidence_sequence_radius(t, confidence_sequence_variances(sums)[..., arm], alpha=alpha, tuned=tuned)
    value = np.where(count > 0, total / t, np.nan)
    return value, np.where((count >= FEWEST) & (found > 0), found, np.inf)


def confidence_sequence_difference(
    sums: Floats, arm: int, against: int, *, alpha: float = ALPHA, tuned: float = TUNED
) -> tuple[Floats, Floats]:
    """The lift of one arm over another and its radius; see the module."""
    sums, spread = np.asarray(sums, dtype=np.float64), confidence_sequence_variances(sums)
    n1, n0 = sums[..., arm, 0], sums[..., against, 0]  # (..., V)
    both = (n1 > 0) & (n0 > 0)
    n1, n0 = np.where(both, n1, 1.0), np.where(both, n0, 1.0)
    h = np.where(both, n1 * n0 / (n1 + n0), 0.0)
    t = h.sum(-1)
    means = sums[..., arm, 1] / n1 - sums[..., against, 1] / n0
    error2 = (h**2 * (spread[..., None, arm] / n1 + spread[..., None, against] / n0)).sum(-1)
    some = np.where(t > 0, t, 1.0)
    value = np.where(t > 0, (h * means).sum(-1) / some, np.nan)
    found = confidence_sequence_radius(some, error2 / some, alpha=alpha, tuned=tuned)
    users = np.minimum(np.where(both, n1, 0.0).sum(-1), np.where(both, n0, 0.0).sum(-1))
    return value, np.where((users >= FEWEST) & (found > 0), found, np.inf)


def confidence_sequence_sample_ratio(counts: Floats, shares: Floats) -> float:
    """How well the users of arms (V, A) fit the shares (V, A) that were set: a p-value that may be looked at any time.

    1 / E with E the product over versions of Dirichlet-multinomial over multinomial likelihood, a martingale where the
    shares are as set (Lindon and Malek 2022): P(at some time p <= a) <= a.

    >>> confidence_sequence_sample_ratio(np.array([[900, 100]]), np.array([[0.9, 0.1]]))
    1.0
    >>> confidence_sequence_sample_ratio(np.array([[850, 150]]), np.array([[0.9, 0.1]])) < 1e-3
    True
    """
    from scipy.special import gammaln

    log_e = 0.0
    for count, share in zip(np.asarray(counts, float), np.asarray(shares, float), strict=True):
        if (count[share <= 0] > 0).any():
            return 0.0
        n, p = count[share > 0], share[share > 0]
        prior = CONCENTRATION * p
        log_e += float(gammaln(prior.sum()) - gammaln(prior.sum() + n.sum()))
        log_e += float((gammaln(prior + n) - gammaln(prior) - n * np.log(p)).sum())
    return float(min(1.0, np.exp(-min(log_e, 700.0))))
