"""Guards fits of many users: what all of them share is found, also where a sample of them cannot see it."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer import one_hot
from newcomer.checks import shared_preferences
from newcomer.cli.model_summary import model_summary_method_line, model_summary_of
from newcomer.em import fit
from newcomer.em.fit import estimate_population
from newcomer.em.large_logs import shared_in_large_logs
from newcomer.em.passes import Passes, Progress
from newcomer.em.shrinkage import start_with_shrinkage
from newcomer.em.spikes import Spikes, SpikeSearch
from newcomer.logs import disk_store
from newcomer.subspace import subspace_distance
from newcomer.users import user_bucket_signs, user_buckets

USERS, SOME, ACTIONS, ROWS, RANK = 16_000, 500, 60, 5, 2


def world(kind: str, *, size: float = 1.0, users: int = USERS, seed: int = 0) -> tuple[nc.Logs, np.ndarray]:
    """Logs of users who share two directions, which 16,000 users show and 500 do not; and these directions.

    `kind` says what rows have: one-hot actions, actions of a table with features, or features of their own.
    """
    rng = np.random.default_rng([seed, 21])
    dim = ACTIONS if kind == "one-hot" else 12
    table = np.eye(ACTIONS) if kind == "one-hot" else rng.standard_normal((ACTIONS, dim)) / np.sqrt(dim)
    spread = np.sqrt(dim) * np.array([0.42, 0.36]) if kind == "one-hot" else 0.3 * np.sqrt(dim) * np.ones(2)
    directions = size * np.linalg.qr(rng.standard_normal((dim, RANK)))[0] * spread
    mean = 0.3 * rng.standard_normal(dim)
    betas = mean + rng.standard_normal((users, RANK)) @ directions.T
    action = np.argsort(rng.random((users, ACTIONS)), axis=1)[:, :ROWS]
    reward = np.take_along_axis(betas @ table.T, action, axis=1) + rng.standard_normal((users, ROWS))
    rows = {"user": np.repeat(np.arange(users), ROWS), "reward": reward.ravel()}
    if kind == "features":
        return nc.Logs.from_arrays(features=table[action.ravel()], **rows), directions
    more = {} if kind == "one-hot" else {"items": table}
    return nc.Logs.from_arrays(action=action.ravel(), **rows, **more), directions


@pytest.fixture
def few(monkeypatch):
    """A sample that is small, so that few users are many."""
    monkeypatch.setattr(fit, "SAMPLE", SOME)


def test_strengths_by_definition():
    """(lambda + sqrt(lambda^2 - edge^2)) / 2 above the edge, nothing below: a spike of 3 in chance of edge 2 shows at
    3 + 1 / 3."""
    found = Spikes(np.array([3.0 + 1.0 / 3.0, 1.9]), np.eye(2), 2.0).strengths
    np.testing.assert_allclose(found, [3.0, 0.0])


def test_moments_by_definition():
    """The moment of one-hot logs and its edge against sums over users, pair by pair."""
    logs, _ = world("one-hot", users=300)
    begin = start_with_shrinkage(Passes(logs), None)
    moments = SpikeSearch(begin, 3)
    (found,) = moments.of([moments.every])
    batch = next(logs.batches())
    rewards = np.asarray(batch.rewards)
    centre = np.array([rewards[batch.actions == a].mean() for a in range(ACTIONS)])
    met = np.bincount(batch.actions, minlength=ACTIONS)
    squares = np.array([((rewards[batch.actions == a] - centre[a]) ** 2).sum() for a in range(ACTIONS)])
    variance = (squares + 2 * squares.sum() / (met - 1).sum()) / (met - 1 + 2)
    scale = 1.0 / np.sqrt(variance * (met + 1) / len(rewards))
    buckets, signs = user_buckets(batch.hashes, 64), user_bucket_signs(64)
    sums = np.zeros((64, ACTIONS, ACTIONS))
    for n in range(300):
        rows = range(int(batch.offsets[n]), int(batch.offsets[n + 1]))
        for i in rows:
            for j in rows:
                if i != j:
                    a, b = batch.actions[i], batch.actions[j]
                    product = (rewards[i] - centre[a]) * (rewards[j] - centre[b]) * scale[a] * scale[b]
                    sums[buckets[n], a, b] += product / (ROWS * (ROWS - 1))
    flipped = [np.abs(np.linalg.eigvalsh(np.tensordot(one, sums, 1) / 300)).max() for one in signs]
    assert found.edge == pytest.approx(np.mean(flipped))
    whole = sums.sum(axis=0) / 300
    for _ in range(10):  # its diagonal is that of the directions above the edge
        values, vectors = np.linalg.eigh(whole)
        above = values > found.edge
        above[:-3] = False
        strengths = (values[above] + np.sqrt(values[above] ** 2 - found.edge**2)) / 2
        whole = whole - np.diag(np.diag(whole)) + np.diag(vectors[:, above] ** 2 @ strengths)
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(whole)[::-1][:3])
    half = np.arange(64) % 2 == 0
    users = begin.pairs.users
    assert moments.of([half])[0].edge == pytest.approx(found.edge * np.sqrt(300 / users[half].sum()))


@pytest.mark.parametrize("kind", ["one-hot", "wide", "items", "features"])
def test_what_a_sample_cannot_see_is_found_by_all(few, monkeypatch, kind):
    logs, truth = world("one-hot" if kind == "wide" else kind)
    monkeypatch.setattr(one_hot, "WIDE", 20 if kind == "wide" else 1000)
    heard: list[Progress] = []
    model = nc.fit(logs, null=False, run=nc.Run(listen=heard.append))
    facts = model.evidence.population
    alone = nc.fit(logs.some(lambda hashes: hashes % np.uint64(64) == 0), null=False)  # half as many as the sample
    assert alone.evidence.population.directions < RANK
    assert facts.by_all and facts.directions == RANK and facts.passes <= 24 and facts.sample is not None
    assert facts.ranks.certainty > 5 and facts.ranks.chosen == RANK
    assert heard[-1].passes <= heard[-1].most <= 24
    lengths = np.linalg.norm(model.factor, axis=0)
    np.testing.assert_allclose(lengths, np.linalg.norm(truth, axis=0), rtol=0.35)
    found, true = (np.linalg.qr(one)[0] for one in (model.factor, truth))
    assert subspace_distance(found, true) < 0.6
    assert subspace_distance(found, true) <= model.radius("calibrated", delta=0.1)
    assert facts.outlook is not None and facts.outlook.steps[0].people > 100
    assert "estimated on all users (a sample of" in model_summary_method_line(model_summary_of(model))


def test_where_nothing_is_shared_all_users_find_nothing(few):
    for seed in range(3):
        logs, _ = world("one-hot", size=0.0, seed=seed)
        facts = estimate_population(Passes(logs)).facts
        assert facts.directions == 0 and not facts.by_all and facts.ranks.certainty < 3.1


def test_a_rank_that_is_asked_for_keeps_the_strength_that_all_users_show(few):
    logs, truth = world("one-hot")
    found = estimate_population(Passes(logs), rank=RANK)
    assert found.facts.by_all and found.facts.ranks is None and found.facts.passes <= 24
    lengths = np.linalg.norm(found.population.factor, axis=0)
    np.testing.assert_allclose(lengths, np.linalg.norm(truth, axis=0), rtol=0.35)


def test_the_sample_stands_where_it_sees_as_much(few):
    """Long histories of few actions: EM's search on the sample is not beaten, and its answer is what it was."""
    logs, _ = world("one-hot", size=3.0, users=2000)
    found = estimate_population(Passes(logs))
    assert found.facts.directions == RANK and found.facts.sample is not None


