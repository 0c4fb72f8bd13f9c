"""What directions mean: the actions at both ends of each, by name.

Rewards differ between people by f_a . z with f_a = L^T phi_a, a row of F (A, k) for each action, and z ~ N(0, I). The
axes are turned so that they are told in the order of what they do: F = U S V^T, and column j of U S says how much the
expected reward of each action changes for a person one deviation along axis j. Axes have no front: the end with the
larger change is told first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats
from newcomer.model import Model

ENDS, DIRECTIONS = 5, 6  # actions at each end that are named; directions that are


@dataclass(frozen=True)
class Direction:
    """One axis: its `share` of what people differ in, and (name, change of the expected reward) at both ends.

    `level` says that all changes have one sign: people at one end think more of everything.
    """

    share: float
    front: tuple[tuple[str, float], ...]
    back: tuple[tuple[str, float], ...]
    level: bool


def directions_of(model: Model) -> tuple[Direction, ...]:
    """The directions along which people differ, those first that do most; none where nothing is shared.

    >>> factor = np.array([[1.0], [-2.0], [0.5]])
    >>> one, = directions_of(Model(np.eye(3, 1), np.ones(3), np.zeros(3), factor, 1.0, action_ids=("a", "b", "c"),
    ...                            one_hot=True))
    >>> [(name, round(change, 3)) for name, change in (one.front[0], one.back[0])]
    [('b', 2.0), ('a', -1.0)]
    """
    names, low = _loadings(model)
    if not low.size or not np.any(low):
        return ()
    left, sizes, _ = np.linalg.svd(low, full_matrices=False)
    shares = sizes**2 / (sizes**2).sum()
    told = [(share, left[:, j] * sizes[j]) for j, share in enumerate(shares[:DIRECTIONS]) if share > 1e-6]
    return tuple(_direction(names, float(share), column) for share, column in told)


def _loadings(model: Model) -> tuple[Sequence[str], Floats]:
    """Names and f (A, k) of the actions of the catalogue; of the features where there is none."""
    ids = model.action_names or model.action_ids
    facts = model.evidence.population
    factor = model.factor[:, : facts.directions] if facts else model.factor  # without weak directions
    if ids is not None and model.one_hot:
        return [*map(str, ids)], factor[:-1] + factor[-1] if model.intercept else factor
    if ids is not None and model.action_features is not None:
        return [*map(str, ids)], np.asarray(model.action_features @ factor)
    plain = factor[: model.dim - model.intercept]
    return model.feature_names or [f"feature {i}" for i in range(len(plain))], plain


def _direction(names: Sequence[str], share: float, column: Floats) -> Direction:
    """Both ends of a column, the one with the larger change in front."""
    column = -column if -column.min() > column.max() else column
    order = np.argsort(-column, kind="stable")
    count = min(ENDS, len(order) // 2 or 1)
    ends = [tuple((names[i], float(column[i])) for i in part) for part in (order[:count], order[::-1][:count])]
    return Direction(share, ends[0], ends[1] if len(order) > 1 else (), bool(column.min() >= 0))
