"""The rates of the theorems under what is measured: Reg_on, Reg_hyb and Delta_off against the number of offline users.

d = 20, k = 2, learnable scale, 20 steps a user, T = 400 rounds, ten worlds with ten newcomers each; SOLD with ridge 1
and the true rank; ProBALL-UCB with practical widths, kept in the subspace (radius 0), so that what it loses beyond k
sqrt(T) is the subspace's error. Every rate is multiplied by one number, which makes Reg_on = d sqrt(T) LinUCB's regret;
1 / (lambda_A^3 lambda_theta) is taken as 1. Reg_hyb is drawn with kappa as measured on the actions that were taken, and
with kappa at its bound sqrt(t). The rate of Delta_off, sqrt(k d log(d / delta) / N), passes through the measured error
at the largest N. A rate says how a quantity falls, not how large it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import SIZE
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.theory.guarantees import hybrid_regret, online_regret, radius_rate
from newcomer.simulate import simulated_mean_and_error
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import world_stream

DIM, RANK, STEPS, ROUNDS, NEWCOMERS = 20, 2, 20, 400, 10
SIZES, SEEDS = (200, 500, 1000, 2000, 5000, 20_000), 10
LINEAR, OURS, ERROR, KAPPA = "LinUCB", "ProBALL-UCB, in the subspace", "SOLD", "mean kappa^2"
ON, MEASURED, WORST = "Reg_on, scaled", "Reg_hyb, scaled, kappa as measured", "Reg_hyb, scaled, kappa = sqrt(t)"
RADIUS = "Delta_off rate, scaled"
REGRETS, ERRORS = f"regret after {ROUNDS} rounds", "subspace error (Frobenius)"


def sweep(scale: Scale) -> list[Point]:
    """Every world and number of offline users."""
    sizes, seeds = ((200, 1000), 2) if scale.quick else (SIZES, SEEDS)
    return [{"users": users, "seed": seed} for seed in range(1, seeds + 1) for users in sizes]


def run(setting: Setting, *, users: int, seed: int) -> pl.DataFrame:
    """Mean regret of newcomers with and without the subspace, its error, and the mean of kappa^2."""
    place = Synthetic(dim=DIM, rank=RANK, seed=seed)
    model = fit(place.logs(users, STEPS, seed), rank=RANK, estimator="sold", ridge=1.0, null=False, calibrate=False)
    found = {
        LINEAR: served(nc.LinUCB(DIM, horizon=ROUNDS), place, seed)[0],
        ERROR: subspace_distance(model.basis, place.basis, norm="frobenius"),
    }
    found[OURS], taken = served(nc.ProBALLUCB(model, horizon=ROUNDS, radius=0.0), place, seed)
    found[KAPPA] = float(np.mean([mean_square_kappa(rows, model.basis) for rows in taken]))
    return pl.DataFrame({"users": users, "seed": seed, "policy": list(found), "value": list(found.values())})


def served(policy: Any, place: Synthetic, seed: int) -> tuple[float, Floats]:
    """Mean regret of the newcomers of a seed, and the features (n, T, d) of the actions they were given."""
    episodes = [place.episode(world_stream(seed, "rates", user), ROUNDS) for user in range(NEWCOMERS)]
    state, everyone = policy.start(NEWCOMERS), np.arange(NEWCOMERS)
    actions, means, rewards = (
        np.stack([getattr(e, name) for e in episodes]) for name in ("actions", "means", "rewards")
    )
    regret, taken = 0.0, np.empty((NEWCOMERS, ROUNDS, DIM))
    for t in range(ROUNDS):
        chosen = policy.choose(state, actions[:, t])
        taken[:, t] = actions[everyone, t, chosen]
        regret += float((means[:, t].max(axis=1) - means[everyone, t, chosen]).mean())
        policy.update(state, taken[:, t], rewards[everyone, t, chosen])
    return regret, taken


def mean_square_kappa(rows: Floats, basis: Floats) -> float:
    """The mean over t = 1, ..., T of kappa_t^2, kappa_t = |U^T sum_{s < t} phi phi^T|_{(U^T V_t U)^-1}, V_1 = I.

    >>> mean_square_kappa(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0], [0.0]]))  # kappa_1 = 0, kappa_2^2 = 1/2
    0.25
    """
    low = rows @ basis
    cross, small = np.zeros((basis.shape[1], rows.shape[1])), np.eye(basis.shape[1])
    total = 0.0
    for phi, z in zip(rows[:-1], low[:-1], strict=True):
        cross += np.outer(z, phi)
        small += np.outer(z, z)
        total += float(np.linalg.eigvals(np.linalg.solve(small, cross @ cross.T)).real.max())
    return total / len(rows)


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Measured means with their errors, and the rates beside them; `panel` says which picture a line is in."""
    measured = (
        rows.group_by("users", "policy", maintain_order=True).agg(**simulated_mean_and_error("value")).sort("users")
    )
    return pl.concat(
        [
            measured.with_columns(
                panel=pl.col("policy").replace_strict({ERROR: ERRORS, KAPPA: KAPPA}, default=REGRETS)
            ),
            _rates(measured),
        ],
        how="vertical_relaxed",
    )


def _rates(measured: pl.DataFrame) -> pl.DataFrame:
    """Reg_on and Reg_hyb in units in which Reg_on is LinUCB's regret, and the rate of Delta_off."""
    scale = float(measured.filter(policy=LINEAR)["value"].mean()) / online_regret(DIM, ROUNDS)  # type: ignore[arg-type]
    sizes = measured["users"].unique().sort().to_list()
    kappas = dict(measured.filter(policy=KAPPA).select("users", "value").iter_rows())
    errors = dict(measured.filter(policy=ERROR).select("users", "value").iter_rows())
    last = errors[sizes[-1]] / radius_rate(DIM, RANK, sizes[-1])
    lines = [
        row
        for users in sizes
        for row in (
            (users, ON, scale * online_regret(DIM, ROUNDS), REGRETS),
            (users, MEASURED, scale * hybrid_regret(DIM, RANK, users, ROUNDS, squares=kappas[users]), REGRETS),
            (users, WORST, scale * hybrid_regret(DIM, RANK, users, ROUNDS), REGRETS),
            (users, RADIUS, last * radius_rate(DIM, RANK, users), ERRORS),
        )
    ]
    frame = pl.DataFrame(lines, schema=["users", "policy", "value", "panel"], orient="row")
    return frame.with_columns(value_se=pl.lit(0.0)).select("users", "policy", "value", "value_se", "panel")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret and subspace error against N, the rates beneath them."""
    y = Axis("value", "measured, and the rate", log=True)
    shown = frame.filter(pl.col("panel") != KAPPA)
    return draw_lines(shown, path, x=SIZE, y=y, error="value_se", facet="panel", columns=2, marked=True)


STUDY = study(
    "rates",
    claim="The subspace error falls with N as the rate of Delta_off does; regret is shown beside Reg_on and Reg_hyb.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
