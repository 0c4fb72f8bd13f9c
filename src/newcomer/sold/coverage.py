"""Unreached: why directions of the features are not covered, each reason by name.

A direction v is left out where a half of the histories has v.x = 0 in every row. There are three reasons for that, and
each calls for something else.

* `one_half`: one half reaches it and the other does not. It was seen, too seldom: an item that a single user rated.
* `collinear`: v.x = 0 for every action there is, because features always move together: the dummies of two groups that
  each add up to one, or of one group beside a constant. No log will ever reach v, and no choice needs it.
* `never`: what is left. A feature that was 0 in every row, or a combination that the catalogue has and the logs do not.

Without a catalogue the logs are all the actions there are: a combination that they never show counts as collinear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import LogsError
from newcomer.evidence import CoverageFacts
from newcomer.logs.logs import Logs
from newcomer.one_hot import Catalogue, OneHot
from newcomer.sold.correction import Coverage

SMALLEST_NOISE = 1e-9  # of the mean squared reward: a noise variance is never zero


ROUNDING = 1e-6
NAMED = 10  # features, or groups of them, that are named


class Reason(NamedTuple):
    """How many directions are left out for one reason, and the features concerned, in groups that belong together."""

    directions: int
    groups: tuple[tuple[str, ...], ...]

    @property
    def features(self) -> tuple[str, ...]:
        """All features concerned."""
        return tuple(name for group in self.groups for name in group)


class Uncovered(NamedTuple):
    """The directions that are left out, by reason."""

    never: Reason
    collinear: Reason
    one_half: Reason


def classify_uncovered(coverage: Coverage, names: Sequence[str], catalogue: Catalogue | None) -> Uncovered:
    """The reasons for the uncovered directions; features are called `names` (d,), of the catalogue (A, d)."""
    table = catalogue.dense() if isinstance(catalogue, OneHot) else catalogue
    both = _common(*coverage.missed)
    once = _outside(coverage.uncovered, both)
    silent = np.flatnonzero((both**2).sum(axis=1) > 1 - ROUNDING)  # features that were 0 in every row
    unseen = np.eye(len(names))[:, silent]
    tied = _outside(both, unseen)
    if table is not None and tied.shape[1]:
        _, sizes, turned = np.linalg.svd(table @ tied)
        reached = int((sizes > ROUNDING * max(1.0, float(np.abs(table).max()))).sum())
        unseen = np.hstack([unseen, tied @ turned[:reached].T])
        tied = tied @ turned[reached:].T
    return Uncovered(_mostly(unseen, names), _together(tied, names), _mostly(once, names))


def _common(first: Floats, second: Floats) -> Floats:
    """An orthonormal basis of what two spans (given by orthonormal bases) have in common."""
    if not (first.shape[1] and second.shape[1]):
        return np.zeros((len(first), 0))
    left, sizes, _ = np.linalg.svd(first.T @ second, full_matrices=False)
    common: Floats = first @ left[:, sizes > 1 - ROUNDING]
    return common


def _outside(span: Floats, inner: Floats) -> Floats:
    """An orthonormal basis of the part of `span` that is orthogonal to `inner`."""
    if not span.shape[1]:
        return span
    vectors, sizes, _ = np.linalg.svd(span - inner @ (inner.T @ span), full_matrices=False)
    return vectors[:, sizes > 0.5]


def _mostly(span: Floats, names: Sequence[str]) -> Reason:
    """The features that lie within the span at least as much as without."""
    weights = (span**2).sum(axis=1)
    most = np.argsort(-weights, kind="stable")[:NAMED]
    return Reason(span.shape[1], tuple((names[i],) for i in sorted(most) if weights[i] > 0.5 - ROUNDING))


def _together(span: Floats, names: Sequence[str]) -> Reason:
    """The groups of features that the span ties together: blocks of the projection onto it."""
    ties = np.abs(span @ span.T) > ROUNDING
    left, groups = set(np.flatnonzero(ties.diagonal()).tolist()), list[tuple[str, ...]]()
    while left and len(groups) < NAMED:
        group, grown = set[int](), {min(left)}
        while grown - group:
            group |= grown
            grown = set(np.flatnonzero(ties[sorted(group)].any(axis=0)).tolist())
        groups.append(tuple(names[i] for i in sorted(group)))
        left -= group
    return Reason(span.shape[1], tuple(groups))


def named_for_coverage(places: Ints, logs: Logs) -> tuple[str, ...]:
    """The first few of these actions by name."""
    names = logs.action_ids or ()
    return tuple(str(names[i]) for i in places[:NAMED]) if names else ()


class NoCoverageError(LogsError):
    """No direction of the features is reached by both halves of the histories."""


def no_coverage_error(dim: int) -> NoCoverageError:
    """The refusal of logs that reach no direction in both halves."""
    return NoCoverageError(
        f"no direction of the {dim} features is reached by both halves of the histories",
        todo="log more rows, or use fewer features",
    )


def check_coverage(found: CoverageFacts, logs: Logs) -> None:
    """Refuse logs that leave directions out."""
    if found.uncovered:
        raise LogsError(
            f"{found.uncovered} of {logs.dim} directions of the features are not reached: {'; '.join(found.reasons())}",
            todo="log actions that reach them, drop the features, or pass uncovered='restrict'",
        )
