"""Newcomers of the MovieLens world: PriorUCB and PriorTS with everything chosen from offline logs, beside the best ProBALL and the true prior.

The world of the paper's literal description (d = 200, rank 18), 5000 histories of 50 steps, T = 200. Each of five fits serves a hundred newcomers of its
own, and all policies serve the same ones. ProBALL-UCB has the pseudo-inverse SOLD subspace of the true rank, each of the paper's three radii and
each tau of the grid of the figures (the paper's 0.5 and 0.1, and smaller ones at which it stays in the subspace for longer); the best of
these is chosen afterwards, by the regret itself, which nobody could do in advance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import (
    Verdict,
    ask,
    compared,
    finished,
    grid,
    nothing,
    quick,
    regrets,
    rounded,
    true_prior,
)
from newcomer.experiments.figure import KINDS, Figure
from newcomer.experiments.jobs import Scalar, Table, first_round_outside, radius_to_leave
from newcomer.experiments.places import Setting, world
from newcomer.experiments.scale import LITERAL, Scale
from newcomer.fitting import fit
from newcomer.model import Model
from newcomer.worlds.movielens import MovieLens

NAME = "prior-movielens"
EVERY = 10  # rounds between points of a curve
OURS = "PriorUCB"


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each fit."""
    newcomers, seeds = (10, 2) if quick(scale) else (100, 5)
    return grid(NAME, [{"newcomers": newcomers, "seed": seed} for seed in range(1, seeds + 1)])


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Regret of every newcomer of one fit with every policy."""
    scale, seed, newcomers = setting.sizes, int(arguments["seed"] or 0), int(arguments["newcomers"] or 0)
    place = world(LITERAL, setting)
    assert isinstance(place, MovieLens)
    logs = place.logs(scale.film_users, scale.film_steps, seed=seed)
    prior = fit(logs, null=False, calibrate=False)
    sold = fit(logs, rank=place.rank, estimator="sold-pinv", null=False)
    rounds = scale.film_rounds
    policies: dict[str, Any] = {
        OURS: nc.PriorUCB(prior),
        "PriorTS": nc.PriorTS(prior),
        "PriorUCB, true prior": nc.PriorUCB(truth(place)),
        "PopulationMean": nc.PopulationMean(prior),
        "PopulationMean, SOLD's": nc.PopulationMean(sold),
        "LinUCB": nc.LinUCB(place.dim, horizon=rounds),
    }
    settings = exits(sold, scale)
    for leaves in sorted(set(settings.values())):
        policies[f"left {leaves}"] = nc.ProBALLUCB(sold, horizon=rounds, radius=radius_to_leave(leaves, place.dim))
    rows = regrets(policies, place, horizon=rounds, users=newcomers, seed=seed, every=EVERY)
    named = [rows.filter(~pl.col("policy").str.starts_with("left"))]
    named += [
        rows.filter(policy=f"left {leaves}").with_columns(policy=pl.lit(name)) for name, leaves in settings.items()
    ]
    return pl.concat(named).with_columns(seed=pl.lit(seed), rank=pl.lit(prior.factor.shape[1]))


def truth(place: MovieLens) -> Model:
    """Mean and covariance of the users of the world."""
    users = place.factors.users
    covariance = np.cov(users, rowvar=False, bias=True)
    return true_prior(users.mean(axis=0), covariance, place.noise_variance, place.rank)


def exits(sold: Model, scale: Scale) -> dict[str, int]:
    """For each radius and tau of the grid the first round outside the subspace."""
    found = {}
    for letter, kind in KINDS.items():
        radius = sold.radius(kind, norm="frobenius", clip=False, simplified=True)
        for tau in scale.taus[LITERAL]:
            leaves = first_round_outside(radius, tau, sold.dim, scale.film_rounds)
            found[f"{letter}-ProBALL-UCB, tau {tau:g}"] = leaves
    return found


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Regret of every policy and round; `ratio` is that of PriorUCB's to it, `low` and `high` those of single fits."""
    rows = finished(jobs(scale), bench)
    whole = compared(rows, OURS, ["t"], ["seed", "user"])
    each = compared(rows, OURS, ["t", "seed"], ["user"])
    span = each.group_by("t", "policy").agg(low=pl.col("ratio").min(), high=pl.col("ratio").max())
    ranks = ", ".join(str(rank) for rank in rows.group_by("seed").agg(pl.col("rank").first()).sort("seed")["rank"])
    joined = whole.join(span, on=["t", "policy"], maintain_order="left")
    return rounded(joined.with_columns(fits=pl.lit(rows["seed"].n_unique()), ranks=pl.lit(ranks)))


def last(frame: pl.DataFrame) -> pl.DataFrame:
    """The last round, best policy first."""
    return frame.filter(pl.col("t") == pl.col("t").max()).sort("regret")


def best(frame: pl.DataFrame, name: str) -> dict[str, Any]:
    """The line of least regret whose name contains this."""
    return last(frame).filter(pl.col("policy").str.contains(name, literal=True)).row(0, named=True)


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """PriorUCB against the true prior, the best ProBALL, and the population mean."""
    targets = (("true prior", 1.2), ("ProBALL-UCB", 0.45), ("PopulationMean", 0.65))
    found = [(best(frame, name), most) for name, most in targets]
    return [ask(f"PriorUCB / {line['policy']}", line["ratio"], most, line["ratio_se"]) for line, most in found]


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret after the last round; of ProBALL the best and the paper's two values of tau."""
    shown = ~pl.col("policy").str.contains("ProBALL") | pl.col("policy").str.contains("tau 0")
    return (
        last(frame)
        .filter(shown | (pl.col("policy") == best(frame, "ProBALL-UCB")["policy"]))
        .select(
            "policy", "regret", "regret_se", pl.col("ratio").alias("PriorUCB / it"), "ratio_se", low="low", high="high"
        )
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, of ProBALL only the best."""
    proball = best(frame, "ProBALL-UCB")["policy"]
    shown = frame.filter((pl.col("policy") == proball) | ~pl.col("policy").str.contains("ProBALL"))
    shown = shown.with_columns(pl.col("policy").replace("PriorUCB, true prior", "true prior"))
    return draw_lines(shown, path, x=Axis("t", "round"), y=Axis("regret", "cumulative regret"), error="regret_se")


FIGURE = Figure(
    name=NAME,
    claim="A newcomer served from the distribution of users has less than half the regret of the best ProBALL.",
    caption=lambda scale: (
        f"Literal factors, {scale.film_users:,} histories of {scale.film_steps} steps, five fits with a hundred newcomers each; bands of one standard error over newcomers."
    ),
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
