"""evaluate: every estimator beside its definition, the same numbers whoever counts, and no hope without an interval."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from experiments import evaluate_coverage

import newcomer as nc
from newcomer.cli import main
from newcomer.evaluation import off_policy, recommenders
from newcomer.evaluation.cold_start import ByPolicy, ByRidge, Fold, cold_start_concordance, judge_cold_start
from newcomer.evaluation.off_policy import off_policy_choice_rewards, off_policy_replay, off_policy_replay_pools
from newcomer.evaluation.predictors import ARMS, MEAN, OURS, predictors_of
from newcomer.evaluation.results import Interval
from newcomer.evaluation.settings import EVALUATION
from newcomer.gain.deals import PerUser, UserResults, deal_rows
from newcomer.gain.propensities import Menu
from newcomer.interval import ratio_interval
from newcomer.logs import disk_store, workers
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.users import user_bucket_count, user_folds
from newcomer.worlds import Synthetic
from newcomer.worlds.fitted import FittedWorld, fitted_world_menu
from newcomer.worlds.world import check_world, world_stream
from tests.optional import MOVIELENS, needs_movielens
from tests.oracles import evaluate as oracle

ACTIONS = 12


def logs_of(users=150, rows=10, taste=0.8, seed=0, *, propensity=True, order=None, names=None):
    """Logs of people who differ along two directions; actions are logged with known, unequal probabilities."""
    rng = np.random.default_rng(seed)
    shares = np.exp(0.5 * rng.standard_normal(ACTIONS))
    shares /= shares.sum()
    mean, factor = 0.5 * rng.standard_normal(ACTIONS), taste * rng.standard_normal((ACTIONS, 2))
    tastes = mean + rng.standard_normal((users, 2)) @ factor.T
    user, action = np.repeat(np.arange(users), rows), rng.choice(ACTIONS, size=users * rows, p=shares)
    reward = tastes[user, action] + 0.7 * rng.standard_normal(users * rows)
    step = np.tile(np.arange(rows), users)
    kept = np.arange(users * rows) if order is None else order(len(user))
    named = action if names is None else np.array(names)[action]
    given = {"user": user, "action": named, "reward": reward, "step": step}
    given |= {"propensity": shares[action]} if propensity else {}
    return nc.Logs.from_arrays(**{name: values[kept] for name, values in given.items()})


@pytest.fixture(scope="module")
def model():
    return nc.fit(logs_of(seed=5), rank=2, null=False, calibrate=False)


@pytest.fixture(scope="module")
def found():
    return nc.evaluate(logs_of(), quick=True)


def numbers(found):
    """All numbers of an evaluation in a flat list."""
    return [
        value
        for part in ("headline", "curves", "replay", "off_policy", "simulation", "learning")
        for row in found.frame(part).rows()
        for value in row
        if isinstance(value, float | int)
    ]


# Records.


def test_a_stretch_is_a_mean_with_students_interval():
    values = np.array([1.0, 2.0, 4.0, np.nan])
    told = Interval.of(values)
    assert told.people == 3 and told.value == pytest.approx(7 / 3)
    assert told.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert told.high - told.value == pytest.approx(4.302653 * told.error, rel=1e-6)
    low, high = told.again(3)
    assert high - low == pytest.approx(np.sqrt(2) * (told.high - told.low))
    assert np.isinf(Interval.of(np.array([1.0])).high) and not Interval.of(np.array([1.0])).clear


def test_the_spread_between_folds_counts_where_people_are_few():
    """Nadeau and Bengio's 5/4, or the mean square between parts if larger; only below 500 people."""
    rng = np.random.default_rng(8)
    values, folds = rng.standard_normal(200), np.repeat(np.arange(5), [50, 50, 40, 40, 20])
    values[:3] = np.nan
    people, apart = Interval.of(values), values + 0.6 * folds
    assert Interval.of(values, folds).error == pytest.approx(np.sqrt(1.25) * people.error)
    told = Interval.of(apart, folds)
    kept = np.isfinite(apart)
    between = 0.0
    for fold in range(5):
        own = apart[kept & (folds == fold)]
        between += len(own) * (own.mean() - apart[kept].mean()) ** 2 / 4
    assert told.error == pytest.approx(np.sqrt(between / kept.sum())) and told.error > 2 * Interval.of(apart).error
    assert told.value == Interval.of(apart).value
    many = np.tile(apart, 3)
    assert Interval.of(many, np.tile(folds, 3)) == Interval.of(many)
    assert Interval.of(values, np.zeros(200, np.int64)) == people


