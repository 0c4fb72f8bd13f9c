"""Does a logistic link serve people whose rewards are 0 or 1 better than the Gaussian one?

`python -m experiments.binary_outcome` (about twenty minutes on one core; `clicks`, `tables`, `taxes` or `films` as an
argument runs that part alone and keeps the others; `clicks/105`, a world, split or fold of it, as a piece that is kept)
writes experiments/results/binary-outcome.csv, a row a case and policy.

**Simulated clicks.** Twelve templates with base rates from 1% to 8%; a user's log-odds deviate from the base along two
directions, by template with a standard deviation between 0.6 and 1.3. Logs: 20,000 users, six different templates each.
Newcomers meet all twelve templates in each of 20 rounds, and what they do is a fresh draw each time. `way` is the share
of the way from the best template for all to the oracle, who knows the true distribution of users and learns from each
user's clicks. Policies of newcomers alone, and
of newcomers who begin with the repeatability that a hundred earlier users told ("pooled"). Three worlds.

**Tables** (0/1: an answer of at least 4). Young People (20 logged) and bfi (12 logged), as `newcomer reproduce people`
plays them: 40 rounds of ten questions, the same answer again, half redrawn, everything redrawn, half of the people
redraw; and each question once. Newcomers alone and after twenty earlier ones; three splits of each table. Films of
MovieLens at least 4 stars (of 1,000 ratings or more; 20 ratings logged of two thirds of the people): ten rounds of
eight of a newcomer's own films, each once, 200 people. `taxes`, five folds: choices of held-out people among eight of
their own rows after 0 to 5 interactions.

**What is tried**, written down before any of it was run:

1. gaussian: the Gaussian fit, with the likelihood of repeats of clicks; what every other is compared with
2. binary: clicks from the Gaussian fit's clear directions, its weak ones added beside
3. binary, clear directions: without the weak ones
4. binary, curiosity 0 and 0.5 in place of 0.25
5. auto: which of 1 and 2 the fit itself takes

After simulated clicks alone were looked at, and before any table was:

6. what lasts of an action is an effect on log-odds, so that its share of the variance is smaller for rare clicks
   (policies/binary_belief.py); 2 to 5 with that

Aims: clicks at least 90% pooled and 74% alone; on tables the ratio of regrets binary / gaussian at most 1.01, beyond
two standard errors, in every case.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from experiments import markdown
from experiments.attributes import folds_of, movielens
from experiments.results_table import Command
from newcomer.arrays import Floats
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.paper.scale import Setting
from newcomer.paper.studies.earlier_users import EARLIER, deal, serve
from newcomer.paper.studies.people import LIKED, LIKES, ONCE, ROUNDS, people_table
from newcomer.transforms import sigmoid

OUT = "binary-outcome.csv"
TEMPLATES, LOGGED, EACH, HORIZON, NEWCOMERS, BEFORE = 12, 20_000, 6, 20, 2_000, 100
WORLDS, SPLITS, LIKERS = range(105, 108), range(101, 104), 200  # seeds that nothing was chosen by
FILM_ROUNDS = 10


def links(logs: Logs) -> tuple[dict[str, Model], str]:
    """The Gaussian and the binary fit of logs, and which of them `outcome="auto"` takes."""
    auto = nc.fit(logs, null=False, calibrate=False)
    names = ("gaussian", "binary")
    other = next(name for name in names if name != auto.outcome)
    found = {auto.outcome: auto, other: nc.fit(logs, outcome=other, null=False, calibrate=False)}
    print(auto.evidence.outcome.sentence if auto.evidence.outcome else "", flush=True)
    return {name: found[name] for name in names}, auto.outcome


# Simulated clicks.


def click_world(seed: int) -> tuple[Floats, Floats]:
    """Levels (A,) and loadings (A, 2) of the templates."""
    rng = np.random.default_rng([seed, 26])
    rates = rng.permutation(np.exp(np.linspace(np.log(0.01), np.log(0.08), TEMPLATES)))
    loadings = rng.standard_normal((TEMPLATES, 2))
    loadings *= (rng.uniform(0.6, 1.3, TEMPLATES) / np.linalg.norm(loadings, axis=1))[:, None]
    return np.log(rates / (1.0 - rates)), loadings


def click_logs(levels: Floats, loadings: Floats, seed: int) -> Logs:
    """Six different templates of each user."""
    rng = np.random.default_rng([seed, 27])
    odds = levels + rng.standard_normal((LOGGED, 2)) @ loadings.T
    action = np.argsort(rng.random((LOGGED, TEMPLATES)), axis=1)[:, :EACH]
    reward = rng.random((LOGGED, EACH)) < sigmoid(np.take_along_axis(odds, action, axis=1))
    user = np.repeat(np.arange(LOGGED), EACH)
    return Logs.from_arrays(user=user, action=action.ravel(), reward=reward.ravel().astype(np.float64))


def played(policy: Any, chances: Floats, lots: Floats, state: Any) -> tuple[Floats, Any]:
    """What each newcomer is expected to pay (n,), by the chances of what was chosen; `lots` (T, n, A) decide clicks."""
    total, who, ids = np.zeros(len(chances)), np.arange(len(chances)), list(range(TEMPLATES))
    for draws in lots:
        chosen = policy.choose(state, ids=ids)
        total += chances[who, chosen]
        policy.update(state, ids=chosen, reward=(draws[who, chosen] < chances[who, chosen]).astype(np.float64))
    return total, state


def clicks(seeds: Sequence[int] = WORLDS) -> Iterator[dict[str, Any]]:
    """Every world and policy."""
    for seed in seeds:
        levels, loadings = click_world(seed)
        logs = click_logs(levels, loadings, seed)
        rng = np.random.default_rng([seed, 28])
        chances = [sigmoid(levels + rng.standard_normal((n, 2)) @ loadings.T) for n in (NEWCOMERS, BEFORE)]
        lots = [rng.random((HORIZON, len(one), TEMPLATES)) for one in chances]
        models, auto = links(logs)
        mean = nc.PopulationMean(models["gaussian"])
        best = played(mean, chances[0], lots[0], mean.start(NEWCOMERS))[0]
        truth = nc.PriorUCB(_truth(models["binary"], levels, loadings))
        oracle = played(truth, chances[0], lots[0], truth.start(NEWCOMERS))[0]
        for name, policy in _players(models).items():
            for pooled in (False, True) if policy_remembers(policy) else (False,):
                told = None
                if pooled:
                    told = policy.repeatability(played(policy, chances[1], lots[1], policy.start(BEFORE))[1])
                found, _ = played(policy, chances[0], lots[0], policy.start(NEWCOMERS, repeatability=told))
                way = float((found - best).sum() / (oracle - best).sum())
                error = float(
                    (found - best - way * (oracle - best)).std() / np.sqrt(NEWCOMERS) / (oracle - best).mean()
                )
                case = "pooled" if pooled else "alone"
                row = {"place": "clicks", "case": case, "policy": name, "unit": seed, "value": way, "error": error}
                yield from _with_auto(row | {"rank": models["gaussian"].factor.shape[1]}, auto)


def _with_auto(row: dict[str, Any], auto: str) -> Iterator[dict[str, Any]]:
    """A row, and the same for `auto` where it is that of the link which `auto` took."""
    yield row
    if row["policy"] == auto:
        yield row | {"policy": "auto"}


def _truth(model: Model, levels: Floats, loadings: Floats) -> Model:
    """The true distribution of users, and that nothing lasts: as much as anybody could know before meeting them."""
    return replace(model, mean=levels, factor=loadings, persistence=0.0, uncertainty=np.zeros(TEMPLATES))


def policy_remembers(policy: Any) -> bool:
    """Whether it has a repeatability to pool."""
    return not isinstance(policy, nc.PopulationMean)


def _players(models: dict[str, Model]) -> dict[str, Any]:
    """The policies of the list."""
    found: dict[str, Any] = {}
    for name, model in models.items():
        found[name] = nc.PriorUCB(model)
        found[f"{name}, nothing lasts"] = nc.PriorUCB(replace(model, persistence=0.0))
        found[f"{name}, arms"] = nc.EmpiricalArms(model)
    for curiosity in (0.0, 0.5):
        found[f"binary, curiosity {curiosity:g}"] = nc.PriorUCB(models["binary"], curiosity=curiosity)
    return found


# Tables of real people.


def tables(seeds: Sequence[int] = SPLITS, names: Sequence[str] = tuple(LIKED)) -> Iterator[dict[str, Any]]:
    """Regret of each table, split, case and policy."""
    setting = Setting("full", str(Path(os.environ["NEWCOMER_DATA"]) / "ml-1m"), "")
    cases = {**LIKES, ONCE: {"repeat": False}}
    for people, answers in ((name, LIKED[name]) for name in names):
        for seed in seeds:
            world = people_table(setting, people, seed)
            logs = world.logs(steps=min(answers, world.dim // 2), seed=seed)
            models, auto = links(logs)
            models["binary, clear directions"] = _clear(models["binary"])
            for case, settings in cases.items():
                place = replace(world, **settings)
                horizon = ROUNDS if place.repeat else place.dim // place.choices
                dealt, earlier = deal(place, LIKERS, horizon, seed), deal(place, EARLIER, horizon, seed, "earlier")
                for name, policy in _table_players(models).items():
                    for pooled in (False, True) if place.repeat else (False,):
                        told = policy.repeatability(serve(policy, earlier)[1]) if pooled else None
                        regret = float(serve(policy, dealt, told)[0].mean())
                        row = {"place": people, "case": case + (", pooled" if pooled else ""), "policy": name}
                        row |= {"unit": seed, "value": regret, "error": 0.0}
                        yield from _with_auto(row | {"rank": models["gaussian"].factor.shape[1]}, auto)


def _clear(model: Model) -> Model:
    """A binary model without its weak directions, and without what was added for them to the rest."""
    facts = model.evidence.population
    assert facts is not None
    clear, weak = np.split(model.factor, [min(facts.directions, 8)], axis=1)
    flat = np.sqrt(1.0 + np.pi / 8 * (weak**2).sum(axis=1))
    return replace(model, mean=model.mean / flat, factor=clear / flat[:, None])


def _table_players(models: dict[str, Model]) -> dict[str, Any]:
    """The policies of the list."""
    found: dict[str, Any] = {name: nc.PriorUCB(model) for name, model in models.items()}
    found["gaussian, arms"] = nc.EmpiricalArms(models["gaussian"])
    for curiosity in (0.0, 0.5):
        found[f"binary, curiosity {curiosity:g}"] = nc.PriorUCB(models["binary"], curiosity=curiosity)
    return found


def taxes(folds: Sequence[int] = range(5)) -> Iterator[dict[str, Any]]:
    """Held-out people choose among the eight plans of four of their tasks, after plans of the other tasks are known."""
    frame = pl.read_parquet(Path(os.environ["NEWCOMER_DATA"]) / "taxes" / "choices.parquet").sort("user", "step")
    features = frame.drop("user", "task", "step", "reward").to_numpy()
    user, task, reward = (frame[name].to_numpy() for name in ("user", "task", "reward"))
    people = np.unique(user)
    fold = np.random.default_rng(126).permutation(len(people)) % 5
    for unit in folds:
        inside = np.isin(user, people[fold != unit])
        logs = Logs.from_arrays(user=user[inside], features=features[inside], reward=reward[inside], intercept=True)
        models, auto = links(logs)
        policies: dict[str, Any] = {name: nc.PriorUCB(model) for name, model in models.items()}
        policies["gaussian, mean"] = nc.PopulationMean(models["gaussian"])
        policies["binary, mean"] = nc.PopulationMean(models["binary"])
        new = people[fold == unit]
        rngs = [np.random.default_rng([126, int(one)]) for one in new]
        own = [np.flatnonzero(user == one) for one in new]
        found: dict[tuple[str, int], list[Floats]] = {}
        for _ in range(10):
            offered, known = np.empty((len(new), 8), dtype=np.int64), np.empty((len(new), 5), dtype=np.int64)
            for i, (rng, rows) in enumerate(zip(rngs, own, strict=True)):
                order = rng.permutation(np.unique(task[rows]))
                offered[i] = rows[np.isin(task[rows], order[:4])]
                known[i] = rng.permutation(rows[np.isin(task[rows], order[4:])])[:5]
            for name, policy in policies.items():
                state = policy.start(len(new))
                for t in range(6):
                    if t in (0, 1, 2, 5):
                        chosen = policy.choose(state, features[offered])
                        found.setdefault((name, t), []).append(1.0 - reward[offered[np.arange(len(new)), chosen]])
                    if t < 5:
                        policy.update(state, features[known[:, t]], reward[known[:, t]])
        for (name, t), values in found.items():
            row = {
                "place": "taxes",
                "case": f"after {t}",
                "policy": name,
                "unit": unit,
                "value": float(np.mean(values)),
            }
            yield from _with_auto(row | {"error": 0.0, "rank": models["gaussian"].factor.shape[1]}, auto)


def films() -> Iterator[dict[str, Any]]:
    """Real film ratings of at least 4 stars: in ten rounds newcomers get eight films of their own, each film once."""
    table = movielens()
    logged, others = next(folds_of(table))
    user, action = (table.frame[name].to_numpy() for name in ("user", "action"))
    reward = (table.frame["reward"].to_numpy() >= 4).astype(np.float64)
    models, auto = links(Logs.from_arrays(user=user[logged], action=action[logged], reward=reward[logged]))
    policies: dict[str, Any] = {name: nc.PriorUCB(model) for name, model in models.items()}
    policies["gaussian, mean"] = nc.PopulationMean(models["gaussian"])
    people, counts = np.unique(user[others], return_counts=True)
    people = people[counts >= FILM_ROUNDS * 8][:LIKERS]
    rows = [np.random.default_rng([126, int(one)]).permutation(np.flatnonzero(user == one)) for one in people]
    offered = np.stack([one[: FILM_ROUNDS * 8].reshape(FILM_ROUNDS, 8) for one in rows], axis=1)  # (T, n, 8)
    for name, policy in policies.items():
        state, regret, who = policy.start(len(people)), np.zeros(len(people)), np.arange(len(people))
        for now in offered:
            chosen = now[who, policy.choose(state, ids=action[now])]
            regret += reward[now].max(axis=1) - reward[chosen]
            policy.update(state, ids=action[chosen], reward=reward[chosen])
        for one, value in zip(people.tolist(), regret.tolist(), strict=True):
            row = {"place": "films", "case": ONCE, "policy": name, "unit": one, "value": value, "error": 0.0}
            yield from _with_auto(row | {"rank": models["gaussian"].factor.shape[1]}, auto)


def ratios(table: pl.DataFrame) -> pl.DataFrame:
    """The value of each policy with its error over units, and its ratio to the Gaussian's with the error of that."""
    base = table.filter(policy="gaussian").select("place", "case", "unit", base="value")
    both = table.join(base, on=["place", "case", "unit"], maintain_order="left")
    by = ["place", "case", "policy"]
    ratio = pl.col("value").sum() / pl.col("base").sum()
    error = (pl.col("value") - ratio * pl.col("base")).std() / pl.len().sqrt() / pl.col("base").mean()
    return both.group_by(by, maintain_order=True).agg(
        pl.col("value").mean(),
        value_se=pl.col("value").std() / pl.len().sqrt(),
        ratio=ratio,
        error=error,
        units=pl.len(),
        rank=pl.col("rank").mean(),
    )


