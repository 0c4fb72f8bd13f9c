"""`newcomer demo --serve`: the whole loop of the decision service, in about a minute, on people who do not exist.

Few logs make a first model. It is served, newcomers come, and what they say is learned and logged; the lift is watched
as it grows; the store's logs make the next model, which is staged and promoted while the service runs. Everything is on
loopback and in one process: when the command ends, nothing stays behind but its files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from newcomer.cli import options, output
from newcomer.errors import MissingExtra

if TYPE_CHECKING:
    from newcomer.logs import Logs
    from newcomer.model import Model
    from newcomer.serve.client import Client
    from newcomer.worlds.people import People

FEW, FEW_STEPS = 150, 8  # people and rows of each in the logs of the first model
WAVES, WAVE, STEPS = 3, 240, 10  # of newcomers before and after the new model, people of a wave, decisions of each
SHARES = (0.25, 0.25)  # random and control: more than in life (0.05), so that a minute is enough
FILES = ("model-1.newcomer", "model-2.newcomer", "service.sqlite")
ALONE = 8  # of a wave, whose decisions are requests of their own
BREATH = 1.5  # seconds between waves of --keep-running


@dataclass
class DemoNewcomers:
    """Newcomers of a simulated world: their ids, the actions on offer, the rewards they would give."""

    world: People
    seed: int
    met: int = 0

    def wave(self, size: int, steps: int) -> Iterator[list[tuple[str, Any, Any]]]:
        """Rounds of (user, candidates (K,), answers (K,)) for people who come together."""
        import numpy as np

        from newcomer.worlds.world import world_stream

        episodes = [self.world.answers(world_stream(self.seed, "newcomer", self.met + i), steps) for i in range(size)]
        names, users = np.array(self.world.questions), [f"user-{self.met + i:05d}" for i in range(size)]
        self.met += size
        for t in range(steps):
            yield [
                (user, names[offered[t]], rewards[t])
                for user, (offered, _, rewards) in zip(users, episodes, strict=True)
            ]


def play_demo_serve(out: Path, world: People, few: Logs, *, seed: int, force: bool, keep_running: bool) -> None:
    """The loop; see the module. `few` are the logs of the first model."""
    from newcomer import fit, read_logs

    with MissingExtra.unless_found("serve,client", purpose="demos of the service"):
        from newcomer.serve.server import server_in_background
        from newcomer.serve.service import Config, Service
        from newcomer.serve.store_sqlite import SqliteStore
    from newcomer import Client

    begun = time.monotonic()
    first, second, store = (options.free_path_option(out / one, force=force, make_folder=True) for one in FILES)
    for old in out.glob(f"{store.name}*"):
        old.unlink()
    _say(f"1. A first model from few logs: {FEW} simulated users, {FEW_STEPS} films each")
    output.compile_and_print_notice("array_loops", "sold", "em", "linear", "policies")
    model = fit(few)
    options.save_as_option_says(model, first)
    service = Service(SqliteStore(store), Config(random=SHARES[0], control=SHARES[1]), model)
    with server_in_background(service) as address, Client(address) as client:
        _say(f"2. Serve it. Open {address} in a browser to watch what follows")
        _tell("half of the new users are treated; a quarter gets the best film for everybody, a quarter a random film")
        _tell("the lift: its interval narrows, and is valid however often you look")
        _tell("the cold start: the curve of treated users rises with each decision, the others stay level")
        newcomers = DemoNewcomers(world, seed)
        for _ in range(WAVES):
            demo_serve_wave(client, newcomers)
            _tell(client.lift().words[0])
        _say("3. Fit the next model to the store: logs of all arms, with exact propensities")
        again = fit(read_logs(f"sqlite:///{store}"))
        options.save_as_option_says(again, second)
        staged = client.stage(second.read_bytes())
        _tell(f"staged {staged.id[:8]}: {again.rank} shared directions, and {model.rank} before")
        client.promote(staged.id)
        _say("4. Promoted without a restart: the new model decides for the next users")
        for _ in range(WAVES):
            demo_serve_wave(client, newcomers)
            _tell(client.lift().words[0])
        _compare(client, [model, again])
        _say(f"Done in {time.monotonic() - begun:.0f} s. Files: {', '.join(str(out / one) for one in FILES)}")
        if keep_running:
            _go_on(client, newcomers, address)
    output.print_suggestions(
        [
            (f"serve {second} --store sqlite:///{store}", "continue with this store"),
            (f"check sqlite:///{store}", "can the store's logs be trusted?"),
        ]
    )


def demo_serve_wave(client: Client, newcomers: DemoNewcomers, size: int = WAVE, steps: int = STEPS) -> None:
    """People come, are decided for and answer, step by step: most of them in batches, some with a request each."""
    for people in newcomers.wave(size, steps):
        asked: list[dict[str, Any]] = [{"user": user, "candidates": offered.tolist()} for user, offered, _ in people]
        alone = [client.decide(one["user"], candidates=one["candidates"]) for one in asked[:ALONE]]
        shown = [(one.decision, one.index) for one in alone]
        shown += [(one["decision"], one["index"]) for one in client.decide_batch(asked[ALONE:])]
        rewards = [
            {"decision": decision, "reward": float(answers[index])}
            for (decision, index), (_, _, answers) in zip(shown, people, strict=True)
        ]
        client.reward_batch(rewards)


def _compare(client: Client, models: list[Model]) -> None:
    """Rewards of treated and of control users under each model, from the logs."""
    from io import BytesIO

    import polars as pl

    for arm, why in (("treated", ""), ("control", " (the new model also changes the best film for everybody)")):
        rows = pl.read_parquet(BytesIO(client.logs(format="parquet", arm=arm)))
        means = dict(rows.group_by("model").agg(pl.col("reward").mean()).iter_rows())
        before, after = (means.get(one.id, float("nan")) for one in models)
        _tell(f"{arm}: mean reward {before:.2f} before the new model, {after:.2f} with it{why}")


def _go_on(client: Client, newcomers: DemoNewcomers, address: str) -> None:
    """Newcomers keep coming, a few at a time."""
    _say(f"New users keep coming: {address}. Ctrl-C stops")
    try:
        while True:
            demo_serve_wave(client, newcomers, size=20)
            time.sleep(BREATH)
    except KeyboardInterrupt:
        _tell("stopped; nothing is left running")


def _say(text: str) -> None:
    output.aside_output_console().print(f"\n{text}", style="bold", soft_wrap=True)


def _tell(text: str) -> None:
    output.output_console().print(f"   {text}", markup=False, soft_wrap=True)
