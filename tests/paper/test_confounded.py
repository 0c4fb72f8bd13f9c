"""Guards Lemma 1 in its corrected form: equal logs, orthogonal subspaces, and nothing earned with the wrong one."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest

from newcomer._fit import fit
from newcomer.errors import NewcomerError
from newcomer.model import Model
from newcomer.paper.theory.confounded import Confounded
from newcomer.paper.worlds.biased_logs import BiasedLogs
from newcomer.policies.proball import ProBALLUCB
from newcomer.simulate import play
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import World, check_world

BREACHES = ("contexts", "tastes", "logger")
BIASES = {"taste": 8.0, "adaptive": 1.0, "lengths": 1.0, "drift": 1.0}


def columns(logs):
    """Actions, rewards and lengths of logs in memory, users in order."""
    (batch,) = logs.batches(10**6)
    return batch.users, batch.lengths, batch.features, batch.rewards


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_twins_have_the_same_law_of_logs_and_orthogonal_subspaces(breach, steps):
    one, two = Confounded(breach, 1), Confounded(breach, 2)
    law = one.law(steps)
    assert law == two.law(steps) and sum(law.values()) == 1
    assert float((one.basis.T @ two.basis)[0, 0]) == pytest.approx(0.0, abs=1e-15)
    for world in (one, two):
        assert np.linalg.norm(world.catalogue, axis=1).max() <= 1.0
        assert np.allclose(np.array(world.tastes, float) @ world.basis @ world.basis.T, np.array(world.tastes, float))


@pytest.mark.parametrize("breach", BREACHES)
def test_every_pair_is_logged_with_probability_one_quarter(breach):
    seen: Counter[int] = Counter()
    for ((pair, _),), chance in Confounded(breach).law(1).items():
        seen[pair] += chance
    assert seen == {pair: Fraction(1, 4) for pair in range(4)}


def test_the_printed_forms_do_tell_the_twins_apart():
    """(2): contexts of positive product are both or none. (3): actions drawn afresh give the twins away at length 2."""
    one = Confounded("tastes")
    products = [[one.mean(taste, pair) > 0 for pair in (1, 3)] for taste in ((1, 1), (-1, -1))]
    assert products == [[True, True], [False, False]]
    together = []
    for twin in (1, 2):
        world = Confounded("logger", twin)
        liked = [[pair for pair in range(4) if world.mean(taste, pair) > 0] for taste in world.tastes]
        together.append({frozenset(pairs) for own in liked for pairs in product(own, repeat=2)})
    assert together[0] != together[1]


@pytest.mark.parametrize("breach", BREACHES)
def test_a_smaller_share_of_confounded_histories_tells_the_twins_apart(breach):
    one, two = (Confounded(breach, twin, strength=0.5) for twin in (1, 2))
    assert one.law(2) != two.law(2)


@pytest.mark.parametrize("breach", BREACHES)
def test_drawn_logs_follow_the_law(breach):
    world = Confounded(breach, strength=0.5)
    logs, law = world.logs(40_000, 2, seed=3), world.law(2)
    _, lengths, features, rewards = columns(logs)
    assert set(lengths) == {2}
    action = np.argmin(np.abs(features[:, None] - world.catalogue).sum(axis=2), axis=1)
    found = Counter(zip(map(tuple, action.reshape(-1, 2)), map(tuple, rewards.reshape(-1, 2)), strict=True))
    expected = {
        (tuple(pair for pair, _ in history), tuple(float(reward) for _, reward in history)): float(chance)
        for history, chance in law.items()
    }
    assert set(found) <= set(expected)
    for history, chance in expected.items():  # five standard errors of each frequency
        assert abs(found[history] / 40_000 - chance) < 5 * np.sqrt(chance / 40_000)


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.filterwarnings("ignore:sold-pinv is not to be trusted")
@pytest.mark.parametrize("estimator", ["sold", "sold-pinv", "em"])
def test_sold_and_em_answer_the_same_for_both_twins(breach, estimator):
    logs = [Confounded(breach, twin).logs(1500, 4, seed=1) for twin in (1, 2)]
    for left, right in zip(*map(columns, logs), strict=True):
        assert np.array_equal(left, right)
    one, two = (fit(own, rank=1, estimator=estimator, null=False, calibrate=False) for own in logs)
    assert np.array_equal(one.basis, two.basis) and np.array_equal(one.mean, two.mean)
    wrong = max(subspace_distance(one.basis, Confounded(breach, twin).basis) for twin in (1, 2))
    assert wrong > 0.7  # one basis cannot be right for both: the larger error is at least the sine of 45 degrees


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.parametrize("twin", [1, 2])
def test_without_confounding_sold_finds_each_twin(breach, twin):
    world = Confounded(breach, twin, strength=0.0)
    model = fit(world.logs(4000, 6, seed=2), rank=1, estimator="sold", null=False, calibrate=False)
    assert subspace_distance(model.basis, world.basis) < 0.1


def served_with(basis: np.ndarray) -> ProBALLUCB:
    model = Model(basis, np.array([1.0, 0.0]), np.zeros(2), basis, noise_variance=1.0)
    return ProBALLUCB(model, horizon=40, radius=0.0)


@pytest.mark.parametrize("breach", BREACHES)
@pytest.mark.parametrize("twin", [1, 2])
def test_serving_with_the_other_twins_subspace_earns_nothing(breach, twin):
    world, other = Confounded(breach, twin, noise=0.1), Confounded(breach, 3 - twin)
    policies = {"right": served_with(world.basis), "wrong": served_with(other.basis)}
    rows = play(policies, world, horizon=40, users=20, seed=0, progress=False)
    wrong, right = (rows.filter(pl.col("policy") == name) for name in ("wrong", "right"))
    best = [np.linalg.norm(np.array(taste, float)) for taste in world.tastes]  # what the best unit vector earns
    short = np.abs(wrong["regret"].to_numpy()[:, None] - np.array(best)).min(axis=1)
    assert short.max() < 1e-9  # the regret is all that there was to earn, in every round
    assert right["regret"].mean() < 0.15 * np.mean(best)


@pytest.mark.parametrize("world", [Confounded(breach, twin, 0.7) for breach in BREACHES for twin in (1, 2)])
def test_the_twins_keep_the_contract_of_worlds(world):
    assert isinstance(world, World)
    check_world(world)


@pytest.mark.parametrize(
    "wrong", [{"breach": "odd"}, {"twin": 3}, {"strength": 1.5}, {"noise": -1.0}], ids=lambda wrong: next(iter(wrong))
)
def test_impossible_twins_are_refused(wrong):
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        Confounded(**{"breach": "contexts", **wrong})


# Biased logs ---------------------------------------------------------------------------------------------------------

PLACE = Synthetic(dim=6, rank=2, choices=8, seed=3)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("strength", [0.0, 0.5])
def test_biased_worlds_keep_the_contract_of_worlds(bias, strength):
    check_world(BiasedLogs(PLACE, bias, strength))


@pytest.mark.parametrize("bias", BIASES)
def test_unbiased_logs_give_the_subspace(bias):
    model = fit(BiasedLogs(PLACE, bias, 0.0).logs(3000, 10, seed=1), rank=2, estimator="sold", null=False)
    assert subspace_distance(model.basis, PLACE.basis) < 0.12


def test_a_logger_that_knows_the_taste_is_paid_more():
    uniform, tasteful = (columns(BiasedLogs(PLACE, "taste", s).logs(500, 10, seed=1))[3].mean() for s in (0.0, 8.0))
    assert abs(uniform) < 0.1 and tasteful > 0.5


def test_a_logger_that_learns_is_paid_more_later():
    rewards = columns(BiasedLogs(PLACE, "adaptive", 1.0).logs(1000, 20, seed=1))[3].reshape(1000, 20)
    assert rewards[:, 0].mean() < 0.1 < rewards[:, 15:].mean()
    even = columns(BiasedLogs(PLACE, "adaptive", 0.0).logs(1000, 20, seed=1))[3].reshape(1000, 20)
    assert abs(even[:, 15:].mean()) < 0.1


def test_an_adaptive_logger_biases_sold_more_than_em():
    """Actions depend on logged rewards only, so the likelihood is right; SOLD's halves are not independent."""
    logs = BiasedLogs(Synthetic(dim=6, rank=2, choices=20, scale=0.5, seed=3), "adaptive", 1.0).logs(4000, 10, seed=1)
    truth = Synthetic(dim=6, rank=2, choices=20, scale=0.5, seed=3).basis
    errors = {
        name: subspace_distance(fit(logs, rank=2, estimator=name, null=False, calibrate=False).basis, truth)
        for name in ("sold", "em")
    }
    assert errors["em"] < errors["sold"]


