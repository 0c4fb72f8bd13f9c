"""`newcomer evaluate LOGS`: will it help newcomers? Measured on held-out users."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from newcomer.charts.terminal import terminal_facts
from newcomer.cli import model_summary, options, output
from newcomer.cli.output import Meter, printed_as_options

if TYPE_CHECKING:
    from newcomer.evaluation.results import Evaluation


def evaluate_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    from newcomer.evaluation.results import Evaluation

    keys = {"logs": str, "advice": list[str], "verdict": str, "sentences": list[str]}
    return output.json_output_schema("evaluate", keys, Evaluation)


@options.with_log_options
def evaluate_command(
    logs: options.LogsFile,
    *,
    how: options.LogReading,
    rank: options.Rank = "auto",
    estimator: options.Estimator = "em",
    seed: options.Seed = 0,
    quick: options.Quick = False,
    workers: options.AllCores = None,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(evaluate_schema)] = False,
) -> None:
    """Measure from LOGS how much new users would gain, with 95% intervals.

    Users are held out of the fit, and choices are among their own logged rows.
    """
    from newcomer import Run, evaluate

    wanted, method = options.parse_rank(rank), options.parse_estimator(estimator)
    hands = (os.cpu_count() or 1) if workers is None else workers
    with options.read_logs_by_options(logs, how, workers=hands, json=json) as read:
        output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
        with Meter("Evaluating", unit="") as meter:
            settings: dict[str, Any] = {"rank": wanted, "estimator": method, "seed": seed, "quick": quick}
            found = evaluate(read, run=Run(progress=meter), **settings)
    if json:
        advice = [*map(printed_as_options, read.advice)]
        output.print_json(
            "evaluate", {"logs": options.options_without_secrets(logs), "advice": advice, **found.to_json()}
        )
        return
    _show_evaluation(found)
    named = options.log_options_in_words(logs, how)
    output.print_suggestions(
        [
            (f"fit {named} --out model.newcomer", "fit and save a model"),
            (f"report {named} --out report.html", "everything on one page"),
        ]
    )


def _show_evaluation(found: Evaluation) -> None:
    """The answer, what everybody should get, what personalising adds and when, then what is behind it."""
    from newcomer.evaluation.results import MEANINGS, result_meanings

    console, said = output.output_console(), found.sentences()
    if found.decision is not None:
        first, alike, added, todo = model_summary.model_summary_lines(found.decision)
        console.print(first)
        console.print()
        console.print(alike)
        if found.everybody is not None and found.everybody.best and not found.broken:
            console.print(model_summary.model_summary_of_best_actions(found.everybody))
        console.print()
        console.print(added)
        if found.headline:
            console.print(_evaluation_steps(found))
        console.print()
        console.print(todo)
        console.print()
        said = said[len(found.decision.sentences) :]
    console.print(_evaluation_details(said))
    text = " ".join(found.sentences())
    named = result_meanings([name for name in MEANINGS if name in text and not name.startswith("posterior")])
    if named:
        console.print("")
        console.print(terminal_facts(named))


def _evaluation_details(sentences: Sequence[str]) -> Table:
    """The sentences behind the decision, a bullet each."""
    grid = Table.grid(padding=(0, 1))
    for one in sentences:
        grid.add_row("-", Text(printed_as_options(one)))
    return grid


def _evaluation_steps(found: Evaluation) -> Table:
    """A row for each number of interactions: the gain of PriorUCB over the other ways to choose."""
    from newcomer.interval import interval_in_words

    table = Table(box=None, pad_edge=False, title_justify="left")
    heads = ["after", "users", "reward", "over the population mean"]
    for head in (*heads, *(["over per-action averages"] if found.repeats else []), "over a random row"):
        table.add_column(head, justify="right")
    for step in found.headline:
        arms = [interval_in_words(step.empirical_arms)] if found.repeats and step.empirical_arms is not None else []
        cells = [
            f"{step.interactions}",
            f"{step.people:,}",
            f"{step.reward.value:.4g}",
            interval_in_words(step.population_mean),
        ]
        table.add_row(*cells, *arms, interval_in_words(step.logging))
    return table
