"""Play every library on the same rounds and write how long a round takes: python -m benchmarks.peers.

One user, K = 20 fresh unit vectors a round, T = 1000 rounds of choose + update, one thread. Libraries take turns, the
whole game each time, in an order that changes from turn to turn; the median of a library's turns is its time.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import sys
import time
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from benchmarks.peers import by_ids
from benchmarks.peers.players import PLAYERS, Player

ROOT = Path(__file__).resolve().parent.parent.parent
OURS, OURS_SAMPLED = "newcomer LinUCB", "newcomer LinTS"
COUNT = 20
DISTRIBUTIONS = [
    "newcomer", "contextualbandits", "mabwiser", "coba", "bayesianbandits", "river", "vowpalwabbit", "implicit",
]  # fmt: skip


@dataclass(frozen=True)
class Game:
    """T rounds of K unit vectors, with the rewards of all of them."""

    actions: np.ndarray
    means: np.ndarray
    rewards: np.ndarray

    @classmethod
    def draw(cls, dim: int, rounds: int) -> Game:
        """A newcomer with |beta| = 1 and noise of standard deviation 0.5."""
        rng = np.random.default_rng(dim)
        actions = rng.standard_normal((rounds, COUNT, dim))
        actions /= np.linalg.norm(actions, axis=2, keepdims=True)
        beta = rng.standard_normal(dim)
        means = actions @ (beta / np.linalg.norm(beta))
        return cls(actions, means, means + 0.5 * rng.standard_normal(means.shape))


def play(player: Player, game: Game) -> tuple[float, float]:
    """Microseconds of processor time a round, which other programs do not change much, and the regret at the end."""
    chosen = np.empty(len(game.actions), dtype=np.int64)
    begun = time.process_time()
    for t, actions in enumerate(game.actions):
        index = player.choose(actions)
        player.update(actions[index], float(game.rewards[t, index]))
        chosen[t] = index
    took = time.process_time() - begun
    regret = game.means.max(axis=1) - game.means[np.arange(len(chosen)), chosen]
    return 1e6 * took / len(chosen), float(regret.sum())


def available() -> list[str]:
    """The players whose library is installed and works; the others are named on stderr."""
    names, warmup = [], Game.draw(4, 30)
    for name, make in PLAYERS.items():
        try:
            play(make(4, COUNT), warmup)
            names.append(name)
        except Exception as problem:  # noqa: BLE001 whatever a peer raises: it is left out, and that is said
            print(f"left out: {name} ({type(problem).__name__}: {problem})", file=sys.stderr)
    return names


def measure(dim: int, rounds: int, repeats: int, names: list[str]) -> list[dict[str, object]]:
    """One row per player: median time of a round, the spread of its turns, the ratio to ours, the regret."""
    game, warmup = Game.draw(dim, rounds), Game.draw(dim, 30)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for repeat in range(repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            play(PLAYERS[name](dim, COUNT), warmup)
            turns[name].append(play(PLAYERS[name](dim, COUNT), game))
            print(f"d = {dim}, turn {repeat + 1} of {repeats}: {name} {turns[name][-1][0]:.0f} us", file=sys.stderr)
    ours = {name: statistics.median(turn[0] for turn in turns[name]) for name in (OURS, OURS_SAMPLED)}
    return [row(dim, name, turns[name], ours[alike(name)]) for name in names]


def alike(name: str) -> str:
    """Our policy of the same kind: Thompson sampling beside Thompson sampling, UCB beside all else."""
    return OURS_SAMPLED if name.endswith("TS") else OURS


def row(dim: int, name: str, turns: list[tuple[float, float]], ours: float) -> dict[str, object]:
    """The result of one player."""
    times = [turn[0] for turn in turns]
    return {
        "d": dim,
        "player": name,
        "microseconds": round(statistics.median(times), 1),
        "fastest": round(min(times), 1),
        "slowest": round(max(times), 1),
        "ratio": round(statistics.median(times) / ours, 2),
        "regret": round(statistics.median(turn[1] for turn in turns), 1),
    }


def versions() -> str:
    """The installed versions of what was played."""
    found = []
    for name in DISTRIBUTIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return ", ".join(found)


def table(rows: list[dict[str, object]], dim: int) -> str:
    """A Markdown table for one dimension."""
    lines = [
        "| library | a round, µs (median) | fastest–slowest turn | times ours | regret at T |",
        "|---|---:|---:|---:|---:|",
    ]
    for r in rows:
        if r["d"] == dim:
            spread = f"{r['fastest']}–{r['slowest']}"
            lines.append(f"| {r['player']} | {r['microseconds']} | {spread} | {r['ratio']} | {r['regret']} |")
    return "\n".join(lines)


def aim(dim: int, name: str) -> float | None:
    """How many times our time a library should take; float32 is reported without an aim, and so are we."""
    if name in (OURS, OURS_SAMPLED) or "float32" in name or dim not in (50, 200):
        return None
    return 5.0 if dim == 50 else 2.0 if "contextualbandits" in name else 10.0


def verdict(rows: list[dict[str, object]], dim: int) -> str:
    """Which aims this run missed."""
    found = [(str(r["player"]), float(str(r["ratio"])), aim(dim, str(r["player"]))) for r in rows if r["d"] == dim]
    missed = [f"{name} ({ratio} of {goal:g})" for name, ratio, goal in found if goal is not None and ratio < goal]
    return "Missed aims: " + "; ".join(missed) + "." if missed else "No aim was missed."


def page(rows: list[dict[str, object]], rounds: int, repeats: int) -> str:
    """The page docs/benchmarks/peers.md."""
    parts = [
        "# Beside other libraries",
        "",
        f"`make bench-peers` wrote this page. One user, {COUNT} fresh unit vectors a round, {rounds} rounds of",
        f"choose + update, one thread, processor time, medians of {repeats} alternating turns in one run. Every",
        "library gets the round as a float64 NumPy array, and converting it counts as its time. Ours is the public",
        "`choose` and `update` with all checks; Thompson sampling is compared with our LinTS, all else with LinUCB.",
        "",
        f"{versions()}; Python {platform.python_version()}, NumPy {np.__version__}.",
    ]
    for dim in sorted({int(str(r["d"])) for r in rows}, reverse=True):
        parts += ["", f"## d = {dim}", "", table(rows, dim), "", verdict(rows, dim)]
    return "\n".join([*parts, "", by_ids.section(), "", NOTES])


NOTES = """## How each library is used

