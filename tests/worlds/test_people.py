"""Guards the world People: who is in the logs and who is not, what is asked, what wavers, what the limit knows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, NewcomerError
from newcomer.worlds.people import SHRINK, People
from newcomer.worlds.world import check_world


def _people(people=60, questions=12, **settings):
    """Made-up answers with something shared, under names that are not in order."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((people, 2)) @ rng.standard_normal((2, questions))
    table = np.rint(3 + table + rng.standard_normal((people, questions)))
    names = tuple(f"q{number:02d}" for number in rng.permutation(questions))
    return table, names, People(table, names, **{"choices": 4, **settings})


def _rows(logs):
    """(user, action name, reward) of every logged row."""
    found = []
    for batch in logs.batches():
        users = np.repeat(batch.users, np.diff(batch.offsets))
        found += zip(users.tolist(), (logs.action_ids[a] for a in batch.actions), batch.rewards.tolist(), strict=True)
    return found


def test_who_left_a_question_open_is_left_out_and_the_scale_picks_the_questions(tmp_path):
    frame = pl.DataFrame(
        {"b": [1, 2, 3, None, 2, 1], "a": [3, 1, 2, 2, 3, 2], "age": [19, 20, 21, 22, 23, 24], "town": ["x"] * 6}
    )
    frame.write_csv(tmp_path / "answers.csv")
    world = People.read(tmp_path / "answers.csv", scale=(1, 3), choices=2)
    assert world.questions == ("a", "b")
    assert world.table.tolist() == [[3, 1], [1, 2], [2, 3], [3, 2], [2, 1]]  # the fourth person left b open
    assert People.read(tmp_path / "answers.csv", columns=["b", "age"], choices=2).questions == ("age", "b")
    assert People.read(tmp_path / "answers.csv", choices=2).questions == ("a", "age", "b")


def test_questions_are_sorted_with_their_answers():
    table, names, world = _people()
    assert list(world.questions) == sorted(names)
    for place, name in enumerate(world.questions):
        np.testing.assert_array_equal(world.table[:, place], table[:, names.index(name)])


def test_logs_hold_only_logged_people_with_their_own_answers_each_question_at_most_once():
    _, _, world = _people(held_out=0.25, seed=4)
    assert len(world.newcomers) == 15 and len(world.logged) == 45
    assert sorted([*world.logged, *world.newcomers]) == list(range(60))
    rows = _rows(world.logs(steps=5, seed=2))
    assert {user for user, _, _ in rows} == set(world.logged.tolist())
    assert len({(user, name) for user, name, _ in rows}) == len(rows) == 45 * 5
    assert all(world.table[user, world.questions.index(name)] == reward for user, name, reward in rows)
    assert {user for user, _, _ in _rows(world.logs(users=20, steps=5))} == set(world.logged[:20].tolist())


def test_newcomers_are_people_of_no_log_who_answer_as_they_did():
    _, _, world = _people()
    others = {tuple(world.table[person]) for person in world.newcomers}
    for seed in range(20):
        episode = world.episode(np.random.default_rng(seed), 30)
        answers = dict(zip(episode.ids.ravel(), episode.rewards.ravel(), strict=True))
        assert tuple(answers[name] for name in world.questions) in others
        np.testing.assert_array_equal(episode.means, episode.rewards)
        np.testing.assert_array_equal(np.array(world.questions)[episode.actions.argmax(axis=2)], episode.ids)
        assert all(len(set(offered)) == 4 for offered in episode.ids)


def test_another_seed_splits_otherwise():
    _, _, world = _people()
    assert set(world.newcomers) != set(replace(world, seed=1).newcomers)
    assert np.array_equal(world.newcomers, replace(world, retest=0.5).newcomers)


def test_without_repetition_each_question_is_dealt_once():
    _, _, world = _people(repeat=False)
    episode = world.episode(np.random.default_rng(0), 3)
    assert sorted(episode.ids.ravel()) == list(world.questions)
    with pytest.raises(NewcomerError, match=r"horizon=4.*at most 3 rounds, or repeat=True"):
        world.episode(np.random.default_rng(0), 4)


