"""Upper bounds of LOCAL-UCB's values, from one eigendecomposition a round.

They bound how far an ascent's value may be from the truth, show which actions cannot win, and give starts.

If some allowed U holds beta, then beta lies in the cone beta^T M beta <= 0, and every r orthogonal to U in the polar
cone r^T M' r <= 0, where, with Delta^2 / 2 = tilt,

    M = (1 - tilt) I - U_hat U_hat^T,      M' = U_hat U_hat^T - tilt I = -tilt (1 - tilt) M^-1.

So one basis F with F^T V F = I and F^T M F diagonal makes both cones and both ellipsoids diagonal, in the coordinates
beta = F beta', r = F^-T r' (docs/paper/local-ucb.md, Theorem 4). The bounds are Lagrange duals in these
coordinates:

* the cone relaxation (beta in the ellipsoid of squared radius min(a2^2, a1^2 + gap_max) and in the cone): two
  multipliers, one of them in closed form;
* the pair relaxation (beta and r = b - V beta_1(U) together): five multipliers (`ascent_loops`), never above the cone
  relaxation;
* the ball |beta| <= R with the cone, in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from newcomer.arrays import Floats
from newcomer.local.ascent_loops import PairDual, dual_ascent_bound
from newcomer.local.problem import Problem, problem_widths

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class Pencil:
    """The diagonalising coordinates of a round: F, the diagonals of M and M', and beta_2."""

    problem: Problem
    basis: Floats  # (d, d), F
    cone: Floats  # (d,), ascending
    polar: Floats  # (d,)
    mean: Floats  # (d,), F^T b, the coordinates of beta_2

    @cached_property
    def squared(self) -> float:
        """A squared V-distance from beta_2 that no feasible beta exceeds: a2^2, or a1^2 + the largest gap(U) if less.

        gap(U) is the maximum of 2 beta_2 . r - |r|_{V^-1}^2 over r orthogonal to U, so at most that over the polar
        cone, and at most the dual of the latter, the sum of mean_i^2 / (1 + ratio polar_i), at any ratio.
        """
        squares = self.mean**2

        def dual(ratio: Floats) -> Floats:
            total: Floats = (squares / (1.0 + ratio[:, None] * self.polar)).sum(axis=1)
            return total

        gap = float(dual(_golden(dual, 1, _end(self.polar)))[0])
        return min(self.problem.outer, self.problem.inner + gap)

    def coordinates(self, actions: Floats) -> Floats:
        """phi' = F^T phi (K, d), one by one, so that an action's do not depend on the others."""
        return np.stack([action @ self.basis for action in actions])


def pencil_of_bounds(problem: Problem) -> Pencil:
    """Diagonalise V and both cones together.

    With V^-1 = w^T w, the orthogonal eigenvectors T of w M w^T give F = w^T T: F^T V F = I and F^T M F = diag(cone).
    Where every subspace is allowed the cones say nothing, as -|beta'|^2 <= 0 does.
    """
    w, tilt = problem.factor, problem.tilt
    if tilt >= 1.0:
        cone, polar, turn = -np.ones(problem.dim), -np.ones(problem.dim), np.eye(problem.dim)
    else:
        white = w @ problem.basis
        cone, turn = eigh((1.0 - tilt) * (w @ w.T) - white @ white.T, driver="evd", check_finite=False)
        polar = -tilt * (1.0 - tilt) / cone
    basis = w.T @ turn
    return Pencil(problem, basis, cone, polar, basis.T @ problem.moment)


def _end(diagonal: Floats) -> float:
    """The multiplier up to which I + multiplier * diagonal is positive definite, less a little."""
    least = float(diagonal.min())
    return -1.0 / least * (1.0 - 1e-9) if least < 0.0 else 0.0


