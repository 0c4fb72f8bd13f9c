"""The page of the benchmark `scale`, written from docs/benchmarks/scale.csv: what was measured, and the aims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import machine, markdown
from benchmarks.scale_summary import with_summary

COLUMNS: dict[str, Any] = {
    "section": pl.String,
    "what": pl.String,
    "engine": pl.String,
    "workers": pl.Int64,
    "users": pl.Int64,
    "rows": pl.Int64,
    "dim": pl.Int64,
    "actions": pl.Int64,
    "wall": pl.Float64,
    "cpu": pl.Float64,
    "after_imports": pl.Float64,
    "peak_mb": pl.Float64,
    "rank": pl.Int64,
    "passes": pl.Int64,
    "sampled": pl.Int64,
    "em": pl.Int64,
    "bytes": pl.Float64,
    "day": pl.String,  # on which it was measured
}
TITLES = {
    "local": "One process, beside the bare steps",
    "workers": "Two workers",
    "cluster": "A Dask cluster of two workers",
    "growth": "Against the number of users",
    "dimension": "Against the number of features",
    "actions": "Against the number of actions",
    "shuffle": "Bytes a row that reading unsorted files writes",
    "ratings": "MovieLens-1M beside implicit",
}
HEADINGS = {
    "wall": "wall s",
    "cpu": "CPU s",
    "after_imports": "after imports",
    "peak_mb": "peak MB",
    "sampled": "passes over a sample",
    "passes": "passes over all",
    "em": "of these EM",
}


def load(folder: Path) -> pl.DataFrame:
    """Everything that was measured, and kept."""
    path = folder / "scale.csv"
    return pl.read_csv(path, schema=COLUMNS) if path.exists() else pl.DataFrame(schema=COLUMNS)


def keep(folder: Path, section: str, rows: list[dict[str, Any]]) -> None:
    """Put what was measured of a section in the place of what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    others = load(folder).filter(pl.col("section") != section)
    both = pl.concat([others, pl.DataFrame(rows, schema=COLUMNS)])
    both.write_csv(folder / "scale.csv", float_precision=3)


def write(folder: Path, text: str) -> None:
    """Write scale.md, and print it."""
    table = load(folder)
    parts = ["# How far it goes, measured", f"`make bench ARGS=scale`. {machine()}", text.strip()]
    for section, title in TITLES.items():
        rows = table.filter(pl.col("section") == section)
        if len(rows):
            told = rows.drop("section", "day")
            shown, days = told.select(column for column in told if column.count()), rows["day"].unique().sort()
            said = f"{VERDICTS[section](rows)} Measured on {', '.join(days)}."
            parts += [f"## {title}", markdown(shown.rename(HEADINGS, strict=False)), said]
    body = "\n\n".join(part for part in parts if part) + "\n"
    (folder / "scale.md").write_text(body)
    beside = folder.parent / "how-to" / "scale.md"
    if beside.exists():
        beside.write_text(with_summary(beside.read_text(), table, VERDICTS))
    print(body)


def slope(rows: pl.DataFrame, by: str) -> dict[str, float]:
    """The exponent of the processor seconds after imports, for each kind of fit: the slope in logarithmic scales."""
    found = {}
    for (what,), own in rows.group_by("what", maintain_order=True):
        if len(own) > 1:
            x, y = (np.log(own[name].to_numpy()) for name in (by, "after_imports"))
            found[str(what)] = float(np.polyfit(x, y, 1)[0])
    return found


def ratios(rows: pl.DataFrame, value: str, below: Callable[[pl.DataFrame], pl.DataFrame]) -> dict[str, float]:
    """For each kind of fit, the value of one process over that of the rows that `below` picks."""
    found = {}
    for (what,), own in rows.group_by("what", maintain_order=True):
        alone = own.filter((pl.col("workers") == 1) & (pl.col("engine") == "local"))
        found[str(what)] = float(alone[value][0]) / float(below(own)[value][0])
    return found


def _said(values: dict[str, float]) -> str:
    return ", ".join(f"{what} {value:.2f}" for what, value in values.items())


def _local(rows: pl.DataFrame) -> str:
    taken = {row["what"]: row for row in rows.to_dicts()}
    steps = sum(taken[step]["after_imports"] for step in ("kernel", "scan", "spill"))
    sold, default = taken["SOLD"], taken["default fit"]
    return (
        f"SOLD takes {sold['after_imports'] / steps:.2f} of the three bare steps together (aim: at most 1.5) and "
        f"{sold['peak_mb']:,.0f} MB (aim: below 1,000). The default fit makes {default['em']} passes of EM over all "
        f"rows (aim: at most 25), {default['passes'] - default['em']} others and {default['sampled']} over a sample."
    )


def _workers(rows: pl.DataFrame) -> str:
    wall, cpu = (ratios(rows, value, lambda own: own.filter(pl.col("workers") == 2)) for value in ("wall", "cpu"))
    return (
        f"Times as fast with two workers, in wall time, start included: {_said(wall)} (aim: at least 1.7 at a million "
        f"users). Times the CPU: {_said({what: 1 / value for what, value in cpu.items()})}."
    )


def _cluster(rows: pl.DataFrame) -> str:
    found = ratios(rows, "cpu", lambda own: own.filter(pl.col("engine") == "dask"))
    return f"Times the CPU of one process: {_said({k: 1 / v for k, v in found.items()})} (aim: at most 2.5)."


def _sweep(by: str, aim: str = "") -> Callable[[pl.DataFrame], str]:
    return lambda rows: f"Measured exponents of CPU in the {by}: {_said(slope(rows, by))}{aim}."


def _shuffle(rows: pl.DataFrame) -> str:
    sizes = dict(rows.select("what", "bytes").iter_rows())
    return (
        f"Files hold {sizes['files']:.1f} bytes a row, compressed; scattered to buckets a row takes "
        f"{sizes['scattered']:.1f}, sorted {sizes['sorted']:.1f}."
    )


def _ratings(rows: pl.DataFrame) -> str:
    taken = {row["what"]: row for row in rows.to_dicts()}
    peak = f"Peak memory {taken['default fit']['peak_mb']:,.0f} MB (aim: below 1,000)."
    if "implicit ALS" not in taken:
        return peak
    ratio = taken["default fit"]["after_imports"] / taken["implicit ALS"]["after_imports"]
    return (
        f"Reading and fitting takes {ratio:.1f} times the CPU of implicit's fit alone, exact ALS with 18 factors and "
        f"15 iterations (aim: at most 6). {peak}"
    )


VERDICTS: dict[str, Callable[[pl.DataFrame], str]] = {
    "local": _local,
    "workers": _workers,
    "cluster": _cluster,
    "growth": _sweep("users", " (aim: linear)"),
    "dimension": _sweep("dim"),
    "actions": _sweep("actions"),
    "shuffle": _shuffle,
    "ratings": _ratings,
}
