"""How many offline users it takes: PriorUCB against policies that learn nothing from others, or nothing about this one.

From 50 offline users to 50,000 in a synthetic world whose users share a mean (d = 50, k = 2, theta ~ N(1/2, I/2) a coordinate, entries of U up to 1.25,
20 steps; a world of its own for each seed, ten newcomers, T = 200), and up to 5000 on MovieLens (literal factors, 50 steps, forty newcomers for each of
five fits). Few users must not make PriorUCB worse than the better of PopulationMean and LinUCB: the margin is mean regret less 1.05
times the better one's, with a 99% t-interval over worlds (synthetic) or newcomers (MovieLens, where five fits are too few to count).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from scipy.special import stdtrit

import newcomer as nc
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import (
    Verdict,
    compared,
    finished,
    grid,
    nothing,
    quick,
    regrets,
    rounded,
    truth_of,
)
from newcomer.experiments.beyond.films import truth as film_truth
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting, world
from newcomer.experiments.scale import LITERAL, Scale
from newcomer.fitting import fit
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.worlds.movielens import MovieLens
from newcomer.worlds.synthetic import Synthetic

NAME = "prior-users"
SYNTHETIC, FILMS = "synthetic, users with a common mean", "MovieLens, literal factors"
STEPS, OFFSET, ROUNDS = 20, 0.5, 200
SIZES = {SYNTHETIC: (50, 150, 500, 1500, 5000, 15_000, 50_000), FILMS: (50, 150, 500, 1500, 5000)}
SEEDS, NEWCOMERS = {SYNTHETIC: 20, FILMS: 5}, {SYNTHETIC: 10, FILMS: 40}
UNITS = {SYNTHETIC: ["seed"], FILMS: ["seed", "user"]}
MARGIN, LEVEL = 1.05, 0.99
RIVALS = ("PopulationMean", "LinUCB")


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each world, number of offline users and seed, small ones first."""
    points: list[dict[str, Scalar]] = []
    for place, sizes in SIZES.items():
        for users in sizes[:3] if quick(scale) else sizes:
            seeds = range(1, (2 if quick(scale) else SEEDS[place]) + 1)
            points += [{"world": place, "users": users, "seed": seed} for seed in seeds]
    return grid(NAME, sorted(points, key=lambda point: int(point["users"] or 0)))


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Regret of every newcomer of one fit."""
    name, users, seed = str(arguments["world"]), int(arguments["users"] or 0), int(arguments["seed"] or 0)
    rows = _synthetic(users, seed) if name == SYNTHETIC else _films(setting, users, seed)
    return rows.with_columns(world=pl.lit(name), users=pl.lit(users), seed=pl.lit(seed))


def _synthetic(users: int, seed: int) -> pl.DataFrame:
    place = Synthetic(offset=OFFSET, seed=seed)
    logs = place.logs(users, STEPS, seed=seed)
    sold = fit(logs, rank=place.rank, estimator="sold", ridge=1.0, null=False)
    policies = _policies(logs, sold, truth_of(place))
    return regrets(policies, place, horizon=ROUNDS, users=NEWCOMERS[SYNTHETIC], seed=seed)


def _films(setting: Setting, users: int, seed: int) -> pl.DataFrame:
    place = world(LITERAL, setting)
    assert isinstance(place, MovieLens)
    logs = place.logs(users, setting.sizes.film_steps, seed=seed)
    sold = fit(logs, rank=place.rank, estimator="sold-pinv", null=False)
    policies = _policies(logs, sold, film_truth(place))
    return regrets(policies, place, horizon=ROUNDS, users=NEWCOMERS[FILMS], seed=seed)


def _policies(logs: Logs, sold: Model, truth: Model) -> dict[str, Any]:
    prior = fit(logs, null=False, calibrate=False)
    return {
        "PriorUCB": nc.PriorUCB(prior),
        "PopulationMean": nc.PopulationMean(prior),
        "ProBALL-UCB": nc.ProBALLUCB(sold, horizon=ROUNDS),
        "LinUCB": nc.LinUCB(logs.dim, horizon=ROUNDS),
        "true prior": nc.PriorUCB(truth),
    }


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Regret of every policy for every number of users; `ratio` is that of PriorUCB's to it, `over` PriorUCB's less 1.05 of it."""
    rows = finished(jobs(scale), bench)
    parts = []
    for name, unit in UNITS.items():
        own, by = rows.filter(world=name), ["world", "users"]
        parts.append(
            compared(own, "PriorUCB", by, unit).join(_margins(own, by, unit), on=[*by, "policy"], maintain_order="left")
        )
    return rounded(pl.concat(parts).sort("world", "users", maintain_order=True))


def _margins(rows: pl.DataFrame, by: list[str], unit: list[str]) -> pl.DataFrame:
    own = rows.group_by(*by, "policy", *unit).agg(pl.col("regret").mean())
    base = own.filter(policy="PriorUCB").select(*by, *unit, base="regret")
    over = pl.col("base") - MARGIN * pl.col("regret")
    found = (
        own.join(base, on=[*by, *unit])
        .group_by(*by, "policy")
        .agg(over=over.mean(), _se=over.std() / pl.len().sqrt(), _n=pl.len())
    )
    quantiles = [float(stdtrit(n - 1, (1 + LEVEL) / 2)) for n in found["_n"]]
    half = pl.col("_se") * pl.Series(quantiles)
    return found.with_columns(over_low=pl.col("over") - half, over_high=pl.col("over") + half).drop("_se", "_n")


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """For every number of users PriorUCB against the better of the two."""
    found = []
    for (name, users), own in frame.group_by("world", "users", maintain_order=True):
        best = own.filter(pl.col("policy").is_in(RIVALS)).sort("regret").row(0, named=True)
        low, high = best["over_low"], best["over_high"]
        told = f"ratio {best['ratio']:.3g}; over 1.05: {best['over']:.3g}, 99% [{low:.3g}, {high:.3g}]"
        holds = True if high <= 0 else False if low > 0 else None
        found.append(Verdict(f"{name}, N = {users:,}: PriorUCB / {best['policy']}", "at most 1.05", told, holds))
    return found + _missing(frame)


def _missing(frame: pl.DataFrame) -> list[Verdict]:
    """Sizes that were not run, so that nobody takes them for fine."""
    done = set(frame.select("world", "users").iter_rows())
    wanted = [(name, users) for name, sizes in SIZES.items() for users in sizes if (name, users) not in done]
    return [Verdict(f"{name}, N = {users:,}", "at most 1.05", "not run yet", None) for name, users in wanted]


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy, and over how many worlds (synthetic) or newcomers (MovieLens)."""
    told = pl.format("{} (se {})", pl.col("regret").round(2), pl.col("regret_se").round(2))
    return frame.with_columns(told=told).pivot("policy", index=["world", "users", "units"], values="told")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the number of offline users."""
    x, y = Axis("users", "offline users N", log=True), Axis("regret", f"regret after {ROUNDS} rounds", log=True)
    return draw_lines(frame, path, x=x, y=y, error="regret_se", facet="world", marked=True)


FIGURE = Figure(
    name=NAME,
    claim="From fifty offline users on PriorUCB is no worse than the better of the population mean and LinUCB.",
    caption=lambda scale: "T = 200; bands of one standard error.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
