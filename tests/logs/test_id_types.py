"""Ids of another type: "7" and 7 mean the same wherever ids are taken, and a call of unknown ids says so, once."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, ModelError


def logs_of(name: Callable[[int], Any]) -> nc.Logs:
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 12))
    user, action = np.repeat(np.arange(60), 8), np.concatenate([rng.permutation(12)[:8] for _ in range(60)])
    reward = taste[user, action] + 0.1 * rng.standard_normal(len(user))
    return nc.Logs.from_arrays(user=user, action=[name(one) for one in action.tolist()], reward=reward)


INTEGERS, TEXTS = (nc.fit(logs_of(name), rank=1, estimator="sold") for name in (int, lambda one: f"{one:d}"))


@pytest.mark.parametrize("policy", [nc.PriorUCB, nc.EmpiricalArms, nc.PopulationMean])
@pytest.mark.parametrize(("model", "same"), [(INTEGERS, str), (TEXTS, int)], ids=["integers", "texts"])
def test_policies_take_either_type(policy: Any, model: nc.Model, same: Callable[[Any], Any]) -> None:
    served = policy(model)
    own, other = served.start(2), served.start(2)
    ids = [one for one in model.action_ids or ()]
    others = [same(one) for one in ids]
    for _ in range(2):
        np.testing.assert_array_equal(served.scores(own, ids=ids), served.scores(other, ids=others))
        np.testing.assert_array_equal(served.choose(own, ids=ids), served.choose(other, ids=np.array(others)))
        served.update(own, ids=ids[3:5], reward=[1.0, -1.0])
        served.update(other, ids=others[3:5], reward=[1.0, -1.0])
    assert own.to_bytes() == other.to_bytes()


@pytest.mark.parametrize(("model", "same"), [(INTEGERS, str), (TEXTS, int)], ids=["integers", "texts"])
def test_the_model_takes_either_type(model: nc.Model, same: Callable[[Any], Any]) -> None:
    others = [same(one) for one in model.action_ids or ()]
    np.testing.assert_array_equal(model.features(others), model.features(model.action_ids or ()))
    assert model.codes(others).tolist() == list(range(12)) == model.codes(np.array(others)).tolist()
    told = nc.Logs.from_arrays(user=[1, 1], action=others[:2], reward=[1.0, 2.0])
    own = nc.Logs.from_arrays(user=[1, 1], action=list((model.action_ids or ())[:2]), reward=[1.0, 2.0])
    np.testing.assert_array_equal(model.transform(told).mean, model.transform(own).mean)


def test_only_the_usual_spelling_of_an_integer_is_one() -> None:
    assert INTEGERS.codes(["07", "+7", "7 ", "7.0", "x", ""]).tolist() == [-1] * 6
    with pytest.raises(ModelError, match="action '07' is not among"):
        INTEGERS.features(["07"])


def test_an_exact_id_comes_first_where_the_catalogue_has_both() -> None:
    model = nc.Model(np.eye(1), np.ones(1), np.ones(1), np.eye(1), 1.0, action_ids=(7, "7", "8"))
    assert model.codes([7, "7", 8, "8"]).tolist() == [0, 1, 2, 2]


def test_a_new_action_is_remembered_under_either_type() -> None:
    served = nc.EmpiricalArms(INTEGERS)
    one, two = served.start(1), served.start(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        served.update(one, ids=[99], reward=[5.0])
        served.update(two, ids=["99"], reward=[5.0])
        np.testing.assert_array_equal(served.scores(one, ids=["99", "1"]), served.scores(two, ids=[99, 1]))


@pytest.mark.parametrize("call", ["choose", "scores", "update", "probabilities"])
@pytest.mark.parametrize("policy", [nc.PriorUCB, nc.PopulationMean, nc.EmpiricalArms])
def test_a_call_of_unknown_ids_says_so_once_with_three_of_them(policy: Any, call: str) -> None:
    served = policy(nc.fit(logs_of(int), rank=1, estimator="sold"))
    state = served.start(4)
    rest = {"reward": np.zeros(4)} if call == "update" else {}
    with pytest.warns(UserWarning, match=r"3 of 4 ids are not among the 12 actions .*\('film-1', 'film-2', 'film-3'\)"):
        getattr(served, call)(state, ids=["film-1", "film-2", "3", "film-3"], **rest)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(served, call)(state, ids=["film-1", "film-2", "3", "film-3"], **rest)


def test_unknown_ids_that_come_with_rewards_one_at_a_time_say_so_too() -> None:
    served = nc.PriorUCB(nc.fit(logs_of(int), rank=1, estimator="sold"))
    state = served.start(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for new in ("nope", "nope", "neither"):
            served.update(state, ids=[new], reward=[1.0])
    with pytest.warns(UserWarning, match=r"3 ids are not among the 12 actions .*\('nope', 'neither', 'third'\)"):
        served.update(state, ids=["third"], reward=[1.0])


def test_half_of_the_ids_may_be_new_without_a_word() -> None:
    served = nc.PriorUCB(nc.fit(logs_of(int), rank=1, estimator="sold"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        served.scores(served.start(1), ids=[1, 2, "new", "newer"])


def test_other_policies_with_a_catalogue_take_either_type() -> None:
    model = nc.Model(
        np.eye(3, 1),
        np.ones(3),
        np.ones(3),
        np.eye(3, 1),
        1.0,
        action_ids=(1, 2, 3),
        action_features=np.diag([1, 2, 3]),
    )
    served = nc.ProBALLUCB(model, horizon=10, radius=0.1)
    state = served.start(1)
    np.testing.assert_array_equal(served.scores(state, ids=["1", "3"]), served.scores(state, ids=[1, 3]))


@pytest.mark.parametrize("of_logs", [str, int])
def test_logs_and_items_may_differ_in_type(of_logs: Callable[[Any], Any]) -> None:
    of_items: Any = int if of_logs is str else str
    items = pl.DataFrame({"action": [of_items(one) for one in (4, 5)], "x": [1.0, 2.0], "y": [1.0, 0.0]})
    logs = nc.Logs.from_arrays(user=[1, 1], action=[of_logs(5), of_logs(4)], reward=[0.0, 1.0], items=items)
    assert next(logs.batches()).features.tolist() == [[2.0, 0.0], [1.0, 1.0]]
    with pytest.raises(LogsError, match=r"action '?6'? is not among the 2 items"):
        nc.Logs.from_arrays(user=[1], action=[of_logs(6)], reward=[0.0], items=items)


@pytest.mark.parametrize("of_logs", [str, int])
def test_candidates_may_differ_in_type_from_actions(of_logs: Callable[[Any], Any]) -> None:
    other: Any = int if of_logs is str else str
    shown = [[other(5), other(4)], [other(4), other(5)]]
    logs = nc.Logs.from_arrays(user=[1, 1], action=[of_logs(5), of_logs(4)], reward=[0.0, 1.0], candidates=shown)
    candidates = next(logs.batches()).candidates
    assert candidates is not None and candidates.actions.tolist() == [1, 0, 0, 1]
