"""Attributes at serving: the prior given them, known at the start or later, against dense Gaussians."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.arrays import Floats
from newcomer.encoding import Column
from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.policies.belief import PriorState
from newcomer.policies.binary_belief import BinaryState
from newcomer.transforms import expected_sigmoid
from tests.oracles import attributes as oracle
from tests.oracles import binary as integrals
from tests.policies.attribute_models import C, model_of, one_hot, parts


def expected(policy: Any, state: Any, actions: Floats, **more: Any) -> Floats:
    view = policy.learner.look_at(state, policy.query(state, actions, **more))
    return np.asarray(view.expected())


PEOPLE = [{"age": 50, "plan": "paid"}, {"age": None, "plan": "free"}, {"age": 20, "plan": "gift"}, {}]


def encoded(person: dict[str, Any]) -> Floats:
    """By hand."""
    age = person.get("age")
    x = [np.nan if age is None else (age - 40) / 10]
    known = {"free": [0.3, -0.3], "paid": [-0.7, 0.7]}
    return np.array(x + known.get(person.get("plan", ""), [np.nan, np.nan]))


def test_expected_rewards_are_those_of_the_dense_posterior() -> None:
    m, L, B = parts(rank=5)
    policy = nc.PriorUCB(model_of(m, L, B), level=0.0)
    rng = np.random.default_rng(3)
    X, r, actions = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3)), rng.normal(size=(6, 5))
    state = policy.start(4, attributes=PEOPLE)
    for t in range(3):
        policy.update(state, X[:, t], r[:, t])
    found = expected(policy, state, actions)
    for i, person in enumerate(PEOPLE):
        x = encoded(person)
        known = np.isfinite(x)
        if known[1]:
            known[2] = False  # two levels say the same: their joint covariance is singular
        mean, covariance = oracle.prior(m, B, L, np.nan_to_num(x), known, C)
        mean, _ = oracle.posterior(X[i], r[i], np.full(3, 0.5), mean, covariance)
        np.testing.assert_allclose(found[i], actions @ mean, atol=1e-6)


@pytest.mark.parametrize("kind", [nc.PriorUCB, nc.PriorTS])
@pytest.mark.parametrize("named", [True, False])
def test_known_later_is_known_from_the_start(kind: Any, named: bool) -> None:
    policy = kind(one_hot() if named else model_of(*parts()), level=0.0)
    rng = np.random.default_rng(4)
    first, later, twice = policy.start(4, attributes=PEOPLE), policy.start(4), policy.start(4, attributes=PEOPLE[::-1])
    for t in range(6):
        ids = np.array(["a", "b", "a", "c", "a", "b"])[[t] * 4] if named else None
        X, r = (None if named else rng.normal(size=(4, 5))), rng.normal(size=4)
        for state in (first, later, twice):
            policy.update(state, X, r, ids=ids)
        if t == 3:
            policy.know(later, PEOPLE)
            policy.know(twice, {"age": [50, 20], "plan": ["paid", "gift"]}, users=[0, 2])
    policy.know(twice, pl.DataFrame({"age": [None, None], "plan": ["free", None]}), users=[1, 3])
    actions = np.eye(5)
    ids = list("abcde") if named else None
    wanted = expected(policy, first, actions, ids=ids)
    for state in (later, twice):
        np.testing.assert_allclose(expected(policy, state, actions, ids=ids), wanted, atol=1e-9)
        np.testing.assert_allclose(state.small.gram, first.small.gram, atol=1e-9)


def test_arms_and_the_population_mean_shift_their_means() -> None:
    model = one_hot()
    ids = list("abcde")
    mean = nc.PopulationMean(model)
    means, _ = model.prior(PEOPLE)
    np.testing.assert_allclose(mean.scores(mean.start(4, attributes=PEOPLE), ids=ids), means, atol=1e-12)
    arms = nc.EmpiricalArms(model)
    np.testing.assert_allclose(arms.scores(arms.start(4, attributes=PEOPLE), ids=ids), means, atol=1e-12)
    first, later = arms.start(4, attributes=PEOPLE), arms.start(4)
    for action, reward in (("a", 1.0), ("b", -1.0), ("a", 2.0), ("new", 0.5)):
        for state in (first, later):
            for user in range(4):
                arms.update(state, ids=[action], reward=[reward], users=[user])
    arms.know(later, PEOPLE)
    asked = [*ids, "new"]
    np.testing.assert_allclose(arms.scores(later, ids=asked), arms.scores(first, ids=asked), atol=1e-9)


@pytest.mark.parametrize("make", [nc.PriorUCB, nc.EmpiricalArms, nc.PopulationMean])
def test_calls_by_ids_decide_and_learn_as_calls_by_features(make: Any) -> None:
    policy, ids = make(one_hot()), list("abcde")
    short, long = policy.start(4, attributes=PEOPLE), policy.start(4, attributes=PEOPLE)
    for place, reward in ((0, 1.0), (1, -1.0), (0, 2.0)):
        for user in range(4):
            chosen = policy.choose(short, ids=ids, users=[user])
            assert chosen[0] == policy.scores(long, ids=ids, users=[user])[0].argmax()
            policy.update(short, ids=[ids[place]], reward=[reward], users=[user])
            policy.update(long, np.eye(5)[[place]], [reward], ids=[ids[place]], users=[user])
    np.testing.assert_allclose(policy.scores(short, ids=ids), policy.scores(long, ids=ids), atol=1e-9)


def test_states_keep_the_shift_and_no_attribute() -> None:
    policy = nc.PriorUCB(one_hot())
    state = policy.start(4, attributes=PEOPLE)
    again = PriorState.from_bytes(state.to_bytes())
    assert again == state and b"paid" not in state.to_bytes()
    both = PriorState.concat([state.take([1]), policy.start(1), state.take([0])])
    wanted = policy.scores(state, ids=list("abcde"))
    found = policy.scores(both, ids=list("abcde"))
    np.testing.assert_array_equal(found[[0, 2]], wanted[[1, 0]])
    np.testing.assert_array_equal(found[1], policy.scores(policy.start(1), ids=list("abcde"))[0])
    policy.know(both, [{"age": 50, "plan": "paid"}], users=[1])
    np.testing.assert_allclose(policy.scores(both, ids=list("abcde"))[1], wanted[0], atol=1e-9)


def test_an_outlier_keeps_the_shift_of_the_prior() -> None:
    policy = nc.PriorUCB(model_of(*parts()), level=0.5)
    first, later = policy.start(1, attributes=[PEOPLE[0]]), policy.start(1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        X = rng.normal(size=(1, 5))
        for state in (first, later):
            policy.update(state, X, 30.0 * X[:, 0])
    assert not first.in_subspace[0] and not later.in_subspace[0]
    policy.know(later, [PEOPLE[0]])
    actions = np.eye(5)
    found, wanted = expected(policy, later, actions), expected(policy, first, actions)
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


def test_attributes_that_make_no_sense_are_refused_and_change_nothing() -> None:
    policy = nc.PriorUCB(one_hot())
    state = policy.start(2)
    before = state.to_bytes()
    for given, users, said in (
        ({"agee": [1, 2]}, None, "knows no attribute 'agee'"),
        ({"age": ["old", "young"]}, None, "is a number, not 'old'"),
        ({"plan": [1.5, 2.5]}, None, "is a level, not 1.5"),
        ({"age": [20.0]}, None, "of 1 users, and 2"),
        ([{}] * 3, None, "of 3 users, and 2"),
        ({"age": [float("inf"), 1.0]}, None, "infinite"),
        ({"age": [20.0, 30.0]}, [0, 0], "comes twice"),
        ("age", None, "a dict of columns"),
    ):
        with pytest.raises(PolicyError, match=said):
            policy.know(state, given, users=users)
    assert state.to_bytes() == before
    policy.know(state, {"age": [float("nan"), None], "user": [1, 2]})
    np.testing.assert_allclose(policy.scores(state, ids=["a"]), policy.scores(policy.start(2), ids=["a"]), atol=1e-12)
    with pytest.raises(PolicyError, match="does not use attributes"):
        nc.LinUCB(3, horizon=5).start(1, attributes=[{"age": 3}])


def test_a_model_without_attributes_says_once_that_they_change_nothing() -> None:
    model = replace(one_hot(), attributes=(), attribute_effects=np.zeros(0), attribute_covariance=np.zeros(0))
    policy = nc.PriorUCB(model)
    with pytest.warns(UserWarning, match="change nothing"):
        state = policy.start(1, attributes=[{"age": 3}])
    assert state == policy.start(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.know(state, [{"age": 3}])


def test_a_model_with_attributes_has_another_id() -> None:
    model = one_hot()
    plain = replace(model, attributes=(), attribute_effects=np.zeros(0), attribute_covariance=np.zeros(0))
    assert model.id != plain.id
    with pytest.raises(PolicyError, match="started by"):
        nc.PriorUCB(plain).scores(nc.PriorUCB(model).start(1), ids=["a"])


# Clicks: the same prior through log-odds.


def of_clicks(**more: Any) -> Model:
    m, L, B = parts()
    return model_of(m - 1.0, L, B, one_hot=True, action_ids=tuple("abcde"), outcome="binary", **more)


def test_before_the_first_click_probabilities_are_those_of_the_prior_given_attributes() -> None:
    model = of_clicks(persistence=0.0)
    mean, covariance = model.prior(PEOPLE)
    wanted = expected_sigmoid(mean, np.einsum("nii->ni", covariance))
    policy = nc.PriorUCB(model)
    np.testing.assert_allclose(expected(policy, policy.start(4, attributes=PEOPLE), np.eye(5)), wanted, atol=1e-6)
    whole = [PEOPLE[0], {"age": 30, "plan": "free"}]  # of users with all attributes the population mean knows the same
    mean, covariance = model.prior(whole)
    wanted = expected_sigmoid(mean, np.einsum("nii->ni", covariance))
    for kind in (nc.PopulationMean, nc.EmpiricalArms):
        other = kind(model)
        found = other.scores(other.start(2, attributes=whole), ids=list("abcde"))
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_after_clicks_the_posterior_is_near_the_integral() -> None:
    """One coordinate of z, shifted and narrowed by attributes: a numerical integral."""
    rng = np.random.default_rng(0)
    m, L, B = rng.normal(-0.5, 1.0, 5), rng.normal(size=(5, 1)), np.zeros((5, 3))
    B[:, 0] = 0.7 * L[:, 0]
    model = model_of(m, L, B, one_hot=True, action_ids=tuple("abcde"), outcome="binary", persistence=0.0)
    policy, codes, rewards = nc.PriorUCB(model), [0, 1, 2, 4], np.array([1.0, 0.0, 1.0, 1.0])
    mean, covariance = model.attribute_prior.given(np.array([[1.0, 0.3, -0.3]]))
    state = policy.start(1, attributes=[{"age": 50, "plan": "free"}])
    for code, reward in zip(codes, rewards, strict=True):
        policy.update(state, ids=["abcde"[code]], reward=[reward])
    low, root = model.factor, float(np.sqrt(covariance[0, 0, 0]))
    levels = model.mean + low[:, 0] * mean[0, 0]
    for code in range(5):
        wanted = integrals.predicted(levels[codes], low[codes] * root, rewards, levels[code], low[code] * root)
        assert expected(policy, state, np.eye(5)[code][None])[0, 0] == pytest.approx(wanted, abs=0.02)


def test_known_after_clicks_is_nearly_known_from_the_start() -> None:
    """200 users, eight clicks, attributes after the fourth: probabilities differ by .002 on average, .03 at most."""
    policy = nc.PriorUCB(of_clicks(persistence=0.0))
    rng = np.random.default_rng(4)
    people = {"age": rng.normal(40, 10, 200).tolist(), "plan": rng.choice(["free", "paid"], 200).tolist()}
    first, later = policy.start(200, attributes=people), policy.start(200)
    for t in range(8):
        codes, reward = rng.integers(0, 5, 200), rng.integers(0, 2, 200).astype(np.float64)
        for state in (first, later):
            policy.update(state, ids=np.array(list("abcde"))[codes], reward=reward)
        if t == 3:
            policy.know(later, people)
    away = np.abs(expected(policy, first, np.eye(5)) - expected(policy, later, np.eye(5)))
    print(away.mean(), away.max())
    assert away.mean() < 0.002 and away.max() < 0.03
    again = BinaryState.from_bytes(later.to_bytes())
    np.testing.assert_array_equal(expected(policy, again, np.eye(5)), expected(policy, later, np.eye(5)))


def test_many_users_of_clicks_have_priors_of_their_own() -> None:
    """Among many users newcomers share rows of the state; attributes make a row a user's own."""
    policy = nc.PriorUCB(of_clicks(persistence=0.0))
    people = {"age": [50] * 1500 + [None] * 500, "plan": ["paid"] * 1500 + [None] * 500}
    state, ids = policy.start(2000, attributes=people), list("abcde")
    one, nobody = policy.start(1, attributes=PEOPLE[:1]), policy.start(1)
    for which, user in ((one, 7), (nobody, 1999)):
        np.testing.assert_allclose(
            policy.scores(state, ids=ids, users=[user]), policy.scores(which, ids=ids), atol=1e-12
        )


