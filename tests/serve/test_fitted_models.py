"""Models that were fitted, served: attributes of users, known at once or later, and clicks, scored by chances."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.encoding import Column
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from newcomer.serve.stores import store_of
from newcomer.transforms import sigmoid
from tests.serve.running import model_of, running

ACTIONS = 8
EVERYTHING = list(range(ACTIONS))


@pytest.fixture(scope="module")
def by_attributes():
    """Ratings whose taste depends on a segment and on age; `shoes` is pure noise, and is tried and not kept."""
    rng = np.random.default_rng(3)
    n, rows = 900, 6
    segment, age, shoes = rng.choice(["new", "loyal", "vip"], n), rng.normal(40, 10, n), rng.normal(42, 2, n)
    effects = np.random.default_rng(4).normal(0, 0.8, (ACTIONS, 4))
    x = np.column_stack([*(segment == one for one in ("new", "loyal", "vip")), (age - 40) / 10])
    taste = 3.0 + x @ effects.T + rng.normal(0, 0.5, (n, 1)) * effects[:, 0]
    action = np.argsort(rng.random((n, ACTIONS)), axis=1)[:, :rows]
    reward = np.take_along_axis(taste, action, 1) + 0.4 * rng.normal(size=action.shape)
    people = pl.DataFrame({"user": np.arange(n), "segment": segment, "age": age, "shoes": shoes})
    user = np.repeat(np.arange(n), rows)
    logs = nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), users=people)
    model = nc.fit(logs, calibrate=False)
    assert {one.name for one in model.attributes} == {"segment", "age"}
    return model


@pytest.fixture(scope="module")
def of_clicks():
    """Clicks that one direction drives."""
    rng = np.random.default_rng(5)
    n, rows = 1500, 6
    odds = rng.uniform(-1.5, 0.0, ACTIONS) + rng.standard_normal((n, 1)) * rng.standard_normal(ACTIONS)
    action = np.argsort(rng.random((n, ACTIONS)), axis=1)[:, :rows]
    reward = (rng.random((n, rows)) < sigmoid(np.take_along_axis(odds, action, 1))).astype(float)
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(n), rows), action=action.ravel(), reward=reward.ravel())
    return nc.fit(logs, outcome="binary", rank=1, calibrate=False)


def served(client, user):
    """Scores that the service has for the actions of a user's explanation."""
    return {one.action: one.expected + (one.bonus or 0.0) for one in client.user(user).best}


def agrees(client, user, policy, state):
    """The service's belief is that of this state."""
    scores = policy.scores(state, ids=EVERYTHING)[0]
    found = served(client, user)
    assert len(found) == 5
    assert found == pytest.approx({one: scores[one] for one in found}, rel=1e-9)


def test_attributes_at_the_first_decision_are_the_prior_of_the_user(by_attributes):
    policy = nc.PriorUCB(by_attributes)
    people = [{"segment": "vip", "age": 55}, {"segment": "new"}, {"age": None, "segment": "loyal"}]
    with running(MemoryStore(), model=by_attributes) as one, nc.Client(one.url) as client:
        shown = []
        for number, person in enumerate(people):
            state = policy.start(1, attributes=[person])
            answer = client.decide(number, candidates=EVERYTHING, attributes=person, explain=True)
            assert answer.action == int(policy.choose(state, ids=EVERYTHING)[0])
            for told in answer.explain:
                expected = policy.scores(state, ids=EVERYTHING)[0, told.index]
                assert told.expected + told.bonus == pytest.approx(expected)
            client.reward(answer.decision, 4.5)
            policy.update(state, ids=[answer.action], reward=[4.5])
            agrees(client, number, policy, state)
            shown.append(answer.action)
        assert len(set(shown)) > 1
        assert client.user(0).attributes == people[0]


def test_attributes_known_later_count_from_the_start(by_attributes, tmp_path):
    policy, url = nc.PriorUCB(by_attributes), f"sqlite:///{tmp_path}/store"
    rng, past = np.random.default_rng(0), []

    def state_of(person):
        state = policy.start(1, attributes=[person] if person else None)
        for action, reward in past:
            policy.update(state, ids=[action], reward=[reward])
        return state

    def play(client, rounds):
        for _ in range(rounds):
            answer = client.decide("u", candidates=rng.choice(ACTIONS, 4, replace=False).tolist())
            past.append((answer.action, float(rng.normal(3.0))))
            client.reward(answer.decision, past[-1][1])

    with running(store_of(url), model=by_attributes) as one, nc.Client(one.url) as client:
        play(client, 11)  # a snapshot is kept on the way
        agrees(client, "u", policy, state_of(None))
        client.decide("u", attributes={"segment": "vip"})
        agrees(client, "u", policy, state_of({"segment": "vip"}))
        play(client, 3)
        client.decide("u", attributes={"age": 25})  # what was known before stays known
        whole = {"segment": "vip", "age": 25}
        agrees(client, "u", policy, state_of(whole))
        play(client, 9)
        before = served(client, "u")
    with running(store_of(url), model=by_attributes) as one, nc.Client(one.url) as client:
        assert served(client, "u") == before
        agrees(client, "u", policy, state_of(whole))


