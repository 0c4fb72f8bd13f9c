"""Guards nc.fit: what it learns, that it does not depend on order, batches or scale, and what it refuses."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

import newcomer as nc
from newcomer._fit import fit
from newcomer.errors import FitWarning, LogsError, ModelError
from newcomer.subspace import subspace_distance
from newcomer.worlds import Synthetic


def arrays(seed=0, users=600, dim=6, lengths=(1, 12)):
    rng = np.random.default_rng(seed)
    steps = rng.integers(lengths[0], lengths[1] + 1, users)
    user = np.repeat(np.arange(users), steps)
    X = rng.standard_normal((len(user), dim)) / np.sqrt(dim)
    beta = rng.standard_normal((users, 2)) @ rng.standard_normal((2, dim)) + 0.5
    return user, X, np.einsum("nd,nd->n", X, beta[user]) + 0.3 * rng.standard_normal(len(user))


def same(a, b, tolerance=1e-10):
    for name in ("spectrum", "mean", "covariance"):
        x, y = getattr(a, name), getattr(b, name)
        assert np.abs(x - y).max() <= tolerance * max(1.0, np.abs(y).max())
    assert subspace_distance(a.basis, b.basis) <= tolerance
    assert a.noise_variance == pytest.approx(b.noise_variance, rel=tolerance)


def test_the_prior_of_a_sold_model_is_close_to_the_truth():
    world = Synthetic(dim=10, rank=2, scale=1.0, offset=0.5, seed=1)
    model = fit(world.logs(20_000, 12, seed=1), rank=3, estimator="sold")
    assert subspace_distance(fit(world.logs(20_000, 12, seed=1), rank=2, estimator="sold").basis, world.basis) < 0.1
    assert np.linalg.norm(model.mean - world.mean) < 0.1 * np.linalg.norm(world.mean)
    assert np.linalg.norm(model.covariance - world.covariance) < 0.2 * np.linalg.norm(world.covariance)
    assert model.noise_variance == pytest.approx(0.25, rel=0.05)
    assert np.linalg.eigvalsh(model.covariance)[0] > -1e-12


@pytest.mark.filterwarnings("ignore:sold-pinv")
@pytest.mark.parametrize("estimator", ["sold", "sold-pinv"])
def test_the_answer_does_not_depend_on_order_or_batches(estimator, monkeypatch):
    user, X, r = arrays()
    first = fit(nc.Logs.from_arrays(user=user, features=X, reward=r), rank=2, estimator=estimator)
    # Users in another order, rows of different users interleaved, each user's own order kept.
    keys = np.random.default_rng(1).random(len(user))
    for u in np.unique(user):
        keys[user == u] = np.sort(keys[user == u])
    order = np.argsort(keys)
    shuffled = nc.Logs.from_arrays(user=user[order], features=X[order], reward=r[order])
    same(fit(shuffled, rank=2, estimator=estimator), first)
    monkeypatch.setattr("newcomer.sold.second_moment.second_moment_batch_rows", lambda dim: 80)
    same(fit(shuffled, rank=2, estimator=estimator), first)
    assert shuffled.summary.fingerprint == first.fingerprint


def test_the_answer_does_not_depend_on_threads():
    code = (
        "import numpy as np, newcomer as nc; from newcomer.worlds import Synthetic;"
        "m = nc.fit(Synthetic.learnable(seed=2).logs(1500, 20, seed=2), rank=2, estimator='sold');"
        "print(repr(m.spectrum.tolist()))"
    )
    answers = []
    for threads in ("1", "2"):
        env = {**__import__("os").environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        answers.append(np.array([float(x) for x in out.stdout.strip("[]\n").split(",")]))
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-10, atol=1e-10 * answers[0][0])


def test_the_scale_of_features_does_not_matter_when_the_ridge_is_chosen():
    user, X, r = arrays(1)
    model, scaled = (
        fit(nc.Logs.from_arrays(user=user, features=s * X, reward=r), rank=2, estimator="sold") for s in (1, 1e3)
    )
    assert subspace_distance(model.basis, scaled.basis) < 1e-9
    assert scaled.parameters["ridge"] == pytest.approx(1e6 * model.parameters["ridge"])


def test_literal_differs_by_sampling_for_equal_even_lengths_and_by_more_for_ragged_ones():
    user, X, r = arrays(2, lengths=(8, 8))
    even = nc.Logs.from_arrays(user=user, features=X, reward=r)
    same(fit(even, rank=2, literal=True, estimator="sold"), fit(even, rank=2, estimator="sold"), 0.01)
    user, X, r = arrays(2, lengths=(2, 30))
    ragged = nc.Logs.from_arrays(user=user, features=X, reward=r)
    gap = fit(ragged, rank=2, literal=True, estimator="sold").spectrum - fit(ragged, rank=2, estimator="sold").spectrum
    assert np.abs(gap).max() > 1e-3


def test_plain_logs_of_items_just_work():
    rng = np.random.default_rng(0)
    taste = rng.integers(0, 2, 400)
    user = np.repeat(np.arange(400), 12)
    item = rng.integers(0, 8, len(user))
    reward = np.where((item % 2) == taste[user], 1.0, -1.0) + 0.3 * rng.standard_normal(len(user))
    model = fit(nc.Logs.from_arrays(user=user, action=item, reward=reward), estimator="sold")
    assert model.rank == 1 and model.action_ids == tuple(range(8))
    np.testing.assert_array_equal(np.sign(model.basis[:, 0] * model.basis[0, 0]), [1, -1] * 4)


def test_uncovered_directions_are_told_or_refused():
    user, X, r = arrays(3)
    logs = nc.Logs.from_arrays(user=user, features=np.column_stack([X, np.zeros(len(X))]), reward=r)
    facts = fit(logs, rank=2, estimator="sold").evidence.coverage
    assert facts.uncovered == 1 and facts.uncovered_features == (6,) and facts.lambda_A > 0
    with pytest.raises(LogsError, match="1 of 7 directions"):
        fit(logs, rank=2, uncovered="error", estimator="sold")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "solt"}, "did you mean 'sold'"),
        ({"rank": 0}, "rank is 0"),
        ({"rank": 7}, "from 1 to 6"),
        ({"rank": 2.5}, "rank is 2.5"),
        ({"ridge": -1.0, "estimator": "sold"}, "ridge must be a number"),
        ({"ridge": 1.0, "estimator": "sold-pinv"}, "has no ridge"),
        ({"null": False, "estimator": "sold"}, "null"),
        ({"uncovered": "ignore", "estimator": "sold"}, "uncovered is 'ignore'"),
    ],
)
def test_bad_options_get_one_sentence(options, message):
    user, X, r = arrays()
    with pytest.raises(ModelError, match=message):
        fit(nc.Logs.from_arrays(user=user, features=X, reward=r), **options)


def test_too_few_usable_users_are_refused():
    with pytest.raises(LogsError, match="1 of 3 users have two rows or more, and a fit needs 2"):
        fit(nc.Logs.from_arrays(user=[1, 1, 2, 3], features=np.eye(4), reward=np.ones(4)))
    with pytest.raises(LogsError, match="2 of 2 users have two rows or more, and a fit needs 3"):
        fit(nc.Logs.from_arrays(user=[1, 1, 2, 2], features=np.eye(4), reward=np.ones(4)), rank=3)
    with pytest.raises(LogsError, match="all features are zero"):
        fit(nc.Logs.from_arrays(user=[1, 1, 2, 2], features=np.zeros((4, 2)), reward=np.ones(4)), estimator="sold")


def test_logs_without_reward_or_with_too_few_rows_for_their_features_get_one_sentence():
    rng = np.random.default_rng(0)
    X, user = rng.standard_normal((60, 8)), np.repeat(np.arange(20), 3)
    with pytest.raises(LogsError, match="all rewards are zero"):
        fit(nc.Logs.from_arrays(user=user, features=X, reward=np.zeros(60)))
    wide = rng.standard_normal((60, 80))
    with pytest.raises(LogsError, match="no direction of the 80 features is reached by both halves"):
        fit(nc.Logs.from_arrays(user=user, features=wide, reward=np.ones(60)))


def test_rewards_without_noise_do_not_add_directions():
    rng = np.random.default_rng(1)
    user, X = np.repeat(np.arange(300), 10), rng.standard_normal((3000, 6))
    tastes = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 6))
    model = fit(nc.Logs.from_arrays(user=user, features=X, reward=(X * tastes[user]).sum(axis=1)))
    assert model.rank == 2
    assert 0 < model.noise_variance < 1e-6
    assert subspace_distance(model.basis, np.linalg.svd(tastes, full_matrices=False)[2][:2].T) < 1e-6


ROOMS = ("arrays", "users", "evidence", "files", "model", "_fit", "subspace", "radius", "sold", "em", "population")


def modules():
    for room in ROOMS:
        module = import_module(f"newcomer.{room}")
        yield module
        for found in iter_modules(getattr(module, "__path__", ())):
            yield import_module(f"{module.__name__}.{found.name}")


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.__name__)
def test_examples_give_the_numbers_they_show(module):
    assert doctest.testmod(module).failed == 0


def test_pseudo_inverses_are_warned_of_where_half_a_history_has_as_many_rows_as_features():
    """There they fail whatever the number of users, a ridge does not; shorter and longer histories are fine."""
    world = Synthetic.learnable(dim=20, seed=1)
    error = {}
    for steps in (20, 40, 80):
        logs = world.logs(2000, steps, seed=1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            models = [fit(logs, rank=2, estimator=e, null=False, calibrate=False) for e in ("sold-pinv", "sold")]
        error[steps] = [subspace_distance(model.basis, world.basis) for model in models]
        told = [str(one.message) for one in caught if one.category is FitWarning]
        assert len(told) == (steps == 40) == ("not to be trusted" in models[0].evidence.ridge.why)
    assert "100% of the users have halves of about 20 rows" in models_warned(world)
    assert error[40][0] > 0.9 and error[20][0] < 0.15 and error[80][0] < 0.05
    assert max(ridge for _, ridge in error.values()) < 0.15


def test_a_tenth_to_a_hundred_times_the_default_ridge_changes_the_error_by_a_factor_of_at_most_a_half_more():
    """In the worlds of docs/explanation/sold.md; the weak ones are where a ridge that is too small costs."""
    for scale, seed in ((1.25, 1), (1.25, 3), (0.5, 2), (0.5, 5)):
        world = Synthetic(dim=20, rank=2, scale=scale, seed=seed)
        logs, error = world.logs(2000, 20, seed=seed), {}
        for ridge in (None, 0.01, 0.1, 1.0, 10.0, 100.0):
            model = fit(logs, rank=2, estimator="sold", ridge=ridge, null=False, calibrate=False)
            error[ridge] = subspace_distance(model.basis, world.basis)
        assert error[None] == pytest.approx(error[1.0])
        assert all(error[1.0] / 1.55 < error[ridge] < 1.55 * error[1.0] for ridge in (0.1, 10.0, 100.0))
        assert scale > 1 or error[0.01] > 1.5 * error[1.0]


def models_warned(world):
    with pytest.warns(FitWarning) as caught:
        fit(world.logs(50, 40, seed=1), rank=2, estimator="sold-pinv", null=False, calibrate=False)
    assert caught[0].filename == __file__  # it points to the caller
    return str(caught[0].message)


def test_one_hot_halves_are_never_nearly_singular():
    rng = np.random.default_rng(0)
    chosen = np.concatenate([rng.permutation(6) for _ in range(100)])
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(100), 6), action=chosen, reward=rng.standard_normal(600))
    assert fit(logs, rank=1, estimator="sold-pinv", calibrate=False).evidence.ridge.why == "pseudo-inverse: no ridge"


def test_the_largest_reward_that_logs_take_can_be_fitted():
    rng = np.random.default_rng(0)
    rewards = rng.integers(1, 6, 1200).astype(float)
    rewards[5] = 1e75
    model = fit(nc.Logs.from_arrays(user=np.arange(1200) // 8, action=rng.integers(0, 10, 1200), reward=rewards))
    assert np.isfinite(model.mean).all() and model.evidence.logs.far_rewards == 1


def test_rewards_far_from_zero_beside_their_spread_are_fitted_or_refused_in_one_sentence():
    """A level of a thousand deviations changes nothing; where it would, the fit says what to subtract."""
    rng = np.random.default_rng(0)
    z, directions = rng.standard_normal((300, 2)), rng.standard_normal((2, 12))
    user, action = np.repeat(np.arange(300), 8), np.argsort(rng.random((300, 12)), axis=1)[:, :8].ravel()
    reward = (z @ directions)[user, action] + 0.5 * rng.standard_normal(len(user))
    fits = [nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=reward + c)) for c in (0.0, 1000.0, -3000.0)]
    for model in fits[1:]:
        assert model.factor.shape == fits[0].factor.shape
        assert model.noise_variance == pytest.approx(fits[0].noise_variance, rel=0.01)
    for level, todo in ((1e4, "subtract 10000 from"), (-1e6, "add 1000000 to"), (1e9, "subtract 1000000000 from")):
        with pytest.raises(LogsError, match=f"rewards lie around .* {todo} every reward"):
            nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=reward + level))


def test_what_the_refusal_says_to_subtract_is_enough():
    rng = np.random.default_rng(3)
    user, action = np.repeat(np.arange(200), 8), np.concatenate([rng.permutation(10)[:8] for _ in range(200)])
    for level, size in ((123_499_900.0, 100.0), (1.2345e9, 1.0), (1e12, 1.0), (-4e15, 1.0)):
        reward = level + size * rng.integers(0, 2, len(user))
        with pytest.raises(LogsError) as found:
            nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=reward))
        word, number = re.search(r"(subtract|add) (\S+) \w+ every reward", str(found.value)).groups()
        left = reward - float(number) if word == "subtract" else reward + float(number)
        assert abs(left.mean()) < 20 * left.std()
        nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=left))


def test_actions_at_different_levels_do_not_hide_how_users_differ():
    rng = np.random.default_rng(0)
    action = np.argsort(rng.random((200, 10)), axis=1)
    likes = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 10)) > 0
    reward = np.take_along_axis((likes ^ (rng.random(likes.shape) < 0.1)) * 1.0, action, axis=1)
    for gap in (0.0, 1e5):
        rows = {"user": np.repeat(np.arange(200), 10), "action": action.ravel()}
        model = nc.fit(nc.Logs.from_arrays(**rows, reward=(reward + gap * (action >= 5)).ravel()), outcome="gaussian")
        assert model.rank >= 2 and model.noise_variance < 0.2


@pytest.mark.parametrize("value", [1 / 3, 0.1, 123.456, -5.0, 1e6 + 0.1])
def test_rewards_that_are_all_the_same_have_that_mean_and_no_preferences(value):
    rng = np.random.default_rng(1)
    user, action = np.repeat(np.arange(200), 6), np.concatenate([rng.permutation(8)[:6] for _ in range(200)])
    model = nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=np.full(1200, value)))
    assert model.factor.shape[1] == 0 and np.allclose(model.mean, value, rtol=1e-5)


def test_logarithms_and_features_of_rows_have_levels_of_their_own():
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(300), 8)
    money = 1e9 + 1e5 * rng.standard_normal(len(user))
    logs = nc.Logs.from_arrays(user=user, action=user % 7, reward=money, reward_transform="log1p")
    with pytest.raises(LogsError, match="logarithms of rewards .* without reward_transform"):
        nc.fit(logs)
    features, own = rng.standard_normal((len(user), 4)), rng.standard_normal((300, 4))
    reward = (features * own[user]).sum(axis=1) + rng.standard_normal(len(user))
    for level, known in ((250.0, True), (2000.0, False)):
        logs = nc.Logs.from_arrays(user=user, features=features, reward=reward + level, intercept=True)
        if known:
            assert nc.fit(logs).noise_variance == pytest.approx(1.0, abs=0.1)
        else:
            with pytest.raises(LogsError, match="subtract 2000 from"):
                nc.fit(logs)