def test_an_evaluation_is_sentences_json_and_frames(found):
    assert found.sentences()[:4] == list(found.decision.sentences)
    assert found.sentences()[4].startswith("After 5 interactions a new user gets")
    assert found.verdict == "helps" and found.folds == 5 and found.judged == 150
    told = json.loads(json.dumps(found.to_json()))
    assert told["headline"][0]["population_mean"]["low"] == found.headline[0].population_mean.low
    assert "After 5 interactions" in repr(found) and "<table>" in found._repr_html_()
    frame = found.frame("curves")
    assert {"predictor", "squared_error", "squared_error_low", "concordance"} <= set(frame.columns)
    wanted = {MEAN, ARMS, "posterior", "SOLD's subspace", "ridge", "ALS fold-in", "EASE fold-in"}
    assert wanted <= set(frame["predictor"])
    assert {OURS, "PriorTS", "Uniform", "LinUCB", "ProBALLUCB", "EASE fold-in"} <= set(found.frame("replay")["policy"])
    with pytest.raises(nc.NewcomerError, match="no part 'curve'"):
        found.frame("curve")
    assert found == pickle.loads(pickle.dumps(found))


# The same numbers, whoever counts.


def test_order_names_of_files_and_batches_change_nothing(found):
    mixed = logs_of(order=lambda rows: np.random.default_rng(3).permutation(rows))
    assert numbers(nc.evaluate(mixed, quick=True)) == pytest.approx(numbers(found), rel=1e-9, abs=1e-9, nan_ok=True)


@pytest.fixture
def dealt(monkeypatch):
    """Workers take part whatever the number of rows; the maps of their passes are counted here by name."""
    monkeypatch.setattr(workers, "ENOUGH", 0)
    monkeypatch.setattr(disk_store, "FEWEST", 100)
    counts, fold, each = Counter(), workers.Engine.fold, workers.Engine.each

    def counted(self, do, tasks, *rest, **named):
        counts[getattr(do.map, "func", do.map).__qualname__] += 1
        return fold(self, do, tasks, *rest, **named)

    def shared(self, do, tasks, **named):
        counts[do.__qualname__] += len(tasks)
        return each(self, do, tasks, **named)

    monkeypatch.setattr(workers.Engine, "fold", counted)
    monkeypatch.setattr(workers.Engine, "each", shared)
    return counts


def test_workers_fit_and_judge_and_change_nothing(found, dealt):
    both = [nc.evaluate(logs_of(), quick=True, run=nc.Run(workers=workers)) for workers in (2, 3)]
    assert dealt["likelihood_sums"] > 50, "fits of the folds"
    assert dealt["_fold_by_worker"] == 2 * 5, "judged, replayed and weighed, every fold by a worker"
    assert numbers(both[0]) == numbers(both[1])
    assert numbers(both[0]) == pytest.approx(numbers(found), rel=1e-9, abs=1e-9, nan_ok=True)


def test_a_quick_evaluation_of_many_actions_does_not_fit_sold(monkeypatch):
    monkeypatch.setattr("newcomer.logs.logs.Logs.wide", property(lambda self: True))
    logs, notes = (
        logs_of(users=60),
        "SOLD's subspace is left out: a quick evaluation does not fit it to so many actions.",
    )
    model = nc.fit(logs, rank=1, calibrate=False, null=False)
    found = predictors_of(logs, model, quick=True)
    assert "SOLD's subspace" not in found.predictors and notes in found.notes


def test_some_users_of_logs_stay_with_the_workers_of_all(dealt, crew):
    logs = logs_of(users=40)
    moved = logs.on(crew)
    half = np.arange(user_bucket_count(logs.dim)) % 2 == 0
    part = Fold(half, ~half, seed=1).to_fit(moved)
    assert moved.engine is crew and part.engine is crew
    assert logs.engine is None and pickle.loads(pickle.dumps(part)).engine is None
    alone = Fold(half, ~half, seed=1).to_fit(logs)
    assert nc.fit(part, rank=1).mean == pytest.approx(nc.fit(alone, rank=1).mean, rel=1e-9)
    assert dealt["likelihood_sums"] > 5


