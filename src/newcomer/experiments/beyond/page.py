"""`python -m newcomer.experiments.beyond.page`: docs/prior-measured.md from the tables in experiments/results, nothing typed by hand."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from newcomer.experiments.beyond.common import Verdict
from newcomer.experiments.beyond.registry import DETAILS, NOTES, STUDIES, VERDICTS

RESULTS, PAGE = Path("experiments/results"), Path("docs/prior-measured.md")
WORDS = {True: "holds", False: "**does not hold**", None: "open"}
INTRO = """# The distribution of users, measured

What `nc.fit(logs)`, its uncertainty and the policies that use it are worth, against targets set beforehand. Each section comes from one command,
`newcomer reproduce ID` (interrupted runs go on where they stopped), whose table is in `experiments/results/ID.csv`; this page is written from
those tables by `python -m newcomer.experiments.beyond.page`. Ratios are of mean regrets (or errors) over the same newcomers (or worlds);
se is their standard error. "open" means that no target was set, that the interval
contains it, or that the run is unfinished.
"""


def write(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page from the tables that exist."""
    found = {name: pl.read_csv(path, infer_schema_length=None) for name, path in _tables(results).items()}
    verdicts = {name: VERDICTS[name](frame) for name, frame in found.items()}
    parts = [INTRO, _overview(verdicts)]
    parts += [_section(name, verdicts[name], DETAILS[name](found[name]), results, page) for name in found]
    page.write_text("\n\n".join(part.strip() for part in parts) + "\n")


def _tables(results: Path) -> dict[str, Path]:
    paths = {name: results / f"{name}.csv" for name in STUDIES}
    return {name: path for name, path in paths.items() if path.is_file()}


def _overview(verdicts: dict[str, list[Verdict]]) -> str:
    """How many targets of each study hold."""
    rows = []
    for name, own in verdicts.items():
        asked = [verdict for verdict in own if verdict.target != "reported"]
        counts = [str(sum(verdict.holds is kind for verdict in asked)) for kind in (True, False, None)]
        rows.append([f"[{name}](#{name})", STUDIES[name].claim, *counts])
    return _markdown(["study", "claim", "hold", "do not", "open"], rows)


def _section(name: str, verdicts: list[Verdict], details: pl.DataFrame, results: Path, page: Path) -> str:
    lines = [[v.what, v.target, v.measured, WORDS[v.holds]] for v in verdicts]
    picture = os.path.relpath(results / f"{name}.png", page.parent)
    note = " ".join(NOTES[name].replace("\n", " ").split())
    table = _markdown(["what", "target", "measured", "verdict"], lines)
    numbers = _markdown(details.columns, [[_cell(value) for value in row] for row in details.rows()])
    parts = [f"## {name}", STUDIES[name].claim, note, table, numbers, f"![{name}]({picture})"]
    return "\n\n".join(parts)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    write()
