"""`newcomer inspect MODEL`: what a saved model knows and how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from newcomer.cli import options, screen
from newcomer.cli.findings import findings_of, show


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `newcomer fit` or `model.save` wrote.")],
    delta: Annotated[float, typer.Option(metavar="P", help="The radius may fail with this probability.")] = 0.05,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show what MODEL knows and how sure it is."""
    from newcomer.model import load

    found = findings_of(load(model), delta=options.parse_delta(delta))
    if json:
        screen.print_json("inspect", {"model": str(model), **found.to_dict()})
        return
    show(found)