def test_the_same_findings_are_told_without_checking_again(monkeypatch):
    logs = logs_of(users=60)
    known, whole = nc.check(logs, fit=False), nc.evaluate(logs, quick=True)
    monkeypatch.setattr("newcomer.checks.quick.take_residual_sample", None)
    assert nc.evaluate(logs, quick=True, findings=known) == whole
    with pytest.raises(nc.NewcomerError, match="findings"):
        nc.evaluate(logs, quick=True, findings="fine")


def test_others_are_compared_with_what_the_headline_tells(found):
    """The same users, candidates and deals: PriorUCB judged beside the others is the PriorUCB of the headline."""
    for step in found.headline:
        (mean,) = (
            one for one in found.curves if (one.predictor, one.interactions) == ("PopulationMean", step.interactions)
        )
        assert mean.people == step.people
        assert mean.over_ours.value == pytest.approx(-step.population_mean.value, abs=1e-12)
        assert mean.over_ours.error == pytest.approx(step.population_mean.error, abs=1e-12)


def test_a_difference_within_its_interval_is_not_told_as_better(found):
    at = [one for one in found.curves if one.interactions == 5 and one.predictor == "PopulationMean"]
    for over, said in (
        (Interval.around(0.1, 0.2, 90), "no rival predictor chose clearly better"),
        (Interval.around(0.5, 0.1, 90), "others chose better than PriorUCB: PopulationMean by +0.50"),
    ):
        told = replace(found, curves=(replace(at[0], over_ours=over),)).sentences()
        assert any(said in one for one in told)


def test_each_action_by_itself_is_left_out_where_nothing_comes_again(found):
    once = [replace(step, empirical_arms=step.population_mean) for step in found.headline]
    said = " ".join(replace(found, headline=tuple(once)).sentences())
    assert "as where actions do not come again" in said and "over per-action averages" not in said


def test_progress_is_one_bar_that_never_goes_back():
    seen = []
    nc.evaluate(logs_of(users=60), quick=True, run=nc.Run(progress=lambda done, total: seen.append((done, total))))
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done) and len(set(totals)) == 1 and done[-1] == totals[0]


# Who is held out.


def test_nobody_is_judged_by_a_fit_that_has_seen_them():
    logs = logs_of()
    for fold in (Fold(one.fitted, one.judged, 0) for one in user_folds(np.ones(64, dtype=np.int64), every=True)):
        fitted, judged = (
            {user for batch in part.batches() for user in batch.users.tolist()}
            for part in (fold.to_fit(logs), fold.held_out(logs))
        )
        assert not fitted & judged and fitted | judged == set(range(150))
        half = {user for batch in fold.to_fit(logs, 0.5).batches() for user in batch.users.tolist()}
        assert half < fitted


def test_some_users_of_logs_are_the_same_in_memory_on_disk_and_with_workers(tmp_path, crew):
    logs = logs_of(users=40, names=[f"a{i:02d}" for i in range(ACTIONS)])
    first = Fold(*user_folds(np.ones(64, dtype=np.int64))[0], seed=1)
    keep = first.held_out(logs)
    frame = pl.DataFrame(
        {
            "user": np.repeat(np.arange(40), 10),
            "action": [f"a{int(a):02d}" for b in logs.batches() for a in b.actions],
            "reward": np.concatenate([b.rewards for b in logs.batches()]),
            "propensity": np.concatenate([b.propensities for b in logs.batches()]),
        }
    )
    frame.write_csv(tmp_path / "logs.csv")
    spilled = nc.read_logs(tmp_path / "logs.csv", memory=2000)
    again = first.held_out(spilled)
    assert again.summary.fingerprint == keep.summary.fingerprint and again.summary.users == keep.summary.users
    moved = logs.on(crew)
    assert moved.engine is crew and first.held_out(moved).summary.fingerprint == keep.summary.fingerprint
    assert keep.action_ids == logs.action_ids
    with pytest.raises(nc.LogsError, match="no user is left"):
        logs.some(lambda hashes: np.zeros(len(hashes), dtype=bool))


