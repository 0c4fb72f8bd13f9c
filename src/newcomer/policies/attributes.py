"""Attributes of users at serving: checked, encoded by the model's schema, and taken into the prior of a state.

States keep the shift of the prior that attributes give, never the attributes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError, PolicyError
from newcomer.model import Model


def encoded(model: Model, given: Any, users: Ints) -> Floats | None:
    """The attributes (m, p) of `users` (m,) as the model takes them; None, said once, if the model has none."""
    if not model.attributes:
        if not model.__dict__.get("_told_of_attributes"):
            model.__dict__["_told_of_attributes"] = True
            why = "found none that help" if model.evidence.attributes else "was fitted without attributes of users"
            warnings.warn(f"the model {why}, so that these change nothing. This is said once.", stacklevel=5)
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


def widened(array: Floats, width: int) -> Floats:
    """A copy of the array (n, width); zeros where it was (n, 0)."""
    return array.copy() if array.shape[1] else np.zeros((len(array), width))
