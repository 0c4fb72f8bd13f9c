"""Guards ProBALL's data-driven exit: its definition, its limits, the policy contract, and where it is refused."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.policies import exits
from newcomer.policies.proball import ProBALLState
from newcomer.policies.widths import plug_in_width_bound
from newcomer.testing import check_policy
from tests.helpers import learns_at_once_as_in_turn, plain_model, unit
from tests.oracles import savings as oracle
from tests.oracles.policies import system
from tests.policies.exit_rounds import ALPHAS, DIM, RANK, ROUNDS, play_rounds


def make(radius, kind=nc.ProBALLUCB, bound=1.0, model=None):
    return kind(model or plain_model(DIM, RANK), horizon=ROUNDS, radius=radius, exit="savings", reward_bound=bound)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("radius", [0.0, 0.3, 0.45, 0.5, 0.55, 100.0])
def test_decisions_and_the_round_of_exit_are_those_of_the_definition(radius, seed):
    model, bound = plain_model(DIM, RANK), 1.3
    policy, phases = make(radius, bound=bound), []

    def compare(state, actions, history, chosen):
        phases.append(bool(policy.in_subspace(state)[0]))
        expected = oracle.scores(history, model.basis, actions, radius, bound, ALPHAS)
        np.testing.assert_allclose(policy.scores(state, actions)[0], expected, rtol=1e-9, atol=1e-12)
        assert chosen == expected.argmax()

    _, history = play_rounds(policy, seed=seed, on_round=compare)
    left = oracle.left_after(history[:-1], model.basis, radius, bound, ALPHAS) or ROUNDS
    assert phases == [t < left or left == ROUNDS for t in range(ROUNDS)]


def test_radii_between_leave_in_between():
    """So that the comparison above sees exits in the middle of a run."""
    rounds = [np.count_nonzero(phases_of(radius)) for radius in (0.0, 0.48, 0.52, 100.0)]
    assert rounds[0] == ROUNDS and rounds[-1] == 1
    assert ROUNDS > rounds[1] > rounds[2] > 1


def phases_of(radius):
    policy, phases = make(radius, bound=1.3), []
    play_rounds(policy, on_round=lambda state, *_: phases.append(policy.in_subspace(state)[0]))
    return phases


def test_a_radius_of_zero_never_leaves_and_is_the_literal_rule_that_never_does():
    policy, literal = make(0.0, bound=None), nc.ProBALLUCB(plain_model(DIM, RANK), horizon=ROUNDS, tau=0.0, radius=0.0)
    state, history = play_rounds(policy, 300)
    twin = literal.start(1)
    for phi, reward in history:
        literal.update(twin, phi, reward)
    assert policy.in_subspace(state).all()
    actions = unit(np.random.default_rng(5), 9, DIM)
    np.testing.assert_array_equal(policy.scores(state, actions), literal.scores(twin, actions))


@pytest.mark.parametrize("radius", [1e6, np.inf])
def test_a_huge_radius_leaves_after_the_first_round_for_linucb(radius):
    policy, linear = make(radius), nc.LinUCB(DIM, horizon=ROUNDS)
    assert policy.in_subspace(policy.start(2)).all()
    state, history = play_rounds(policy, 20)
    twin = linear.start(1)
    for phi, reward in history:
        linear.update(twin, phi, reward)
    assert not policy.in_subspace(state).any()
    actions = unit(np.random.default_rng(5), 9, DIM)
    np.testing.assert_array_equal(policy.scores(state, actions), linear.scores(twin, actions))


def test_who_has_left_stays_out():
    """After the exit, savings of large actions would pay the cost back."""
    policy = make(100.0)
    state, _ = play_rounds(policy, 3)
    saved = state.ledger.saved.copy()
    policy.update(state, 1e6 * np.ones(DIM), 0.0)
    assert not policy.in_subspace(state).any()
    np.testing.assert_array_equal(state.ledger.saved, saved)


@pytest.mark.parametrize("kind", [nc.ProBALLUCB, nc.ProBALLTS])
@pytest.mark.parametrize("radius", [0.0, 0.4, 1e3])
def test_the_contract_holds(kind, radius):
    check_policy(make(radius, kind), seed=3)
    check_policy(make(radius, kind, model=plain_model(1, 1)), seed=4)


def test_a_batch_of_rewards_that_crosses_the_exit_is_one_by_one():
    learns_at_once_as_in_turn(make(0.9), DIM, rows=90)


def test_users_inside_and_outside_can_be_joined_saved_and_go_on_alone():
    policy = make(0.5, bound=1.3)
    early, late = play_rounds(policy, 2)[0], play_rounds(policy, 50, seed=1)[0]
    joint = ProBALLState.from_bytes(ProBALLState.concat([early, late]).to_bytes())
    np.testing.assert_array_equal(policy.in_subspace(joint), [True, False])
    rng = np.random.default_rng(0)
    for _ in range(40):
        features = unit(rng, DIM)
        for state in (early, late):
            policy.update(state, features, 0.3)
        policy.update(joint, np.tile(features, (2, 1)), [0.3, 0.3])
    assert joint.to_bytes() == ProBALLState.concat([early, late]).to_bytes()


@pytest.mark.parametrize("radius", [0.0, 1e3])
def test_thompson_draws_are_those_of_the_phase(radius):
    model, draws = plain_model(DIM, RANK), 40_000
    policy = make(radius, nc.ProBALLTS)
    state, history = play_rounds(policy, 8)
    samples = policy.sample(state, [np.random.default_rng(1)] * draws, users=np.zeros(draws, dtype=int))
    v, b = system(history, DIM)
    basis, alpha = (np.eye(DIM), ALPHAS[1]) if radius else (model.basis, ALPHAS[0])
    inverse = basis @ np.linalg.inv(basis.T @ v @ basis) @ basis.T
    spread = alpha * np.sqrt(inverse.diagonal())
    assert np.all(np.abs(samples.mean(axis=0) - inverse @ b) <= 4 * spread / np.sqrt(draws))
    assert np.all(np.abs(np.cov(samples.T) - alpha**2 * inverse) <= 4 * np.sqrt(2 / draws) * np.outer(spread, spread))


@pytest.mark.parametrize("seed", range(3))
def test_savings_are_those_of_the_definition_and_pay_for_every_round_inside(seed):
    """2 sum alpha_1 |U^T phi| + 2 R Delta t <= 2 sum alpha_2 |phi| in every round after which the policy stays inside.

    `saved` of the state is compared with the definition, summed over the rounds played inside; that the policy is
    inside exactly while the savings pay for the rounds is the regret bound.
    """
    model, radius, bound = plain_model(DIM, RANK), 0.5, 1.3
    policy, saved, inside = make(radius, bound=bound), [], []

    def look(state, *_):
        saved.append(float(state.ledger.saved[0]))
        inside.append(bool(policy.in_subspace(state)[0]))

    _, history = play_rounds(policy, seed=seed, on_round=look)
    left = inside.index(False)
    expected = np.cumsum([oracle.saving(history[:t], model.basis, history[t][0], ALPHAS) for t in range(left)])
    np.testing.assert_allclose(saved[1 : left + 1], expected, rtol=1e-9)
    np.testing.assert_array_equal(saved[left:], saved[left])
    assert 1 < left < ROUNDS
    assert np.all(bound * radius * np.arange(1, left) <= saved[1:left]) and bound * radius * left > saved[left]


def test_the_bound_is_a_plug_in_by_default():
    model = plain_model(DIM, RANK)
    by_default, told = make(0.5, bound=None), make(0.5, bound=plug_in_width_bound(model))
    assert play_rounds(by_default)[0].to_bytes() == play_rounds(told)[0].to_bytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"exit": "saving"},
        {"exit": "savings", "tau": 0.5},
        {"exit": "savings", "tau_prime": 1.0},
        {"exit": "savings", "reward_bound": 0.0},
        {"exit": "savings", "reward_bound": np.nan},
        {"reward_bound": 1.0},
    ],
)
@pytest.mark.parametrize("kind", [nc.ProBALLUCB, nc.ProBALLTS])
def test_senseless_settings_are_refused(kind, settings):
    with pytest.raises(PolicyError):
        kind(plain_model(DIM, RANK), horizon=9, radius=1.0, **settings)


def test_states_of_the_two_exits_are_not_taken_for_one_another():
    literal, savings = nc.ProBALLUCB(plain_model(DIM, RANK), horizon=9, radius=0.5), make(0.5)
    for policy, other in ((literal, savings), (savings, literal)):
        with pytest.raises(PolicyError, match="state"):
            policy.choose(other.start(1), np.eye(DIM))


def test_a_scale_without_weight_decides_nothing_of_an_average():
    """Its log may be so much larger than all others that they would vanish beside it."""
    logs = np.array([[0.0, -1.0, 5000.0]])
    found = exits._log_average(logs, np.array([0.5, 0.5, 0.0]))
    assert found[0] == pytest.approx(np.log(0.5 + 0.5 * np.exp(-1.0)))
