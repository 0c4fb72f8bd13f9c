"""experiments/README.md: of every table and picture the command, its time, its commit and its code."""

from __future__ import annotations

from pathlib import Path

from experiments import markdown
from newcomer.paper import contents

NEWCOMERS = "-newcomers.csv"
INTRO = """# Experiments

`results/` holds every table and picture that `newcomer reproduce` and the commands of this folder made, with \
`contents.csv`: the command, the commit, a hash of the code behind each table and its seconds. `python -m \
experiments.contents` lists the tables that are older than their code.

The other files write what the pages say about these tables. `python -m experiments.write_pages` writes them all: \
[every figure of the paper, with a verdict](../docs/paper/figures.md), [the studies beyond the \
paper](../docs/paper/results.md) and the tables of the guides. What it writes comes from \
the csv files; other numbers of the pages do not.

## Contents

Every table: what is made with it, the command, the processor minutes behind it (tables may share runs), the commit \
that made it, and the hash of the code that it rests on."""


def page(results: Path) -> str:
    """The page with the rows of contents.csv; tables that are not in it have no row."""
    found = [row for row in contents.read(results).values() if not row.table.endswith(NEWCOMERS)]
    rows = [_row(row, results) for row in found if (results / row.table).is_file()]
    return f"{INTRO}\n\n{markdown.table(['table', 'beside it', 'command', 'minutes', 'commit', 'code'], rows)}\n"


def _row(row: contents.Row, results: Path) -> list[str]:
    name = row.table.removesuffix(".csv")
    beside = {"picture": f"{name}.png", "newcomers": f"{name}{NEWCOMERS}"}
    links = [f"[{what}](results/{file})" for what, file in beside.items() if (results / file).is_file()]
    minutes = f"{float(row.seconds) / 60:.1f}" if row.seconds else ""
    command = f"`{row.command}`"
    return [f"[{name}](results/{row.table})", ", ".join(links), command, minutes, row.commit, row.code]
