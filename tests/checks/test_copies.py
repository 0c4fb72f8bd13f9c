"""Guards the finding on copies: noise that is written twice promises nothing, honest repeats are left alone."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.checks.arms import ARMS
from newcomer.checks.copies import CopyCounts, HistoryHashes, count_copies
from newcomer.logs.reduce import reduce

USERS, ITEMS, ROWS = 200, 20, 10


def noise(seed: int = 0):
    """Ratings of items, each once a user, that have nothing to do with who rates."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(USERS), ROWS)
    action = np.concatenate([rng.permutation(ITEMS)[:ROWS] for _ in range(USERS)])
    return user, action, np.clip(np.rint(3 + rng.standard_normal(len(user))), 1, 5)


def logs_of(user, action, reward, rows):
    return nc.Logs.from_arrays(user=user[rows], action=action[rows], reward=reward[rows])


def repeats_of(logs):
    return next(one for one in nc.check(logs).findings if one.name == "repeats")


@pytest.mark.parametrize("times", [2, 3])
def test_a_file_that_was_appended_to_itself_is_broken(times):
    user, action, reward = noise()
    for rows in (np.tile(np.arange(len(user)), times), np.repeat(np.arange(len(user)), times)):
        logs = logs_of(user, action, reward, rows)
        found = repeats_of(logs)
        assert found.verdict == "broken" and f"there {times} times" in found.what
        assert nc.check(logs).decision.answer == "no"


def test_some_rows_twice_are_doubtful():
    user, action, reward = noise()
    found = repeats_of(logs_of(user, action, reward, np.append(np.arange(len(user)), np.arange(0, len(user), 4))))
    assert found.verdict == "doubtful" and "500 rows repeat" in found.what and "100.0%" in found.what


def test_repeats_that_waver_and_clicks_are_fine():
    user, _, _ = noise()
    rng = np.random.default_rng(1)
    action, opinion = rng.integers(0, 5, len(user)), rng.standard_normal((USERS, 5))
    stars = np.clip(np.rint(3 + opinion[user, action] + 0.5 * rng.standard_normal(len(user))), 1, 5)
    clicks = (rng.random(len(user)) < 0.05).astype(float)
    for reward in (stars, clicks):
        assert repeats_of(nc.Logs.from_arrays(user=user, action=action, reward=reward)).verdict == "fine"
    twice = np.tile(np.arange(len(user)), 2)
    assert repeats_of(logs_of(user, action, clicks, twice)).verdict == "broken"


