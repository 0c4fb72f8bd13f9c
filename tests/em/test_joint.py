"""Attributes fitted together with the distribution of users, against dense Gaussians and a generic optimiser."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

import newcomer as nc
from newcomer.arrays import Floats
from newcomer.em.attributes import AttributeEffects, AttributeTask, Choice
from newcomer.em.fit import FittedPopulation, estimate_population
from newcomer.em.full_covariance import (
    KnownMeans,
    full_covariance_known_products,
    full_covariance_of_fit,
    full_covariance_products,
)
from newcomer.em.joint import ROUNDS, STEPS, join_attributes
from newcomer.em.likelihood import KnownTask, known_likelihood_sums
from newcomer.em.passes import Passes
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import reduce
from newcomer.population import AttributePrior, Population
from newcomer.users import user_bucket_count
from tests.oracles import attributes as oracle


def table_of(rng: np.random.Generator, n: int, missing: float = 0.0) -> pl.DataFrame:
    """Two numbers of each user, some of the second missing."""
    b = [None if rng.random() < missing else float(one) for one in rng.normal(size=n)]
    return pl.DataFrame([pl.Series("user", np.arange(n)), pl.Series("a", rng.normal(size=n)), pl.Series("b", b)])


def some_logs(kind: str, seed: int = 0, n: int = 30) -> nc.Logs:
    """Logs of random rewards: rows with features, one-hot actions that come again, or items with features."""
    rng = np.random.default_rng(seed)
    rows, people = 5, table_of(rng, n, missing=0.3)
    user = np.repeat(np.arange(n), rows)
    reward, action = rng.normal(size=n * rows), rng.integers(0, 4, n * rows)
    if kind == "features":
        return nc.Logs.from_arrays(user=user, features=rng.normal(size=(n * rows, 4)), reward=reward, users=people)
    if kind == "one-hot":
        return nc.Logs.from_arrays(user=user, action=action, reward=reward, users=people)
    items = rng.normal(size=(4, 3))
    return nc.Logs.from_arrays(user=user, action=action, features=items[action], reward=reward, users=people)


def dense(batch: Batch, task: KnownTask) -> float:
    """The log-likelihood of all fitted users of a batch, covariances written out."""
    assert batch.attributes is not None
    population = task.population
    x = task.prior.completed(batch.attributes[:, list(task.entries)])
    effects = population.factor @ task.effects + (0.0 if task.single is None else task.single)
    total, v = 0.0, population.variances
    for i, (first, last) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        X, r = batch.features[first:last], batch.rewards[first:last]
        actions = np.zeros(last - first, dtype=np.int64) if batch.actions is None else batch.actions[first:last]
        S = oracle.residual_covariance(actions, v, population.share)
        if batch.actions is None:
            S = np.diag(v[actions])
        mean = X @ (population.mean + effects @ x[i]) + population.levels[actions]
        total += oracle.dense_log_likelihood(X, r, S, mean, population.factor)
    return total


def known_task(logs: nc.Logs, batch: Batch, seed: int, single: bool) -> KnownTask:
    """A random population and random effects."""
    rng = np.random.default_rng(seed)
    dim, kinds = logs.dim, len(logs.action_ids or ())
    by_action = rng.uniform(0.5, 1.5, kinds) if kinds else None
    offsets = rng.normal(size=kinds) if kinds and not logs.one_hot else None
    share = 0.3 if kinds else 0.0
    population = Population(rng.normal(size=dim), rng.normal(size=(dim, 2)), 0.8, by_action, offsets, share)
    every = np.ones(user_bucket_count(dim), dtype=np.bool_)
    prior = AttributePrior(np.zeros((0, 2)), np.array([[1.0, 0.4], [0.4, 1.0]]))
    free = 0.5 * rng.normal(size=(dim, 2)) if single else None
    return KnownTask(population, every, 0.7 * rng.normal(size=(2, 2)), free, prior, (0, 1))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", ["features", "one-hot", "items"])
def test_likelihood_and_gradient_given_attributes_are_those_of_dense_gaussians(kind: str, single: bool) -> None:
    logs = some_logs(kind)
    (batch,) = logs.batches()
    task = known_task(logs, batch, 1, single)
    (sums,) = known_likelihood_sums(batch, (task,))
    assert sums.likelihood == pytest.approx(dense(batch, task), abs=1e-8)
    assert (sums.users, sums.rows) == (30, 150)
    population, small = task.population, 1e-5

    def slope(move: Callable[[float], Population]) -> float:
        high, low = (dense(batch, replace(task, population=move(t))) for t in (small, -small))
        return (high - low) / (2 * small)

    for d in range(logs.dim):
        for column in range(3):
            bump = np.zeros((logs.dim, 3))
            bump[d, column] = 1.0
            wanted = slope(
                lambda t, bump=bump: replace(
                    population, mean=population.mean + t * bump[:, 0], factor=population.factor + t * bump[:, 1:]
                )
            )
            assert sums.gradient[d, column] == pytest.approx(wanted, abs=1e-5)
    for a in range(len(population.variances)):
        one = np.eye(len(population.variances))[a]

        def spread(t: float, one: Floats = one) -> Population:
            variances = population.variances * np.exp(t * one)
            return replace(
                population,
                by_action=None if population.by_action is None else variances,
                noise_variance=float(variances[0]) if population.by_action is None else population.noise_variance,
            )

        wanted = 0.5 * (sums.residual[a] / population.variances[a] - sums.met[a])
        assert wanted == pytest.approx(slope(spread), abs=1e-5)
        if population.offsets is not None:
            moved = partial(_offset, population, one)
            assert sums.lean[a] == pytest.approx(slope(moved), abs=1e-5)


def _offset(population: Population, one: Floats, t: float) -> Population:
    return replace(population, offsets=population.levels + t * one)


# The joint maximum.


def tiny(seed: int = 0, n: int = 120) -> nc.Logs:
    """Users who differ along one direction, which the first attribute moves; the second moves one feature by itself."""
    rng = np.random.default_rng(seed)
    people = table_of(rng, n)
    x, rows = people.select("a", "b").to_numpy(), 4
    beta = np.array([0.4, -0.2, 0.1]) + np.outer(rng.normal(size=n) + 0.9 * x[:, 0], [0.9, 0.5, -0.3])
    beta[:, 2] += 0.5 * x[:, 1]
    X, user = rng.normal(size=(n * rows, 3)), np.repeat(np.arange(n), rows)
    reward = np.einsum("id,id->i", X, beta[user]) + 0.6 * rng.normal(size=n * rows)
    return nc.Logs.from_arrays(user=user, features=X, reward=reward, users=people)


def both_effects(logs: nc.Logs, *, single: float = 0.3) -> AttributeEffects:
    """Effects of both attributes, through the shared direction and along single features."""
    assert logs.people is not None
    taus = Choice(np.full(2, 0.5), np.full(2, single), order=("a", "b"))
    prior = AttributePrior(np.zeros((0, 2)), logs.people.covariance)
    return AttributeEffects(taus, (0, 1), prior, 2, 1.0 if single else 0.0)


def height(logs: nc.Logs, people: FittedPopulation, effects: AttributeEffects, point: Floats) -> float:
    """The penalised likelihood at (m, L, log v, Gamma, F / unit), flat: the dense Gaussian and all beliefs."""
    (batch,) = logs.batches()
    m, L, log_v, gamma, free = np.split(point, np.cumsum([3, 3, 1, 2]))
    prior, every = effects.prior, np.ones(user_bucket_count(3), dtype=np.bool_)
    population = Population(m, L[:, None], float(np.exp(log_v[0])))
    task = KnownTask(population, every, gamma[None], effects.unit * free.reshape(3, 2), prior, (0, 1))
    penalty, taus = people.optimizer.penalty, effects.kept
    value = dense(batch, task) - 0.5 * penalty.weights[0] * ((m - penalty.anchor) ** 2).sum()
    value -= 0.5 * penalty.weights[1] * (L**2).sum() + 0.5 * ((gamma / taus.shared) ** 2).sum()
    return float(value - 0.5 * ((free.reshape(3, 2) / taus.single) ** 2).sum())


def flat(task: AttributeTask, population: Population) -> Floats:
    """Population and effects of a task as a point; the population's direction is that of the task up to its sign."""
    assert task.effects is not None
    parts = [population.mean, task.population.factor[:, 0], np.log(population.variances), task.effects.ravel()]
    return np.concatenate(parts)


