"""Subspace error of every estimator beside an oracle: SOLD, its pseudo-inverse form, all pairs, EM, and least squares
that knows theta.

World of the simulation study (d = 50, k = 2, 5000 users of 20 steps, noise 0.5) with entries of U up to 1.25, 0.5 and
0.25; the true rank is given to all. The oracle regresses rewards on phi x theta_n, which no estimator can: users'
latent states are what is hidden.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.em.pairs import DensePairs, dense_pairs_of
from newcomer.logs.reduce import reduce
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means
from newcomer.simulate import simulated_mean_and_error
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.worlds.synthetic import Synthetic

SCALES, STEPS, RANK, RIDGE = (1.25, 0.5, 0.25), 20, 2, 1.0


def sweep(scale: Scale) -> list[Point]:
    """Every signal strength and world."""
    users, seeds = (1000, 2) if scale.quick else (5000, 20)
    return [{"scale": entry, "users": users, "seed": seed} for entry in SCALES for seed in range(1, seeds + 1)]


def run(setting: Setting, *, scale: float, users: int, seed: int) -> pl.DataFrame:
    """Spectral errors of all estimators on the same logs."""
    world = Synthetic(scale=scale, seed=seed)
    logs = world.logs(users, STEPS, seed=seed)
    bases = {
        "EM": fit(logs, rank=RANK, null=False, calibrate=False).basis,
        "SOLD": fit(logs, rank=RANK, estimator="sold", ridge=RIDGE, null=False).basis,
        "SOLD, pseudo-inverse": fit(logs, rank=RANK, estimator="sold-pinv", null=False).basis,
        "all pairs": all_pairs(reduce(logs, dense_pairs_of, DensePairs.__add__), RANK),
        "known theta": known_theta(world, users, seed),
    }
    errors = [subspace_distance(basis, world.basis) for basis in bases.values()]
    return pl.DataFrame({"scale": scale, "users": users, "seed": seed, "estimator": list(bases), "error": errors})


def all_pairs(pairs: DensePairs, rank: int) -> Floats:
    """Leading directions of C^-1 mean[(b b^T - sum phi phi^T r^2) / (H (H - 1))] C^-1.

    b b^T - sum phi phi^T r^2 is the sum over all ordered pairs of different rows of a user, whose noises are
    independent, so no noise term is left in its mean; C is the mean of phi phi^T over rows, which takes the features
    out again.
    """
    whiten = np.linalg.inv(pairs.gram.sum(axis=0) / pairs.rows.sum())
    moment = whiten @ (pairs.products.sum(axis=0) / pairs.pairable.sum()) @ whiten
    basis: Floats = top_eigenvectors((moment + moment.T) / 2, rank)[1]
    return basis


def known_theta(world: Synthetic, users: int, seed: int) -> Floats:
    """The span of the least-squares U when every theta_n is known: a floor for estimators that must guess it.

    The same histories drawn without noise reveal theta_n exactly.
    """
    clean = replace(world, noise=0.0)
    size = world.dim * world.rank
    gram, cross = np.zeros((size, size)), np.zeros(size)
    for noisy, exact in zip(world.histories(users, STEPS, seed), clean.histories(users, STEPS, seed), strict=True):
        theta = _latents(exact.features, exact.reward, world.factor)
        design = (noisy.features.reshape(len(theta), -1, world.dim, 1) * theta[:, None, None, :]).reshape(-1, size)
        gram += design.T @ design
        cross += design.T @ noisy.reward
    factor = np.linalg.solve(gram, cross).reshape(world.dim, world.rank)
    return np.asarray(np.linalg.qr(factor)[0])


def _latents(features: Floats, rewards: Floats, factor: Floats) -> Floats:
    """theta (n, k) of each user, exactly, from rewards without noise."""
    latent = (features @ factor).reshape(-1, STEPS, factor.shape[1])
    gram = np.einsum("nhk,nhl->nkl", latent, latent)
    cross = np.einsum("nhk,nh->nk", latent, rewards.reshape(-1, STEPS))
    return np.asarray(np.linalg.solve(gram, cross[:, :, None])[:, :, 0])


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean error with its standard error, and EM's mean error as a share of it, paired by world."""
    em = rows.filter(estimator="EM").select("scale", "seed", em="error")
    paired = rows.join(em, on=["scale", "seed"], maintain_order="left")
    groups = paired.group_by("scale", "estimator", maintain_order=True)
    return groups.agg(worlds=pl.len(), **simulated_mean_and_error("error"), **ratio_of_means("em", "error"))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Error against signal strength."""
    return draw_lines(
        frame,
        path,
        x=Axis("scale", "entries of U up to", log=True),
        y=Axis("error", "spectral error of the subspace", log=True),
        series="estimator",
        error="error_se",
        marked=True,
    )


STUDY = study(
    "prior-subspace",
    claim="From the same logs EM comes closer to the subspace than SOLD.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
