"""`newcomer demo`: makes logs, fits them, and holds what was found against the truth."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from newcomer.cli import options, screen
from newcomer.cli.findings import findings_of
from newcomer.cli.render import facts, number
from newcomer.cli.story import show


def command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed, another world.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Make logs with a hidden taste, find it, compare with the truth."""
    from newcomer import demo

    begun = time.monotonic()
    for name in (demo.LOGS, demo.MODEL):
        options.free_to_write(out / name, force=force, make_folder=True)
    world = demo.make_world(seed)
    screen.aside().print(
        f"Making logs: {demo.USERS:,} users, {demo.STEPS} steps each, {world.rank} hidden directions of {world.dim}"
    )
    logs = demo.make_logs(world, out, seed=seed)
    learned = demo.learn(world, logs)
    found = findings_of(learned.model)
    if json:
        truth = {"distance": learned.distance, "blind": learned.blind}
        screen.print_json("demo", {"folder": str(out), "truth": truth, **found.to_dict()})
        return
    show(found)
    screen.result().print(facts([("Truth", truth_line(learned.distance, learned.blind))]))
    _close(out, logs, time.monotonic() - begun)


def truth_line(distance: float, blind: float) -> str:
    """How close the answer is."""
    return (
        f"distance from the true subspace {number(distance)} (0: found exactly, 1: missed); blind guess {number(blind)}"
    )


def _close(out: Path, logs: Path, seconds: float) -> None:
    screen.result().print(facts([("Files", f"{logs}, {out / 'model.newcomer'} ({seconds:.0f} s in all)")]))
    screen.suggest(
        [
            (f"inspect {out / 'model.newcomer'}", "what the model knows"),
            (f"fit {logs} --rank 3 --out {out / 'three.newcomer'}", "insist on three directions"),
            (f"fit {logs} --json --out {out / 'again.newcomer'}", "for a program"),
        ]
    )
