"""What docs/how-to/scale.md says in numbers: a few sentences computed from docs/benchmarks/scale.csv, between two
marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

Verdicts = Mapping[str, Callable[[pl.DataFrame], str]]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MACHINES, CORES, DISK = 10, 8, 200e6  # of the cluster in the arithmetic; bytes a second that each machine writes
BILLION, TIMES = 1_000_000_000, 2.5  # rows; and times the CPU of one process that a cluster may take


def with_summary(page: str, table: pl.DataFrame, verdicts: Verdicts) -> str:
    """The page with what stands between its marks computed anew."""
    if BEGIN not in page or END not in page:
        return page
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{summary(table, verdicts)}\n{END}{after}"


def summary(table: pl.DataFrame, verdicts: Verdicts) -> str:
    """The table of fits, and what follows from it; nothing where no fit was measured."""
    fits = _fits(table)
    if not fits:
        return "Nothing has been measured."
    sizes = f"{fits[0]['users']:,} users, {fits[0]['rows']:,} rows, d = 50 through a table of 1,000 items"
    lines = [
        f"Fits of {sizes}, from unsorted Parquet files, by one process:",
        "",
        "| | CPU s | CPU s per million users | peak MB | passes over all rows | over a sample |",
        "|---|---|---|---|---|---|",
        *(_fit_line(row) for row in fits),
        "",
        *(f"- {said}" for said in (*_scaling(table, verdicts), _billion(fits), _shuffle(table)) if said),
    ]
    return "\n".join(lines)


def _fits(table: pl.DataFrame) -> list[dict[str, Any]]:
    """The fits by one process of the most users."""
    return table.filter((pl.col("section") == "local") & pl.col("what").is_in(["SOLD", "default fit"])).to_dicts()


def _fit_line(row: dict[str, float]) -> str:
    each = row["after_imports"] / row["users"] * 1e6
    cells = [f"{row['after_imports']:.1f}", f"{each:.0f}", f"{row['peak_mb']:,.0f}", row["passes"], row["sampled"]]
    return "| " + " | ".join([str(row["what"]), *map(str, cells)]) + " |"


def _scaling(table: pl.DataFrame, verdicts: Verdicts) -> list[str]:
    """Exponents and ratios, of the sections that were measured."""
    names = {"growth": "Users", "dimension": "Features", "actions": "Actions", "workers": "Workers", "cluster": "Dask"}
    said = []
    for section, name in names.items():
        rows = table.filter(pl.col("section") == section)
        if len(rows):
            sizes = rows["users"].unique().sort().to_list()
            many = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
            said.append(f"**{name}** ({many} users). {verdicts[section](rows)}")
    return said


def _billion(fits: list[dict[str, Any]]) -> str:
    """The arithmetic for a billion rows, linear in rows, on a stated cluster."""
    workers = MACHINES * CORES
    hours = {row["what"]: row["after_imports"] / row["rows"] * BILLION / 3600 for row in fits}
    needs = ", ".join(f"{what} {value:.1f} CPU hours" for what, value in hours.items())
    wall = ", ".join(f"{what} {3600 * TIMES * value / workers:.0f} seconds" for what, value in hours.items())
    return (
        f"**A billion rows**, by the same cost a row: {needs}. On {MACHINES} machines with {CORES} cores each "
        f"({workers} workers), at {TIMES} times the CPU of one process, that is {wall}, if the shared folder keeps up."
    )


def _shuffle(table: pl.DataFrame) -> str:
    """What a shuffle writes."""
    sizes = dict(table.filter(pl.col("section") == "shuffle").select("what", "bytes").iter_rows())
    if not sizes:
        return ""
    moved = BILLION * (sizes["scattered"] + sizes["sorted"])
    return (
        f"**Shuffle.** A row of these logs takes {sizes['files']:.0f} bytes in the files, {sizes['scattered']:.0f} "
        f"scattered to buckets and {sizes['sorted']:.0f} sorted: a billion rows write {moved / 1e9:.0f} GB, "
        f"{moved / MACHINES / DISK:.0f} seconds at {DISK / 1e6:.0f} MB a second and machine."
    )
