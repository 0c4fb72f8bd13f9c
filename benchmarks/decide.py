"""A decision and its reward through the public calls, against a compiled loop of the same arithmetic.

ProBALL-UCB in a subspace of rank k of d dimensions, K fresh unit vectors a round, choose + update with all validation.
The reference drives the package's own compiled bodies (project, score, pick, learn) from one compiled loop, so that the
ratio is what Python and checking cost. Then the time of a decision against d, k and K, LinUCB beside it, and the memory
of a user against t. Last, decisions by ids of a catalogue at rank 16, 20 candidates, and states: as bytes, and of a
million newcomers; each beside a reference that was measured in the same run (benchmarks/decide_ids.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import polars as pl
from numba import njit

import newcomer as nc
from benchmarks import decide_ids
from benchmarks.measure import alternate, page
from newcomer import compile_cache
from newcomer.linear import learning_loops, ridge, scoring_loops

ROUNDS, REPEATS = 1000, 7


@njit
def compiled(basis, system, actions, rewards, width, features, seen):
    """Play all rounds of all users: actions (T, n, K, d), rewards (T, n); rows go to features (T, n, d)."""
    count, size = actions.shape[2], basis.shape[0]
    low, scores, chosen = np.empty((count, size)), np.empty((1, count)), np.empty(1, dtype=np.int64)
    mask, one = np.empty((0, 0), dtype=np.bool_), np.empty(size)
    for t in range(actions.shape[0]):
        for u in range(actions.shape[1]):
            block = actions[t, u]
            scoring_loops._project(basis, block, low)
            scoring_loops._ucb_row(system.factor[u], system.mean[u], low, width, scores[0])
            scoring_loops.first_best_scores(scores, mask, chosen)
            x = block[chosen[0]]
            learning_loops._project(basis, x, one)
            learning_loops.learn_row(system, u, one, rewards[t, u])
            for j in range(x.size):
                features[t, u, j] = x[j]
                seen[u, j] += rewards[t, u] * x[j]


def model_of(dim: int, rank: int, rng: np.random.Generator) -> nc.Model:
    """Any model of this shape."""
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    return nc.Model(basis, np.ones(dim), np.zeros(dim), basis, 1.0)


def rounds(users: int, choices: int, dim: int, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Actions (T, n, K, d) and rewards (T, n)."""
    actions = rng.standard_normal((count, users, choices, dim))
    return actions / np.linalg.norm(actions, axis=-1, keepdims=True), rng.standard_normal((count, users))


def public(policy: nc.ProBALLUCB | nc.LinUCB, actions: np.ndarray, rewards: np.ndarray) -> None:
    """The loop a caller writes."""
    state = policy.start(actions.shape[1])
    who = np.arange(actions.shape[1])
    for offered, reward in zip(actions, rewards, strict=True):
        index = policy.choose(state, offered)
        policy.update(state, offered[who, index], reward)


def compare(users: int, count: int, *, dim: int = 200, rank: int = 18, choices: int = 20) -> dict[str, object]:
    """One row: microseconds of a decision, publicly and compiled."""
    rng = np.random.default_rng(0)
    model = model_of(dim, rank, rng)
    policy = nc.ProBALLUCB(model, horizon=count, radius=1.0)
    actions, rewards = rounds(users, choices, dim, rng, count)
    basis = np.ascontiguousarray(model.basis.T)

    def loop() -> None:
        out = np.empty((count, users, dim))
        compiled(basis, ridge.start_ridge(users, rank).parts, actions, rewards, 1.0, out, np.zeros((users, dim)))

    seconds = alternate({"public": lambda: public(policy, actions, rewards), "compiled": loop}, repeats=REPEATS)
    micro = {name: value / (count * users) * 1e6 for name, value in seconds.items()}
    return {"users": users, **micro, "ratio": micro["public"] / micro["compiled"]}


def costs() -> pl.DataFrame:
    """Microseconds of choose + update for one user, averaged over 300 rounds."""
    rows = []
    for dim, rank, choices in [
        (50, 2, 20),
        (200, 2, 20),
        (200, 18, 20),
        (200, 50, 20),
        (400, 18, 20),
        (200, 18, 5),
        (200, 18, 100),
    ]:
        rng = np.random.default_rng(0)
        actions, rewards = rounds(1, choices, dim, rng, 300)
        policies = {
            "ProBALL-UCB, in the subspace": nc.ProBALLUCB(model_of(dim, rank, rng), horizon=300, radius=1.0),
            "LinUCB": nc.LinUCB(dim, horizon=300),
        }
        calls = {name: partial(public, p, actions, rewards) for name, p in policies.items()}
        seconds = alternate(calls, repeats=5)
        rows.append({"d": dim, "k": rank, "K": choices} | {name: s / 300 * 1e6 for name, s in seconds.items()})
    return pl.DataFrame(rows)


def memory() -> pl.DataFrame:
    """Kilobytes of one user's saved state after t rounds, d = 200, k = 18."""
    rng = np.random.default_rng(0)
    policies = {
        "ProBALL-UCB, in the subspace": nc.ProBALLUCB(model_of(200, 18, rng), horizon=1000, radius=1.0),
        "LinUCB": nc.LinUCB(200, horizon=1000),
    }
    rows = []
    for t in (0, 10, 50, 200, 1000):
        row: dict[str, float] = {"t": t}
        for name, policy in policies.items():
            state = policy.start(1)
            if t:
                policy.update(
                    state, rng.standard_normal((t, 200)), rng.standard_normal(t), users=np.zeros(t, dtype=np.int64)
                )
            row[name] = len(state.to_bytes()) / 1024
        rows.append(row)
    return pl.DataFrame(rows)


def first_decision() -> float:
    """Processor seconds from starting Python to the end of the first decision, kernels cached."""

    code = (
        "import numpy as np, newcomer as nc; p = nc.LinUCB(50, horizon=10); s = p.start(1);"
        "p.update(s, np.ones((1, 50)), [1.0]); p.choose(s, np.eye(50))"
    )
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure and write the page."""
    compile_cache.warm_compile_cache()
    table = pl.DataFrame([compare(1, ROUNDS), compare(1000, 10)])
    name, ids = decide_ids.table()
    text = (
        f"{__doc__}\n\nTargets: one user at most 2.5 times the compiled loop, 1,000 users in a batch at most 1.3 times."
        f"\n\nA fresh process makes its first decision after {first_decision():.2f} s of processor time, imports"
        " included (kernels cached; target 2 s)."
    )
    tables = {
        "Microseconds a decision, d = 200, k = 18, K = 20": table,
        "Microseconds a decision, one user": costs(),
        "Kilobytes of one user's saved state, d = 200, k = 18": memory(),
        f"Decisions by ids and states: {name}, K = 20": ids,
    }
    page("decide", "Deciding", text, tables)
