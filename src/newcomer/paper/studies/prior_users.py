"""How many offline users it takes: PriorUCB against policies that learn nothing from others, or nothing about this one.

From 50 offline users to 50,000 in a synthetic world whose users share a mean (d = 50, k = 2, theta ~ N(1/2, I/2) a
coordinate, entries of U up to 1.25, 20 steps; a world of its own for each seed, ten newcomers, T = 200), and up to 5000
on MovieLens (literal factors, 50 steps, forty newcomers for each of five fits). Few users must not make PriorUCB worse
than the better of PopulationMean and LinUCB: the margin is mean regret less 1.05 times the better one's, with a 99%
t-interval over worlds (synthetic) or newcomers (MovieLens, where five fits are too few to count).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.named_worlds import films
from newcomer.paper.panels import SIZE
from newcomer.paper.scale import LITERAL, Scale, Setting
from newcomer.paper.studies.comparison import compared, paired, regrets, t_intervals, truth_of
from newcomer.paper.worlds.movielens import MovieLens
from newcomer.worlds.synthetic import Synthetic

SYNTHETIC, FILMS = "synthetic, users with a common mean", "MovieLens, literal factors"
STEPS, OFFSET, ROUNDS = 20, 0.5, 200
SIZES = {SYNTHETIC: (50, 150, 500, 1500, 5000, 15_000, 50_000), FILMS: (50, 150, 500, 1500, 5000)}
SEEDS, NEWCOMERS = {SYNTHETIC: 20, FILMS: 5}, {SYNTHETIC: 10, FILMS: 40}
UNITS = {SYNTHETIC: ["seed"], FILMS: ["seed", "user"]}
MARGIN, LEVEL = 1.05, 0.99


def sweep(scale: Scale) -> list[Point]:
    """Every world, number of offline users and seed, small numbers first."""
    most = 3 if scale.quick else None
    return [
        {"world": world, "users": users, "seed": seed}
        for users in SIZES[SYNTHETIC]
        for world, sizes in SIZES.items()
        if users in sizes[:most]
        for seed in range(1, (2 if scale.quick else SEEDS[world]) + 1)
    ]


def run(setting: Setting, *, world: str, users: int, seed: int) -> pl.DataFrame:
    """Regret of every newcomer of one fit.

    ProBALL-UCB has SOLD's subspace of the true rank, found as in the paper's figures: with a ridge in the simulation,
    with pseudo-inverses on MovieLens. PriorUCB and PopulationMean have what EM finds in the same logs, nothing given.
    """
    place: Synthetic | MovieLens
    if world == SYNTHETIC:
        place = Synthetic(offset=OFFSET, seed=seed)
        logs = place.logs(users, STEPS, seed=seed)
        sold = fit(logs, rank=place.rank, estimator="sold", ridge=1.0, null=False)
    else:
        place = films(LITERAL, setting)
        logs = place.logs(users, setting.sizes.film_steps, seed=seed)
        sold = fit(logs, rank=place.rank, estimator="sold-pinv", null=False)
    prior = fit(logs, null=False, calibrate=False)
    policies = {
        "PriorUCB": nc.PriorUCB(prior),
        "PopulationMean": nc.PopulationMean(prior),
        "ProBALL-UCB": nc.ProBALLUCB(sold, horizon=ROUNDS),
        "LinUCB": nc.LinUCB(logs.dim, horizon=ROUNDS),
        "true prior": nc.PriorUCB(truth_of(place)),
    }
    rows = regrets(policies, place, horizon=ROUNDS, users=NEWCOMERS[world], seed=seed)
    return rows.with_columns(world=pl.lit(world), users=pl.lit(users), seed=pl.lit(seed))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy for every number of users, and how PriorUCB's compares with it.

    `ratio` is that of PriorUCB's regret to the policy's; `over`, with its 99% t-interval, PriorUCB's less 1.05 times
    the policy's.
    """
    by, parts = ["world", "users"], []
    for name, unit in UNITS.items():
        own = rows.filter(world=name)
        over = pl.col("base") - MARGIN * pl.col("regret")
        margins = t_intervals(paired(own, "PriorUCB", by, unit), over, [*by, "policy"], level=LEVEL)
        margins = margins.rename({"mean": "over", "low": "over_low", "high": "over_high"})
        parts.append(compared(own, "PriorUCB", by, unit).join(margins, on=[*by, "policy"], maintain_order="left"))
    return pl.concat(parts).sort("world", "users", maintain_order=True)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the number of offline users."""
    y = Axis("regret", f"regret after {ROUNDS} rounds", log=True)
    return draw_lines(frame, path, x=SIZE, y=y, error="regret_se", facet="world", marked=True)


STUDY = study(
    "prior-users",
    claim="From fifty offline users on PriorUCB is no worse than the better of the population mean and LinUCB.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
