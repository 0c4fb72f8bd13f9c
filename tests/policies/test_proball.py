"""Guards ProBALL-UCB and ProBALL-TS: the definition, the switch, identities with LinUCB, the ellipsoids' coverage."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.linear import ridge
from newcomer.model import Model
from newcomer.policies.proball import ProBALLState
from newcomer.policies.widths import Theory
from tests.helpers import learns_at_once_as_in_turn, plain_model, unit
from tests.oracles import policies as oracle


def play_rounds(policy, rounds, seed=0, count=6, on_round=lambda *_: None):
    """One user against random unit features; `on_round(state, actions, history, chosen)` looks on."""
    rng, state, history = np.random.default_rng(seed), policy.start(1), []
    beta = rng.standard_normal(policy.model.dim)
    for t in range(rounds):
        actions = unit(rng, count, policy.model.dim)
        chosen = int(policy.choose(state, actions, np.random.default_rng([seed, t]))[0])
        on_round(state, actions, history, chosen)
        history.append((actions[chosen], float(actions[chosen] @ beta + rng.standard_normal())))
        policy.update(state, *history[-1])
    return state, history


@pytest.mark.parametrize(("tau", "tau_prime"), [(0.0, 0.0), (1.0, 0.0), (0.5, 1.0), (0.0, 2.0), (1e9, 0.0)])
@pytest.mark.parametrize("widths", ["practical", "theoretical"])
def test_proball_ucb_is_its_definition(tau, tau_prime, widths):
    """Every round of 60, phase and scores: Algorithm ProBALL-UCB, with kappa in the theoretical width."""
    model, radius = plain_model(5, 2), 0.9
    policy = nc.ProBALLUCB(model, horizon=60, tau=tau, tau_prime=tau_prime, radius=radius, widths=widths)
    width = oracle.practical_width if widths == "practical" else oracle.theoretical_width
    phases = []

    def compare(state, actions, history, chosen):
        inside = oracle.stays(history, model.basis, radius, tau, tau_prime)
        phases.append(inside)
        assert policy.in_subspace(state)[0] == inside
        low = width(2, 60) + (tau_prime * radius * oracle.kappas(history, model.basis)[-1]) * (widths == "theoretical")
        expected = oracle.proball_scores(history, model.basis, actions, radius, tau, tau_prime, (low, width(5, 60)))
        np.testing.assert_allclose(policy.scores(state, actions)[0], expected, rtol=1e-9, atol=1e-12)
        assert expected[chosen] >= expected.max() - 1e-9

    play_rounds(policy, 60, on_round=compare)
    assert all(phases) == (tau == tau_prime == 0)
    assert any(phases) == (tau < 1e9)


def test_full_rank_with_practical_widths_is_linucb():
    model = plain_model(4, 4)
    inside, outside = (nc.ProBALLUCB(model, horizon=40, tau=tau, radius=1.0) for tau in (0.0, 1e9))
    linear = nc.LinUCB(4, horizon=40)
    state, twin = linear.start(1), outside.start(1)

    def compare(mine, actions, history, chosen):
        for phi, reward in history[-1:]:
            linear.update(state, phi, reward)
            outside.update(twin, phi, reward)
        expected = linear.scores(state, actions)
        np.testing.assert_allclose(inside.scores(mine, actions), expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(outside.scores(twin, actions), expected)

    play_rounds(inside, 40, on_round=compare)


def test_without_tau_it_never_leaves_and_with_a_huge_tau_it_leaves_at_once():
    model = plain_model(3, 1)
    for radius in (1.0, 1e6, np.inf):
        policy = nc.ProBALLUCB(model, horizon=9, tau=0.0, tau_prime=0.0, radius=radius)
        assert policy.in_subspace(play_rounds(policy, 200)[0])[0]
    policy = nc.ProBALLUCB(model, horizon=9, tau=1e12, radius=1e-3)
    assert not policy.in_subspace(policy.start(2)).any()
    assert not nc.ProBALLUCB(model, horizon=9, radius=np.inf).in_subspace(
        nc.ProBALLUCB(model, horizon=9, radius=np.inf).start(1)
    )


def test_with_tau_one_and_a_radius_of_one_it_cannot_leave_before_d_squared():
    policy = nc.ProBALLUCB(plain_model(4, 2), horizon=9, tau=1.0, radius=1.0)
    last = []
    play_rounds(policy, 20, on_round=lambda state, *_: last.append(bool(policy.in_subspace(state)[0])))
    assert last == [t <= 16 for t in range(1, 21)]


def test_the_phase_may_flip_back():
    """kappa grows while features lean out of the span to one side, and falls when they lean to the other."""
    model, radius = Model(np.eye(3)[:, :1], np.ones(3), np.zeros(3), np.eye(3), 1.0), 3 / np.sqrt(10)
    policy = nc.ProBALLUCB(model, horizon=9, tau=0.0, tau_prime=1.0, radius=radius)
    state, phases, history = policy.start(1), [], []
    for phi in np.array([[0.5, 1.9, 0.0]] * 12 + [[0.5, -1.9, 0.0]] * 12 + [[0.0, 0.0, 0.0]] * 40):
        phases.append(bool(policy.in_subspace(state)[0]))
        assert phases[-1] == oracle.stays(history, model.basis, radius, 0.0, 1.0)
        np.testing.assert_allclose(
            policy.scores(state, np.eye(3))[0],
            oracle.proball_scores(history, model.basis, np.eye(3), radius, 0.0, 1.0, policy_widths(1, 3, 9)),
            rtol=1e-9,
            atol=1e-12,
        )
        history.append((phi, 1.0))
        policy.update(state, phi, 1.0)
    assert np.diff(np.array(phases, dtype=int)).tolist().count(-1) == 1
    assert phases[0] and phases[-1] and not all(phases)


def policy_widths(rank, dim, horizon):
    return oracle.practical_width(rank, horizon), oracle.practical_width(dim, horizon)


@pytest.mark.parametrize("rounds", [1, 7, 16, 17, 40, 90])
def test_the_full_system_built_late_is_the_one_kept_all_along(rounds):
    """Leaves after `rounds` rewards, before and after rows were added to V, then learns 20 more."""
    dim = 20
    model, rng = plain_model(dim, 3), np.random.default_rng(rounds)
    tau = dim / np.sqrt(rounds + 0.5)
    policy, linear = nc.ProBALLUCB(model, horizon=50, tau=tau, radius=1.0), nc.LinUCB(dim, horizon=50)
    state, kept = policy.start(2), linear.start(2)
    for t in range(rounds + 20):
        assert policy.in_subspace(state).all() == (t < rounds)
        assert np.all(state.systems.built == (t >= rounds))
        features, reward = unit(rng, 2, dim), rng.standard_normal(2)
        policy.update(state, features, reward)
        linear.update(kept, features, reward)
    full = state.systems.full
    np.testing.assert_allclose(ridge.ridge_precision(full), ridge.ridge_precision(kept), atol=1e-9)
    np.testing.assert_allclose(oracle.inverse(full), oracle.inverse(kept), atol=1e-9)
    np.testing.assert_allclose(full.mean, kept.mean, atol=1e-9)


def test_nothing_of_size_d_squared_exists_in_the_subspace():
    policy = nc.ProBALLUCB(plain_model(60, 2), horizon=50, tau=1.0, radius=1.0)
    state, _ = play_rounds(policy, 30)
    assert state.systems.full.factor.size == state.systems.full.gram.size == 0
    assert sum(array.size for _, array, _ in state.arrays()) < 60 * 60


def test_memory_is_bounded_in_a_long_subspace_phase():
    """Rows are kept only by users who may leave, and then at most max(d, 16) of them."""
    for tau, room in ((0.0, 0), (1e-3, 16)):
        policy = nc.ProBALLUCB(plain_model(6, 2), horizon=50, tau=tau, radius=1.0)
        state, _ = play_rounds(policy, 300)
        assert state.systems.rows.shape[1] == room


def test_users_in_different_phases_can_be_joined_and_cut():
    model = plain_model(20, 2)
    policy = nc.ProBALLUCB(model, horizon=50, tau=20 / np.sqrt(10.5), radius=1.0)
    early, _ = play_rounds(policy, 3)
    late, _ = play_rounds(policy, 30, seed=1)
    joint = ProBALLState.concat([early, late, early])
    np.testing.assert_array_equal(policy.in_subspace(joint), [True, False, True])
    rng = np.random.default_rng(0)
    for _ in range(30):
        features = unit(rng, 20)
        for state in (early, late):
            policy.update(state, features, 0.3)
        policy.update(joint, np.tile(features, (3, 1)), [0.3, 0.3, 0.3])
    actions = unit(rng, 5, 20)
    for place, alone in enumerate((early, late, early)):
        np.testing.assert_array_equal(policy.scores(joint.take([place]), actions), policy.scores(alone, actions))


def test_a_batch_of_rewards_that_crosses_the_switch_is_one_by_one():
    policy = nc.ProBALLUCB(plain_model(5, 2), horizon=50, tau=5 / np.sqrt(10.5), tau_prime=1e-9, radius=1.0)
    learns_at_once_as_in_turn(policy, dim=5, rows=60)


@pytest.mark.parametrize("tau", [0.0, 1e9])
def test_thompson_samples_have_the_right_mean_and_covariance(tau):
    """In the subspace U theta, theta ~ N(V_U^-1 U^T b, alpha_1^2 V_U^-1); outside the law of LinTS."""
    model, draws = plain_model(4, 2), 40_000
    policy = nc.ProBALLTS(model, horizon=30, tau=tau, radius=1.0)
    state, history = play_rounds(policy, 8)
    samples = policy.sample(state, [np.random.default_rng(1)] * draws, users=np.zeros(draws, dtype=int))
    v, b = oracle.system(history, 4)
    basis = model.basis if tau == 0 else np.eye(4)
    inverse = basis @ np.linalg.inv(basis.T @ v @ basis) @ basis.T
    covariance = oracle.practical_width(basis.shape[1], 30) ** 2 * inverse
    spread = np.sqrt(covariance.diagonal())
    assert np.all(np.abs(samples.mean(axis=0) - inverse @ b) <= 4 * spread / np.sqrt(draws))
    assert np.all(np.abs(np.cov(samples.T) - covariance) <= 4 * np.sqrt(2 / draws) * np.outer(spread, spread))
    np.testing.assert_allclose(policy.scores(state, np.eye(4))[0], inverse @ b, atol=1e-10)


def coverage(in_span, *, users=200, rounds=100, noise=0.1, delta=0.1):
    """Share of users for whom the ellipsoid of beta_1 ever misses, with and without the kappa term (notes 4)."""
    rng, dim, rank = np.random.default_rng(9), 6, 2
    truth = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    basis = np.linalg.qr(truth + 0.25 * rng.standard_normal((dim, rank)))[0]
    radius = np.linalg.norm(truth @ truth.T - basis @ basis.T, 2)
    model = Model(basis, np.ones(dim), np.zeros(dim), basis, 1.0)
    policy = nc.ProBALLUCB(model, horizon=rounds, tau=0.0, tau_prime=1e-9, radius=radius)
    beta = unit(rng, users, rank) @ truth.T
    lean = rng.standard_normal((dim, dim)) / np.sqrt(dim)  # isotropic features would hide the bias: it averages out
    state, missed, bare = policy.start(users), np.zeros(users, dtype=bool), np.zeros(users, dtype=bool)
    for _ in range(rounds):
        features = unit(rng, users, rank) @ basis.T if in_span else unit(rng, users, dim) @ lean
        policy.update(state, features, (features * beta).sum(axis=1) + noise * rng.standard_normal(users))
        gap, v = state.systems.small.mean - beta @ basis, ridge.ridge_precision(state.systems.small)
        distance = np.sqrt(np.einsum("ni,nij,nj->n", gap, v, gap))
        width = oracle.self_normalised_width(v, noise=noise, bound=1.0, delta=delta)
        bare |= distance > width
        missed |= distance > width + radius * state.ledger.kappa
    return missed.mean(), bare.mean()


def test_the_subspace_ellipsoid_covers_in_the_span_without_the_radius():
    assert coverage(in_span=True)[1] <= 0.1


def test_the_subspace_ellipsoid_covers_out_of_the_span_with_the_radius():
    covered, bare = coverage(in_span=False)
    assert covered <= 0.1
    assert bare > 0.1  # the term is needed


def test_theory_reaches_the_widths():
    model = plain_model(4, 2)
    policy = nc.ProBALLUCB(model, horizon=9, tau=0.0, radius=1.0, widths="theoretical", theory=Theory(bound=3.0))
    norms = np.linalg.norm(np.eye(4) @ model.basis, axis=1)
    expected = oracle.theoretical_width(2, 9, bound=3.0) * norms
    np.testing.assert_allclose(policy.scores(policy.start(1), np.eye(4))[0], expected, rtol=1e-12)
