"""What `newcomer --help` shows: commands in groups, in the order in which people need them, and examples.

The text stays plain: Typer's boxes need Rich's markup, which takes as long to import as everything else that `--help`
needs. The groups are Typer's `rich_help_panel`, so that whatever else lists the commands (a page, say) has them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

LEARN, TRUST, SERVE, PAPER = (
    "Learn what users share",
    "Trust what was learned",
    "Serve new users",
    "Paper",
)
GROUPS: Mapping[str, str] = {  # command -> group, in the order of the screen
    "fit": LEARN,
    "inspect": LEARN,
    "check": TRUST,
    "evaluate": TRUST,
    "report": TRUST,
    "serve": SERVE,
    "demo": SERVE,
    "reproduce": PAPER,
}
SUMMARIES: Mapping[str, str] = {  # one line of a screen of 80 columns
    "fit": "Learn from LOGS what users share; save it as a model.",
    "inspect": "Show what MODEL learned, and its uncertainty.",
    "check": "Test whether LOGS can be trusted; say what to fix.",
    "evaluate": "Measure on held-out users what new users would gain.",
    "report": "Check, fit and evaluate LOGS; write one HTML page.",
    "serve": "Decide over HTTP, learn from rewards, log propensities.",
    "demo": "Simulate logs, fit them, serve new users: 10 seconds.",
    "reproduce": "Remake the paper's figures, each claim with its result.",
}
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "newcomer demo",
        "newcomer check ratings.csv",
        "newcomer evaluate ratings.csv",
        "newcomer fit ratings.csv --out model.newcomer",
        "newcomer serve model.newcomer",
    ),
    "fit": (
        "newcomer fit ratings.csv",
        "newcomer fit logs.parquet --items items.parquet --users people.csv",
        "newcomer fit clicks.csv --column reward=clicked --outcome binary",
        "newcomer fit logs.parquet --estimator sold --rank 2 --ridge 1",
        "newcomer fit sqlite:///model.newcomer.store --out next.newcomer",
    ),
    "inspect": ("newcomer inspect model.newcomer", "newcomer inspect model.newcomer --bounds --json"),
    "check": ("newcomer check ratings.csv", "newcomer check logs.parquet --items items.parquet --json"),
    "evaluate": ("newcomer evaluate ratings.csv", "newcomer evaluate ratings.csv --users people.csv --quick"),
    "report": ("newcomer report ratings.csv --out report.html",),
    "serve": (
        "newcomer serve model.newcomer",
        "newcomer serve model.newcomer --random 0.1 --wait 1h --default 0",
        "newcomer serve model.newcomer --store postgresql:///app --tokens keys.txt",
    ),
    "demo": ("newcomer demo", "newcomer demo --real", "newcomer demo --serve"),
    "reproduce": ("newcomer reproduce --list", "newcomer reproduce --quick main"),
}


def help_epilog(command: str = "", *notes: str) -> str:
    """Examples of a command, line by line, and notes; the sign \\b keeps lines apart in the parser's text.

    >>> help_epilog("report").splitlines()[1:]
    ['Examples:', '  newcomer report ratings.csv --out report.html']
    """
    lines = "\n".join(["\b", "Examples:", *(f"  {example}" for example in EXAMPLES[command])])
    return "\n\n".join([lines, *notes])


class GroupedCommands(TyperGroup):
    """The commands by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group, the columns of all aligned."""
        rows: dict[str, list[tuple[str, str]]] = {}
        widest = max(map(len, self.commands))
        for name, command in self.commands.items():
            group = str(getattr(command, "rich_help_panel", None) or "Commands")
            summary = command.get_short_help_str(formatter.width - widest - 6)
            rows.setdefault(group, []).append((name.ljust(widest), summary))
        for group, listed in rows.items():
            with formatter.section(group):
                formatter.write_dl(listed)