def test_retest_keeps_the_variance_and_regret_counts_what_stays():
    """Half of the residual is fresh: two meetings differ, by about its variance, and answers vary as before."""
    _, _, firm = _people(people=400, questions=8)
    world = replace(firm, retest=0.5)
    drawn = [world.episode(np.random.default_rng(seed), 60) for seed in range(150)]
    for episode in drawn[:5]:
        for name in world.questions:
            assert len(set(episode.means[episode.ids == name])) == 1  # what stays is one number
        assert len(set(episode.rewards[episode.ids == name])) > 5
    means, rewards = (np.concatenate([getattr(e, part).ravel() for e in drawn]) for part in ("means", "rewards"))
    places = np.concatenate([e.actions.argmax(axis=2).ravel() for e in drawn])
    residual = world._residuals(world.table[world.logged])
    for place in range(8):
        own = places == place
        fresh = rewards[own] - means[own]
        assert np.var(fresh) == pytest.approx(0.5 * np.mean(residual[:, place] ** 2), rel=0.1)
        assert np.var(rewards[own]) == pytest.approx(np.var(world.table[:, place]), rel=0.25)


def test_a_retest_of_zero_leaves_answers_and_one_leaves_what_the_others_say():
    _, _, world = _people()
    person = int(world.newcomers[0])
    np.testing.assert_array_equal(world._stable_answers(person), world.table[person])
    answers, whole = world.table[person], replace(world, retest=1.0)
    np.testing.assert_allclose(whole._stable_answers(person), answers - world._residuals(answers))


def test_the_residual_is_the_distance_from_what_the_other_answers_say():
    """Oracle: regress each answer on the others, with the mean and covariance of the logged people."""
    _, _, world = _people()
    rows = world.table[world.logged]
    covariance = np.cov(rows.T)
    covariance = (1 - SHRINK) * covariance + SHRINK * np.diag(np.diag(covariance))
    centred = world.table[int(world.newcomers[0])] - rows.mean(axis=0)
    for a in range(world.dim):
        rest = np.delete(np.arange(world.dim), a)
        said = covariance[a, rest] @ np.linalg.solve(covariance[np.ix_(rest, rest)], centred[rest])
        assert world._residuals(rows.mean(axis=0) + centred)[a] == pytest.approx(centred[a] - said)


def test_the_limit_knows_the_complete_rows_of_the_people_in_the_logs():
    _, _, world = _people()
    rows = world.table[world.logged]
    covariance = np.cov(rows.T)
    covariance = (1 - SHRINK) * covariance + SHRINK * np.diag(np.diag(covariance))
    model = world.limit()
    np.testing.assert_allclose(model.mean, rows.mean(axis=0))
    np.testing.assert_allclose(model.covariance, covariance)
    assert model.action_ids == world.questions and model.persistence == 0.0


def test_where_answers_waver_the_limit_knows_what_stays_of_the_complete_rows():
    """Oracle: the covariance of what stays, person by person, and a noise of half the residual variance."""
    _, _, world = _people(people=2000, retest=0.5)
    stays = np.array([world._stable_answers(person) for person in world.logged])
    model = world.limit()
    np.testing.assert_allclose(model.covariance, np.cov(stays.T), atol=0.06 * np.diag(model.covariance).max())
    np.testing.assert_allclose(np.diag(model.covariance) + model.residual_variance, np.diag(world._moments[1]))


def test_it_keeps_the_promises_of_a_world():
    check_world(_people(questions=6)[2])
    check_world(_people(questions=6, retest=0.5)[2])


def test_the_limit_is_best_and_memory_pays():
    _, _, world = _people(people=200)
    model = nc.fit(world.logs(steps=6), null=False, calibrate=False)
    policies = {
        "ours": nc.PriorUCB(model),
        "arms": nc.EmpiricalArms(model),
        "mean": nc.PopulationMean(model),
        "limit": nc.PriorUCB(world.limit(), width=0.0, level=0.0),
    }
    rows = nc.play(policies, world, horizon=30, users=60, seed=1, progress=False)
    regret = dict(nc.summary(rows).select("policy", "regret").iter_rows())
    assert regret["limit"] < regret["ours"] < regret["mean"]
    assert regret["limit"] < regret["arms"] < regret["mean"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"retest": 1.5}, "retest=1.5"),
        ({"choices": 13}, "choices=13"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(NewcomerError, match=said):
        _people(**settings)


def test_tables_that_are_not_complete_are_refused():
    table, names, _ = _people()
    with pytest.raises(NewcomerError, match="answers are missing"):
        People(np.where(np.arange(12) == 3, np.nan, table), names)
    with pytest.raises(NewcomerError, match="two questions of one name"):
        People(table, (names[0], *names[:-1]))
    with pytest.raises(NewcomerError, match="11 names"):
        People(table, names[1:])


def test_questions_that_nobody_was_asked_are_refused():
    _, _, world = _people()
    with pytest.raises(NewcomerError, match="nobody in the logs was asked"):
        world.logs(users=2, steps=3)


def test_young_people_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path))
    with pytest.raises(LogsError, match="set NEWCOMER_DATA to the folder that holds young-people/responses.csv"):
        People.young()
    _, names, made = _people()
    (tmp_path / "young-people").mkdir()
    frame = pl.DataFrame(np.clip(made.table, 1, 5).astype(int), schema=list(made.questions), orient="row")
    frame.write_csv(tmp_path / "young-people" / "responses.csv")
    assert set(People.young(choices=2).questions) <= set(names)