def test_taking_turns_finds_the_maximum_of_the_penalised_likelihood_of_all_together() -> None:
    logs = tiny()
    passes, effects = Passes(logs), both_effects(logs)
    people = estimate_population(passes, rank=1)
    found = join_attributes(passes, people, effects, rounds=40, steps=8)
    point = flat(found.tasks[0], found.populations[0])
    at = height(logs, people, effects, point)
    best = minimize(lambda p: -height(logs, people, effects, p), point + 0.2, method="BFGS", options={"gtol": 1e-5})
    assert at == pytest.approx(-best.fun, abs=1e-3)
    # The maximum is flat along what exchanges Gamma and F: B itself is compared, not its parts.
    total = found.tasks[0].total
    m, L, log_v, gamma, free = np.split(best.x, np.cumsum([3, 3, 1, 2]))
    np.testing.assert_allclose(total, np.outer(L, gamma) + effects.unit * free.reshape(3, 2), atol=5e-3)
    np.testing.assert_allclose(found.populations[0].mean, m, atol=5e-3)
    np.testing.assert_allclose(found.populations[0].factor @ found.populations[0].factor.T, np.outer(L, L), atol=1e-2)
    assert np.log(found.populations[0].noise_variance) == pytest.approx(log_v[0], abs=5e-3)


