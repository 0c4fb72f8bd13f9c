"""Plain ratings of a large catalogue: CPU and peak memory of a default fit.

Parquet files of (user, action, reward) with text as ids, popular actions met more often (Zipf), four shared directions,
rows in no order; read and fitted in a fresh process, whose peak memory is that of all of it, libraries included.
One-hot features of so many actions are never written out (`newcomer.one_hot`).

    python -m benchmarks catalogue                                        200,000 actions x 2 million users x 10 rows
    python -m benchmarks.catalogue ACTIONS USERS ROWS                     another size, printed and not kept
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.measure import page
from newcomer import compile_cache

ACTIONS, USERS, ROWS = 200_000, 2_000_000, 10
DIRECTIONS, PART = 4, 100_000


def prepare(folder: Path, actions: int, users: int, rows: int) -> None:
    """Files of up to 100,000 users each."""
    rng = np.random.default_rng(0)
    level, taste = rng.standard_normal(actions), 0.5 * rng.standard_normal((actions, DIRECTIONS))
    chances = np.cumsum(1.0 / np.arange(20, actions + 20))
    names = pl.Series([f"item-{i}" for i in range(actions)])
    for part, first in enumerate(range(0, users, PART)):
        count = min(PART, users - first)
        who = np.repeat(np.arange(first, first + count), rows)
        what = np.searchsorted(chances, rng.random(len(who)) * chances[-1])
        tastes = np.repeat(rng.standard_normal((count, DIRECTIONS)), rows, axis=0)
        reward = level[what] + np.einsum("nk,nk->n", tastes, taste[what]) + rng.standard_normal(len(who))
        order = rng.permutation(len(who))
        frame = pl.DataFrame({"user": who, "action": names[what], "reward": reward})
        frame[order].write_parquet(folder / f"{part:03d}.parquet")


def inside(folder: str) -> None:
    """Runs in the fresh process."""
    compile_cache.warm_compile_cache()
    start = time.process_time()
    logs = nc.read_logs(folder)
    read = time.process_time() - start
    model = nc.fit(logs)
    facts = model.evidence.population
    assert facts is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {"actions": model.dim, "users": logs.summary.users, "rows": logs.summary.rows, "rank": model.rank}
    told |= {"passes of em": facts.passes, "CPU seconds, reading": read, "CPU seconds": time.process_time() - start}
    print(json.dumps(told | {"peak MB": peak}))


def measure(actions: int, users: int, rows: int) -> dict[str, float]:
    """One size, in a fresh process."""
    code = "import sys; from benchmarks.catalogue import inside; inside(sys.argv[1])"
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), actions, users, rows)
        out = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(out.stdout)
    return found


def main() -> None:
    """Measure and write the page."""
    text = f"{__doc__}\n\nTarget: below 3,000 MB."
    page("catalogue", "A large catalogue", text, {"": pl.DataFrame([measure(ACTIONS, USERS, ROWS)])})


if __name__ == "__main__":
    print(measure(*map(int, sys.argv[1:4])))
