"""Guards that newcomers who share a row are served just as those who have one each."""

from __future__ import annotations

import copy
from dataclasses import replace
from threading import Thread

import numpy as np
import pytest

import newcomer as nc
from newcomer.linear import state as states
from tests.contract.examples import rank_16, with_catalogue
from tests.policies.attribute_models import one_hot

POLICIES = [nc.PriorUCB, nc.PriorTS, nc.EmpiricalArms, nc.PopulationMean]


def model(outcome="gaussian"):
    return replace(with_catalogue(8, 2), outcome=outcome)


def serve(policy, users, rounds=30, seed=2):
    """A state some of whose users learned, one of them nearly everything."""
    state, rng = policy.start(users), np.random.default_rng(seed)
    for _ in range(rounds):
        who = rng.choice([1, 3, 3, 3, users - 1], 2)
        policy.update(state, ids=rng.integers(0, 9, 2).tolist(), reward=rng.integers(0, 2, 2).astype(float), users=who)
    return state


@pytest.mark.parametrize("outcome", ["gaussian", "binary"])
@pytest.mark.parametrize("make", POLICIES)
def test_shared_and_plain_states_are_the_same(monkeypatch, make, outcome):
    policy = make(model(outcome))
    plain = serve(policy, 40)
    monkeypatch.setattr(states, "PLAIN_USERS", 10)
    shared = serve(policy, 40)
    assert plain.shared is None and shared.shared is not None
    assert shared == plain and len(shared) == len(plain) == 40
    for users in (None, [0, 1, 3, 39, 3]):
        rngs = [np.random.default_rng(u) for u in range(40 if users is None else 5)]
        asked = {"ids": list(range(8)), "users": users}
        np.testing.assert_array_equal(policy.scores(plain, **asked), policy.scores(shared, **asked))
        drawn = [policy.choose(one, rng=copy.deepcopy(rngs), **asked) for one in (plain, shared)]
        np.testing.assert_array_equal(*drawn)
    np.testing.assert_array_equal(policy.in_subspace(plain), policy.in_subspace(shared))
    if make is not nc.PopulationMean:
        one, other = policy.repeatability(plain), policy.repeatability(shared)
        assert (one.users, one.repeats) == (other.users, other.repeats)
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-12)


@pytest.mark.parametrize("make", POLICIES)
def test_users_are_taken_out_and_put_together(monkeypatch, make):
    policy = make(model())
    plain = serve(policy, 40)
    monkeypatch.setattr(states, "PLAIN_USERS", 10)
    shared, kind = serve(policy, 40), type(plain)
    for users in ([3, 3, 0], list(range(39, -1, -1)), [1, 3, 1] * 5 + [0] * 5, []):
        one, other = shared.take(users), plain.take(users)
        assert one == other and len(one) == len(users)
        assert (one.shared is None) == (len(users) <= 10)
        if len(users) > 10:  # copies of one user learn apart
            for state in (one, other):
                policy.update(state, ids=[2], reward=[0.5], users=[0])
            assert one == other
    joint = kind.concat([shared, plain.take([1, 2]), shared.take([0, 3])])
    assert joint == kind.concat([plain, plain.take([1, 2]), plain.take([0, 3])]) and joint.shared is not None
    for state in (joint, again := kind.from_bytes(joint.to_bytes())):
        policy.update(state, ids=[1, 1], reward=[1.0, 0.0], users=[43, 20])
    assert again == joint and again.shared is not None
    assert copy.copy(joint) == copy.deepcopy(joint) == joint


def test_a_million_newcomers_take_one_row_and_an_index():
    policy = nc.PriorUCB(rank_16())
    state = policy.start(1_000_000)
    assert state.facts()["bytes_in_memory"] < 10_000_000 and len(state.to_bytes()) < 500
    policy.update(state, ids=[3, 4, 3], reward=[1.0, 2.0, 3.0], users=[999_999, 5, 999_999])
    alone = policy.start(1)
    policy.update(alone, ids=[3, 3], reward=[1.0, 3.0], users=[0, 0])
    assert state.take([999_999]) == alone and state.take([7]) == policy.start(1)
    assert state.facts()["bytes_in_memory"] < 20_000_000


@pytest.mark.parametrize("users", [10**14, 10**15])
def test_more_users_than_memory_holds_are_refused_in_one_sentence(users):
    with pytest.raises(nc.PolicyError, match="does not fit into memory: start fewer"):
        nc.PriorUCB(rank_16()).start(users)


def test_a_call_that_is_refused_changes_nothing_that_is_shared(monkeypatch):
    monkeypatch.setattr(states, "PLAIN_USERS", 10)
    policy = nc.PriorUCB(model())
    state = policy.start(20)
    before = state.to_bytes()
    with pytest.raises(nc.PolicyError):
        policy.update(state, ids=[1, 2], reward=[1.0, np.inf], users=[0, 1])
    policy.update(state, ids=[1], reward=[np.nan], users=[0])
    assert state.to_bytes() == before


def test_attributes_that_are_alike_share_a_row(monkeypatch):
    monkeypatch.setattr(states, "PLAIN_USERS", 10)
    for make in POLICIES:
        policy = make(one_hot())
        known = {"plan": ["paid", "free", None] * 10}
        state = policy.start(30, attributes=known)
        assert len(np.unique(state.shared.index)) == 3
        monkeypatch.setattr(states, "PLAIN_USERS", 100)
        assert state == policy.start(30, attributes=known)
        monkeypatch.setattr(states, "PLAIN_USERS", 10)
        later = policy.start(30)
        policy.know(later, {"plan": ["paid", "free"]}, users=[4, 2])
        np.testing.assert_allclose(
            policy.scores(later, ids=["a", "b"], users=[4, 2]), policy.scores(state, ids=["a", "b"], users=[0, 1])
        )


def test_policies_that_need_a_row_for_each_user_get_them(monkeypatch):
    monkeypatch.setattr(states, "PLAIN_USERS", 1)
    policy = nc.LocalUCB(with_catalogue(5, 2), horizon=20, radius=0.5, reward_bound=4.0)
    state = policy.start(4)
    assert state.shared is None
    again = type(state).from_bytes(state.to_bytes())
    assert again.shared is not None
    np.testing.assert_array_equal(policy.choose(again, np.eye(5)), policy.choose(state, np.eye(5)))
    assert again.shared is None and again == state


def test_threads_that_learn_at_once_lose_nothing(monkeypatch):
    monkeypatch.setattr(states, "PLAIN_USERS", 10)
    policy = nc.PriorUCB(model())
    state, wanted = policy.start(64), policy.start(64)

    def learn(users):
        for user in users:
            policy.update(state, ids=[user % 8], reward=[1.0], users=[user])

    threads = [Thread(target=learn, args=(range(start, 64, 4),)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    policy.update(wanted, ids=[user % 8 for user in range(64)], reward=np.ones(64))
    assert state == wanted
