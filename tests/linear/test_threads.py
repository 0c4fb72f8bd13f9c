"""Guards calls from several threads on one state: each is made whole, and none changes what others have learned."""

from __future__ import annotations

import copy
import pickle
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import newcomer as nc
from newcomer.linear.state import State
from newcomer.policies import action_memory

DIM, USERS, ROUNDS = 6, 8, 60


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Threads take turns as often as Python can have them do, and others have a turn while a state grows."""
    usual, widened = sys.getswitchinterval(), action_memory._widened

    def slowly(array: np.ndarray, width: int) -> np.ndarray:
        longer = widened(array, width)
        time.sleep(0.002)
        return longer

    monkeypatch.setattr(action_memory, "_widened", slowly)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture(scope="module")
def model() -> nc.Model:
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(60), 8), rng.integers(DIM, size=480)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=rng.standard_normal(480))
    return replace(nc.fit(logs, rank=1, null=False, calibrate=False), persistence=0.4)


def policies(model: nc.Model) -> Iterator[Any]:
    yield nc.PriorUCB(model)
    yield nc.EmpiricalArms(model)
    yield nc.ProBALLUCB(model, horizon=ROUNDS, radius=0.4)
    yield nc.LinUCB(DIM, horizon=ROUNDS)
    yield nc.MmTS(np.eye(3, DIM), variances=np.ones(3))


def events(user: int) -> Iterator[tuple[np.ndarray, float]]:
    """Actions that nobody has seen before come now and then: what is remembered of them makes the state grow."""
    rng = np.random.default_rng(user)
    for _ in range(ROUNDS):
        row = np.eye(DIM)[rng.integers(DIM)] if rng.random() < 0.5 else rng.standard_normal(DIM)
        yield row[None], float(rng.standard_normal())


def serve(policy: Any, state: Any, user: int, together: Barrier | None = None) -> None:
    if together is not None:
        together.wait()
    for row, reward in events(user):
        policy.update(state, row, [reward], users=[user])


def watch(policy: Any, state: Any, together: Barrier) -> None:
    together.wait()
    for _ in range(ROUNDS):
        assert np.isfinite(policy.scores(state, np.eye(DIM))).all()
        assert len(type(state).from_bytes(state.to_bytes())) == USERS
        assert len(type(state).concat([state.take([1, 2]), state])) == USERS + 2
        assert len(pickle.loads(pickle.dumps(state))) == len(copy.deepcopy(state)) == USERS


def test_eight_threads_serve_eight_users_of_one_state(model: nc.Model) -> None:
    for policy in policies(model):
        alone, together = policy.start(USERS), policy.start(USERS)
        for user in range(USERS):
            serve(policy, alone, user)
        with ThreadPoolExecutor(USERS + 1) as pool:
            begin = Barrier(USERS + 1)
            calls = [pool.submit(serve, policy, together, user, begin) for user in range(USERS)]
            calls.append(pool.submit(watch, policy, together, begin))
            for call in calls:
                call.result()
        name = type(policy).__name__
        for user in range(USERS):
            assert together.take([user]) == alone.take([user]), f"{name}: user {user}"


def test_a_call_waits_for_its_own_state_only(model: nc.Model) -> None:
    policy = nc.PriorUCB(model)
    busy, free = policy.start(1), policy.start(1)
    with ThreadPoolExecutor(2) as pool:
        with busy.lock:
            waits = pool.submit(policy.update, busy, np.eye(DIM)[:1], [1.0])
            pool.submit(policy.update, free, np.eye(DIM)[:1], [1.0]).result(timeout=30)
            assert not waits.done()
            policy.choose(busy, np.eye(DIM))  # the thread that holds it goes on
        waits.result(timeout=30)
    assert busy == free


def test_copies_have_locks_that_fit_their_arrays(model: nc.Model) -> None:
    state = nc.PriorUCB(model).start(2)
    same, own = copy.copy(state), [copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state.take([0, 1])]
    own += [replace(state), type(state).concat([state]), type(state).from_bytes(state.to_bytes())]
    assert same.lock is state.lock and all(one.lock is not state.lock for one in own)
    assert all(isinstance(one, State) and one == state for one in (same, *own))
    assert "lock" not in repr(state) and "lock" not in state.to_bytes().decode("latin-1")
