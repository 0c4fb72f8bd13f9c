"""LOCAL-UCB against ProBALL-UCB, LinUCB and what the subspace is worth, for more and more offline users.

From 200 offline users to 20,000 (d = 20, k = 2, 20 steps, `nc.fit` with rank 2 and its calibrated radii at delta =
0.05: Frobenius for LOCAL-UCB, spectral for ProBALL-UCB) at two signal strengths: learnable, entries of U up to 1.25,
and weak, up to 0.5, where 200 users leave the subspace unknown and an honest radius says so. Twenty worlds with five
newcomers each, the same for every N, T = 200, practical widths. ProBALL-UCB's literal rule cannot leave before t = d^2
= 400: here it stays in the estimated subspace however bad that is. The minimax rate min(d sqrt T, k sqrt T (1 + sqrt(d
T / (k N)))) is drawn times the constant that makes its first term LinUCB's regret. Pooled over N, LOCAL-UCB's regret
less ProBALL-UCB's is given as a share of LinUCB's, with the upper end of its 95% t-interval over newcomers, and over
worlds, which share a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.model import Model
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import SIZE
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import compared, paired, regrets, t_intervals, truth_of
from newcomer.paper.theory.guarantees import minimax_regret, online_regret
from newcomer.worlds.synthetic import Synthetic

DIM, RANK, STEPS, ROUNDS = 20, 2, 20, 200
WORLDS = {"learnable": 1.25, "weak": 0.5}  # entries of U are up to this
SIZES = (200, 500, 1000, 2000, 5000, 20_000)
SEEDS, NEWCOMERS = 20, 5
LOCAL, LITERAL, SAVINGS = "LOCAL-UCB", "ProBALL-UCB", "ProBALL-UCB, savings exit"
LINEAR, RATE = "LinUCB", "minimax rate, scaled"
LEVEL = 0.95


def sweep(scale: Scale) -> list[Point]:
    """Every seed, signal and number of offline users; seed by seed, so that an unfinished run has every N."""
    sizes, seeds, newcomers = ((200, 1000), 2, 2) if scale.quick else (SIZES, SEEDS, NEWCOMERS)
    return [
        {"world": name, "users": users, "newcomers": newcomers, "seed": seed}
        for seed in range(1, seeds + 1)
        for name in WORLDS
        for users in sizes
    ]


def run(setting: Setting, *, world: str, users: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of every newcomer of one fit, and the radius it came with."""
    place = Synthetic(dim=DIM, rank=RANK, scale=WORLDS[world], seed=seed)
    model = fit(place.logs(users, STEPS, seed=seed), rank=RANK, null=False)
    rows = regrets(policies(model, truth_of(place)), place, horizon=ROUNDS, users=newcomers, seed=seed)
    radius = model.radius("calibrated", norm="frobenius")
    return rows.with_columns(world=pl.lit(world), users=pl.lit(users), seed=pl.lit(seed), radius=pl.lit(radius))


def policies(model: Model, truth: Model) -> dict[str, Any]:
    """Who plays; on the true subspace a ProBALL-UCB that never leaves is LinUCB in k dimensions."""
    return {
        LOCAL: nc.LocalUCB(model, horizon=ROUNDS),
        LITERAL: nc.ProBALLUCB(model, horizon=ROUNDS),
        SAVINGS: nc.ProBALLUCB(model, horizon=ROUNDS, exit="savings"),
        "PriorUCB": nc.PriorUCB(model),
        LINEAR: nc.LinUCB(model.dim, horizon=ROUNDS),
        "LinUCB, true subspace": nc.ProBALLUCB(truth, horizon=ROUNDS, radius=0.0),
    }


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret by signal, N and policy, `ratio` that of LOCAL-UCB's to it; without `users`, all N pooled.

    `share` is LOCAL-UCB's regret less the policy's over LinUCB's, `share_upper` and `share_upper_worlds` its upper
    limits.
    """
    parts = [_one_world(rows.filter(world=name)).select(pl.lit(name).alias("world"), pl.all()) for name in WORLDS]
    return pl.concat(parts, how="vertical_relaxed")


def _one_world(rows: pl.DataFrame) -> pl.DataFrame:
    """Every N, with the mean radius; the rate; and all N pooled."""
    own = compared(rows, LOCAL, ["users"], ["seed", "user"])
    radii = rows.group_by("users").agg(radius=pl.col("radius").mean())
    parts = [own.join(radii, on="users", maintain_order="left"), rates(own), pooled(rows)]
    return pl.concat(parts, how="diagonal_relaxed").sort("users", nulls_last=True, maintain_order=True)


def rates(own: pl.DataFrame) -> pl.DataFrame:
    """The minimax rate at each N, in units of LinUCB's mean regret over d sqrt T.

    Divided by d sqrt T it is min(1, (k / d) (1 + sqrt(d T / (k N)))): LinUCB's regret at worst, k / d of it at best.
    """
    constant = own.filter(policy=LINEAR)["regret"].mean()
    sizes = own["users"].unique().sort()
    whole = online_regret(DIM, ROUNDS)
    share = pl.Series([minimax_regret(DIM, RANK, users, ROUNDS) / whole for users in sizes])
    return pl.DataFrame({"users": sizes}).with_columns(
        policy=pl.lit(RATE), regret=share * pl.lit(constant), regret_se=pl.lit(0.0)
    )


def pooled(rows: pl.DataFrame) -> pl.DataFrame:
    """All N together: regrets, and LOCAL-UCB's less each other's as shares of LinUCB's.

    A unit is a newcomer, averaged over N, or, for the second limit, a world with all its newcomers.
    """
    newcomers, worlds = (_excess(rows, unit) for unit in (["seed", "user"], ["seed"]))
    limits = worlds.select("policy", share_upper_worlds="share_upper")
    own = compared(rows, LOCAL, [], ["seed", "user"])
    return own.join(newcomers, on="policy", maintain_order="left").join(limits, on="policy", maintain_order="left")


def _excess(rows: pl.DataFrame, unit: Sequence[str]) -> pl.DataFrame:
    """LOCAL-UCB's regret less each policy's, as a `share` of LinUCB's, and the upper end of its t-interval."""
    pairs = paired(rows, LOCAL, [], unit)
    linear = pairs.filter(policy=LINEAR)["regret"].mean()
    found = t_intervals(pairs, pl.col("base") - pl.col("regret"), ["policy"], level=LEVEL)
    return found.select("policy", share=pl.col("mean") / linear, share_upper=pl.col("high") / linear)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against the number of offline users."""
    y = Axis("regret", f"regret after {ROUNDS} rounds", log=True)
    return draw_lines(frame.drop_nulls("users"), path, x=SIZE, y=y, error="regret_se", facet="world", marked=True)


STUDY = study(
    "local-regret",
    claim="Where the subspace is learnable LOCAL-UCB costs no more than ProBALL-UCB, up to 5% of LinUCB's regret; "
    "where it is weak it costs more.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
