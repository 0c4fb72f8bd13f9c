"""`newcomer fit LOGS`: from a file of logs to a saved model, with what was found and how sure it is."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from newcomer.cli import options, output
from newcomer.cli.model_summary import ModelSummary, model_summary_of, show_model_summary
from newcomer.cli.output import Meter, printed_as_options
from newcomer.errors import FitWarning
from newcomer.findings import SPELLING

LOGARITHM = "--reward-transform log1p"


def fit_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    return output.json_output_schema("fit", {"model": str, "advice": list[str]}, ModelSummary)


@options.with_log_options
def fit_command(
    logs: options.LogsFile,
    *,
    how: options.LogReading,
    rank: options.Rank = "auto",
    estimator: options.Estimator = "em",
    outcome: options.Outcome = "auto",
    ridge: Annotated[
        float | None, typer.Option(metavar="MU", min=0.0, help="Ridge penalty of SOLD; default: from the data.")
    ] = None,
    persistence: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Repeatability of rewards, 0 to <1; default: estimated.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="File to write the model to.")] = Path("model.newcomer"),
    engine: options.EngineName = "local",
    scheduler: options.Scheduler = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted fit.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MODEL|none", help="Add LOGS to the fit of this model; of a store: of its first model."
        ),
    ] = None,
    old: Annotated[
        str | None, typer.Option(metavar="LOGS", help="With --from: the logs of the earlier fit (em only).")
    ] = None,
    moments: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save moments for a later --from (sold only).")
    ] = None,
    workers: options.Workers = None,
    delta: Annotated[float, typer.Option(metavar="P", help="Probability that the error radius is too small.")] = 0.05,
    force: Annotated[bool, typer.Option("--force", help="Overwrite MODEL.")] = False,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(fit_schema)] = False,
) -> None:
    """Learn from LOGS what users have in common, and save it as a model.

    LOGS has the columns user, reward, features or action, and if possible step.
    """
    from newcomer import Run, fit
    from newcomer.gain.verdict import verdict_serving_code
    from newcomer.logs.service_store import is_service_store

    # Everything that was typed is checked before the long work begins.
    target = options.free_path_option(out, force=force)
    wanted, method, level = options.parse_rank(rank), options.parse_estimator(estimator), options.parse_delta(delta)
    link = options.parse_outcome(outcome)
    repeats = None if persistence is None else options.parse_persistence(persistence)
    options.check_log_options(engine, scheduler, workers)
    kept = None if moments is None else options.free_path_option(moments, force=force, option="--moments")
    begin = options.start_option(start, method, old)
    journal = target.with_name(f"{target.name}.partial")
    engines: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "workers": workers}
    with options.read_logs_by_options(logs if old is None else [old, logs], how, json=json, **engines) as read:
        said = ""
        chosen = start is None and (method, wanted, link) == ("em", "auto", "auto")  # by us, where nothing contradicts
        if is_service_store(logs) and old is None and (begin is not None or chosen):
            begin, said = options.start_of_store(logs, read, begin)
        if said and not json:
            output.print_advice([said])
        output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
        with Meter("Fitting", first=", first pass") as meter, _resumable(journal), warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the screen and --json say it beside the estimator
            model = fit(
                read,
                rank=wanted,
                estimator=method,
                outcome=link,
                ridge=ridge,
                persistence=repeats,
                check=True,
                start=begin,
                add=old is None,
                run=Run(checkpoint=journal, resume=resume, moments=kept, progress=meter, listen=meter.hear),
            )
    output.mark_output_finished()
    options.save_as_option_says(model, target)
    found = model_summary_of(model, delta=level)
    if json:
        advice = [*read.advice, *([said] if said else [])]
        output.print_json(
            "fit", {"model": str(target), "advice": [*map(printed_as_options, advice)], **found.to_dict()}
        )
        return
    show_model_summary(found, saved=target)
    if model.parameters.get("approximate"):
        output.print_advice(["This fit is approximate: it did not read the logs of the earlier fit (--old LOGS)."])
    valued = [("--scheduler", scheduler), ("--workers", None if workers is None else str(workers))]
    valued += [("--engine", engine if engine != "local" else None)]
    engine_words = [word for name, value in valued if value is not None for word in (name, value)]
    called = options.log_options_in_words(logs, how, found.checks)
    fitted_with = shlex.join(engine_words)
    commands = _commands_after_fit(found, logs=called, engine=fitted_with, model=target, again=logs != "-")
    code = verdict_serving_code(found.decision, str(target), named=model.action_ids is not None)
    output.print_suggestions(commands, code, str(target))


@contextmanager
def _resumable(journal: Path) -> Iterator[None]:
    """Say what is left of a fit that does not end."""
    try:
        yield
    except BaseException as error:
        if journal.is_dir():
            output.print_advice([f"Passes so far are kept in {journal}: --resume continues from there."])
        elif isinstance(error, KeyboardInterrupt):
            output.print_advice(["Nothing is kept of this fit: it had not finished its first pass over the logs."])
        raise


def _commands_after_fit(
    found: ModelSummary, *, logs: str, model: Path, engine: str = "", again: bool = True
) -> list[tuple[str, str]]:
    """Up to three commands that make sense after this fit, as arguments of newcomer, and what each is for.

    `logs` are the arguments that name the same logs, read in the same way, if that is possible `again`; `engine` those
    by which they were fitted.
    """
    file, called = shlex.quote(str(model)), f"{logs} {engine}".strip()
    inspect = (f"inspect {file}", "the same, from the file")
    if not again:
        return [inspect, (f"inspect {file} --json", "for a program")]
    if found.checks is not None and SPELLING in {one.name for one in found.checks}:
        return [(f"fit {called} --out {file} --force", "fit again with spellings joined"), inspect]
    if LOGARITHM in printed_as_options(found.logs.remedy) and found.logs.hiding:
        return [(f"fit {called} {LOGARITHM} --out {file} --force", "learn the logarithm of the rewards"), inspect]
    if found.checks is not None and found.checks.verdict in ("broken", "doubtful"):
        return [(f"check {logs}", "what is wrong with the logs, and what to do about it"), inspect]
    if found.rank == 0:
        return [(f"fit {called} --rank 1 --force --out {file}", "keep the strongest direction anyway"), inspect]
    return [
        inspect,
        (f"evaluate {logs}", "what new users would gain, in detail"),
        (f"report {logs} --out report.html", "everything on one page"),
    ]
