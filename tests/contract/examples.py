"""Examples of every public policy, and models for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import newcomer as nc
from newcomer.model import Model


def make_model(dim, rank, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
    return Model(basis, np.ones(dim), rng.standard_normal(dim), basis.copy(), 1.0)


def with_catalogue(dim, rank, *, one_hot=True, persistence=None):
    """A model with a catalogue: of unit vectors, or of features of their own, of which no two are equal."""
    actions = dim if one_hot else 7
    features = None if one_hot else np.random.default_rng(3).standard_normal((actions, dim))
    named = {"action_ids": tuple(range(actions)), "action_features": features, "one_hot": one_hot}
    residual = {"residual_variance": np.linspace(0.5, 1.5, actions), "persistence": persistence}
    offsets = np.zeros(actions) if one_hot else np.linspace(-0.3, 0.3, actions)
    return replace(make_model(dim, rank), **named, **residual, offsets=offsets)


def make_centers(dim):
    return np.random.default_rng(1).standard_normal((3, dim))


def literal(dim, **more):
    return {"horizon": 20, "radius": 1.0, **more}


# For each public policy, examples in its typical situations, for features of `dim` entries and a model of `rank`.
EXAMPLES = {
    "Uniform": lambda dim, rank: [nc.Uniform()],
    "PopulationMean": lambda dim, rank: [nc.PopulationMean(make_model(dim, rank))],
    "LinUCB": lambda dim, rank: [nc.LinUCB(dim, horizon=20)],
    "LinTS": lambda dim, rank: [nc.LinTS(dim, horizon=20, votes=20)],
    "ProBALLUCB": lambda dim, rank: [
        nc.ProBALLUCB(make_model(dim, rank), **settings)
        for settings in (
            literal(dim, tau=0.0),
            literal(dim, tau=dim / 3),
            literal(dim, tau=dim / 9, tau_prime=0.5, widths="theoretical"),
            literal(dim, exit="savings", reward_bound=0.6),
            literal(dim, exit="containment", reward_bound=0.6),
        )
    ],
    "ProBALLTS": lambda dim, rank: [
        nc.ProBALLTS(make_model(dim, rank), votes=20, **settings)
        for settings in (
            literal(dim, tau=1e9),
            literal(dim, tau=dim / 3, tau_prime=0.1),
            literal(dim, exit="savings", reward_bound=0.6),
            literal(dim, exit="containment", reward_bound=0.6),
        )
    ],
    "LocalUCB": lambda dim, rank: [nc.LocalUCB(make_model(dim, rank), horizon=20, radius=0.5, reward_bound=4.0)],
    "PriorUCB": lambda dim, rank: [nc.PriorUCB(make_model(dim, rank), level=level) for level in (0.0, 0.1, 0.9)],
    "PriorTS": lambda dim, rank: [nc.PriorTS(make_model(dim, rank), level=level, votes=20) for level in (0.1, 0.9)],
    "EmpiricalArms": lambda dim, rank: [
        nc.EmpiricalArms(with_catalogue(dim, rank), width=width) for width in (0.0, 0.5)
    ],
    "MUCB": lambda dim, rank: [nc.MUCB(make_centers(dim), horizon=20)],
    "MmUCB": lambda dim, rank: [nc.MmUCB(make_centers(dim), 0.1, horizon=20)],
    "MTS": lambda dim, rank: [nc.MTS(make_centers(dim))],
    "MmTS": lambda dim, rank: [nc.MmTS(make_centers(dim), variances=0.3, votes=20)],
    "MixTS": lambda dim, rank: [nc.MixTS(make_centers(dim), covariances=0.3 * np.eye(dim), votes=20)],
}


SITUATIONS = [(name, place) for name, make in EXAMPLES.items() for place in range(len(make(5, 2)))]


def rank_16(actions=200):
    """A model of one-hot actions with everything that a fit gives it; how much repeats is not known."""
    rng = np.random.default_rng(0)
    factor = 0.2 * rng.standard_normal((actions, 16))
    return nc.Model(
        np.linalg.qr(factor)[0],
        np.ones(actions),
        3.0 + 0.5 * rng.standard_normal(actions),
        factor,
        0.8,
        action_ids=tuple(range(actions)),
        one_hot=True,
        persistence=None,
        residual_variance=rng.uniform(0.6, 1.1, actions),
        uncertainty=rng.uniform(0.0, 0.1, actions),
        error_scales=np.array([[0.5, 1.0, 2.0], [0.3, 0.4, 0.3]]),
    )
