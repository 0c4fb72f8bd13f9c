"""Whom does the outlier test send away, and are they served better for it?

`python -m experiments.outlier_test` (NEWCOMER_DATA names the folder that holds ml-1m/, young-people/ and bfi/) writes
experiments/results/outlier-test.csv. Newcomers are ordinary people: those who were in no log of the fit. Each plays
twice, by PriorUCB with `level=0.1` and with `level=0`, the same offers; `sent` is the share ever sent away, `all` and
`theirs` the difference of regret (sent away less stayed: below zero is better), over everybody and over those sent
away. "now" is the model as fitted, "before" the same without how sure it is of each action and without how people
differ in their errors.

The tables: bfi (10 of 25 answers logged) and Young People (20 of 134), 40 rounds of ten questions that come again, with
the same answer or half redrawn, or each question once; MovieLens, 254 people logged with 20 ratings each of the 551
most rated films, 110 others who rate up to 150 of them in random order ("told") or choose among ten, 15 times
("chosen"); and people drawn from a Gaussian population, as few rows an action. "Strangers" are not ordinary: the logs
(20 of 60 answers of 210 people) are of a Gaussian population with three directions, and the newcomers' answers, which
come again, have nothing of these directions and four times the variance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import fit
from newcomer.arrays import Bools, Floats
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.paper.worlds.download import find_movielens
from newcomer.paper.worlds.ratings import read_ratings
from newcomer.policies.prior import PriorUCB
from newcomer.simulate import play
from newcomer.worlds.people import People
from newcomer.worlds.world import world_stream

LEVEL, SPLITS, NEWCOMERS, ROUNDS = (
    0.1,
    {"bfi": 6, "Young People": 3, "films": 2, "simulated": 2, "strangers": 2},
    300,
    40,
)
FILMS, LOGGED, OTHERS, RATED, EACH = 551, 254, 110, 150, 20
START = "| people | case | newcomers |"

Rank = int | Literal["auto"]
Told = tuple[Bools, Floats]  # who was sent away (n,), and the difference of regret (n,)


def rules(model: Model) -> dict[str, Model]:
    """The model as fitted, and without what the test now knows."""
    return {"now": model, "before": replace(model, uncertainty=np.zeros(0), error_scales=np.zeros(0))}


def tables(name: str, seed: int) -> Iterator[tuple[str, str, Told]]:
    """Complete tables of answers: `case`, `rule`, and what happened to the newcomers."""
    root = Path(os.environ.get("NEWCOMER_DATA", "."))
    bfi = name == "bfi"
    world = People.read(root / "bfi" / "answers.csv", scale=(1, 6), seed=seed) if bfi else People.young(seed=seed)
    model = fit(world.logs(steps=10 if bfi else EACH, seed=seed), null=False, calibrate=False)
    once = replace(world, repeat=False, choices=5 if bfi else 10)
    for case, place in {"again": world, "half redrawn": replace(world, retest=0.5), "once": once}.items():
        rounds = ROUNDS if place.repeat else place.dim // place.choices
        for rule, known in rules(model).items():
            yield case, rule, paired(known, place, rounds, seed)


def strangers(seed: int) -> Iterator[tuple[str, str, Told]]:
    """Newcomers who are not of the population."""
    rng = world_stream(seed, "outlier test")
    names = tuple(f"question {number:02d}" for number in range(60))
    common, own = 3.0 + 0.5 * rng.standard_normal(60), rng.standard_normal((300, 60))
    world = People(common + 0.4 * rng.standard_normal((300, 3)) @ rng.standard_normal((3, 60)) + own, names, seed=seed)
    table = world.table.copy()
    table[world.newcomers] = common + 2.0 * own[world.newcomers] * np.sqrt(1.0 + 3 * 0.4**2)
    model = fit(world.logs(steps=EACH, seed=seed), null=False, calibrate=False)
    for rule, known in rules(model).items():
        yield "again", rule, paired(known, replace(world, table=table), ROUNDS, seed)


def paired(model: Model, place: People, rounds: int, seed: int) -> Told:
    """The same newcomers with the exit and without."""
    policies = {"exit": PriorUCB(model, level=LEVEL), "stay": PriorUCB(model, level=0.0)}
    rows = play(policies, place, horizon=rounds, users=NEWCOMERS, seed=seed, progress=False)
    ends = rows.group_by("policy", "user", maintain_order=True).agg(
        pl.col("regret").sum(), sent=(~pl.col("in_subspace")).any()
    )
    left, stayed = (ends.filter(policy=name) for name in policies)
    return left["sent"].to_numpy(), (left["regret"] - stayed["regret"]).to_numpy()


def films(seed: int, rank: Rank = "auto") -> Iterator[tuple[str, str, Told]]:
    """MovieLens, few ratings a film."""
    ratings = read_ratings(find_movielens(None))
    often = np.sort(np.argsort(-np.bincount(ratings.movie), kind="stable")[:FILMS])
    kept = np.isin(ratings.movie, often)
    table = np.full((len(ratings.users), FILMS), np.nan)
    table[ratings.user[kept], np.searchsorted(often, ratings.movie[kept])] = ratings.rating[kept]
    rng = world_stream(seed, "outlier test")
    who = rng.permutation(np.flatnonzero((~np.isnan(table)).sum(axis=1) >= RATED))
    yield from few_rows(table[who[: LOGGED + OTHERS]], rng, rank)


def simulated(seed: int, rank: Rank = "auto") -> Iterator[tuple[str, str, Told]]:
    """People of a Gaussian population with two directions, and ratings as few as of the films."""
    rng = world_stream(seed, "outlier test")
    factor, mean = 0.3 * rng.standard_normal((2, FILMS)), 3.5 + 0.5 * rng.standard_normal(FILMS)
    taste = rng.standard_normal((LOGGED + OTHERS, 2)) @ factor
    table = mean + taste + 0.9 * rng.standard_normal(taste.shape)
    table[np.argsort(rng.random(table.shape), axis=1) >= RATED] = np.nan
    yield from few_rows(table, rng, rank)


def few_rows(table: Floats, rng: np.random.Generator, rank: Rank) -> Iterator[tuple[str, str, Told]]:
    """The first `LOGGED` rows of a table are logged, `EACH` ratings of each; the others are newcomers."""
    dealt = [rng.permutation(np.flatnonzero(~np.isnan(row)))[:RATED] for row in table]
    asked = np.concatenate([own[:EACH] for own in dealt[:LOGGED]])
    user = np.repeat(np.arange(LOGGED), EACH)
    logs = Logs.from_arrays(user=user, action=asked, reward=table[user, asked])
    model = fit(logs, rank=rank, null=False, calibrate=False)
    new, order = table[LOGGED:], np.stack(dealt[LOGGED:])
    for rule, known in rules(model).items():
        for case, look in {"told": told, "chosen": chosen}.items():
            sent, paid = look(PriorUCB(known, level=LEVEL), new, order)
            yield case, rule, (sent, look(PriorUCB(known, level=0.0), new, order)[1] - paid)


def told(policy: PriorUCB, table: Floats, order: Floats) -> Told:
    """Every newcomer's ratings, one after the other: who was ever sent away."""
    state, who = policy.start(len(table)), np.arange(len(table))
    for action in order.T:
        policy.update(state, ids=action, reward=table[who, action])
    return ~policy.in_subspace(state), np.full(len(table), np.nan)


