"""A round of one user: the values of all actions, or only of those that can still win.

Upper bounds come first (`upper_bounds`). Actions are then climbed in the order of their bounds, each from two starts:
the maximiser of the pair relaxation, and the steepest tilt at U_hat (`tilts`). With pruning, an action whose bound is
below a value already attained is left out. The answer for an action does not depend on which others are offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.local.ascent_loops import Ascent
from newcomer.local.problem import Problem, problem_widths
from newcomer.local.tilt_loops import Tilted
from newcomer.local.tilts import (
    ascended_tilt,
    evaluated_tilt,
    flat_tilt,
    more_starting_tilts,
    polished_tilt,
    steepest_tilt,
    tilt_point,
    tilt_through_point,
)
from newcomer.local.upper_bounds import ball_upper_bound, nearest_point_for_bound, pair_upper_bounds, pencil_of_bounds

STUCK = 1e5  # steepness, in tolerances, that no smooth maximum has
ACCURACY = 1e-7  # promised gain, relative to LinUCB's width, below which an ascent stops
SMOOTH, LESS, STAGES = 1e-3, 1e-2, 3  # the kink is rounded by this share of a1^2 at first, then less, so often in all
KINK = 1e-4  # there the share of a2 in the squared radius is at least this far from 0 and from 1
LONGEST = 600  # evaluations after which an ascent no longer goes back inside


@dataclass(frozen=True)
class Round:
    """What was found: `values` are attained in the subspaces of `tilts` at `theta`; nothing feasible exceeds `upper`.

    An action that was pruned has value -inf; so has every action of a round without a feasible point.
    """

    values: Floats  # (K,)
    upper: Floats  # (K,)
    tilts: Floats  # (K, d + k, 2)
    theta: Floats  # (K, k)
    evaluations: Ints  # (K,)
    pruned: Bools  # (K,)
    impossible: bool  # proved that no (beta, U) meets the constraints

    @property
    def feasible(self) -> bool:
        """Whether a feasible (beta, U) was found."""
        return bool(np.isfinite(self.values).any())


@dataclass
class ActionSearch:
    """The search for one action's value: the best tilt and theta so far, and what it cost."""

    problem: Problem
    action: Floats
    upper: float
    value: float = -np.inf
    tilt: Floats = field(init=False)
    theta: Floats = field(init=False)
    evaluations: int = 0
    pruned: bool = False

    def __post_init__(self) -> None:
        d, k = self.problem.basis.shape
        self.tilt, self.theta = np.zeros((d + k, 2)), np.zeros(k)

    def ascend(self, starts: Iterable[Floats]) -> None:
        """Ascend from every start; where R matters, from more of them, and polish what got stuck.

        R matters if an end of an ascent lies on the ball, or holds no feasible point. The best end is stuck if it is
        steep: the ascent then ended because every step led to where nothing is feasible. It is polished from there, and
        from the starts.
        """
        problem, firsts = self.problem, list(starts)
        tolerance = ACCURACY * float(np.sqrt(problem.outer) * problem_widths(problem, self.action[None])[0]) + 1e-300
        ends = [self._ascend(start.copy(), tolerance) for start in firsts]
        if problem.bound == np.inf or all(found.end.length < problem.bound * (1.0 - 1e-9) for found in ends):
            return
        ends += [self._ascend(start, tolerance) for start in more_starting_tilts(problem, self.action)]
        found = bool(np.isfinite(self.value))
        stuck = not found or max(ends, key=lambda end: end.end.value).steepness > STUCK * tolerance
        if stuck and self.upper - self.value > 10.0 * tolerance:
            inside = problem.basis.T @ problem.mean
            for tilt, theta in [(self.tilt, self.theta)] * found + [(first, inside) for first in firsts]:
                self.take(polished_tilt(problem, self.action, tilt, theta))

    def _ascend(self, tilt: Floats, tolerance: float) -> Ascent:
        """Ascend from a tilt, in place, the kink of a1 and a2 rounded less and less; the exact value at the end.

        Where an ascent ends at the edge of what is allowed, but less tilt would be better, it goes on from a little
        inside, where scaling back does not hide that.
        """
        d, smooth, spent, stage = self.problem.dim, SMOOTH * self.problem.inner, 0, 0
        while stage < STAGES:
            end, steepness, used = ascended_tilt(self.problem, self.action, tilt, smooth, tolerance)
            spent += used
            if end.value == -np.inf:
                break
            if end.scale < 1.0 and end.radial < 0.0 and spent < LONGEST:
                tilt[:d] *= 0.98 * end.scale
                continue
            if not KINK < end.share < 1.0 - KINK:
                break
            smooth *= LESS
            stage += 1
        self.evaluations += spent
        return Ascent(self.take(tilt), steepness, spent)

    def take(self, tilt: Floats) -> Tilted:
        """Evaluate a tilt as it is, and keep it if it is the best so far, with Y X^T scaled back to what is allowed."""
        found = evaluated_tilt(self.problem, self.action, tilt, 0.0)
        self.evaluations += 1
        if found.value > self.value:
            self.value, self.tilt, self.theta = found.value, tilt.copy(), found.theta
            self.tilt[: self.problem.dim] *= found.scale
        return found


