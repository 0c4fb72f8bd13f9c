"""Head to head: policies with learned priors, recommenders, a mixed logit, a transformer, on the same people as ours.

    python -m experiments.rivals [people recommenders taxes transformer table]

What is tried is listed in experiments/rivals-plan.md, which was written before the first result. Every job's rows are a
file of the folder NEWCOMER_WORK (.work by default), named by a hash of its settings and of the code behind it, so that
a run that was stopped goes on. Each part writes a table, experiments/results/rivals*.csv; `table` alone writes them
from the jobs that are done, of the same code, and runs none.
NEWCOMER_DATA names the folder of the data. Recommenders, taxes and the transformer need the environments that `python
benchmarks/peers/prepare.py rivals` makes; a peer whose environment is missing is left out, and that is said.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from experiments.results_table import PACKAGES
from newcomer.paper import contents

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("people", "recommenders", "taxes", "transformer")
Job = Callable[..., pl.DataFrame]


def work() -> Path:
    """Where the rows of jobs are kept."""
    folder = Path(os.environ.get("NEWCOMER_WORK", ROOT / ".work")) / "rivals"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept(module: str, job: Job, settings: Mapping[str, Any], *, made: bool = True) -> pl.DataFrame | None:
    """The rows of a job: read, if the same settings were run by the same code, else made, if they are to be made."""
    code = contents.code([module], PACKAGES)
    text = json.dumps([module, job.__name__, dict(settings), code], sort_keys=True)
    path = work() / f"{job.__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.parquet"
    if not path.is_file():
        if not made:
            return None
        print(job.__name__, *(f"{name}={value}" for name, value in settings.items()), flush=True)
        rows = job(**settings)
        rows.write_parquet(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return pl.read_parquet(path)


def all_kept(module: str, job: Job, every: Iterable[Mapping[str, Any]], *, made: bool = True) -> pl.DataFrame | None:
    """The rows of several jobs together, in this order; of those that were made before, if none is to be made."""
    found = [kept(module, job, settings, made=made) for settings in every]
    rows = [one for one in found if one is not None]
    return pl.concat(rows) if rows else None


def main(parts: list[str]) -> None:
    """Run the parts asked for, all by default, and write their tables."""
    from experiments import rivals_people, rivals_recommenders, rivals_taxes, rivals_transformer

    tables = {
        "people": rivals_people.write,
        "recommenders": rivals_recommenders.write,
        "taxes": rivals_taxes.write,
        "transformer": rivals_transformer.write,
    }
    unknown = [part for part in parts if part not in (*PARTS, "table")]
    if unknown:
        raise SystemExit(f"there is no part '{unknown[0]}': choose of {', '.join((*PARTS, 'table'))}")
    making = parts != ["table"]
    for part in [one for one in PARTS if one in parts] or PARTS:
        tables[part](made=making)


if __name__ == "__main__":
    main(sys.argv[1:])
