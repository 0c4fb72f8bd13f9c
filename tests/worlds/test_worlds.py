"""Guards the worlds: Definition 1 as stated, the same users whatever is asked, logs on disk equal to logs in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from newcomer._fit import fit
from newcomer.errors import NewcomerError
from newcomer.subspace import subspace_distance
from newcomer.worlds import Newcomers, Synthetic, World, stream
from newcomer.worlds.world import check_world

SMALL = Synthetic(dim=6, rank=2, choices=4, seed=3)


def flat(world, users, steps, seed):
    parts = list(world.histories(users, steps, seed))
    names = ("user", "step", "features", "reward")
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def newcomers(world, users=400):
    """Reward vectors, read back from noise-free episodes by least squares."""
    clean = replace(world, noise=0.0)
    episodes = [clean.episode(stream(7, "test", user), 12) for user in range(users)]
    return np.array([np.linalg.lstsq(e.actions[:, 0], e.means[:, 0])[0] for e in episodes])


def test_the_two_scales_of_the_simulation_study_are_named():
    assert Synthetic.printed().scale == pytest.approx(2.5 / (2 * 50))
    assert Synthetic.learnable().scale == 1.25
    assert Synthetic.printed(seed=4).factor.max() < 0.025
    assert 1.0 < Synthetic.learnable(seed=4).factor.max() < 1.25


def test_worlds_meet_the_protocols():
    assert isinstance(SMALL, World) and isinstance(SMALL, Newcomers)


def test_an_episode_has_every_outcome_and_unit_features():
    episode = SMALL.episode(stream(0, "test"), 9)
    assert episode.actions.shape == (9, 4, 6) and episode.means.shape == episode.rewards.shape == (9, 4)
    assert np.allclose(np.linalg.norm(episode.actions, axis=-1), 1.0)
    assert np.array_equal(episode.best, episode.means.max(axis=1))


def test_an_episode_depends_on_its_generator_alone():
    first, again = (SMALL.episode(stream(5, "test", 1), 9) for _ in range(2))
    other = SMALL.episode(stream(5, "test", 2), 9)
    assert np.array_equal(first.rewards, again.rewards) and not np.array_equal(first.rewards, other.rewards)


def test_rewards_have_the_stated_noise():
    for tails in ("gaussian", "heavy"):
        episode = replace(SMALL, noise_tails=tails).episode(stream(0, "test"), 20_000)
        assert np.std(episode.rewards - episode.means) == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize("latents", ["gaussian", "heavy", "clusters"])
def test_moments_are_those_of_the_users(latents):
    world = Synthetic(dim=5, rank=2, latents=latents, offset=0.3, seed=1)
    betas = newcomers(world, users=6000)
    size = np.abs(world.second_moment).max()
    assert np.abs(betas.mean(axis=0) - world.mean).max() < 0.05 * np.sqrt(size)
    assert np.abs(betas.T @ betas / len(betas) - world.second_moment).max() < 0.08 * size
    assert np.allclose(world.covariance + np.outer(world.mean, world.mean), world.second_moment)
    assert np.linalg.eigvalsh(world.covariance).min() > -1e-12


def test_plain_svd_of_noise_free_users_recovers_the_basis():
    found = np.linalg.svd(newcomers(SMALL, users=20).T)[0][:, :2]
    assert np.linalg.norm(found @ found.T - SMALL.basis @ SMALL.basis.T, 2) < 1e-9
    assert np.allclose(SMALL.basis.T @ SMALL.basis, np.eye(2))
    assert (SMALL.basis[np.abs(SMALL.basis).argmax(axis=0), [0, 1]] > 0).all()


@pytest.mark.parametrize("outside", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("length", [None, 1.0, 6.0])
def test_newcomers_stand_at_the_stated_angle_and_length(outside, length):
    betas = newcomers(replace(SMALL, outside=outside, length=length), users=30)
    norms = np.linalg.norm(betas, axis=1)
    away = np.linalg.norm(betas - betas @ SMALL.basis @ SMALL.basis.T, axis=1)
    assert np.allclose(away, outside * norms, atol=1e-9)
    expected = np.linalg.norm(newcomers(SMALL, users=30), axis=1) if length is None else length
    assert np.allclose(norms, expected)


@pytest.mark.parametrize("world", [SMALL, replace(SMALL, items=9)])
def test_the_first_users_are_the_same_for_any_number_of_users(world):
    few, many = flat(world, 300, (2, 7), 0), flat(world, 600, (2, 7), 0)
    for name, values in few.items():
        assert np.array_equal(values, many[name][: len(values)])
    assert few["user"][-1] == 299 and not np.array_equal(flat(world, 300, (2, 7), 1)["reward"], few["reward"])


def test_histories_are_ragged_between_the_stated_lengths():
    logs = flat(SMALL, 500, (2, 7), 0)
    lengths = np.bincount(logs["user"])
    assert lengths.min() == 2 and lengths.max() == 7 and set(np.bincount(flat(SMALL, 50, 4, 0)["user"])) == {4}
    starts = np.cumsum(lengths) - lengths
    assert (logs["step"][starts] == 0).all() and (logs["step"][starts + lengths - 1] == lengths - 1).all()


def test_logs_come_from_the_population_whatever_newcomers_do():
    stray = replace(SMALL, outside=1.0, length=3.0)
    assert np.array_equal(flat(stray, 40, 5, 0)["reward"], flat(SMALL, 40, 5, 0)["reward"])


@pytest.mark.parametrize("world", [SMALL, replace(SMALL, items=9)])
def test_logs_in_memory_hold_the_histories(world):
    logs, rows = world.logs(300, (2, 7), seed=0), flat(world, 300, (2, 7), 0)
    assert (logs.summary.users, logs.summary.rows, logs.summary.dim) == (300, len(rows["user"]), 6)
    (batch,) = logs.batches(10_000)
    user, order = (
        np.repeat(batch.users, batch.lengths),
        np.argsort(np.repeat(batch.users, batch.lengths), kind="stable"),
    )
    assert np.array_equal(user[order], rows["user"]) and np.array_equal(batch.rewards[order], rows["reward"])
    assert np.array_equal(batch.features[order], rows["features"])


@pytest.mark.parametrize("world", [SMALL, replace(SMALL, items=9, outside=0.5), Synthetic.printed()])
def test_our_worlds_keep_the_contract(world):
    check_world(world)


def test_the_contract_notices_what_breaks_it():
    class Forgetful:
        """Draws from a generator of its own."""

        dim, own = 6, np.random.default_rng(0)

        def episode(self, rng, horizon):
            return SMALL.episode(self.own, horizon)

    class Biased:
        """Pays more than it says."""

        dim = 6

        def episode(self, rng, horizon):
            episode = SMALL.episode(rng, horizon)
            return replace(episode, rewards=episode.rewards + 1.0)

    class Lying(Biased):
        dim = 7

    class Monotonous(Biased):
        """Everyone is the same."""

        def episode(self, rng, horizon):
            return SMALL.episode(stream(0, "test"), horizon)

    for world, complaint in [
        (Forgetful, "generator alone"),
        (Biased, "centred"),
        (Lying, "shape"),
        (Monotonous, "alike"),
    ]:
        with pytest.raises(AssertionError, match=complaint):
            check_world(world())


def read(folder: Path) -> list[pl.DataFrame]:
    return [pl.read_parquet(part) for part in sorted(folder.iterdir())]


def test_written_logs_equal_the_histories(tmp_path):
    rows = flat(SMALL, 300, (2, 7), 0)
    SMALL.write_logs(tmp_path / "logs.parquet", 300, (2, 7), 0)
    frame = pl.read_parquet(tmp_path / "logs.parquet")
    assert frame.columns == ["user", "step", "features", "reward"]
    for name in ("user", "step", "reward"):
        assert np.array_equal(frame[name].to_numpy(), rows[name])
    assert np.array_equal(np.stack(frame["features"].to_list()), rows["features"])


def test_parts_hold_the_same_rows_grouped_or_as_they_happened(tmp_path):
    SMALL.write_logs(tmp_path / "one.parquet", 300, (2, 7), 0)
    whole = pl.read_parquet(tmp_path / "one.parquet")
    SMALL.write_logs(tmp_path / "grouped", 300, (2, 7), 0, files=3)
    SMALL.write_logs(tmp_path / "mixed", 300, (2, 7), 0, files=3, grouped=False)
    grouped, mixed = read(tmp_path / "grouped"), read(tmp_path / "mixed")
    assert pl.concat(grouped).equals(whole) and [part["user"].n_unique() for part in grouped] == [100, 100, 100]
    assert pl.concat(mixed).sort("user", "step").equals(whole)
    assert max(part["user"].n_unique() for part in mixed) > 200 and not mixed[0]["user"].is_sorted()


def test_a_catalogue_logs_ids_and_writes_its_items(tmp_path):
    world = replace(SMALL, items=9)
    world.write_logs(tmp_path / "logs.parquet", 300, 3, 0)
    world.write_items(tmp_path / "items.parquet")
    rows, items = pl.read_parquet(tmp_path / "logs.parquet"), pl.read_parquet(tmp_path / "items.parquet")
    assert rows.columns == ["user", "step", "action", "reward"] and items["action"].to_list() == list(range(9))
    features = np.stack(rows.join(items, on="action", maintain_order="left")["features"].to_list())
    assert np.array_equal(features, flat(world, 300, 3, 0)["features"])


def test_a_round_of_a_catalogue_offers_distinct_items():
    world = replace(SMALL, items=5)
    episode = world.episode(stream(0, "test"), 50)
    for offered in episode.actions:
        assert len(np.unique(offered, axis=0)) == 4
    assert np.array_equal(world.catalogue[episode.ids], episode.actions)
    assert SMALL.episode(stream(0, "test"), 50).ids is None


@pytest.mark.parametrize(
    "wrong",
    [{"rank": 7}, {"rank": 0}, {"scale": 0.0}, {"noise": -1.0}, {"outside": 1.5}, {"outside": 0.5, "rank": 6}]
    + [{"length": -1.0}, {"items": 3}, {"choices": 0}, {"latents": "odd"}, {"noise_tails": "odd"}],
)
def test_impossible_worlds_are_refused(wrong):
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        replace(SMALL, **wrong)


def test_impossible_requests_are_refused(tmp_path):
    for users, steps in [(0, 5), (5, 0), (5, (4, 3))]:
        with pytest.raises(NewcomerError):
            list(SMALL.histories(users, steps, 0))
    with pytest.raises(NewcomerError, match="seed"):
        list(SMALL.histories(5, 5, -1))
    with pytest.raises(NewcomerError, match="no items"):
        SMALL.write_items(tmp_path / "items.parquet")
    with pytest.raises(NewcomerError, match="files=0"):
        SMALL.write_logs(tmp_path / "logs.parquet", 5, 5, 0, files=0)
    with pytest.raises(NewcomerError, match="horizon=0"):
        SMALL.episode(stream(0, "test"), 0)


def test_5000_users_reveal_the_learnable_subspace_and_not_the_printed_one():
    for make, found in [(Synthetic.learnable, True), (Synthetic.printed, False)]:
        world = make(seed=1)
        error = subspace_distance(
            fit(world.logs(5000, 20, seed=1), rank=2, estimator="sold", null=False).basis, world.basis
        )
        assert error < 0.2 if found else error > 0.9
