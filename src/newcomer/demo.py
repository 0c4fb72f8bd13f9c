"""The demo: logs of users who share two hidden directions of fifty, what a fit finds in them, what newcomers gain.

The world is the learnable setting of the paper's simulation study, so the truth is known: the answer can be held
against it, and regret can be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

    from newcomer.model import Model
    from newcomer.simulation import Player
    from newcomer.worlds.synthetic import Synthetic

Floats = NDArray[np.float64]

USERS, STEPS = 5000, 20
NEWCOMERS, ROUNDS = 100, 200
LOGS, MODEL, PICTURE = "logs.parquet", "model.newcomer", "regret.png"


@dataclass(frozen=True)
class Learned:
    """A fit and its distance from the truth: `distance` (sine of the largest angle) and that of a blind guess."""

    model: Model
    distance: float
    blind: float


def make_world(seed: int = 0) -> Synthetic:
    """Users with two hidden directions in fifty features, strong enough to be learned."""
    from newcomer.worlds.synthetic import Synthetic

    return Synthetic.learnable(seed=seed)


def make_logs(world: Synthetic, folder: Path, *, seed: int = 0) -> Path:
    """Write logs of a uniform logging policy as Parquet; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    world.write_logs(folder / LOGS, USERS, STEPS, seed)
    return folder / LOGS


def learn(world: Synthetic, path: Path) -> Learned:
    """Fit the logs at `path`, save the model beside them and measure it against the world."""
    from newcomer import read_logs
    from newcomer.fitting import fit
    from newcomer.subspace import distance

    model = fit(read_logs(path))
    model.save(path.with_name(MODEL))
    blind = np.linalg.qr(np.random.default_rng(0).standard_normal(world.basis.shape))[0]
    return Learned(model, distance(model.basis, world.basis), distance(blind, world.basis))


def meet_newcomers(world: Synthetic, model: Model, *, seed: int = 0) -> pl.DataFrame:
    """Rows of `play`: policies with and without the logs meet the same hundred newcomers."""
    from newcomer import LinUCB, PopulationMean, PriorUCB, ProBALLUCB, Uniform, play

    policies: dict[str, Player] = {}
    if model.rank:
        policies = {"PriorUCB": PriorUCB(model), "ProBALL-UCB": ProBALLUCB(model, horizon=ROUNDS)}
    policies["LinUCB"] = LinUCB(world.dim, horizon=ROUNDS)
    policies["PopulationMean"] = PopulationMean(model)
    policies["Uniform"] = Uniform()
    return play(policies, world, horizon=ROUNDS, users=NEWCOMERS, seed=seed, progress=False)


def regret_lines(rows: pl.DataFrame) -> dict[str, tuple[Floats, Floats]]:
    """Mean cumulative regret (y) of each policy against the round (x)."""
    from newcomer.outcomes import curves

    lines = curves(rows).partition_by("policy", as_dict=True, maintain_order=True)
    return {str(name): (line["t"].to_numpy(), line["regret"].to_numpy()) for (name,), line in lines.items()}


def draw(rows: pl.DataFrame, folder: Path) -> Path:
    """The regret curves as a picture."""
    from newcomer.charts.pictures import regret_curves

    return regret_curves(rows, folder / PICTURE, title=f"{NEWCOMERS} newcomers, {ROUNDS} rounds")
