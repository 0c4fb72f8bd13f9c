"""Play counts, money, seconds: learned as logarithms, served and judged in their own units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, ModelError, PolicyError
from newcomer.evaluation.cold_start import ByPolicy, judge_cold_start
from newcomer.evaluation.off_policy import off_policy_choice_rewards, off_policy_replay
from newcomer.logs import reader
from newcomer.logs.workers import WorkerPool


def counts(users: int = 240, rows: int = 14, actions: int = 16, seed: int = 0) -> dict[str, Any]:
    """Play counts of people with a taste: log-normal, so that a few are a thousand times the usual one."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((users, 1)) @ rng.standard_normal((1, actions))
    user = np.repeat(np.arange(users), rows)
    action = np.concatenate([rng.permutation(actions)[:rows] for _ in range(users)])
    log = 2.0 + taste[user, action] + 0.5 * rng.standard_normal(len(user))
    return {
        "user": user,
        "action": action,
        "reward": np.floor(np.exp(log) * np.where(rng.random(len(user)) < 0.01, 50, 1)),
    }


@pytest.fixture(scope="module")
def plays() -> dict[str, Any]:
    return counts()


@pytest.fixture(scope="module")
def logs(plays: dict[str, Any]) -> nc.Logs:
    return nc.Logs.from_arrays(**plays, reward_transform="log1p")


@pytest.fixture(scope="module")
def model(logs: nc.Logs) -> nc.Model:
    return nc.fit(logs, rank=1)


def by_hand(plays: dict[str, Any]) -> nc.Logs:
    return nc.Logs.from_arrays(**{**plays, "reward": np.log1p(plays["reward"])})


def test_a_fit_is_that_of_the_logarithms(plays: dict[str, Any], logs: nc.Logs, model: nc.Model) -> None:
    same = nc.fit(by_hand(plays), rank=1)
    np.testing.assert_array_equal(model.factor, same.factor)
    np.testing.assert_array_equal(model.mean, same.mean)
    assert model.reward_transform == "log1p" and same.reward_transform is None and model.id != same.id
    assert logs != by_hand(plays)


@pytest.mark.parametrize("policy", [nc.PriorUCB, nc.EmpiricalArms, lambda m: nc.ProBALLUCB(m, horizon=20)])
def test_policies_take_rewards_as_they_are(plays: dict[str, Any], model: nc.Model, policy: Any) -> None:
    raw, log = policy(model), policy(replace(model, reward_transform=None))
    one, two = raw.start(2), log.start(2)
    for reward in ([0.0, 900.0], [3.0, np.nan]):
        raw.update(one, ids=[3, 5], reward=reward)
        log.update(two, ids=[3, 5], reward=np.log1p(reward))
        raw.update(one, model.features([4, 7]), np.array([7.0, 1.0]))  # plain arrays, the short way
        log.update(two, model.features([4, 7]), np.log1p(np.array([7.0, 1.0])))
    np.testing.assert_array_equal(raw.scores(one, ids=[1, 2, 3]), log.scores(two, ids=[1, 2, 3]))
    before = one.to_bytes()
    with pytest.raises(PolicyError, match="reward -1 has no logarithm.*row 1.*above -1"):
        raw.update(one, ids=[3, 5], reward=[1.0, -1.0])
    assert one.to_bytes() == before


