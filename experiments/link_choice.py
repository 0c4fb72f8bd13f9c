"""Does choosing the link by the users who judge the gain make "yes" too easy?

`python -m experiments.link_choice [KIND ...]` (two minutes on a core) writes experiments/results/link-choice.csv. With
`outcome="auto"` held-out users choose the link of 0/1 rewards, mostly by their log score, and the same users then judge
what personalising gains. Where users have no preferences, every "yes" of the decision is false: the table counts them
for `auto` and for the Gaussian link by itself, on the same logs, with how often `auto` took the binary link. Written
down before any of it was run, ten worlds of 300 users with 12 rows each:

    rates      twelve actions, click rates of 2% to 20%, the same for all users
    halves     twelve actions, rates of 30% to 70%
    levels     rates of 5% to 40%, and users who click more or less of everything (log-odds, deviation 1), no preference
    features   six features and a constant, log-odds phi^T m, |m| = 2: rewards are far from linear in features, so that
               the binary link is the better one
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import polars as pl

import newcomer as nc
from experiments import markdown
from experiments.results_table import Command
from newcomer.gain.verdict import decide_verdict
from newcomer.logs import Logs
from newcomer.transforms import sigmoid

OUT = "link-choice.csv"
WORLDS, USERS, ROWS, ACTIONS = 10, 300, 12, 12
KINDS = ("rates", "halves", "levels", "features")
OUTCOMES = ("auto", "gaussian")


def logs_of(kind: str, seed: int) -> Logs:
    """Logs of users without preferences."""
    rng = np.random.default_rng([seed, KINDS.index(kind), 31])
    user = np.repeat(np.arange(USERS), ROWS)
    if kind == "features":
        m = rng.standard_normal(6)
        m *= 2.0 / np.linalg.norm(m)
        phi = rng.standard_normal((len(user), 6))
        reward = rng.random(len(user)) < sigmoid(-0.5 + phi @ m)
        return Logs.from_arrays(user=user, features=phi, reward=reward.astype(np.float64), intercept=True)
    low, high = {"rates": (0.02, 0.2), "halves": (0.3, 0.7), "levels": (0.05, 0.4)}[kind]
    rates = rng.permutation(np.linspace(low, high, ACTIONS))
    odds = np.log(rates / (1.0 - rates)) + (rng.standard_normal((USERS, 1)) if kind == "levels" else 0.0)
    odds = np.broadcast_to(odds, (USERS, ACTIONS))
    action = np.argsort(rng.random((USERS, ACTIONS)), axis=1)[:, :ROWS]
    reward = rng.random((USERS, ROWS)) < sigmoid(np.take_along_axis(odds, action, axis=1))
    return Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel().astype(np.float64))


def with_table(page: str, results: Path) -> str:
    """The page with its table made anew from link-choice.csv, if there is such a file."""
    if not (results / OUT).is_file():
        return page
    rows = [[str(value) for value in row] for row in pl.read_csv(results / OUT).iter_rows()]
    heads = ["world", "outcome", "worlds", 'said "yes"', "took the binary link"]
    return markdown.replaced(page, "| world | outcome", markdown.table(heads, rows))


def main(command: Command) -> None:
    """Run worlds of the kinds asked for, and write how often each link says that personalising pays."""
    rows = []
    for kind in command.parts:
        for seed in range(1 if command.quick else WORLDS):
            logs = logs_of(kind, seed)
            for outcome in OUTCOMES:
                model = nc.fit(logs, outcome=outcome, calibrate=False, null=False)
                yes, taken = decide_verdict(model.evidence).personal == "yes", model.outcome == "binary"
                rows.append({"world": kind, "outcome": outcome, "yes": yes, "binary": taken})
        print(kind, flush=True)
    found = pl.DataFrame(rows).group_by("world", "outcome", maintain_order=True)
    table = found.agg(worlds=pl.len(), said_yes=pl.col("yes").sum(), took_binary=pl.col("binary").sum())
    print(table)
    table = command.with_other_parts(table, OUT, pl.col("world"))
    command.write(table.sort("world", maintain_order=True), OUT)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Command.read(*KINDS))