def _golden(function: Callable[[Floats], Floats], count: int, end: float, *, turns: int = 48) -> Floats:
    """Golden-section minimisers (count,) of as many quasi-convex functions over [0, end]; 0 where that is no worse."""
    low, high = np.zeros(count), np.full(count, end)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(turns):
        smaller = at_left < at_right
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
        fresh = np.where(smaller, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        value = function(fresh)
        left, right = np.where(smaller, fresh, right), np.where(smaller, left, fresh)
        at_left, at_right = np.where(smaller, value, at_right), np.where(smaller, at_left, value)
    best = np.where(at_left < at_right, left, right)
    return np.where(function(best) < function(np.zeros(count)), best, 0.0)


def cone_upper_bound(view: Pencil, actions: Floats, *, squared: float | None = None) -> Floats:
    """The cone relaxation's dual (K,): -inf where it proves that nothing is feasible.

    `squared` is the squared radius of the ellipsoid, the sharpened one by default; a2^2 gives the plain relaxation. The
    dual is minimised over one ratio of multipliers for each action; the other multiplier is eliminated
    (docs/paper/local-ucb.md).
    """
    phi, mean = view.coordinates(actions), view.mean
    level = (view.squared if squared is None else squared) - float(mean @ mean)
    cross, own, fixed = phi * mean, phi**2, mean**2

    def dual(ratio: Floats) -> Floats:
        weight = 1.0 / (1.0 + ratio[:, None] * view.cone)
        room = level + weight @ fixed
        width = np.sqrt(np.maximum(room, 0.0) * (weight * own).sum(axis=1))
        value: Floats = np.where(room < 0.0, -np.inf, (weight * cross).sum(axis=1) + width)
        return value

    return dual(_golden(dual, len(actions), _end(view.cone)))


def nearest_point_for_bound(view: Pencil) -> tuple[Floats, float]:
    """The point (d,) of the cone that is V-nearest to beta_2, and a lower bound of its squared distance.

    The dual is concave in its one multiplier, and its slope, the cone's form at the point, is bisected to zero.
    """
    fixed, low, high = view.mean**2, 0.0, _end(view.cone)
    if float(view.cone @ fixed) <= 0.0:
        return view.problem.mean, 0.0
    for _ in range(100):
        ratio = 0.5 * (low + high)
        outside = float(view.cone @ (fixed / (1.0 + ratio * view.cone) ** 2)) > 0.0
        low, high = (ratio, high) if outside else (low, ratio)
    weight = 1.0 / (1.0 + high * view.cone)
    return view.basis @ (view.mean * weight), float(fixed.sum() - fixed @ weight)


def pair_upper_bounds(view: Pencil, actions: Floats, *, accuracy: float = 1e-5) -> tuple[Floats, Floats, Floats]:
    """The pair relaxation's dual (K,) and its maximisers beta and r, (K, d) each, as starts for the ascent.

    `accuracy` is relative to LinUCB's width. Any multipliers give a valid bound. The first ones, at which the dual is
    finite, are in proportion to the action, and each cone's lies inside the range in which the quadratic form stays
    definite.
    """
    problem, phi = view.problem, view.coordinates(actions)
    sizes = 0.25 * np.array([np.linalg.norm(row) for row in phi]) / np.sqrt(problem.outer) + 1e-12
    first = np.array([1.0, 1.0, _end(view.cone) or 1.0, 0.5 * (_end(view.polar) or 1.0), 0.0])
    multipliers, slack = (
        sizes[:, None] * first,
        accuracy * np.sqrt(problem.outer) * problem_widths(problem, actions) + 1e-300,
    )
    values = np.empty(len(phi))
    for a, row in enumerate(phi):
        dual = PairDual(view.cone, view.polar, view.mean, 0.5 * row, problem.inner, problem.outer)
        values[a] = dual_ascent_bound(dual, slack[a], multipliers[a])
    # The maximisers of the Lagrangian at the last multipliers: Q^-1 (u, w) of `dual_loops.pair_terms`.
    inner, outer, cone, polar, cross = multipliers.T[:, :, None]
    a, c = inner + outer + cone * view.cone, inner + polar * view.polar
    u, w = 0.5 * phi + (inner + outer) * view.mean, inner * view.mean
    beta, residual = np.stack([c * u - cross * w, a * w - cross * u]) / (a * c - cross * cross)
    back = [(view.basis @ one, problem.gram @ (view.basis @ other)) for one, other in zip(beta, residual, strict=True)]
    return values, np.stack([pair[0] for pair in back]), np.stack([pair[1] for pair in back])


def ball_upper_bound(problem: Problem, actions: Floats) -> Floats:
    """The maximum (K,) of phi^T beta over the cone and |beta| <= R, in closed form."""
    if problem.bound == np.inf:
        return np.full(len(actions), np.inf)
    return np.array([action @ support_point_for_bound(problem, action) for action in actions])


def support_point_for_bound(problem: Problem, action: Floats) -> Floats:
    """The point (d,) of the cone with |beta| <= R that is best for an action: along phi, or on the edge nearest to it.

    On the edge the sine of the angle to U_hat is sqrt(tilt), and beta has the directions of both parts of phi.
    """
    inside = problem.basis @ (problem.basis.T @ action)
    outside = action - inside
    near, far, whole = float(np.linalg.norm(inside)), float(np.linalg.norm(outside)), float(np.linalg.norm(action))
    sine = np.sqrt(problem.tilt)
    if far <= sine * whole or near == 0.0:
        along = action / max(whole, 1e-300)
    else:
        along = inside / near * np.sqrt(1.0 - problem.tilt) + outside / far * sine
    point: Floats = problem.bound * along
    return point
