"""Guards refits with more logs: sums are added exactly, a warm start ends where a cold one does, a blend says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import newcomer as nc
from newcomer._warm_start import SavedMoments, warm_start
from newcomer.cli import main
from newcomer.em.fit import FINE, FINELY, fit_populations_apart, refit_population
from newcomer.em.passes import Passes, Progress
from newcomer.em.shrinkage import start_with_shrinkage
from newcomer.errors import LogsError, ModelError
from newcomer.logs.batch import Batch
from newcomer.population import Population
from newcomer.users import user_bucket_count, user_buckets, user_folds
from newcomer.worlds import Synthetic
from tests.helpers import write_parquet


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    root = tmp_path_factory.mktemp("refit")
    return [write_parquet(root / str(seed), seed=seed, users=300, beta_seed=5) for seed in (1, 2, 3)]


def gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.filterwarnings("ignore:sold-pinv is not to be trusted")
@pytest.mark.parametrize("estimator", ["sold", "sold-pinv"])
def test_moments_that_are_added_to_are_those_of_all_logs(folders, tmp_path, estimator) -> None:
    kept = [tmp_path / f"{i}.moments" for i in range(2)]
    first = nc.fit(nc.read_logs(folders[0]), rank=2, estimator=estimator, run=nc.Run(moments=kept[0]))
    nc.fit(nc.read_logs(folders[1]), rank=2, estimator=estimator, start=kept[0], run=nc.Run(moments=kept[1]))
    found = nc.fit(nc.read_logs(folders[2]), rank=2, estimator=estimator, start=kept[1])
    ridge = first.parameters["ridge"]
    whole = nc.fit(nc.read_logs(folders), rank=2, estimator=estimator, ridge=ridge)
    for name in ("basis", "spectrum", "mean", "covariance"):
        assert gap(getattr(found, name), getattr(whole, name)) < 1e-9, name
    assert found.noise_variance == pytest.approx(whole.noise_variance, rel=1e-9)
    assert found.radius() == pytest.approx(whole.radius(), rel=1e-6)
    assert found.fingerprint == whole.fingerprint
    ours, theirs = vars(found.evidence.logs), vars(whole.evidence.logs)
    assert ours == {
        name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in theirs.items()
    }


def test_what_does_not_belong_together_is_refused(folders, tmp_path) -> None:
    kept = tmp_path / "a.moments"
    logs = nc.read_logs(folders[0])
    model = nc.fit(logs, rank=2, estimator="sold", run=nc.Run(moments=kept))
    others = nc.read_logs(folders[1], intercept=True)
    with pytest.raises(LogsError, match="features or actions of these logs are not those"):
        nc.fit(others, rank=2, estimator="sold", start=kept)
    with pytest.raises(ModelError, match="another ridge"):
        nc.fit(logs, rank=2, estimator="sold", ridge=77.0, start=kept)
    with pytest.raises(ModelError, match="another ridge"):
        nc.fit(logs, rank=2, estimator="sold-pinv", start=kept)
    with pytest.raises(ModelError, match="sold starts from saved moments"):
        nc.fit(logs, rank=2, estimator="sold", start=model)
    with pytest.raises(ModelError, match="em starts from a model"):
        nc.fit(logs, start=kept)
    with pytest.raises(ModelError, match="was not fitted by em"):
        nc.fit(logs, start=model)
    model.save(tmp_path / "m.newcomer")
    with pytest.raises(ModelError, match="kind 'model', not 'moments'"):
        SavedMoments.load(tmp_path / "m.newcomer")


def test_a_warm_start_ends_where_a_cold_one_does(folders) -> None:
    everything = nc.read_logs(folders[:2])
    old = nc.fit(nc.read_logs(folders[0]), rank=2, calibrate=False)
    heard: list[Progress] = []
    warm = nc.fit(everything, start=old, calibrate=False, run=nc.Run(listen=heard.append))
    begun = warm_start(old, everything, add=False)
    elsewhere = nc.fit(nc.read_logs(folders[2]), rank=2, calibrate=False)
    far = warm_start(elsewhere, everything, add=False).population
    cold = refit_population(Passes(everything), far, precision=begun.precision)
    assert warm.evidence.population.likelihood == pytest.approx(cold.facts.likelihood, abs=1e-4)
    assert gap(warm.covariance, cold.population.factor @ cold.population.factor.T) < 0.01
    # From where the climb is as close to its end as the tolerance asks for, at most 5 passes more are made.
    rows, end = everything.summary.rows, heard[-1].likelihood
    close = max(FINE, FINELY * (4 * 3 + 1)) / rows
    needed = next(told.passes for told in heard if abs(told.likelihood - end) <= close)
    assert warm.evidence.population.passes <= needed + 5
    assert warm.evidence.population.passes < nc.fit(everything, rank=2, calibrate=False).evidence.population.passes
    assert warm.parameters["start"] == old.id and warm.parameters["approximate"] is False
    assert warm.fingerprint == everything.summary.fingerprint
    assert warm.evidence.rank.chosen == "kept" and warm.evidence.population.directions == 2


def test_a_refit_is_judged_by_people_it_has_not_met() -> None:
    """Other rewards of held-out people change nothing of the fits that they judge."""
    world = Synthetic.learnable(dim=6, seed=1)
    batch = next(world.logs(2500, 5, seed=1).batches())
    where = user_buckets(batch.hashes, user_bucket_count(6))
    held_out = user_folds(np.bincount(where))[0].judged[where]
    user = np.repeat(batch.users, batch.lengths)
    other = np.where(np.repeat(held_out, batch.lengths), -batch.rewards, batch.rewards)
    found = []
    for reward in (batch.rewards, other):
        passes = Passes(nc.Logs.from_arrays(user=user, features=batch.features, reward=reward))
        start = Population(np.zeros(6), np.zeros((6, 2)), 1.0)
        found.append(fit_populations_apart(passes, start_with_shrinkage(passes, None), start, 10.0))
    ((one, judged),), ((two, _),) = found
    np.testing.assert_array_equal(judged[where], held_out)
    np.testing.assert_allclose(one.factor @ one.factor.T, two.factor @ two.factor.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-9)


def test_a_refit_tells_the_outlook_of_a_fit_from_nothing() -> None:
    """Gains of a refit and of a fit of the same logs: within the interval that the second tells."""
    rng = np.random.default_rng(1)
    users, steps = 400, 14
    taste = rng.standard_normal((users, 2)) @ rng.standard_normal((2, 20))
    which = np.stack([rng.permutation(20)[:steps] for _ in range(users)])
    reward = np.take_along_axis(taste, which, 1) + 0.3 * rng.standard_normal(which.shape)
    user = np.repeat(np.arange(users), steps)

    def logs(some: slice) -> nc.Logs:
        return nc.Logs.from_arrays(user=user[some], action=which.ravel()[some], reward=reward.ravel()[some])

    half = steps * users // 2
    old, whole = (nc.fit(logs(s), rank=2, null=False, calibrate=False) for s in (slice(half), slice(None)))
    told = whole.evidence.population.outlook
    assert told is not None
    refits = (
        nc.fit(logs(slice(None)), start=old, null=False, calibrate=False),
        nc.fit(logs(slice(half, None)), start=old, add=True, null=False, calibrate=False),
    )
    for warm in refits:
        outlook = warm.evidence.population.outlook
        assert outlook is not None and [s.interactions for s in outlook.steps] == [s.interactions for s in told.steps]
        for step, beside in zip(outlook.steps, told.steps, strict=True):
            assert beside.low < step.gain < beside.high


def test_from_new_logs_alone_it_is_approximate_and_closer_than_either() -> None:
    """On average over three worlds, 400 users before and 200 new ones."""
    gaps = []
    for seed in range(1, 4):
        world = Synthetic.learnable(dim=8, seed=seed)
        parts = [next(world.logs(users, 8, seed=users).batches()) for users in (400, 200)]
        logs = [together(parts[:1]), together(parts[1:]), together(parts)]
        old, new, whole = (nc.fit(one, rank=2, null=False, calibrate=False) for one in logs)
        found = nc.fit(logs[1], start=old, add=True, null=False, calibrate=False)
        gaps.append([np.linalg.norm(one.covariance - whole.covariance) for one in (found, old, new)])
        assert found.parameters["approximate"] is True and found.parameters["start"] == old.id
    found, before, alone = np.mean(gaps, axis=0)
    assert found < min(before, alone), gaps


def rated(users: int, weights: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Ten rows each of users with two directions of preference over eight actions, shown with these weights (8,)."""
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((users, 2)) @ np.random.default_rng(9).standard_normal((2, 8))
    which = rng.choice(8, size=(users, 10), p=weights / weights.sum())
    reward = np.arange(8)[which] / 4 + np.take_along_axis(taste, which, 1) + 0.5 * rng.standard_normal(which.shape)
    return {"user": np.repeat(np.arange(users) + 1000 * seed, 10), "action": which.ravel(), "reward": reward.ravel()}


