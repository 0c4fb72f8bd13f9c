"""LOCAL-UCB's rounds: milliseconds beside LinUCB's in one run, evaluations, share pruned, and the certified gaps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.measure import page
from newcomer.arrays import Floats
from newcomer.linear.ridge import Ridge, ridge_precision
from newcomer.local import rounds
from newcomer.local.problem import pose_problem
from newcomer.model import Model

SIZES = ((50, 2, 20), (50, 2, 100), (100, 5, 20), (200, 18, 20))
ROUNDS, EVERY = 200, 10
TEXT = """
One newcomer at a time, T = 200, practical widths, a basis at the stated Frobenius distance from the truth (the
radius), fresh unit actions, rewards with sd 0.5; medians over every tenth round of two users. A round is one `choose`,
with pruning. Evaluations are those of value and gradient, for an action that is climbed. Gaps are (upper bound - value)
in LinUCB's widths, over all actions of the certified rounds.
"""


def world(d: int, k: int, radius: float, seed: int) -> tuple[Model, Floats]:
    """A model whose basis is at Frobenius distance `radius` from the truth, and a newcomer's reward vector."""
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.normal(size=(d, 2 * k)))[0]
    sine = radius / np.sqrt(2 * k)
    basis = np.sqrt(1 - sine**2) * frame[:, :k] + sine * frame[:, k:]
    beta = frame[:, :k] @ rng.normal(size=k) / np.sqrt(k) * 2
    return Model(basis, np.ones(d), np.zeros(d), basis.copy(), 0.25), beta


def play(d: int, k: int, count: int, radius: float, seed: int) -> Iterator[dict[str, float]]:
    """Every tenth round: milliseconds of both policies, and what the round took and proved."""
    model, beta = world(d, k, radius, seed)
    ours = nc.LocalUCB(model, horizon=ROUNDS, radius=radius)
    plain = nc.LinUCB(d, horizon=ROUNDS)
    rng, state, twin = np.random.default_rng(seed + 1), ours.start(1), plain.start(1)
    for t in range(ROUNDS):
        actions = rng.normal(size=(count, d))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        start = time.perf_counter()
        chosen = int(ours.choose(state, actions)[0])
        middle = time.perf_counter()
        plain.choose(twin, actions)
        end = time.perf_counter()
        if t % EVERY == EVERY - 1:
            yield {"ours": 1e3 * (middle - start), "plain": 1e3 * (end - middle), **effort(ours, state, actions)}
        x = actions[chosen]
        reward = np.array([x @ beta + 0.5 * rng.normal()])
        ours.update(state, x[None], reward)
        plain.update(twin, x[None], reward)


def effort(policy: nc.LocalUCB, state: Ridge, actions: Floats) -> dict[str, float]:
    """Evaluations per climbed action, share pruned, and gaps of a round."""
    problem = pose_problem(ridge_precision(state)[0], state.moment[0], policy.model.basis, **policy.settings)
    found = rounds.solve_round(problem, actions, prune=True)
    proof = policy.certificate(state, actions)
    climbed = ~found.pruned
    return {
        "evaluations": float(found.evaluations[climbed].mean()),
        "pruned": float(found.pruned.mean()),
        "gap": float(np.median(proof.gaps)),
        "gap_90": float(np.quantile(proof.gaps, 0.9)),
        "gap_max": float(proof.gaps.max()),
        "violation": float(proof.violation.max()),
    }


def row(d: int, k: int, count: int, radius: float) -> dict[str, object]:
    """One line of the table."""
    seen = [one for seed in (0, 1) for one in play(d, k, count, radius, seed)]
    ours, plain = median(one["ours"] for one in seen), median(one["plain"] for one in seen)
    middle = {name: median(one[name] for one in seen) for name in ("evaluations", "pruned", "gap", "gap_90")}
    largest = {name: max(one[name] for one in seen) for name in ("gap_max", "violation")}
    size = {"d": d, "k": k, "K": count, "radius": radius}
    return size | {"ms a round": ours, "LinUCB ms": plain, "ratio": ours / plain} | middle | largest


def main() -> None:
    """Measure, print and write docs/benchmarks/local.md."""
    nc.play  # noqa: B018  (imports and compiled loops are not what is measured)
    from newcomer import compile_cache

    compile_cache.warm_compile_cache()
    lines = [row(*size, radius) for size in SIZES for radius in (0.15, 0.5)]
    page("local", "LOCAL-UCB's rounds", TEXT, {"": pl.DataFrame(lines)})


if __name__ == "__main__":
    main()