* **contextualbandits**: its `linreg.LinearRegression` object (`method="sm"`, `predict_ucb`), the same shared UCB.
* **MABWiser**: one model per arm, so a single arm whose contexts are the round's candidates; it inverts the matrix at
  every update.
* **coba**: `LinUCBLearner` on action features, which it takes as tuples.
* **bayesianbandits**: `LipschitzContextualAgent`, its agent with a shared learner (`NormalRegressor`); UCB estimates
  quantiles from 1,000 samples, so Thompson sampling is measured too.
* **river**: its LinUCB is disjoint, so the `BayesianLinearRegression` it is made of, shared, scored mean + deviation;
  features are dictionaries.
* **Vowpal Wabbit**: `--cb_explore_adf` from Python, as text. It takes gradient steps and keeps no d x d system:
  another algorithm, in the table because it is what many would pick.

Aims, in times ours: at d = 200, 2 for contextualbandits in float64 and 10 for the rest; at d = 50, 5 for every library.
contextualbandits in float32 is reported without an aim: half the precision is another task.

The regret says that each of them learns; with exploration at each library's own scale it is not a comparison of
algorithms.
"""


def main() -> None:
    """Measure, print and write the page and its CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=[200, 50])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "peers.md")
    given = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        sys.exit("set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 first, or use `make bench-peers`")
    warnings.simplefilter("ignore")
    names = available()
    rows = [r for dim in given.dims for r in measure(dim, given.rounds, given.repeats, names)]
    given.out.write_text(page(rows, given.rounds, given.repeats))
    with given.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(given.out.read_text())


if __name__ == "__main__":
    main()
