"""Small logs of every kind end in a model or in one sentence, never in a stack trace.

`python -m tests.test_few_users 2000` tries that many; the tests try the first few.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import NewcomerError

TRIED = 60


def small_logs(seed):
    """2 to 30 users with 1 to 5 rows each on a few actions: clicks, numbers, constants or stars; one-hot, items or
    features.
    """
    rng = np.random.default_rng(seed)
    users, actions = int(rng.integers(2, 31)), int(rng.integers(1, 7))
    user = np.repeat(np.arange(users), rng.integers(1, 6, size=users))
    rows = len(user)
    rewards = (rng.integers(2, size=rows), rng.standard_normal(rows), np.ones(rows), rng.integers(1, 6, size=rows))
    given = {"user": user, "reward": rewards[rng.integers(4)].astype(float)}
    kind = rng.integers(3)
    if kind == 0:
        return nc.Logs.from_arrays(**given, features=rng.standard_normal((rows, int(rng.integers(1, 5)))))
    action = rng.integers(actions, size=rows)
    items = rng.standard_normal((actions, int(rng.integers(1, 4)))) if kind == 1 else None
    return nc.Logs.from_arrays(**given, action=action, items=items)


def try_one(seed):
    """Fit, serve a newcomer, save and load; one sentence is an answer too."""
    estimator = ("em", "em", "sold", "sold-pinv")[seed % 4]
    try:
        model = nc.fit(small_logs(seed), estimator=estimator)
    except NewcomerError:
        return
    policy = nc.PriorUCB(nc.Model.from_bytes(model.to_bytes()))
    state, actions = policy.start(2), np.random.default_rng(seed).standard_normal((3, model.dim))
    policy.update(state, actions[policy.choose(state, actions)], [1.0, 0.0])
    assert np.isfinite(policy.scores(state, actions)).all()
    assert np.isfinite(model.factor).all() and (model.residual_variance > 0).all()


@pytest.mark.filterwarnings("ignore:sold-pinv is not to be trusted")
@pytest.mark.parametrize("first", range(0, TRIED, 10))
def test_small_logs(first):
    for seed in range(first, first + 10):
        try_one(seed)


def test_ten_users_and_four_clicks_on_two_actions():
    """Today's worst case: this always crashed."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        user, action = np.repeat(np.arange(10), 4), rng.integers(2, size=40)
        model = nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=rng.integers(2, size=40).astype(float)))
        assert model.dim == 2


if __name__ == "__main__":
    for case in range(int(sys.argv[1])):
        try_one(case)
    print(f"{sys.argv[1]} small logs: a model or a sentence each")
