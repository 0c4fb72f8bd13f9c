"""Jobs of experiments.rivals: rows that are kept, by settings and code, so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from experiments.results_table import PACKAGES
from newcomer.paper import contents

ROOT = Path(__file__).resolve().parents[1]
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
