"""Guards the sentences about ids and rewards in calls to policies: they speak of ids, and point at the caller."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.evidence import Evidence
from newcomer.model import Model


def make_model(actions=6, **more):
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((actions, 2))
    ids = tuple(f"film-{place}" for place in range(actions))
    return Model(np.linalg.qr(factor)[0], np.ones(actions), rng.standard_normal(actions), factor, 1.0,
                 action_ids=ids, one_hot=True, **more)  # fmt: skip


@pytest.fixture
def policy():
    return nc.PriorUCB(make_model())


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (118, r"ids must be a list, not 118: put a single id in a list"),
        ("film-1", r"ids must be a list, not 'film-1': put a single id in a list"),
        ([], r"there are no ids to choose from: pass ids= of at least one action"),
        ([["film-1"]] * 3, r"ids of shape \(3, 1\) are not those of candidates for 2 users: pass \(K,\)"),
        ([[["film-1"]]], r"ids of shape \(1, 1, 1\) are not those of candidates for 2 users"),
    ],
)
def test_candidates_by_ids_are_refused_in_terms_of_ids(policy, ids, sentence):
    with pytest.raises(PolicyError, match=sentence):
        policy.choose(policy.start(2), ids=ids)


def test_rewards_by_ids_are_refused_in_terms_of_ids(policy):
    state = policy.start(1)
    before, films = state.to_bytes(), [f"film-{place}" for place in range(5)]
    with pytest.raises(PolicyError, match=r"there are 5 ids and 1 reward for 1 user: pass one id and one reward"):
        policy.update(state, ids=films, reward=[1.0])
    with pytest.raises(PolicyError, match=r"there are 5 ids and 5 rewards for 1 user"):
        policy.update(state, ids=films, reward=np.ones(5))
    assert state.to_bytes() == before
    policy.update(state, ids=films, reward=np.ones(5), users=[0] * 5)
    policy.update(state, ids="film-1", reward=2.0)  # a single one may come as it is


def test_ids_that_are_all_unknown_warn_once_at_the_line_of_the_caller(policy):
    state = policy.start(1)
    with pytest.warns(UserWarning, match=r"1 of 1 ids are not among the 6 actions of the model \('nope'\)") as said:
        policy.choose(state, ids=["nope"])
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.choose(state, ids=["nope", "nor this"])


def test_one_new_action_among_rewards_or_candidates_is_nothing_to_warn_of(policy):
    state = policy.start(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.choose(state, ids=["film-1", "film-2", "brand new"])
        policy.update(state, ids=["brand new"], reward=[1.0])
    with pytest.warns(UserWarning, match=r"3 of 3 ids are not among") as said:
        policy.update(state, ids=["x", "y", "z"], reward=[1.0, 1.0, 1.0], users=[0, 0, 0])
    assert said[0].filename == __file__


def logged(rewards):
    ids = np.arange(len(rewards)) % 6
    return nc.Logs.from_arrays(user=np.arange(len(rewards)) // 3, action=ids, reward=rewards).summary


@pytest.mark.parametrize(("largest", "reward"), [(1.0, 500.0), (5.0, 485.0), (5.0, -6.0)])
def test_a_reward_in_other_units_than_the_logs_warns_once_and_is_learned(largest, reward):
    summary = logged(np.linspace(0.0, largest, 60))
    for kind in (nc.PriorUCB, nc.EmpiricalArms, nc.PopulationMean):
        policy = kind(make_model(evidence=Evidence(logs=summary)))
        state = policy.start(1)
        before = state.to_bytes()
        sentence = f"A reward of {reward:g} is far outside those of the logs, which lie between 0 and {largest:g}"
        with pytest.warns(UserWarning, match=sentence) as said:
            policy.update(state, ids=["film-1"], reward=[reward])
        assert said[0].filename == __file__ and state.to_bytes() != before
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            policy.update(state, ids=["film-1"], reward=[reward])


def test_units_are_compared_on_the_raw_scale_where_logarithms_are_learned():
    summary = replace(logged(np.log1p(np.linspace(0.0, 40.0, 60))), reward_transform="log1p")
    policy = nc.PriorUCB(make_model(evidence=Evidence(logs=summary), reward_transform="log1p"))
    state = policy.start(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.update(state, ids=["film-1"], reward=[79.0])
    with pytest.warns(UserWarning, match="A reward of 200 is far outside .* between 0 and 40"):
        policy.update(state, ids=["film-1"], reward=[200.0])


def test_rewards_near_those_of_the_logs_and_missing_ones_do_not_warn():
    policy = nc.PriorUCB(make_model(evidence=Evidence(logs=logged(np.linspace(0.0, 5.0, 60)))))
    state = policy.start(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.update(state, ids=["film-1", "film-2"], reward=[9.0, np.nan])


def test_facts_of_a_state_say_its_size_in_memory_and_as_bytes(policy):
    state = policy.start(2)
    facts = state.facts()
    assert facts["bytes"] == len(state.to_bytes())
    assert facts["bytes_in_memory"] == sum(array.nbytes for _, array, _ in state.arrays())
