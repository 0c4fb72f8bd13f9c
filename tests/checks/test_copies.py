"""Guards the finding on copies: noise that is written twice promises nothing, honest repeats are left alone."""

from __future__ import annotations

from functools import partial

import numpy as np
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
    assert found.alike == pytest.approx(np.mean([a[2] == b[2] for a, b in pairs]))
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
        assert counts.histories.twins(counts.alike).users_again == 0


def test_kinds_of_users_without_noise_are_doubtful_only():
    kinds = np.random.default_rng(5).integers(1, 6, (4, 20))
    reward = kinds[np.arange(400) % 4].ravel()
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(400), 20), action=np.tile(np.arange(20), 400), reward=reward)
    assert repeats_of(logs).verdict == "doubtful"


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


def test_a_course_that_everybody_takes_is_doubtful_and_says_so():
    """Forty lessons in order, one until somebody drops out."""
    last = np.random.default_rng(8).integers(1, 40, 300)
    reward = (np.arange(40) < last[:, None]).astype(float).ravel()
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(300), 40), action=np.tile(np.arange(40), 300), reward=reward)
    found = repeats_of(logs)
    assert found.verdict == "doubtful" and "same answers to the same questions" in found.what


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
    assert "twins" in arms.what and "too small" not in arms.what
