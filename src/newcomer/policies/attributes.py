"""Attributes of users at serving: checked, encoded by the model's schema, and taken into the prior of a state.

States keep the shift of the prior that attributes give, never the attributes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError, PolicyError
from newcomer.linear import ridge
from newcomer.linear.ridge import Ridge, ridge_packed_size
from newcomer.model import Model
from newcomer.policies.actions import Described


def encoded_attributes(model: Model, given: Any, users: Ints) -> Floats | None:
    """The attributes (m, p) of `users` (m,) as the model takes them; None, said once, if the model has none."""
    if not model.attributes:
        if not model.__dict__.get("_told_of_attributes"):
            model.__dict__["_told_of_attributes"] = True
            why = "found none that help" if model.evidence.attributes else "was fitted without attributes of users"
            warnings.warn(f"the model {why}, so these change nothing. This warning is shown once.", stacklevel=5)
        return None
    try:
        x = model.encode(given)
    except ModelError as error:
        raise PolicyError(error.what, where=error.where, todo=error.todo) from error
    if len(x) != len(users):
        what = f"attributes are of {len(x):,} users, and {len(users):,} were asked about"
        raise PolicyError(what, todo="pass one value a user, None where it is unknown")
    if len(np.unique(users)) != len(users):
        raise PolicyError("a user comes twice", where="users=", todo="name each user once")
    return x


def widened_for_attributes(array: Floats, width: int) -> Floats:
    """A copy of the array (n, width); zeros where it was (n, 0)."""
    return array.copy() if array.shape[1] else np.zeros((len(array), width))


def condition_on_attributes(
    model: Model, system: Ridge, shift: Floats, known: Floats, users: Ints, x: Floats
) -> tuple[Floats, Floats]:
    """Let systems of z start from the prior given encoded attributes (m, p) of `users` (m,), and not from `shift` (n,
    k) and `known` (n, packed), the mean and the precision beyond the identity that they started from; the new ones.

    Information adds up in any order, so the posterior is as if attributes had been known from the start.
    """
    rank = system.dim
    mean, covariance = model.attribute_prior.given(x)
    precision = np.linalg.inv(covariance)
    shift, known = widened_for_attributes(shift, rank), widened_for_attributes(known, ridge_packed_size(rank))
    before = ridge.symmetric_ridge(known[users], rank) + np.eye(rank)
    moment = np.einsum("nij,nj->ni", precision, mean) - np.einsum("nij,nj->ni", before, shift[users])
    ridge.inform_ridge(system, users, precision - before, moment)
    shift[users], known[users] = mean, ridge.pack_ridge(precision - np.eye(rank))
    return shift, known


def shifted_by_attributes(model: Model, seen: Described, shift: Floats) -> Described:
    """Candidates (m, K) as users meet them whose attributes shift z by `shift` (m, k): means, and, of clicks, loadings
    of what attributes leave of z, all of them being known.
    """
    seen = seen._replace(population_mean=seen.population_mean + np.einsum("mak,mk->ma", seen.loadings, shift))
    if model.outcome == "gaussian":
        return seen
    left = model.attribute_prior.given(np.zeros((1, model.attribute_effects.shape[1])))[1][0]
    narrow = seen.loadings @ np.linalg.cholesky(left)
    moved = np.any(shift != 0.0, axis=1, keepdims=True)[:, :, None]
    return seen._replace(loadings=np.where(moved, narrow, seen.loadings))
