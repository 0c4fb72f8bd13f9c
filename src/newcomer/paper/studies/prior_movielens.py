"""Newcomers of the MovieLens world: PriorUCB and PriorTS with everything chosen from offline logs, beside the best
ProBALL and the true prior.

The world of the paper's literal description (d = 200, rank 18), 5000 histories of 50 steps, T = 200. Each of five fits
serves a hundred newcomers of its own, and all policies serve the same ones. ProBALL-UCB has the pseudo-inverse SOLD
subspace of the true rank, each of the paper's three radii and each tau of the grid of the figures (the paper's 0.5 and
0.1, and smaller ones at which it stays in the subspace for longer); the best of these is chosen afterwards, by the
regret itself, which nobody could do in advance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import draw_lines
from newcomer.model import Model
from newcomer.paper.figure import Point, study
from newcomer.paper.jobs import ExitRule
from newcomer.paper.lines import KINDS
from newcomer.paper.named_worlds import films
from newcomer.paper.panels import REGRET, ROUND
from newcomer.paper.players import paper_radius
from newcomer.paper.scale import LITERAL, Scale, Setting
from newcomer.paper.studies.comparison import compared, regrets, truth_of

EVERY = 10  # rounds between points of a curve
OURS = "PriorUCB"


def sweep(scale: Scale) -> list[Point]:
    """Every fit."""
    newcomers, seeds = (10, 2) if scale.quick else (100, 5)
    return [{"newcomers": newcomers, "seed": seed} for seed in range(1, seeds + 1)]


def run(setting: Setting, *, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of every newcomer of one fit with every policy.

    Settings of ProBALL that leave the subspace in the same round make the same decisions, so one of them is played
    for all.
    """
    scale, place = setting.sizes, films(LITERAL, setting)
    logs, rounds = place.logs(scale.film_users, scale.film_steps, seed=seed), scale.film_rounds
    prior = fit(logs, null=False, calibrate=False)
    sold = fit(logs, rank=place.rank, estimator="sold-pinv", null=False)
    policies: dict[str, Any] = {
        OURS: nc.PriorUCB(prior),
        "PriorTS": nc.PriorTS(prior),
        "PriorUCB, true prior": nc.PriorUCB(truth_of(place)),
        "PopulationMean": nc.PopulationMean(prior),
        "PopulationMean, SOLD's": nc.PopulationMean(sold),
        "LinUCB": nc.LinUCB(place.dim, horizon=rounds),
    }
    rules, played = exit_rules(sold, scale), list(policies)
    first: dict[int, str] = {}
    for name, rule in rules.items():
        if first.setdefault(rule.first_outside(rounds), name) == name:
            policies[name] = nc.ProBALLUCB(sold, horizon=rounds, radius=rule.radius, tau=rule.tau)
    rows = regrets(policies, place, horizon=rounds, users=newcomers, seed=seed, every=EVERY)
    copies = [
        rows.filter(policy=first[rule.first_outside(rounds)]).with_columns(policy=pl.lit(name))
        for name, rule in rules.items()
    ]
    whole = pl.concat([rows.filter(pl.col("policy").is_in(played)), *copies])
    return whole.with_columns(seed=pl.lit(seed), rank=pl.lit(prior.factor.shape[1]))


def exit_rules(sold: Model, scale: Scale) -> dict[str, ExitRule]:
    """ProBALL-UCB's rule with each radius and each tau of the grid, by the label of the line."""
    return {
        f"{letter}-ProBALL-UCB, tau {tau:g}": ExitRule(paper_radius(sold, kind), tau, sold.dim)
        for letter, kind in KINDS.items()
        for tau in scale.taus[LITERAL]
    }


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy and round; `ratio` is that of PriorUCB's to it, `low` and `high` those of single fits.

    Units are newcomers of all fits together; `low` and `high` show how much depends on the one fit that a service
    would have.
    """
    whole = compared(rows, OURS, ["t"], ["seed", "user"])
    each = compared(rows, OURS, ["t", "seed"], ["user"])
    span = each.group_by("t", "policy").agg(low=pl.col("ratio").min(), high=pl.col("ratio").max())
    ranks = ", ".join(str(rank) for rank in rows.group_by("seed").agg(pl.col("rank").first()).sort("seed")["rank"])
    joined = whole.join(span, on=["t", "policy"], maintain_order="left")
    return joined.with_columns(fits=pl.lit(rows["seed"].n_unique()), ranks=pl.lit(ranks))


def last(frame: pl.DataFrame) -> pl.DataFrame:
    """The last round, best policy first."""
    return frame.filter(pl.col("t") == pl.col("t").max()).sort("regret")


def best(frame: pl.DataFrame, name: str) -> dict[str, Any]:
    """The line of least regret whose name contains this."""
    return last(frame).filter(pl.col("policy").str.contains(name, literal=True)).row(0, named=True)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, of ProBALL only the best."""
    proball = best(frame, "ProBALL-UCB")["policy"]
    shown = frame.filter((pl.col("policy") == proball) | ~pl.col("policy").str.contains("ProBALL"))
    shown = shown.with_columns(pl.col("policy").replace("PriorUCB, true prior", "true prior"))
    return draw_lines(shown, path, x=ROUND, y=REGRET, error="regret_se")


STUDY = study(
    "prior-movielens",
    claim="A newcomer served from the distribution of users has less than half the regret of the best ProBALL.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
