"""Where to begin, and what a tilt stands for: starts of the climb in closed form, and the point (beta, U) at its end.

A tilt is a (d + k, 2) array, Y above X, for the subspace of W = U_hat + Y X^T (see `loops`). With k <= 2 the rows X are
fixed and Y alone moves.
"""

from __future__ import annotations

import numpy as np

from newcomer.local import climb_loops
from newcomer.local.problem import Floats, Problem

TINY = 1e-300


def tilt_of(problem: Problem, outside: Floats, inside: Floats) -> Floats:
    """The tilt (d + k, 2) with Y X^T = outside inside^T, from (d, 2) and (k, 2); zero where the product is."""
    k = problem.rank
    if k <= 2:
        rows = np.eye(k, 2)
        outside = outside @ (inside.T @ np.eye(k, 2))
    else:
        lengths = np.linalg.norm(inside, axis=0)
        rows, outside = inside / np.maximum(lengths, TINY), outside * lengths
    outside = outside - problem.basis @ (problem.basis.T @ outside)
    return np.concatenate([outside, rows])


def through(problem: Problem, beta: Floats, residual: Floats) -> Floats:
    """A tilt whose subspace contains beta (d,) and is orthogonal to `residual` (d,).

    In U_hat and its complement write beta = (p, y) and residual = (q, z), p.q + y.z = 0. The least B in Frobenius norm with
    B p = y and B^T z = -q is (y + z p.q / |z|^2) p^T / |p|^2 - z q^T / |z|^2.
    """
    residual = residual - beta * (float(beta @ residual) / max(float(beta @ beta), TINY))
    p, q = problem.basis.T @ beta, problem.basis.T @ residual
    y, z = beta - problem.basis @ p, residual - problem.basis @ q
    inner, outer = max(float(p @ p), TINY), max(float(z @ z), TINY)
    if outer <= 1e-24 * float(problem.moment @ problem.moment) + TINY:
        z = np.zeros_like(z)
    columns = np.column_stack([y + z * (p @ q) / outer, -z])
    return tilt_of(problem, columns, np.column_stack([p / inner, q / outer]))


def steepest(problem: Problem, action: Floats) -> Floats:
    """The tilt along the gradient of the value at U_hat itself, as far as is allowed; zero if U_hat is infeasible."""
    k = problem.rank
    sides = np.stack([problem.moment_inside, problem.basis.T @ action])
    centre = np.asarray(np.linalg.solve(problem.gram_inside, sides[0]), dtype=np.float64)
    fit = float(sides[0] @ centre)
    squared, share = climb_loops.both(problem.inner, problem.outer - max(problem.energy - fit, 0.0), 0.0)
    work, theta, value, lam = np.empty((2 * k + 2, k)), np.empty(k), -np.inf, 0.0
    if squared >= 0.0:
        value, lam, _ = climb_loops.inside(
            problem.gram_inside, np.eye(k), sides, problem.bound, squared - fit, work, theta
        )
    if value == -np.inf:
        return tilt_of(problem, np.zeros((problem.dim, 2)), np.ones((k, 2)))
    rows = np.column_stack([theta, centre])
    left = problem.moment[:, None] - problem.gram_basis @ rows
    columns = np.column_stack([action + 2.0 * lam * left[:, 0], -2.0 * lam * (1.0 - share) * left[:, 1]])
    return widened(problem, tilt_of(problem, columns, rows))


def widened(problem: Problem, tilt: Floats) -> Floats:
    """The tilt, made long enough to reach the edge of what is allowed (45 degrees if everything is)."""
    d = problem.dim
    size = float(np.linalg.norm(tilt[:d] @ tilt[d:].T))
    tangent = 2.0 * np.sqrt(problem.tilt / (1.0 - problem.tilt)) if problem.tilt < 1.0 else 1.0
    return np.concatenate([tilt[:d] * (tangent / max(size, TINY)), tilt[d:]])


def point(problem: Problem, tilt: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """beta (d,) and an orthonormal U (d, k) that contains it, from a tilt and coefficients theta (k,)."""
    frame = problem.basis + tilt[: problem.dim] @ tilt[problem.dim :].T
    beta = frame @ theta
    if problem.tilt < 1.0:
        return beta, np.linalg.qr(frame)[0]
    # Nothing held the climb near U_hat: of all subspaces that serve this beta as well, give the one nearest to it.
    centre = np.linalg.solve(frame.T @ problem.gram @ frame, frame.T @ problem.moment)
    return beta, least(problem, beta, problem.moment - problem.gram @ (frame @ centre))


def least(problem: Problem, beta: Floats, residual: Floats) -> Floats:
    """The subspace (d, k) nearest to U_hat among those that contain beta and are orthogonal to `residual`: beta, and the
    k - 1 leading directions of U_hat within the orthogonal complement of both."""
    unit = beta / max(float(np.linalg.norm(beta)), TINY)
    pair = np.linalg.qr(np.column_stack([unit, residual]))[0]
    rest = problem.basis - pair @ (pair.T @ problem.basis)
    leading = np.linalg.svd(rest, full_matrices=False)[0][:, : problem.rank - 1]
    return np.linalg.qr(np.column_stack([unit, leading]))[0]
