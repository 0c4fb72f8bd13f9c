"""Logs with arms of a service: who judges, and what is said of the others. Logs without arms are as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.findings import ARMS, LIFT, Finding, Findings
from newcomer.gain.arm_gains import arm_gain_difference, arm_gain_sentences, arm_gains
from newcomer.gain.verdict import verdict_by_arms
from newcomer.logs.arms import judges_by_arms

ACTIONS = 8
TESTS = ("adaptive logging", "preference-dependent logging", "self-selection", "contexts", "drift")


def served(users=600, rows=10, *, random=0.25, control=0.25, seed=0, **changes):
    """Columns of logs as a service writes them: treated users get the best by their own preferences, as it learns."""
    rng = np.random.default_rng(seed)
    mean, factor = 0.3 * rng.standard_normal(ACTIONS), rng.standard_normal((ACTIONS, 2))
    columns = {name: [] for name in ("user", "action", "reward", "propensity", "arm", "step")}
    for user in range(users):
        arm = ("random", "control", "treated")[np.searchsorted(np.cumsum([random, control]), rng.random())]
        truth = mean + factor @ rng.standard_normal(2)
        told = np.zeros(ACTIONS)
        for t in range(rows):
            best = np.argmax(mean + told if arm == "treated" else mean)
            action = rng.integers(ACTIONS) if arm == "random" else best
            reward = truth[action] + 0.5 * rng.standard_normal()
            told[action] = reward - mean[action]
            told[(action + 1) % ACTIONS] += 0.4 * rng.standard_normal()  # it explores a little
            row = (user, int(action), reward, 1 / ACTIONS if arm == "random" else 1.0, arm, t)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    return columns | changes


@pytest.fixture(scope="module")
def logs():
    return nc.Logs.from_arrays(**served())


@pytest.fixture(scope="module")
def found(logs):
    return nc.check(logs, fit=False)


def test_the_random_arm_judges(logs, found):
    plain = {name: column for name, column in served().items() if name != "arm"}
    before = nc.check(nc.Logs.from_arrays(**plain), fit=False)
    assert before.verdict == "broken"  # what a policy chose looks like what it is
    assert found.verdict == "fine"
    random = logs.judges
    assert random is not None and found.tested == random.summary.users < 200
    alone = nc.check(random, fit=False)
    for name in TESTS:
        assert (found[name].effect, found[name].p_value) == (alone[name].effect, alone[name].p_value)
    what = found[ARMS].what
    assert (
        "of the random arm with two or more rows are used to test logging" in what
        and f"{random.summary.users} random" in what
    )


def test_propensities_are_verified_arm_by_arm(found):
    assert found["propensities"].verdict == "fine"
    assert "Control, treated: 1 in every row" in found["propensities"].what
    wrong = served()
    wrong["propensity"] = [0.3 if arm == "random" else p for arm, p in zip(wrong["arm"], wrong["propensity"])]
    told = nc.check(nc.Logs.from_arrays(**wrong), fit=False)["propensities"]
    assert told.verdict == "broken" and "not 1 over the number of candidates" in told.what


def test_too_few_random_users_are_said_to_be_so_with_how_many_are_needed():
    few = nc.check(nc.Logs.from_arrays(**served(random=0.06)), fit=False)
    assert few.verdict != "broken" and few[ARMS].verdict == "unknowable" and "users are needed" in few[ARMS].what
    assert any(few[name].verdict == "unknowable" for name in TESTS)
    none = nc.Logs.from_arrays(**served(users=60, random=0.0))
    told = nc.check(none, fit=False)
    assert none.judges is None and told.verdict == "doubtful" and "No user was served at random" in told[ARMS].what
    assert all(told[name].verdict == "unknowable" for name in TESTS)
    with pytest.raises(LogsError, match="0 of 60 users were served at random"):
        nc.fit(none, estimator="sold")
    evaluation = nc.evaluate(none, quick=True)
    assert evaluation.headline == () and "too few to judge a fit" in evaluation.sentences()[4]


def test_sold_and_the_gain_use_the_random_arm_and_em_all_rows(logs):
    random = logs.judges
    assert random is not None
    sold, alone = nc.fit(logs, rank=2, estimator="sold"), nc.fit(random, rank=2, estimator="sold")
    np.testing.assert_allclose(sold.spectrum, alone.spectrum)
    np.testing.assert_allclose(sold.mean, alone.mean)
    assert sold.radius("bernstein") == pytest.approx(alone.radius("bernstein"))
    model, gain = nc.fit(logs, rank=2), nc.fit(logs, rank=2).evidence.measured
    assert model.evidence.logs.rows == logs.summary.rows
    assert not np.allclose(model.mean, nc.fit(random, rank=2).mean)
    assert gain is not None and gain.arm == "random" and gain.steps[0].people <= random.summary.users


def test_evaluate_values_arms_and_calls_no_exact_propensity_wrong(logs):
    found = nc.evaluate(logs, quick=True)
    assert found.off_policy and "do not fit" not in found.why_no_off_policy
    told = " ".join(found.sentences())
    assert "held-out users of the random arm" in told and "users of the arm control" in told
    assert {one.arm for one in found.arms} == {"random", "control", "treated"}
    assert found.frame("arms")["over"].null_count() == len({one.interactions for one in found.arms})


def test_lift_compares_users_and_decides(logs, found):
    steps = arm_gains(logs)
    frame = served()
    means = {}
    for user, arm, reward in zip(frame["user"], frame["arm"], frame["reward"]):
        means.setdefault((arm, user), []).append(reward)
    each = {arm: np.array([np.mean(v) for (a, _), v in means.items() if a == arm]) for arm in ("treated", "control")}
    last = next(one for one in steps if one.arm == "control" and one.interactions == 10)
    assert last.over.value == pytest.approx(each["treated"].mean() - each["control"].mean())
    from scipy.stats import ttest_ind

    low, high = ttest_ind(each["treated"], each["control"], equal_var=False).confidence_interval(0.95)
    assert (last.over.low, last.over.high) == (pytest.approx(low), pytest.approx(high))
    assert found[ARMS].effect == pytest.approx(last.over.value) and verdict_by_arms(found) == "yes"
    assert nc.check(logs).decision.sentences[0].startswith("Yes: personalise; treated users get more")
    worse = Findings((replace(found[ARMS], effect=-1.0),))
    assert verdict_by_arms(worse) == "no" and verdict_by_arms(Findings((Finding(ARMS, "fine", "", ""),))) is None
    assert found[ARMS].unit == LIFT and arm_gain_sentences(steps)[0].startswith("Over their first 10 interactions")


def test_users_of_several_arms_judge_nothing():
    frame = served(users=60)
    frame["arm"][:5] = ["random"] * 5
    frame["arm"][5:10] = ["treated"] * 5
    logs = nc.Logs.from_arrays(**frame)
    random = logs.judges
    assert random is not None
    pure = {u for u in range(1, 60) if frame["arm"][10 * u] == "random"}
    assert set(np.concatenate([one.users for one in random.batches()]).tolist()) == pure
    assert "1 have rows of several arms" in nc.check(logs, fit=False)[ARMS].what
    assert sum(one.people for one in arm_gains(logs) if one.interactions == 1) == 59


def test_arms_that_are_no_service_s_change_nothing():
    frame = served(users=80, arm=["a", "b"] * 400)
    ours = nc.check(nc.Logs.from_arrays(**frame), fit=False)
    plain = {name: column for name, column in frame.items() if name != "arm"}
    assert ours == nc.check(nc.Logs.from_arrays(**plain), fit=False)
    assert judges_by_arms(("treatment", "control")) == "all"
    frame["propensity"] = [None, *frame["propensity"][1:]]
    with pytest.raises(LogsError, match="propensity is missing"):
        nc.Logs.from_arrays(**frame)
    assert arm_gain_difference(np.array([3.0, 3.0, 3.0]), np.array([2.0, 2.0, 2.0])).value == 0.0
