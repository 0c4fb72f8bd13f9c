"""`model.transform`: each user's posterior, against dense Gaussians written out in the oracle."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import ModelError
from newcomer.evidence import Evidence
from newcomer.logs.workers import WorkerPool
from newcomer.population import Population
from newcomer.worlds.synthetic import Synthetic
from tests.oracles import prior as oracle

RANK, ACTIONS = 2, 7


def rows(seed: int, users: int = 12, *, repeats: bool = True) -> dict[str, np.ndarray]:
    """Ragged histories of actions that come again, or do not."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, ACTIONS, size=users)
    actions = [rng.choice(ACTIONS, size=n, replace=repeats) for n in lengths]
    user = np.repeat(np.arange(users), lengths)
    return {"user": user, "action": np.concatenate(actions), "reward": rng.normal(size=len(user))}


def model(seed: int, dim: int, **more: Any) -> nc.Model:
    rng = np.random.default_rng(seed)
    factor, variance = rng.normal(size=(dim, RANK)), rng.uniform(0.5, 2.0, size=ACTIONS)
    parts: dict[str, Any] = {"residual_variance": variance, "offsets": rng.normal(size=ACTIONS)}
    return nc.Model(np.eye(dim, RANK), np.ones(dim), rng.normal(size=dim), factor, 1.3, **{**parts, **more})