# Every estimator beside its definition.


def test_concordance_is_counted_pair_by_pair():
    rng = np.random.default_rng(0)
    scores, rewards = rng.integers(0, 4, (20, 6)) / 2.0, rng.integers(0, 3, (20, 6)).astype(float)
    rewards[0] = 1.0
    wanted = [oracle.concordance(*pair) for pair in zip(scores, rewards, strict=True)]
    np.testing.assert_allclose(cold_start_concordance(scores, rewards), wanted)


@pytest.mark.parametrize("basis", [False, True])
@pytest.mark.parametrize("one_hot", [False, True])
def test_ridge_among_rows_is_ridge_among_features(one_hot, basis):
    logs = logs_of() if one_hot else Synthetic(dim=5, seed=1).logs(30, 12, seed=1)
    (batch,) = logs.batches()
    U = np.linalg.qr(np.random.default_rng(1).standard_normal((logs.dim, 2)))[0] if basis else None
    dealt = deal_rows(batch, np.arange(20), 4, 5, 0)
    said = ByRidge(one_hot, U, ridge=1.5).expected(batch, dealt, None)
    x = batch.features if U is None else batch.features @ U
    for i in (0, 7):
        known, asked = dealt.known[i], dealt.candidates[i]
        np.testing.assert_allclose(said[i], oracle.ridge(x[known], batch.rewards[known], x[asked], 1.5), atol=1e-9)


def test_judging_is_what_serving_gives(model):
    logs = logs_of(seed=5)
    policies = {OURS: nc.PriorUCB(model), MEAN: nc.PopulationMean(model), ARMS: nc.EmpiricalArms(model)}
    predictors = {name: ByPolicy(policy) for name, policy in policies.items()}
    table = judge_cold_start(predictors, logs, steps=(0, 5), choices=4, deals=3)
    for name, rewards in off_policy_choice_rewards(policies, logs, steps=5, choices=4, deals=3).items():
        assert table.of(name)[:, 1, 2].mean() == pytest.approx(rewards.mean(), abs=1e-12)


def test_replay_is_played_a_person_at_a_time(model):
    logs = logs_of(users=20, rows=9, seed=5)
    (batch,) = logs.batches()
    rows, offered = off_policy_replay_pools(batch, np.arange(20))
    assert offered.all() and rows.shape == (20, 9)
    policies = {OURS: nc.PriorUCB(model), MEAN: nc.PopulationMean(model)}
    table = off_policy_replay(policies, logs, rounds=4)
    place = {int(h): i for i, h in enumerate(table.people.hashes)}
    actions = np.array(logs.action_ids)[batch.actions]
    for name, policy in policies.items():
        for i in (0, 11):
            wanted = oracle.replay(policy, actions, batch.rewards, rows[i], 4)
            np.testing.assert_allclose(table.of(name)[place[int(batch.hashes[i])]], wanted)


def test_pools_of_short_histories_are_masked():
    user = np.repeat(np.arange(3), [2, 5, 40])
    logs = nc.Logs.from_arrays(user=user, action=np.arange(len(user)) % 4, reward=np.arange(len(user)))
    (batch,) = logs.batches()
    rows, offered = off_policy_replay_pools(batch, np.arange(3))
    assert offered.sum(axis=1).tolist() == [2, 5, 30]
    for i in range(3):
        own = rows[i][offered[i]]
        assert (
            len(set(own.tolist())) == len(own)
            and (batch.offsets[i] <= own).all()
            and (own < batch.offsets[i + 1]).all()
        )


