"""Attributes of users in the fit, against dense Gaussians written out, and what the fit makes of attributes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.arrays import Floats
from newcomer.em.attributes import AttributeTask, add_up, heldout_gains, over_people
from newcomer.errors import FitWarning
from newcomer.model import Model
from newcomer.population import AttributePrior, Population
from newcomer.users import bucket_count
from tests.oracles import attributes as oracle


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
    every = np.ones(bucket_count(d), dtype=np.bool_)
    task = AttributeTask(population, directions, k, every)
    (found,) = add_up(batch, (task,), AttributePrior(np.zeros((0, p)), np.zeros((p, p))), (0, 1)).each
    T = np.concatenate([np.zeros((k, p)), B])
    gain = (found.score.sum(axis=0) * T.ravel()).sum() - 0.5 * T.ravel() @ found.precision.sum(axis=0) @ T.ravel()
    v = np.full(3, 0.7)
    wanted = sum(
        oracle.log_likelihood(X[3 * i : 3 * i + 3], r[3 * i : 3 * i + 3], v, m, B, L, batch.attributes[i])
        - oracle.log_likelihood(X[3 * i : 3 * i + 3], r[3 * i : 3 * i + 3], v, m, 0 * B, L, batch.attributes[i])
        for i in range(n)
    )
    assert gain == pytest.approx(wanted, abs=1e-8)
    assert heldout_gains(found, np.zeros((k + d, p))).tolist() == [0.0] * len(found.users)


@pytest.mark.parametrize("known", [(True, True, True), (True, False, True), (False, False, False)])
def test_the_prior_given_attributes_is_the_joint_normal_conditioned(known: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(1)
    m, L, B = rng.normal(size=5), rng.normal(size=(5, 5)), rng.normal(size=(5, 3))
    root = rng.normal(size=(3, 3))
    C, x = root @ root.T, rng.normal(size=3)
    prior, factor = over_people(L, B, C)
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
