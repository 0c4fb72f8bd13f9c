"""Guards repeatability: weights of shares against enumerated posteriors, pooling, states of before, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.evidence import Evidence, Summary
from newcomer.model import Model
from newcomer.policies import repeatability
from newcomer.policies.repeatability import NOTHING, SHARES, Repeatability
from tests.oracles import memory as dense
from tests.oracles import repeatability as oracle

DATA = Path(__file__).parents[1] / "data"
POLICIES = (nc.PriorUCB, nc.PriorTS, nc.EmpiricalArms)


def make_model(means, *, step=0.0, two=None, factor=None, variances=None):
    """One-hot actions with these means; rewards have this step, or these two values."""
    dim = len(means)
    logs = None
    if two is not None:
        low, high = two
        mean = low + 0.3 * (high - low)
        deviation = np.sqrt((mean - low) * (high - mean))
        logs = Summary(9, 90, dim, 9, 0, 0, "", 1.0, mean, deviation, max(abs(low), abs(high)), reward_step=high - low)
        step = high - low
    return Model(
        basis=np.eye(dim, 1),
        spectrum=np.ones(dim),
        mean=np.array(means),
        factor=np.zeros((dim, 1)) if factor is None else factor,
        noise_variance=0.2,
        evidence=Evidence(logs=logs),
        action_ids=tuple(range(dim)),
        one_hot=True,
        residual_variance=np.full(dim, 0.2) if variances is None else variances,
        persistence=None,
        reward_step=step,
    )


def meet(policy, sequences, rng):
    """A state of one user who met each action with these rewards, in an order drawn at random."""
    state, left = policy.start(1), [list(one) for one in sequences]
    while any(left):
        action = rng.choice([i for i, one in enumerate(left) if one])
        policy.update(state, ids=[int(action)], reward=[left[action].pop(0)])
    return state


def told(state):
    own = state if hasattr(state, "log_likelihood") else state.memory
    return own.log_likelihood[0] - own.log_likelihood[0, 0], float(own.share[0])


@pytest.mark.parametrize("two", [(0.0, 1.0), (-1.0, 1.0), (0.0, 5.0)])
@pytest.mark.parametrize("make", POLICIES)
def test_clicks_have_the_likelihood_of_the_beta_binomial(make, two):
    rng = np.random.default_rng(0)
    rates = np.array([0.35, 0.5, 0.6, 0.45])
    low, high = two
    policy = make(make_model(low + (high - low) * rates, two=two, variances=np.full(4, 0.2 * (high - low) ** 2)))
    assert repeatability.repeatability_reward_scale(policy.model).tolist() == [high - low, low, high]
    clicks = [rng.integers(0, 2, n).tolist() for n in (1, 2, 3, 4)]
    logs, share = told(meet(policy, [[low + (high - low) * one for one in own] for own in clicks], rng))
    exact = np.array([oracle.clicks(clicks, rates, one) for one in SHARES])
    inner = SHARES < 0.95  # beyond, probabilities are kept away from 0 and 1
    np.testing.assert_allclose(logs[inner], (exact - exact[0])[inner], atol=1e-10)
    start = repeatability.starting_repeatability(policy.model)
    assert share == pytest.approx(np.dot(oracle.posterior(start, list(exact)), SHARES), abs=0.01)
    assert share == pytest.approx(np.dot(oracle.posterior(start, list(logs)), SHARES), abs=1e-12)


@pytest.mark.parametrize("make", POLICIES)
def test_numbers_have_the_likelihood_of_the_normal_law(make):
    rng = np.random.default_rng(1)
    means, variances = np.array([0.3, 1.0, -1.0]), np.array([0.5, 1.0, 2.0])
    policy = make(make_model(means, variances=variances))
    rewards = [(m + np.sqrt(v) * rng.uniform(-1, 1, 3)).tolist() for m, v in zip(means, variances, strict=True)]
    logs, _ = told(meet(policy, rewards, rng))
    exact = np.array([oracle.numbers(rewards, means, variances, one) for one in SHARES])
    inner = SHARES < 0.7  # beyond, these rewards are unlikely
    np.testing.assert_allclose(logs[inner], (exact - exact[0])[inner], atol=1e-10)


def test_stars_have_nearly_the_likelihood_of_rounded_rewards():
    """Eight repeats, as they come and all equal, under each of four shares: the mean share is the exact one to 0.05."""
    rng = np.random.default_rng(2)
    means, variances = np.array([2.6, 3.1, 3.8, 3.4]), np.full(4, 1.2)
    policy = nc.EmpiricalArms(make_model(means, step=1.0, variances=variances))
    even = np.full(len(SHARES), 1 / len(SHARES))
    for share in (0.0, 0.3, 0.6, 0.9):
        lasting = means + np.sqrt(share * (1.2 - 1 / 12)) * rng.standard_normal(4)
        rewards = [np.rint(one + np.sqrt((1 - share) * (1.2 - 1 / 12)) * rng.standard_normal(3)) for one in lasting]
        for own in (rewards, [[one[0]] * 3 for one in rewards]):
            logs, _ = told(meet(policy, [list(one) for one in own], rng))
            exact = np.array([oracle.stars(own, means, variances, 1.0, one) for one in SHARES])
            # The rest has no weight; of 0.99 a slip by one star is likelier than the mean of earlier stars lets it be.
            likely = (exact > exact.max() - 4.0) & (SHARES < 0.97)
            np.testing.assert_allclose(logs[likely], (exact - exact[0])[likely], atol=0.15 * 8)
            means_of = [np.dot(oracle.posterior(even, list(one)), SHARES) for one in (logs, exact)]
            assert means_of[0] == pytest.approx(means_of[1], abs=0.05)


def test_taste_is_what_it_was_before_the_reward():
    """With shared directions p and its variance are those of the dense posterior, under the share of that moment."""
    rng = np.random.default_rng(3)
    factor, variances = rng.standard_normal((5, 2)), rng.uniform(0.5, 1.5, 5)
    model = make_model(rng.standard_normal(5), factor=factor, variances=variances)
    policy = nc.PriorUCB(model, level=0.0)
    state, seen, rewards, logs = policy.start(1), [], [], np.zeros(len(SHARES))

    def event(action, share):
        return action, np.eye(5)[action], share * variances[action], (1 - share) * variances[action]

    for _ in range(14):
        action, reward = int(rng.integers(5)), float(rng.standard_normal())
        share, before = float(state.memory.share[0]), [r for a, r in zip(seen, rewards, strict=True) if a == action]
        if before:
            past, taste = [event(one, share) for one in seen], ("taste", np.eye(5)[action], 0.0, 0.0)
            p, t = dense.posterior(past, np.array(rewards), [taste], factor=factor, mean=model.mean)
            n, y = len(before), np.mean(before)
            for place, s in enumerate(SHARES):
                c = n * s / (1 - s + n * s)
                u = variances[action] * (1 - s) * (1 + s / (1 - s + n * s)) + (1 - c) ** 2 * t[0, 0]
                density = np.exp(-0.5 * (reward - p[0] - c * (y - p[0])) ** 2 / u) / np.sqrt(2 * np.pi * u)
                logs[place] += np.log(max(density * np.sqrt(variances[action]), 0.003))
        policy.update(state, ids=[action], reward=[reward])
        seen.append(action)
        rewards.append(reward)
    np.testing.assert_allclose(state.memory.log_likelihood[0], logs, atol=1e-8)


def test_pooling_is_what_its_formula_says_and_the_more_users_the_surer():
    rng = np.random.default_rng(4)
    start = np.full(len(SHARES), 1 / len(SHARES))
    logs = rng.standard_normal((7, len(SHARES)))
    found = repeatability.pooled_repeatability(start, logs)
    wanted = oracle.pooled(start, logs.tolist(), prior_users=2.0, rounds=50)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    np.testing.assert_array_equal(repeatability.pooled_repeatability(start, logs[:0]), start)


def consistent(policy, users, rng, *, steady):
    """A state of people who meet six actions five times each; the first `steady` of them answer as they did before."""
    state, actions = policy.start(users), len(policy.model.mean)
    first = rng.random((users, actions)) < policy.model.mean
    for turn in range(5):
        for action in range(actions):
            fresh = rng.random(users) < policy.model.mean[action]
            reward = np.where((np.arange(users) < steady) | (turn == 0), first[:, action], fresh).astype(float)
            policy.update(state, ids=np.full(users, action), reward=reward)
    return state


@pytest.mark.parametrize("make", POLICIES)
def test_earlier_users_tell_newcomers_what_to_begin_with(make):
    rng = np.random.default_rng(5)
    policy = make(make_model(rng.uniform(0.2, 0.6, 6), two=(0.0, 1.0)))
    steady = policy.repeatability(consistent(policy, 20, rng, steady=20))
    fickle = policy.repeatability(consistent(policy, 20, rng, steady=0))
    mixed = policy.repeatability(consistent(policy, 40, rng, steady=20))
    assert steady.users == 20 and steady.repeats == 20 * 6 * 4
    assert fickle.mean < 0.1 and 0.3 < mixed.mean < 0.7 and steady.mean > 0.85
    weights = np.array(mixed.weights)
    assert weights[SHARES < 0.2].sum() > 0.3 and weights[SHARES > 0.8].sum() > 0.3, "two humps"
    begun = policy.start(2, repeatability=steady)
    own = begun if make is nc.EmpiricalArms else begun.memory
    np.testing.assert_allclose(own.share, steady.mean, atol=1e-9)
    before = policy.scores(begun, ids=[0])[0, 0]
    policy.update(begun, ids=[0], reward=[1.0], users=[0])
    plain = policy.start(1)
    policy.update(plain, ids=[0], reward=[1.0])
    gains = [policy.scores(one, ids=[0])[0, 0] - before for one in (begun, plain)]
    assert gains[0] > 2 * gains[1] > 0, "one click is believed sooner where answers come again"


def test_weights_begun_with_are_multiplied_by_own_repeats_and_pooled_without_themselves():
    rng = np.random.default_rng(6)
    policy = nc.PriorUCB(make_model(rng.uniform(0.2, 0.6, 6), two=(0.0, 1.0)))
    steady = policy.repeatability(consistent(policy, 20, rng, steady=20))
    state = policy.start(1, repeatability=steady)
    for reward in (1.0, 0.0, 1.0, 0.0):
        policy.update(state, ids=[2], reward=[reward])
    weights = oracle.posterior(steady.weights, state.memory.log_likelihood[0].tolist())
    assert state.memory.share[0] == pytest.approx(np.dot(weights, SHARES), abs=1e-9)
    plain = policy.start(1)
    plain.memory.log_likelihood[:], plain.memory.repeats[:] = state.memory.log_likelihood, state.memory.repeats
    assert policy.repeatability(plain) == policy.repeatability(state), "what a user heard is not counted again"
    both = type(state).concat([state, policy.start(3)])
    assert policy.repeatability(both) == policy.repeatability(state)


def test_it_is_said_in_a_sentence_and_goes_through_json():
    policy = nc.PriorUCB(make_model([0.3, 0.4], two=(0.0, 1.0)))
    nothing = policy.repeatability(policy.start(3))
    assert str(nothing).startswith("Nobody has met an action again yet; to begin with, 26% of the residual")
    state = policy.start(2)
    for _ in range(4):
        policy.update(state, ids=[0, 1], reward=[1.0, 1.0])
    found = policy.repeatability(state)
    assert str(found).startswith("By 6 repeats of 2 users, ")
    written = json.loads(json.dumps(found.to_json()))
    assert policy.start(1, repeatability=written) == policy.start(1, repeatability=found)
    assert Repeatability(**written) == found
    knows = nc.PriorUCB(replace(policy.model, persistence=0.6))
    assert str(knows.repeatability(knows.start(1))) == "The model knows it: 60% of the residual variance is repeatable."
    assert knows.start(2, repeatability=knows.repeatability(knows.start(1))) == knows.start(2)
    with pytest.raises(PolicyError, match="its model knows the share, 60%"):
        knows.start(1, repeatability=found)
    assert nc.LinUCB(2, horizon=9).repeatability(nc.LinUCB(2, horizon=9).start(1)) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (0.5, "must be what policy.repeatability"),
        ({"shares": [0.0, 1.0]}, "must be what policy.repeatability"),
        ({"shares": [0.0, 0.5], "weights": [0.5, 0.4]}, "add up to 1"),
        ({"shares": [0.0, 0.5], "weights": [1.5, -0.5]}, "none of them negative"),
        ({"shares": [0.0, 0.5], "weights": ["a", "b"]}, "list of numbers"),
        ({"shares": [0.0, 0.5], "weights": [0.5, 0.5]}, "other shares"),
        ({"shares": [0.0], "weights": [1.0], "users": -1}, "must be a count"),
    ],
)
def test_what_is_no_repeatability_is_refused(given, said):
    with pytest.raises(PolicyError, match=said):
        nc.PriorUCB(make_model([0.3, 0.4])).start(1, repeatability=given)


@pytest.mark.parametrize("make", POLICIES)
def test_states_of_before_load_and_go_on(make):
    """Saved when repeats were counts and squared deviations: scores are as they were, and repeats go on counting."""
    model = Model(
        basis=np.eye(6)[:, :2],
        spectrum=np.ones(6),
        mean=np.arange(6) / 8,
        factor=np.eye(6)[:, :2] + np.eye(6)[:, 2:4] / 2,
        noise_variance=0.75,
        action_ids=tuple("abcdef"),
        one_hot=True,
        residual_variance=np.arange(4, 10) / 8,
        persistence=None,
        reward_step=1.0,
    )
    kept = json.loads((DATA / "state1.json").read_text())
    assert model.id == kept["model"]
    policy = make(model)
    state = type(policy.start(0)).from_bytes((DATA / f"state1-{make.__name__}.newcomer").read_bytes())
    np.testing.assert_allclose(policy.scores(state, ids=list("abcdefg")), kept["scores"][make.__name__], rtol=1e-12)
    own = state if make is nc.EmpiricalArms else state.memory
    repeats = own.repeats.copy()
    assert repeats.tolist() == [9.0, 1.0] and np.ptp(own.log_likelihood, axis=1).min() > 0 and not own.log_prior.any()
    policy.update(state, ids=["a", "c"], reward=[1.0, 2.0])
    assert own.repeats.tolist() == [10.0, 2.0]
    assert type(state).from_bytes(state.to_bytes()) == state
    assert policy.repeatability(state).users == 2
    together = type(state).concat([state, policy.start(1, repeatability=policy.repeatability(state))])
    policy.choose(together, ids=list("abc"), rng=[np.random.default_rng(i) for i in range(3)])


@pytest.mark.parametrize("make", [nc.PriorUCB, nc.PriorTS])
def test_nobody_is_a_stranger_for_rare_clicks(make):
    """A click of rate 0.02 is seven deviations from what was expected, and nothing strange."""
    rng, rates = np.random.default_rng(7), np.full(20, 0.02)
    model = make_model(rates, two=(0.0, 1.0), variances=rates * (1 - rates))
    policy = make(model)
    state = policy.start(300)
    for action in range(20):
        policy.update(state, ids=np.full(300, action), reward=(rng.random(300) < 0.02).astype(float))
    assert state.in_subspace.all()


def test_half_of_the_weight_is_on_nothing_to_begin_with():
    for factor in (np.ones((2, 1)), np.zeros((2, 1))):
        weights = repeatability.starting_repeatability(make_model([0.0, 1.0], factor=factor))
        assert weights[0] == NOTHING == 0.5 and weights.sum() == pytest.approx(1.0)


def test_clicks_are_explored_with_half_the_curiosity():
    factor = np.array([[0.3], [0.1]])
    clicks, stars = make_model([0.4, 0.5], two=(0.0, 1.0), factor=factor), make_model([0.4, 0.5], factor=factor)
    for model, curiosity in ((clicks, 0.25), (stars, 0.5)):
        own, asked = nc.PriorUCB(model), nc.PriorUCB(model, curiosity=curiosity)
        np.testing.assert_array_equal(own.scores(own.start(1), ids=[0, 1]), asked.scores(asked.start(1), ids=[0, 1]))
