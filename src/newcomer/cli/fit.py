"""`newcomer fit LOGS`: from a file of logs to a saved model, with what was found and how sure it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from newcomer.cli import options, screen
from newcomer.cli.findings import Findings, findings_of
from newcomer.cli.progress import Meter
from newcomer.cli.story import show

if TYPE_CHECKING:
    from newcomer.logs import Logs
    from newcomer.model import Model


def command(
    logs: Annotated[str, typer.Argument(metavar="LOGS", help="Parquet or CSV: a file, a folder, or a quoted glob.")],
    items: Annotated[Path | None, typer.Option(metavar="ITEMS", help="Table of actions and their features.")] = None,
    rank: Annotated[str, typer.Option(metavar="auto|K", help="Number of shared directions.")] = "auto",
    estimator: Annotated[str, typer.Option(metavar="NAME", help="sold, or sold-pinv (no ridge).")] = "sold",
    ridge: Annotated[float | None, typer.Option(metavar="MU", min=0.0, help="Ridge of sold; default: chosen.")] = None,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where the model goes.")] = Path("model.newcomer"),
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename: user=uid. Repeat.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept", help="Add a constant feature.")] = False,
    grouped: Annotated[bool, typer.Option("--grouped", help="Rows of a user are adjacent: no sorting.")] = False,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Sort on disk above this, e.g. 500MB.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of what is drawn; sold draws nothing.")] = 0,
    delta: Annotated[float, typer.Option(metavar="P", help="The radius may fail with this probability.")] = 0.05,
    force: Annotated[bool, typer.Option("--force", help="Overwrite MODEL.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Find what the users of LOGS share, and save it as a model.

    LOGS has the columns user, reward, features or action, and if possible step.
    """
    target = options.free_to_write(out, force=force)
    wanted, estimator = options.parse_rank(rank), options.parse_estimator(estimator)
    delta = options.parse_delta(delta)
    read = _read(logs, items, options.parse_columns(column or []), intercept, grouped, memory)
    model = _fit(read, wanted, estimator, ridge)
    model.save(target)
    found = findings_of(model, delta=delta)
    if json:
        screen.print_json("fit", {"model": str(target), **found.to_dict()})
        return
    show(found, saved=target)
    screen.advise(read.advice)
    screen.suggest(next_commands(found, logs=logs, model=target))


def _read(
    path: str, items: Path | None, columns: dict[str, str], intercept: bool, grouped: bool, memory: str | None
) -> Logs:
    from newcomer import read_logs

    size = {} if memory is None else {"memory": options.parse_size(memory)}
    return read_logs(path, items=items, columns=columns, intercept=intercept, grouped=grouped, **size)


def _fit(logs: Logs, rank: int | Literal["auto"], estimator: str, ridge: float | None) -> Model:
    from newcomer.fitting import fit

    with Meter("Fitting") as meter:
        return fit(logs, rank=rank, estimator=estimator, ridge=ridge, progress=meter)


def next_commands(found: Findings, *, logs: str, model: Path) -> list[tuple[str, str]]:
    """Up to three commands that make sense after this fit, and what each is for."""
    inspect = (f"newcomer inspect {model}", "the same, from the file")
    if found.rank == 0:
        return [(f"newcomer fit {logs} --rank 1 --force", "the strongest direction anyway"), inspect]
    other = "sold-pinv" if found.estimator == "sold" else "sold"
    return [
        inspect,
        (f"newcomer inspect {model} --json", "for a program"),
        (f"newcomer fit {logs} --estimator {other} --out other.newcomer", "does another estimator agree?"),
    ]
