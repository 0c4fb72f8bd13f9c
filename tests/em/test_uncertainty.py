"""Guards how sure a model is: the error of each action's mean, how people differ in their errors, and that the outlier
test, which trusts both, sends few ordinary people away however few rows there are.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import outlier_test

import newcomer as nc
from newcomer.em.fit import estimate_population
from newcomer.em.likelihood import likelihood_squared_errors
from newcomer.em.passes import Passes
from newcomer.em.variance_components import SCALES, error_variance_scales, variance_scale_gain, variance_scale_weights
from newcomer.errors import ModelError
from newcomer.model import Model
from newcomer.population import Population
from newcomer.users import user_bucket_count
from tests.oracles import memory as oracle

HELD_OUT = [(Population(np.zeros(1), np.zeros((1, 0)), 1.0), np.ones(1, dtype=bool))]
HERE = Path(os.environ.get("NEWCOMER_DATA", "")) / "ml-1m"


def few_rows(seed, *, users=200, actions=100, rows=8, rank=1, noise=0.8, spread=0.0):
    """Logs with about `users * rows / actions` rows an action; the truth; scales of noise differ by exp(spread N)."""
    rng = np.random.default_rng(seed)
    mean, factor = 3 + 0.5 * rng.standard_normal(actions), 0.4 * rng.standard_normal((actions, rank))

    def people(count):
        scale = np.exp(0.5 * spread * rng.standard_normal((count, 1)))
        table = mean + rng.standard_normal((count, rank)) @ factor.T
        return table + np.sqrt(noise) * scale * rng.standard_normal((count, actions))

    table = people(users)
    asked = np.argsort(rng.random(table.shape), axis=1)[:, :rows]
    user = np.repeat(np.arange(users), rows)
    logs = nc.Logs.from_arrays(user=user, action=asked.ravel(), reward=table[user, asked.ravel()])
    return logs, mean, people


def test_uncertainty_is_the_variance_of_the_posterior_of_each_row_of_the_factor():
    """For one-hot features: trace of (n / v E + diag(a))^-1, E = E[(1, z)(1, z)^T] as far as it is told."""
    logs, _, _ = few_rows(0)
    optimizer = estimate_population(Passes(logs), rank=2).optimizer
    expected = optimizer._told() / optimizer.gram.mass
    wanted = [
        np.trace(np.linalg.inv(value * expected + np.diag(optimizer.penalty.weights)))
        for value in np.diag(np.asarray(optimizer.gram.matrix))
    ]
    found = estimate_population(Passes(logs), rank=2).population.uncertainty
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_the_means_are_as_large_as_the_model_says(seed):
    """16 rows an action or 128: the squared error of the mean over its variance is about one."""
    for users in (80, 640):
        logs, mean, _ = few_rows(seed, users=users, actions=40, rank=0)
        model = nc.fit(logs, null=False, calibrate=False)
        ratio = (model.mean - mean) ** 2 / model.uncertainty
        assert ratio.mean() == pytest.approx(1.0, abs=4 * np.sqrt(2 / 40))


def test_features_and_rows_without_actions_have_an_uncertainty_too():
    rng = np.random.default_rng(0)
    items, beta = rng.standard_normal((30, 4)), rng.standard_normal(4)
    user, action = np.repeat(np.arange(100), 6), rng.integers(0, 30, 600)
    reward = items[action] @ beta + 0.3 * rng.standard_normal(30)[action] + rng.standard_normal(600)
    by_items = nc.fit(nc.Logs.from_arrays(user=user, action=action, items=items, reward=reward), null=False)
    assert by_items.uncertainty.shape == (30,) and 0.01 < by_items.uncertainty.mean() < 0.2
    by_rows = nc.fit(nc.Logs.from_arrays(user=user, features=items[action], reward=reward), null=False)
    assert by_rows.uncertainty.shape == (1,)
    assert by_rows.uncertainty[0] == pytest.approx(4 * by_rows.noise_variance / 600, rel=0.3)


def test_squared_errors_are_those_of_the_dense_covariance():
    logs, _, _ = few_rows(1, users=30, actions=10, rows=5)
    rng = np.random.default_rng(1)
    population = Population(
        rng.standard_normal(10), rng.standard_normal((10, 2)), 1.0, by_action=rng.uniform(0.5, 1.5, 10)
    )
    everybody = np.ones(user_bucket_count(10), dtype=bool)
    (batch,) = logs.batches()
    found = likelihood_squared_errors(batch, ((population, everybody),))
    for user in range(30):
        own = slice(batch.offsets[user], batch.offsets[user + 1])
        codes = batch.actions[own]
        covariance = population.factor[codes] @ population.factor[codes].T + np.diag(population.by_action[codes])
        error = batch.rewards[own] - population.mean[codes]
        np.testing.assert_allclose(found[user], [5, error @ np.linalg.solve(covariance, error)], rtol=1e-9)


def test_scales_are_found_where_people_differ_and_nowhere_else():
    rng = np.random.default_rng(2)
    rows = np.full(400, 30.0)
    scale = np.where(rng.random(400) < 0.2, 4.0, 1.0)
    errors = np.column_stack([rows, scale * rng.chisquare(30, 400)])
    weights = variance_scale_weights(errors)
    assert weights.sum() == pytest.approx(1.0) and variance_scale_gain(errors, weights) > 100
    assert weights[SCALES > 2.5].sum() == pytest.approx(0.2, abs=0.06)
    alike = np.column_stack([rows, rng.chisquare(30, 400)])
    assert error_variance_scales(lambda *_: alike, HELD_OUT).size == 0
    assert error_variance_scales(lambda *_: errors, HELD_OUT).tolist() == [SCALES.tolist(), weights.tolist()]
    assert error_variance_scales(lambda *_: np.zeros((3, 2)), []).size == 0


@pytest.mark.parametrize("persistence", [0.0, 0.5, None])
def test_uncertainty_is_a_part_of_what_lasts_of_the_action(persistence):
    """Scores are those of the dense posterior in which each action has a further lasting part of this variance."""
    rng = np.random.default_rng(3)
    model = Model(
        basis=np.eye(5)[:, :2],
        spectrum=np.ones(5),
        mean=rng.standard_normal(5),
        factor=rng.standard_normal((5, 2)),
        noise_variance=0.8,
        action_ids=tuple("abcde"),
        one_hot=True,
        residual_variance=rng.uniform(0.3, 1.5, 5),
        uncertainty=rng.uniform(0.0, 0.6, 5),
        persistence=persistence,
    )
    policy = nc.PriorUCB(model, width=0.0, level=0.0)
    state, seen, rewards = policy.start(1), [], rng.standard_normal(14)
    for reward in rewards:
        seen.append(int(rng.integers(5)))
        policy.update(state, ids=[model.action_ids[seen[-1]]], reward=[reward])
    share = float(state.memory.share[0])
    v, u = model.residual_variance, model.uncertainty
    events = [(code, np.eye(5)[code], share * v[code] + u[code], (1 - share) * v[code]) for code in range(5)]
    means, _ = oracle.posterior([events[code] for code in seen], rewards, events, factor=model.factor, mean=model.mean)
    np.testing.assert_allclose(policy.scores(state, ids=list("abcde"))[0], means, rtol=1e-8, atol=1e-9)


def test_what_a_users_reward_cannot_pay_back_is_not_explored():
    """A newcomer who has met nothing is served by the expected rewards and curiosity about taste alone."""
    model = replace(nc.fit(few_rows(4)[0], rank=1, null=False, calibrate=False), factor=np.zeros((100, 0)))
    unsure = replace(model, uncertainty=np.where(np.arange(100) == 3, 5.0, 0.0))
    for policy in (nc.PriorUCB, nc.EmpiricalArms):
        plain, wide = policy(replace(model, uncertainty=np.zeros(0))), policy(unsure)
        ids = list(model.action_ids)
        np.testing.assert_array_equal(plain.scores(plain.start(1), ids=ids), wide.scores(wide.start(1), ids=ids))


def sent_away(model, people, *, seed, count=150, met=60):
    """The share of ordinary newcomers ever sent away as they rate `met` actions in random order."""
    table, rng = people(count), np.random.default_rng(seed)
    policy = nc.PriorUCB(model, level=0.1)
    state, who = policy.start(count), np.arange(count)
    for action in np.argsort(rng.random(table.shape), axis=1)[:, :met].T:
        policy.update(state, ids=action, reward=table[who, action])
    return 1.0 - policy.in_subspace(state).mean()


@pytest.mark.parametrize("spread", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_with_few_rows_an_action_ordinary_newcomers_are_rarely_sent_away(seed, spread):
    logs, _, people = few_rows(seed, users=120, actions=60, rows=5, spread=spread)
    model = nc.fit(logs, rank=1, null=False, calibrate=False)
    assert sent_away(model, people, seed=seed) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 150)


@pytest.mark.skipif(not HERE.is_dir(), reason="MovieLens is not here")
def test_real_people_are_rarely_sent_away_with_few_ratings_a_film():
    """254 people with 20 ratings each of 551 films; 110 others."""
    for _, rule, (sent, _) in outlier_test.films(1, rank=1):
        limit = 0.1 + 2 * np.sqrt(0.1 * 0.9 / len(sent))
        assert (sent.mean() <= limit) == (rule == "now"), "and it is these numbers that do it"


def test_a_model_without_these_numbers_keeps_its_id_and_files_go_both_ways(tmp_path):
    plain = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), np.eye(2)[:, :1], 1.0, action_ids=("a", "b"), one_hot=True)
    assert plain.uncertainty.tolist() == [0.0, 0.0] and plain.error_scales.size == 0
    assert plain.id == replace(plain, uncertainty=np.zeros(2), error_scales=np.zeros(0)).id
    known = replace(plain, uncertainty=[0.1, 0.2], error_scales=[[1.0, 2.0], [0.75, 0.25]])
    assert known.id != plain.id
    for model in (plain, known):
        model.save(tmp_path / "model")
        again = nc.load(tmp_path / "model")
        assert again == model
        assert again.uncertainty.tolist() == model.uncertainty.tolist()
        assert again.error_scales.tolist() == model.error_scales.tolist()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"uncertainty": [-1.0, 0.0]}, "none below zero"),
        ({"uncertainty": [1.0, 0.0, 0.0]}, "shape"),
        ({"error_scales": [1.0, 2.0]}, "their weights"),
        ({"error_scales": [[0.0, 1.0], [0.5, 0.5]]}, "above zero"),
        ({"error_scales": [[2.0, 1.0], [0.5, 0.5]]}, "ascending"),
        ({"error_scales": [[1.0, 2.0], [0.5, 0.6]]}, "sum to one"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(parts, said):
    plain = Model(np.eye(2)[:, :1], np.ones(2), np.zeros(2), np.eye(2)[:, :1], 1.0, action_ids=("a", "b"), one_hot=True)
    with pytest.raises(ModelError, match=said):
        replace(plain, **parts)
