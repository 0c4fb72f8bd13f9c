"""`newcomer fit LOGS`: from a file of logs to a saved model, with what was found and how sure it is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
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
    estimator: Annotated[str, typer.Option(metavar="NAME", help="em, sold, or sold-pinv (no ridge).")] = "em",
    ridge: Annotated[
        float | None, typer.Option(metavar="MU", min=0.0, help="Ridge of the halves; default: chosen.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where the model goes.")] = Path("model.newcomer"),
    column: Annotated[list[str] | None, typer.Option(metavar="OURS=THEIRS", help="Rename: user=uid. Repeat.")] = None,
    intercept: Annotated[bool, typer.Option("--intercept", help="Add a constant feature.")] = False,
    grouped: Annotated[bool, typer.Option("--grouped", help="Rows of a user are adjacent: no sorting.")] = False,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Sort on disk above this, e.g. 500MB.")] = None,
    epoch: Annotated[str | None, typer.Option(metavar="s|ms|us|ns", help="step holds Unix times in this unit.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of what is drawn; no estimator draws yet.")] = 0,
    delta: Annotated[float, typer.Option(metavar="P", help="The radius may fail with this probability.")] = 0.05,
    force: Annotated[bool, typer.Option("--force", help="Overwrite MODEL.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Find what the users of LOGS share, and save it as a model.

    LOGS has the columns user, reward, features or action, and if possible step.
    """
    target = options.free_to_write(out, force=force)
    asked = Asked(options.parse_rank(rank), options.parse_estimator(estimator), ridge)
    delta = options.parse_delta(delta)
    source = Source(logs, items, tuple(column or ()), intercept, grouped, memory, epoch)
    read = source.read()
    model = asked.fit(read)
    model.save(target)
    found = findings_of(model, delta=delta)
    if json:
        screen.print_json("fit", {"model": str(target), "advice": read.advice, **found.to_dict()})
        return
    show(found, saved=target)
    screen.advise(read.advice)
    screen.suggest(next_commands(found, source=source, model=target))


@dataclass(frozen=True)
class Source:
    """Where the logs are and how they are to be read, as it was typed."""

    path: str
    items: Path | None = None
    columns: tuple[str, ...] = ()
    intercept: bool = False
    grouped: bool = False
    memory: str | None = None
    epoch: str | None = None

    def read(self) -> Logs:
        """Read and check the logs, saying how far it is."""
        from newcomer import read_logs

        columns = options.parse_columns(self.columns)
        memory = None if self.memory is None else options.parse_size(self.memory)
        epoch = None if self.epoch is None else options.parse_epoch(self.epoch)
        with Meter("Reading") as meter:
            return read_logs(
                self.path,
                items=self.items,
                columns=columns,
                intercept=self.intercept,
                grouped=self.grouped,
                memory=memory,
                epoch=epoch,
                progress=meter,
            )

    def typed(self) -> str:
        """The arguments that name the same logs in another command."""
        valued = [("--items", self.items), *(("--column", pair) for pair in self.columns)]
        valued += [("--memory", self.memory), ("--epoch", self.epoch)]
        words = [self.path, *(word for name, value in valued if value is not None for word in (name, str(value)))]
        flags = [name for name, on in (("--intercept", self.intercept), ("--grouped", self.grouped)) if on]
        return shlex.join([*words, *flags])


@dataclass(frozen=True)
class Asked:
    """What is to be fitted."""

    rank: int | Literal["auto"]
    estimator: str
    ridge: float | None

    def fit(self, logs: Logs) -> Model:
        """Fit, saying how far it is."""
        from newcomer import fit

        with Meter("Fitting") as meter:
            return fit(
                logs, rank=self.rank, estimator=self.estimator, ridge=self.ridge, progress=meter, listen=meter.hear
            )


def next_commands(found: Findings, *, source: Source, model: Path) -> list[tuple[str, str]]:
    """Up to three commands that make sense after this fit, as arguments of newcomer, and what each is for."""
    logs, file = source.typed(), shlex.quote(str(model))
    inspect = (f"inspect {file}", "the same, from the file")
    if found.rank == 0:
        return [(f"fit {logs} --rank 1 --force --out {file}", "the strongest direction anyway"), inspect]
    other = "em" if found.estimator == "sold" else "sold"
    beside = shlex.quote(str(model.with_name(f"{model.stem}-{other}.newcomer")))
    return [
        inspect,
        (f"inspect {file} --json", "for a program"),
        (f"fit {logs} --estimator {other} --out {beside}", "does another estimator agree?"),
    ]