CLICKED, REAL = "| policy | newcomers alone |", "| table | case | regret"
REACHED, WORSE = "The binary model comes", "Of the cases of real people"  # the paragraphs that are written
AIMS = {"pooled": 0.90, "alone": 0.74}  # shares of the way, on simulated clicks
MOST = 1.01  # ratio of regrets on real tables


def with_tables(page: str, results: Path) -> str:
    """The page with its tables, and what they say, made anew from binary-outcome.csv, if there is such a file."""
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT)
    ways = {(row["policy"], row["case"]): row for row in found.filter(place="clicks").iter_rows(named=True)}
    names = dict.fromkeys(name for name, _ in ways)

    def way(name: str, case: str) -> str:
        row = ways.get((name, case))
        return "" if row is None else f"{row['value']:.0%} ({100 * row['value_se']:.0f})"

    rows = [[name, way(name, "alone"), way(name, "pooled")] for name in names]
    heads = ["policy", "newcomers alone", "after a hundred earlier users"]
    page = markdown.replaced(page, CLICKED, markdown.table(heads, rows))
    page = markdown.replaced(page, REACHED, _reached(ways))
    real = found.filter(pl.col("place") != "clicks")
    at = {(row["place"], row["case"], row["policy"]): row for row in real.iter_rows(named=True)}
    heads = ["table", "case", "regret, binary / gaussian", "auto / gaussian", "fits"]
    rows = []
    for (place, case, policy), row in at.items():
        if policy == "binary":
            auto = at.get((place, case, "auto"))
            cells = [markdown.number(one["ratio"], one["error"]) if one else "" for one in (row, auto)]
            rows.append([place, case, *cells, str(row["units"])])
    page = markdown.replaced(page, REAL, markdown.table(heads, rows))
    return markdown.replaced(page, WORSE, _worse(at))


