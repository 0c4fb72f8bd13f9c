"""Guards that there is one posterior of a user: kept reward by reward, of whole histories, or by the formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.linear import ridge
from newcomer.model import Model


def dense(rows, rewards, variance):
    """E[z] and Cov[z] by the textbook: (I + X^T S^-1 X)^-1, written out."""
    precision = np.eye(rows.shape[1]) + rows.T @ np.diag(1 / variance) @ rows
    covariance = np.linalg.inv(precision)
    return covariance @ rows.T @ (rewards / variance), covariance


def test_rewards_one_by_one_give_the_posterior_of_the_formula():
    rng = np.random.default_rng(0)
    rows, rewards, variance = rng.standard_normal((30, 4)), rng.standard_normal(30), rng.uniform(0.1, 2.0, 30)
    system, who = ridge.start_ridge(1, 4), np.zeros(30, dtype=np.int64)
    ridge.condition_ridge_posterior(system, who, rows, rewards, variance)
    mean, covariance = dense(rows, rewards, variance)
    np.testing.assert_allclose(system.mean[0], mean, atol=1e-12)
    wanted = rng.standard_normal((5, 4))
    found = ridge.predict_by_ridge_posterior(system, np.zeros(5, dtype=np.int64), wanted)
    np.testing.assert_allclose(found[0], wanted @ mean, atol=1e-12)
    np.testing.assert_allclose(found[1], np.einsum("mk,kl,ml->m", wanted, covariance, wanted), atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_policy_and_transform_say_the_same_of_a_user(share, intercept):
    rng = np.random.default_rng(1)
    actions, dim = 9, 9 + intercept
    factor = rng.standard_normal((dim, 3))
    model = Model(
        np.linalg.qr(factor)[0], np.ones(dim), rng.standard_normal(dim), factor, 1.3, action_ids=tuple(range(actions)),
        one_hot=True, intercept=intercept, persistence=share, residual_variance=rng.uniform(0.5, 2.0, actions),
    )  # fmt: skip
    users, ids = np.repeat(np.arange(5), 12), rng.integers(0, actions, 60)
    rewards = rng.standard_normal(60)
    where = model.transform(nc.Logs.from_arrays(user=users, action=ids, reward=rewards, intercept=intercept))
    policy = nc.PriorUCB(model, level=0.0)
    state = policy.start(5)
    policy.update(state, ids=ids, reward=rewards, users=users)
    np.testing.assert_allclose(state.small.mean, where.mean, atol=1e-9)
    lower = ridge.unpack_ridge(state.small.factor, 3)
    np.testing.assert_allclose(lower.transpose(0, 2, 1) @ lower, where.covariance, atol=1e-9)


def test_ids_and_features_of_the_catalogue_say_the_same():
    rng = np.random.default_rng(2)
    table = rng.standard_normal((7, 4))
    factor = rng.standard_normal((4, 2))
    model = Model(
        np.linalg.qr(factor)[0], np.ones(4), rng.standard_normal(4), factor, 1.0, action_ids=tuple("abcdefg"),
        action_features=table, offsets=rng.standard_normal(7), persistence=0.2,
    )  # fmt: skip
    flat = replace(model, action_features=None, one_hot=True, basis=np.eye(7, 2), spectrum=np.ones(7),
                   mean=table @ model.mean, factor=table @ factor)  # fmt: skip
    means, loadings = model.catalogue.project(np.array([3, -1]))
    np.testing.assert_allclose(
        means, [table[3] @ model.mean + model.offsets[3], model.catalogue.population_mean.mean()]
    )
    np.testing.assert_allclose(loadings, [table[3] @ factor, (table @ factor).mean(axis=0)])
    scores = []
    for one in (model, flat):
        policy = nc.PriorUCB(one, level=0.0)
        state = policy.start(1)
        policy.update(state, ids=list("abac"), reward=[1.0, -1.0, 2.0, 0.5], users=[0] * 4)
        scores.append(policy.scores(state, ids=list("abcdefg")))
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-9)