def test_weights_are_those_of_the_definition(model):
    logs = logs_of(users=25, rows=8, seed=5)
    policies = {OURS: nc.PriorUCB(model), MEAN: nc.PopulationMean(model)}
    expects = nc.PriorTS(model)
    table = off_policy.off_policy_sums(policies, expects, logs)
    place = {int(h): i for i, h in enumerate(table.people.hashes)}
    (batch,) = logs.batches()
    ids = np.array(logs.action_ids)
    for i in (3, 20):
        own = slice(batch.offsets[i], batch.offsets[i + 1])
        history = list(zip(ids[batch.actions[own]], batch.rewards[own], batch.propensities[own], strict=True))
        for name, policy in policies.items():
            for window, (begin, end) in enumerate(EVALUATION.windows[:4]):
                wanted = oracle.off_policy(history, policy, expects, ids, begin, end).sum(axis=0)
                kept = table.of(name)[place[int(batch.hashes[i])], window]
                order = [off_policy.RESULT, off_policy.WEIGHT, off_policy.IPS, off_policy.ROBUST]
                np.testing.assert_allclose(kept[order], wanted, atol=1e-9)


def test_a_ratio_has_the_error_of_the_bootstrap():
    rng = np.random.default_rng(0)
    below = rng.integers(1, 6, 400).astype(float)
    above = below * (1.0 + 0.5 * rng.standard_normal(400))
    drawn = rng.integers(400, size=(4000, 400))
    spread = (above[drawn].sum(axis=1) / below[drawn].sum(axis=1)).std()
    assert ratio_interval(above, below).error == pytest.approx(spread, rel=0.05)


def test_als_and_ease_are_those_of_dense_tables():
    logs = logs_of(users=60, rows=6)
    cells, hashes = recommenders.recommender_cells(logs)
    answers, met = recommenders.recommender_table(logs)
    assert (np.diff(hashes.astype(object)) > 0).all() and met.sum() == len(cells.data)
    rows = {int(h): i for i, h in enumerate(hashes)}
    for batch in logs.batches():
        own = slice(batch.offsets[3], batch.offsets[4])
        for action in set(batch.actions[own].tolist()):
            mean = batch.rewards[own][batch.actions[own] == action].mean()
            assert answers[rows[int(batch.hashes[3])], action] == pytest.approx(mean)
    start = 0.1 * world_stream(0, "als").standard_normal((ACTIONS, EVALUATION.factors))
    items = oracle.als(answers, met, 3.0, start, EVALUATION.sweeps)
    made = recommenders.Als.of(cells, 3.0)
    np.testing.assert_allclose(made.items, items, atol=1e-8)
    row, column = np.nonzero(met)
    np.testing.assert_allclose(made.at(cells, row, column), made(answers, met)[row, column], atol=1e-9)
    ease = recommenders.Ease.of(cells, 30.0)
    np.testing.assert_allclose(ease.at(cells, row, column), ease(answers, met)[row, column], atol=1e-9)
    inverse = np.linalg.inv(answers.T @ answers + 30.0 * np.eye(ACTIONS))
    np.testing.assert_allclose(ease.weights[0, 1], -inverse[0, 1] / inverse[1, 1])


def test_the_fitted_world_draws_what_the_model_says(model):
    lasting = replace(model, persistence=0.4)
    world = FittedWorld(lasting, np.arange(ACTIONS), choices=ACTIONS)
    check_world(world)
    drawn = [world.episode(world_stream(0, "fitted", i), 2) for i in range(3000)]
    means = np.array([one.means[0][np.argsort(one.ids[0])] for one in drawn])
    wanted = lasting.covariance + np.diag(0.4 * lasting.residual_variance)
    spread = np.diag(wanted).max()
    assert np.abs(means.mean(axis=0) - lasting.mean).max() < 5 * np.sqrt(spread / 3000)
    assert np.abs(np.cov(means.T) - wanted).max() < 0.1 * spread
    again = [one.means[1][np.argsort(one.ids[1])] for one in drawn[:5]]
    np.testing.assert_allclose(again, means[:5], atol=1e-12)  # what lasts is the same in every round
    noise = np.concatenate([(one.rewards - one.means).ravel() for one in drawn])
    assert noise.var() == pytest.approx(0.6 * lasting.residual_variance.mean(), rel=0.1)
    logs = Synthetic(dim=4, seed=1).logs(30, 8, seed=1)
    free = FittedWorld(
        nc.fit(logs, null=False, calibrate=False), fitted_world_menu(logs, named=False, seed=0), choices=3
    )
    check_world(free)


