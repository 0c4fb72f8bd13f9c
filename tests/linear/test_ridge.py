"""Guards the ridge system: V, V^-1 and the mean agree with plain linear algebra, and stay so for 100,000 rewards."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newcomer.errors import ModelError
from newcomer.linear import ridge
from newcomer.linear.ridge import Ridge
from tests.oracles import policies as oracle

MANY = 100_000


def learned(features, rewards=None, users=None, n=1):
    system = ridge.start_ridge(n, features.shape[1])
    rewards = np.zeros(len(features)) if rewards is None else rewards
    users = np.zeros(len(features), dtype=np.int64) if users is None else users
    ridge.learn_ridge(system, features, rewards, users)
    return system


def inverse_error(v, inverse):
    return np.linalg.norm(v @ inverse - np.eye(len(v)), 2)


def exact_precision(features):
    """I + sum x x^T, summed in extended precision and rounded once."""
    wide = features.astype(np.longdouble)
    total = np.eye(features.shape[1], dtype=np.longdouble)
    for part in np.array_split(wide, 50):
        total += (part[:, :, None] * part[:, None, :]).sum(axis=0)
    return total.astype(np.float64)


def streams(dim, scale):
    """Features in all directions, always the same one, and three in turn; of one size, and of all sizes from 1e-3."""
    rng = np.random.default_rng(dim)
    unit = rng.standard_normal((MANY, dim))
    unit *= scale / np.linalg.norm(unit, axis=1, keepdims=True)
    yield unit
    yield np.repeat(unit[:1], MANY, axis=0)
    yield np.tile(unit[:3], (MANY // 3, 1))
    yield unit * 10 ** rng.uniform(-6, 0, (MANY, 1)) * (1e3 / scale)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("dim", [1, 4, 12])
def test_the_inverse_holds_after_many_rewards(dim, scale):
    for features in streams(dim, scale):
        system = learned(features)
        inverse = oracle.inverse(system)[0]
        for v in (exact_precision(features), ridge.ridge_precision(system)[0]):
            fresh = inverse_error(v, np.linalg.inv(v))
            assert inverse_error(v, inverse) <= max(1e-8, 10 * fresh)
        assert np.linalg.eigvalsh(inverse)[0] > 0


def test_positive_definiteness_survives_what_cannot_be_factorised():
    """cond(V) = 1e30: the Cholesky factor of V does not exist in floating point, the turned factor does."""
    rng = np.random.default_rng(0)
    features = np.repeat(1e12 * rng.standard_normal((1, 4)), 1000, axis=0)
    factor = learned(features, np.ones(1000)).factor
    assert np.isfinite(factor).all()
    assert np.all(ridge.unpack_ridge(factor, 4)[0].diagonal() > 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(0, 40), st.integers(0, 10**6))
def test_the_system_is_plain_linear_algebra(dim, count, seed):
    rng = np.random.default_rng(seed)
    features, rewards = rng.standard_normal((count, dim)), rng.standard_normal(count)
    system = learned(features, rewards)
    v, b = oracle.system(list(zip(features, rewards, strict=True)), dim)
    np.testing.assert_allclose(ridge.ridge_precision(system)[0], v, atol=1e-12)
    np.testing.assert_allclose(oracle.inverse(system)[0], np.linalg.inv(v), atol=1e-10)
    np.testing.assert_allclose(system.mean[0], np.linalg.solve(v, b), atol=1e-10)
    assert system.count[0] == count


def test_users_are_apart_and_may_repeat():
    rng = np.random.default_rng(1)
    features, rewards, users = rng.standard_normal((30, 3)), rng.standard_normal(30), rng.integers(0, 4, 30)
    system = learned(features, rewards, users, n=4)
    for user in range(4):
        alone = learned(features[users == user], rewards[users == user])
        assert system.take([user]).to_bytes() == alone.to_bytes()


def test_packing_is_undone_by_unpacking():
    lower = np.tril(np.random.default_rng(3).standard_normal((2, 4, 4)))
    np.testing.assert_array_equal(ridge.unpack_ridge(ridge.pack_ridge(lower), 4), lower)


def test_arrays_that_do_not_fit_are_refused():
    system = ridge.start_ridge(2, 3)
    for name in ("factor", "guard", "moment"):
        parts = {one.name: getattr(system, one.name) for one in fields(system)} | {name: np.zeros((2, 99))}
        with pytest.raises(ModelError, match="do not make a Ridge"):
            Ridge(**parts).check()


def test_the_ellipsoid_covers_at_all_times():
    """Abbasi-Yadkori et al., Theorem 2: P(exists t: |mean - beta|_V > width) <= delta, here with Gaussian noise."""
    delta, noise, misses, users, rounds, dim = 0.1, 0.5, 0, 200, 60, 3
    rng = np.random.default_rng(4)
    beta = rng.standard_normal((users, dim))
    beta /= np.linalg.norm(beta, axis=1, keepdims=True)
    system, missed = ridge.start_ridge(users, dim), np.zeros(users, dtype=bool)
    for _ in range(rounds):
        features = rng.standard_normal((users, dim)) / np.sqrt(dim)
        rewards = (features * beta).sum(axis=1) + noise * rng.standard_normal(users)
        ridge.learn_ridge(system, features, rewards, np.arange(users))
        gap = system.mean - beta
        v = ridge.ridge_precision(system)
        distance = np.sqrt(np.einsum("ni,nij,nj->n", gap, v, gap))
        missed |= distance > oracle.self_normalised_width(v, noise=noise, bound=1.0, delta=delta)
    misses = missed.mean()
    assert misses <= delta
