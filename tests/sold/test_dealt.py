"""Guards SOLD on questionnaires: everybody answers the same questions in the same order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.sold.dealt import dealt_batch
from newcomer.subspace import subspace_distance


def answers(users, items, seed=0):
    """Answers (users, items) of people with two preferences, and the directions of these (items, 2)."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((items, 2)))[0]
    preferences = rng.standard_normal((users, 2)) * np.sqrt(items)
    return preferences @ directions.T + 0.5 * rng.standard_normal((users, items)), directions


def questionnaire(table, order=None):
    asked = np.tile(np.arange(table.shape[1]), (len(table), 1)) if order is None else order
    user, reward = np.repeat(np.arange(len(table)), asked.shape[1]), np.take_along_axis(table, asked, axis=1)
    return nc.Logs.from_arrays(user=user, action=asked.ravel(), reward=reward.ravel())


def test_a_questionnaire_in_one_order_is_fitted_as_in_any_order():
    table, directions = answers(800, 12)
    orders = np.argsort(np.random.default_rng(1).random(table.shape), axis=1)
    fixed, mixed = (nc.fit(questionnaire(table, order)) for order in (None, orders))
    assert fixed.evidence.coverage.dealt and not mixed.evidence.coverage.dealt
    assert fixed.rank == mixed.rank and fixed.noise_variance == pytest.approx(mixed.noise_variance, rel=0.02)
    assert np.allclose(fixed.mean, mixed.mean, atol=0.02)
    sold = [nc.fit(questionnaire(table, order), rank=2, estimator="sold") for order in (None, orders)]
    errors = [subspace_distance(model.basis, directions) for model in sold]
    assert errors[0] < 1.5 * errors[1] + 0.02
    assert np.isfinite(fixed.radius()) and "helps" in str(nc.evaluate(questionnaire(table), quick=True).verdict)
    assert not [one for one in nc.check(questionnaire(table)) if one.verdict == "broken"]


def test_many_actions_in_one_order_are_fitted():
    """Above 1,000 actions no d x d matrix is formed; every user takes one of ten courses of 120 lessons."""
    rng = np.random.default_rng(2)
    course = rng.integers(0, 10, 400)
    action = course[:, None] * 120 + np.arange(120)
    reward = rng.standard_normal((400, 1)) * np.sin(action) + rng.standard_normal(action.shape)
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(400), 120), action=action.ravel(), reward=reward.ravel())
    assert logs.wide and nc.fit(logs).evidence.coverage.dealt


def test_sold_as_printed_refuses_such_logs():
    table, _ = answers(60, 6)
    with pytest.raises(LogsError, match="reached by both halves"):
        nc.fit(questionnaire(table), rank=2, estimator="sold", literal=True)


def test_rows_are_dealt_by_the_user_alone():
    table, _ = answers(50, 7)
    logs = questionnaire(table)
    whole = dealt_batch(next(logs.batches()))
    parts = [dealt_batch(batch) for batch in logs.batches(rows=20)]
    assert len(parts) > 5
    assert np.array_equal(np.concatenate([part.rewards for part in parts]), whole.rewards)
    assert np.array_equal(np.sort(whole.rewards.reshape(50, 7), axis=1), np.sort(table, axis=1))
    assert len({tuple(row) for row in whole.actions.reshape(50, 7).tolist()}) > 40
    workers = nc.fit(logs, run=nc.Run(workers=2))
    assert np.allclose(workers.mean, nc.fit(logs).mean, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("skipping", [1, 400])
def test_some_who_skip_a_question_change_nothing(skipping):
    """Then every later question is in both halves of somebody, but pairs of equal parity meet in nobody."""
    table, directions = answers(800, 12)
    users, items = np.divmod(np.arange(table.size), 12)
    asked = (items > 0) | (users >= skipping)
    logs = nc.Logs.from_arrays(user=users[asked], action=items[asked], reward=table.ravel()[asked])
    model = nc.fit(logs, rank=2, estimator="sold")
    assert model.evidence.coverage.dealt and model.noise_variance < 0.5
    assert subspace_distance(model.basis, directions) < 0.1


def test_forms_that_nobody_has_both_of_are_not_dealt():
    """Their pairs never meet, however rows are dealt."""
    table, _ = answers(600, 12)
    rng = np.random.default_rng(3)
    form = np.argsort(rng.random((600, 6)), axis=1) + 6 * (np.arange(600) % 2)[:, None]
    assert not nc.fit(questionnaire(table, form)).evidence.coverage.dealt


def test_moments_that_are_added_are_those_of_all(tmp_path):
    table, _ = answers(600, 8)
    parts = [nc.Logs.from_frame(frame(table, rows)) for rows in (slice(0, 300), slice(300, 600))]
    kept = tmp_path / "old.moments"
    nc.fit(parts[0], rank=2, estimator="sold", run=nc.Run(moments=kept))
    added = nc.fit(parts[1], rank=2, estimator="sold", start=kept)
    whole = nc.fit(nc.Logs.from_frame(frame(table, slice(0, 600))), rank=2, estimator="sold", ridge=1.0)
    assert np.allclose(added.covariance, whole.covariance, rtol=1e-6, atol=1e-9)


def frame(table, rows):
    users = np.arange(len(table))[rows]
    items = table.shape[1]
    columns = {"user": np.repeat(users, items), "action": np.tile(np.arange(items), len(users))}
    return pl.DataFrame({**columns, "reward": table[rows].ravel()})
