"""Guards the theorem kappa_t <= sqrt(t), the elliptical potential, and the rates that the theorems promise."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.model import Model
from newcomer.paper.theory import guarantees
from newcomer.worlds.synthetic import Synthetic
from tests.oracles.policies import kappas


def sequences(rng, count, dim, length):
    """Rows of norm at most 1: spread out, on one line, near a line, short, and alternating between two lines."""
    for index in range(count):
        x = rng.standard_normal((length, dim))
        if index % 5 == 1:
            x[:] = x[0]
        if index % 5 == 2:
            x = x[0] + 0.05 * x
        if index % 5 == 3:
            x *= rng.random((length, 1))
        if index % 5 == 4:
            x = x[np.arange(length) % 2]
        yield x / np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_kappa_is_at_most_the_root_of_the_number_of_rewards(rank):
    """kappa_t^2 <= |X^T X| <= t - 1, in the span or out of it; kappa_t has seen t - 1 rows."""
    rng, tightest = np.random.default_rng(rank), 0.0
    for x in sequences(rng, 100, 6, 12):
        basis = np.linalg.qr(rng.standard_normal((6, rank)))[0]
        found = kappas([(phi, 0.0) for phi in x], basis)
        largest = np.array([np.linalg.norm(x[:t], 2) ** 2 if t else 0.0 for t in range(len(x) + 1)])
        assert (found**2 <= largest + 1e-9).all() and (largest <= np.arange(len(x) + 1) + 1e-9).all()
        tightest = max(tightest, float((found[1:] ** 2 / np.arange(1, len(x) + 1)).max()))
    assert tightest > 0.8  # the bound is nearly met, out of the span too


def test_the_kappa_that_the_policy_keeps_obeys_it():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((8, 2)))[0]
    model = Model(basis, np.ones(8), np.zeros(8), basis, noise_variance=1.0)
    policy = nc.ProBALLUCB(model, horizon=60, radius=0.01, tau_prime=1.0)
    state = policy.start(5)
    for t in range(1, 61):
        x = rng.standard_normal((5, 8))
        policy.update(state, x / np.linalg.norm(x, axis=1)[:, None], rng.standard_normal(5))
        assert (state.ledger.kappa**2 <= t + 1e-9).all()
    assert (state.ledger.squares <= 60 * 61 / 2).all()


@pytest.mark.parametrize("tau_prime", [0.0, 1.0])
def test_nobody_leaves_before_the_earliest_exit(tau_prime):
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    model = Model(basis, np.ones(6), np.zeros(6), basis, noise_variance=1.0)
    policy = nc.ProBALLUCB(model, horizon=100, radius=0.9, tau_prime=tau_prime)
    first = guarantees.earliest_exit(6, 2, 0.9, tau_prime=tau_prime)
    state = policy.start(1)
    toward = basis[:, 0] + 0.3 * np.eye(6)[0]
    for t in range(1, 100):  # round t is the coming one
        assert policy.in_subspace(state)[0] or t > first
        policy.update(state, toward / np.linalg.norm(toward), 0.0)
    assert not policy.in_subspace(state)[0]


@pytest.mark.parametrize("ridge", [0.5, 1.0, 4.0])
def test_the_elliptical_potential_is_bounded(ridge):
    rng = np.random.default_rng(2)
    for x in sequences(rng, 20, 5, 80):
        v, total = ridge * np.eye(5), 0.0
        for phi in x:
            total += min(phi @ np.linalg.solve(v, phi), 1.0)
            v += np.outer(phi, phi)
        assert total <= 2 * (np.linalg.slogdet(v)[1] - 5 * np.log(ridge)) + 1e-9
        assert total <= guarantees.elliptical_potential(5, 80, ridge=ridge) + 1e-9


def test_the_potential_in_the_subspace_has_the_small_dimension():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((8, 2)))[0]
    for x in sequences(rng, 20, 8, 80):
        v, total = np.eye(8), 0.0
        for phi in x:
            low = basis.T @ phi
            total += min(low @ np.linalg.solve(basis.T @ v @ basis, low), 1.0)
            v += np.outer(phi, phi)
        assert total <= guarantees.elliptical_potential(2, 80) + 1e-9


def test_the_printed_order_of_the_potential_is_too_small():
    """d different axes add up to d, which no multiple of sqrt(d) bounds."""
    for dim in (4, 100, 2500):
        assert dim <= guarantees.elliptical_potential(dim, dim)  # each fresh axis contributes 1 (mu = 1)


def test_rates_are_the_theorems():
    d, k, n, t = 50, 2, 5000, 1000
    online = 3 * d * np.sqrt(t)
    away = np.sqrt(d * t / (k * n))
    assert guarantees.online_regret(d, t, bound=3) == pytest.approx(online)
    assert guarantees.hybrid_regret(d, k, n, t, squares=7.0, quality=2.0) == pytest.approx(
        k * np.sqrt(t) * (1 + 2 * (away + np.sqrt(d / n * 7.0)))
    )
    assert guarantees.minimax_regret(d, k, n, t) == pytest.approx(min(online / 3, k * np.sqrt(t) * (1 + away)))
    proven = k * np.sqrt(t) * (1 + 0.1 * np.sqrt(k * d * t / n))
    assert guarantees.local_regret(d, k, n, t, quality=0.1, bound=2.0) == pytest.approx(2 * proven)
    assert guarantees.local_regret(d, k, 1, t) == guarantees.online_regret(d, t)
    assert guarantees.proball_regret(d, k, 1, t) == pytest.approx(online / 3)
    halves = guarantees.radius_rate(d, k, n) / guarantees.radius_rate(d, k, 4 * n)
    assert halves == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(40))
def test_the_optimistic_vector_is_near_the_true_one_in_the_true_subspace(seed):
    """The theorem in docs/paper/theory.md behind LOCAL-UCB's bound, for any subspace near the true one, any vector of
    its ellipsoid, and any noise, large or none.
    """
    rng = np.random.default_rng(seed)
    d, k, t, width = 7, int(rng.integers(1, 4)), int(rng.integers(1, 60)), float(rng.uniform(0.0, 2.0))
    true = np.linalg.qr(rng.standard_normal((d, k)))[0]
    other = np.linalg.qr(true + 10 ** rng.uniform(-3, 0) * rng.standard_normal((d, k)))[0]
    x = next(sequences(np.random.default_rng(seed), 1, d, t)) * rng.random()
    eta = 10 ** rng.uniform(-2, 1) * rng.standard_normal(t)
    v, noise, beta = np.eye(d) + x.T @ x, x.T @ eta, true @ rng.standard_normal(k)
    small = other.T @ v @ other
    shift = rng.standard_normal(k)
    theta = np.linalg.solve(small, other.T @ (x.T @ x @ beta + noise)) + width * shift / np.sqrt(shift @ small @ shift)
    found, bound = other @ theta, max(np.linalg.norm(beta), np.linalg.norm(theta))
    apart = np.linalg.norm(other @ other.T - true @ true.T, 2)
    low = true.T @ noise
    s = np.sqrt(low @ np.linalg.solve(true.T @ v @ true, low))
    gap = true @ (true.T @ found) - beta
    limit = width + bound + s + apart * np.sqrt(1 + t) * (2 * bound + s) + apart * np.linalg.norm(noise)
    assert np.sqrt(gap @ v @ gap) <= limit * (1 + 1e-12)


def test_the_worst_case_costs_proball_only_a_root_of_k():
    """With kappa_t^2 <= t - 1 Reg_hyb is at most (1 + sqrt(k / 2)) times LOCAL-UCB's second term."""
    for d, k, n, t in [(50, 2, 5000, 1000), (200, 18, 5000, 200), (20, 5, 100, 10_000)]:
        local = guarantees.hybrid_regret(d, k, n, t, squares=0.0)
        assert guarantees.hybrid_regret(d, k, n, t) <= (1 + np.sqrt(k / 2)) * local


