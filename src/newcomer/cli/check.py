"""`newcomer check LOGS`: may these logs be learned from? Findings on stdout, exit code 5 where the answer is no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from newcomer.charts.terminal import terminal_facts
from newcomer.cli import model_summary, options, output
from newcomer.cli.output import Meter, printed_as_options
from newcomer.findings import SPELLING

if TYPE_CHECKING:
    from newcomer.findings import Finding, Findings

COLOURS = {"fine": "green", "doubtful": "yellow", "broken": "bold red", "unknowable": "dim"}


def check_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    from newcomer.findings import Findings

    return output.json_output_schema("check", {"logs": str, "advice": list[str], "verdict": str}, Findings)


@options.with_log_options
def check_command(
    logs: options.LogsFile,
    *,
    how: options.LogReading,
    level: Annotated[float, typer.Option(metavar="P", help="Probability of accusing clean logs.")] = 0.05,
    quick: Annotated[
        bool, typer.Option("--quick", help="One pass and no fit: skips the gain and the decision.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the permutations.")] = 0,
    engine: options.EngineName = "local",
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(check_schema)] = False,
) -> None:
    """Test whether LOGS can be trusted. Every finding says what to do. Exit code 5 if the logs are broken."""
    from newcomer import Run, check

    if not 0 < level < 1:
        raise typer.BadParameter(f"the level is a probability between 0 and 1, not {level:g}", param_hint="--level")
    engines: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "workers": workers}
    with options.read_logs_by_options(logs, how, json=json, **engines) as read:
        if not quick:
            output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
        with Meter("Checking", first=", first pass") as meter:
            found = check(read, level=level, fit=not quick, seed=seed, run=Run(progress=meter))
    if json:
        content = {
            "logs": options.options_without_secrets(logs),
            "advice": [*map(printed_as_options, read.advice)],
            **found.to_json(),
        }
        output.print_json("check", content)
    else:
        _show_check(found)
        output.print_suggestions(_commands_after_check(found, options.log_options_in_words(logs, how, found)))
    if found.verdict == "broken":
        raise typer.Exit(output.BROKEN)


def _show_check(found: Findings) -> None:
    """Print the verdict, then every finding with what to do about it."""
    console = output.output_console()
    head, colour = found.sentences[0], COLOURS[found.verdict]
    console.print(terminal_facts([("Verdict", Text.assemble((found.verdict, colour), f": {head}"))]))
    tested = f"{found.users:,} users, {found.rows:,} rows; {found.tested:,} users in the tests"
    console.print(terminal_facts([("Logs", tested)]))
    if found.decision is not None:
        console.print(terminal_facts(model_summary.model_summary_rows(found.decision)))
    console.print("")
    console.print(terminal_facts([(one.name, _told(one)) for one in found]))


def _commands_after_check(found: Findings, logs: str) -> list[tuple[str, str]]:
    """What makes sense after a check of logs, which commands name so."""
    again = [(f"check {logs}", "check again with spellings joined")] if SPELLING in {one.name for one in found} else []
    if found.verdict == "broken":
        return [*again, (f"report {logs} --out report.html", "all findings on one page")]
    return [
        *again,
        (f"fit {logs} --out model.newcomer", "fit and save a model"),
        (f"evaluate {logs}", "what new users would gain, in detail"),
        (f"report {logs} --out report.html", "everything on one page"),
    ]


def _told(one: Finding) -> Text:
    """A finding: its verdict, what was found, and what to do unless that is nothing."""
    todo = "" if one.verdict == "fine" else f" {printed_as_options(one.advice)}"
    return Text.assemble((one.verdict, COLOURS[one.verdict]), f". {printed_as_options(one.what)}", (todo, "italic"))