def test_folds_share_the_names_that_all_have():
    tables = [
        UserResults(names, PerUser(np.array([first], dtype=np.uint64), np.arange(2.0)[None, : len(names)] + first))
        for first, names in ((7, ("a", "b")), (3, ("b",)))
    ]
    joined = UserResults.joined(tables)
    assert joined.names == ("b",) and joined.people.hashes.tolist() == [3, 7] and joined.of("b").tolist() == [3.0, 8.0]


# No hope without an interval.


def hostile(users, rows, *, actions=8, reward=None, propensity=None, seed=0):
    rng = np.random.default_rng(seed)
    user, action = np.repeat(np.arange(users), rows), rng.integers(actions, size=users * rows)
    paid = rng.standard_normal(users * rows) if reward is None else reward(user, action, rng)
    given = {} if propensity is None else {"propensity": np.full(users * rows, propensity)}
    return nc.Logs.from_arrays(user=user, action=action, reward=paid, **given)


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        (lambda: hostile(1, 50), "1 of 1 users have two rows or more, and a fit needs 2"),
        (lambda: hostile(100, 10, reward=lambda user, action, rng: 0.0 * user), "all rewards are zero"),
        (lambda: hostile(300, 2), "0 of 300 users have the 3 rows"),
        (lambda: hostile(1_000_000, 1, actions=3), "none of the 1,000,000 users has two rows"),
    ],
)
def test_logs_that_cannot_judge_are_refused_in_a_sentence(logs, said):
    with pytest.raises(nc.LogsError, match=said) as refused:
        nc.evaluate(logs(), quick=True)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "logs",
    [
        lambda: hostile(2, 50),
        lambda: hostile(5, 50),
        lambda: hostile(60, 10, actions=1),
        lambda: hostile(60, 10, reward=lambda user, action, rng: 3.0 + 0.0 * user),
        lambda: hostile(60, 10, reward=lambda user, action, rng: 1.0 * action),
        lambda: hostile(90, 3, reward=lambda user, action, rng: action + rng.standard_normal(len(user))),
        lambda: hostile(
            60, 10, reward=lambda user, action, rng: np.where(np.arange(len(user)) == 5, 1e12, 1.0 * action)
        ),
    ],
    ids=["two users", "five users", "one action", "constant", "alike", "short", "outlier"],
)
def test_where_there_is_nothing_to_gain_nothing_is_promised(logs):
    found = nc.evaluate(logs(), quick=True)
    assert found.verdict != "helps" and found.decision.answer in ("best for all", "not yet", "no")


@pytest.mark.parametrize(("propensity", "said"), [(1e-9, "do not fit"), (0.5, "do not fit"), (None, "No propensities")])
def test_propensities_that_cannot_be_right_are_not_used(propensity, said):
    found = nc.evaluate(hostile(60, 8, propensity=propensity), quick=True)
    assert found.off_policy is None and said in found.why_no_off_policy and said in " ".join(found.sentences())


def test_propensities_of_logs_that_do_not_say_what_was_on_offer_are_not_used():
    rng = np.random.default_rng(0)
    logs = nc.Logs.from_arrays(
        user=np.repeat(np.arange(60), 8), features=rng.standard_normal((480, 3)), reward=rng.standard_normal(480),
        propensity=np.full(480, 0.5),
    )  # fmt: skip
    found = nc.evaluate(logs, quick=True)
    assert "what was on offer" in found.why_no_off_policy and ARMS not in set(found.frame("curves")["predictor"])
    assert any("need logs with actions" in note for note in found.notes)


def test_few_effective_rows_are_left_out():
    kept = np.zeros((200, 1, len(EVALUATION.windows), len(off_policy.KEPT)))
    kept[:, 0, 0, off_policy.ROWS] = 1.0
    kept[:3, 0, 0, [off_policy.WEIGHT, off_policy.SQUARE]] = [50.0, 2500.0]
    table = UserResults((OURS,), PerUser(np.arange(200, dtype=np.uint64), kept))
    assert off_policy.off_policy_rows(table) == ([], 1)


