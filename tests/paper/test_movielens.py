"""Guards the MovieLens world: reading and filtering the `::` files, finding and fetching them, rounds, logs, moments.

Where the real data is at hand (NEWCOMER_DATA), the counts of the paper are asserted on it; otherwise the same code is
checked on the stand-in alone.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from newcomer.errors import LogsError, NewcomerError
from newcomer.paper.worlds.download import FILES, cache_folder, download_movielens, find_movielens
from newcomer.paper.worlds.movielens import MovieLens
from newcomer.paper.worlds.movielens_standin import write_standin
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.worlds import World
from newcomer.worlds.world import check_world


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder that holds ml-1m/ with the stand-in."""
    return write_standin(tmp_path_factory.mktemp("data")).parent


@pytest.fixture(scope="module")
def load(data, tmp_path_factory):
    return partial(MovieLens.load, data, dim=20, rank=5, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", params=["literal", "balanced"])
def world(request, load):
    return load(kind=request.param)


def _counts(ratings):
    return (*ratings.shape, len(ratings.rating))


def test_the_filter_gives_the_numbers_of_the_paper(data):
    folders = {data / "ml-1m": ((300, 260, 66456), (288, 247, 63954))}
    if real := os.environ.get("NEWCOMER_DATA"):
        folders[find_movielens(real)] = ((6040, 3883, 1000209), (1589, 1426, 547830))
    for folder, (raw, kept) in folders.items():
        ratings = read_ratings(folder)
        assert _counts(ratings) == raw
        assert _counts(ratings.filtered()) == kept


def test_files_are_read_line_by_line(data):
    """Oracle: split every line at '::' and look the ids up."""
    folder = data / "ml-1m"
    ratings = read_ratings(folder)
    lines = [line.split("::") for line in (folder / "ratings.dat").read_text("latin-1").splitlines()]
    found = np.column_stack([ratings.users[ratings.user], ratings.movies[ratings.movie], ratings.rating, ratings.time])
    np.testing.assert_array_equal(found, np.array(lines, dtype=float))
    people = [line.split("::") for line in (folder / "users.dat").read_text("latin-1").splitlines()]
    assert [[str(u), g, str(a)] for u, g, a in zip(ratings.users, ratings.gender, ratings.age, strict=True)] == [
        row[:3] for row in people
    ]
    films = [line.split("::") for line in (folder / "movies.dat").read_text("latin-1").splitlines()]
    rows = zip(ratings.movies, ratings.titles, ratings.genres, strict=True)
    assert [[str(m), t, g] for m, t, g in rows] == films
    assert "é" in ratings.titles[0]


def test_the_filter_counts_once_on_the_raw_ratings(data):
    ratings = read_ratings(data / "ml-1m")
    users = [u for i, u in enumerate(ratings.users) if np.sum(ratings.user == i) >= 215]
    movies = [m for j, m in enumerate(ratings.movies) if np.sum(ratings.movie == j) >= 215]
    kept = ratings.filtered(215)
    assert kept.users.tolist() == users and kept.movies.tolist() == movies
    inside = np.isin(ratings.users[ratings.user], users) & np.isin(ratings.movies[ratings.movie], movies)
    np.testing.assert_array_equal(kept.users[kept.user], ratings.users[ratings.user[inside]])
    np.testing.assert_array_equal(kept.movies[kept.movie], ratings.movies[ratings.movie[inside]])
    np.testing.assert_array_equal(kept.rating, ratings.rating[inside])
    with pytest.raises(LogsError, match="no ratings are left"):
        ratings.filtered(10_000)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ratings.dat", "1::1::5::9\n1::x::5::9\n", r"four integers.*ratings.dat, line 2"),
        ("ratings.dat", "1::1::5::9\n1::1::5\n", r"four integers.*line 2"),
        ("ratings.dat", "", "four integers.*empty"),
        ("ratings.dat", "1::1::5\n", r"four integers.*line 1"),
        ("ratings.dat", "9999::1::5::9\n", "user 9999 is not in the users file"),
        ("users.dat", "1::F\n", r"5 fields.*users.dat, line 1"),
        ("users.dat", "2::F::1::1::1\n1::F::1::1::1\n", "rising order"),
        ("movies.dat", "x::T::Drama\n", "whole numbers"),
        ("movies.dat", "", "empty"),
    ],
)
def test_damaged_files_are_refused_with_their_place(tmp_path, file, text, message):
    folder = write_standin(tmp_path, users=20, movies=30)
    (folder / file).write_text(text)
    with pytest.raises(LogsError, match=message):
        read_ratings(folder)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(LogsError, match=r"users.dat.*pass the folder"):
        read_ratings(tmp_path)