def chosen(policy: PriorUCB, table: Floats, order: Floats) -> Told:
    """The same people choose one of ten, each film once; and what they got."""
    state, who, paid = policy.start(len(table)), np.arange(len(table)), np.zeros(len(table))
    for offered in np.moveaxis(order.reshape(len(table), -1, 10), 1, 0):
        action = offered[who, policy.choose(state, ids=offered)]
        policy.update(state, ids=action, reward=table[who, action])
        paid += table[who, action]
    return ~policy.in_subspace(state), paid


SOURCES: dict[str, Callable[[int], Iterator[tuple[str, str, Told]]]] = {
    "bfi": lambda seed: tables("bfi", seed),
    "films": films,
    "simulated": simulated,
    "strangers": strangers,
    "Young People": lambda seed: tables("Young People", seed),
}
QUICK = ("bfi", "simulated", "strangers")


def line(people: str, case: str, rule: str, parts: list[Told]) -> dict[str, str | float | None]:
    """One row of the table."""
    sent, change = (np.concatenate(part) for part in zip(*parts, strict=True))
    count, theirs = int(sent.sum()), change[sent]
    share = float(sent.mean())
    found: dict[str, str | float | None] = {"people": people, "case": case, "rule": rule, "newcomers": len(sent)}
    found |= {"sent": share, "sent_se": float(np.sqrt(share * (1 - share) / len(sent)))}
    if np.isnan(change).any():  # nobody chose anything
        return found | {"all": None, "all_se": None, "theirs": None, "theirs_se": None}
    found |= {"all": float(change.mean()), "all_se": float(change.std(ddof=1) / np.sqrt(len(sent)))}
    found |= {"theirs": float(theirs.mean()) if count else None}
    return found | {"theirs_se": float(theirs.std(ddof=1) / np.sqrt(count)) if count > 1 else None}


def run(*, quick: bool = False) -> Iterator[dict[str, str | float | None]]:
    """All people, or one split of the small tables."""
    for people in QUICK if quick else SOURCES:
        parts: dict[tuple[str, str], list[Told]] = {}
        for seed in range(1, 1 + (1 if quick else SPLITS[people])):
            for case, rule, outcome in SOURCES[people](seed):
                parts.setdefault((case, rule), []).append(outcome)
        yield from (line(people, case, rule, own) for (case, rule), own in parts.items())


def with_table(page: str, results: Path) -> str:
    """The page with its table of who is flagged made anew from outlier-test.csv, if there is such a file."""
    if not (results / "outlier-test.csv").is_file():
        return page
    found = pl.read_csv(results / "outlier-test.csv", infer_schema_length=None)
    kept = ("people", "case", "newcomers")
    now, before = (found.filter(rule=rule).drop("rule") for rule in ("now", "before"))
    rows = now.join(before, on=kept, suffix="_before", maintain_order="left").iter_rows(named=True)
    head = ["people", "case", "newcomers", "flagged before", "now", "regret of those flagged, before", "now"]
    text = markdown.table(
        head, [[str(row[name]).replace("strangers", "outlier users") for name in kept] + _cells(row) for row in rows]
    )
    start = page.index(START)
    return page[:start] + text + page[page.index("\n\n", start) :]


def _cells(row: dict[str, float | None]) -> list[str]:
    """Shares flagged in percent, and the change of regret of those flagged, before and now."""
    shares = [f"{100 * (row['sent' + end] or 0.0):.1f}%" for end in ("_before", "")]
    changes = ((row["theirs" + end], row["theirs_se" + end]) for end in ("_before", ""))
    return shares + ["" if value is None else markdown.number(value, error) for value, error in changes]


if __name__ == "__main__":
    command, rows = Command.read(), []
    for row in run(quick=command.quick):
        print(row, flush=True)
        rows.append(row)
    command.write(pl.DataFrame(rows, infer_schema_length=None), "outlier-test.csv", float_precision=5)
