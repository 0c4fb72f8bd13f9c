"""Guards the checks on layouts of real life: sound logs are not accused, and what is wrong is named."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import newcomer as nc

USERS, ITEMS = 600, 20


def people(seed: int = 0, users: int = USERS, items: int = ITEMS):
    """Answers (users, items) of people with two preferences, from 1 to 5."""
    rng = np.random.default_rng(seed)
    likes = rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))
    return np.clip(np.rint(3 + likes + 0.7 * rng.standard_normal(likes.shape)), 1, 5)


def finding(logs, name):
    return next(one for one in nc.check(logs, fit=False) if one.name == name)


def test_a_file_that_is_sorted_by_reward_is_not_accused():
    rng, table = np.random.default_rng(1), people()
    action = np.argsort(rng.random(table.shape), axis=1)[:, :10]
    reward = np.take_along_axis(table, action, axis=1)
    order = np.argsort(reward, axis=1, kind="stable")
    rows = {"user": np.repeat(np.arange(USERS), 10)}
    rows |= {"action": np.take_along_axis(action, order, axis=1).ravel(), "reward": np.sort(reward, axis=1).ravel()}
    found = nc.check(nc.read_logs(pl.DataFrame(rows)), fit=False)
    assert not [one.name for one in found if one.verdict == "broken"]
    drift = next(one for one in found if one.name == "drift")
    assert drift.verdict == "unknowable" and "was sorted" in drift.what and "step" in drift.advice


def test_a_panel_that_asks_everybody_the_same_again_is_not_accused():
    table = people(items=4)
    rng = np.random.default_rng(2)
    reward = np.tile(table, (1, 2)) + 0.3 * rng.standard_normal((USERS, 8))
    user, action = np.repeat(np.arange(USERS), 8), np.tile(np.arange(8) % 4, USERS)
    found = finding(nc.Logs.from_arrays(user=user, action=action, reward=reward.ravel()), "contexts")
    assert found.verdict == "fine" and "same set of actions" in found.what


def test_actions_that_a_kind_of_users_never_met_are_named():
    rng = np.random.default_rng(3)
    kind = rng.integers(0, 2, USERS)
    action = np.where(kind[:, None] == 0, rng.integers(0, 5, (USERS, 10)), rng.integers(5, 10, (USERS, 10)))
    rows = {"user": np.repeat(np.arange(USERS), 10), "action": action.ravel(), "reward": rng.random(10 * USERS)}
    attributes = pl.DataFrame({"user": np.arange(USERS), "kind": np.array(["x", "y"])[kind]})
    found = finding(nc.Logs.from_arrays(**rows, attributes=attributes), "attributes and logging")
    assert found.verdict == "doubtful" and "10 of 10 actions" in found.what and "kind=" in found.what
    rows["action"] = rng.integers(0, 10, 10 * USERS)
    assert finding(nc.Logs.from_arrays(**rows, attributes=attributes), "attributes and logging").verdict == "fine"


@pytest.mark.parametrize(("code", "verdict"), [(-1.0, "doubtful"), (99.0, "doubtful"), (6.0, "fine")])
def test_a_code_for_no_answer_is_pointed_out(code, verdict):
    rng, table = np.random.default_rng(4), people()
    reward = np.where(rng.random(table.shape) < 0.3, code, table)
    logs = nc.Logs.from_arrays(
        user=np.repeat(np.arange(USERS), ITEMS), action=np.tile(np.arange(ITEMS), USERS), reward=reward.ravel()
    )
    found = finding(logs, "rewards")
    assert found.verdict == verdict
    assert code != -1.0 or "30% of them are -1" in found.what


def test_features_without_a_constant_are_doubtful():
    rng = np.random.default_rng(5)
    features = rng.standard_normal((USERS * 10, 3))
    for level, intercept, verdict in ((8.0, False, "doubtful"), (8.0, True, "fine"), (0.0, False, "fine")):
        rows = {"user": np.repeat(np.arange(USERS), 10), "features": features}
        logs = nc.Logs.from_arrays(**rows, reward=level + features[:, 0] + rng.random(10 * USERS), intercept=intercept)
        found = finding(logs, "coverage")
        assert found.verdict == verdict and ("intercept" in found.advice) == (verdict == "doubtful")


@pytest.mark.parametrize("zone", ["Z", "+02:00", ""])
def test_times_with_a_zone_are_read(zone, tmp_path):
    days = [f"2024-03-{1 + i:02d}T10:00:00{zone}" for i in range(4)]
    rows = pl.DataFrame({"user": ["a"] * 4, "item": list("wxyz"), "rating": [1, 2, 3, 4], "timestamp": days[::-1]})
    rows.write_csv(tmp_path / "logs.csv")
    logs = nc.read_logs(tmp_path / "logs.csv")
    assert next(logs.batches()).rewards.tolist() == [4.0, 3.0, 2.0, 1.0]


def test_an_experiment_with_one_arm_a_user_says_where_to_look():
    rng = np.random.default_rng(6)
    arm = rng.integers(0, 2, USERS)
    rows = {"user": np.repeat(np.arange(USERS), 4), "action": np.repeat(np.array(["A", "B"])[arm], 4)}
    found = nc.check(nc.Logs.from_arrays(**rows, reward=np.repeat(0.5 * arm, 4) + rng.random(4 * USERS)))
    assert any("A/B test" in line and "means of the actions" in line for line in found.decision.sentences)
