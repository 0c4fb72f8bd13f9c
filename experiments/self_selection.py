"""People who log what they like: what the check says of such logs, and what is lost on random offers.

`python -m experiments.self_selection` (NEWCOMER_DATA names the folder that holds young-people/ and bfi/) writes
experiments/results/self-selection.csv; the table in docs/paper/measured-check.md is made of it. 70% of the people of a
complete table of answers are logged, at most 1,000 of them: each logs a few questions, in random order, with log-odds
that rise by `strength` with each sd of the person's own answers. "their mean" is a design without self-selection:
log-odds rise by 2 with each sd of the question's mean, the same for everybody.

A model is fitted to these logs, and the other people, at most 300, are offered ten questions in each of ten rounds, at
random. `mean` is what a choice by the population mean gets them, `gain` what PriorUCB gets more than that (paired, with
the standard error over people). Averages over splits.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import fit
from newcomer.arrays import Floats, Ints
from newcomer.checks.dependence import SELF_SELECTION
from newcomer.checks.quick import TESTS, quick_check
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.prior import PriorUCB
from newcomer.worlds.people import People
from newcomer.worlds.world import world_stream

LOGGED = {"Young People": 20, "bfi": 8}  # questions that each person logs
STRENGTHS, THEIR_MEAN = (0.0, 0.5, 1.0, 2.0, 4.0), 2.0
SPLITS = (10, 11, 12)  # 0 to 2 were looked at while the test was made: its sides, its rounds and its limits
SHARE, MOST, SERVED, ROUNDS, CHOICES = 0.7, 1000, 300, 10, 10
ACCUSED = ("doubtful", "broken")
START = "| table | chosen by |"  # of the table on the page


def answers(name: str) -> Floats:
    """The complete table (people, questions) of this name."""
    if name == "Young People":
        return People.young().table
    return People.read(Path(os.environ["NEWCOMER_DATA"]) / "bfi" / "answers.csv").table


def logged(rng: np.random.Generator, table: Floats, people: Ints, scores: Floats, count: int) -> Logs:
    """Logs of `count` questions of each person, drawn without replacement with these log-odds (people, questions)."""
    drawn = np.argsort(-(scores + rng.gumbel(size=scores.shape)), axis=1)[:, :count]
    user, action = np.repeat(people, count), rng.permuted(drawn, axis=1).ravel()
    return Logs.from_arrays(user=user, action=action, reward=table[user, action])


def served(rng: np.random.Generator, model: Model, table: Floats, people: Ints) -> dict[str, Floats]:
    """Average rewards a choice (people,) on random offers, of PriorUCB and of the population mean."""
    ids = np.array(model.action_ids)
    offers = ids[np.argsort(rng.random((ROUNDS, len(people), len(ids))), axis=2)[:, :, :CHOICES]]
    won = {}
    for name, policy in {"ours": PriorUCB(model), "mean": PopulationMean(model)}.items():
        state, got = policy.start(len(people)), np.zeros(len(people))
        for offer in offers:
            chosen = np.take_along_axis(offer, policy.choose(state, ids=offer)[:, None], axis=1)[:, 0]
            reward = table[people, chosen.astype(np.int64)]
            policy.update(state, reward=reward, ids=chosen)
            got += reward / ROUNDS
        won[name] = got
    return won


def run(name: str, chosen: str, strength: float, split: int) -> dict[str, object]:
    """One split: what the checks say, and what happened."""
    table, rng = answers(name), world_stream(split, f"self-selection {name} {chosen} {strength}")
    order = world_stream(split, f"self-selection {name}").permutation(len(table)).astype(np.int64)
    first = round(SHARE * len(table))
    people, others = order[: min(first, MOST)], order[first:][:SERVED]
    liked = table[people] if chosen == "own answer" else np.broadcast_to(table.mean(axis=0), table[people].shape)
    logs = logged(rng, table, people, strength * liked / table.std(), LOGGED[name])
    found = quick_check(logs, seed=split)
    won = served(rng, fit(logs, null=False, calibrate=False), table, others)
    gain = won["ours"] - won["mean"]
    told: dict[str, object] = {"table": name, "chosen": chosen, "strength": strength, "split": split}
    told["others_accuse"] = any(found[test].verdict in ACCUSED for test in TESTS if test != SELF_SELECTION)
    told |= {
        "effect": found[SELF_SELECTION].effect,
        "p_value": found[SELF_SELECTION].p_value,
        "verdict": found[SELF_SELECTION].verdict,
    }
    told |= {"mean": float(won["mean"].mean()), "gain": float(gain.mean())}
    return told | {"error": float(gain.std(ddof=1) / np.sqrt(len(gain)))}


def summed(rows: pl.DataFrame) -> pl.DataFrame:
    """Averages over splits."""
    return rows.group_by("table", "chosen", "strength", maintain_order=True).agg(
        splits=pl.len(),
        others=pl.col("others_accuse").sum(),
        doubtful=(pl.col("verdict") == "doubtful").sum(),
        broken=(pl.col("verdict") == "broken").sum(),
        effect=pl.col("effect").mean(),
        mean=pl.col("mean").mean(),
        gain=pl.col("gain").mean(),
        error=pl.col("error").mean() / pl.len().sqrt(),
    )


def with_table(page: str, results: Path) -> str:
    """The page with its table made anew from self-selection.csv; the page as it is if there is no such file."""
    if not (results / "self-selection.csv").is_file():
        return page
    head = ["table", "chosen by", "log-odds an sd", "accused by other tests", "self-selection: doubtful", "broken"]
    head += ["effect", "population mean gets", "PriorUCB gets more"]
    body = []
    for row in summed(pl.read_csv(results / "self-selection.csv")).iter_rows(named=True):
        counts = [f"{row[name]} of {row['splits']}" for name in ("others", "doubtful", "broken")]
        numbers = [f"{row['effect']:.2f}", f"{row['mean']:.2f}", f"{row['gain']:+.2f} ± {row['error']:.2f}"]
        body.append([row["table"], row["chosen"], f"{row['strength']:g}", *counts, *numbers])
    return markdown.replaced(page, START, markdown.table(head, body))


if __name__ == "__main__":
    command = Command.read()
    designs = [("own answer", strength) for strength in STRENGTHS] + [("their mean", THEIR_MEAN)]
    rows = []
    for name in ("bfi",) if command.quick else LOGGED:
        for chosen, strength in designs[-2:] if command.quick else designs:
            rows += [run(name, chosen, strength, split) for split in (SPLITS[:1] if command.quick else SPLITS)]
            print(rows[-1], flush=True)
    command.write(pl.DataFrame(rows), "self-selection.csv", float_precision=5)
