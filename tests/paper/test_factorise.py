"""Guards the factorisations: each step against a slow oracle, the promised rank, norms and spectrum, and the cache."""

from __future__ import annotations

import numpy as np
import pytest

from newcomer.errors import ModelError
from newcomer.paper.worlds import factorise as module
from newcomer.paper.worlds.factorise import (
    Observed,
    Recipe,
    alternate,
    factorise,
    shrink,
    shrink_to_rank,
    soft_threshold,
    whiten_users,
)
from newcomer.paper.worlds.movielens_standin import write_standin
from newcomer.paper.worlds.ratings import read_ratings
from tests.oracles.lowrank import objective, threshold_by_svd


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    return read_ratings(write_standin(tmp_path_factory.mktemp("data"), users=220, movies=220)).filtered(100)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", params=["literal", "balanced"])
def factors(request, ratings, cache):
    return factorise(ratings, kind=request.param, dim=20, rank=5, cache=cache)


@pytest.fixture
def observed():
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 20)) + 2.0
    row, column = np.nonzero(rng.random(matrix.shape) < 0.6)
    value = matrix[row, column] + 0.1 * rng.standard_normal(len(row))
    return Observed(row, column, value, matrix.shape)


def test_every_sweep_of_alternating_regressions_lowers_its_objective(observed):
    costs = []
    for sweeps in (1, 2, 4, 8):
        users, movies = alternate(observed, 3, ridge=0.5, sweeps=sweeps, rng=np.random.default_rng(1))
        costs.append(objective(observed, users, movies) + 0.25 * (np.sum(users**2) + np.sum(movies**2)))
    assert np.all(np.diff(costs) < 0)


@pytest.mark.parametrize("amount", [0.1, 2.0, 100.0])
def test_soft_thresholding_is_that_of_the_singular_values(amount):
    matrix = np.random.default_rng(2).standard_normal((12, 7))
    found, rank = soft_threshold(matrix, amount)
    expected = threshold_by_svd(matrix, amount)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert rank == np.linalg.matrix_rank(expected)


def test_shrunk_users_meet_the_optimality_conditions_of_the_nuclear_norm(observed):
    """The negative gradient G is threshold times a subgradient: |G|_2 <= threshold and <G, B> = threshold |B|_*."""
    movies = np.random.default_rng(5).standard_normal((20, 6))
    threshold = 40.0
    users, rank = shrink(observed, movies, threshold, np.zeros((30, 6)), steps=5000)
    values, seen = observed.dense
    pull = (values - seen * (users @ movies.T)) @ movies
    assert 0 < rank < 6
    assert np.linalg.norm(pull, 2) <= threshold * 1.01
    assert np.vdot(pull, users) == pytest.approx(threshold * np.linalg.norm(users, "nuc"), rel=0.01)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_search_lands_on_the_rank_asked_for(observed, rank):
    movies = np.random.default_rng(5).standard_normal((20, 6))
    users, threshold = shrink_to_rank(observed, movies, rank, np.zeros((30, 6)))
    assert np.linalg.matrix_rank(users) == rank
    assert threshold > 0


def test_a_rank_that_no_threshold_gives_is_refused(observed):
    with pytest.raises(ModelError, match="no threshold leaves users of rank 9"):
        shrink_to_rank(observed, np.random.default_rng(5).standard_normal((20, 6)), 9, np.zeros((30, 6)))


def test_whitening_leaves_predictions_and_makes_users_isotropic():
    rng = np.random.default_rng(0)
    users, movies = rng.standard_normal((40, 3)) * [5.0, 1.0, 0.1], rng.standard_normal((25, 3))
    latents, shown = whiten_users(users, movies)
    np.testing.assert_allclose(latents @ shown.T, users @ movies.T, atol=1e-12)
    np.testing.assert_allclose(latents.T @ latents / 40, np.eye(3), atol=1e-12)


def test_users_have_the_rank_and_movies_at_most_unit_norm(factors):
    values = np.linalg.svd(factors.users, compute_uv=False)
    assert values[4] > 1e-6 * values[0] and values[5] < 1e-10 * values[0]
    assert np.linalg.norm(factors.movies, axis=1).max() == pytest.approx(1.0)
    assert np.linalg.matrix_rank(factors.movies) == factors.dim == 20
    assert factors.spectrum.shape == (20,)


def test_the_spectrum_of_balanced_users_is_a_step_and_that_of_literal_ones_is_not(factors):
    ratio = factors.spectrum[0] / factors.spectrum[4]
    if factors.recipe.kind == "balanced":
        assert ratio == pytest.approx(1.0) and factors.threshold == 0.0
    else:
        assert ratio > 10.0 and factors.threshold > 0.0


def test_the_reported_error_is_that_of_ratings_the_fit_has_not_seen(factors, ratings):
    train, test = module._split(factors.recipe, ratings)
    assert len(train.value) + len(test.value) == len(ratings.rating)
    assert len(test.value) / len(ratings.rating) == pytest.approx(0.1, abs=0.01)
    errors = [v - factors.users[i] @ factors.movies[j] for i, j, v in zip(test.row, test.column, test.value)]
    assert factors.rmse == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    level = np.sqrt(np.mean((test.value - train.value.mean()) ** 2))
    assert factors.rmse < 0.85 * level


def test_the_second_time_comes_from_the_cache(factors, ratings, cache, monkeypatch):
    monkeypatch.setattr(module, "_fit", lambda *_: pytest.fail("fitted again"))
    again = factorise(ratings, kind=factors.recipe.kind, dim=20, rank=5, cache=cache)
    np.testing.assert_array_equal(again.users, factors.users)
    np.testing.assert_array_equal(again.movies, factors.movies)
    assert (again.rmse, again.threshold, again.recipe) == (factors.rmse, factors.threshold, factors.recipe)


def test_the_cache_key_follows_data_and_parameters(ratings):
    one = module._key(Recipe(), ratings)
    assert one == module._key(Recipe(), ratings)
    fewer = ratings.of_users(np.arange(10))
    others = [module._key(Recipe(seed=1), ratings), module._key(Recipe(rank=17), ratings), module._key(Recipe(), fewer)]
    assert len({one, *others}) == 4


def test_a_damaged_cache_file_is_made_anew(ratings, tmp_path):
    first = factorise(ratings, dim=10, rank=3, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    again = factorise(ratings, dim=10, rank=3, cache=tmp_path)
    np.testing.assert_array_equal(again.users, first.users)
    assert file.read_bytes() == whole


def test_another_seed_gives_another_factorisation(ratings, tmp_path):
    one, other = (factorise(ratings, dim=10, rank=3, seed=seed, cache=tmp_path) for seed in (0, 1))
    assert not np.allclose(one.users, other.users)


@pytest.mark.parametrize(
    "wrong", [{"kind": "other"}, {"rank": 0}, {"rank": 20}, {"dim": 500}, {"ridge": 0.0}, {"holdout": 1.0}]
)
def test_impossible_factorisations_are_refused(ratings, tmp_path, wrong):
    with pytest.raises(ModelError, match="cannot be factorised"):
        factorise(ratings, **{"dim": 20, "rank": 5, "cache": tmp_path, **wrong})
