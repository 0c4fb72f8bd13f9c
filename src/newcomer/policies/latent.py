"""What the policies with finitely many models of users share: checked models and weights, promises, posterior draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from newcomer.errors import PolicyError
from newcomer.linear.state import State
from newcomer.policies import base
from newcomer.policies.base import Floats, Ints, Offer

NOISE_SD = 0.5  # of the paper's simulation; its MovieLens study has sqrt(0.5)


def models(centers: ArrayLike) -> Floats:
    """Models as a read-only (S, d) array, checked."""
    given = np.array(base.floats(centers, "centers"))
    if given.ndim != 2 or 0 in given.shape or not np.isfinite(given).all():
        raise PolicyError(f"centers must be a finite (S, d) array, not {given.shape}")
    given.flags.writeable = False
    return given


def shares(weights: ArrayLike | None, count: int) -> Floats:
    """Prior weights (S,) that sum to one; equal if none are given."""
    given = np.ones(count) if weights is None else np.array(base.floats(weights, "weights"))
    if given.shape != (count,) or not np.isfinite(given).all() or not (given > 0).all():
        raise PolicyError(f"weights must be {count} positive numbers", todo="leave out a model of weight zero")
    normal: Floats = given / given.sum()
    return normal


def positive(value: float, name: str) -> None:
    """Refuse a hyperparameter that is not a finite number above zero."""
    base.number(value, name)
    if value == 0:
        raise PolicyError(f"{name} must be above zero")


def own(state: State, kind: type[State], count: int, who: str) -> State:
    """Refuse a state that another policy started, or one with another number of models."""
    if type(state) is not kind or next(state.arrays())[1].shape[1:] != (count,):
        raise PolicyError(f"{who} was given a {type(state).__name__} that it did not start")
    return state


def promised(centers: Floats, asked: Offer) -> Floats:
    """phi_a . m_s (m, K, S): one small product for each user, never one across users."""
    with np.errstate(invalid="ignore", over="ignore"):
        products: Floats = asked.actions @ centers.T
    return np.broadcast_to(products, (len(asked.users), *products.shape[1:]))


def rewarded(centers: Floats, features: Floats) -> Floats:
    """phi . m_s (m, S), one product for each row."""
    products: Floats = (features[:, None, :] @ centers.T)[:, 0, :]
    return products


def posterior(log_weights: Floats) -> Floats:
    """Weights that sum to one from logarithms known up to a constant, along the last axis."""
    raw = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    normal: Floats = raw / raw.sum(axis=-1, keepdims=True)
    return normal


def draw(chances: Floats, rngs: Sequence[np.random.Generator]) -> Ints:
    """One model (m,) for each row of probabilities (m, S), by one uniform number from the row's generator."""
    uniform = np.array([rng.random() for rng in rngs])
    above = np.cumsum(chances, axis=1) > uniform[:, None]
    drawn: Ints = np.where(above.any(axis=1), above.argmax(axis=1), chances.shape[1] - 1).astype(np.int64)
    return drawn


def waves(users: Ints) -> Iterator[Ints]:
    """Rows in groups in which no user occurs twice; the rows of a user come in order, in successive groups."""
    left = np.arange(len(users))
    while left.size:
        first = np.sort(np.unique(users[left], return_index=True)[1])
        yield left[first]
        left = np.delete(left, first)