def _gathered(searches: list[ActionSearch], *, impossible: bool = False) -> Round:
    """The round of the searches of all its actions."""
    return Round(
        values=np.array([one.value for one in searches]),
        upper=np.array([one.upper for one in searches]),
        tilts=np.stack([one.tilt for one in searches]),
        theta=np.stack([one.theta for one in searches]),
        evaluations=np.array([one.evaluations for one in searches]),
        pruned=np.array([one.pruned for one in searches]),
        impossible=impossible,
    )


def solve_round(problem: Problem, actions: Floats, *, prune: bool = False) -> Round:
    """Solve the round for actions (K, d); with `prune`, only as far as needed to know the best one.

    Where U_hat itself is infeasible the point of the cone nearest to beta_2 gives one more start; if it is further away
    than a2, nothing is feasible at all. What is feasible does not depend on the action: an action whose starts all
    failed is climbed again from the tilt of the best.
    """
    if problem.tilt <= 1e-15:
        return _inside_basis(problem, actions)
    view, anchor = pencil_of_bounds(problem), []
    if not _basis_feasible(problem):
        near, distance = nearest_point_for_bound(view)
        if distance > problem.outer * (1.0 + 1e-9):
            return _gathered([ActionSearch(problem, action, -np.inf) for action in actions], impossible=True)
        anchor = [tilt_through_point(problem, near, problem.moment - problem.gram @ near)]
    upper, beta, residual = pair_upper_bounds(view, actions)
    upper = np.minimum(upper, ball_upper_bound(problem, actions))
    if (upper == -np.inf).any():  # so does the dual prove it, or numbers too far apart in size to tell
        return _gathered([ActionSearch(problem, action, -np.inf) for action in actions], impossible=True)
    searches = [ActionSearch(problem, action, float(bound)) for action, bound in zip(actions, upper, strict=True)]
    best = -np.inf
    for a in np.argsort(-upper, kind="stable"):
        if prune and upper[a] < best:
            searches[a].pruned = True
            continue
        searches[a].ascend(
            [tilt_through_point(problem, beta[a], residual[a]), steepest_tilt(problem, actions[a]), *anchor]
        )
        best = max(best, searches[a].value)
    leader = max(searches, key=lambda one: one.value).tilt
    for one in searches:
        if one.value == -np.inf < best and not one.pruned:
            one.ascend([leader])
    return _gathered(searches)


def _inside_basis(problem: Problem, actions: Floats) -> Round:
    """Radius 0: U_hat is the only subspace, and its value is the answer and the bound."""
    searches = [ActionSearch(problem, action, -np.inf) for action in actions]
    for one in searches:
        one.upper = one.take(flat_tilt(problem)).value
    return _gathered(searches)


def _basis_feasible(problem: Problem) -> bool:
    """Whether U_hat itself holds a feasible beta, which is the same for all actions."""
    return bool(np.isfinite(evaluated_tilt(problem, np.eye(1, problem.dim)[0], flat_tilt(problem), 0.0).value))


def round_is_possible(problem: Problem) -> bool:
    """Whether a feasible (beta, U) is found; at once where U_hat itself is feasible."""
    return _basis_feasible(problem) or solve_round(problem, np.eye(1, problem.dim)).feasible


def round_maximisers(problem: Problem, found: Round) -> tuple[Floats, Floats]:
    """The maximisers: beta (K, d) and subspaces (K, d, k); those of pruned or infeasible actions mean nothing."""
    pairs = [tilt_point(problem, tilt, theta) for tilt, theta in zip(found.tilts, found.theta, strict=True)]
    return np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