def _reached(ways: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Whether the aims on simulated clicks are met."""
    told = []
    for case, aim in AIMS.items():
        binary, gaussian = ways["binary", case], ways["gaussian", case]
        where = "after a hundred earlier users" if case == "pooled" else "with newcomers alone"
        met = "met" if binary["value"] >= aim else "missed"
        told.append(
            f"{binary['value']:.0%} {where} ({aim:.0%} was the aim: {met}; the Gaussian {gaussian['value']:.0%})"
        )
    taken = "the Gaussian" if abs(ways["auto", "alone"]["ratio"] - 1.0) < 1e-9 else "not always the Gaussian"
    return f"{REACHED} to {' and to '.join(told)}. `auto` takes {taken} here."


def _worse(at: dict[tuple[str, str, str], dict[str, Any]]) -> str:
    """In how many cases a link is worse than the Gaussian by more than a hundredth, beyond two standard errors."""
    told = []
    for policy, words in (("binary", "the binary model"), ("auto", "what `auto` takes")):
        cases = {key[:2]: row for key, row in at.items() if key[2] == policy}
        bad = [f"{place}, {case}" for (place, case), row in cases.items() if row["ratio"] - 2 * row["error"] > MOST]
        good = [f"{place}, {case}" for (place, case), row in cases.items() if row["ratio"] + 2 * row["error"] < 1.0]
        worse = f"{len(bad)} of {len(cases)}" + (f" ({'; '.join(bad)})" if bad else "")
        better = f"{len(good)}" + (f" ({'; '.join(good)})" if good else "")
        told.append(f"{words} has more than 1% more regret than the Gaussian, beyond two standard errors, in {worse},"
                    f" and less regret in {better}")  # fmt: skip
    return f"{WORSE}, {'; '.join(told)}."


UNITS: dict[str, Sequence[int]] = {"clicks": WORLDS, "tables": SPLITS, "taxes": range(5), "films": (0,)}
QUICK = {"clicks": WORLDS[:1], "tables": SPLITS[:2]}  # of a quick run, and of the last table alone


def piece(part: str, unit: int, *, quick: bool = False) -> pl.DataFrame:
    """The rows of a world, split or fold of a part."""
    rows = {
        "clicks": partial(clicks, [unit]),
        "tables": partial(tables, [unit], list(LIKED)[-1:] if quick else list(LIKED)),
        "taxes": partial(taxes, [unit]),
        "films": films,
    }
    return pl.DataFrame(list(rows[part]()), infer_schema_length=None)


def main(command: Command) -> None:
    """Make the pieces that were asked for, or parts with their table."""
    for part, unit in command.pieces:
        command.piece(f"{part}/{unit}", partial(piece, part, int(unit)))
    if command.pieces:
        return
    asked = QUICK if command.quick else {part: UNITS[part] for part in command.parts}
    rows = [
        command.piece(f"{part}/{unit}", partial(piece, part, unit, quick=command.quick))
        for part, units in asked.items()
        for unit in units
    ]
    found = ratios(pl.concat(rows, how="vertical_relaxed"))
    with pl.Config(tbl_rows=300, tbl_width_chars=150, fmt_str_lengths=60):
        print(found)
    found = command.with_other_parts(found, OUT, pl.col("place"))
    command.write(found.sort("place", maintain_order=True), OUT, float_precision=4)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Command.read(*UNITS))
