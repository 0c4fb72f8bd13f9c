"""Guards the policy LocalUCB: the contract, ranking by Algorithm 2's values, certificates, flags and defaults."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import ModelError, PolicyError
from newcomer.linear.ridge import ridge_precision
from newcomer.local.problem import TOLERANCE, problem_violations
from newcomer.model import Model
from newcomer.policies.widths import Theory
from newcomer.testing import check_policy
from tests.oracles import local as oracle


def model_of(d, k, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
    spectrum = np.sort(rng.uniform(size=d))[::-1]
    return Model(basis, spectrum, np.zeros(d), basis.copy(), 0.25)


def played(policy, users=3, rounds=15, seed=1, actions=5):
    """A state after some rounds of random actions, and a fresh set of actions."""
    rng, d = np.random.default_rng(seed), policy.model.dim
    truth = policy.model.basis @ rng.normal(size=(policy.model.rank, users))
    state = policy.start(users)
    for _ in range(rounds):
        x = rng.normal(size=(users, d)) / np.sqrt(d)
        policy.update(state, x, np.einsum("nd,dn->n", x, truth) + 0.3 * rng.normal(size=users))
    return state, rng.normal(size=(users, actions, d)) / np.sqrt(d)


def small(**options):
    return nc.LocalUCB(model_of(5, 2), horizon=50, **({"radius": 0.4, "reward_bound": 5.0} | options))


def test_theoretical_widths_are_those_of_the_theorem():
    """R sqrt(mu) + C R sqrt(dim log(2T / delta)), mu = 1: two ellipsoids must hold together."""
    policy = small(widths="theoretical", theory=Theory(bound=2.0, delta=0.1, constant=0.5))
    for name, dim in (("inner", 2), ("outer", 5)):
        assert policy.settings[name] == pytest.approx(2.0 + 0.5 * 2.0 * np.sqrt(dim * np.log(2 * 50 / 0.1)))


@pytest.mark.parametrize(("d", "k"), [(5, 2), (4, 1), (6, 3), (1, 1)])
def test_keeps_the_contract(d, k):
    check_policy(nc.LocalUCB(model_of(d, k), horizon=50, radius=0.5, reward_bound=4.0), dim=d)


def test_scores_are_the_values_of_algorithm_2():
    policy = nc.LocalUCB(model_of(3, 1), horizon=50, radius=0.5, reward_bound=2.0)
    state, actions = played(policy)
    scores, gram, limits = policy.scores(state, actions), ridge_precision(state), policy.settings
    for user in range(len(state)):
        for a, action in enumerate(actions[user]):
            case = oracle.Case(gram[user], state.moment[user], policy.model.basis, action, **limits)
            best = oracle.cover_value(case, cells=41, keep=20, levels=8)
            assert abs(scores[user, a] - best) <= 1e-3 * case.scale


def test_choice_is_the_best_score_and_masks_hold():
    policy = small()
    state, actions = played(policy, users=6)
    scores = policy.scores(state, actions)
    np.testing.assert_array_equal(policy.choose(state, actions), scores.argmax(axis=1))
    mask = np.ones(scores.shape, dtype=bool)
    mask[np.arange(6), scores.argmax(axis=1)] = False
    chosen = policy.choose(state, actions, mask=mask)
    np.testing.assert_array_equal(chosen, np.where(mask, scores, -np.inf).argmax(axis=1))


def test_certificate_brackets_the_values_with_checked_points():
    policy = small()
    state, actions = played(policy)
    proof = policy.certificate(state, actions)
    assert proof.feasible.all() and not proof.impossible.any()
    np.testing.assert_allclose(proof.values, policy.scores(state, actions))
    assert (proof.gaps >= -1e-9).all() and (proof.upper <= proof.cone + 1e-9).all()
    assert (proof.cone <= proof.linucb + 1e-9).all() and (proof.violation <= TOLERANCE).all()
    gram, limits = ridge_precision(state), policy.settings
    for user, a in np.ndindex(proof.values.shape):
        point = (proof.beta[user, a], proof.subspace[user, a])
        found = problem_violations(gram[user], state.moment[user], policy.model.basis, *point, **limits)
        assert found.max() <= TOLERANCE
        assert actions[user, a] @ point[0] == pytest.approx(proof.values[user, a], abs=1e-8)


def test_the_check_sees_every_violation():
    policy = small()
    state, actions = played(policy)
    proof, gram, limits = policy.certificate(state, actions), ridge_precision(state)[0], policy.settings
    beta, frame = proof.beta[0, 0], proof.subspace[0, 0]

    def check(beta, frame, **changed):
        return problem_violations(gram, state.moment[0], policy.model.basis, beta, frame, **(limits | changed))

    outside = np.linalg.svd(frame, full_matrices=True)[0][:, -1]
    assert check(beta, 1.1 * frame)[0] > 0.1
    assert check(beta + 0.1 * outside, frame)[1] > 0.01
    assert check(100 * beta, frame)[2:5].min() > 1
    assert check(beta, np.linalg.svd(policy.model.basis)[0][:, 2:4])[5] > 0.5


def test_infeasible_users_are_flagged_and_play_linucb():
    policy, plain = small(radius=0.05), nc.LinUCB(5, horizon=50)
    away = np.linalg.svd(policy.model.basis, full_matrices=True)[0][:, -1]
    state, other = policy.start(2), plain.start(2)
    for one, held in ((policy, state), (plain, other)):
        one.update(held, np.tile(3 * away, (60, 1)), np.full(60, 9.0), users=np.zeros(60, dtype=int))
    actions = np.random.default_rng(0).normal(size=(4, 5))
    np.testing.assert_array_equal(policy.flagged(state), [True, False])
    np.testing.assert_array_equal(policy.in_subspace(state), [False, True])
    scores, proof = policy.scores(state, actions), policy.certificate(state, actions)
    np.testing.assert_allclose(scores[0], plain.scores(other, actions)[0])
    assert (scores[1] < plain.scores(other, actions)[1]).all()
    assert proof.impossible[0] and np.isinf(proof.upper[0]).all() and proof.feasible[1]


def test_never_above_linucb_and_between_the_radii():
    state, actions = played(small())
    narrow, wide = small(radius=0.1).scores(state, actions), small(radius=1.0).scores(state, actions)
    plain, twin = nc.LinUCB(5, horizon=50), state.take(range(len(state)))
    twin.record = plain.record  # the same systems, read by LinUCB
    assert (narrow <= wide + 1e-5).all() and (wide <= plain.scores(twin, actions) + 1e-9).all()


def test_defaults_come_from_the_model():
    policy = nc.LocalUCB(model_of(5, 2), horizon=50, radius=0.3)
    assert policy.settings["bound"] == pytest.approx(3 * np.sqrt(2))
    with pytest.raises(ModelError, match="radius"):
        nc.LocalUCB(model_of(5, 2), horizon=50)


@pytest.mark.parametrize("wrong", [{"radius": -1.0}, {"radius": "wide"}, {"reward_bound": 0.0}, {"widths": "wild"}])
def test_refuses_settings_in_one_sentence(wrong):
    with pytest.raises(PolicyError):
        small(**wrong)


def test_rank_zero_is_refused():
    with pytest.raises(ModelError, match="rank 0"):
        nc.LocalUCB(Model(np.zeros((4, 0)), np.ones(4), np.zeros(4), np.zeros((4, 0)), 1.0), horizon=9)