def test_levels_that_logs_never_had_are_missing_and_names_are_checked(by_attributes):
    policy = nc.PriorUCB(by_attributes)
    with running(MemoryStore(), model=by_attributes) as one, nc.Client(one.url, tries=1) as client:
        client.decide("odd", attributes={"segment": "robot", "shoes": 44.0})
        agrees(client, "odd", policy, policy.start(1))
        for wrong in ({"segmnt": "vip"}, {"age": "old"}):
            with pytest.raises(nc.StoreError) as told:
                client.decide("new", attributes=wrong)
            assert (told.value.status, told.value.code) == (422, "bad_attributes")
        with pytest.raises(nc.StoreError, match="no user"):
            client.user("new")


def test_attributes_of_an_earlier_model_are_kept_and_those_that_do_not_fit_are_passed_over(by_attributes):
    plain = by_attributes.without_attributes()
    with running(MemoryStore(), model=by_attributes) as one, nc.Client(one.url, tries=1) as client:
        person = {"segment": "vip", "age": 55}
        client.decide("u", attributes=person)
        client.promote(client.stage(plain.to_bytes()).id)
        policy = nc.PriorUCB(plain)
        agrees(client, "u", policy, policy.start(1))
        client.decide("u", attributes=person)  # which this model was fitted with, and does without
        client.promote(by_attributes.id)
        policy = nc.PriorUCB(by_attributes)
        agrees(client, "u", policy, policy.start(1, attributes=[person]))


def knowing(*columns, seed=0):
    """A model made by hand that knows these attributes."""
    width = sum(one.width for one in columns)
    given = {"attribute_effects": np.full((2, width), 0.3), "attribute_covariance": 0.1 * np.eye(width)}
    return model_of(seed=seed, **({"attributes": columns, **given} if columns else {}))


def test_attributes_that_another_model_of_the_store_knows_are_passed_over_after_a_rollback(tmp_path):
    age, aged = Column("age", "number", 40.0, 10.0), Column("age", "level", levels=("old", "young"), shares=(0.5, 0.5))
    plain, numbers, levels, url = knowing(seed=1), knowing(age), knowing(aged, seed=2), f"sqlite:///{tmp_path}/store"
    with running(store_of(url), model=plain) as one, nc.Client(one.url, tries=1) as client:
        with pytest.raises(nc.StoreError, match="without attributes"):
            client.decide("a", attributes={"age": 30})
        client.stage(numbers.to_bytes())
        client.decide("a", attributes={"age": 30})  # clients may begin before the promotion
        client.promote(numbers.id)
        policy = nc.PriorUCB(numbers)
        shown = client.decide("a", explain=True)
        expected = policy.scores(policy.start(1, attributes=[{"age": 30}]), ids=list(numbers.action_ids))[0]
        assert shown.explain[0].expected + shown.explain[0].bonus == pytest.approx(expected[shown.index])
        client.promote(plain.id)  # the rollback
        assert client.decide("a", attributes={"age": 31}).model == plain.id
        assert client.decide("b", attributes={"age": 50}).model == plain.id
        assert client.user("b").attributes == {"age": 50}
        with pytest.raises(nc.StoreError, match="without attributes"):  # which no model knows
            client.decide("c", attributes={"age": 50, "agee": 1})
        client.promote(client.stage(levels.to_bytes()).id)  # the name is of another kind here
        client.decide("b", attributes={"age": 51})
        client.decide("b", attributes={"age": "young"})
        with pytest.raises(nc.StoreError, match="no attribute 'agee'"):
            client.decide("b", attributes={"agee": "young"})
    with closing(sqlite3.connect(tmp_path / "store")) as db, db:  # as stores were before facts told attributes
        db.execute('UPDATE models SET facts = \'{"rank": 2, "dim": 12, "actions": 12}\'')
    with running(store_of(url), model=plain) as one, nc.Client(one.url, tries=1) as client:
        client.promote(plain.id)
        assert client.decide("d", attributes={"age": 20}).model == plain.id


def test_a_policy_that_does_not_use_attributes_says_so(by_attributes):
    config = Config(policy="ProBALLUCB", random=0.0, control=0.0)
    with running(MemoryStore(), config, by_attributes) as one, nc.Client(one.url, tries=1) as client:
        assert client.decide("u").propensity == 1.0
        with pytest.raises(nc.StoreError, match="ProBALLUCB does not use attributes") as told:
            client.decide("u", attributes={"age": 30})
        assert told.value.status == 422


