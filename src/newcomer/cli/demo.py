"""`newcomer demo`: makes logs, fits them, holds what was found against the truth, and lets newcomers gain from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli import options, screen
from newcomer.cli.findings import findings_of
from newcomer.cli.render import facts, number
from newcomer.cli.story import show
from newcomer.errors import MissingExtra

if TYPE_CHECKING:
    import polars as pl

    from newcomer.demo import Learned


MEAN = "(tastes of this world average out to zero, so PopulationMean is no better than chance)"


def command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed, another world.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Make logs with a hidden taste, find it, and use it on new users."""
    from newcomer import demo

    begun = time.monotonic()
    for name in (demo.LOGS, demo.MODEL, demo.PICTURE):
        options.free_to_write(out / name, force=force, make_folder=True)
    world = demo.make_world(seed)
    _say(f"1. Logs: {demo.USERS:,} users, {demo.STEPS} steps each, {world.rank} hidden directions of {world.dim}")
    logs = demo.make_logs(world, out, seed=seed)
    _say("2. Fit: what do these users share?")
    learned = demo.learn(world, logs)
    _tell_fit(learned, json)
    _say(f"3. Newcomers: {demo.NEWCOMERS} new users, {demo.ROUNDS} decisions each, with and without the logs")
    rows = demo.meet_newcomers(world, learned.model, seed=seed)
    picture = _draw(rows, out)
    if json:
        screen.print_json("demo", {"folder": str(out), **_facts(learned, rows)})
        return
    _tell_newcomers(rows)
    _close([logs, out / demo.MODEL, *picture], time.monotonic() - begun)


def truth_line(distance: float, blind: float) -> str:
    """How close the answer is."""
    return (
        f"distance from the true subspace {number(distance)} (0: found exactly, 1: missed); blind guess {number(blind)}"
    )


def gain_line(regret: dict[str, float]) -> str:
    """What the logs were worth to a newcomer, in one sentence."""
    if "PriorUCB" not in regret:
        return "nothing shared was found, so newcomers start from nothing"
    informed, alone = regret["PriorUCB"], regret["LinUCB"]
    return (
        f"with the logs newcomers lose {number(informed)} instead of {number(alone)}: {alone / informed:.1f} times less"
    )


def _say(text: str) -> None:
    screen.aside().print(f"\n{text}", style="bold")


def _tell_fit(learned: Learned, json: bool) -> None:
    if json:
        return
    show(findings_of(learned.model))
    screen.result().print(facts([("Truth", truth_line(learned.distance, learned.blind))]))


def _draw(rows: pl.DataFrame, out: Path) -> list[Path]:
    from newcomer import demo

    try:
        return [demo.draw(rows, out)]
    except MissingExtra as missing:
        screen.advise([f"no {demo.PICTURE}: {missing}"])
        return []


def _regret(rows: pl.DataFrame) -> dict[str, float]:
    from newcomer import summary

    table = summary(rows)
    return dict(zip(table["policy"].to_list(), table["regret"].to_list(), strict=True))


def _facts(learned: Learned, rows: pl.DataFrame) -> dict[str, Any]:
    truth = {"distance": learned.distance, "blind": learned.blind}
    return {"truth": truth, "regret": _regret(rows), **findings_of(learned.model).to_dict()}


def _tell_newcomers(rows: pl.DataFrame) -> None:
    from newcomer.charts.terminal import curves
    from newcomer.demo import regret_lines

    console = screen.result()
    plot = curves(regret_lines(rows), width=72, height=12, x_title="decision", y_title="reward lost so far (regret)")
    console.print(plot, markup=False)
    console.print()
    console.print(facts([("Gain", gain_line(_regret(rows))), ("", MEAN)]))


def _close(files: list[Path], seconds: float) -> None:
    logs, model, *_ = files
    names = ", ".join(str(file) for file in files)
    screen.result().print(facts([("Files", f"{names} ({seconds:.0f} s in all)")]))
    screen.suggest(
        [
            (f"inspect {model}", "what the model knows"),
            (f"fit {logs} --rank 3 --out {model.with_name('three.newcomer')}", "insist on three directions"),
            (f"fit {logs} --json --out {model.with_name('again.newcomer')}", "the fit, for a program"),
        ]
    )
