"""`newcomer evaluate LOGS`: will it help newcomers? What people who were kept out of the fit say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from newcomer.cli import model_summary, options, output, schema
from newcomer.cli.output import Meter, in_options

if TYPE_CHECKING:
    from newcomer.evaluation.results import Evaluation


def shape() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    from newcomer.evaluation.results import Evaluation

    keys = {"logs": str, "advice": list[str], "verdict": str, "sentences": list[str]}
    return schema.schema_of("evaluate", keys, Evaluation)


def command(
    logs: options.LogsFile,
    items: options.Items = None,
    features: options.Features = None,
    rank: options.Rank = "auto",
    estimator: options.Estimator = "em",
    column: options.Column = None,
    intercept: options.Intercept = False,
    clip: options.Clip = None,
    grouped: options.Grouped = False,
    memory: options.Memory = None,
    epoch: options.Epoch = None,
    missing: options.Missing = "error",
    tidy_ids: options.TidyIds = False,
    dates: options.Dates = None,
    reward_transform: options.RewardTransform = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of what is drawn.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="No fits to fewer users, no simulation.")] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes, a core each; default: all cores.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    json_schema: Annotated[bool, schema.option(shape)] = False,
) -> None:
    """Tell from LOGS whether newcomers would be served better, and how sure that is.

    People are held out of the fit, and choose among their own logged rows.
    """
    from newcomer import Run, evaluate

    wanted, method = options.parse_rank(rank), options.parse_estimator(estimator)
    options.check("local", None, workers)
    hands = (os.cpu_count() or 1) if workers is None else workers
    how = options.LogReading(
        items, features, column, intercept, clip, grouped, memory, epoch, missing, tidy_ids, dates, reward_transform
    )
    how.arguments()
    with options.engine_of("local", None, hands) as carrier:
        read = how.read(logs, carrier)
        if not json:
            output.advise(read.advice)
        output.compile_first("array_loops", "sold", "em", "linear", "policies")
        with Meter("Evaluating", unit="") as meter:
            settings: dict[str, Any] = {"rank": wanted, "estimator": method, "seed": seed, "quick": quick}
            found = evaluate(read, run=Run(progress=meter), **settings)
    if json:
        advice = [*map(in_options, read.advice)]
        output.print_json("evaluate", {"logs": logs, "advice": advice, **found.to_json()})
        return
    show(found)


def show(found: Evaluation) -> None:
    """The answer, what everybody should get, what personalising adds and when, then what is behind it."""
    console, said = output.result(), found.sentences()
    if found.decision is not None:
        first, alike, added, todo = model_summary.lines(found.decision)
        console.print(first, soft_wrap=True)
        console.print(alike, soft_wrap=True)
        if found.everybody is not None and found.everybody.best and not found.broken:
            console.print(model_summary.best_actions(found.everybody))
        console.print(added, soft_wrap=True)
        if found.headline:
            console.print(steps(found))
        console.print(todo, soft_wrap=True)
        said = said[len(found.decision.sentences) :]
    for one in said:
        console.print(Text(in_options(one)), soft_wrap=True)


def steps(found: Evaluation) -> Table:
    """A row for each number of interactions."""
    from newcomer.evaluation.results import shown

    table = Table(box=None, pad_edge=False)
    named = any(step.empirical_arms is not None for step in found.headline)
    heads = ["after", "people", "reward", "against the population mean", *(["each action by itself"] if named else [])]
    for head in (*heads, "what was logged"):
        table.add_column(head, justify="right")
    for step in found.headline:
        arms = [] if step.empirical_arms is None else [shown(step.empirical_arms)]
        cells = [f"{step.interactions}", f"{step.people:,}", f"{step.reward.value:.4g}", shown(step.population_mean)]
        table.add_row(*cells, *arms, shown(step.logging))
    return table
