"""One-hot actions beyond 1,000: nothing of d x d entries is formed, and the answer is that of the dense code."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import newcomer as nc
from newcomer import one_hot
from newcomer.em.optimizer import optimizer_solve_rows
from newcomer.em.pairs import SparsePairs, sparse_pairs_of
from newcomer.em.passes import Passes
from newcomer.em.shrinkage import start_with_shrinkage
from newcomer.errors import ModelError, NewcomerError
from newcomer.one_hot import Diagonal, Diagonals, OneHot, one_hot_gram
from newcomer.subspace import leading_subspace_by_products, subspace_distance
from tests.helpers import close
from tests.oracles.wide import pair_products

ACTIONS = 5000


def plain_ratings(users, actions, *, rows, seed, noise=0.5, again=False):
    """Ratings along one shared direction; popular actions are met more often, and no user meets one twice, unless
    `again` says so."""
    rng = np.random.default_rng(seed)
    taste, level = rng.standard_normal(actions), rng.standard_normal(actions)
    weights = 1.0 / np.arange(5, actions + 5)
    who, what, reward = [], [], []
    for user in range(users):
        own = rng.choice(actions, rng.integers(rows // 2, 2 * rows), replace=again, p=weights / weights.sum())
        who += [user] * len(own)
        what += own.tolist()
        reward += (level[own] + rng.standard_normal() * taste[own] + noise * rng.standard_normal(len(own))).tolist()
    return np.array(who), np.array(what), np.array(reward)


def logs_of(parts):
    return nc.Logs.from_arrays(user=parts[0], action=parts[1], reward=parts[2])


@pytest.fixture
def narrow(monkeypatch):
    """Everything above ten features is wide."""
    monkeypatch.setattr(one_hot, "WIDE", 10)
    monkeypatch.setattr(one_hot, "LARGE", 10)


@pytest.fixture(scope="module")
def many():
    """5,000 actions with text as ids, most of them rare; every one is met."""
    rng = np.random.default_rng(0)
    who, what, reward = plain_ratings(300, ACTIONS, rows=15, seed=1)
    who = np.append(who, rng.integers(0, 300, ACTIONS))
    what = np.array([f"film-{one}" for one in np.append(what, np.arange(ACTIONS))])
    return logs_of((who, what, np.append(reward, rng.standard_normal(ACTIONS))))


@pytest.fixture(scope="module")
def model(many):
    return nc.fit(many)


def test_products_of_what_is_not_written_out() -> None:
    rng = np.random.default_rng(0)
    for constant in (False, True):
        table = OneHot(4, constant=constant)
        dense, weights = table.dense(), rng.standard_normal((table.shape[1], 3))
        values = rng.standard_normal((4, 2))
        close(table @ weights, dense @ weights)
        close(table.T @ values, dense.T @ values)
        close(values.T @ table, values.T @ dense)
        close(table[np.array([2, 0])], dense[[2, 0]])
        close(one_hot_gram(table, np.arange(4.0)), dense.T @ np.diag(np.arange(4.0)) @ dense)
    diagonal, factor = Diagonal(np.arange(1.0, 4.0)), rng.standard_normal((3, 2))
    close(diagonal @ factor, np.diag(diagonal.values) @ factor)
    close(factor.T @ diagonal @ factor, factor.T @ np.diag(diagonal.values) @ factor)
    close((Diagonals(np.ones((2, 3))).sum(axis=0) / 4.0).values, np.full(3, 0.5))


def test_systems_of_rows_are_solved_alike(monkeypatch) -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((3, 3))
    given = rng.random(12), root @ root.T, rng.random(3) + 0.1, rng.standard_normal((12, 3))
    plain = optimizer_solve_rows(*given)
    monkeypatch.setattr(one_hot, "WIDE", 10)
    monkeypatch.setattr(one_hot, "LARGE", 10)
    close(optimizer_solve_rows(*given), plain)


def test_leading_directions_from_products_are_those_of_the_matrix() -> None:
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    matrix = (turn * np.concatenate([[9.0, 5.0, 3.0], rng.uniform(-1, 1, 57)])) @ turn.T
    asked = []

    def products(blocks):
        asked.append(len(blocks))
        return [matrix @ block for block in blocks]

    starts = [rng.standard_normal((60, 5)), rng.standard_normal((60, 5))]
    for values, vectors in leading_subspace_by_products(products, starts, passes=12, wanted=3, tolerance=1e-9):
        close(values[:3], np.array([9.0, 5.0, 3.0]), 1e-8)
        assert subspace_distance(vectors[:, :3], turn[:, :3]) < 1e-7
    assert len(asked) < 12  # one pass serves both, and no more passes are made than are needed


@pytest.mark.parametrize("again", [False, True])
def test_the_start_is_that_of_its_definition(narrow, monkeypatch, again) -> None:
    """The leading directions by passes against the d x d matrix of all pairs, written out naively."""
    monkeypatch.setattr("newcomer.em.pair_moment.PASSES", 8)
    logs = logs_of(plain_ratings(150, 25, rows=8, seed=3, again=again))
    begin = start_with_shrinkage(Passes(logs), None)
    assert isinstance(begin.pairs, SparsePairs)
    everybody = np.ones(len(begin.pairs.users), dtype=bool)
    for buckets in (everybody, np.arange(len(everybody)) % 2 == 0):
        lengths, axes = pair_products(logs, buckets)
        start = begin.start(buckets, 2)
        kept = begin.moment._kept[buckets.tobytes()]
        close(kept[0], lengths[:3], 1e-8)
        assert subspace_distance(kept[1][:, :2], axes[:, :2]) < 1e-6
        assert start.factor.shape == (logs.dim, 2)


def test_sums_do_not_depend_on_batches() -> None:
    logs = logs_of(plain_ratings(60, 25, rows=8, seed=4))
    centre = np.zeros(logs.dim)
    parts = [sparse_pairs_of(batch, actions=logs.dim, centre=centre) for batch in logs.batches(rows=50)]
    whole = sparse_pairs_of(next(logs.batches()), actions=logs.dim, centre=centre)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert len(parts) > 1
    for name, value in vars(whole).items():
        close(getattr(total, name), value, 1e-9)


def test_a_fit_by_passes_is_the_dense_one(monkeypatch) -> None:
    """With the same precision both climb to the same population, whose penalties differ by what their starts do.

    Left alone they may choose another precision of about the same held-out gain: the likelihood is the same.
    """
    logs = logs_of(plain_ratings(600, 30, rows=10, seed=5))
    dense = nc.fit(logs, rank=1, calibrate=False)
    monkeypatch.setattr(one_hot, "WIDE", 10)
    monkeypatch.setattr(one_hot, "LARGE", 10)
    alone, wide = nc.fit(logs, rank=1, calibrate=False), nc.fit(logs, start=dense, calibrate=False)
    covariances = [model.factor @ model.factor.T for model in (dense, wide)]
    assert np.linalg.norm(covariances[0] - covariances[1]) < 0.01 * np.linalg.norm(covariances[0])
    assert np.abs(dense.mean - wide.mean).max() < 0.02
    assert abs(dense.noise_variance / wide.noise_variance - 1) < 0.03
    facts = [model.evidence.population for model in (dense, wide, alone)]
    assert max(abs(facts[0].likelihood - other.likelihood) for other in facts[1:]) < 1e-3
    assert abs(dense.evidence.coverage.lambda_A / wide.evidence.coverage.lambda_A - 1) < 1e-9


def test_five_thousand_actions_from_logs_to_a_decision(model, tmp_path: Path) -> None:
    assert model.dim == ACTIONS and model.spectrum.shape == (24,) and model.evidence.coverage.uncovered > 0
    assert len(model.evidence.coverage.one_half_features) <= 10
    model.save(tmp_path / "m.newcomer")
    loaded = nc.load(tmp_path / "m.newcomer")
    assert loaded == model and np.array_equal(loaded.spectrum, model.spectrum)
    assert loaded.evidence.population.outlook is not None
    ids = list(loaded.action_ids)
    for policy in (nc.PriorUCB(loaded), nc.PriorTS(loaded), nc.EmpiricalArms(loaded), nc.PopulationMean(loaded)):
        state, rng = policy.start(2), np.random.default_rng(0)
        chosen = policy.choose(state, ids=ids, rng=rng)
        for _ in range(2):
            policy.update(state, ids=[ids[chosen[0]], "unheard-of"], reward=[3.0, 1.0])
        scores = policy.scores(state, ids=[*ids[:3], "unheard-of"])
        assert scores.shape == (2, 4) and np.isfinite(scores).all()
        assert type(state).from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()


def test_ids_and_written_out_features_are_scored_alike(model) -> None:
    ids = [model.action_ids[i] for i in (5, 700, 4999)]
    for policy in (nc.PriorUCB(model), nc.EmpiricalArms(model), nc.PopulationMean(model)):
        by_ids, written = policy.start(1), policy.start(1)
        policy.update(by_ids, ids=ids[:1], reward=[2.0])
        policy.update(written, model.features(ids[:1]), [2.0])
        close(policy.scores(by_ids, ids=ids), policy.scores(written, model.features(ids)), 1e-9)


def test_what_would_be_d_by_d_is_refused_in_a_sentence(model) -> None:
    with pytest.raises(ModelError, match=r"covariance of 5,000 features would have 25,000,000 entries"):
        _ = model.covariance
    for refused in (
        lambda: nc.ProBALLUCB(model, horizon=10),
        lambda: nc.LocalUCB(model, horizon=10),
        lambda: model.radius("bernstein"),
    ):
        with pytest.raises(NewcomerError) as caught:
            refused()
        assert "\n" not in str(caught.value)


def test_a_constant_beside_many_actions_is_refused(narrow) -> None:
    logs = nc.Logs.from_arrays(user=[1, 1, 2, 2] * 6, action=np.arange(24) % 12, reward=np.arange(24.0), intercept=True)
    with pytest.raises(NewcomerError, match="a constant beside 12 one-hot actions"):
        nc.fit(logs)


def test_no_array_of_d_by_d_entries_is_made(many) -> None:
    tracemalloc.start()
    try:
        nc.fit(many, rank=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ACTIONS * ACTIONS * 8 / 2  # what is there grows with d, for each of the climbs that share a pass


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("estimator", ["sold", "sold-pinv"])
def test_sold_by_passes_is_the_dense_one(monkeypatch, estimator, literal) -> None:
    """Values to 1e-6 of the largest; the test of the rank, mean, noise and directions are the same."""
    logs = logs_of(plain_ratings(400, 24, rows=8, seed=6, again=True))
    options = {"estimator": estimator, "literal": literal, "rank": 2}
    dense = nc.fit(logs, **options)
    monkeypatch.setattr(one_hot, "WIDE", 10)
    monkeypatch.setattr(one_hot, "LARGE", 10)
    wide = nc.fit(logs, **options)
    kept = len(wide.spectrum)
    assert np.abs(wide.spectrum - dense.spectrum[:kept]).max() < 1e-6 * dense.spectrum[0]
    assert subspace_distance(dense.basis, wide.basis) < 1e-5
    close(wide.mean, dense.mean, 1e-9)
    assert abs(wide.noise_variance / dense.noise_variance - 1) < 1e-6
    tests = [model.evidence.rank.moment for model in (dense, wide)]
    assert tests[0].rank == tests[1].rank
    assert wide.evidence.coverage.correction == ("as printed" if literal else "pair by pair")
    sizes = [model.evidence.radius.square_norm for model in (dense, wide)]
    assert abs(sizes[0] / sizes[1] - 1) < 1e-4
    for draws in zip(*(model.evidence.calibrated.spectral for model in (dense, wide)), strict=True):
        assert abs(draws[0] / draws[1] - 1) < 1e-3
    assert wide.evidence.coverage.bounded == dense.evidence.coverage.bounded
    assert wide.evidence.coverage.bounded_actions == dense.evidence.coverage.bounded_actions
    assert wide.evidence.radius.inverse_norm >= dense.evidence.radius.inverse_norm * (1 - 1e-9)
    assert wide.radius("hoeffding") <= 1 and wide.radius("bernstein") <= 1
    with pytest.raises(ModelError, match="martingale"):
        wide.radius("martingale")


def test_radii_of_many_actions_fall_with_the_number_of_users(narrow, monkeypatch) -> None:
    """Whether pairs are kept or margins are."""
    rng = np.random.default_rng(8)
    taste = rng.standard_normal(24)
    for pairs in (20_000_000, 10):
        monkeypatch.setattr("newcomer.sold.sparse_moments.MOST", pairs)
        norms, radii = [], []
        for users in (400, 6400):
            who = np.repeat(np.arange(users), 8)
            what = np.concatenate([rng.permutation(24)[:8] for _ in range(users)])
            reward = rng.uniform(-1.5, 1.5, users)[who] * taste[what] + rng.uniform(-0.5, 0.5, len(who))
            model = nc.fit(logs_of((who, what, reward)), estimator="sold", rank=1, null=False, calibrate=False)
            norms.append(model.evidence.radius.inverse_norm)
            radii.append(model.radius("hoeffding", clip=False, simplified=True, form="identity"))
        assert norms[1] < 1.05 * norms[0] and radii[1] < 0.4 * radii[0]  # a quarter by the rate


def test_more_pairs_than_are_kept_are_corrected_by_margins(narrow, monkeypatch) -> None:
    """Nobody meets an action twice, and what is met does not depend on what: margins say all, and taste is found."""
    rng = np.random.default_rng(7)
    taste = rng.standard_normal(24)
    who = np.repeat(np.arange(4000), 8)
    what = np.concatenate([rng.permutation(24)[:8] for _ in range(4000)])
    reward = rng.standard_normal(4000)[who] * taste[what] + 0.3 * rng.standard_normal(len(who))
    logs = logs_of((who, what, reward))
    exact = nc.fit(logs, estimator="sold")
    monkeypatch.setattr("newcomer.sold.sparse_moments.MOST", 10)
    margins = nc.fit(logs, estimator="sold")
    assert margins.evidence.coverage.correction == "by margins"
    assert exact.rank == margins.rank == 1
    assert subspace_distance(exact.basis, margins.basis) < 0.02
    assert abs(exact.spectrum[0] / margins.spectrum[0] - 1) < 0.02
    assert subspace_distance(margins.basis, (taste / np.linalg.norm(taste))[:, None]) < 0.05


def test_movielens_as_everybody_has_it(tmp_path: Path) -> None:
    """The CSV with its own column names and Unix seconds ends in a model and an outlook: all films, one user in ten."""
    import os

    source = Path(os.environ.get("NEWCOMER_DATA", "data")) / "ml-1m" / "ratings.dat"
    if not source.exists():
        return  # the data may not be copied here
    rows = [line.split("::") for line in source.read_text().splitlines()]
    kept = [",".join(row) for row in rows if int(row[0]) % 10 == 0]
    file = tmp_path / "ratings.csv"
    file.write_text("userId,movieId,rating,timestamp\n" + "\n".join(kept) + "\n")
    logs = nc.read_logs(file)
    assert any("userId as user" in line for line in logs.advice) and any("Unix times" in line for line in logs.advice)
    assert logs.wide
    model = nc.fit(logs, rank=2, calibrate=False)
    assert model.rank == 2 and model.evidence.population.outlook is not None