def test_files_keep_it_and_older_ones_have_none(model: nc.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.newcomer")
    again = nc.load(tmp_path / "m.newcomer")
    assert again.reward_transform == "log1p" and again == model and again.facts()["reward_transform"] == "log1p"
    for old in ("format1-em", "format2-sold"):
        assert nc.load(Path(__file__).parents[1] / "data" / f"{old}.newcomer").reward_transform is None
    with pytest.raises(ModelError, match="reward_transform is 'sqrt'"):
        replace(model, reward_transform="sqrt")  # type: ignore[arg-type]


def test_typical_rewards_are_in_their_own_units(model: nc.Model) -> None:
    policy = nc.PopulationMean(model)
    scores = policy.scores(policy.start(1), ids=[0, 1])
    np.testing.assert_allclose(model.typical(scores), np.exp(scores) - 1)
    np.testing.assert_array_equal(replace(model, reward_transform=None).typical(scores), scores)


def test_gains_of_the_fit_are_of_rewards_as_they_are(plays: dict[str, Any], model: nc.Model) -> None:
    """The naive reading: what the population mean's choice, and chance, were paid in counts, not in logarithms."""
    outlook = model.evidence.population.outlook  # type: ignore[union-attr]
    assert outlook is not None
    logarithms = nc.fit(by_hand(plays), rank=1).evidence.population.outlook  # type: ignore[union-attr]
    assert logarithms is not None
    usual = float(np.mean(plays["reward"]))
    for step, other in zip(outlook.steps, logarithms.steps, strict=True):
        assert 0.5 * usual < step.chance < 2 * usual and other.chance < np.log1p(usual)
        assert step.mean > step.chance and step.people == other.people


def test_held_out_people_are_judged_by_what_was_paid(plays: dict[str, Any], logs: nc.Logs, model: nc.Model) -> None:
    """The same choices as by a model of logarithms, whose logs have logarithms, and the counts as their worth."""
    plain, twin = replace(model, reward_transform=None), by_hand(plays)
    asked: dict[str, Any] = {"steps": 4, "choices": 5, "deals": 2}
    paid, log = (
        off_policy_choice_rewards({"a": nc.PriorUCB(model)}, logs, **asked)["a"],
        off_policy_choice_rewards({"a": nc.PriorUCB(plain)}, twin, **asked)["a"],
    )
    assert paid.mean() > 4 * log.mean()
    one = off_policy_choice_rewards({"a": nc.PriorUCB(model)}, logs, steps=4, choices=5, deals=1)["a"]
    other = off_policy_choice_rewards({"a": nc.PriorUCB(plain)}, twin, steps=4, choices=5, deals=1)["a"]
    np.testing.assert_allclose(one, np.expm1(other), rtol=1e-9, atol=1e-9)
    tables = []
    for fitted, its in ((model, logs), (plain, twin)):
        predictors = {"p": ByPolicy(nc.PopulationMean(fitted))}
        judged = judge_cold_start(predictors, its, steps=(4,), choices=5, deals=1)
        tables.append(judged.people.values[:, :, 0])
    np.testing.assert_allclose(tables[0][:, 0, :2], tables[1][:, 0, :2])  # errors and order on the scale of the fit
    np.testing.assert_allclose(tables[0][:, 0, 2], np.expm1(tables[1][:, 0, 2]), rtol=1e-9, atol=1e-9)
    games = [
        off_policy_replay({"p": nc.PriorUCB(m)}, its, rounds=4).of("p") for m, its in ((model, logs), (plain, twin))
    ]
    np.testing.assert_allclose(games[0], np.expm1(games[1]), rtol=1e-9, atol=1e-9)


def test_where_users_are_does_not_depend_on_how_logs_were_read(
    plays: dict[str, Any], logs: nc.Logs, model: nc.Model
) -> None:
    np.testing.assert_allclose(
        model.transform(nc.Logs.from_arrays(**plays)).mean, model.transform(logs).mean, atol=1e-12
    )


def test_limits_have_the_units_of_the_rewards(plays: dict[str, Any]) -> None:
    logs = nc.Logs.from_arrays(**plays, reward_transform="log1p", clip=(0, 100))
    found = np.concatenate([batch.paid for batch in logs.batches()])
    assert found.max() == pytest.approx(100) and "clipped to [0, 100]" in " ".join(logs.advice)


def test_every_storage_reads_the_same(
    plays: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: WorkerPool
) -> None:
    path = tmp_path / "plays.csv"
    pl.DataFrame(plays).write_csv(path)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1 << 14)
    ways = ({}, {"memory": 1}, {"grouped": True}, {"engine": crew})
    prints = {nc.read_logs(path, reward_transform="log1p", **way).summary.fingerprint for way in ways}
    assert prints == {nc.Logs.from_arrays(**plays, reward_transform="log1p").summary.fingerprint}


