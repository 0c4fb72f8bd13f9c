"""How wide a confidence set is: the practical widths of the paper's experiments, and those of its theorem.

practical     0.33 sqrt(dim log(1 + 10 T / dim)), after Li et al. (2010); no guarantee, good in practice
theoretical   R + C R sqrt(dim log(T / delta)), R bounding the reward vector's norm and the noise, C universal; C = 1
              is the usual reading, and what makes the regret bounds of LinUCB and ProBALL-UCB hold; LOCAL-UCB, which
              needs two ellipsoids at once, has log(2 T / delta)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np

from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.validate import show_invalid_value, validate_instance, validate_number, validate_one_of, validate_share

NAMES = ("practical", "theoretical")


@dataclass(frozen=True)
class Theory:
    """What the theorem's widths depend on: reward bound R, failure probability delta, the constant C."""

    bound: float = 1.0
    delta: float = 0.05
    constant: float = 1.0

    def __post_init__(self) -> None:
        validate_number(self.bound, "bound")
        validate_number(self.constant, "constant")
        validate_share(self.delta, "delta", least=1.0, todo="pass a number between 0 and 1")


DEFAULT = Theory()


def practical_width(dim: int, horizon: int) -> float:
    """0.33 sqrt(dim log(1 + 10 T / dim)).

    >>> round(practical_width(2, 200), 3)
    1.227
    """
    return 0.33 * sqrt(dim * log(1 + 10 * horizon / dim))


def theoretical_width(dim: int, horizon: int, theory: Theory, *, ellipsoids: int = 1) -> float:
    """R + C R sqrt(dim log(e T / delta)) for e ellipsoids that must hold together, for V that starts at the identity.

    >>> round(theoretical_width(2, 200, Theory()), 3)
    5.073
    """
    return theory.bound + theory.constant * theory.bound * sqrt(dim * log(ellipsoids * horizon / theory.delta))


def resolve_widths(
    widths: str | float | Sequence[float], dims: Sequence[int], horizon: int, theory: Theory, *, ellipsoids: int = 1
) -> tuple[float, ...]:
    """One width for each dimension, from a name or from the widths themselves.

    `ellipsoids` says of how many the policy needs the theory to hold together.

    >>> resolve_widths((0.5, 2.0), [2, 10], 200, DEFAULT)
    (0.5, 2.0)
    """
    if isinstance(widths, str):
        return tuple(_named_width(widths, dim, horizon, theory, ellipsoids=ellipsoids) for dim in dims)
    validate_instance(theory, Theory, "theory")
    several = isinstance(widths, Sequence) or (isinstance(widths, np.ndarray) and widths.ndim == 1)
    given: tuple[Any, ...] = tuple(widths) if several else (widths,)  # type: ignore[arg-type]
    if len(given) != len(dims):
        raise PolicyError(f"widths must be a name or {len(dims)} numbers, not {show_invalid_value(widths)}")
    return tuple(validate_number(width, "widths") for width in given)


def _named_width(name: str, dim: int, horizon: int, theory: Theory, *, ellipsoids: int = 1) -> float:
    """The width of this name."""
    validate_one_of(name, "widths", NAMES)
    return (
        practical_width(dim, horizon)
        if name == "practical"
        else theoretical_width(dim, horizon, theory, ellipsoids=ellipsoids)
    )


def plug_in_width_bound(model: Model) -> float:
    """R without a guarantee: the larger of the largest reward in the logs and |mean| + 3 sd of the prior of beta."""
    seen = model.evidence.radius.reward_bound if model.evidence.radius else 0.0
    spread = float(np.linalg.norm(model.mean) + 3.0 * np.linalg.norm(model.factor))
    return max(seen, spread) or float(np.inf)
