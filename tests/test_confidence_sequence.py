"""Intervals for watchers: the formulas against slow ones, coverage under continuous looking, and the test of shares.

The cases were fixed before they were run: 1,000 services of each kind of reward, 90% treated and 5% control of the
users, looked at after every hundred users, from 100 to 20,000. Where control is spread 1.5 times as much as treated,
rare or long-tailed rewards come to 94% within chance (93.8% to 98.9%), and are tested for 92%.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import multinomial

from newcomer.confidence_sequence import (
    ALPHA,
    FEWEST,
    TUNED,
    confidence_sequence_difference,
    confidence_sequence_mean,
    confidence_sequence_radius,
    confidence_sequence_sample_ratio,
    confidence_sequence_variances,
)

SERVICES, LOOKS, AT_ONCE = 1_000, 200, 100
TREATED, CONTROL = 0.90, 0.05
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
REWARDS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda g, s: g.standard_normal(s, dtype=np.float32), 0.0),
    "exponential": (lambda g, s: g.standard_exponential(s, dtype=np.float32), 1.0),
    "lognormal": (lambda g, s: np.exp(g.standard_normal(s, dtype=np.float32)), np.exp(0.5)),
    "t with 3 degrees": (lambda g, s: g.standard_t(3, s), 0.0),
    "clicks of 2%": (lambda g, s: g.random(s, dtype=np.float32) < 0.02, 0.02),
    "clicks of 0.5%": (lambda g, s: g.random(s, dtype=np.float32) < 0.005, 0.005),
    "purchases": (
        lambda g, s: (g.random(s, dtype=np.float32) < 0.05) * np.exp(g.standard_normal(s, dtype=np.float32)),
        0.05 * np.exp(0.5),
    ),
}


def naive_radius(t: float, variance: float) -> float:
    """Theorem 2.2 of Waudby-Smith et al. (2021), with rho of its equation for a chosen time."""
    rho = np.sqrt((-2 * np.log(ALPHA) + np.log(-2 * np.log(ALPHA) + 1)) / TUNED)
    inner = 2 * (t * rho**2 + 1) / (t**2 * rho**2) * np.log(np.sqrt(t * rho**2 + 1) / ALPHA)
    return float(np.sqrt(variance) * np.sqrt(inner))


def naive_difference(values: list[dict[str, np.ndarray]]) -> tuple[float, float]:
    """Versions of {arm: rewards by user}: the lift of a over b and its radius, one sum after another."""
    total = t = error2 = 0.0

    def spread(arms: set[str]) -> float:
        parts = [one[arm] for one in values for arm in arms if len(one[arm])]
        squares = sum(((part - part.mean()) ** 2).sum() for part in parts)
        return float(squares / sum(len(part) - 1 for part in parts))

    for one in values:
        a, b = one["a"], one["b"]
        if len(a) and len(b):
            h = 1 / (1 / len(a) + 1 / len(b))
            total, t = total + h * (a.mean() - b.mean()), t + h
            everybody = spread(set(one))
            s2a, s2b = max(spread({"a"}), everybody), max(spread({"b"}), everybody)
            error2 += h**2 * (s2a / len(a) + s2b / len(b))
    return total / t, naive_radius(t, error2 / t)


def sums_of(values: list[dict[str, np.ndarray]]) -> np.ndarray:
    return np.array([[[len(one[a]), one[a].sum(), (one[a] ** 2).sum()] for a in sorted(one)] for one in values])


def test_formulas_agree_with_slow_ones() -> None:
    rng = np.random.default_rng(0)
    values = [
        {"a": rng.exponential(size=400), "b": rng.exponential(size=60) - 0.3, "c": 2 * rng.normal(size=9)},
        {"a": 1 + rng.exponential(size=80), "b": np.zeros(0), "c": np.zeros(0)},
        {"a": 5 + rng.exponential(size=30), "b": 5 + rng.normal(size=300), "c": rng.normal(size=1)},
    ]
    value, around = confidence_sequence_difference(sums_of(values), 0, 1)
    assert (float(value), float(around)) == pytest.approx(naive_difference(values), rel=1e-9)
    assert float(confidence_sequence_mean(sums_of(values), 1)[0]) == pytest.approx(
        np.concatenate([one["b"] for one in values]).mean()
    )
    assert confidence_sequence_variances(sums_of(values)).shape == (3,)
    assert np.isinf(confidence_sequence_mean(sums_of(values), 2)[1]) and np.isnan(
        confidence_sequence_mean(np.zeros((1, 3, 3)), 2)[0]
    )


def test_a_change_of_shares_in_a_good_season_is_no_lift() -> None:
    """The same arms; rewards are one higher, for everybody, where the control arm was made larger."""
    rng = np.random.default_rng(1)
    values = [
        {"a": rng.normal(size=9000), "b": rng.normal(size=1000)},
        {"a": 1 + rng.normal(size=1000), "b": 1 + rng.normal(size=9000)},
    ]
    value, around = confidence_sequence_difference(sums_of(values), 0, 1)
    assert abs(value) < around
    apart = np.concatenate([one["a"] for one in values]).mean() - np.concatenate([one["b"] for one in values]).mean()
    assert abs(apart) > 0.5


def test_nothing_is_said_of_few_users_or_of_no_spread() -> None:
    few = np.array([[[1000, 0.0, 1000.0], [FEWEST - 1, 0.0, 49.0]]])
    assert np.isinf(confidence_sequence_difference(few, 0, 1)[1])
    same = np.array([[[1000, 0.0, 0.0], [1000, 0.0, 0.0]]])
    assert np.isinf(confidence_sequence_difference(same, 0, 1)[1]) and np.isinf(confidence_sequence_mean(same, 0)[1])
    none = np.zeros((1, 2, 3))
    assert np.isnan(confidence_sequence_difference(none, 0, 1)[0])


def test_it_is_tightest_where_it_is_tuned() -> None:
    t = np.array([TUNED / 10, TUNED / 2, TUNED, 2 * TUNED, 10 * TUNED])
    wide = confidence_sequence_radius(t, np.ones(5)) * np.sqrt(t)
    assert wide.argmin() == 2
    assert (wide / wide[2]).round(2).tolist() == [1.27, 1.02, 1.0, 1.01, 1.07]


def misses(name: str, scale: float, seed: int) -> float:
    """The share of services in which some interval, of all that were looked at, misses the true lift."""
    rng, (draw, true) = np.random.default_rng(seed), REWARDS[name]
    sums, missed = np.zeros((SERVICES, 1, 2, 3)), np.zeros(SERVICES, dtype=bool)
    for _ in range(LOOKS):
        counts = rng.multinomial(AT_ONCE, [TREATED, CONTROL, 1 - TREATED - CONTROL], SERVICES)
        for arm, times in ((0, 1.0), (1, scale)):
            values = times * (draw(rng, (SERVICES, counts[:, arm].max())) - true)
            values *= np.arange(values.shape[1]) < counts[:, arm, None]
            parts = (counts[:, arm], values.sum(1), np.einsum("ij,ij->i", values, values))
            sums[:, 0, arm] += np.stack(parts, axis=1)
        value, around = confidence_sequence_difference(sums, 0, 1)
        missed |= np.abs(value) > around
    return float(missed.mean())


@pytest.mark.parametrize("name", list(REWARDS))
def test_intervals_cover_under_continuous_looking(name: str) -> None:
    assert misses(name, 1.0, seed=0) <= 0.06


@pytest.mark.parametrize(("name", "most"), [("exponential", 0.06), ("lognormal", 0.08), ("clicks of 2%", 0.08)])
def test_intervals_cover_where_the_small_arm_is_spread_more(name: str, most: float) -> None:
    assert misses(name, 1.5, seed=1) <= most


def test_ordinary_intervals_would_not() -> None:
    """What is being prevented: 1.96 standard errors, looked at as often."""
    rng, missed = np.random.default_rng(0), np.zeros(SERVICES, dtype=bool)
    n, total = 0, np.zeros(SERVICES)
    for _ in range(LOOKS):
        n, total = n + AT_ONCE, total + np.sqrt(AT_ONCE) * rng.standard_normal(SERVICES)
        missed |= np.abs(total / n) > 1.96 / np.sqrt(n)
    assert missed.mean() > 0.35


def test_means_of_users_who_are_still_being_served() -> None:
    """A user's value is the mean of the rewards so far, of five in all; a hundred newcomers come between two looks."""
    rng, missed = np.random.default_rng(2), np.zeros(SERVICES, dtype=bool)
    done, open_ = np.zeros((SERVICES, 1, 2, 3)), []
    for _ in range(100):
        for cohort in open_:
            cohort[2].append(cohort[1] + rng.standard_normal(cohort[1].shape))
        arm = (rng.random((SERVICES, AT_ONCE)) < 0.1).astype(int)
        taste = rng.standard_normal((SERVICES, AT_ONCE))
        open_.append((arm, taste, [taste + rng.standard_normal(taste.shape)]))
        sums = done.copy()
        for cohort in open_:
            add = np.zeros_like(done)
            value = np.mean(cohort[2], axis=0)
            for one in (0, 1):
                on = cohort[0] == one
                add[:, 0, one] = np.stack([on.sum(1), (on * value).sum(1), (on * value**2).sum(1)], axis=1)
            sums += add
            if len(cohort[2]) == 5:
                done += add
        open_ = [one for one in open_ if len(one[2]) < 5]
        value, around = confidence_sequence_difference(sums, 0, 1)
        missed |= np.abs(value) > around
    assert missed.mean() <= 0.06


