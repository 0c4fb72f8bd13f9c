"""Guards fits of many users: what is chosen by a sample of them, who is in it, and that everybody is fitted from
there."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.em import fit
from newcomer.em.fit import estimate_population
from newcomer.em.passes import Passes, Progress
from newcomer.logs.reduce import reduce
from newcomer.logs.sample import sample_logs
from newcomer.subspace import subspace_distance
from newcomer.worlds import Synthetic

SOME = 600


@pytest.fixture
def few(monkeypatch):
    """A sample that is small, so that few users are many."""
    monkeypatch.setattr(fit, "SAMPLE", SOME)


def rows_of(logs):
    """Hash, reward and features of every row, in order."""
    batches = list(logs.batches())
    hashes = np.concatenate([np.repeat(batch.hashes, batch.lengths) for batch in batches])
    return hashes, *(np.concatenate([getattr(batch, name) for batch in batches]) for name in ("rewards", "features"))


@pytest.mark.parametrize("kind", ["features", "constant", "items", "one-hot"])
def test_the_sample_depends_on_ids_alone(kind):
    rng = np.random.default_rng(0)
    user, action = rng.permutation(np.repeat(np.arange(500), 4)), rng.integers(0, 7, 2000)
    step, table = np.arange(2000), rng.standard_normal((7, 3))
    given = {"features": table[action]} if kind in ("features", "constant") else {"action": action}
    more = {"items": table} if kind == "items" else {"intercept": kind == "constant"}

    def logs(order):
        picked = {name: value[order] for name, value in given.items()}
        reward = np.sin(action + user)
        return nc.Logs.from_arrays(user=user[order], step=step[order], reward=reward[order], **picked, **more)

    whole = logs(np.arange(2000))
    first = sample_logs(whole, 150)
    assert 110 < first.summary.users < 190 and first.dim == whole.dim and first.action_ids == whole.action_ids

    def by_small_batches(map, merge):
        return reduce(whole, map, merge, rows=50)

    for other in (sample_logs(logs(rng.permutation(2000)), 150), sample_logs(whole, 150, run=by_small_batches)):
        assert other.summary == first.summary
        for a, b in zip(rows_of(first), rows_of(other), strict=True):
            np.testing.assert_array_equal(a, b)
    # Histories are whole, and as they were.
    where = np.isin(rows_of(whole)[0], rows_of(first)[0])
    for a, b in zip(rows_of(whole), rows_of(first), strict=True):
        kept = a[where]
        np.testing.assert_array_equal(kept[np.argsort(rows_of(whole)[0][where], kind="stable")], b)


def test_workers_hand_over_the_same_sample(crew):
    logs = Synthetic.learnable(dim=4, seed=1).logs(6000, 8, seed=1)
    alone, by_two = sample_logs(logs, 200), sample_logs(logs.on(crew), 200)
    assert logs.on(crew).engine is by_two.engine is crew
    for a, b in zip(rows_of(alone), rows_of(by_two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_where_rows_are_long_the_sample_is_smaller(monkeypatch):
    monkeypatch.setattr("newcomer.logs.sample.ROOM", 100 * 8 * (12 + 8 * 4))
    logs = Synthetic.learnable(dim=4, seed=1).logs(2000, 8, seed=1)
    assert 60 < sample_logs(logs, 1000).summary.users < 140


@pytest.mark.parametrize("items", [None, 40])
def test_many_users_are_fitted_from_what_a_sample_chose(few, monkeypatch, items):
    """At most 16 passes over all rows, to the answer of a fit by which all users choose: within what sampling leaves
    open."""
    world = Synthetic(dim=8, rank=2, items=items, seed=2)
    logs = world.logs(8 * SOME, 10, seed=2)
    heard: list[Progress] = []
    found = nc.fit(logs, null=False, run=nc.Run(listen=heard.append))
    facts = found.evidence.population
    assert abs(facts.sample.users - SOME) < 100 and facts.sample.rows == 10 * facts.sample.users
    assert facts.passes <= 17 and facts.users == 8 * SOME and not facts.by_all
    of_all = [told for told in heard if not told.sampled]
    assert [told.passes for told in of_all] == list(range(of_all[0].passes, facts.passes))  # and one for everybody
    assert {told.most for told in heard if told.sampled} == {None} and of_all[-1].most <= 17
    assert max(told.passes for told in heard if told.sampled) < facts.sample.passes  # the outlook is theirs, too
    monkeypatch.setattr(fit, "SAMPLE", 10**6)
    whole = nc.fit(logs, null=False)
    assert whole.evidence.population.sample is None and found.rank == whole.rank == 2
    assert facts.likelihood == pytest.approx(whole.evidence.population.likelihood, abs=2e-4)
    # A variance of n people has a standard error of sqrt(2 / n): the two differ by less than two of these.
    values = [np.linalg.eigvalsh(model.covariance)[::-1][:2] for model in (found, whole)]
    np.testing.assert_allclose(values[0], values[1], rtol=2 * np.sqrt(2 / (8 * SOME)))
    assert subspace_distance(found.basis, whole.basis) < 0.3 * whole.radius(delta=0.5)
    assert facts.outlook is not None


def test_the_error_told_by_a_sample_is_that_told_by_all(monkeypatch):
    """Draws scaled from a sixth of the users to all, against draws by all, in six worlds with 250 users in an eighth of
    the sample: the geometric means agree within 10%, and each within 40%, as eighths of a sample vary."""
    ratios = []
    for seed in range(6):
        logs = Synthetic.learnable(dim=8, seed=seed).logs(12_000, 12, seed=seed)
        monkeypatch.setattr(fit, "SAMPLE", 2000)
        scaled = estimate_population(Passes(logs), rank=2, calibrate=True).draws(2)
        monkeypatch.setattr(fit, "SAMPLE", 10**6)
        direct = estimate_population(Passes(logs), rank=2, calibrate=True).draws(2)
        ratios.append(np.mean(np.log(scaled.frobenius)) - np.mean(np.log(direct.frobenius)))
    assert abs(np.mean(ratios)) < np.log(1.1), np.exp(ratios)
    assert np.abs(ratios).max() < np.log(1.4), np.exp(ratios)


def test_a_fit_from_a_sample_is_resumed_to_the_same_answer(few, tmp_path):
    logs = Synthetic.learnable(dim=6, seed=3).logs(3 * SOME, 8, seed=3)
    whole = nc.fit(logs, rank=2, null=False)

    def stop(told: Progress) -> None:
        if not told.sampled and told.passes == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(logs, rank=2, null=False, run=nc.Run(checkpoint=tmp_path / "journal", listen=stop))
    kept = len(list((tmp_path / "journal").iterdir()))
    assert kept > whole.evidence.population.sample.passes / 2
    found = nc.fit(logs, rank=2, null=False, run=nc.Run(checkpoint=tmp_path / "journal", resume=True))
    assert found.id == whole.id and found.evidence == whole.evidence


def test_a_refit_of_many_users_asks_a_sample_how_sure_it_is(few):
    world = Synthetic.learnable(dim=6, seed=4)
    old, logs = nc.fit(world.logs(900, 8, seed=1), rank=2, null=False), world.logs(3 * SOME, 8, seed=2)
    found = nc.fit(logs, start=old, null=False)
    assert found.evidence.population.passes <= 15
    for norm in ("spectral", "frobenius"):
        assert subspace_distance(found.basis, world.basis, norm=norm) <= found.radius(
            "calibrated", delta=0.01, norm=norm
        )
