"""Logs with what was on offer and the arm of an experiment, in every form in which they may come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc

IDS = {"text": lambda number: f"drink, {number}", "integers": lambda number: 10 * number}


def table(seed: int, kind: str = "text", rows: int = 60) -> pl.DataFrame:
    """Rows in any order, each with one to five distinct candidates of nine; number 8 is never chosen."""
    rng, name = np.random.default_rng(seed), IDS[kind]
    shown = [rng.permutation(8)[: rng.integers(1, 5)].tolist() for _ in range(rows)]
    chosen = [int(rng.choice(one)) for one in shown]
    offered = [[name(a) for a in [*one, *([8] if rng.random() < 0.3 else [])]] for one in shown]
    return pl.DataFrame(
        {
            "user": rng.integers(0, 9, size=rows),
            "step": np.arange(rows),
            "action": [name(a) for a in chosen],
            "reward": rng.normal(size=rows),
            "candidates": offered,
            "arm": rng.choice(["control", "treated", "random"], size=rows),
        }
    )


def kept(logs: nc.Logs, rows: int | None = None) -> dict[Any, list[tuple[Any, ...]]]:
    """Slow and obvious: each user's rows as (action, candidates, arm), in time order; what is nowhere is None."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    ids = [*(logs.action_ids or ()), None]
    for batch in logs.batches(rows=rows):
        assert batch.candidates is not None and batch.actions is not None and batch.arms is not None
        owner = np.repeat(np.arange(len(batch.users)), batch.lengths)
        for j, i in enumerate(owner):
            shown = batch.candidates.actions[batch.candidates.offsets[j] : batch.candidates.offsets[j + 1]]
            row = (ids[batch.actions[j]], [ids[a] for a in shown], logs.arms[batch.arms[j]])
            found.setdefault(batch.users[i], []).append(row)
    return found


def expected(frame: pl.DataFrame) -> dict[Any, list[tuple[Any, ...]]]:
    """The definition: sorted by step, grouped by user."""
    known = set(frame["action"])
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in frame.sort("step").iter_rows(named=True):
        shown = [one if one in known else None for one in row["candidates"]]
        found.setdefault(row["user"], []).append((row["action"], shown, row["arm"]))
    return found


def as_json(values: pl.Series) -> str:
    return str(values.to_list()).replace("'", '"')


def logs_of(**changed: Any) -> Callable[[], nc.Logs]:
    columns = {"user": [1, 1], "action": ["a", "b"], "reward": [0, 1], "candidates": [["a", "b"], ["b"]]}
    return lambda: nc.Logs.from_frame(pl.DataFrame({**columns, **changed}, strict=False))