def test_arms_that_met_clicks_shift_what_they_remember() -> None:
    arms = nc.EmpiricalArms(of_clicks(persistence=0.3))
    first, later = arms.start(4, attributes=PEOPLE), arms.start(4)
    for action, reward in (("a", 1.0), ("b", 0.0), ("a", 1.0), ("new", 1.0)):
        for state in (first, later):
            for user in range(4):
                arms.update(state, ids=[action], reward=[reward], users=[user])
    arms.know(later, PEOPLE)
    asked = [*"abcde", "new"]
    np.testing.assert_allclose(arms.scores(later, ids=asked), arms.scores(first, ids=asked), atol=1e-9)


def test_what_is_known_of_an_outlier_can_be_taken_back():
    """A flagged user keeps the prior that they left with, so that an attribute told and untold leaves no trace."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((60, 4))
    rows[1:40, 0], rows[40:] = 0.0, np.eye(4)[0]
    rows[41:, 0] = rng.uniform(-1.0, 1.0, 19)
    basis = np.eye(4)[:, :1]
    given = {"action_ids": tuple(range(60)), "action_features": rows, "attribute_effects": [[0.9]]}
    given |= {"attributes": (Column("age", "number", 30.0, 10.0),), "attribute_covariance": [[1.0]]}
    policy = nc.PriorUCB(Model(basis, np.zeros(4), np.zeros(4), basis, 0.25, **given), width=0.0)

    def served(known):
        state = policy.start(1)
        policy.update(state, ids=[0], reward=[12.0])
        assert not policy.in_subspace(state)[0]
        if known:
            policy.know(state, {"age": [50.0]})
        for t in range(1, 40):
            policy.update(state, ids=[t], reward=[rows[t] @ [0.0, 0.15, -0.1, 0.12] + 0.3 * np.sin(7 * t)])
        if known:
            policy.know(state, {"age": [None]})
        return policy.scores(state, ids=[40, 41, 42])

    assert np.allclose(served(known=True), served(known=False), rtol=1e-9)