def test_no_round_lowers_the_penalised_likelihood() -> None:
    logs = tiny(1)
    people = estimate_population(Passes(logs), rank=1)
    effects, best = both_effects(logs), people.optimizer.best
    assert best is not None
    (given,) = effects.solved(Passes(logs), effects.tasks([best], [np.ones(user_bucket_count(3), dtype=np.bool_)]))
    heights = [height(logs, people, effects, flat(given, best))]
    for rounds in range(1, 5):
        found = join_attributes(Passes(logs), people, effects, rounds=rounds)
        heights.append(height(logs, people, effects, flat(found.tasks[0], found.populations[0])))
        assert found.facts.rounds == rounds and found.facts.passes <= rounds * (STEPS + 1) + 1
        assert found.facts.gain >= 0.0
    assert np.diff(heights).min() > -1e-6
    assert heights[1] > heights[0] + 1.0  # what attributes explain no longer counts as what is not known of users


def test_what_attributes_explain_leaves_the_covariance_given_them() -> None:
    """Half of the variance along the direction comes from the attribute: the fit without counts all of it."""
    rng = np.random.default_rng(3)
    n, rows = 1500, 6
    x, direction = rng.normal(size=n), np.array([1.0, 0.5, 0.0, -0.5])
    X, user = rng.normal(size=(n * rows, 4)), np.repeat(np.arange(n), rows)
    beta = np.outer(np.sqrt(0.5) * x + np.sqrt(0.5) * rng.normal(size=n), direction)
    reward = np.einsum("id,id->i", X, beta[user]) + 0.5 * rng.normal(size=n * rows)
    people = pl.DataFrame({"user": np.arange(n), "x": x})
    model = nc.fit(nc.Logs.from_arrays(user=user, features=X, reward=reward, users=people), calibrate=False)
    plain = nc.fit(nc.Logs.from_arrays(user=user, features=X, reward=reward), calibrate=False)
    given, whole = model.prior({"x": 1.0})[1], np.outer(direction, direction)
    assert np.trace(given) == pytest.approx(0.5 * np.trace(whole), rel=0.1)
    assert np.trace(model.covariance) == pytest.approx(np.trace(whole), rel=0.1)
    assert np.trace(plain.covariance) == pytest.approx(np.trace(whole), rel=0.1)
    facts = model.evidence.joint
    assert facts is not None and facts.rounds == ROUNDS and facts.passes <= ROUNDS * (STEPS + 1) + 1
    assert facts.gain > 0 and "fitted together" in facts.sentence
    assert nc.Model.from_bytes(model.to_bytes()).evidence.joint == facts
    assert plain.evidence.joint is None


# One-hot actions: weak directions, engines, refits.


