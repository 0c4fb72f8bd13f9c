"""Attributes of users in the fit, against dense Gaussians written out, and what the fit makes of attributes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.arrays import Floats
from newcomer.em.attributes import (
    AttributeTask,
    add_up_attribute_information,
    fit_attributes,
    heldout_attribute_gains,
    population_with_attributes,
)
from newcomer.em.passes import Passes
from newcomer.errors import FitWarning
from newcomer.logs.workers import WorkerPool
from newcomer.model import Model
from newcomer.population import AttributePrior, Population
from newcomer.users import user_bucket_count
from tests.oracles import attributes as oracle
from tests.oracles import binary as integrals


def world(
    seed: int, n: int = 400, d: int = 6, k: int = 2, rows: int = 6, strength: float = 0.8
) -> tuple[nc.Logs, dict]:
    """Users with two attributes, a number and a level, of which the number matters."""
    rng = np.random.default_rng(seed)
    age, plan = rng.normal(40, 10, n), rng.choice(["free", "paid", "gift"], n)
    L = np.linalg.qr(rng.normal(size=(d, k)))[0] * np.array([1.2, 0.8])[:k]
    z = rng.normal(size=(n, k))
    z[:, 0] += 0.8 * (age - 40) / 10
    X = rng.normal(size=(n * rows, d))
    user = np.repeat(np.arange(n), rows)
    r = np.einsum("id,id->i", X, (0.3 + z @ L.T)[user]) + 0.5 * rng.normal(size=n * rows)
    people = pl.DataFrame({"user": np.arange(n), "age": age, "plan": plan})
    return nc.Logs.from_arrays(user=user, features=X, reward=r, users=people), {"L": L, "people": people}


def test_gains_in_likelihood_are_those_of_dense_gaussians() -> None:
    rng = np.random.default_rng(0)
    n, d, k, p = 40, 4, 2, 2
    m, L, B = rng.normal(size=d), rng.normal(size=(d, k)), 0.3 * rng.normal(size=(d, p))
    user = np.repeat(np.arange(n), 3)
    X, r = rng.normal(size=(len(user), d)), rng.normal(size=len(user))
    people = pl.DataFrame({"user": np.arange(n), "a": rng.normal(size=n), "b": rng.normal(size=n)})
    logs = nc.Logs.from_arrays(user=user, features=X, reward=r, users=people)
    batch = next(logs.batches())
    assert batch.attributes is not None
    population = Population(m, L, 0.7)
    directions = np.column_stack([L, np.eye(d)])
    every = np.ones(user_bucket_count(d), dtype=np.bool_)
    task = AttributeTask(population, directions, k, every)
    (found,) = add_up_attribute_information(
        batch, (task,), AttributePrior(np.zeros((0, p)), np.zeros((p, p))), (0, 1)
    ).each
    T = np.concatenate([np.zeros((k, p)), B])
    gain = (found.score.sum(axis=0) * T.ravel()).sum() - 0.5 * T.ravel() @ found.precision.sum(axis=0) @ T.ravel()
    v = np.full(3, 0.7)
    wanted = sum(
        oracle.log_likelihood(X[3 * i : 3 * i + 3], r[3 * i : 3 * i + 3], v, m, B, L, batch.attributes[i])
        - oracle.log_likelihood(X[3 * i : 3 * i + 3], r[3 * i : 3 * i + 3], v, m, 0 * B, L, batch.attributes[i])
        for i in range(n)
    )
    assert gain == pytest.approx(wanted, abs=1e-8)
    assert heldout_attribute_gains(found, np.zeros((k + d, p))).tolist() == [0.0] * len(found.users)


@pytest.mark.parametrize("known", [(True, True, True), (True, False, True), (False, False, False)])
def test_the_prior_given_attributes_is_the_joint_normal_conditioned(known: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(1)
    m, L, B = rng.normal(size=5), rng.normal(size=(5, 5)), rng.normal(size=(5, 3))
    root = rng.normal(size=(3, 3))
    C, x = root @ root.T, rng.normal(size=3)
    prior, factor = population_with_attributes(L, B, C)
    mean, covariance = prior.given(np.where(known, x, np.nan)[None])
    wanted = oracle.prior(m, B, L, x, np.array(known), C)
    np.testing.assert_allclose(m + factor @ mean[0], wanted[0], atol=1e-9)
    np.testing.assert_allclose(factor @ covariance[0] @ factor.T, wanted[1], atol=1e-9)


def test_the_attribute_that_matters_stays_and_the_other_goes() -> None:
    logs, truth = world(2)
    model = nc.fit(logs, calibrate=False)
    kept = {one.name: one.kept for one in model.evidence.attributes}
    assert kept == {"age": True, "plan": False}
    assert [one.name for one in model.attributes] == ["age"]
    assert "age is used" in next(one for one in model.evidence.attributes if one.kept).sentence
    shift = model.prior({"age": 50})[0] - model.mean
    direction = truth["L"][:, 0] / np.linalg.norm(truth["L"][:, 0])
    assert shift @ direction == pytest.approx(0.8 * 1.2, rel=0.25)  # one deviation of age
    assert np.linalg.eigvalsh(model.covariance - model.prior({"age": 50})[1])[0] > -1e-9
    np.testing.assert_array_equal(model.prior({"age": None})[0], model.mean)
    assert model == Model.from_bytes(model.to_bytes())


def test_attributes_permuted_among_people_leave_the_fit_without_them() -> None:
    logs, truth = world(3)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(400)
        people = truth["people"].with_columns(pl.Series("user", order))
        permuted = nc.fit(logs.with_users(people), calibrate=False)
        assert permuted.attributes == ()
    rows = [batch for batch in logs.batches()]
    user = np.concatenate([np.repeat(b.users, b.lengths) for b in rows])
    without = nc.fit(nc.Logs.from_arrays(user=user, features=rows[0].features, reward=rows[0].rewards), calibrate=False)
    assert permuted.id == without.id


def emails(seed: int, n: int, rows: int) -> tuple[Floats, Floats, Floats, pl.DataFrame]:
    """Clicks on twelve templates: what is liked depends on two attributes and on nothing else that is shared."""
    rng = np.random.default_rng(seed)
    segment, device = rng.choice(["new", "loyal", "lapsed", "vip"], n), rng.integers(0, 2, n).astype(bool)
    effects = np.random.default_rng(99).normal(0, 0.25, size=(12, 5))
    x = np.column_stack([segment == s for s in ("new", "loyal", "lapsed", "vip")] + [device])
    chance = 0.4 + x @ effects.T
    action = rng.integers(0, 12, (n, rows))
    reward = np.take_along_axis(chance, action, 1) + 0.3 * rng.normal(size=action.shape)
    return action, reward, chance, pl.DataFrame({"user": np.arange(n), "segment": segment, "device": device})


def test_where_nothing_else_is_shared_attributes_have_directions_of_their_own() -> None:
    action, reward, _, people = emails(0, 1500, 5)
    user = np.repeat(np.arange(1500), 5)
    logs = nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), users=people)
    model = nc.fit(logs, calibrate=False)
    assert {one.name for one in model.attributes} == {"segment", "device"}
    _, _, chance, others = emails(1, 500, 1)
    means = model.prior(others)[0]
    order = np.argsort(model.action_ids)
    best = means[:, order].argmax(axis=1)
    told, best_for_all, oracle_ = (
        chance[np.arange(500), best].mean(),
        chance[:, int(model.mean[order].argmax())].mean(),
        chance.max(axis=1).mean(),
    )
    assert told - best_for_all > 0.8 * (oracle_ - best_for_all)


def test_many_features_and_nothing_shared_leave_attributes_out() -> None:
    """Where effects on single features would be too many, and there is no direction, nothing can be learned."""
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(200), 4)
    people = pl.DataFrame({"user": np.arange(200), "age": rng.normal(size=200), "town": rng.choice(list("abcd"), 200)})
    logs = nc.Logs.from_arrays(user=user, action=rng.integers(0, 300, 800), reward=rng.normal(size=800), users=people)
    model = nc.fit(logs, calibrate=False)
    assert model.attributes == () and [one.kept for one in model.evidence.attributes] == [False, False]


def test_a_refit_from_a_model_with_attributes_says_that_the_logs_have_none() -> None:
    logs, _ = world(2)
    model = nc.fit(logs, calibrate=False)
    (batch,) = logs.batches()
    plain = nc.Logs.from_arrays(
        user=np.repeat(batch.users, batch.lengths), features=batch.features, reward=batch.rewards
    )
    with pytest.warns(FitWarning, match="has attributes of users"):
        assert nc.fit(plain, start=model, calibrate=False).attributes == ()


# Clicks: the same attributes through log-odds.

LEVELS, LOADINGS = np.array([-1.0, -0.3, 0.4, -1.5, 0.0]), np.array([[0.9], [-0.6], [0.4], [1.2], [-1.0]])


def clicks(seed: int, n: int, effects: Floats, rows: int = 4) -> tuple[nc.Logs, Floats, Floats, Floats]:
    """Clicks on five actions of n users with one attribute, whose log-odds differ by `effects` (5,) a deviation of it;
    (logs, actions (n, rows), rewards (n, rows), attribute (n,), centred, in deviations)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    x = (x - x.mean()) / x.std()
    odds = LEVELS + rng.normal(size=(n, 1)) @ LOADINGS.T + x[:, None] * effects
    action = np.argsort(rng.random((n, 5)), axis=1)[:, :rows]
    reward = (rng.random((n, rows)) < 1 / (1 + np.exp(-np.take_along_axis(odds, action, axis=1)))).astype(np.float64)
    people = pl.DataFrame({"user": np.arange(n), "age": x, "shoe": rng.normal(size=n)})
    user = np.repeat(np.arange(n), rows)
    return nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), users=people), action, reward, x


