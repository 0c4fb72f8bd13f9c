"""`newcomer demo`: makes logs, fits them, holds what was found against the truth, and lets newcomers gain from it.

The world is the learnable setting of the paper's simulation study, users who share two hidden directions of fifty. So
the truth is known: the answer can be held against it, and regret can be counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.cli import options, schema, screen
from newcomer.cli.findings import Findings, findings_of, show
from newcomer.cli.render import facts, number
from newcomer.errors import MissingExtra

if TYPE_CHECKING:
    import polars as pl

    from newcomer.model import Model
    from newcomer.simulation import Player
    from newcomer.worlds.synthetic import Synthetic

USERS, STEPS = 5000, 20  # of the logs
NEWCOMERS, ROUNDS = 100, 200
LOGS, MODEL, PICTURE = "logs.parquet", "model.newcomer", "regret.png"


def shape() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    return schema.schema_of("demo", {"folder": str, "truth": dict[str, float], "regret": dict[str, float]}, Findings)


def command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Another seed, another world.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    json_schema: Annotated[bool, schema.option(shape)] = False,
) -> None:
    """Make logs with a hidden taste, find it, and use it on new users."""
    from newcomer import fit, read_logs, summary
    from newcomer.files import told
    from newcomer.worlds.synthetic import Synthetic

    begun = time.monotonic()
    logs, saved, picture = (
        options.free_to_write(out / n, force=force, make_folder=True) for n in (LOGS, MODEL, PICTURE)
    )
    world = Synthetic.learnable(seed=seed)
    _say(f"1. Logs: {USERS:,} users, {STEPS} steps each, {world.rank} hidden directions of {world.dim}")
    with told(out):
        out.mkdir(parents=True, exist_ok=True)
    world.write_logs(logs, USERS, STEPS, seed)
    _say("2. Fit: what do these users share?")
    screen.compile_first("array_loops", "sold", "population", "linear", "policies")
    model = fit(read_logs(logs))
    options.keep(model, saved)
    truth = against_truth(model, world)
    if not json:
        show(findings_of(model))
        screen.result().print(facts([("Truth", truth_line(**truth))]))
    _say(f"3. Newcomers: {NEWCOMERS} new users, {ROUNDS} decisions each, with and without the logs")
    rows = meet_newcomers(world, model, seed=seed)
    files = [logs, saved, *draw(rows, picture)]
    table = summary(rows)
    regret = dict(zip(table["policy"].to_list(), table["regret"].to_list(), strict=True))
    if json:
        content = {"folder": str(out), "truth": truth, "regret": regret, **findings_of(model).to_dict()}
        screen.print_json("demo", content)
        return
    _tell_newcomers(rows, regret)
    _close(files, time.monotonic() - begun)


def against_truth(model: Model, world: Synthetic) -> dict[str, float]:
    """Distance of the found subspace from the true one (sine of the largest angle), and that of a blind guess."""
    import numpy as np

    from newcomer.subspace import distance

    guess = np.linalg.qr(np.random.default_rng(0).standard_normal(world.basis.shape))[0]
    return {"distance": distance(model.basis, world.basis), "blind": distance(guess, world.basis)}


def meet_newcomers(world: Synthetic, model: Model, *, seed: int) -> pl.DataFrame:
    """Rows of `play`: policies with and without the logs meet the same hundred newcomers."""
    from newcomer import LinUCB, PopulationMean, PriorUCB, ProBALLUCB, Uniform, play

    policies: dict[str, Player] = {}
    if model.rank:
        policies = {"PriorUCB": PriorUCB(model), "ProBALL-UCB": ProBALLUCB(model, horizon=ROUNDS)}
    policies["LinUCB"] = LinUCB(world.dim, horizon=ROUNDS)
    policies["PopulationMean"] = PopulationMean(model)
    policies["Uniform"] = Uniform()
    return play(policies, world, horizon=ROUNDS, users=NEWCOMERS, seed=seed, progress=False)


def draw(rows: pl.DataFrame, path: Path) -> list[Path]:
    """The regret curves as a picture, if the extra that draws it is installed."""
    try:
        from newcomer.charts.pictures import regret_curves
    except MissingExtra as missing:
        screen.advise([f"no {path.name}: {missing}"])
        return []
    return [regret_curves(rows, path, title=f"{NEWCOMERS} newcomers, {ROUNDS} rounds")]


def truth_line(distance: float, blind: float) -> str:
    """How close the answer is."""
    scale = "(0: found exactly, 1: missed)"
    return f"distance from the true subspace {number(distance)} {scale}; blind guess {number(blind)}"


def gain_line(regret: dict[str, float]) -> str:
    """What the logs were worth to a newcomer, in one sentence.

    >>> gain_line({"PriorUCB": 6.0, "LinUCB": 60.0})
    'with the logs newcomers lose 6.00 instead of 60.0: 10.0 times less'
    """
    if "PriorUCB" not in regret:
        return "nothing shared was found, so newcomers start from nothing"
    informed, alone = regret["PriorUCB"], regret["LinUCB"]
    less = f"{alone / informed:.1f} times less"
    return f"with the logs newcomers lose {number(informed)} instead of {number(alone)}: {less}"


def _say(text: str) -> None:
    screen.aside().print(f"\n{text}", style="bold")


def _tell_newcomers(rows: pl.DataFrame, regret: dict[str, float]) -> None:
    """Mean cumulative regret against the round as a chart in text, and the gain."""
    from newcomer.charts.terminal import curves as chart
    from newcomer.outcomes import curves

    lines = curves(rows).partition_by("policy", as_dict=True, maintain_order=True)
    series = {str(name): (line["t"].to_numpy(), line["regret"].to_numpy()) for (name,), line in lines.items()}
    plot = chart(
        series,
        width=min(72, screen.result().width),
        height=12,
        x_title="decision",
        y_title="reward lost so far (regret)",
    )
    console = screen.result()
    console.print(plot, markup=False)
    console.print()
    mean = "(tastes of this world average out to zero, so PopulationMean is no better than chance)"
    console.print(facts([("Gain", gain_line(regret)), ("", mean)]))


def _close(files: list[Path], seconds: float) -> None:
    """Which files there are, and three commands to try on them."""
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