def test_workers_and_batches_choose_alike(few, monkeypatch, crew):
    logs, _ = world("one-hot")
    alone = estimate_population(Passes(logs))
    monkeypatch.setattr("newcomer.em.passes.CODED", 7000)
    pieces = estimate_population(Passes(logs))
    monkeypatch.setattr(disk_store, "TASKS", (1, 12))
    shared_out = estimate_population(Passes(logs.on(crew)))
    for other in (pieces, shared_out):
        assert other.facts.by_all and other.facts.passes == alone.facts.passes
        np.testing.assert_allclose(np.abs(other.population.factor), np.abs(alone.population.factor), atol=1e-6)


def test_a_fit_by_all_is_resumed_to_the_same_answer(few, tmp_path):
    logs, _ = world("one-hot")
    whole = nc.fit(logs, null=False)

    def stop(told: Progress) -> None:
        if not told.sampled and told.stage == "fitting everybody" and told.passes >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(logs, null=False, run=nc.Run(checkpoint=tmp_path / "journal", listen=stop))
    found = nc.fit(logs, null=False, run=nc.Run(checkpoint=tmp_path / "journal", resume=True))
    assert found.id == whole.id and found.evidence == whole.evidence
    again = nc.fit(logs, null=False, start=found)
    assert again.evidence.population.directions == RANK


def test_the_check_asks_all_users_where_a_sample_shows_nothing(monkeypatch):
    logs, _ = world("one-hot")
    monkeypatch.setattr("newcomer.checks.residuals.MOST", SOME)
    assert nc.check(logs, fit=False)["shared preferences"].verdict == "doubtful"
    monkeypatch.setattr(shared_preferences, "MOST", SOME)
    found = nc.check(logs, fit=False)["shared preferences"]
    assert found.verdict == "fine" and "Over all 16,000 users" in found.what and found.p_value < 1e-3
    nobody, _ = world("one-hot", size=0.0)
    found = nc.check(nobody, fit=False)["shared preferences"]
    assert found.verdict == "doubtful" and "together show no more" in found.what


def test_that_some_users_give_more_than_others_is_no_taste():
    rng = np.random.default_rng(3)
    action = np.argsort(rng.random((4000, 20)), axis=1)[:, :5]
    reward = rng.standard_normal((4000, 1)) + rng.standard_normal((4000, 5))
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(4000), 5), action=action.ravel(), reward=reward.ravel())
    passes = Passes(logs)
    sure, share = shared_in_large_logs(passes, start_with_shrinkage(passes, None))
    assert sure < 3.1 and share < 0.01
