"""The table of contents of experiments/README.md: of every table and picture the command, its time, commit and code."""

from __future__ import annotations

from pathlib import Path

from experiments import markdown
from newcomer.paper import contents

NAME, NEWCOMERS = "contents", "-newcomers.csv"
INTRO = f"""## {NAME}

Every table in [results](results): what is made with it, the command, the minutes of one core behind it (tables \
of one command may share runs), the commit that made it, and the hash of the code that it rests on. Tables without \
hash and minutes are of the commit named, before commands noted what they write; `python -m experiments.contents` says \
which tables are older than their code."""


def section(results: Path) -> str:
    """The table of contents, from contents.csv; tables that are not in it have no row."""
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
