"""Fit from files too large for memory: CPU and peak memory, against the bare steps it cannot do without.

16 Parquet files, 200,000 users x 20 steps, d = 50 through an items table, rows in the order in which they happened, so
that users span all files. Bare steps, each in a process of its own: the sums over users from arrays in memory (kernel),
reading the columns and dropping them (scan), and scattering rows by user to 16 Arrow files and sorting each (spill and
sort). CPU is user and system time after imports; peak memory is that of the whole process, libraries included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.measure import page
from newcomer import compile_cache
from newcomer.logs.reduce import reduce
from newcomer.sold.moments import merge_moments, moments_of
from newcomer.worlds import Synthetic

USERS, STEPS, FILES, BUCKETS, REPEATS = 200_000, 20, 16, 16, 3


def prepare(folder: Path) -> None:
    """The files, and the same rows as arrays for the kernel."""
    world = Synthetic(scale=1.25, items=1000, seed=0)
    world.write_logs(folder / "logs", USERS, STEPS, seed=0, files=FILES, grouped=False)
    world.write_items(folder / "items.parquet")


def fit_files(folder: Path, memory: int) -> Callable[[], object]:
    """What a user runs."""
    return lambda: nc.fit(
        nc.read_logs(folder / "logs", items=folder / "items.parquet", memory=memory),
        rank=2,
        estimator="sold",
        null=False,
    )


def kernel(folder: Path, *, users: int = USERS, blocks: int = 20) -> Callable[[], object]:
    """Sums over users when features are already in memory, in blocks of a batch's size."""
    rng = np.random.default_rng(0)
    block = users // blocks
    features = rng.standard_normal((block * STEPS, 50))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    user, reward = np.repeat(np.arange(block), STEPS), rng.standard_normal(block * STEPS)
    logs = nc.Logs.from_arrays(user=user, features=features, reward=reward)
    return lambda: [reduce(logs, partial(moments_of, ridge=1.0), merge_moments) for _ in range(blocks)]


def scan(folder: Path) -> Callable[[], object]:
    """Read every column of every file, in batches."""

    def run() -> None:
        for file in sorted((folder / "logs").iterdir()):
            for _ in pl.scan_parquet(file).collect_batches(chunk_size=500_000):
                pass

    return run


def spill(folder: Path) -> Callable[[], object]:
    """Scatter rows by a hash of the user, then sort each bucket by user and step.

    Reading is measured apart: one file, many times.
    """
    first = pl.read_parquet(min((folder / "logs").iterdir()))

    def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            for part in range(FILES):
                buckets = first.with_columns(b=pl.col("user").hash(seed=1) % BUCKETS).partition_by("b", as_dict=True)
                for (bucket,), rows in buckets.items():
                    rows.write_ipc(Path(name) / f"{bucket}-{part}.arrow")
            for bucket in range(BUCKETS):
                pl.concat([pl.read_ipc(f) for f in Path(name).glob(f"{bucket}-*.arrow")]).sort("user", "step")

    return run


WAYS = {
    "kernel": kernel,
    "scan": scan,
    "spill and sort": spill,
    "fit, held in memory": partial(fit_files, memory=1 << 30),
    "fit, spilled": partial(fit_files, memory=16 << 20),
}


def measure(name: str, folder: Path) -> dict[str, float]:
    """CPU seconds and peak memory of one way, in a fresh process."""
    code = "import sys; from benchmarks.files import inside; inside(sys.argv[1], sys.argv[2])"
    out = subprocess.run([sys.executable, "-c", code, name, str(folder)], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def inside(name: str, folder: str) -> None:
    """Runs in the fresh process."""
    compile_cache.warm_compile_cache()
    call = WAYS[name](Path(folder))
    start = time.process_time()
    call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": time.process_time() - start, "peak": peak}))


def main() -> None:
    """Measure and write the page."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        runs = [{way: measure(way, Path(name)) for way in WAYS} for _ in range(REPEATS)]
    cpu = {way: float(np.median([run[way]["cpu"] for run in runs])) for way in WAYS}
    bare = cpu["kernel"] + cpu["scan"] + cpu["spill and sort"]
    rows = [
        {
            "what": way,
            "CPU seconds": cpu[way],
            "to bare steps": cpu[way] / bare,
            "peak MB": max(r[way]["peak"] for r in runs),
        }
        for way in WAYS
    ]
    text = f"{__doc__}\n\nTargets: a fit at most 1.5 times the three bare steps together, and below 700 MB."
    page("files", "Fit from files", text, {"": pl.DataFrame(rows)})
