"""A round of one user: the values of all actions, or only of those that can still win.

Upper bounds come first (`pencil`). Actions are then climbed in the order of their bounds, each from two starts: the maximiser
of the pair relaxation, and the steepest tilt at U_hat. With pruning, an action whose bound is below a value already
attained is left out. The answer for an action does not depend on which others are offered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from newcomer.local import climb_loops
from newcomer.local.balls import more_starts, polished
from newcomer.local.pencil import Pencil, ball_bound, nearest, pair_bounds, pencil
from newcomer.local.problem import Floats, Problem, widths
from newcomer.local.tilts import point, steepest, through, tilt_of

STUCK = 1e5  # steepness, in tolerances, that no smooth maximum has
ACCURACY = 1e-7  # promised gain, relative to LinUCB's width, below which a climb stops


@dataclass(frozen=True)
class Round:
    """What was found: `values` are attained at `beta` in span `subspace`, and no feasible point exceeds `upper`.

    An action that was pruned has value -inf; so has every action of a round without a feasible point.
    """

    values: Floats  # (K,)
    upper: Floats  # (K,)
    tilts: Floats  # (K, d + k, 2)
    theta: Floats  # (K, k)
    evaluations: NDArray[np.int64]  # (K,)
    pruned: NDArray[np.bool_]  # (K,)
    impossible: bool  # proved that no (beta, U) meets the constraints

    @property
    def feasible(self) -> bool:
        """Whether a feasible (beta, U) was found."""
        return bool(np.isfinite(self.values).any())


def solve(problem: Problem, actions: Floats, *, prune: bool = False, warm: Floats | None = None) -> Round:
    """Solve the round for actions (K, d); with `prune`, only as far as needed to know the best one.

    `warm` (K, d + k, 2) are tilts to begin with too, for instance those of the last round on a fixed set of actions.
    """
    if problem.tilt <= 1e-15:
        return _inside_basis(problem, actions)
    view = pencil(problem)
    anchor = _anchor(view)
    if anchor is not None and anchor[1] > problem.outer * (1.0 + 1e-9):
        return _empty(problem, actions, np.full(len(actions), -np.inf), True)
    upper, beta, residual = pair_bounds(view, actions)
    out = _empty(problem, actions, np.minimum(upper, ball_bound(problem, actions)), False)
    best = -np.inf
    for a in np.argsort(-out.upper, kind="stable"):
        if prune and out.upper[a] < best:
            out.pruned[a] = True
            continue
        starts = _starts(problem, actions[a], anchor, beta[a], residual[a])
        _climb(out, problem, int(a), actions[a], starts if warm is None else [warm[a].copy(), *starts])
        best = max(best, float(out.values[a]))
    _rescue(out, problem, actions)
    return out


def possible(problem: Problem) -> bool:
    """Whether a feasible (beta, U) is found; at once where U_hat itself is feasible."""
    first = np.eye(1, problem.dim)
    return _inside_basis(problem, first).feasible or solve(problem, first).feasible


def _rescue(out: Round, problem: Problem, actions: Floats) -> None:
    """What is feasible does not depend on the action: where no start was, begin at the maximiser of another action."""
    lost = np.flatnonzero(~np.isfinite(out.values) & ~out.pruned)
    if not out.feasible or not lost.size:
        return
    leader = int(np.argmax(out.values))
    for a in lost:
        _climb(out, problem, int(a), actions[a], [out.tilts[leader].copy()])


def _anchor(view: Pencil) -> tuple[Floats, float] | None:
    """Where U_hat itself is infeasible: the nearest point of the cone to beta_2, and its squared distance."""
    return None if _inside_basis(view.problem, np.eye(1, view.problem.dim)).feasible else nearest(view)


def _empty(problem: Problem, actions: Floats, upper: Floats, impossible: bool) -> Round:
    count, (d, k) = len(actions), problem.basis.shape
    tilts, theta = np.zeros((count, d + k, 2)), np.zeros((count, k))
    return Round(
        np.full(count, -np.inf),
        upper,
        tilts,
        theta,
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
        impossible,
    )


def _starts(
    problem: Problem, action: Floats, anchor: tuple[Floats, float] | None, beta: Floats, residual: Floats
) -> list[Floats]:
    """Tilts to climb from; the cone's point nearest to beta_2 stands in where U_hat itself is infeasible."""
    first = [through(problem, beta, residual), steepest(problem, action)]
    if anchor is not None:
        first.append(through(problem, anchor[0], problem.moment - problem.gram @ anchor[0]))
    return first


