"""Guards ProBALL's exit by containment: its definition, its limits, the policy contract."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.policies.exits import farthest_before_exit
from newcomer.testing import check_policy
from tests.helpers import learns_at_once_as_in_turn, plain_model, unit
from tests.oracles import containment as oracle
from tests.policies.exit_rounds import ALPHAS, DIM, RANK, ROUNDS, play_rounds


def make(radius, kind=nc.ProBALLUCB, bound=1.3, model=None):
    return kind(model or plain_model(DIM, RANK), horizon=ROUNDS, radius=radius, exit="containment", reward_bound=bound)


@pytest.mark.parametrize("seed", range(20))
def test_the_farthest_point_of_an_ellipsoid_is_the_best_of_many_ascents(seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 4))
    v, centre, alpha = np.eye(4) + root @ root.T, rng.standard_normal(4) * 10.0 ** rng.integers(-2, 2), 0.7
    if seed % 4 == 0:  # a centre that does not lean to the longest axis
        longest = np.linalg.eigh(v)[1][:, 0]
        centre -= longest * (longest @ centre)
    factor = alpha * np.linalg.inv(np.linalg.cholesky(v))
    slow = oracle.farthest(centre, v, alpha, np.zeros(4))
    assert farthest_before_exit(centre, factor) == pytest.approx(slow, rel=1e-6)


@pytest.mark.parametrize("radius", [0.3, 0.4, 0.5, 1.5])
def test_decisions_and_the_round_of_exit_are_those_of_the_definition(radius):
    model, policy, phases, told = plain_model(DIM, RANK), make(radius), [], []

    def look(state, actions, history, chosen):
        phases.append(bool(policy.in_subspace(state)[0]))
        told.append((policy.scores(state, actions)[0], actions))

    _, history = play_rounds(policy, on_round=look)
    left = oracle.left_after(history[:-1], model.basis, radius, 1.3, ALPHAS)
    assert phases == [left is None or t < left for t in range(ROUNDS)]
    for t, (scores, actions) in enumerate(told):
        expected = oracle.scores(history[:t], model.basis, actions, left, ALPHAS)
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)


def rounds_inside(radius):
    policy, phases = make(radius), []
    play_rounds(policy, on_round=lambda state, *_: phases.append(policy.in_subspace(state)[0]))
    return np.count_nonzero(phases)


def test_the_larger_the_radius_the_earlier_the_exit():
    rounds = [rounds_inside(radius) for radius in (0.0, 0.4, 0.5, 100.0, np.inf)]
    assert rounds[0] == ROUNDS and rounds == sorted(rounds, reverse=True)
    assert ROUNDS > rounds[1] > rounds[2] > rounds[3] == rounds[4] == 1


def test_who_has_left_stays_out_and_is_served_by_linucb():
    policy, linear = make(100.0), nc.LinUCB(DIM, horizon=ROUNDS)
    state, history = play_rounds(policy, 20)
    twin = linear.start(1)
    for phi, reward in history:
        linear.update(twin, phi, reward)
    assert not policy.in_subspace(state).any()
    actions = unit(np.random.default_rng(5), 9, DIM)
    np.testing.assert_array_equal(policy.scores(state, actions), linear.scores(twin, actions))


@pytest.mark.parametrize("kind", [nc.ProBALLUCB, nc.ProBALLTS])
@pytest.mark.parametrize("radius", [0.0, 0.8, 1e3])
def test_the_contract_holds(kind, radius):
    check_policy(make(radius, kind), seed=3)
    check_policy(make(radius, kind, model=plain_model(1, 1)), seed=4)


def test_a_batch_of_rewards_that_crosses_the_exit_is_one_by_one():
    learns_at_once_as_in_turn(make(0.9), DIM, rows=60)


def test_its_states_and_settings_are_its_own():
    with pytest.raises(PolicyError, match="state"):
        make(0.5).choose(nc.ProBALLUCB(plain_model(DIM, RANK), horizon=9, radius=0.5).start(1), np.eye(DIM))
    with pytest.raises(PolicyError, match="exit='containment'"):
        nc.ProBALLUCB(plain_model(DIM, RANK), horizon=9, radius=0.5, exit="containment", tau=2.0)
