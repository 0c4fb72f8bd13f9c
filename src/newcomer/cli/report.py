"""`newcomer report LOGS --out report.html`: can it be trusted, will it help? One page for those who decide."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from newcomer.cli import model_summary, options, output
from newcomer.cli.output import Meter, printed_as_options

if TYPE_CHECKING:
    from newcomer.reporting.report import Report


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    from newcomer.findings import Decision

    keys = {
        "logs": str,
        "advice": list[str],
        "out": str,
        "answer": str,
        "sentences": list[str],
        "trouble": dict[str, str],
        "decision": Decision,
    }
    return output.json_output_schema("report", keys)


@options.with_log_options
def report_command(
    logs: options.LogsFile,
    *,
    how: options.LogReading,
    rank: options.Rank = "auto",
    estimator: options.Estimator = "em",
    out: Annotated[Path, typer.Option(metavar="PAGE", help="File to write the page to.")] = Path("report.html"),
    seed: options.Seed = 0,
    quick: options.Quick = False,
    workers: options.AllCores = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite PAGE.")] = False,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(report_schema)] = False,
) -> None:
    """Check LOGS, fit them, measure what new users would gain, and write one HTML page.

    The page needs no network. If the logs are broken, it is written too, and the exit code is 5.
    """
    from newcomer import Run, report

    target = options.free_path_option(out, force=force, option="--out")
    wanted, method = options.parse_rank(rank), options.parse_estimator(estimator)
    hands = (os.cpu_count() or 1) if workers is None else workers
    with options.read_logs_by_options(logs, how, workers=hands, json=json) as read:
        output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
        called = options.log_options_in_words(logs, how)
        with Meter("Checking, fitting, measuring", unit="") as meter:
            settings: dict[str, Any] = {"rank": wanted, "estimator": method, "seed": seed, "quick": quick}
            found = report(read, target, called=called, run=Run(progress=meter), **settings)
            output.mark_output_finished()
    if json:
        content = {"out": str(target), "answer": found.answer, "sentences": found.sentences, "trouble": found.trouble}
        content |= {"decision": asdict(found.decision)}
        output.print_json(
            "report",
            {
                "logs": options.options_without_secrets(logs),
                "advice": [*map(printed_as_options, read.advice)],
                **content,
            },
        )
    else:
        _show_report(found)
    if found.findings is not None and found.findings.verdict == "broken":
        raise typer.Exit(output.BROKEN)


def _show_report(found: Report) -> None:
    """The verdict, and where the page is."""
    console = output.output_console()
    for said in model_summary.model_summary_lines(found.decision):
        console.print(said)
    console.print(Text(f"page: {found.path} ({found.path.stat().st_size / 1000:,.0f} kB)"), soft_wrap=True)