def _climb(out: Round, problem: Problem, a: int, action: Floats, starts: list[Floats]) -> None:
    """Climb from every start and keep the best; where R matters, from more of them, and polish what got stuck."""
    tolerance = ACCURACY * float(np.sqrt(problem.outer) * widths(problem, action[None])[0]) + 1e-300
    firsts = [start.copy() for start in starts]
    ends = [_keep(out, problem, a, action, start, tolerance) for start in starts]
    if problem.bound == np.inf or all(end[climb_loops.LENGTH] < problem.bound * (1.0 - 1e-9) for end in ends):
        return
    ends += [_keep(out, problem, a, action, start, tolerance) for start in more_starts(problem, action)]
    stuck = max(ends, key=_value)[climb_loops.STEEP] > STUCK * tolerance or not np.isfinite(out.values[a])
    if stuck and out.upper[a] - out.values[a] > 10.0 * tolerance:
        found = [(out.tilts[a], out.theta[a])] if np.isfinite(out.values[a]) else []
        for tilt, theta in [*found, *((first, problem.basis.T @ problem.mean) for first in firsts)]:
            _take(out, problem, a, action, polished(problem, action, tilt, theta))


def _take(out: Round, problem: Problem, a: int, action: Floats, tilt: Floats) -> None:
    """Keep a tilt as it is, if it is better."""
    theta, facts = np.empty(problem.rank), np.empty(climb_loops.FACTS)
    value = climb_loops.tilted(problem, action, tilt, 0.0, np.empty_like(tilt), theta, facts)
    out.evaluations[a] += 1
    if value > out.values[a]:
        out.values[a], out.tilts[a], out.theta[a] = value, tilt, theta


def _keep(out: Round, problem: Problem, a: int, action: Floats, tilt: Floats, tolerance: float) -> Floats:
    """Climb from a tilt, keep what is best, and return the facts with the value behind them."""
    theta, facts = np.empty(problem.rank), np.zeros(climb_loops.FACTS)
    value, spent = climb_loops.ascend(problem, action, tilt, tolerance, theta, facts)
    out.evaluations[a] += spent
    if value > out.values[a]:
        out.values[a], out.tilts[a], out.theta[a] = value, tilt, theta
    if value == -np.inf:
        facts[climb_loops.LENGTH] = np.inf
    return np.append(facts, value)


def _value(facts: Floats) -> float:
    return float(facts[-1])


def _inside_basis(problem: Problem, actions: Floats) -> Round:
    """Radius 0: U_hat is the only subspace, and its value is the answer and the bound."""
    flat = tilt_of(problem, np.zeros((problem.dim, 2)), np.ones((problem.rank, 2)))
    out = _empty(problem, actions, np.full(len(actions), -np.inf), False)
    theta, facts, slope = np.empty(problem.rank), np.empty(climb_loops.FACTS), np.empty_like(flat)
    for a, action in enumerate(actions):
        value = climb_loops.tilted(problem, action, flat, 0.0, slope, theta, facts)
        out.values[a], out.upper[a], out.tilts[a], out.theta[a], out.evaluations[a] = value, value, flat, theta, 1
    return out


def points(problem: Problem, found: Round) -> tuple[Floats, Floats]:
    """The maximisers: beta (K, d) and subspaces (K, d, k); those of pruned or infeasible actions mean nothing."""
    pairs = [point(problem, tilt, theta) for tilt, theta in zip(found.tilts, found.theta, strict=True)]
    return np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