def one_hot_logs(seed: int = 0, n: int = 700, actions: int = 12) -> tuple[dict[str, Floats], pl.DataFrame]:
    """Ratings of twelve actions that differ along four directions, the first of which an attribute moves."""
    rng = np.random.default_rng(seed)
    age, loadings = rng.normal(40, 10, n), rng.normal(size=(actions, 4)) * np.array([0.9, 0.6, 0.3, 0.3])
    z = rng.normal(size=(n, 4))
    z[:, 0] += 0.9 * (age - 40) / 10
    action = np.argsort(rng.random((n, actions)), axis=1)[:, :7]
    reward = np.take_along_axis(rng.normal(size=actions) + z @ loadings.T, action, axis=1)
    reward = reward + 0.5 * rng.normal(size=action.shape)
    given = {"user": np.repeat(np.arange(n), 7), "action": action.ravel(), "reward": reward.ravel()}
    return given, pl.DataFrame({"user": np.arange(n), "age": age, "shoe": rng.normal(size=n)})


def test_weak_directions_given_attributes_are_those_of_rewards_less_what_attributes_say() -> None:
    given, people = one_hot_logs()
    logs = nc.Logs.from_arrays(**given, users=people)
    (batch,) = logs.batches()
    assert batch.attributes is not None
    rng = np.random.default_rng(1)
    effects = rng.normal(size=(12, 1))
    population = Population(rng.normal(size=12), rng.normal(size=(12, 2)), 1.0, by_action=np.full(12, 1.0))
    whole = full_covariance_of_fit(population, np.ones(user_bucket_count(12), dtype=np.bool_))
    prior = AttributePrior(np.zeros((0, 1)), np.eye(1))
    known = KnownMeans((effects,), prior, (0,))
    (found,) = full_covariance_known_products(batch, (whole,), known).each
    user = np.repeat(np.arange(len(batch.users)), batch.lengths)
    assert batch.actions is not None
    less = batch.rewards - (batch.attributes[:, :1] @ effects.T)[user, batch.actions]
    names = np.array(logs.action_ids)[batch.actions]
    other = nc.Logs.from_arrays(user=batch.users[user], action=names, reward=less)
    (wanted,) = reduce(other, partial(full_covariance_products, wholes=(whole,)), operator.add).each
    np.testing.assert_allclose(found.scatter, wanted.scatter, atol=1e-8)
    np.testing.assert_allclose(found.precision, wanted.precision, atol=1e-8)


def test_every_engine_and_a_resumed_fit_find_the_same(tmp_path: Path) -> None:
    given, people = one_hot_logs(1)
    logs = nc.Logs.from_arrays(**given, users=people)
    alone = nc.fit(logs, calibrate=False)
    assert [one.name for one in alone.attributes] == ["age"] and alone.evidence.joint is not None
    assert alone.evidence.population is not None and alone.evidence.population.weak is not None
    shared = nc.fit(logs, calibrate=False, run=nc.Run(workers=2))
    kept = nc.fit(logs, calibrate=False, run=nc.Run(checkpoint=tmp_path / "kept"))
    again = nc.fit(logs, calibrate=False, run=nc.Run(checkpoint=tmp_path / "kept", resume=True))
    assert kept.id == alone.id == again.id
    for name in ("mean", "covariance", "residual_variance"):
        np.testing.assert_allclose(getattr(shared, name), getattr(alone, name), atol=1e-6)
    np.testing.assert_allclose(
        shared.factor @ shared.attribute_effects, alone.factor @ alone.attribute_effects, atol=1e-6
    )


def test_refits_join_attributes_again() -> None:
    given, people = one_hot_logs(2, n=1000)
    first = given["user"] < 600
    some = nc.Logs.from_arrays(**{name: values[first] for name, values in given.items()}, users=people)
    rest = nc.Logs.from_arrays(**{name: values[~first] for name, values in given.items()}, users=people)
    whole = nc.Logs.from_arrays(**given, users=people)
    earlier = nc.fit(some, calibrate=False)
    wanted, known = nc.fit(whole, calibrate=False), {"age": [30.0, 50.0]}
    refits = nc.fit(whole, start=earlier, calibrate=False), nc.fit(rest, start=earlier, add=True, calibrate=False)
    for model in refits:
        assert model.evidence.joint is not None
        np.testing.assert_allclose(*(np.diff(one.prior(known)[0], axis=0) for one in (model, wanted)), atol=0.4)
        # What attributes explain is not counted twice, neither over all people nor given their age.
        assert np.trace(model.covariance) == pytest.approx(np.trace(wanted.covariance), rel=0.1)
        assert np.trace(model.prior(known)[1][0]) == pytest.approx(np.trace(wanted.prior(known)[1][0]), rel=0.1)