def test_counts_are_those_of_a_loop_and_do_not_depend_on_batches():
    rng = np.random.default_rng(2)
    user, action, reward = rng.integers(0, 30, 400), rng.integers(0, 4, 400), rng.integers(0, 3, 400).astype(float)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=reward)
    rows = list(zip(user.tolist(), action.tolist(), reward.tolist(), strict=True))
    found = count_copies(logs)
    assert found.repeats == len(rows) - len({row[:2] for row in rows})
    assert found.unchanged == len(rows) - len(set(rows)) and found.different == len(set(rows)) and found.divisor == 1
    pairs = [(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j and a[1] == b[1]]
    every = [(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    agree = sum(a[2] == b[2] for a, b in pairs), np.mean([a[2] == b[2] for a, b in every])
    assert found.alike == pytest.approx((agree[0] + 1000 * agree[1]) / (len(pairs) + 1000))
    other = reduce(logs, CopyCounts.of, CopyCounts.__add__, rows=50)
    assert (other.repeats, other.unchanged, other.different) == (found.repeats, found.unchanged, found.different)
    assert other.alike == found.alike


def test_rewards_are_compared_of_some_actions_where_there_are_many():
    rng = np.random.default_rng(4)
    user, action = np.repeat(np.arange(500), 8), np.concatenate([rng.permutation(300)[:8] for _ in range(500)])
    logs = nc.Logs.from_arrays(user=user, action=action, reward=rng.integers(1, 6, 4000))
    assert count_copies(logs).alike == pytest.approx(0.2, abs=0.02)


def with_twins(count, items=ITEMS, rows=ROWS, seed=0):
    """Users of noise, the first ones there again under other ids."""
    rng = np.random.default_rng(seed)
    action = np.argsort(rng.random((USERS, items)), axis=1)[:, :rows]
    reward = np.clip(np.rint(3 + rng.standard_normal(action.shape)), 1, 5)
    user = np.repeat(np.arange(USERS + count), rows)
    again = [np.concatenate([one, one[:count]]).ravel() for one in (action, reward)]
    return nc.Logs.from_arrays(user=user, action=again[0], reward=again[1])


@pytest.mark.parametrize(
    ("count", "verdict"), [(0, "fine"), (9, "fine"), (10, "doubtful"), (11, "broken"), (200, "broken")]
)
def test_users_that_are_there_under_several_ids_are_found(count, verdict):
    found = repeats_of(with_twins(count))
    if count < 10:
        assert "another user" not in found.what
    else:
        assert found.verdict == verdict and f"{count} of {USERS + count} users" in found.what


def test_twins_promise_nothing_and_no_other_test_is_blamed():
    logs = with_twins(100)
    found = nc.check(logs)
    assert [one.name for one in found if one.verdict == "broken"] == ["repeats"] and found.decision.answer == "no"
    assert "one id" in found.decision.sentences[3]


def test_people_who_may_answer_alike_by_chance_are_no_twins():
    rng = np.random.default_rng(3)
    user, action = np.repeat(np.arange(500), 6), np.tile(np.arange(6), 500)  # everybody answers the same six questions
    short = nc.Logs.from_arrays(user=user, action=action, reward=rng.integers(1, 4, 3000))
    alone = nc.Logs.from_arrays(user=user, action=action, reward=np.repeat(rng.integers(1, 6, 500), 6))
    clicks = nc.Logs.from_arrays(user=user, action=action, reward=(rng.random(3000) < 0.2) * 1.0)
    for logs in (short, alone, clicks):
        counts = count_copies(logs)
        assert counts.twins(500).users_again == 0


def logs_of_table(action, reward, **columns):
    """Logs of users who are the rows of two tables."""
    user = np.repeat(np.arange(len(action)), action.shape[1])
    return nc.Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel(), **columns)


def test_kinds_of_users_without_noise_are_no_copies():
    kinds = np.random.default_rng(5).integers(1, 6, (4, 20))
    assert says_nothing_of_twins(logs_of_table(np.tile(np.arange(20), (400, 1)), kinds[np.arange(400) % 4]))


def says_nothing_of_twins(logs):
    return "another user" not in repeats_of(logs).what


def staircase(users, rounds, seed):
    """A quiz: one harder after a right answer, one easier after a wrong one. Earlier rewards decide what is asked."""
    rng = np.random.default_rng(seed)
    able, level, asked, right = 2.0 * rng.standard_normal(users), np.full(users, 10), [], []
    for _ in range(rounds):
        asked.append(level)
        right.append((rng.random(users) < 1.0 / (1.0 + np.exp(level - 10 - able))).astype(float))
        level = level + 2 * right[-1].astype(int) - 1
    return np.stack(asked, axis=1), np.stack(right, axis=1)


def test_users_whom_a_policy_led_the_same_way_are_no_copies():
    action, reward = staircase(1000, 10, 13)
    assert len(np.unique(np.append(action, reward, axis=1), axis=0)) < 800  # many have the history of another
    assert says_nothing_of_twins(logs_of_table(action, reward))
    whole = repeats_of(logs_of_table(np.tile(action, (2, 1)), np.tile(reward, (2, 1))))
    assert whole.verdict == "broken" and "another user" in whole.what  # every history an even number of times


def test_newcomers_served_by_our_own_policy_are_no_copies():
    rng = np.random.default_rng(3)
    items, rounds, directions = 20, 16, rng.normal(size=(20, 2))

    def chances(tastes, action):
        return 1.0 / (1.0 + np.exp(-2.0 * np.einsum("uk,uak->ua", tastes, directions[action])))

    action = np.argsort(rng.random((600, items)), axis=1)[:, :rounds]
    reward = rng.random(action.shape) < chances(rng.normal(size=(600, 2)), action)
    policy = nc.PriorUCB(nc.fit(logs_of_table(action, reward * 1.0), outcome="gaussian"))
    tastes, state, left = rng.normal(size=(1000, 2)), policy.start(1000), np.ones((1000, items), bool)
    shown, got = [], []
    for _ in range(rounds):
        chosen = policy.choose(state, ids=np.arange(items), mask=left)
        left[np.arange(1000), chosen] = False
        reward = (rng.random(1000) < chances(tastes, chosen[:, None])[:, 0]).astype(float)
        policy.update(state, ids=chosen, reward=reward)
        shown.append(chosen)
        got.append(reward)
    assert says_nothing_of_twins(logs_of_table(np.stack(shown, axis=1), np.stack(got, axis=1)))


def test_only_the_random_arm_makes_logs_broken():
    rng = np.random.default_rng(5)
    action, reward = np.argsort(rng.random((600, 20)), axis=1)[:, :10], rng.integers(1, 6, (600, 10)).astype(float)
    for again, verdict in ((slice(400, 600), "doubtful"), (slice(0, 200), "broken")):  # treated users twice, or random
        arm = np.repeat(["random"] * 400 + ["treated"] * 200 + [["treated", "random"][verdict == "broken"]] * 200, 10)
        logs = logs_of_table(
            np.append(action, action[again], axis=0), np.append(reward, reward[again], axis=0), arm=arm
        )
        assert repeats_of(logs).verdict == verdict
        blocked = [one.name for one in nc.check(logs, fit=False) if "copies of others" in one.what]
        assert bool(blocked) == (verdict == "broken")


@pytest.mark.parametrize("steps", [True, False])
def test_people_who_are_there_twice_among_rare_actions_are_found_in_any_order(steps):
    rng = np.random.default_rng(8)
    action, reward = rng.integers(0, 50_000, (2000, 10)), rng.integers(1, 6, (2000, 10))
    order = np.argsort(rng.random(action.shape), axis=1)
    both = [np.append(one, one if steps else np.take_along_axis(one, order, axis=1)) for one in (action, reward)]
    rows = {"user": np.repeat(np.arange(4000), 10), "action": both[0], "reward": both[1]}
    rows |= {"step": np.tile(np.arange(10), 4000)} if steps else {}
    found = repeats_of(nc.read_logs(pl.DataFrame(rows)))
    assert found.verdict == "broken" and "2,000 of 4,000" in found.what


def test_attributes_are_not_tested_among_twins():
    user, action, reward = noise()
    logs = nc.Logs.from_arrays(
        user=np.append(user, user + USERS),
        action=np.tile(action, 2),
        reward=np.tile(reward, 2),
        attributes=pl.DataFrame({"user": np.arange(2 * USERS), "size": np.tile(np.arange(USERS) % 7, 2)}),
    )
    found = next(one for one in nc.check(logs, fit=False) if one.name == "attributes and logging")
    assert found.verdict == "unknowable" and "copies of others" in found.what and "one id" in found.advice


def test_histories_do_not_depend_on_batches_or_on_the_share_that_is_looked_at():
    logs = with_twins(100)
    whole = count_copies(logs).histories
    parts = [HistoryHashes.of(batch) for batch in logs.batches(rows=64)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined + part
    assert len(parts) > 5 and all(np.array_equal(getattr(whole, name), getattr(joined, name)) for name in vars(whole))
    half = reduce(logs, partial(HistoryHashes.of, share=0.5), HistoryHashes.__add__)
    assert 0 < len(half.rows) < len(whole.rows) and set(half.rows) <= set(whole.rows)
    assert sorted(np.unique(half.rows, return_counts=True)[1]) != [1] * len(half.rows)  # twins are in it together
    assert all((whole.rows == one).sum() == (half.rows == one).sum() for one in half.rows)


def test_where_everybody_met_the_same_actions_a_share_has_its_share_of_them():
    rng = np.random.default_rng(6)
    user, action = np.repeat(np.arange(2000), 8), np.tile(np.arange(8), 2000)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=rng.standard_normal(16_000))
    looked = reduce(logs, partial(HistoryHashes.of, share=0.3), HistoryHashes.__add__)
    assert 500 < len(looked.rows) < 700 and looked.twins(0.2, 0.3).users_again == 0


def test_copies_of_long_histories_are_found_among_short_ones():
    rng = np.random.default_rng(7)
    lengths = np.append(np.full(1500, 2), np.full(1500, 15))
    user = np.repeat(np.arange(3000), lengths)
    action = np.concatenate([rng.permutation(20)[:n] for n in lengths])
    reward = rng.integers(1, 6, len(user))
    twice = nc.Logs.from_arrays(user=np.append(user, user + 3000), action=np.tile(action, 2), reward=np.tile(reward, 2))
    found = repeats_of(twice)
    assert found.verdict == "broken" and "1,500 of" in found.what


def test_people_who_are_there_twice_and_repeat_themselves_are_broken_still():
    user, action, reward = noise()
    again = np.append(np.arange(len(user)), np.arange(0, len(user), 2))
    rows = again[np.argsort(user[again], kind="stable")]
    both = [np.tile(one[rows], 2) for one in (action, reward)]
    logs = nc.Logs.from_arrays(user=np.append(user[rows], user[rows] + USERS), action=both[0], reward=both[1])
    found = repeats_of(logs)
    assert found.verdict == "broken" and "another user" in found.what


def test_a_course_that_everybody_takes_makes_no_copies():
    """Forty lessons in order, one until somebody drops out; or eight for some, among others who met random items."""
    rng = np.random.default_rng(8)
    reward = (np.arange(40) < rng.integers(1, 40, 300)[:, None]).astype(float)
    assert says_nothing_of_twins(logs_of_table(np.tile(np.arange(40), (300, 1)), reward))
    some, others = rng.integers(1, 9, 120)[:, None], np.argsort(rng.random((480, 52)), axis=1)[:, :10]
    logs = nc.Logs.from_arrays(
        user=np.append(np.repeat(np.arange(120), 8), 120 + np.repeat(np.arange(480), 10)),
        action=np.append(np.tile(np.arange(8), 120), 8 + others),
        reward=np.append(np.where(np.arange(8) < some, 5, 1), rng.integers(1, 6, others.shape)),
    )
    assert says_nothing_of_twins(logs)


def test_answers_to_the_same_questions_that_agree_throughout_are_doubtful():
    rng = np.random.default_rng(9)
    answers = np.clip(np.rint(3.5 + 1.5 * rng.standard_normal((600, 25))), 1, 6)
    asked = np.tile(np.arange(25), (700, 1))
    found = repeats_of(logs_of_table(asked, np.append(answers, answers[:100], axis=0)))
    assert found.verdict == "doubtful" and "100 of 700" in found.what and "answered alike" in found.what


def test_arms_with_twins_are_not_called_too_small():
    user, action, reward = noise()
    both = [np.tile(one, 2) for one in (action, reward)]
    logs = nc.Logs.from_arrays(
        user=np.concatenate([user, user + USERS, user + 2 * USERS]),
        action=np.append(both[0], action),
        reward=np.append(both[1], reward),
        arm=np.repeat(["random", "random", "treated"], len(user)),
    )
    arms = next(one for one in nc.check(logs).findings if one.name == ARMS)
    assert "copies of others" in arms.what and "too small" not in arms.what
