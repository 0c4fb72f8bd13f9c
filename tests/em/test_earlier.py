"""Guards `Earlier`: an earlier fit as what is believed beforehand. Naive formulas are beside the tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.em.fit import refit_population
from newcomer.em.optimizer import Earlier, Shrinkage
from newcomer.em.pairs import FEW, FIRM
from newcomer.em.passes import Passes
from newcomer.population import Population

ACTIONS, RANK, USERS = 5, 2, 30


def population(seed: int, rank: int = RANK) -> Population:
    rng = np.random.default_rng(seed)
    mean, factor = rng.standard_normal(ACTIONS), rng.standard_normal((ACTIONS, rank))
    unsure, by_action = rng.uniform(0.01, 0.5, ACTIONS), rng.uniform(0.2, 0.9, ACTIONS)
    return Population(mean, factor, 0.5, by_action, uncertainty=unsure)


def naive_density(one: Population, known: Population, towards: np.ndarray) -> float:
    """Sum of log N(W_j; W0_j, diag(u / (k + 1)) + L0 L0^T / N) over columns j, and of log scaled inverse chi-squared of
    v_a over actions, without constants."""
    value, columns = 0.0, one.rank + 1
    covariance = np.diag(known.uncertainty / columns) + known.factor @ known.factor.T / USERS
    for j in range(columns):
        far = one.weights[:, j] - known.weights[:, j]
        value -= 0.5 * far @ np.linalg.inv(covariance) @ far
    for a in range(ACTIONS):
        rows = known.by_action[a] * columns / known.uncertainty[a]
        for count, expected in ((rows, known.by_action[a]), (FEW + FIRM, towards[a])):
            value += count / 2 * (np.log(expected / one.by_action[a]) - expected / one.by_action[a])
    return value


def test_density_and_its_slope() -> None:
    known, one = population(1), population(2)
    towards = np.linspace(0.3, 0.6, ACTIONS)
    penalty = Shrinkage(np.ones(RANK + 1), np.zeros(ACTIONS), towards, earlier=Earlier.of(known, USERS))
    assert penalty.of(one) == pytest.approx(naive_density(one, known, towards), rel=1e-12)
    slope, step = penalty.slope(one), 1e-6
    for place in range(len(slope)):
        ends = []
        for side in (step, -step):
            weights, logs = one.weights, np.log(one.by_action)
            if place < weights.size:
                weights.flat[place] += side
            else:
                logs[place - weights.size] += side
            moved = replace(one, mean=weights[:, 0].copy(), factor=weights[:, 1:].copy(), by_action=np.exp(logs))
            ends.append(naive_density(moved, known, towards))
        assert slope[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-6)


def test_without_directions_the_mean_is_the_posterior_mean() -> None:
    """m_a = (sum of r / v_a + p_a m0_a) / (n_a / v_a + p_a), the rows of the earlier fit counted by its precision."""
    rng = np.random.default_rng(3)
    known = population(4, rank=0)
    which, users = rng.choice(ACTIONS, size=600, p=[0.6, 0.3, 0.08, 0.02, 0.0]), np.repeat(np.arange(200), 3)
    reward = 1.0 + 0.7 * rng.standard_normal(600)
    logs = nc.Logs.from_arrays(
        user=np.append(users, [200, 200]), action=np.append(which, [4, 4]), reward=np.append(reward, [1.0, 2.0])
    )
    found = refit_population(
        Passes(logs), known, precision=1.0, persistence=0.0, earlier=Earlier.of(known, USERS)
    ).population
    for a in range(ACTIONS):
        mine = np.append(reward, [1.0, 2.0])[np.append(which, [4, 4]) == a]
        v, p = found.variances[a], 1.0 / known.uncertainty[a]
        expected, near = (mine.sum() / v + p * known.mean[a]) / (len(mine) / v + p), 0.2 * found.uncertainty[a] ** 0.5
        assert found.mean[a] == pytest.approx(expected, abs=near)  # ascents end where little is left to gain
        told = 1.0 / (len(mine) / v + p)  # the Gram matrix has the v of moments in place of this one
        assert told / 2 < found.uncertainty[a] < min(2 * told, known.uncertainty[a])


def test_what_does_not_say_how_far_off_it_is_is_not_continued() -> None:
    known = population(1)
    assert Earlier.of(replace(known, uncertainty=None), USERS) is None
    assert Earlier.of(replace(known, uncertainty=np.zeros(ACTIONS)), USERS) is None
    assert Earlier.of(replace(known, mean=np.zeros(ACTIONS + 1), factor=np.zeros((ACTIONS + 1, RANK))), USERS) is None