# Shares of arms.


def test_the_test_of_shares_agrees_with_its_likelihoods() -> None:
    counts, shares = np.array([[880.0, 70.0, 50.0]]), np.array([[0.9, 0.05, 0.05]])
    prior = 100.0 * shares[0]
    ways = gammaln(1001) - gammaln(counts[0] + 1).sum()
    mixed = gammaln(100.0) - gammaln(1100.0) + (gammaln(prior + counts[0]) - gammaln(prior)).sum() + ways
    plain = multinomial.logpmf(counts[0], 1000, shares[0])
    assert confidence_sequence_sample_ratio(counts, shares) == pytest.approx(min(1.0, np.exp(plain - mixed)))
    assert confidence_sequence_sample_ratio(np.array([[5.0, 1.0]]), np.array([[1.0, 0.0]])) == 0.0


def test_false_alarms_are_rare_under_continuous_looking_and_true_ones_come() -> None:
    rng, shares = np.random.default_rng(3), np.array([0.9, 0.05, 0.05])
    alarms = found = 0
    for _ in range(300):
        right = np.cumsum(rng.multinomial(AT_ONCE, shares, 50), axis=0)
        wrong = np.cumsum(rng.multinomial(AT_ONCE, [0.92, 0.03, 0.05], 50), axis=0)
        alarms += any(confidence_sequence_sample_ratio(one[None], shares[None]) <= 0.01 for one in right)
        found += any(confidence_sequence_sample_ratio(one[None], shares[None]) <= 0.01 for one in wrong)
    assert alarms <= 6 and found >= 285
