"""What the benchmark `scale` does in a process of its own: `python -m benchmarks.scale_runs NAME JSON`.

Each prints a JSON object, `cpu` in it being the processor seconds of this process after imports.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import newcomer as nc
from benchmarks import files
from newcomer.logs.dask import Dask
from newcomer.logs.read import read_and_scatter_file
from newcomer.logs.reader import Reader
from newcomer.logs.workers import Engine, WorkerPool

BLOCK = 10_000  # users of the kernel's block


@dataclass
class Count:
    """Passes over the logs as `fit` tells of them: over all rows or over those of a sample, and which EM made."""

    rows: int
    passes: int = 0
    sampled: int = 0
    em: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    whole: bool = True  # the last pass

    def progress(self, done: int, total: int) -> None:
        """Called within passes."""
        if done == total:
            self.whole = total >= self.rows
            self.passes += self.whole
            self.sampled += not self.whole

    def listen(self, told: Any) -> None:
        """Called after a pass of EM."""
        self.em += self.whole
        self.stages[told.stage] = self.stages.get(told.stage, 0) + 1


def fit(folder: str, estimator: str, engine: str, workers: int) -> dict[str, Any]:
    """Read and fit the logs of a folder: by this process, by workers, or by a Dask cluster of so many."""
    if engine == "local" and workers == 1:
        _warm_up(estimator)
    place, began = Path(folder), time.process_time()
    with _engine(engine, workers) as carrier:
        logs = nc.read_logs(place / "logs", items=place / "items.parquet", engine=carrier)
        read = time.process_time() - began
        count = Count(logs.summary.rows)
        settings: dict[str, Any] = {"rank": 2, "null": False} if estimator == "sold" else {}
        model = nc.fit(logs, estimator=estimator, **settings, run=nc.Run(progress=count.progress, listen=count.listen))
        cpu = time.process_time() - began
        logs.close()
    told = {"cpu": cpu, "read": read, "rows": logs.summary.rows, "rank": model.rank}
    return told | {"passes": count.passes, "sampled": count.sampled, "em": count.em, "stages": count.stages}


def ratings(path: str) -> dict[str, Any]:
    """The default fit of a CSV of ratings, as `newcomer fit ratings.csv` makes it."""
    _warm_up("em")
    began = time.process_time()
    logs = nc.read_logs(path)
    count = Count(logs.summary.rows)
    model = nc.fit(logs, run=nc.Run(progress=count.progress, listen=count.listen))
    cpu = time.process_time() - began
    return {"cpu": cpu, "rows": logs.summary.rows, "rank": model.rank, "passes": count.passes, "em": count.em}


def bare(folder: str, step: str, users: int) -> dict[str, Any]:
    """One of the steps that a fit from files cannot do without: kernel, scan, or spill and sort."""
    _warm_up("sold")
    place = Path(folder)
    steps: dict[str, Callable[[], object]] = {
        "kernel": files.kernel(place, users=users, blocks=max(1, users // BLOCK)) if step == "kernel" else print,
        "scan": files.scan(place),
        "spill": files.spill(place) if step == "spill" else print,
    }
    began = time.process_time()
    steps[step]()
    return {"cpu": time.process_time() - began}


def volume(folder: str) -> dict[str, Any]:
    """Bytes a row that a shuffle writes: scattered to buckets, and sorted onto the shelf."""
    place = Path(folder)
    reader = Reader.of(place / "logs", None, None)
    logs = nc.read_logs(place / "logs", items=place / "items.parquet", memory=8 * reader.total)  # less than they take
    sorted_bytes = sum(file.stat().st_size for file in logs._source.folder.rglob("*") if file.is_file())
    with tempfile.TemporaryDirectory() as scratch:
        arrived = read_and_scatter_file((reader, logs._items), 0, folder=Path(scratch), buckets=16)
        scattered = sum(file.stat().st_size for file in Path(scratch).iterdir())
    assert arrived is not None
    in_files = sum(file.stat().st_size for file in (place / "logs").iterdir())
    rows = logs.summary.rows
    return {"files": in_files / rows, "scattered": scattered / arrived.rows, "sorted": sorted_bytes / rows, "cpu": 0.0}


def _warm_up(estimator: str) -> None:
    """Fit a few users, so that machine code is loaded before the clock runs."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(60), 6), rng.integers(0, 9, 360)
    logs = nc.Logs.from_arrays(user=user, action=action, items=rng.normal(size=(9, 4)), reward=rng.normal(size=360))
    nc.fit(logs, estimator=estimator, rank=2)


def _engine(name: str, workers: int) -> AbstractContextManager[Engine | None]:
    if name == "dask":
        return Dask(workers=workers)
    return WorkerPool(workers) if workers > 1 else nullcontext()


RUNS: dict[str, Callable[..., dict[str, Any]]] = {"fit": fit, "ratings": ratings, "bare": bare, "volume": volume}


if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](**json.loads(sys.argv[2]))))
