"""Checks of 200,000 users of 20 rows: one pass and the tests, beside reading the same file.

The logs are a Parquet file of actions with an items table (1,000 items, 20 features). The tests look at ten
thousand or so.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import polars as pl

import newcomer as nc
from benchmarks.measure import page
from newcomer.worlds.synthetic import Synthetic

SIZES, STEPS = (20_000, 200_000), 20


def measured(users: int, folder: Path) -> dict[str, float]:
    """Processor seconds of this process: reading, and the checks that need no fit."""
    world = Synthetic(dim=20, items=1000, seed=1)
    world.write_items(folder / "items.parquet")
    world.write_logs(folder / "logs.parquet", users, STEPS, 1)
    begin = time.process_time()
    logs = nc.read_logs(folder / "logs.parquet", items=folder / "items.parquet")
    read = time.process_time()
    found = nc.check(logs, fit=False)
    checked = time.process_time()
    assert found.verdict == "fine", found
    return {"users": users, "rows": users * STEPS, "reading": read - begin, "checks": checked - read}


def main() -> None:
    """Measure and write the page."""
    rows = []
    for users in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(users, Path(folder)))
    text = """
Processor seconds, one process: reading the file, and all checks but whether there are enough users, which takes a fit
([large logs](../how-to/scale.md)). The tests look at ten million numbers at most: some ten thousand users of 20
rows.
"""
    page("checks", "Checking logs", text, {"": pl.DataFrame(rows)})
