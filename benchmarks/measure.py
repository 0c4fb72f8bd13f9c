"""How every benchmark measures: medians of alternating runs, ratios, and a page in docs/benchmarks/."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

PAGES = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def alternate(
    calls: Mapping[str, Callable[[], object]], *, repeats: int = 7, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median processor seconds of each call; they take turns, so that a slow spell of the machine hits them all."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def machine() -> str:
    """What the figures depend on."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "polars"))
    return f"Python {platform.python_version()}, {libraries}, {platform.machine()}, one BLAS thread."


def page(name: str, title: str, text: str, tables: Mapping[str, pl.DataFrame]) -> None:
    """Write docs/benchmarks/<name>.md and print it."""
    parts = [f"# {title}", f"`make bench ARGS={name}`. {machine()}", text.strip()]
    for heading, table in tables.items():
        parts += ([f"## {heading}"] if heading else []) + [markdown(table)]
    body = "\n\n".join(parts) + "\n"
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{name}.md").write_text(body)
    print(body)


def markdown(table: pl.DataFrame) -> str:
    """The frame as a Markdown table."""
    rows = [table.columns, ["---"] * table.width, *([_cell(x) for x in row] for row in table.rows())]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