def test_candidates_of_the_logs_are_the_offer():
    lists = SimpleNamespace(offsets=np.array([0, 2, 5]), actions=np.array([3, 1, 0, 2, -1]))
    batch = SimpleNamespace(actions=np.array([1, 2]), candidates=lists)
    offer = Menu(np.array(["a", "b", "c", "d"])).of(batch, np.array([0, 1]))
    assert offer.chosen.tolist() == [1, 1] and offer.size.tolist() == [2, 3]
    assert offer.mask.tolist() == [[True, True, False], [True, True, False]]
    assert offer.ids[0, :2].tolist() == ["d", "b"] and offer.ids[1, :2].tolist() == ["a", "c"]


def test_the_learning_curve_and_the_simulation_are_told():
    found = nc.evaluate(logs_of(users=120, rows=10))
    steps = [step.users for step in found.learning]
    assert steps == sorted(steps) and steps[-1] == 96 and found.learning[-1].lacking.value == 0
    told = " ".join(found.sentences())
    assert "more users would" in told and "Simulation, not users" in told
    assert {row.policy for row in found.simulation} == {row.policy for row in found.replay}


# The command line.


def test_the_command_tells_the_same_and_refuses_bad_logs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"user": [1, 1, 2], "action": ["a", "b", "a"], "reward": [1, 0, 1]}).write_csv("few.csv")
    assert main.execute_command(["evaluate", "few.csv", "--workers", "1"]) == 3
    assert capsys.readouterr().err.count("error:") == 1
    world = logs_of(users=90, rows=8)
    (batch,) = world.batches()
    rows = {"user": np.repeat(batch.users, 8), "action": batch.actions, "reward": batch.rewards}
    pl.DataFrame(rows).write_csv("logs.csv")
    assert main.execute_command(["evaluate", "logs.csv", "--quick", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert (
        "After 3 interactions" not in shown
        and "over the ranking by the population mean" in " ".join(shown.split())
        and "best for everybody" in shown
    )
    assert "No propensities" in shown
    assert main.execute_command(["evaluate", "logs.csv", "--workers", "0"]) == 2


# Real people.


@needs_movielens
def test_other_people_get_what_was_said():
    """The 40 most rated films: 70% of 500 people judge, the others are served by a fit to all of the 70%."""
    ratings = read_ratings(MOVIELENS)
    often = np.argsort(-np.bincount(ratings.movie), kind="stable")[:40]
    kept = np.isin(ratings.movie, often) & (ratings.user < 500)
    user, film, stars = ratings.user[kept], ratings.movie[kept], ratings.rating[kept]
    logged, others = (
        nc.Logs.from_arrays(user=user[part], action=film[part], reward=stars[part])
        for part in (user % 10 < 7, user % 10 >= 7)
    )
    found = nc.evaluate(logged, quick=True)
    model = nc.fit(logged, null=False, calibrate=False)
    policies = {OURS: nc.PriorUCB(model), MEAN: nc.PopulationMean(model)}
    for step in found.headline:
        got = off_policy_choice_rewards(policies, others, steps=step.interactions, choices=found.choices, deals=4)
        happened = Interval.of(got[OURS] - got[MEAN])
        error = np.hypot(step.population_mean.error, happened.error)
        assert abs(step.population_mean.value - happened.value) < 2.6 * error  # 99%


# Coverage: a short form of experiments/evaluate_coverage.py.


def test_tables_of_few_people_are_held_against_what_happened():
    rows = pl.DataFrame(evaluate_coverage.few("stars", 120, 12, 1))
    assert rows["interactions"].to_list() == [1, 2, 5] and (rows["error"] > 1.1 * rows["alone"]).all()
    found = evaluate_coverage.held(rows)
    assert found["kind"].to_list() == ["stars", "all"] and found["intervals"].to_list() == [3, 3]
    inside = ((rows["low"] <= rows["happened"]) & (rows["happened"] <= rows["high"])).mean()
    assert found["held"][0] == inside and found["before"][0] <= inside <= found["allowing"][0]


def test_intervals_have_the_truth_in_them():
    """Ten worlds of eleven estimates: nominally 95% of the intervals cover; the estimates of a world go together."""
    rows = pl.DataFrame([row for seed in range(10) for row in evaluate_coverage.run(seed)])
    assert rows["covered"].mean() > 0.85
    wrong = evaluate_coverage.table(rows).filter((pl.col("bias") / pl.col("bias_se")).abs() > 5)
    assert wrong["estimate"].to_list() == []
