"""Guards what `fit` says of the components of the variance of rewards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from newcomer._fit import fit
from newcomer.em.variance_components import forecast_variance_components
from newcomer.evidence import Evidence, Forecast, HeldoutGain
from newcomer.logs import Logs
from newcomer.population import Population
from newcomer.worlds import Synthetic


def test_one_direction_by_hand():
    found = forecast_variance_components(Population(np.zeros(2), np.array([[1.0], [0.0]]), 1.0), np.eye(2), np.zeros(2))
    assert (found.common, found.personal, found.noise_variance) == (0.0, 1.0, 1.0)


def test_a_constant_mean_changes_no_choice():
    # phi = (1, x): a mean along the constant feature changes no choice.
    constant = forecast_variance_components(
        Population(np.array([10.0, 0.0]), np.array([[0.0], [1.0]]), 1.0), np.eye(2), np.array([1.0, 0.0])
    )
    assert constant.common == 0.0


def test_the_parts_of_the_variance_are_told():
    alike = forecast_variance_components(Population(np.ones(2), np.zeros((2, 0)), 1.0), np.eye(2), np.zeros(2))
    assert "67% population mean" in alike.parts() and "0% preferences" in alike.parts() and "33% noise" in alike.parts()
    assert "too few repeats to separate them" in alike.parts(None) and "17% per-action effect" in alike.parts(0.5)
    assert sum(share for _, share in alike.shares(0.5)) == pytest.approx(1.0)
    old = replace(alike, level=None, personal=1.0)  # a file of before levels were told apart
    assert "25% differences between users, in level or preferences" in old.parts()


def test_level_is_what_moves_all_actions_alike():
    """Oracle: drawn users and actions; variance of a user's mean over actions, and mean of the variance within."""
    rng = np.random.default_rng(3)
    phi = np.array([1.0, 0.5, 0.0]) + rng.standard_normal((500, 3))
    population = Population(np.zeros(3), rng.standard_normal((3, 2)), 0.7)
    found = forecast_variance_components(population, phi.T @ phi / len(phi), phi.mean(axis=0))
    scores = rng.standard_normal((40_000, 2)) @ (phi @ population.factor).T
    assert found.level == pytest.approx(scores.mean(axis=1).var(), rel=0.02)
    assert found.personal - found.level == pytest.approx(scores.var(axis=1).mean(), rel=0.02)
    shifted = replace(population, mean=np.array([0.3, -0.2, 0.1]))
    common = forecast_variance_components(shifted, phi.T @ phi / len(phi), phi.mean(axis=0)).common
    assert common == pytest.approx((phi @ shifted.mean).var(), rel=1e-6)


def test_files_with_what_is_no_longer_kept_are_read():
    kept = {"common": 1.0, "personal": 2.0, "noise_variance": 0.5, "interactions": 7, "mean_value": 0.1}
    facts = {"passes": 3, "likelihood": -1.0, "directions": 1, "users": 9, "rows": 90, "forecast": kept, "tried": []}
    facts |= {"precision": 1.0, "mean_precision": 1.0, "outlook": {"choices": 3, "steps": [], "rows": 8}}
    read = Evidence.from_json({"population": facts})
    assert read.population.forecast == Forecast(1.0, 2.0, 0.5)
    assert read.population.heldout_gain == read.population.outlook == read.measured == HeldoutGain(3, (), 8)
    assert read.to_json()["population"]["outlook"]["choices"] == 3 and Evidence.from_json(read.to_json()) == read


def test_users_who_rate_everything_higher_have_a_level_and_no_preferences():
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(500), 12), rng.integers(0, 20, 6000)
    reward = rng.standard_normal(20)[item] + 2.0 * rng.standard_normal(500)[user] + rng.standard_normal(6000)
    model = fit(Logs.from_arrays(user=user, action=item, reward=reward), null=False, calibrate=False)
    shares = dict(model.evidence.population.forecast.shares(model.persistence))
    assert shares["user level"] > 0.5 and shares["preferences"] < 0.02


def test_fit_keeps_the_forecast():
    logs = Synthetic.learnable(dim=10, seed=1).logs(600, 10, seed=1)
    facts = fit(logs, rank=2, null=False, calibrate=False).evidence.population.forecast
    total = facts.common + facts.personal + facts.noise_variance
    assert total == pytest.approx(logs.summary.reward_deviation**2, rel=0.1)


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
