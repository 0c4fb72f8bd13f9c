"""Logs of which the tests make pages: people with tastes, a logger who knew them, too little of everything."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from newcomer.paper.worlds.biased_logs import BiasedLogs
from newcomer.reporting.report import Report
from newcomer.worlds.synthetic import Synthetic

# What people might call a film: each would break a page that puts names in as they are, or is too wide for a phone.
NAMES = (
    "<script>document.title='taken'</script>",
    "\"><img src='https://example.com/x.png' onerror='document.title=1'>",
    "A" * 200,
    "'; DROP TABLE films; --",
    "&lt;b&gt; & </title></style></svg>",
    "\u202eturned round\u202c, \u0645\u0631\u062d\u0628\u0627 \U0001f3ac",
    "line\nbreak\ttab",
    "javascript:alert(1)",
    *(f"film {i}" for i in range(8)),
)


def tasteful(users: int = 240, steps: int = 16, seed: int = 0) -> pl.DataFrame:
    """People with one taste, who were shown four films at random and got one of them at random."""
    rng = np.random.default_rng(seed)
    count = len(NAMES)
    direction = np.where(np.arange(count) % 2, 1.0, -1.0)
    user = np.repeat(np.arange(users), steps)
    shown = np.array([rng.permutation(count)[:4] for _ in range(users * steps)])
    action = shown[:, 0]
    taste = rng.normal(size=users)[user] * direction[action]
    return pl.DataFrame(
        {
            "user": user,
            "action": [NAMES[a] for a in action],
            "reward": 3.0 + taste + 0.5 * rng.normal(size=len(user)),
            "propensity": np.full(len(user), 0.25),
            "candidates": [[NAMES[a] for a in np.sort(row)] for row in shown],
            "arm": np.where(user % 2, "<b>treated</b>", "control"),
        }
    )


def too_few() -> pl.DataFrame:
    """Forty users of a row each: nothing can be fitted."""
    return pl.DataFrame({"user": np.arange(40), "action": ["tea", "milk"] * 20, "reward": np.arange(40) % 3})


@cache
def logs_of(kind: str) -> nc.Logs:
    """The logs of a page."""
    if kind == "tastes":
        return nc.Logs.from_frame(tasteful())
    if kind == "broken":
        return BiasedLogs(Synthetic.learnable(dim=5, seed=1), "taste", 6.0).logs(300, 10, seed=1)
    return nc.Logs.from_frame(too_few())


def page(kind: str, folder: Path) -> Report:
    """The page, made as quickly as it can be."""
    return nc.report(logs_of(kind), folder / f"{kind}.html", called="films.csv --column user=uid", quick=True)
