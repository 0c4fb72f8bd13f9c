"""Guards the Gaussian working model on rewards that are not Gaussian: clicks and stars, judged on held-out users."""

from __future__ import annotations

import numpy as np
import pytest

from newcomer.em.fit import estimate_population
from newcomer.em.likelihood import likelihood_posterior
from newcomer.em.passes import Passes
from newcomer.logs import Logs
from newcomer.paper.scale import Setting
from newcomer.paper.studies import prior_ratings

USERS, STEPS, DIM = 1500, 12, 6


def click(score, rng):
    """Bernoulli with the score, cut to [0, 1], as its probability."""
    return (rng.random(score.shape) < np.clip(0.4 + 0.25 * score, 0, 1)).astype(float)


def stars(score, rng):
    """1 to 5, the rounded score with noise."""
    return np.clip(np.round(3.3 + score + 0.7 * rng.standard_normal(score.shape)), 1, 5)


def population(reward, seed):
    """Features (n, h, d) with a constant first, and rewards (n, h) of users who differ along two directions."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * USERS, STEPS, DIM)) / np.sqrt(DIM)
    X[:, :, 0] = 1.0
    truth = np.random.default_rng(0).standard_normal((DIM, 2))
    truth[0] = 0.3
    beta = rng.standard_normal((2 * USERS, 2)) @ truth.T
    return X, reward(np.einsum("nhd,nd->nh", X, beta), rng)


@pytest.mark.parametrize("reward", [click, stars])
def test_predicted_means_are_reliable_on_held_out_users(reward):
    X, r = population(reward, seed=1)
    fitted = Logs.from_arrays(
        user=np.repeat(np.arange(USERS), STEPS), features=X[:USERS].reshape(-1, DIM), reward=r[:USERS].ravel()
    )
    found = estimate_population(Passes(fitted), rank=2).population
    past, future = X[USERS:, :-1], X[USERS:, -1]
    latent = likelihood_posterior(found, past, r[USERS:, :-1]).mean
    predicted = future @ found.mean + np.einsum("nd,dk,nk->n", future, found.factor, latent)
    actual = r[USERS:, -1]
    order = np.argsort(predicted)
    for part in np.array_split(order, 5):
        error = actual[part].std() / np.sqrt(len(part))
        assert abs(predicted[part].mean() - actual[part].mean()) < 4 * error
    assert np.mean((actual - predicted) ** 2) < 0.97 * np.mean((actual - future @ found.mean) ** 2)


def test_the_study_of_clicks_predicts_rewards_not_log_odds(tmp_path):
    """The fit may take the logistic link for clicks, whose mean and factor are log-odds; the study is of the other."""
    rows = prior_ratings.run(Setting("quick", str(tmp_path), ""), rewards=prior_ratings.CLICKS, newcomers=60, seed=1)
    assert rows["predicted"].min() > -1 and rows["predicted"].max() < 2
    assert abs(rows["predicted"].mean() - rows["actual"].mean()) < 0.05
