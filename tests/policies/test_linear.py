"""Guards LinUCB, LinTS, Uniform and PopulationMean: agreement with naive oracles, laws of samples, widths."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer import array_loops, compile_cache
from newcomer.linear import learning_loops, ridge, scoring_loops
from newcomer.model import Model
from newcomer.policies import exit_loops
from newcomer.policies.widths import Theory
from tests.helpers import unit
from tests.oracles import policies as oracle


@pytest.mark.parametrize("dim", [1, 3, 8])
def test_linucb_is_its_definition(dim):
    policy, rng, history = nc.LinUCB(dim, horizon=60), np.random.default_rng(dim), []
    state, beta = policy.start(1), rng.standard_normal(dim)
    for _ in range(60):
        actions = unit(rng, 7, dim)
        v, b = oracle.system(history, dim)
        expected = oracle.optimistic(v, b, actions, oracle.practical_width(dim, 60))
        np.testing.assert_allclose(policy.scores(state, actions)[0], expected, rtol=1e-10)
        chosen = policy.choose(state, actions)[0]
        assert expected[chosen] >= expected.max() - 1e-10
        history.append((actions[chosen], float(actions[chosen] @ beta + rng.standard_normal())))
        policy.update(state, *history[-1])


def test_widths_are_those_of_the_paper():
    actions = np.eye(4)
    theory = Theory(bound=2.0, delta=0.01, constant=0.5)
    for widths, alpha in (
        ("practical", oracle.practical_width(4, 100)),
        ("theoretical", oracle.theoretical_width(4, 100, 2.0, 0.01, 0.5)),
        (0.7, 0.7),
    ):
        policy = nc.LinUCB(4, horizon=100, widths=widths, theory=theory)
        np.testing.assert_allclose(policy.scores(policy.start(1), actions), alpha, rtol=1e-12)


def test_thompson_samples_have_the_right_mean_and_covariance():
    """LinTS draws from N(V^-1 b, alpha^2 V^-1): 40,000 draws, tolerance four standard errors of each moment."""
    dim, draws = 3, 40_000
    policy, rng = nc.LinTS(dim, horizon=50), np.random.default_rng(5)
    history = [(phi, float(rng.standard_normal())) for phi in rng.standard_normal((6, dim))]
    one = policy.start(1)
    for phi, reward in history:
        policy.update(one, phi, reward)
    samples = policy.sample(one, [rng] * draws, users=np.zeros(draws, dtype=int))
    v, b = oracle.system(history, dim)
    covariance = oracle.practical_width(dim, 50) ** 2 * np.linalg.inv(v)
    spread = np.sqrt(covariance.diagonal())
    assert np.all(np.abs(samples.mean(axis=0) - np.linalg.solve(v, b)) <= 4 * spread / np.sqrt(draws))
    error = np.abs(np.cov(samples.T) - covariance)
    assert np.all(error <= 4 * np.sqrt(2 / draws) * np.outer(spread, spread))


def test_votes_follow_the_law_of_choices():
    policy, rng = nc.LinTS(2, horizon=50, votes=4000), np.random.default_rng(6)
    state, actions = policy.start(1), unit(rng, 4, 2)
    policy.update(state, actions[0], 1.0)
    chances = policy.probabilities(state, actions, rng)[0]
    many = policy.choose(state, actions, rng, users=np.zeros(4000, dtype=int))
    counts = np.bincount(many, minlength=4) / 4000
    assert np.abs(chances - counts).max() < 4 * np.sqrt(2 * 0.25 / 4000)


def test_the_law_does_not_depend_on_the_batch():
    """100 users at once, with a generator each, choose what they choose one by one."""
    policy, rng = nc.LinTS(6, horizon=50), np.random.default_rng(7)
    state, actions = policy.start(100), unit(rng, 100, 9, 6)
    policy.update(state, unit(rng, 100, 6), rng.standard_normal(100))
    rngs = [np.random.default_rng(user) for user in range(100)]
    together = policy.choose(state, actions, rngs)
    for user in range(100):
        alone = policy.choose(state.take([user]), actions[user], np.random.default_rng(user))
        assert alone[0] == together[user]


def test_the_population_mean_scores_with_the_mean():
    rng = np.random.default_rng(8)
    mean = rng.standard_normal(5)
    policy = nc.PopulationMean(Model(np.eye(5)[:, :2], np.ones(5), mean, np.eye(5), 1.0))
    actions, state = rng.standard_normal((3, 4, 5)), policy.start(3)
    np.testing.assert_allclose(policy.scores(state, actions), actions @ mean)
    np.testing.assert_array_equal(policy.choose(state, actions), np.argmax(actions @ mean, axis=1))


def test_read_only_and_other_number_types_are_taken_as_they_are():
    policy = nc.LinUCB(3, horizon=10)
    state, actions = policy.start(1), np.eye(3)
    frozen = actions.copy()
    frozen.flags.writeable = False
    compiled = len(getattr(scoring_loops.ucb_scores, "signatures", ()))
    for given in (
        frozen,
        actions.astype(np.float32),
        actions.tolist(),
        np.asfortranarray(actions),
        np.eye(3, dtype=int),
    ):
        assert policy.choose(state, given)[0] == policy.choose(state, actions)[0]
    assert len(getattr(scoring_loops.ucb_scores, "signatures", ())) <= max(compiled, 1)


def test_warm_leaves_nothing_to_compile():
    compile_cache.warm_compile_cache()
    modules = (scoring_loops, learning_loops, exit_loops, array_loops)
    loops = [f for module in modules for f in vars(module).values() if hasattr(f, "signatures")]
    before = [len(f.signatures) for f in loops]
    model = Model(np.eye(3)[:, :1], np.ones(3), np.zeros(3), np.eye(3), 1.0)
    for policy in (
        nc.LinUCB(3, horizon=9),
        nc.LinTS(3, horizon=9),
        nc.ProBALLUCB(model, horizon=9, radius=2, tau=1),
        nc.ProBALLUCB(model, horizon=9, radius=2, tau=0.0),
        nc.ProBALLTS(model, horizon=9, radius=1, tau_prime=1.0),
        nc.ProBALLUCB(model, horizon=9, radius=1, exit="savings"),
        nc.PriorUCB(model, level=0.99),
        nc.PriorTS(model, level=0.99),
        nc.PopulationMean(model),
        nc.MUCB(np.eye(3), horizon=9),
        nc.MixTS(np.eye(3), covariances=np.eye(3)),
    ):
        state, rng = policy.start(2), np.random.default_rng(0)
        for _ in range(5):
            chosen = np.eye(3)[policy.choose(state, np.eye(3), rng)]
            policy.update(state, chosen, [0.1, 9.2])
            policy.scores(state, np.eye(3), mask=np.array([True, False, True]))
    assert [len(f.signatures) for f in loops] == before


def test_the_systems_of_the_state_are_the_users():
    policy = nc.LinUCB(2, horizon=9)
    state = policy.start(2)
    policy.update(state, [[1.0, 0.0]], [1.0], users=[1])
    np.testing.assert_allclose(ridge.ridge_precision(state), [np.eye(2), np.diag([2.0, 1.0])])