def integral(action: Floats, reward: Floats, x: Floats, effects: Floats) -> float:
    """The log-likelihood of all users, each integrated over z numerically."""
    return sum(
        integrals.log_likelihood(LEVELS[a] + effects[a] * one, LOADINGS[a], r)
        for a, r, one in zip(action, reward, x, strict=True)
    )


@pytest.mark.parametrize("at", [0.0, 0.5])
def test_information_about_clicks_is_the_slope_and_the_curvature_of_the_integral(at: float) -> None:
    """Along the shared direction, and along one action by itself; around no effects and around some."""
    logs, action, reward, x = clicks(0, 300, 0.6 * LOADINGS[:, 0])
    (batch,) = logs.batches()
    population = Population(LEVELS, LOADINGS, 3.0, by_action=np.full(5, 3.0))
    directions = np.column_stack([LOADINGS, np.eye(5)[:, :1]])
    for place, direction in enumerate(directions.T):
        point = np.zeros((2, 1))
        point[place] = at
        task = AttributeTask(population, directions, 1, np.ones(user_bucket_count(5), dtype=np.bool_), True, point)
        (found,) = add_up_attribute_information(
            batch, (task,), AttributePrior(np.zeros((0, 1)), np.zeros((1, 1))), (0,)
        ).each
        H, g = found.precision.sum(axis=0)[place, place], found.score.sum(axis=0)[place]
        low, middle, high = (integral(action, reward, x, (at + move) * direction) for move in (-0.01, 0.0, 0.01))
        # The quadratic g t - H t^2 / 2 has the slope and the curvature of the likelihood where it was made.
        assert g - H * at == pytest.approx((high - low) / 0.02, abs=0.02 * np.sqrt(H) * np.sqrt(300))
        assert H == pytest.approx(-(high - 2 * middle + low) / 0.01**2, rel=0.04)


