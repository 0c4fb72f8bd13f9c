"""`newcomer reproduce`: the paper's figures from real data, as pictures and tables; continues an interrupted run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.charts.terminal import terminal_facts
from newcomer.cli import options, output

if TYPE_CHECKING:
    from rich.console import Console

    from newcomer.paper.catalogue import Made

INTERVAL = 30.0  # seconds between lines without a terminal


def reproduce_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`: where the files of each figure are, or, with `--list`, its claim."""
    made = output.json_output_schema("reproduce", {"figures": dict[str, dict[str, str] | str], "seconds": float})
    return {**made, "required": ["version", "command", "figures"]}


def reproduce_command(
    figures: Annotated[
        list[str] | None, typer.Argument(metavar="[FIGURE ...|all]", help="Ids of figures; --list shows them.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small version on simulated ratings: minutes, no data.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for pictures and tables.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of processes; does not change results.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder that holds ml-1m/ (NEWCOMER_DATA).")] = None,
    work: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder that keeps finished runs.")] = None,
    repeats: Annotated[
        int, typer.Option(metavar="N", min=0, help="Studies: only the first N splits or worlds; 0: all.")
    ] = 0,
    show_list: Annotated[bool, typer.Option("--list", help="List ids and claims of all figures, and exit.")] = False,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(reproduce_schema)] = False,
) -> None:
    """Remake the paper's figures and studies, each claim with its result."""
    from newcomer.paper import catalogue
    from newcomer.paper.scale import FULL, QUICK

    if show_list:
        _list(json)
        return
    wanted, scale = catalogue.chosen(figures or []), QUICK if quick else FULL
    folder = out or Path("experiments/quick" if quick else "experiments/results")
    options.free_folder_option(folder, option="--out")
    if work is not None:
        options.free_folder_option(work, option="--work")
    kept = catalogue.open_folder(scale, data=data, work=work, repeats=repeats)
    begun = time.monotonic()
    made = catalogue.reproduce(
        wanted, kept, out=folder, workers=workers or os.cpu_count() or 1, progress=lambda stage: Clock(stage).tick
    )
    _tell(made, time.monotonic() - begun, json)


class Clock:
    """Says how far a stage is and, once that is known, how long it will take.

    A terminal has one line that is written over; elsewhere a line is printed every half minute.
    """

    def __init__(
        self, stage: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stage, self.console, self.clock = stage, console or output.aside_output_console(), clock
        self.begun = self.spoken = clock()

    def tick(self, done: int, total: int, left: float | None) -> None:
        """Note that `done` of `total` jobs are finished, and that `left` seconds of work remain (None: unknown)."""
        now = self.clock()
        line = self.line(done, total, now - self.begun, left)
        if self.console.is_terminal:
            self.console.print(line.ljust(60), end="\n" if done == total else "\r", soft_wrap=True)
        elif now - self.spoken >= INTERVAL or done == total:
            self.spoken = now
            self.console.print(line, soft_wrap=True)

    def line(self, done: int, total: int, seconds: float, left: float | None) -> str:
        """The stage, its share and the time left of all stages; the time since its beginning if that is unknown."""
        if done == total:
            text = f"{seconds:.0f} s"
        else:
            text = f"{seconds:.0f} s so far" if left is None else f"about {max(left / 60, 0.1):.1f} min left"
        return f"{self.stage}: {done} of {total}, {text}"


def _list(json: bool) -> None:
    from newcomer.paper.catalogue import EVERYTHING

    claims = {name: figure.claim for name, figure in EVERYTHING.items()}
    if json:
        output.print_json("reproduce", {"figures": claims})
        return
    output.output_console().print(terminal_facts(list(claims.items())))


def _tell(made: Sequence[Made], seconds: float, json: bool) -> None:
    if json:
        paths = {one.figure.name: {"picture": str(one.picture), "table": str(one.table)} for one in made}
        output.print_json("reproduce", {"figures": paths, "seconds": seconds})
        return
    rows = [(one.figure.name, f"{one.picture}, {one.table.name}") for one in made]
    output.output_console().print(terminal_facts(rows))
    output.aside_output_console().print(
        f"{len(made)} figures in {seconds / 60:.1f} min; finished runs are kept and will not run again", soft_wrap=True
    )
