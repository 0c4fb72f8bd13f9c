"""Guards the offline fit of clicks: nodes, likelihood, gradient, bias, coverage, rare clicks, features, engines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.em import binary, binary_likelihood
from newcomer.em.binary import ClickOptimizer, ClickPrior, ClickStart
from newcomer.em.binary_likelihood import ClickSums, ClickTask, binary_likelihood_nodes, binary_likelihood_sums
from newcomer.em.fit import estimate_population
from newcomer.em.passes import Passes
from newcomer.errors import LogsError, ModelError
from newcomer.logs import Logs
from newcomer.logs.workers import WorkerPool
from newcomer.one_hot import OneHot
from newcomer.population import Population
from newcomer.transforms import sigmoid, sigmoid_moments
from newcomer.users import user_bucket_count
from tests.oracles import binary as oracle


def click_logs(
    seed: int,
    *,
    users: int = 4000,
    rows: int = 6,
    actions: int = 8,
    rank: int = 1,
    rate: float = 0.2,
    size: float = 1.0,
) -> tuple[Logs, np.ndarray, np.ndarray]:
    """Logs of different actions of each user, with the true levels and loadings."""
    rng = np.random.default_rng([seed, 5])
    levels = np.log(rate / (1 - rate)) + rng.uniform(-0.5, 0.5, actions)
    loadings = size * rng.standard_normal((actions, rank))
    odds = levels + rng.standard_normal((users, rank)) @ loadings.T
    action = np.argsort(rng.random((users, actions)), axis=1)[:, :rows]
    reward = (rng.random((users, rows)) < sigmoid(np.take_along_axis(odds, action, axis=1))).astype(np.float64)
    user = np.repeat(np.arange(users), rows)
    return Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel()), levels, loadings


def everybody(logs: Logs) -> np.ndarray:
    return np.ones(user_bucket_count(logs.dim), dtype=np.bool_)


def one_pass(logs: Logs, population: Population) -> ClickSums:
    tasks = (ClickTask(population, everybody(logs)),)
    found: tuple[ClickSums, ...] = Passes(logs).run(
        partial(binary_likelihood_sums, tasks=tasks), binary_likelihood.merge_binary_likelihood
    )
    return found[0]


def population_of(levels: np.ndarray, loadings: np.ndarray, **more: object) -> Population:
    return Population(levels, loadings, binary.NOISE, by_action=np.full(len(levels), binary.NOISE), **more)


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 8])
def test_nodes_have_the_moments_of_the_prior(rank: int) -> None:
    nodes = binary_likelihood_nodes(rank)
    assert np.allclose(nodes.mean(axis=0), 0.0, atol=1e-12)
    assert np.allclose(nodes.T @ nodes / len(nodes), np.eye(rank), atol=1e-9)
    assert np.array_equal(nodes, binary_likelihood_nodes(rank))


@pytest.mark.parametrize(("rank", "error"), [(1, 2e-3), (2, 2e-2)])
def test_the_likelihood_is_the_integral(rank: int, error: float) -> None:
    logs, levels, loadings = click_logs(1, users=40, rank=rank)
    found = one_pass(logs, population_of(levels, loadings)).likelihood
    batch = next(iter(logs.batches()))
    each = [
        oracle.log_likelihood(levels[batch.actions[some]], loadings[batch.actions[some]], batch.rewards[some])
        for some in (slice(*batch.offsets[n : n + 2]) for n in range(40))
    ]
    assert found == pytest.approx(sum(each), abs=40 * error)


def test_repeats_count_for_fewer_rows_where_something_lasts() -> None:
    logs = Logs.from_arrays(user=[1, 1, 1, 2], action=["a", "a", "b", "b"], reward=[1.0, 0.0, 1.0, 0.0])
    levels, loadings = np.array([-0.5, 0.3]), np.array([[0.7], [-0.4]])
    found = one_pass(logs, population_of(levels, loadings, share=0.5)).likelihood
    weights = np.array([1 / 1.5, 1 / 1.5, 1.0])
    wanted = oracle.log_likelihood(levels[[0, 0, 1]], loadings[[0, 0, 1]], np.array([1.0, 0.0, 1.0]), weights)
    wanted += oracle.log_likelihood(levels[[1]], loadings[[1]], np.array([0.0]))
    assert found == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("kind", ["one-hot", "items", "rows"])
def test_the_gradient_is_that_of_the_likelihood(kind: str) -> None:
    rng = np.random.default_rng(3)
    users, rows, dim = 50, 4, 3
    items = rng.standard_normal((5, dim))
    action = rng.integers(0, 5, users * rows)
    reward = rng.integers(0, 2, users * rows).astype(np.float64)
    given = {"one-hot": {}, "items": {"items": items}, "rows": {"features": items[action]}}[kind]
    logs = Logs.from_arrays(user=np.repeat(np.arange(users), rows), action=action, reward=reward, **given)
    size = 5 if kind == "one-hot" else dim
    weights = 0.5 * rng.standard_normal((size, 3))
    offsets = None if kind == "one-hot" else 0.3 * rng.standard_normal(5)

    def at(weights: np.ndarray, offsets: np.ndarray | None) -> Population:
        kinds = np.full(5, binary.NOISE)
        return Population(weights[:, 0], weights[:, 1:], binary.NOISE, by_action=kinds, offsets=offsets)

    prior = ClickPrior(np.array([0.5, 1.0, 2.0]), np.zeros(size), None if offsets is None else 3.0)
    climb = ClickOptimizer(at(weights, offsets), prior, logs.table)
    gradient = climb._ascent(one_pass(logs, climb.trial))
    flat = weights.ravel() if offsets is None else np.concatenate([weights.ravel(), offsets])
    for place in range(len(flat)):
        moved = [flat + sign * 1e-5 * (np.arange(len(flat)) == place) for sign in (-1, 1)]
        trials = [
            at(x[: weights.size].reshape(weights.shape), None if offsets is None else x[weights.size :]) for x in moved
        ]
        low, high = (one_pass(logs, one).likelihood + prior.of(one) for one in trials)
        assert gradient[place] == pytest.approx((high - low) / 2e-5, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("rate", [0.005, 0.05, 0.5, 0.99])
def test_levels_and_loadings_are_found_without_much_bias(rate: float) -> None:
    logs, levels, loadings = click_logs(2, users=20_000, rank=1, rate=rate)
    fitted = estimate_population(Passes(logs), rank=1)
    start = ClickStart(fitted.population, 1, fitted.origin.table, fitted.facts.precision, fitted.facts.mean_precision)
    (found,) = binary.fit_binary_population(Passes(logs), [(start, everybody(logs))])
    truth = sigmoid_moments(levels, (loadings**2).sum(axis=1))[0]
    guess = sigmoid_moments(found.mean, (found.factor**2).sum(axis=1))[0]
    spread = np.sqrt(truth * (1 - truth) / (20_000 * 6 / 8))
    assert np.abs((guess - truth) / spread).max() < 4.5
    if 0.02 < rate < 0.9:
        assert 0.8 < np.linalg.norm(found.factor) / np.linalg.norm(loadings) < 1.1
        assert abs(np.corrcoef(found.factor[:, 0], loadings[:, 0])[0, 1]) > 0.9


def test_a_rare_action_that_nobody_clicked_stays_finite() -> None:
    logs, _, _ = click_logs(4, users=600, rate=0.05)
    batch = next(iter(logs.batches()))
    reward = np.where(batch.actions == 3, 0.0, batch.rewards)
    user = np.repeat(batch.users, batch.lengths)
    model = nc.fit(Logs.from_arrays(user=user, action=batch.actions, reward=reward), outcome="binary", calibrate=False)
    p = nc.PopulationMean(model).scores(nc.PopulationMean(model).start(1), ids=list(range(8)))[0]
    assert 1e-4 < p[3] < 0.03 and p[3] == p.min()


def test_engines_and_batches_do_not_matter(crew: WorkerPool) -> None:
    logs, levels, loadings = click_logs(5, users=500, rank=2)
    population = population_of(levels, loadings)
    whole = one_pass(logs, population)
    parts = [
        binary_likelihood_sums(batch, (ClickTask(population, everybody(logs)),)) for batch in logs.batches(rows=100)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = binary_likelihood.merge_binary_likelihood(total, part)
    assert logs.on(crew).engine is crew
    shared = one_pass(logs.on(crew), population)
    for other in (total[0], shared):
        assert other.likelihood == pytest.approx(whole.likelihood, rel=1e-12)
        assert np.allclose(other.pull, whole.pull, atol=1e-9) and np.allclose(other.bend, whole.bend, atol=1e-9)


def test_features_of_rows_and_of_items_are_the_same_fit() -> None:
    rng = np.random.default_rng(6)
    users, rows, dim = 3000, 5, 3
    items = np.column_stack([rng.standard_normal((30, dim)), np.ones(30)])
    truth, factor = np.array([0.5, -0.4, 0.2, -1.0]), np.array([[1.0], [0.7], [0.0], [0.0]])
    action = rng.integers(0, 30, users * rows)
    beta = truth + rng.standard_normal((users, 1)) @ factor.T
    odds = (items[action] * np.repeat(beta, rows, axis=0)).sum(axis=1)
    reward = (rng.random(users * rows) < sigmoid(odds)).astype(np.float64)
    user = np.repeat(np.arange(users), rows)
    by_items = nc.fit(Logs.from_arrays(user=user, action=action, reward=reward, items=items), outcome="binary", rank=1)
    by_rows = nc.fit(Logs.from_arrays(user=user, features=items[action], reward=reward), outcome="binary", rank=1)
    for model in (by_items, by_rows):
        assert np.abs(model.mean - truth).max() < 0.25
        assert abs(model.factor[:, 0] @ factor[:, 0]) / np.linalg.norm(model.factor) / np.linalg.norm(factor) > 0.95
        assert 0.7 < np.linalg.norm(model.factor) / np.linalg.norm(factor) < 1.2


def test_the_posterior_covers_users_who_were_not_fitted() -> None:
    logs, levels, loadings = click_logs(7, users=8000, rank=1, rate=0.1)
    model = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    rng = np.random.default_rng(8)
    z = rng.standard_normal(2000)
    chances = sigmoid(levels + z[:, None] * loadings[:, 0])
    policy = nc.PriorTS(replace(model, persistence=0.0))
    state = policy.start(2000)
    for _ in range(10):
        shown = rng.integers(0, 8, 2000)
        policy.update(state, ids=shown, reward=(rng.random(2000) < chances[np.arange(2000), shown]).astype(float))
    sign = np.sign(model.factor[:, 0] @ loadings[:, 0])
    rows = state.rows_of(np.arange(2000))  # many users share rows until they have learned something
    precision = state.small.gram[rows, 0]
    error = (sign * state.small.mean[rows, 0] - z) * np.sqrt(precision)
    assert abs(error.mean()) < 0.1 and 0.9 < error.std() < 1.12
    assert 0.92 < (np.abs(error) < 1.96).mean() < 0.975


def test_coordinates_of_users_are_near_the_integral() -> None:
    logs, levels, loadings = click_logs(11, users=30, rank=2)
    basis = np.linalg.qr(loadings)[0]
    model = nc.Model(
        basis, np.ones(8), levels, loadings, binary.NOISE, action_ids=tuple(range(8)), one_hot=True, outcome="binary"
    )
    found, batch = model.transform(logs), next(iter(logs.batches()))
    for n in range(30):
        some = slice(*batch.offsets[n : n + 2])
        actions = batch.actions[some]
        mean, covariance = oracle.posterior(levels[actions], loadings[actions], batch.rewards[some])
        assert np.abs(found.mean[n] - mean).max() < 0.02
        assert np.abs(found.covariance[n] - covariance).max() < 0.03


def test_a_refit_keeps_the_link_and_new_users_are_added() -> None:
    logs, levels, _ = click_logs(12, users=3000, rank=1)
    first = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    again = nc.fit(logs, start=first, rank=1, calibrate=False)
    assert again.outcome == "binary" and again.evidence.outcome.how == "kept"
    assert np.abs(again.mean - first.mean).max() < 0.05
    more, _, _ = click_logs(12, users=3500, rank=1)
    other = nc.fit(more.some(lambda hashes: hashes % np.uint64(2) == 0), start=first, add=True, rank=1, calibrate=False)
    assert other.outcome == "binary" and other.parameters["approximate"]
    assert np.abs(other.mean - levels).max() < 0.3
    assert nc.Model.from_bytes(other.to_bytes()) == other


def test_a_fit_that_was_interrupted_is_resumed(tmp_path) -> None:
    logs, _, _ = click_logs(13, users=800, rank=1)
    whole = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    calls = []

    def stop(done: int, rows: int) -> None:
        calls.append(done)
        if len(calls) == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(logs, outcome="binary", rank=1, calibrate=False, run=nc.Run(checkpoint=tmp_path / "kept", progress=stop))
    again = nc.fit(
        logs, outcome="binary", rank=1, calibrate=False, run=nc.Run(checkpoint=tmp_path / "kept", resume=True)
    )
    assert again.id == whole.id


def test_workers_find_the_same_model() -> None:
    logs, _, _ = click_logs(14, users=600, rank=1)
    alone = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    shared = nc.fit(logs, outcome="binary", rank=1, calibrate=False, run=nc.Run(workers=2))
    assert np.allclose(alone.mean, shared.mean, atol=1e-6) and np.allclose(alone.factor, shared.factor, atol=1e-6)


def test_auto_says_which_link_and_why() -> None:
    logs, _, _ = click_logs(15, users=6000, rank=1, rate=0.03, size=1.5)
    model = nc.fit(logs, calibrate=False)
    why = model.evidence.outcome
    assert why is not None and why.how == "auto" and model.outcome == why.chosen
    assert why.sentence.startswith("Rewards are 0 and 1") and why.log_score.people > 1000
    again = nc.Model.from_bytes(model.to_bytes())
    assert again == model and again.evidence.outcome == why
    shown = np.random.default_rng(1).integers(0, 4, 200)
    stars = Logs.from_arrays(user=np.repeat(np.arange(50), 4), action=shown, reward=np.arange(200) % 5)
    assert nc.fit(stars, calibrate=False).evidence.outcome is None


def test_what_makes_no_sense_is_refused_in_a_sentence() -> None:
    logs, _, _ = click_logs(9, users=200)
    with pytest.raises(ModelError, match="no logistic link"):
        nc.fit(logs, outcome="binary", estimator="sold")
    with pytest.raises(ModelError, match="outcome"):
        nc.fit(logs, outcome="probit")
    stars = Logs.from_arrays(user=[1, 1, 2, 2], action=[1, 2, 1, 2], reward=[1.0, 3.0, 2.0, 5.0])
    with pytest.raises(LogsError, match="0 and 1"):
        nc.fit(stars, outcome="binary")


def test_many_actions_have_fewer_nodes_and_the_same_answer() -> None:
    assert len(binary_likelihood_nodes(3, 100_000)) == binary_likelihood.FEW_NODES
    start = ClickStart(Population(np.full(4, 0.1), np.zeros((4, 0)), 0.09, by_action=np.full(4, 0.09)), 0, OneHot(4))
    assert np.allclose(start.population(0).mean, np.log(0.1 / 0.9))


def test_clicks_of_many_actions_with_attributes() -> None:
    """More than 1,000 one-hot actions: nothing of d x d numbers, nodes are fewer, and an attribute acts along z."""
    rng = np.random.default_rng(8)
    users, rows, actions = 500, 20, 2100
    x = rng.normal(size=users)
    z = 0.8 * x + 0.6 * rng.normal(size=users)
    loadings = np.where(np.arange(actions) % 2, 1.2, -1.2)
    action = np.argsort(rng.random((users, actions)), axis=1)[:, :rows]
    reward = (rng.random(action.shape) < sigmoid(-0.5 + z[:, None] * loadings[action])).astype(np.float64)
    people = pl.DataFrame({"user": np.arange(users), "age": x})
    user = np.repeat(np.arange(users), rows)
    logs = Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), users=people)
    model = nc.fit(logs, outcome="binary", rank=1, calibrate=False)
    assert model.outcome == "binary" and model.by_ids_alone and [one.name for one in model.attributes] == ["age"]
    policy = nc.PriorUCB(model)
    state = policy.start(2, attributes={"age": [2.0, -2.0]})
    policy.update(state, ids=[3, 5], reward=[1.0, 0.0])
    odd, even = policy.scores(state, ids=[7, 8]).T
    assert odd[0] > even[0] and odd[1] < even[1]