def test_effects_on_clicks_are_the_maximum_of_the_penalised_integral() -> None:
    truth = 0.9 * LOADINGS[:, 0]
    logs, action, reward, x = clicks(1, 500, truth)
    fit, _, gains = fit_clicks_alone(logs)
    assert [one.kept for one in gains] == [True, False]
    assert fit is not None
    found = (fit.factor @ fit.prior.effects)[:, 0]
    size = found @ LOADINGS[:, 0] / (LOADINGS[:, 0] @ LOADINGS[:, 0])
    grid = np.linspace(0.6, 1.2, 9)
    heights = [integral(action, reward, x, t * LOADINGS[:, 0]) - 0.5 * (t / 0.5) ** 2 for t in grid]
    curve, slope, _ = np.polyfit(grid, heights, 2)
    best = -slope / (2 * curve)
    assert size == pytest.approx(best, abs=0.05) and np.allclose(found, size * LOADINGS[:, 0], atol=1e-9)


def fit_clicks_alone(logs: nc.Logs):  # type: ignore[no-untyped-def]
    """Effects of attributes, given the true distribution of everybody else."""
    population = Population(LEVELS, LOADINGS, np.pi**2 / 3, by_action=np.full(5, np.pi**2 / 3))
    return fit_attributes(Passes(logs), population, [], clicks=True)


