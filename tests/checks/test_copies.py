"""Guards the finding on copies: noise that is written twice promises nothing, honest repeats are left alone."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.checks.copies import CopyCounts, count_copies
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
