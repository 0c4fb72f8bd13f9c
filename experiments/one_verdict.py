"""Do `check`, `fit`, `evaluate` and `report` come to one verdict? Six logs, from people and made up.

`python -m experiments.one_verdict [NAME ...]` writes the logs as files to a temporary folder, asks all four commands,
prints what they decided and the gain after each number of interactions, and writes experiments/results/one-verdict.csv:
what each command decided. NEWCOMER_DATA names the folder that holds ml-1m/, young-people/ and taxes/; logs whose data
are not there are left out. `small` versions, made up where the data are of people, are what a test and `--quick` take.

    films      MovieLens-1M: people chose what they rate
    young      Young People, 20 answers of each person, drawn at random
    taxes      a randomised experiment on tax plans, whose features are in 32 columns: written as one list column
    email      a randomised test of eight messages, clicks, four rows each, with propensities and a slight taste
    patients   people who differ much in their level, treatments that differ a little, no taste
    no taste   actions that differ, and people who do not
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from experiments.results_table import Command
from newcomer.cli import main
from newcomer.worlds.people import People

OUT = "one-verdict.csv"
COMMANDS = ("check", "fit", "evaluate", "report")
DATA = Path(os.environ.get("NEWCOMER_DATA", ""))


def films(small: bool) -> pl.DataFrame | None:
    """Ratings: user, action, reward, step."""
    if small:
        return _rated(users=120, items=20, rows=14, taste=0.7, seed=1)
    file = DATA / "ml-1m" / "ratings.dat"
    if not file.is_file():
        return None
    rows = np.array([line.split("::") for line in file.read_text().splitlines()], dtype=np.int64)
    return pl.DataFrame({"user": rows[:, 0], "action": rows[:, 1], "reward": rows[:, 2], "step": rows[:, 3]})


def young(small: bool) -> pl.DataFrame | None:
    """Answers of students."""
    if small:
        return _rated(users=100, items=16, rows=10, taste=1.0, seed=2)
    if not (DATA / "young-people").is_dir():
        return None
    logs = People.young(seed=1).logs(steps=20, seed=1)
    (batch,) = logs.batches()
    user, asked = np.repeat(np.arange(len(batch.users)), batch.lengths), np.array(logs.action_ids)[batch.actions]
    return pl.DataFrame({"user": user, "action": asked, "reward": batch.rewards})


def taxes(small: bool) -> pl.DataFrame | None:
    """Tax plans that people were shown at random: features of a row, and whether it was preferred."""
    if small:
        return _plans()
    file = DATA / "taxes" / "choices.parquet"
    if not file.is_file():
        return None
    rows = pl.read_parquet(file)
    plain = ("user", "task", "step", "reward")
    levels = [name for name in rows.columns if name not in plain]
    return rows.select("user", "step", "reward", features=pl.concat_list(pl.col(levels).cast(pl.Float64)))


def email(small: bool) -> pl.DataFrame:
    """Clicks on eight messages that were drawn by lot."""
    users, rng = (900 if small else 6000), np.random.default_rng(3)
    rates = np.array([0.04, 0.05, 0.06, 0.05, 0.14, 0.04, 0.05, 0.06])
    taste = 0.25 * rng.standard_normal(users)
    user, action = np.repeat(np.arange(users), 4), rng.integers(8, size=4 * users)
    odds = np.log(rates / (1 - rates))[action] + taste[user] * np.where(action % 2, 1.0, -1.0)
    clicks = (rng.random(4 * users) < 1 / (1 + np.exp(-odds))).astype(float)
    names = np.array([f"message {letter}" for letter in "ABCDEFGH"])
    return pl.DataFrame(
        {"user": user, "action": names[action], "reward": clicks, "propensity": np.full(len(user), 1 / 8)}
    )


def patients(small: bool) -> pl.DataFrame:
    """Treatments of people who differ in how they are, not in what helps them."""
    users, rng = (200 if small else 1000), np.random.default_rng(5)
    user, action = np.repeat(np.arange(users), 12), rng.integers(6, size=12 * users)
    effect = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.8])
    reward = 5 + 2.0 * rng.standard_normal(users)[user] + effect[action] + rng.standard_normal(12 * users)
    names = np.array([f"treatment {number}" for number in range(1, 7)])
    return pl.DataFrame({"user": user, "action": names[action], "reward": reward})


def no_taste(small: bool) -> pl.DataFrame:
    """Everybody thinks the same."""
    table = _rated(users=200 if small else 2000, items=20, rows=14, taste=0.0, seed=6)
    assert table is not None
    return table


LOGS: dict[str, Callable[[bool], pl.DataFrame | None]] = {
    "young": young,
    "taxes": taxes,
    "email": email,
    "patients": patients,
    "no taste": no_taste,
    "films": films,
}


def _rated(*, users: int, items: int, rows: int, taste: float, seed: int) -> pl.DataFrame:
    """People who rate items once each, with two directions of taste."""
    rng = np.random.default_rng([seed, 22])
    shared = taste * rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))
    answers = 3.5 + 0.6 * rng.standard_normal(items) + shared + rng.standard_normal((users, items))
    asked = np.stack([rng.permutation(items)[:rows] for _ in range(users)])
    who = np.repeat(np.arange(users), rows)
    names = np.array([f"item {i:02d}" for i in range(items)])
    return pl.DataFrame({"user": who, "action": names[asked.ravel()], "reward": answers[who, asked.ravel()]})


def _plans() -> pl.DataFrame:
    """Plans of four levels each, which people weigh differently."""
    rng = np.random.default_rng(7)
    features = np.eye(4)[rng.integers(4, size=(200 * 12, 2))].reshape(-1, 8)
    weights = 0.3 * rng.standard_normal(8) + 0.5 * rng.standard_normal((200, 1)) * rng.standard_normal(8)
    user = np.repeat(np.arange(200), 12)
    liked = (features * weights[user]).sum(axis=1) + rng.standard_normal(len(user)) > 0
    return pl.DataFrame({"user": user, "reward": liked.astype(float), "features": features.tolist()})


def asked(file: Path, command: str) -> dict[str, Any]:
    """What a command says of a file of logs, as JSON."""
    out = {"fit": ["--out", str(file.with_suffix(".newcomer")), "--force"]}
    out |= {"report": ["--out", str(file.with_suffix(".html")), "--force", "--quick"], "evaluate": ["--quick"]}
    if command in ("evaluate", "report"):
        out[command] += ["--workers", "1"]
    with redirect_stdout(StringIO()) as said:
        code = main.execute_command([command, str(file), *out.get(command, []), "--json"])
    if code not in (0, 5):
        raise SystemExit(f"newcomer {command} {file} ended with {code}")
    told: dict[str, Any] = json.loads(said.getvalue())
    return told


def run(folder: Path, names: Sequence[str], *, small: bool) -> pl.DataFrame:
    """All commands on some logs."""
    rows = []
    for name in names:
        frame = LOGS[name](small)
        if frame is None:
            print(f"{name}: the data are not here")
            continue
        file = folder / f"{name.replace(' ', '-')}.parquet"
        frame.write_parquet(file)
        said = {command: asked(file, command) for command in COMMANDS}
        gains = {step["interactions"]: step["population_mean"] for step in said["evaluate"]["headline"]}
        for command, told in said.items():
            decision = told["decision"]
            facts = {key: decision[key] for key in ("answer", "logs", "everybody", "personal", "start")}
            rows.append({"logs of": name, "command": command, **facts, "sentences": " ".join(decision["sentences"])})
        same = all(said[command]["decision"] == said["fit"]["decision"] for command in COMMANDS)
        print(f"{name}: {said['fit']['decision']['answer']}, the same by all four: {same}", flush=True)
        told = [f"after {t} {one['value']:+.4f} ({one['low']:+.4f} to {one['high']:+.4f})" for t, one in gains.items()]
        print(f"  {'; '.join(told)}")
        print("  " + "\n  ".join(said["fit"]["decision"]["sentences"]), flush=True)
    return pl.DataFrame(rows, infer_schema_length=None)


if __name__ == "__main__":
    asked_for = Command.read(*LOGS)
    with tempfile.TemporaryDirectory() as beside:
        found = run(Path(beside), asked_for.parts, small=asked_for.quick)
    asked_for.write(asked_for.with_other_parts(found, OUT, pl.col("logs of")), OUT)
