"""reward-seeking-logger: does SOLD survive when its assumption, behaviour independent of taste, fails?

"SOLD can learn a good subspace ... when high-reward actions contribute heavily; this can happen if offline
trajectories were collected to maximize rewards" (the paper, after its Assumption 1). Here the logger sees 20
candidates and takes one with probability proportional to exp(s phi . beta): uniform at s = 0, nearly always the best
at the largest s. It knows the true beta, so this is the strongest dependence there is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.logs import Logs
from newcomer.paper.figure import Point, swept
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.worlds.biased_logs import biased_softmax_choice
from newcomer.simulate import simulated_mean_and_error
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import world_stream

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # how hard the logger seeks reward
WORLDS = {"learnable (entries up to 2.5/k)": 1.25, "weak (entries up to 0.5)": 0.5}
ESTIMATORS = {"SOLD": ("sold", 1.0), "SOLD, pseudo-inverse": ("sold-pinv", None)}
BLOCK = 250  # users drawn together


def sweep(scale: Scale) -> list[Point]:
    """Every world, strength and data set."""
    return [
        {"world": name, "strength": strength, "seed": seed}
        for name in WORLDS
        for strength in STRENGTHS
        for seed in range(1, scale.repeats + 1)
    ]


def run(setting: Setting, *, world: str, strength: float, seed: int) -> pl.DataFrame:
    """Errors of the estimators on one data set, and how much of the best reward the logger got."""
    place, scale = Synthetic(scale=WORLDS[world], seed=seed), setting.sizes
    logs, greed = seeking_logs(place, scale.users, scale.steps, strength, seed)
    errors = []
    for estimator, ridge in ESTIMATORS.values():
        model = fit(logs, rank=place.rank, estimator=estimator, ridge=ridge, null=False)
        errors.append(subspace_distance(model.basis, place.basis, norm="frobenius"))
    where = {"world": world, "strength": strength, "seed": seed}
    return pl.DataFrame({**where, "estimator": list(ESTIMATORS), "error": errors, "greed": greed})


def seeking_logs(place: Synthetic, users: int, steps: int, strength: float, seed: int) -> tuple[Logs, float]:
    """Logs of the softmax logger, and its mean reward as a share of the best on offer.

    Users are drawn in blocks, each from a stream of its own, because all candidates of a block (users, steps, 20, d)
    are in memory at once.
    """
    parts = [
        _block(place, world_stream(seed, "seeking logger", first // BLOCK), min(BLOCK, users - first), steps, strength)
        for first in range(0, users, BLOCK)
    ]
    features, rewards, greed = zip(*parts, strict=True)
    user = np.repeat(np.arange(users), steps)
    logs = Logs.from_arrays(user=user, features=np.concatenate(features), reward=np.concatenate(rewards))
    gained, best = np.concatenate(greed, axis=1).sum(axis=1)
    return logs, float(gained / best)


def _block(
    place: Synthetic, rng: np.random.Generator, users: int, steps: int, strength: float
) -> tuple[Floats, Floats, Floats]:
    """Features (rows, d), rewards (rows,), and the means chosen and best (2, rows) of some users."""
    betas = rng.standard_normal((users, place.rank)) / np.sqrt(place.rank) @ place.factor.T
    offers = rng.standard_normal((users, steps, place.choices, place.dim))
    offers /= np.linalg.norm(offers, axis=-1, keepdims=True)
    means = np.einsum("nhkd,nd->nhk", offers, betas)
    chosen = biased_softmax_choice(rng, strength * means)[..., None]
    taken = np.take_along_axis(means, chosen, axis=2)[..., 0]
    features = np.take_along_axis(offers, chosen[..., None], axis=2)[:, :, 0]
    rewards = taken + place.noise * rng.standard_normal(taken.shape)
    return features.reshape(-1, place.dim), rewards.ravel(), np.stack([taken.ravel(), means.max(axis=2).ravel()])


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean error over data sets and its standard error; `greed` is the share of the best reward that the logger got."""
    groups = rows.group_by("world", "estimator", "strength", maintain_order=True)
    return groups.agg(**simulated_mean_and_error("error"), greed=pl.col("greed").mean())


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Error against the share of the best reward that the logger gets, a panel for each world."""
    x, y = Axis("greed", "logger's reward / best on offer"), Axis("error", "subspace error (Frobenius)")
    return draw_lines(frame, path, x=x, y=y, series="estimator", error="error_se", facet="world", marked=True)


def caption(scale: Scale) -> str:
    """What has been done."""
    return (
        f"d = 50, k = 2, {scale.users:,} users of {scale.steps} steps, noise sd 0.5, the true rank, ridge mu = 1; "
        f"mean over {scale.repeats} worlds, bands of one standard error. Left end: uniform logger; a logger that "
        "always takes the best of its 20 candidates is at 1. The largest possible error is 2."
    )


FIGURES = (
    swept(
        "reward-seeking-logger",
        claim="Even with behaviour that depends on the user SOLD can learn a good subspace if rewards were sought.",
        caption=caption,
        sweep=sweep,
        run=run,
        table=table,
        draw=draw,
    ),
)