def test_the_end_of_the_proof_on_the_radius_needs_a_third():
    """With x = dD / lambda_A the proof asks x <= 1/2, where B <= 2 / lambda_A, and takes B dD <= 1/2: at x = 1/2 it may
    be 1, where the theorem is void; x <= 1/3 is enough, and 64 / lambda_A^3 and 16 / lambda_A^2 hold then.
    """
    for smallest in (0.05, 0.3, 1.0):
        for x in np.linspace(0.0, 1 / 3, 20):
            error = x * smallest
            B = 1 / (smallest - error)  # the worst that an error of the mean coverage can make of 1 / lambda_A
            assert B <= 2 / smallest and B * error <= 0.5 + 1e-12
            assert B**3 * (2 - B * error) / (1 - B * error) ** 2 <= 64 / smallest**3 * (1 + 1e-12)
            assert (B / (1 - B * error)) ** 2 <= 16 / smallest**2 * (1 + 1e-12)
        assert 0.5 * smallest / (smallest - 0.5 * smallest) == pytest.approx(1.0)


def test_lambda_theta_of_one_hot_logs_may_exceed_one():
    """Everybody likes all d actions: S = R^2 1 1^T has the eigenvalue d R^2, and |beta| is R sqrt(d)."""
    rng, dim = np.random.default_rng(0), 6
    users = np.repeat(np.arange(400), dim)
    actions = np.concatenate([rng.permutation(dim) for _ in range(400)])
    logs = nc.Logs.from_arrays(user=users, action=actions, reward=2.0 + 0.0 * actions)
    model = nc.fit(logs, rank=1, estimator="sold", null=False)
    assert 1.0 < model.evidence.coverage.lambda_theta == pytest.approx(dim, rel=0.05)


def test_the_papers_radii_of_an_em_model_are_those_of_sold():
    logs = Synthetic(dim=8, rank=2, scale=1.25, seed=1).logs(400, 12, 1)
    by_sold, by_em = (nc.fit(logs, rank=2, ridge=1.0, estimator=name, null=False) for name in ("sold", "em"))
    for kind in ("hoeffding", "bernstein", "martingale"):
        assert by_em.radius(kind, clip=False, simplified=True) == by_sold.radius(kind, clip=False, simplified=True)
    assert np.abs(by_em.basis @ by_em.basis.T - by_sold.basis @ by_sold.basis.T).max() > 1e-3
