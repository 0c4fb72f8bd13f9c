"""The manners of other libraries: their own checkers are run on what we hand them."""

from __future__ import annotations

import importlib
import sys
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import newcomer as nc
from newcomer.adapters import gymnasium, sklearn
from newcomer.adapters.gymnasium import WorldEnvironment
from newcomer.adapters.sklearn import TasteTransformer
from newcomer.errors import MissingExtra, NewcomerError
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode

# Checks of scikit-learn that are expected not to pass, and why that is right.
EXPECTED = {
    "check_array_api_input": "skips itself: arrays of other libraries need SCIPY_ARRAY_API, and our loops NumPy",
}


CHECKS = {
    f"{rank}-{check.func.__name__}-{number}": (estimator, check)
    for rank in (1, "auto")
    for number, (estimator, check) in enumerate(estimator_checks_generator(TasteTransformer(rank)))
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_checks_of_scikit_learn(name: str) -> None:
    estimator, check = CHECKS[name]
    if check.func.__name__ in EXPECTED:
        with pytest.raises(SkipTest):
            check(estimator)
    else:
        check(estimator)


def table(users: int = 300, actions: int = 6, seed: int = 0) -> np.ndarray:
    """One direction of taste, half of the entries unseen."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(users, 1)) * np.where(np.arange(actions) % 2, 1.0, -1.0) + 3.0
    values += 0.3 * rng.normal(size=values.shape)
    values[rng.random(size=values.shape) < 0.5] = np.nan
    values[0] = np.nan
    return values


def test_the_transformer_is_fit_and_transform_of_the_entries_that_are_there() -> None:
    values = table()
    found = TasteTransformer(rank=1).fit(values)
    user, action = np.nonzero(~np.isnan(values))
    where = found.model_.transform(nc.Logs.from_arrays(user=user, action=action, reward=values[user, action]))
    located = found.located(values)
    np.testing.assert_allclose(located.mean[where.users.astype(int)], where.mean, atol=1e-12)
    assert located.mean[0].tolist() == [0.0] and located.covariance[0].tolist() == [[1.0]] and located.rows[0] == 0
    assert found.get_feature_names_out().tolist() == ["taste1"]
    assert (located.deviation[1:] <= 1.0).all()


def test_the_transformer_stands_in_a_pipeline() -> None:
    pipeline = make_pipeline(TasteTransformer(rank=1), StandardScaler())
    assert clone(pipeline).fit_transform(table()).shape == (300, 1)
    out = clone(pipeline).set_output(transform="polars").fit_transform(table())
    assert out.columns == ["taste1"]


def test_nothing_shared_is_no_column() -> None:
    noise = np.random.default_rng(0).normal(size=(200, 4))
    assert TasteTransformer().fit_transform(noise).shape == (200, 0)


WORLDS = {"catalogue": Synthetic.learnable(dim=5, seed=0), "fresh": Synthetic.printed(dim=4, seed=1)}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.filterwarnings("ignore:.*A Box observation space (minimum|maximum) value is:UserWarning")
def test_the_checker_of_gymnasium(name: str) -> None:
    """Features of any size are observed, which the checker finds suspicious and allows."""
    check_env(WorldEnvironment(WORLDS[name], horizon=7), skip_render_check=True)


def test_an_episode_pays_what_the_world_pays() -> None:
    world = WORLDS["catalogue"]
    rounds = WorldEnvironment(world, horizon=4)
    rounds.reset(seed=5)
    episode = rounds._episode
    assert episode is not None
    for t in range(4):
        observed, reward, over, cut, info = rounds.step(np.int64(t))
        assert reward == episode.rewards[t, t] and info["regret"] == episode.best[t] - episode.means[t, t]
        np.testing.assert_array_equal(observed["candidates"], episode.actions[min(t + 1, 3)])
        assert over == (t == 3) and not cut
    with pytest.raises(NewcomerError, match="call reset"):
        rounds.step(np.int64(0))


class Masked:
    """A world of two candidates, of which the second is never on offer; the first is called "tea"."""

    dim = 2

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        shape = (horizon, 2)
        mask = np.tile([True, False], (horizon, 1))
        ids = np.tile(np.array(["tea", "milk"], dtype=object), (horizon, 1))
        return Episode(rng.normal(size=(*shape, 2)), np.zeros(shape), np.ones(shape), mask, ids)


def test_what_is_not_on_offer_is_refused_in_one_sentence() -> None:
    rounds = WorldEnvironment(Masked(), horizon=2)
    observed, info = rounds.reset(seed=0)
    assert observed["on_offer"].tolist() == [1, 0] and info["ids"] == ["tea", "milk"]
    for action, what in ((1, "not on offer"), (7, "is not a candidate"), ("tea", "is not a candidate")):
        with pytest.raises(NewcomerError, match=what):
            rounds.step(action)  # type: ignore[arg-type]
    assert rounds.step(np.int64(0))[1] == 1.0
    with pytest.raises(NewcomerError, match="is not a world"):
        WorldEnvironment("world")  # type: ignore[arg-type]
    with pytest.raises(NewcomerError, match="horizon"):
        WorldEnvironment(Masked(), horizon=0)


@pytest.mark.parametrize(
    ("module", "missing", "extra"), [(sklearn, "sklearn", "sklearn"), (gymnasium, "gymnasium", "gym")]
)
def test_without_the_library_one_sentence_says_what_to_install(
    module: Any, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name == missing or name.startswith(f"{missing}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(MissingExtra, match=rf"pip install 'newcomer\[{extra}\]'"):
        importlib.import_module(module.__name__)
