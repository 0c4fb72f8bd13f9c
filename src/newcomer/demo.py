"""The demo: logs of users who share two hidden directions of fifty, and what a fit finds in them.

The world is the learnable setting of the paper's simulation study, so the truth is known and the answer can be held
against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from newcomer.model import Model
    from newcomer.worlds.synthetic import Synthetic

USERS, STEPS = 5000, 20
LOGS, MODEL = "logs.parquet", "model.newcomer"


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
