"""Models with attributes of users, small enough for a dense Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.em.attributes import population_with_attributes
from newcomer.encoding import Column
from newcomer.model import Model

COLUMNS = (Column("age", "number", 40.0, 10.0), Column("plan", "level", levels=("free", "paid"), shares=(0.7, 0.3)))
C = np.array([[1.0, 0.05, -0.05], [0.05, 0.21, -0.21], [-0.05, -0.21, 0.21]])


def parts(dim: int = 5, rank: int = 2, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=dim), rng.normal(size=(dim, rank)), 0.4 * rng.normal(size=(dim, 3))


def model_of(m: Floats, L: Floats, B: Floats, **more: Any) -> Model:
    prior, factor = population_with_attributes(L, B, C)
    given = {"attributes": COLUMNS, "attribute_effects": prior.effects, "attribute_covariance": C}
    basis = np.linalg.qr(factor)[0][:, :2]
    return Model(basis, np.ones(len(m)), m, factor, 0.5, **{**given, **more})


def one_hot(**more: Any) -> Model:
    return model_of(*parts(), one_hot=True, action_ids=tuple("abcde"), persistence=0.3, **more)
