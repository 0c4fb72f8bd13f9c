"""Where an ascent begins, and what a tilt stands for: starts in closed form, and the point (beta, U) at the end.

A tilt is a (d + k, 2) array, Y above X, for the subspace of W = U_hat + Y X^T (see `tilt_loops`). Different Y and X
with the same product are the same subspace. With k <= 2 the rows X are fixed to those of the identity, and Y alone
moves.

Where |beta| <= R matters: more starts, and a polish with every constraint explicit.

Where ellipsoid and ball barely meet within the best subspace, the value falls to -inf right beside its maximum, and
ascending on it stops short. Over x = (theta, Y, X), with W = U_hat + Y X^T and beta = W theta, every constraint of the
problem is a smooth function, so sequential quadratic programming (SciPy's SLSQP) goes on from there. Its cost grows
with the cube of the number of unknowns; beyond LARGEST it is left out.

Each constraint below is a function that gives its amount, not negative where it holds, and its gradients with respect
to theta (k,) and W (d, k). SLACK tightens it, so that the result meets it in spite of rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from newcomer.arrays import Floats
from newcomer.local.ascent_loops import Ascent, write_ascent
from newcomer.local.problem import Problem
from newcomer.local.tilt_loops import (
    Section,
    Tilted,
    read_tilt_loop_evaluation,
    room_for_tilt_loops,
    write_evaluated_tilt_loop,
    write_tilt_section_loop,
)
from newcomer.local.upper_bounds import support_point_for_bound

TINY = 1e-300


def _tilt_from_product(problem: Problem, outside: Floats, inside: Floats) -> Floats:
    """The tilt (d + k, 2) with Y X^T = outside inside^T, from (d, 2) and (k, 2), less what of `outside` is in U_hat.

    The columns of X have unit length, or are those of the identity; lengths go to Y.
    """
    if problem.rank <= 2:
        rows = np.eye(problem.rank, 2)
        outside = outside @ (inside.T @ rows)
    else:
        lengths = np.linalg.norm(inside, axis=0)
        rows, outside = inside / np.maximum(lengths, TINY), outside * lengths
    return np.concatenate([outside - problem.basis @ (problem.basis.T @ outside), rows])


def evaluated_tilt(problem: Problem, action: Floats, tilt: Floats, smooth: float) -> Tilted:
    """What `tilt_loops.tilted` finds."""
    room = room_for_tilt_loops(problem)
    write_evaluated_tilt_loop(problem, action, tilt, smooth, *room)
    return read_tilt_loop_evaluation(*room)


def ascended_tilt(problem: Problem, action: Floats, tilt: Floats, smooth: float, tolerance: float) -> Ascent:
    """Where `ascent_loops.ascent` ends, which moves the tilt there."""
    room = room_for_tilt_loops(problem)
    spent = write_ascent(problem, action, tilt, smooth, tolerance, *room)
    return Ascent(read_tilt_loop_evaluation(*room), float(room[-1][-1]), spent)


def flat_tilt(problem: Problem) -> Floats:
    """The tilt that leaves U_hat as it is."""
    return _tilt_from_product(problem, np.zeros((problem.dim, 2)), np.ones((problem.rank, 2)))


def tilt_through_point(problem: Problem, beta: Floats, residual: Floats) -> Floats:
    """A tilt whose subspace contains beta (d,) and is orthogonal to `residual` (d,).

    In U_hat and its complement write beta = (p, y) and residual = (q, z); the part of the residual along beta is taken
    away first, so that p.q + y.z = 0. The least B in Frobenius norm with B p = y and B^T z = -q is then (y + z p.q /
    |z|^2) p^T / |p|^2 - z q^T / |z|^2. A residual within U_hat, up to rounding, is left out.
    """
    residual = residual - beta * (float(beta @ residual) / max(float(beta @ beta), TINY))
    p, q = problem.basis.T @ beta, problem.basis.T @ residual
    y, z = beta - problem.basis @ p, residual - problem.basis @ q
    inner, outer = max(float(p @ p), TINY), max(float(z @ z), TINY)
    if outer <= 1e-24 * float(problem.moment @ problem.moment) + TINY:
        z = np.zeros_like(z)
    columns = np.column_stack([y + z * (p @ q) / outer, -z])
    return _tilt_from_product(problem, columns, np.column_stack([p / inner, q / outer]))


def steepest_tilt(problem: Problem, action: Floats) -> Floats:
    """The tilt along the gradient of the value at U_hat itself, as far as is allowed; none if U_hat is infeasible.

    The gradient with respect to W is that of `tilt_loops.slope_in_tilt_frame_loop` at Y X^T = 0, where V W theta = V
    U_hat theta; its part in U_hat, and with it that of the ball's multiplier, is taken away by `_tilt_from_product`.
    """
    section = Section(
        problem.gram_inside, np.eye(problem.rank), problem.moment_inside, np.asarray(problem.basis.T @ action)
    )
    centre = np.asarray(np.linalg.solve(section.gram, section.moment), dtype=np.float64)
    fit = float(section.moment @ centre)
    theta, numbers = np.empty(problem.rank), np.empty(3)
    rest = problem.outer - max(problem.energy - fit, 0.0)
    write_tilt_section_loop(section, problem.bound, problem.inner, rest, fit, theta, numbers)
    value, ellipsoid, share = numbers.tolist()
    if value == -np.inf:
        return flat_tilt(problem)
    rows = np.column_stack([theta, centre])
    left = problem.moment[:, None] - problem.gram_basis @ rows
    weights = 2.0 * ellipsoid * np.array([1.0, share - 1.0])
    columns = left * weights + np.column_stack([action, np.zeros(problem.dim)])
    return _widened_tilt(problem, _tilt_from_product(problem, columns, rows))


def _widened_tilt(problem: Problem, tilt: Floats) -> Floats:
    """The tilt, made long enough to reach the edge of what is allowed (45 degrees if everything is)."""
    d = problem.dim
    size = float(np.linalg.norm(tilt[:d] @ tilt[d:].T))
    tangent = 2.0 * np.sqrt(problem.tilt / (1.0 - problem.tilt)) if problem.tilt < 1.0 else 1.0
    return np.concatenate([tilt[:d] * (tangent / max(size, TINY)), tilt[d:]])


def _tilt_frame(problem: Problem, tilt: Floats) -> Floats:
    """W = U_hat + Y X^T (d, k), whose columns span the subspace of the tilt."""
    frame: Floats = problem.basis + tilt[: problem.dim] @ tilt[problem.dim :].T
    return frame


def tilt_point(problem: Problem, tilt: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """beta (d,) and an orthonormal U (d, k) that contains it, from a tilt and coefficients theta (k,).

    Where every subspace is allowed nothing held the ascent near U_hat, and its subspace may be far from it for no
    reason. Of all that serve this beta as well, those that contain it and are orthogonal to r = b - V beta_1(U), the
    nearest to U_hat is given: beta, and the k - 1 leading directions of U_hat within the orthogonal complement of both
    (Theorem 2).
    """
    frame = _tilt_frame(problem, tilt)
    beta = frame @ theta
    if problem.tilt < 1.0:
        return beta, np.linalg.qr(frame)[0]
    centre = np.linalg.solve(frame.T @ problem.gram @ frame, frame.T @ problem.moment)
    residual = problem.moment - problem.gram @ (frame @ centre)
    unit = beta / max(float(np.linalg.norm(beta)), TINY)
    pair = np.linalg.qr(np.column_stack([unit, residual]))[0]
    rest = problem.basis - pair @ (pair.T @ problem.basis)
    leading = np.linalg.svd(rest, full_matrices=False)[0][:, : problem.rank - 1]
    return beta, np.linalg.qr(np.column_stack([unit, leading]))[0]


LARGEST = 130
RANDOM_STARTS = 4
SLACK = 1e-7

# An amount, and its gradients in theta and W.
Amount = tuple[float, Floats, Floats]


def more_starting_tilts(problem: Problem, action: Floats) -> Iterator[Floats]:
    """Tilts to ascend from besides the usual ones: the maximiser over cone and ball alone, and a few at random.

    The random ones are the same every time, so that a round has one answer.
    """
    beta = support_point_for_bound(problem, action)
    yield tilt_through_point(problem, beta, problem.moment - problem.gram @ beta)
    rng = np.random.default_rng(0)
    for _ in range(RANDOM_STARTS):
        outside, inside = rng.standard_normal((problem.dim, 2)), rng.standard_normal((problem.rank, 2))
        yield _widened_tilt(problem, _tilt_from_product(problem, outside, inside))


def polished_tilt(problem: Problem, action: Floats, tilt: Floats, theta: Floats) -> Floats:
    """The tilt at which sequential quadratic programming from (tilt, theta) ends; the same tilt if it runs away."""
    unknowns = Unknowns(problem, tilt[problem.dim :])
    start = unknowns.join(theta, tilt)
    if start.size > LARGEST:
        return tilt

    def reward(problem: Problem, theta: Floats, frame: Floats) -> Amount:
        return -float(action @ (frame @ theta)), -frame.T @ action, -np.outer(action, theta)

    limits = [_tilt_inner_room, _tilt_outer_room, _tilt_ball_room, *([_tilt_sines_room] if problem.tilt < 1.0 else [])]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            end = minimize(
                unknowns.amount(reward),
                start,
                jac=unknowns.gradient(reward),
                method="SLSQP",
                constraints=[
                    {"type": "ineq", "fun": unknowns.amount(limit), "jac": unknowns.gradient(limit)} for limit in limits
                ],
                options={"maxiter": 200, "ftol": 1e-10},
            )
    except np.linalg.LinAlgError:  # a step so long that I + B^T B is singular to rounding
        return tilt
    return unknowns.tilt(end.x) if np.isfinite(end.x).all() else tilt


def _tilt_inner_room(problem: Problem, theta: Floats, frame: Floats) -> Amount:
    """a1^2 - |beta - beta_1(U)|_V^2, where beta_1(U) = W c solves the normal equations W^T V W c = W^T b.

    By Pythagoras the squared distance is |beta - beta_2|_V^2 - gap(U), and gap(U) is the minimum of |W c - beta_2|_V^2
    over c, which therefore need not be differentiated.
    """
    centre = np.linalg.solve(frame.T @ problem.gram @ frame, frame.T @ problem.moment)
    miss, left = _miss(problem, frame @ theta), _miss(problem, frame @ centre)
    shift = frame @ (theta - centre)
    amount = float(problem.inner * (1.0 - SLACK) - shift @ problem.gram @ shift)
    return amount, -2.0 * frame.T @ miss, -2.0 * (np.outer(miss, theta) - np.outer(left, centre))


def _tilt_outer_room(problem: Problem, theta: Floats, frame: Floats) -> Amount:
    """a2^2 - |beta - beta_2|_V^2."""
    shift = frame @ theta - problem.mean
    miss = _miss(problem, frame @ theta)
    amount = float(problem.outer * (1.0 - SLACK) - shift @ problem.gram @ shift)
    return amount, -2.0 * frame.T @ miss, -2.0 * np.outer(miss, theta)


def _tilt_ball_room(problem: Problem, theta: Floats, frame: Floats) -> Amount:
    """R^2 - |beta|^2."""
    beta = frame @ theta
    amount = float(problem.bound**2 * (1.0 - SLACK) - beta @ beta)
    return amount, -2.0 * frame.T @ beta, -2.0 * np.outer(beta, theta)


def _tilt_sines_room(problem: Problem, theta: Floats, frame: Floats) -> Amount:
    """Delta^2 / 2 - tr(B^T B (I + B^T B)^-1), B = W - U_hat: the squared sines that are left of those allowed."""
    away = frame - problem.basis
    squares = away.T @ away
    inverse = np.linalg.inv(np.eye(problem.rank) + squares)
    amount = float(problem.tilt * (1.0 - SLACK) - np.sum(inverse * squares))
    return amount, np.zeros(problem.rank), -2.0 * away @ inverse @ inverse


def _miss(problem: Problem, beta: Floats) -> Floats:
    """V beta - b = V (beta - beta_2): half the gradient of |beta - beta_2|_V^2."""
    miss: Floats = problem.gram @ beta - problem.moment
    return miss


@dataclass(frozen=True)
class Unknowns:
    """The flat x = (theta, Y, X) of an optimiser; with k <= 2 the rows X (k, 2) are fixed and left out of it."""

    problem: Problem
    rows: Floats

    def join(self, theta: Floats, tilt: Floats) -> Floats:
        """x of (theta, tilt)."""
        return np.concatenate([theta, tilt[: None if self.problem.rank > 2 else self.problem.dim].ravel()])

    def tilt(self, x: Floats) -> Floats:
        """The tilt in x, its part in U_hat taken away."""
        d, k = self.problem.basis.shape
        outside = x[k : k + 2 * d].reshape(d, 2)
        outside = outside - self.problem.basis @ (self.problem.basis.T @ outside)
        return np.concatenate([outside, x[k + 2 * d :].reshape(k, 2) if k > 2 else self.rows])

    def amount(self, function: Callable[[Problem, Floats, Floats], Amount]) -> Callable[[Floats], float]:
        """The amount as a function of x."""
        return lambda x: self._at(function, self.tilt(x), x)[0]

    def gradient(self, function: Callable[[Problem, Floats, Floats], Amount]) -> Callable[[Floats], Floats]:
        """Its gradient in x: with G that in W less its part in U_hat, G X in Y and G^T Y in X."""
        d, basis = self.problem.dim, self.problem.basis

        def slope(x: Floats) -> Floats:
            tilt = self.tilt(x)
            _, on_theta, on_frame = self._at(function, tilt, x)
            on_frame = on_frame - basis @ (basis.T @ on_frame)
            return self.join(on_theta, np.concatenate([on_frame @ tilt[d:], on_frame.T @ tilt[:d]]))

        return slope

    def _at(self, function: Callable[[Problem, Floats, Floats], Amount], tilt: Floats, x: Floats) -> Amount:
        return function(self.problem, x[: self.problem.rank], _tilt_frame(self.problem, tilt))
