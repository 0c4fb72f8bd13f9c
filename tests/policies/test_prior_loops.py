"""Guards that the short way by ids, one compiled call each for choose and update, does what the long way does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.model import Model

ACTIONS, RANK = 30, 3


def make_model(persistence=None, *, wide=False, items=False, scales=True, **more):
    rng = np.random.default_rng(0)
    actions = 2500 if wide else ACTIONS
    factor, ids = rng.standard_normal((actions, RANK)), tuple(range(100, 100 + actions))
    named = {"action_ids": ids, "residual_variance": rng.uniform(0.5, 1.5, actions), "persistence": persistence}
    named["uncertainty"] = rng.uniform(0.0, 0.3, actions)
    if scales:
        named["error_scales"] = np.array([[0.5, 1.0, 2.0], [0.3, 0.4, 0.3]])
    if items:
        table = rng.standard_normal((actions, 6))
        named |= {"action_features": table, "offsets": rng.standard_normal(actions)}
        factor = factor[:6]
    mean = rng.standard_normal(len(factor))
    named |= {} if items else {"one_hot": True}
    return Model(np.linalg.qr(factor)[0], np.ones(len(factor)), mean, factor, 1.0, **named, **more)


MODELS = {
    "share unknown": lambda: make_model(),
    "share known": lambda: make_model(0.4),
    "no effects": lambda: replace(make_model(0.0), uncertainty=np.zeros(ACTIONS)),
    "one scale of errors": lambda: make_model(scales=False),
    "many actions": lambda: make_model(wide=True),
    "items": lambda: make_model(items=True),
    "stars": lambda: make_model(reward_step=1.0),
}
POLICIES = {
    "PriorUCB": nc.PriorUCB,
    "untested": lambda model: nc.PriorUCB(model, level=0.0),
    "suspicious": lambda model: nc.PriorUCB(model, level=0.9),
    "PriorTS": nc.PriorTS,
    "EmpiricalArms": nc.EmpiricalArms,
    "wide arms": lambda model: nc.EmpiricalArms(model, width=0.7),
    "PopulationMean": nc.PopulationMean,
}


def the_long_way(monkeypatch, policy):
    """The same policy without its short way."""
    for name, answer in (("choose_codes", None), ("learn_codes", False)):
        monkeypatch.setattr(type(policy), name, lambda *given, answer=answer: answer)


def histories(model, seed=1, users=4, rounds=60):
    """Rounds in which each user meets a few actions again and again; some give rewards far from the prior."""
    rng = np.random.default_rng(seed)
    pool = np.array([rng.choice(model.action_ids, 12, replace=False) for _ in range(users)])
    for t in range(rounds):
        offers = rng.choice(model.action_ids, 8, replace=False).tolist()
        met = [int(pool[user, rng.integers(12 if t % 2 else 4)]) for user in range(users)]
        reward = rng.standard_normal(users) * np.array([1.0, 1.0, 6.0, 0.2])[:users]
        yield offers, met, np.round(reward) if model.reward_step else reward


def play(policy, model):
    """Choices and the state after all rounds."""
    state, chosen = policy.start(4), []
    for offers, met, reward in histories(model):
        if not policy.sampled:
            chosen.append(policy.choose(state, ids=offers).tolist())
        policy.update(state, ids=met[:3], reward=reward[:3].tolist(), users=[0, 1, 2])
        policy.update(state, ids=[met[3]], reward=[float(reward[3])], users=[3])
    return chosen, state


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_the_short_way_is_the_long_way(monkeypatch, name, kind):
    model = MODELS[name]()
    policy = POLICIES[kind](model)
    chosen, state = play(policy, model)
    the_long_way(monkeypatch, policy)
    other, slow = play(policy, model)
    assert chosen == other
    for (part, fast, _), (_, wanted, _) in zip(state.arrays(), slow.arrays(), strict=True):
        np.testing.assert_allclose(fast, wanted, rtol=1e-9, atol=1e-9, err_msg=part)
    if kind == "suspicious" and name == "share known":
        assert not state.in_subspace.all(), "some user left the prior"


@pytest.mark.parametrize("kind", POLICIES)
def test_several_rewards_at_once_are_the_same_to_the_bit_as_one_at_a_time(kind):
    model = make_model()
    policy = POLICIES[kind](model)
    together, apart = policy.start(1), policy.start(1)
    rows = [(met[0], float(reward[0])) for _, met, reward in histories(model)]
    policy.update(together, ids=[one for one, _ in rows], reward=[paid for _, paid in rows], users=[0] * len(rows))
    for one, paid in rows:
        policy.update(apart, ids=[one], reward=[paid])
    assert together.to_bytes() == apart.to_bytes()


def test_what_the_short_way_leaves_alone_is_refused_or_learned_as_ever():
    policy = nc.PriorUCB(make_model())
    state = policy.start(2)
    before = state.to_bytes()
    policy.update(state, ids=[100, 101], reward=[np.nan, np.nan])
    assert state.to_bytes() == before, "a reward of NaN means nothing yet"
    for reward in ([np.inf, 1.0], [1e200, 1.0], ["a", "b"], [1.0]):
        with pytest.raises(nc.PolicyError):
            policy.update(state, ids=[100, 101], reward=reward)
    for ids in ([1.5, 2.5], [True, False], [[100, 101]] * 3, {100: 1}):
        with pytest.raises(nc.NewcomerError):
            policy.choose(state, ids=ids)
    for users in ([2], [-1], [0.5], [[0]], "0", [True]):
        with pytest.raises(nc.PolicyError):
            policy.choose(state, ids=[100, 101], users=users)
    with pytest.raises(nc.PolicyError, match="started by"):
        policy.choose(nc.PriorUCB(make_model(0.5)).start(1), ids=[100, 101])
    assert state.to_bytes() == before
    assert policy.choose(state, ids=["100", "101"]).tolist() == policy.choose(state, ids=[100, 101]).tolist()
    assert policy.choose(state, ids=np.array([100, 101])).tolist() == policy.choose(state, ids=(100, 101)).tolist()