def test_data_is_found_by_path_by_environment_and_in_the_cache(data, tmp_path, monkeypatch):
    monkeypatch.delenv("NEWCOMER_DATA", raising=False)
    assert find_movielens(data) == find_movielens(data / "ml-1m") == data / "ml-1m"
    assert find_movielens(cache=data) == data / "ml-1m"
    with pytest.raises(LogsError, match="set NEWCOMER_DATA to the folder that holds ml-1m/"):
        find_movielens(cache=tmp_path)
    monkeypatch.setenv("NEWCOMER_DATA", str(data))
    assert find_movielens(cache=tmp_path) == data / "ml-1m"


def test_the_cache_is_where_the_desktop_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "newcomer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "newcomer"
    assert cache_folder("here") == Path("here")


@pytest.fixture
def archive(data, tmp_path):
    path = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name in FILES:
            packed.write(data / "ml-1m" / name, f"ml-1m/{name}")
    return path


@pytest.fixture
def server(archive, monkeypatch):
    """A web server on this computer that has the archive; counts how often it is asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(archive.read_bytes())

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "*")
    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/ml-1m.zip", asked
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_a_download_is_checked_unpacked_once_and_shows_the_licence(data, archive, server, tmp_path, capsys):
    url, asked = server
    md5 = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
    folders = [download_movielens(cache=tmp_path / "cache", url=url, md5=md5) for _ in range(2)]
    assert folders == [tmp_path / "cache" / "ml-1m"] * 2
    assert asked == ["/ml-1m.zip"]
    assert sorted(path.name for path in folders[0].iterdir()) == sorted(FILES)
    assert (folders[0] / "ratings.dat").read_bytes() == (data / "ml-1m" / "ratings.dat").read_bytes()
    assert "do not redistribute" in capsys.readouterr().err
    assert find_movielens(cache=tmp_path / "cache") == folders[0] or "NEWCOMER_DATA" in os.environ


def test_another_archive_is_refused_and_nothing_is_unpacked(server, tmp_path):
    with pytest.raises(LogsError, match="not the published one"):
        download_movielens(cache=tmp_path / "cache", url=server[0])
    assert not (tmp_path / "cache").exists()


def test_an_archive_that_cannot_be_unpacked_is_refused(tmp_path):
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"not a zip")
    md5 = hashlib.md5(b"not a zip", usedforsecurity=False).hexdigest()
    with pytest.raises(LogsError, match="cannot be unpacked"):
        download_movielens(cache=tmp_path / "cache", url=broken.as_uri(), md5=md5)


def test_without_a_network_the_message_says_what_to_do_by_hand(tmp_path):
    away = (tmp_path / "nothing.zip").as_uri()
    with pytest.raises(LogsError, match=r"could not be downloaded.*unpack it, and set NEWCOMER_DATA"):
        download_movielens(cache=tmp_path / "cache", url=away)


def test_the_world_keeps_the_contract(world):
    assert isinstance(world, World)
    check_world(world)


def test_a_round_offers_distinct_genre_strings_and_every_movie_can_appear(world):
    rounds = world.candidates(np.random.default_rng(0), 3000)
    assert rounds.shape == (3000, 20)
    assert all(len(set(world.genres[movies])) == 20 for movies in rounds)
    assert len(np.unique(rounds)) == len(world.genres)


def test_genre_strings_and_movies_within_them_are_uniform(world):
    """A movie is offered with probability choices / strings / movies of its string."""
    rounds = world.candidates(np.random.default_rng(1), 20_000)
    strings, shelf, sizes = np.unique(world.genres, return_inverse=True, return_counts=True)
    expected = world.choices / len(strings) / sizes[shelf]
    found = np.bincount(rounds.ravel(), minlength=len(shelf)) / len(rounds)
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected / len(rounds)))


def test_rewards_are_those_of_one_user_with_variance_one_half(world):
    episode = world.episode(np.random.default_rng(4), 400)
    betas, *_ = np.linalg.lstsq(episode.actions.reshape(-1, world.dim), episode.means.ravel(), rcond=None)
    assert np.array_equal(world.catalogue[episode.ids], episode.actions)
    distance = np.linalg.norm(world.factors.users - betas, axis=1)
    assert distance.min() < 1e-8
    noise = (episode.rewards - episode.means).ravel()
    assert noise.var() == pytest.approx(0.5, abs=5 * 0.5 * np.sqrt(2 / len(noise)))


def test_logs_are_uniform_histories_of_movies(world):
    logs = world.logs(users=400, steps=30, seed=1)
    assert (logs.summary.users, logs.summary.rows, logs.dim) == (400, 12_000, 20)
    (batch,) = logs.batches()
    assert set(batch.lengths) == {30}
    np.testing.assert_array_equal(batch.features, world.catalogue[batch.actions])
    strings, shelf = np.unique(world.genres, return_inverse=True)
    share = np.bincount(shelf[batch.actions]) / 12_000
    assert np.all(np.abs(share - 1 / len(strings)) < 5 / np.sqrt(len(strings) * 12_000))


def test_moments_are_those_of_the_logged_users(load):
    world = load(held_out=0.25)
    betas = [world.factors.users[user] for user in world.logged]
    np.testing.assert_allclose(world.mean, np.mean(betas, axis=0))
    np.testing.assert_allclose(world.second_moment, np.mean([np.outer(b, b) for b in betas], axis=0), atol=1e-10)
    np.testing.assert_allclose(world.covariance, np.cov(np.array(betas).T, bias=True), atol=1e-10)


def test_the_basis_holds_every_user(world):
    np.testing.assert_allclose(world.basis.T @ world.basis, np.eye(5), atol=1e-12)
    users = world.factors.users
    np.testing.assert_allclose(users @ world.basis @ world.basis.T, users, atol=1e-9)
    assert np.all(world.basis[np.abs(world.basis).argmax(axis=0), np.arange(5)] > 0)


def test_held_out_newcomers_are_not_in_the_logs(load):
    everyone, apart = load(), load(held_out=0.25)
    assert set(everyone.newcomers) == set(everyone.logged) == set(range(288))
    assert len(apart.newcomers) == 72
    assert set(apart.newcomers) | set(apart.logged) == set(range(288))
    assert not set(apart.newcomers) & set(apart.logged)


@pytest.mark.parametrize(
    "wrong",
    [{"choices": 0}, {"choices": 999}, {"noise_variance": -1.0}, {"held_out": 1.0}, {"genres": np.array(["a"])}],
)
def test_impossible_worlds_are_refused(world, wrong):
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        MovieLens(**{"factors": world.factors, "genres": world.genres, **wrong})


def test_impossible_requests_are_refused(world):
    with pytest.raises(NewcomerError, match="at least one round"):
        world.episode(np.random.default_rng(0), 0)
    with pytest.raises(NewcomerError, match="at least one of each"):
        world.logs(0, 5, 0)