def test_actions_that_new_users_hardly_met_stay_what_they_were() -> None:
    """New users met half of the actions: over three worlds, the refit is close to the fit of all logs."""
    seldom = np.where(np.arange(8) < 4, 1.0, 0.01)
    gaps = []
    for seed in range(1, 4):
        parts = [rated(200, np.ones(8), 2 * seed), rated(200, seldom, 2 * seed + 1)]
        every = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        old, new, whole = (
            nc.fit(nc.Logs.from_arrays(**one), rank=2, null=False, calibrate=False) for one in (*parts, every)
        )
        found = nc.fit(nc.Logs.from_arrays(**parts[1]), start=old, add=True, null=False, calibrate=False)
        for name in ("mean", "covariance"):
            gaps.append([np.linalg.norm(getattr(one, name) - getattr(whole, name)) for one in (found, old, new)])
        assert (found.uncertainty < 1.01 * old.uncertainty).all() and found.parameters["approximate"] is True
    found, before, alone = np.mean(gaps, axis=0)
    assert found < 0.6 * min(before, alone), gaps


def together(parts: list[Batch]) -> nc.Logs:
    users = np.concatenate([np.repeat(part.users, part.lengths) + 10_000 * i for i, part in enumerate(parts)])
    features, reward = (np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "rewards"))
    return nc.Logs.from_arrays(user=users, features=features, reward=reward)