def test_a_fit_of_clicks_keeps_the_attribute_that_matters() -> None:
    logs, _, _, x = clicks(2, 2500, 0.8 * LOADINGS[:, 0])
    model = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    assert model.outcome == "binary" and [one.name for one in model.attributes] == ["age"]
    odds = model.prior(pl.DataFrame({"age": [-1.0, 1.0]}))[0][:, np.argsort(np.asarray(model.action_ids))]
    assert (odds[1] - odds[0]) / 2 == pytest.approx(0.8 * LOADINGS[:, 0], abs=0.25)
    assert model == Model.from_bytes(model.to_bytes())
    auto = nc.fit(logs, rank=1, calibrate=False)
    assert auto.evidence.outcome is not None and auto.outcome == auto.evidence.outcome.chosen
    assert [one.name for one in auto.attributes] == ["age"]
    # Permuted among people, attributes leave the fit without them.
    people = pl.DataFrame({"user": np.random.default_rng(5).permutation(2500), "age": x})
    other = nc.fit(logs.with_users(people), outcome="binary", rank=1, calibrate=False)
    assert other.attributes == () and other.outcome == "binary"


def test_clicks_where_nothing_else_is_shared_have_effects_of_attributes_alone() -> None:
    """Rank 0: a row that z says nothing of is worth its slope, and effects go along single actions."""
    rng = np.random.default_rng(6)
    n, effects = 2000, np.array([0.9, -0.9, 0.5, -0.5, 0.0, 0.7])
    x = rng.choice([-1.0, 1.0], n)
    action = np.argsort(rng.random((n, 6)), axis=1)[:, :3]
    odds = -1.0 + x[:, None] * effects[action]
    reward = (rng.random(action.shape) < 1 / (1 + np.exp(-odds))).astype(np.float64)
    people = pl.DataFrame({"user": np.arange(n), "loyal": x > 0})
    logs = nc.Logs.from_arrays(
        user=np.repeat(np.arange(n), 3), action=action.ravel(), reward=reward.ravel(), users=people
    )
    order = np.argsort(np.asarray(logs.action_ids))
    nothing = Population(np.full(6, -1.0), np.zeros((6, 0)), np.pi**2 / 3, by_action=np.full(6, np.pi**2 / 3))
    fit, _, _ = fit_attributes(Passes(logs), nothing, [], clicks=True)
    assert fit is not None
    assert (fit.factor @ fit.prior.effects)[order, 0] == pytest.approx(effects, abs=0.2)


def test_engines_find_the_same_effects_on_clicks(crew: WorkerPool) -> None:
    logs, _, _, _ = clicks(3, 800, 0.8 * LOADINGS[:, 0])
    alone = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    assert logs.on(crew).engine is crew
    shared = nc.fit(logs.on(crew), outcome="binary", rank=1, calibrate=False)
    assert alone.attributes == shared.attributes
    assert np.allclose(alone.factor @ alone.attribute_effects, shared.factor @ shared.attribute_effects, atol=1e-6)
