"""Guards what `fit` says in plain words: variances, interactions needed, and the gain over the population mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from newcomer._fit import fit
from newcomer.em.variance_components import forecast
from newcomer.logs import Logs
from newcomer.population import Population
from newcomer.worlds import Synthetic


def test_one_direction_by_hand():
    """v = 1, noise 1, nothing in common: value sqrt(t / (1 + t)) reaches 0.9 at t = 0.81 / 0.19 = 4.26."""
    found = forecast(Population(np.zeros(2), np.array([[1.0], [0.0]]), 1.0), np.eye(2), np.zeros(2))
    assert found.interactions == 5
    assert found.mean_value == 0.0
    assert found.early_value == pytest.approx(np.sqrt(20 / 21))
    assert (found.common, found.personal, found.noise_variance) == (0.0, 1.0, 1.0)


def test_a_strong_mean_needs_no_interaction_and_a_constant_one_is_worth_nothing():
    strong = forecast(Population(np.array([10.0, 0.0]), np.array([[0.0], [1.0]]), 1.0), np.eye(2), np.zeros(2))
    assert strong.interactions == 0 and strong.mean_value > 0.9
    # phi = (1, x): a mean along the constant feature changes no choice.
    constant = forecast(
        Population(np.array([10.0, 0.0]), np.array([[0.0], [1.0]]), 1.0), np.eye(2), np.array([1.0, 0.0])
    )
    assert constant.common == 0.0 and constant.interactions == 5


def test_the_parts_of_the_variance_are_told():
    alike = forecast(Population(np.ones(2), np.zeros((2, 0)), 1.0), np.eye(2), np.zeros(2))
    assert "67% is common" in alike.parts() and "0% preferences" in alike.parts() and "33% noise" in alike.parts()
    assert "too few came again to tell" in alike.parts(None) and "17% this user and this very" in alike.parts(0.5)
    assert sum(share for _, share in alike.shares(0.5)) == pytest.approx(1.0)
    old = replace(alike, level=None, personal=1.0)  # a file of before levels were told apart
    assert "25% how users differ, in level or preferences" in old.parts()


def test_level_is_what_moves_all_actions_alike():
    """Oracle: drawn users and actions; variance of a user's mean over actions, and mean of the variance within."""
    rng = np.random.default_rng(3)
    phi = np.array([1.0, 0.5, 0.0]) + rng.standard_normal((500, 3))
    population = Population(np.zeros(3), rng.standard_normal((3, 2)), 0.7)
    found = forecast(population, phi.T @ phi / len(phi), phi.mean(axis=0))
    scores = rng.standard_normal((40_000, 2)) @ (phi @ population.factor).T
    assert found.level == pytest.approx(scores.mean(axis=1).var(), rel=0.02)
    assert found.personal - found.level == pytest.approx(scores.var(axis=1).mean(), rel=0.02)


def test_users_who_rate_everything_higher_have_a_level_and_no_preferences():
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(500), 12), rng.integers(0, 20, 6000)
    reward = rng.standard_normal(20)[item] + 2.0 * rng.standard_normal(500)[user] + rng.standard_normal(6000)
    model = fit(Logs.from_arrays(user=user, action=item, reward=reward), null=False, calibrate=False)
    shares = dict(model.evidence.population.forecast.shares(model.persistence))
    assert shares["the user's level"] > 0.5 and shares["preferences"] < 0.02


def test_fit_keeps_the_forecast():
    logs = Synthetic.learnable(dim=10, seed=1).logs(600, 10, seed=1)
    facts = fit(logs, rank=2, null=False, calibrate=False).evidence.population.forecast
    total = facts.common + facts.personal + facts.noise_variance
    assert total == pytest.approx(logs.summary.reward_deviation**2, rel=0.1)
    assert 1 <= facts.interactions < 100


def test_a_known_share_of_ratings_is_common_although_their_mean_is_shrunk():
    """Items whose mean ratings have variance 0.25 around 4: a mean that is a little too small must not hide them."""
    rng = np.random.default_rng(0)
    liked = 4.0 + 0.5 * rng.standard_normal(30)
    user, item = np.repeat(np.arange(400), 20), rng.integers(0, 30, 8000)
    level = 0.5 * rng.standard_normal(400)  # users who rate everything higher: no reason to choose otherwise
    reward = liked[item] + level[user] + 0.5 * rng.standard_normal(8000)
    facts = fit(Logs.from_arrays(user=user, action=item, reward=reward, intercept=True)).evidence.population.forecast
    assert facts.common == pytest.approx(liked[item].var(), rel=0.1)
    assert facts.personal == pytest.approx(0.25, rel=0.25)
    assert facts.mean_value > 0.95 and facts.interactions == 0


def test_values_match_posterior_variances_of_drawn_scores():
    """Oracle: scores of drawn actions under drawn users, and how much a posterior after t actions leaves open."""
    rng = np.random.default_rng(1)
    shift, mix = np.array([1.0, 0.5, 0.0]), rng.standard_normal((3, 3)) / 2
    phi = shift + rng.standard_normal((200_000, 3)) @ mix
    population = Population(np.array([0.3, -0.2, 0.1]), rng.standard_normal((3, 2)), 0.7)
    gram = phi.T @ phi / len(phi)
    found = forecast(population, gram, phi.mean(axis=0))
    known = np.linalg.inv(np.eye(2) + 20 * population.factor.T @ gram @ population.factor / population.noise_variance)
    centred = phi - phi.mean(axis=0)
    total = (centred @ population.mean).var() + ((centred @ population.factor) ** 2).sum(axis=1).mean()
    open_part = np.einsum("ni,ij,nj->n", centred @ population.factor, known, centred @ population.factor).mean()
    assert found.early_value == pytest.approx(np.sqrt(1 - open_part / total), rel=1e-6)
    assert found.common == pytest.approx((phi @ population.mean).var(), rel=1e-6)