def test_actions_that_are_new_have_their_place() -> None:
    rng = np.random.default_rng(0)

    def logs(actions: int, seed: int) -> nc.Logs:
        rng = np.random.default_rng(seed)
        taste = rng.standard_normal((150, 2)) @ np.random.default_rng(9).standard_normal((2, 8))
        which = np.stack([rng.permutation(actions)[:5] for _ in range(150)])
        reward = np.take_along_axis(taste, which, 1) + 0.2 * rng.standard_normal(which.shape)
        return nc.Logs.from_arrays(user=np.repeat(np.arange(150), 5), action=which.ravel(), reward=reward.ravel())

    old = nc.fit(logs(6, 1), rank=2, null=False, calibrate=False)
    more = logs(8, 2)
    begun = warm_start(old, more, add=False)
    np.testing.assert_array_equal(begun.population.factor[:6], old.factor)
    assert begun.population.factor.shape == (8, 2) and not begun.population.factor[6:].any()
    assert nc.fit(more, start=old, null=False, calibrate=False).dim == 8
    features = nc.Logs.from_arrays(
        user=np.repeat(np.arange(20), 3), features=rng.normal(size=(60, 6)), reward=np.ones(60)
    )
    with pytest.raises(ModelError, match="has other features than the logs"):
        nc.fit(features, start=old)


def test_the_command_adds(folders, tmp_path, capsys) -> None:
    def run(*words: str) -> int:
        return main.execute_command(["fit", *map(str, words), "--rank", "2"])

    a, b = tmp_path / "a.newcomer", tmp_path / "b.newcomer"
    sold = ("--estimator", "sold", "--out")
    assert run(folders[0], *sold, a) == 0
    assert run(folders[1], "--from", a, *sold, b) == 2
    assert "--moments a.moments" in capsys.readouterr().err
    assert run(folders[0], *sold, a, "--force", "--moments", tmp_path / "a.moments") == 0
    assert run(folders[1], "--from", a, *sold, b) == 0
    assert nc.load(b).evidence.logs.users == 600
    old, new = tmp_path / "old.newcomer", tmp_path / "new.newcomer"
    assert run(folders[0], "--out", old) == 0
    capsys.readouterr()
    assert run(folders[1], "--from", old, "--out", new) == 0
    assert "This fit is approximate" in capsys.readouterr().err
    assert run(folders[1], "--from", old, "--old", folders[0], "--out", new, "--force") == 0
    assert "approximate" not in capsys.readouterr().err and nc.load(new).evidence.logs.users == 600
    assert run(folders[1], "--old", folders[0], "--out", tmp_path / "x.newcomer") == 2