def test_clicks_with_attributes(tmp_path):
    rng = np.random.default_rng(6)
    n, rows = 1500, 6
    vip, age = rng.random(n) < 0.5, rng.normal(40, 10, n)
    tilt = rng.standard_normal(ACTIONS)
    taste = np.where(vip, 1.2, -1.2) + 0.5 * (age - 40) / 10 + 0.5 * rng.standard_normal(n)
    action = np.argsort(rng.random((n, ACTIONS)), axis=1)[:, :rows]
    odds = np.take_along_axis(np.linspace(-1.5, 0.0, ACTIONS) + taste[:, None] * tilt, action, 1)
    reward = (rng.random((n, rows)) < sigmoid(odds)).astype(float)
    people = pl.DataFrame({"user": np.arange(n), "segment": np.where(vip, "vip", "new"), "age": age})
    user = np.repeat(np.arange(n), rows)
    logs = nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), users=people)
    model = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    assert {one.name for one in model.attributes} == {"segment", "age"}
    policy, url = nc.PriorUCB(model), f"sqlite:///{tmp_path}/store"
    past = []

    def state_of(person):
        state = policy.start(1, attributes=[person] if person else None)
        for chosen, paid in past:
            policy.update(state, ids=[chosen], reward=[paid])
        return state

    with running(store_of(url), model=model) as one, nc.Client(one.url, tries=1) as client:
        first = {who: client.decide(who, attributes={"segment": who}).action for who in ("vip", "new")}
        for who, shown in first.items():
            state = policy.start(1, attributes=[{"segment": who}])
            assert shown == EVERYTHING[int(policy.choose(state, ids=EVERYTHING)[0])]
            agrees(client, who, policy, state)
        assert first["vip"] != first["new"]
        for number in range(10):  # a snapshot on the way; then what is known counts as from the start
            answer = client.decide("u", candidates=rng.choice(ACTIONS, 4, replace=False).tolist())
            past.append((answer.action, float(number % 3 == 0)))
            client.reward(answer.decision, past[-1][1])
        agrees(client, "u", policy, state_of(None))
        person = {"segment": "vip", "age": 55}
        told = client.decide("u", attributes=person, explain=True)
        assert all(0.0 < each.expected < 1.0 for each in told.explain)
        agrees(client, "u", policy, state_of(person))
        before = served(client, "u")
    with running(store_of(url), model=model) as one, nc.Client(one.url) as client:
        assert served(client, "u") == before


@pytest.mark.parametrize("name", ["PriorUCB", "PriorTS"])
def test_clicks_are_served_as_probabilities(of_clicks, tmp_path, name):
    url, config = f"sqlite:///{tmp_path}/store", Config(policy=name, random=0.0, control=0.0)
    policy = getattr(nc, name)(of_clicks)
    state, rng = policy.start(1), np.random.default_rng(1)
    with running(store_of(url), config, of_clicks) as one, nc.Client(one.url, tries=1) as client:
        for _ in range(12):
            answer = client.decide("u", candidates=rng.choice(ACTIONS, 5, replace=False).tolist(), explain=True)
            assert all(0.0 < told.expected < 1.0 for told in answer.explain) and 0.0 < answer.propensity <= 1.0
            reward = float(rng.random() < 0.4)
            client.reward(answer.decision, reward)
            policy.update(state, ids=[answer.action], reward=[reward])
        client.observe("u", 1.0, action=2)
        policy.update(state, ids=[2], reward=[1.0])
        agrees(client, "u", policy, state)
        pending = client.decide("u")
        for wrong in (2.0, -0.5):
            with pytest.raises(nc.StoreError, match="rewards of 0 and 1") as told:
                client.reward(pending.decision, wrong)
            assert told.value.status == 422
            with pytest.raises(nc.StoreError, match="rewards of 0 and 1"):
                client.observe("u", wrong, action=1)
        client.reward(pending.decision, 1.0, event="click")
        with pytest.raises(nc.StoreError, match="add up to 2"):
            client.reward(pending.decision, 1.0, event="another")
        policy.update(state, ids=[pending.action], reward=[1.0])
        agrees(client, "u", policy, state)
        before = served(client, "u")
    with running(store_of(url), config, of_clicks) as one, nc.Client(one.url) as client:
        assert served(client, "u") == before
        agrees(client, "u", policy, state)


def test_the_control_arm_of_clicks_is_the_best_for_everybody(of_clicks):
    policy = nc.PopulationMean(of_clicks)
    chances = policy.scores(policy.start(1), ids=EVERYTHING)[0]
    config = Config(random=0.0, control=1.0)
    with running(MemoryStore(), config, of_clicks) as one, nc.Client(one.url) as client:
        answer = client.decide("u", top=3)
        assert [slot.action for slot in answer.slots] == np.argsort(-chances)[:3].tolist()
        assert answer.arm == "control" and {slot.propensity for slot in answer.slots} == {1.0}
