"""Guards the privacy measurement: its statistics against obvious versions, and that it sees what the stand-in hides."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from newcomer.errors import NewcomerError
from newcomer.paper.figures.privacy import auc, guessable, logistic, posterior_coordinates, privacy_table
from newcomer.paper.worlds.factorise import factorise
from newcomer.paper.worlds.movielens_standin import write_standin
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.paper.worlds.replay import split_users


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    return read_ratings(write_standin(tmp_path_factory.mktemp("data"))).filtered()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_the_area_under_the_curve_counts_pairs():
    rng = np.random.default_rng(0)
    scores, label = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4
    pairs = [(y > n) + 0.5 * (y == n) for y in scores[label] for n in scores[~label]]
    assert auc(scores, label) == pytest.approx(np.mean(pairs))


def test_the_logistic_fit_is_where_the_penalised_likelihood_is_flat():
    rng = np.random.default_rng(1)
    design = np.column_stack([np.ones(80), rng.standard_normal((80, 3))])
    label = rng.random(80) < 0.3
    weights = logistic(design, label, 0.7)

    def cost(w):
        odds = design @ w
        return np.sum(np.log1p(np.exp(odds)) - label * odds) + 0.35 * np.sum(w[1:] ** 2)

    slopes = [(cost(weights + 1e-5 * e) - cost(weights - 1e-5 * e)) / 2e-5 for e in np.eye(4)]
    np.testing.assert_allclose(slopes, 0.0, atol=1e-6)


def test_noise_guesses_nothing_and_a_copy_guesses_everything():
    rng = np.random.default_rng(2)
    label = rng.random(600) < 0.3
    blind = guessable(rng.standard_normal((600, 4)), label)
    assert abs(blind.auc - 0.5) < 3 * blind.auc_error + 0.02
    assert blind.base_rate == pytest.approx(1 - label.mean())
    assert guessable(np.where(label, 1.0, -1.0)[:, None], label).auc == 1.0
    assert guessable(np.zeros((600, 2)), label).auc == 0.5


def test_too_few_of_one_side_are_refused():
    with pytest.raises(NewcomerError, match="too few users on one side"):
        guessable(np.zeros((50, 1)), np.arange(50) < 3)


def test_posterior_coordinates_are_those_of_the_joint_gaussian(ratings, cache):
    """Oracle: condition the joint Gaussian of (z, ratings) on the ratings."""
    train, test = split_users(ratings, 0.5, seed=0)
    factors = factorise(train, dim=12, rank=4, cache=cache)
    found = posterior_coordinates(test, factors, 10_000, seed=0)
    betas = factors.users
    mean = betas.mean(axis=0)
    rows = test.user == 3
    X = factors.movies[test.movie[rows]]
    K = X @ np.cov(betas.T, bias=True) @ X.T + factors.rmse**2 * np.eye(rows.sum())
    expected = mean + np.cov(betas.T, bias=True) @ X.T @ np.linalg.solve(K, test.rating[rows] - X @ mean)
    _, values, right = np.linalg.svd(betas - mean, full_matrices=False)
    spread = (right[:4] * values[:4, None] / np.sqrt(len(betas))).T
    np.testing.assert_allclose(mean + spread @ found[3], expected, atol=1e-8)


def test_the_table_shows_what_the_stand_in_hides_and_more_ratings_tell_more(ratings, cache):
    table = privacy_table(ratings, seen=(0, 100), dim=20, rank=5, folds=5, cache=cache)
    assert table["known"].to_list() == ["factor vector", "posterior", "posterior", "attributes in the prior"] * 2
    assert table.filter(ratings=0, known="posterior")["auc"].to_list() == [0.5, 0.5]
    assert table.filter(known="attributes in the prior")["auc"].min() > 0.95  # a state tells what it was told
    assert table.filter(known="factor vector")["auc"].min() > 0.65
    assert table.filter(ratings=100)["auc"].min() > 0.6
    assert table.filter(pl.col("ratings").is_null())["users"].unique().to_list() == [ratings.shape[0]]
