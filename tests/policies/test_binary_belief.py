"""Guards what policies believe of clicks: the posterior of z, repeats, the order of rewards, memory that is full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import PolicyError
from newcomer.linear import ridge
from newcomer.logistic_loops import logistic_posterior
from newcomer.model import Model
from newcomer.policies import memory_loops
from newcomer.transforms import sigmoid, sigmoid_moments
from tests.oracles import binary as oracle

ACTIONS = 6


def click_model(rank: int = 2, seed: int = 0, *, persistence: float | None = 0.0, level: float = -1.5) -> Model:
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((ACTIONS, rank))
    return Model(
        np.linalg.qr(loadings)[0], np.ones(ACTIONS), rng.normal(level, 1.0, ACTIONS), loadings, np.pi**2 / 3,
        action_ids=tuple(range(ACTIONS)), one_hot=True, persistence=persistence, outcome="binary",
    )  # fmt: skip


@pytest.mark.parametrize("counts", [(1.0, 0.0), (0.0, 1.0), (0.3, 2.2), (30.0, 70.0), (0.0, 500.0)])
@pytest.mark.parametrize(("level", "variance"), [(-4.0, 1.0), (0.0, 9.0), (3.0, 0.04)])
def test_moments_after_clicks_are_the_integral(level: float, variance: float, counts: tuple[float, float]) -> None:
    found = np.empty(2)
    logistic_posterior(level, variance, *counts, found)
    x = level + np.sqrt(variance) * np.linspace(-40, 40, 400_001)
    p = sigmoid(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (
            np.where(counts[0] > 0, counts[0] * np.log(p), 0.0)
            + counts[1] * np.log1p(-p)
            - 0.5 * (x - level) ** 2 / variance
        )
    density = np.exp(logs - np.nanmax(logs))
    density = np.where(np.isfinite(density), density, 0.0) / np.nansum(density)
    mean = float(density @ x)
    assert found[0] == pytest.approx(mean, abs=2e-4 * max(1.0, np.sqrt(variance)))
    assert found[1] == pytest.approx(float(density @ (x - mean) ** 2), rel=2e-3)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_posterior_and_probabilities_are_near_the_integral(rank: int, seed: int) -> None:
    model, rng = click_model(rank, seed), np.random.default_rng([seed, 1])
    policy, shown = nc.PriorTS(model), rng.integers(0, ACTIONS, 15)
    reward = (rng.random(15) < 0.3).astype(np.float64)
    state = policy.start(1)
    for action, r in zip(shown, reward, strict=True):
        policy.update(state, ids=[action], reward=[r])
    mean, covariance = oracle.posterior(model.mean[shown], model.factor[shown], reward)
    assert np.abs(state.small.mean[0] - mean).max() < 0.04
    assert np.abs(np.linalg.inv(ridge.ridge_precision(state.small)[0]) - covariance).max() < 0.04
    scores = policy.scores(state, ids=list(range(ACTIONS)))[0]
    wanted = [
        oracle.predicted(model.mean[shown], model.factor[shown], reward, c, f)
        for c, f in zip(model.mean, model.factor, strict=True)
    ]
    assert np.abs(scores - wanted).max() < 0.02


def test_the_order_of_rewards_hardly_matters() -> None:
    model, rng = click_model(), np.random.default_rng(4)
    policy, n, steps = nc.PriorTS(model), 200, 20
    shown, reward = rng.integers(0, ACTIONS, (n, steps)), (rng.random((n, steps)) < 0.3).astype(np.float64)
    found = []
    for order in (np.arange(steps), np.arange(steps)[::-1], rng.permutation(steps)):
        state = policy.start(n)
        for t in order:
            policy.update(state, ids=shown[:, t], reward=reward[:, t])
        found.append(policy.scores(state, ids=list(range(ACTIONS))))
    apart = np.abs(np.stack(found[1:]) - found[0])
    print(apart.max(), apart.mean())
    assert 0 < apart.max() < 0.04 and apart.mean() < 0.002


def test_before_anything_is_known_a_score_is_the_probability_over_all_users() -> None:
    model = click_model()
    wanted = sigmoid_moments(model.mean, (model.factor**2).sum(axis=1))[0]
    for policy in (
        nc.PriorTS(model),
        nc.PopulationMean(model),
        nc.EmpiricalArms(model),
        nc.PriorUCB(model, curiosity=0),
    ):
        assert np.allclose(policy.scores(policy.start(1), ids=list(range(ACTIONS)))[0], wanted)


def test_a_known_share_lasts_and_nothing_lasts_without() -> None:
    flat = replace(click_model(), factor=np.zeros((ACTIONS, 1)), mean=np.zeros(ACTIONS), persistence=0.5)
    policy = nc.PriorTS(flat)
    state = policy.start(1)
    for _ in range(3):
        policy.update(state, ids=[2], reward=[1.0])
    c = 3 * 0.5 / (0.5 + 3 * 0.5)
    assert policy.scores(state, ids=[2, 3])[0].tolist() == pytest.approx([0.5 + c * 0.5, 0.5])
    rare = nc.PriorTS(replace(flat, mean=np.full(ACTIONS, -4.0)))
    state = rare.start(1)
    rare.update(state, ids=[2], reward=[1.0])
    p = float(sigmoid(np.array(-4.0)))
    odds = 4 * p * (1 - p)
    share = odds / (1 + odds)
    assert rare.scores(state, ids=[2])[0, 0] == pytest.approx(p + share * (1 - p), rel=1e-6)


def test_repeats_of_one_action_are_worth_fewer_rows_for_others() -> None:
    spread = []
    for share in (0.0, 0.5, 0.9):
        policy = nc.PriorTS(replace(click_model(1, 3), persistence=share))
        state = policy.start(1)
        for _ in range(12):
            policy.update(state, ids=[0], reward=[1.0])
        spread.append(float(state.small.mean[0, 0] * np.sign(policy.model.factor[0, 0])))
    assert spread[0] > spread[1] > spread[2] > 0


def test_earlier_users_tell_whether_clicks_come_again() -> None:
    policy, rng = nc.PriorTS(click_model(persistence=None, level=0.0)), np.random.default_rng(5)
    shares = []
    for lasts in (False, True):
        state, own = policy.start(60), (rng.random((60, ACTIONS)) < 0.5).astype(np.float64)
        for t in range(24):
            shown = np.full(60, t % ACTIONS)
            fresh = (rng.random(60) < 0.5).astype(np.float64)
            policy.update(state, ids=shown, reward=own[:, t % ACTIONS] if lasts else fresh)
        told = policy.repeatability(state)
        assert told is not None and told.users == 60
        shares.append(told.mean)
        policy.start(2, repeatability=told)
    assert shares[0] < 0.2 and shares[1] > 0.8


def test_rewards_that_are_no_clicks_are_refused_and_change_nothing() -> None:
    policy = nc.PriorUCB(click_model())
    state = policy.start(2)
    before = state.to_bytes()
    with pytest.raises(PolicyError, match="no click"):
        policy.update(state, ids=[1, 2], reward=[1.0, 3.0])
    assert state.to_bytes() == before
    policy.update(state, ids=[1, 2], reward=[np.nan, 0.5])


def test_a_full_memory_forgets_the_oldest_action_and_keeps_what_it_told() -> None:
    rng = np.random.default_rng(6)
    model = Model(
        np.eye(3, 1), np.ones(3), np.zeros(3), np.ones((3, 1)), np.pi**2 / 3, outcome="binary", persistence=None
    )
    policy = nc.PriorTS(model)
    state, most = policy.start(1), memory_loops.MOST
    rows = rng.standard_normal((most + 20, 3))
    policy.update(state, rows, (rng.random(most + 20) < 0.5).astype(float), users=np.zeros(most + 20, dtype=int))
    assert int(state.memory.used[0]) == most and state.sites.shape[1] == state.memory.keys.shape[1]
    # All sites together are the posterior but for those of the twenty actions that are forgotten.
    total = 1.0 + float((state.sites[0, :most, 0] * (rows[20:] @ np.ones(3)) ** 2).sum())
    assert 0.9 * state.small.gram[0, 0] < total < state.small.gram[0, 0]


def test_states_of_the_two_links_are_not_taken_for_each_other() -> None:
    model = click_model()
    other = replace(model, outcome="gaussian")
    assert model.id != other.id
    with pytest.raises(PolicyError):
        nc.PriorUCB(other).choose(nc.PriorUCB(model).start(1), ids=[0, 1])