def test_lengths_follow_the_taste():
    world = BiasedLogs(PLACE, "lengths", 1.0)
    _, lengths, features, rewards = columns(world.logs(2000, 12, seed=1))
    assert lengths.min() == 2 and lengths.max() == 12
    ends = np.cumsum(lengths)
    likes = np.array([np.linalg.lstsq(features[e - n : e], rewards[e - n : e])[0] for e, n in zip(ends, lengths)])
    first = likes @ np.linalg.pinv(PLACE.factor).T[:, 0]
    assert first[lengths >= 10].mean() > first[lengths <= 4].mean() + 0.5
    assert set(columns(BiasedLogs(PLACE, "lengths", 0.0).logs(50, 12, seed=1))[1]) == {12}


def test_drift_moves_rewards_along_its_direction():
    world = BiasedLogs(PLACE, "drift", 1.0)
    _, _, features, rewards = columns(world.logs(4000, 10, seed=1))
    x, r = features.reshape(-1, 10, 6), rewards.reshape(-1, 10)
    first, last = (np.linalg.lstsq(x[:, h], r[:, h])[0] for h in (0, 9))
    assert np.linalg.norm(last - first - world.drift) < 0.2 * np.linalg.norm(world.drift)
    assert np.linalg.norm(world.drift) == pytest.approx(np.sqrt(np.trace(PLACE.second_moment)))


@pytest.mark.parametrize("wrong", [("odd", 1.0), ("taste", -1.0), ("adaptive", 1.5), ("lengths", 2.0)])
def test_impossible_biases_are_refused(wrong):
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        BiasedLogs(PLACE, *wrong)
