"""The decision on the screen, the same for every command: the answer, what everybody should get, what is added, what to
do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from newcomer.cli.wording import in_options

if TYPE_CHECKING:
    from newcomer.evidence import Everybody
    from newcomer.verdicts import Decision

STYLES = {
    "yes": "bold green",
    "best for all": "bold green",
    "with care": "bold yellow",
    "not yet": "bold yellow",
    "no": "bold red",
}


def lines(decision: Decision) -> list[Text]:
    """The sentences, the answer in its colour."""
    style = STYLES[decision.answer]
    return [Text(in_options(said), style if i == 0 else "") for i, said in enumerate(decision.sentences)]


def rows(decision: Decision) -> list[tuple[str, Text]]:
    """The sentences as rows of facts under one heading."""
    return [("Decision" if i == 0 else "", said) for i, said in enumerate(lines(decision))]


def best_actions(found: Everybody) -> Table:
    """The best actions by the population mean."""
    from newcomer.gain.verdict import short_name

    table = Table(box=None, pad_edge=False)
    table.add_column("best for everybody")
    for head in ("pays on average", "95% interval", "rows", "users"):
        table.add_column(head, justify="right")
    for one in found.best:
        interval = f"{one.low:.4g} to {one.high:.4g}"
        table.add_row(Text(short_name(one.name)), f"{one.mean:.4g}", interval, f"{one.rows:,}", f"{one.users:,}")
    return table
