"""`newcomer inspect MODEL`: what a saved model knows and how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from newcomer.charts.terminal import terminal_facts
from newcomer.cli import options, output
from newcomer.cli.model_summary import ModelSummary, model_summary_bounds, model_summary_of, show_model_summary


def inspect_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    return output.json_output_schema("inspect", {"model": str}, ModelSummary)


def inspect_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that `newcomer fit` or `model.save` wrote.")],
    bounds: Annotated[bool, typer.Option("--bounds", help="Add the paper's bounds on the error.")] = False,
    delta: Annotated[float, typer.Option(metavar="P", help="Probability that the error radius is too small.")] = 0.05,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(inspect_schema)] = False,
) -> None:
    """Show what MODEL learned, and its uncertainty."""
    from newcomer.model import load

    found = model_summary_of(load(model), delta=options.parse_delta(delta))
    if json:
        output.print_json("inspect", {"model": str(model), **found.to_dict()})
        return
    show_model_summary(found)
    if bounds:
        output.output_console().print(terminal_facts([("Bounds", model_summary_bounds(found))]))