def test_young_people_are_705_complete_rows_of_134_questions():
    """Where the data is at hand; the made-up tables above are checked everywhere."""
    real = os.environ.get("NEWCOMER_DATA")
    if not real or not Path(real, "young-people", "responses.csv").is_file():
        return
    world = People.young(seed=1)
    assert world.table.shape == (705, 134) and set(np.unique(world.table)) == {1, 2, 3, 4, 5}
    assert (len(world.logged), len(world.newcomers)) == (493, 212)
    assert world.logs(steps=20).summary.rows == 493 * 20


def _likes(**settings):
    """A larger table of 0 and 1."""
    return _people(people=400, questions=8, **settings)[2].liked(3)


def test_tables_of_two_values_keep_them_and_regret_counts_the_expected_answer():
    world = replace(_likes(), retest=0.5)
    assert world.two == (0.0, 1.0) and set(np.unique(world.table)) == {0.0, 1.0}
    person = int(world.newcomers[0])
    said = np.clip(world.table[person] - world._residuals(world.table[person]), 0, 1)
    np.testing.assert_allclose(world._stable_answers(person), 0.5 * world.table[person] + 0.5 * said)
    drawn = [world.answers(np.random.default_rng(seed), 200) for seed in range(40)]
    assert all(set(np.unique(rewards)) <= {0.0, 1.0} for _, _, rewards in drawn)
    errors = np.concatenate([(rewards - means).ravel() for _, means, rewards in drawn])
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(errors.size)
    firm = replace(world, retest=0.0).answers(np.random.default_rng(0), 30)
    np.testing.assert_array_equal(firm[1], firm[2])


@pytest.mark.parametrize("likes", [False, True])
def test_steady_people_answer_as_they_did_and_the_others_waver(likes):
    world = replace(_likes() if likes else _people(people=400, questions=8)[2], retest=1.0, steady=0.5)
    firm = [bool(np.array_equal(*world.answers(np.random.default_rng(seed), 20)[1:])) for seed in range(200)]
    assert 0.35 < np.mean(firm) < 0.65
    assert 0.35 < np.mean([world.is_steady(int(person)) for person in world.newcomers]) < 0.65
    model, rows = world.limit(), np.stack([world._stable_answers(int(person)) for person in world.logged])
    np.testing.assert_allclose(np.diag(model.covariance), rows.var(axis=0, ddof=1), rtol=1e-9)
    assert (model.residual_variance > 0.01).all()


def test_some_of_the_questions():
    _, _, world = _people(choices=3)
    part = world.some(5, seed=2)
    assert len(part.questions) == 5 and set(part.questions) < set(world.questions)
    for place, name in enumerate(part.questions):
        np.testing.assert_array_equal(part.table[:, place], world.table[:, world.questions.index(name)])
    assert part.questions == world.some(5, seed=2).questions != world.some(5, seed=3).questions
    with pytest.raises(NewcomerError, match="13 questions"):
        world.some(13, seed=1)


def test_bfi_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("NEWCOMER_DATA", str(tmp_path))
    with pytest.raises(LogsError, match="set NEWCOMER_DATA to the folder that holds bfi/answers.csv"):
        People.bfi()
    (tmp_path / "bfi").mkdir()
    pl.DataFrame({"A1": [1.0, 2.0, None, 4.0], "A2": [4, 3, 2, 1]}).write_csv(tmp_path / "bfi" / "answers.csv")
    assert People.bfi(choices=2, held_out=0.4).table.tolist() == [[1, 4], [2, 3], [4, 1]]
