"""docs/paper/results.md: every study past the paper, what was asked of it and what came out."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from experiments import markdown
from experiments.study_targets import REPORTED, TARGETS, Verdict
from newcomer.paper import contents
from newcomer.paper.catalogue import STUDIES
from newcomer.paper.scale import FULL

WORDS = {True: "holds", False: "**does not hold**", None: "open"}
INTRO = """# Studies beyond the paper

What `nc.fit(logs)`, its uncertainty and the policies that use it are worth, against targets set beforehand. Each \
section comes from one command,
`newcomer reproduce ID` (interrupted runs go on where they stopped), whose table is in `experiments/results/ID.csv`; \
this page is written from
those tables by `python -m experiments.write_pages`. Ratios are of mean regrets (or errors) over the same newcomers \
(or worlds);
se is their standard error. "open" means that no target was set (the overview leaves these rows out), or, for \
prior-users, rates and prior-calibration, that the interval contains it or that worlds are missing; elsewhere the \
measured value decides, even with fewer repeats.
"""


def page(results: Path, place: Path) -> str:
    """The page from the tables that exist in `results`; `place` is where it will be, from which its links lead."""
    paths = {name: results / f"{name}.csv" for name in STUDIES}
    found = {name: pl.read_csv(path, infer_schema_length=None) for name, path in paths.items() if path.is_file()}
    verdicts = {name: TARGETS[name][0](frame) for name, frame in found.items()}
    pictures = {name: os.path.relpath(results / f"{name}.png", place.parent) for name in found}
    parts = [INTRO, _overview(verdicts)]
    made = contents.read(results)
    for name, frame in found.items():
        few = _fewer(made[f"{name}.csv"].command) if f"{name}.csv" in made else ""
        parts.append(_section(name, verdicts[name], TARGETS[name][1](frame), pictures[name], few))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _overview(verdicts: dict[str, list[Verdict]]) -> str:
    """How many targets of each study hold."""
    rows = []
    for name, own in verdicts.items():
        asked = [verdict for verdict in own if verdict.target != REPORTED]
        counts = [str(sum(verdict.holds is kind for verdict in asked)) for kind in (True, False, None)]
        rows.append([f"[{name}](#{name})", STUDIES[name].claim, *counts])
    return markdown.table(["study", "claim", "hold", "do not", "open"], rows)


def _fewer(command: str) -> str:
    """What a command says of fewer repeats than the study has.

    >>> _fewer("newcomer reproduce people --repeats 3")
    '**Fewer repeats:** these numbers are of the first 3 splits or worlds (`newcomer reproduce people --repeats 3`).'
    """
    _, _, repeats = command.partition("--repeats ")
    told = f"**Fewer repeats:** these numbers are of the first {repeats} splits or worlds (`{command}`)."
    return told if repeats else ""


def _section(name: str, verdicts: list[Verdict], details: pl.DataFrame, picture: str, few: str) -> str:
    """Claim, what was done, verdicts, numbers and the picture."""
    lines = [[v.what, v.target, v.measured, WORDS[v.holds]] for v in verdicts]
    asked = markdown.table(["what", "target", "measured", "verdict"], lines)
    numbers = markdown.table(details.columns, [[_cell(value) for value in row] for row in details.rows()])
    study = STUDIES[name]
    parts = [f"## {name}", study.claim, study.caption(FULL), few, asked, numbers, f"![{name}]({picture})"]
    return "\n\n".join(part for part in parts if part)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