def expected(
    fitted: nc.Model, features: np.ndarray, given: dict[str, np.ndarray], share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Each user by the oracle: features (rows, d), actions by their position in the catalogue."""
    several = len(fitted.residual_variance) > 1
    population = Population(
        fitted.mean,
        fitted.factor,
        fitted.noise_variance,
        fitted.residual_variance if several else None,
        fitted.offsets if several else None,
        share,
    )
    found = []
    for user in np.unique(given["user"]):
        own = given["user"] == user
        actions = given["action"][own] if several else np.arange(own.sum())
        if not several:  # rows without actions: nothing is known to come again
            population = replace(population, by_action=np.full(own.sum(), fitted.noise_variance))
        found.append(oracle.posterior(population, features[own], given["reward"][own], actions))
    return np.array([mean for mean, _ in found]), np.array([covariance for _, covariance in found])


def agree(where: Any, mean: np.ndarray, covariance: np.ndarray) -> None:
    np.testing.assert_allclose(where.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(where.covariance, covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(where.deviation, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)), rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("intercept", [False, True])
def test_one_hot(share: float, intercept: bool) -> None:
    given = rows(1)
    ids = tuple(f"film {i}" for i in range(ACTIONS))
    fitted = model(2, ACTIONS + intercept, action_ids=ids, one_hot=True, intercept=intercept, persistence=share)
    logs = nc.Logs.from_arrays(**{**given, "action": [ids[a] for a in given["action"]]})
    where = fitted.transform(logs)
    agree(where, *expected(fitted, fitted.features(ids)[given["action"]], given, share))
    assert where.users.tolist() == list(range(12)) and where.rows.tolist() == np.bincount(given["user"]).tolist()


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("way", ["items", "features", "catalogue"])
def test_features(share: float, way: str) -> None:
    given, table = rows(3), np.random.default_rng(4).normal(size=(ACTIONS, 4))
    fitted = model(5, 4, action_ids=tuple(range(ACTIONS)), action_features=table, persistence=share)
    beside = {"items": {"items": table}, "features": {"features": table[given["action"]]}, "catalogue": {}}
    agree(fitted.transform(nc.Logs.from_arrays(**given, **beside[way])), *expected(
        fitted, table[given["action"]], given, share
    ))  # fmt: skip


def test_features_without_actions_are_never_met_again() -> None:
    given = rows(6)
    features = np.random.default_rng(7).normal(size=(len(given["user"]), 3))
    fitted = model(8, 3, residual_variance=np.zeros(0), offsets=np.zeros(0), persistence=0.5)
    logs = nc.Logs.from_arrays(user=given["user"], reward=given["reward"], features=features)
    agree(fitted.transform(logs), *expected(fitted, features, given, 0.0))


def test_persistence_that_the_model_does_not_know() -> None:
    given = rows(9)
    fitted = model(10, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True, persistence=None)
    logs = nc.Logs.from_arrays(**given)
    assert fitted.evidence == Evidence()
    assert fitted.transform(logs) == fitted.transform(logs, persistence=0.0)
    agree(fitted.transform(logs, persistence=0.3), *expected(fitted, np.eye(ACTIONS)[given["action"]], given, 0.3))


def test_batches_order_and_workers_do_not_matter(monkeypatch: pytest.MonkeyPatch, crew: WorkerPool) -> None:
    given = rows(11, users=40)
    fitted = model(12, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True, persistence=0.4)
    logs = nc.Logs.from_arrays(**given)
    where = fitted.transform(logs)
    assert logs.on(crew).engine is crew and fitted.transform(logs.on(crew)) == where
    last_first = {name: column[::-1] for name, column in given.items()}
    turned = fitted.transform(nc.Logs.from_arrays(**last_first))
    np.testing.assert_allclose(turned.mean, where.mean, atol=1e-12)
    monkeypatch.setattr("newcomer.logs.logs.BATCH_BYTES", 8 * ACTIONS * 5)
    assert fitted.transform(logs) == where


def test_unknown_actions_say_nothing_and_unknown_people_are_anywhere() -> None:
    fitted = model(13, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True)
    logs = nc.Logs.from_arrays(user=["ann", "ben", "ben"], action=[99, 3, 98], reward=[5.0, 1.0, 2.0])
    where = fitted.transform(logs)
    assert where.rows.tolist() == [0, 1]
    assert where.mean[0].tolist() == [0, 0] and where.covariance[0].tolist() == np.eye(2).tolist()
    alone = fitted.transform(nc.Logs.from_arrays(user=["ben"], action=[3], reward=[1.0]))
    assert where.mean[1].tolist() == alone.mean[0].tolist()


def test_the_frame_and_the_repr() -> None:
    fitted = model(13, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True)
    where = fitted.transform(nc.Logs.from_arrays(user=["ann", "ben"], action=[1, 3], reward=[5.0, 1.0]))
    assert where.frame.columns == ["user", "rows", "z1", "z2", "sd1", "sd2"]
    assert (
        where.frame["user"].to_list() == ["ann", "ben"]
        and where.frame["sd2"].to_list() == where.deviation[:, 1].tolist()
    )
    assert isinstance(where.frame, pl.DataFrame) and len(where) == 2
    assert len(repr(where)) < 300 and not where.mean.flags.writeable


def test_rank_zero_has_no_coordinates() -> None:
    fitted = nc.Model(np.zeros((2, 0)), np.ones(2), np.ones(2), np.zeros((2, 0)), 1.0, action_ids=(0, 1), one_hot=True)
    where = fitted.transform(nc.Logs.from_arrays(user=[1, 1], action=[0, 1], reward=[1.0, 0.0]))
    assert where.mean.shape == (1, 0) and where.frame.columns == ["user", "rows"]


def test_a_fitted_model_finds_the_people_it_was_fitted_to() -> None:
    """Coordinates of the people of a world, against their true ones, turned as the fit turned them."""
    world = Synthetic.learnable(dim=8, seed=1)
    logs = world.logs(400, 12, seed=1)
    fitted = nc.fit(logs, rank=2)
    where = fitted.transform(logs)
    assert abs(where.mean.mean()) < 0.15 and 0.6 < (where.mean**2 + where.deviation**2).mean() < 1.4


BAD: dict[str, tuple[nc.Model, dict[str, Any]]] = {
    "these logs name none": (
        model(1, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True),
        {"features": np.ones((2, ACTIONS))},
    ),
    "these logs bring none": (model(1, 3, residual_variance=np.zeros(0), offsets=np.zeros(0)), {"action": [0, 1]}),
    "the logs have 4 features and the model 3": (
        model(1, 3, residual_variance=np.zeros(0), offsets=np.zeros(0)),
        {"features": np.ones((2, 4))},
    ),
    "the model was fitted with a constant": (
        model(1, 3, residual_variance=np.zeros(0), offsets=np.zeros(0), intercept=True),
        {"features": np.ones((2, 3))},
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_logs_that_are_not_the_models_are_refused(what: str) -> None:
    fitted, columns = BAD[what]
    logs = nc.Logs.from_arrays(user=[1, 1], reward=[0.0, 1.0], **columns)
    with pytest.raises(ModelError, match=re.escape(what)):
        fitted.transform(logs)


def test_what_is_no_logs_and_no_share_is_refused() -> None:
    fitted = model(1, ACTIONS, action_ids=tuple(range(ACTIONS)), one_hot=True)
    with pytest.raises(ModelError, match="logs"):
        fitted.transform(np.ones(3))
    with pytest.raises(ModelError, match="persistence is 1"):
        fitted.transform(nc.Logs.from_arrays(user=[1], action=[1], reward=[1.0]), persistence=1.0)
