"""Guards the replay of real ratings: nothing learned of a newcomer, no movie offered twice, ratings as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from newcomer.errors import NewcomerError
from newcomer.paper.worlds.movielens_standin import write_standin
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.paper.worlds.replay import Replay, split_users
from newcomer.worlds import World, stream


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_standin(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def world(data, tmp_path_factory):
    return Replay.load(data, dim=20, rank=5, cache=tmp_path_factory.mktemp("cache"))


def _given(world):
    """(features as bytes, rating) pairs that each test user really gave."""
    out = {}
    for user, movie, rating in zip(world.test.user, world.test.movie, world.test.rating, strict=True):
        out.setdefault(user, {})[world.catalogue[movie].tobytes()] = rating
    return out


def test_newcomers_are_apart_from_the_training_users(world, data):
    everyone = read_ratings(data).filtered()
    assert len(world.test.users) == round(0.3 * len(everyone.users))
    assert sorted([*world.train.users, *world.test.users]) == everyone.users.tolist()
    np.testing.assert_array_equal(world.train.movies, world.test.movies)
    assert len(world.train.rating) + len(world.test.rating) == len(everyone.rating)


def test_features_do_not_depend_on_the_newcomers_ratings(world, data, tmp_path):
    train, test = split_users(read_ratings(data).filtered(), 0.3, seed=0)
    other = replace(test, rating=6.0 - test.rating)
    again = Replay.load(data, dim=20, rank=5, cache=tmp_path)
    assert again.train.fingerprint == train.fingerprint
    np.testing.assert_array_equal(Replay(train, other, again.factors).catalogue, world.catalogue)


def test_a_newcomer_is_offered_own_movies_once_and_gets_own_ratings(world):
    assert isinstance(world, World)
    given = _given(world)
    for seed in range(5):
        episode = world.episode(np.random.default_rng(seed), 15)
        assert episode.actions.shape == (15, 10, 20)
        assert np.array_equal(world.catalogue[episode.ids], episode.actions)
        shown = [features.tobytes() for features in episode.actions.reshape(-1, 20)]
        assert len(set(shown)) == 150
        ratings = dict(zip(shown, episode.rewards.ravel(), strict=True))
        assert any(ratings.items() <= own.items() for own in given.values())
        np.testing.assert_array_equal(episode.means, episode.rewards)


def test_an_episode_depends_on_its_generator_alone(world):
    one, same, other = (world.episode(stream(seed, "x"), 5) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.actions, same.actions)
    assert not np.array_equal(one.rewards, other.rewards)


def test_only_users_with_enough_ratings_can_be_replayed(world):
    counts = [np.sum(world.test.user == user) for user in range(len(world.test.users))]
    most = max(counts) // 10
    for horizon in (1, 20, 22, most, most + 1):
        expected = [user for user, count in enumerate(counts) if count >= 10 * horizon]
        assert world.eligible(horizon).tolist() == expected
    with pytest.raises(NewcomerError, match=f"at most {most} rounds"):
        world.episode(np.random.default_rng(0), most + 1)


def test_logs_are_the_real_histories_in_time_order(world):
    logs = world.logs()
    assert (logs.summary.users, logs.summary.rows) == (len(world.train.users), len(world.train.rating))
    train = world.train
    for batch in logs.batches():
        for index, user in enumerate(batch.users):
            mine = np.flatnonzero(train.users[train.user] == user)
            mine = mine[np.argsort(train.time[mine], kind="stable")]
            rows = slice(batch.offsets[index], batch.offsets[index + 1])
            np.testing.assert_array_equal(batch.rewards[rows], train.rating[mine])
            np.testing.assert_array_equal(batch.actions[rows], train.movie[mine])


def test_fewer_users_and_steps_are_a_sample_of_the_histories(world):
    few, more = world.logs(users=10, steps=8, seed=3), world.logs(users=20, steps=8, seed=3)
    rows = [_rows(logs) for logs in (few, more)]
    assert len(rows[0]) == 80 and len(rows[1]) == 160
    assert set(rows[0]) <= set(rows[1]) <= set(_rows(world.logs()))


def _rows(logs):
    """(user, movie, rating) of every row."""
    batches = list(logs.batches())
    return [
        row
        for batch in batches
        for row in zip(np.repeat(batch.users, batch.lengths).tolist(), batch.actions.tolist(), batch.rewards.tolist())
    ]


def test_impossible_replays_are_refused(world):
    with pytest.raises(NewcomerError, match="keep the users apart"):
        Replay(world.train, world.train, world.factors)
    with pytest.raises(NewcomerError, match="same movies"):
        Replay(world.train, world.test.filtered(80), world.factors)
    with pytest.raises(NewcomerError, match="at least one movie"):
        Replay(world.train, world.test, world.factors, choices=0)
    with pytest.raises(NewcomerError, match="at least one round"):
        world.episode(np.random.default_rng(0), 0)
    for wrong in ({"users": 9999}, {"users": 0}, {"steps": 0}):
        with pytest.raises(NewcomerError):
            world.logs(**wrong)
    for share in (0.0, 1.0, 1e-6):
        with pytest.raises(NewcomerError):
            split_users(world.train, share, seed=0)