def test_rewards_without_a_logarithm_are_counted() -> None:
    with pytest.raises(LogsError, match=r"reward -5 has no logarithm \(row 2, .*2 rows in all, also row 3: -1.0\)"):
        nc.Logs.from_arrays(user=[1, 1, 1], action=[1, 2, 3], reward=[1.0, -5.0, -1.0], reward_transform="log1p")
    with pytest.raises(LogsError, match="reward_transform is 'sqrt'"):
        nc.Logs.from_arrays(user=[1], action=[1], reward=[1.0], reward_transform="sqrt")  # type: ignore[arg-type]


def test_the_advice_for_long_tails_is_the_logarithm_where_there_is_one(plays: dict[str, Any], logs: nc.Logs) -> None:
    said = " ".join(nc.Logs.from_arrays(**plays).advice)
    assert "reward_transform='log1p' (--reward-transform log1p) learns their logarithm" in said
    centred = nc.Logs.from_arrays(**{**plays, "reward": plays["reward"] - 50.0})
    assert "log1p" not in " ".join(centred.advice) and "clip='auto'" in " ".join(centred.advice)
    assert "Rewards are learned as log(1 + reward)" in " ".join(logs.advice) and "typical" in " ".join(logs.advice)
    found = next(one for one in nc.check(nc.Logs.from_arrays(**plays), fit=False) if one.name == "rewards")
    assert found.verdict == "doubtful" and "--reward-transform log1p" in found.advice


def test_a_refit_on_another_scale_is_refused(plays: dict[str, Any], model: nc.Model) -> None:
    with pytest.raises(ModelError, match="another scale: read the logs with reward_transform='log1p'"):
        nc.fit(nc.Logs.from_arrays(**plays), start=model)


def test_a_long_tail_of_counts_has_one_remedy_and_no_outliers() -> None:
    rng = np.random.default_rng(0)
    counts = np.floor(np.exp(rng.normal(0.5, 1.8, 3000)))
    given: dict[str, Any] = {"user": np.arange(3000) // 10, "action": np.arange(3000) % 20}
    logs = nc.Logs.from_arrays(**given, reward=counts)
    said = " ".join(logs.advice)
    assert logs.summary.far_rewards == 0 and logs.summary.tail_share > 0.5
    assert "--reward-transform log1p" in said and "clip" not in said
    clipped = nc.Logs.from_arrays(**given, reward=counts, clip="auto")
    assert "--clip" not in " ".join(clipped.advice)
    stars = nc.Logs.from_arrays(**given, reward=np.where(np.arange(3000) == 7, 999.0, 1 + np.arange(3000) % 5))
    assert stars.summary.far_rewards == 1 and "999 (user 0" in " ".join(stars.advice)


def test_only_rewards_beyond_the_limit_are_named_as_far() -> None:
    stars = 1.0 + np.arange(3000) % 5
    given: dict[str, Any] = {"user": np.arange(3000) // 10, "action": np.arange(3000) % 20}
    for far, said in (((7,), "median 3: 1e+12 (user 0, row 8"), ((7, 8, 9, 11), ", ...")):
        reward = stars.copy()
        reward[list(far)] = 1e12
        logs = nc.Logs.from_arrays(**given, reward=reward)
        (note,) = [one for one in logs.advice if "deviations" in one]
        assert said in note and note.count("1e+12 (user") == note.count("(user") == min(len(far), 3)
        first = logs.summary.remedies.partition("; otherwise ")
        rows = "the row if it is a mistake" if len(far) == 1 else "the rows if they are mistakes"
        assert first[0] == f"remove {rows}" and first[2] == logs.summary.remedy
    ordinary = nc.Logs.from_arrays(**given, reward=stars).summary
    assert ordinary.remedies == ordinary.remedy
