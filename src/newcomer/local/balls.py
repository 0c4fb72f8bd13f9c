"""Where |beta| <= R matters: more starts, and a polish with every constraint explicit.

Where ellipsoid and ball barely meet within the best subspace, the value falls to -inf right beside its maximum, and climbing
on it stops short. Over (theta, Y, X) with beta = (U_hat + Y X^T) theta all constraints are smooth, so sequential quadratic
programming goes on from there. Its cost grows with the cube of the size; beyond LARGEST unknowns it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import minimize

from newcomer.local.pencil import support
from newcomer.local.problem import Floats, Problem
from newcomer.local.tilts import through, tilt_of, widened

LARGEST = 130
RANDOM_STARTS = 4
SLACK = 1e-7  # by which constraints are tightened, so that the result meets them in spite of rounding

Function = Callable[[Floats], float]
Slope = Callable[[Floats], Floats]


def more_starts(problem: Problem, action: Floats) -> Iterator[Floats]:
    """The maximiser over cone and ball alone, and a few tilts at random (the same ones every time)."""
    beta = support(problem, action)
    yield through(problem, beta, problem.moment - problem.gram @ beta)
    rng = np.random.default_rng(0)
    for _ in range(RANDOM_STARTS):
        outside, inside = rng.standard_normal((problem.dim, 2)), rng.standard_normal((problem.rank, 2))
        yield widened(problem, tilt_of(problem, outside, inside))


def polished(problem: Problem, action: Floats, tilt: Floats, theta: Floats) -> Floats:
    """The tilt where sequential quadratic programming ends that begins at (tilt, theta); the same tilt if it runs away."""
    part = _Parts(problem, tilt)
    if part.size > LARGEST:
        return tilt
    limits: list[tuple[Function, Slope]] = [
        (part.inner, part.inner_slope),
        (part.outer, part.outer_slope),
        (part.ball, part.ball_slope),
    ]
    if problem.tilt < 1.0:
        limits.append((part.sines, part.sines_slope))
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            end = minimize(
                lambda x: -float(action @ part.split(x)[3]),
                part.join(theta, tilt),
                jac=lambda x: -part.chain(x, part.split(x)[2].T @ action, np.outer(action, part.split(x)[0])),
                method="SLSQP",
                constraints=[{"type": "ineq", "fun": function, "jac": slope} for function, slope in limits],
                options={"maxiter": 200, "ftol": 1e-10},
            )
    except np.linalg.LinAlgError:  # a step so long that I + B^T B is singular to rounding
        return tilt
    return part.tilt(end.x) if np.isfinite(end.x).all() else tilt


class _Parts:
    """The constraints as functions of x = (theta, Y, X), tightened, positive where they hold."""

    def __init__(self, problem: Problem, tilt: Floats) -> None:
        self.problem, self.rows = problem, tilt[problem.dim :]
        self.free = problem.rank > 2  # with k <= 2 the rows X are fixed
        self.size = problem.rank + 2 * problem.dim + 2 * problem.rank * self.free

    def join(self, theta: Floats, tilt: Floats) -> Floats:
        """x of (theta, tilt)."""
        return np.concatenate([theta, tilt[: None if self.free else self.problem.dim].ravel()])

    def tilt(self, x: Floats) -> Floats:
        """The tilt in x."""
        d, k = self.problem.basis.shape
        outside = x[k : k + 2 * d].reshape(d, 2)
        outside = outside - self.problem.basis @ (self.problem.basis.T @ outside)
        return np.concatenate([outside, x[k + 2 * d :].reshape(k, 2) if self.free else self.rows])

    def split(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """theta, the tilt, W and beta."""
        tilt, theta = self.tilt(x), x[: self.problem.rank]
        frame = self.problem.basis + tilt[: self.problem.dim] @ tilt[self.problem.dim :].T
        return theta, tilt, frame, frame @ theta

    def chain(self, x: Floats, on_theta: Floats, on_frame: Floats) -> Floats:
        """The gradient in x of a function with these gradients in theta and W."""
        d, basis = self.problem.dim, self.problem.basis
        tilt = self.tilt(x)
        on_frame = on_frame - basis @ (basis.T @ on_frame)
        on_tilt = [on_frame @ tilt[d:], *([on_frame.T @ tilt[:d]] if self.free else [])]
        return np.concatenate([on_theta, np.concatenate(on_tilt).ravel()])

    def inner(self, x: Floats) -> float:
        """a1^2 - |beta - beta_1(U)|_V^2."""
        _, _, frame, beta = self.split(x)
        shift = beta - frame @ self._centre(frame)
        return float(self.problem.inner * (1.0 - SLACK) - shift @ self.problem.gram @ shift)

    def inner_slope(self, x: Floats) -> Floats:
        """Gradient of `inner`."""
        theta, _, frame, beta = self.split(x)
        centre = self._centre(frame)
        miss, left = self._miss(beta), -self._miss(frame @ centre)
        return -2.0 * self.chain(x, frame.T @ miss, np.outer(miss, theta) + np.outer(left, centre))

    def outer(self, x: Floats) -> float:
        """a2^2 - |beta - beta_2|_V^2."""
        shift = self.split(x)[3] - self.problem.mean
        return float(self.problem.outer * (1.0 - SLACK) - shift @ self.problem.gram @ shift)

    def outer_slope(self, x: Floats) -> Floats:
        """Gradient of `outer`."""
        theta, _, frame, beta = self.split(x)
        miss = self._miss(beta)
        return -2.0 * self.chain(x, frame.T @ miss, np.outer(miss, theta))

    def ball(self, x: Floats) -> float:
        """R^2 - |beta|^2."""
        beta = self.split(x)[3]
        return float(self.problem.bound**2 * (1.0 - SLACK) - beta @ beta)

    def ball_slope(self, x: Floats) -> Floats:
        """Gradient of `ball`."""
        theta, _, frame, beta = self.split(x)
        return -2.0 * self.chain(x, frame.T @ beta, np.outer(beta, theta))

    def sines(self, x: Floats) -> float:
        """Delta^2 / 2 - tr(B^T B (I + B^T B)^-1), B = Y X^T."""
        squares = self._squares(x)
        inverse = np.linalg.inv(np.eye(len(squares)) + squares)
        return float(self.problem.tilt * (1.0 - SLACK) - np.sum(inverse * squares))

    def sines_slope(self, x: Floats) -> Floats:
        """Gradient of `sines`."""
        inverse = np.linalg.inv(np.eye(self.problem.rank) + self._squares(x))
        product = self.split(x)[2] - self.problem.basis
        return -2.0 * self.chain(x, np.zeros(self.problem.rank), product @ inverse @ inverse)

    def _squares(self, x: Floats) -> Floats:
        product = self.split(x)[2] - self.problem.basis
        squares: Floats = product.T @ product
        return squares

    def _centre(self, frame: Floats) -> Floats:
        gram: Floats = frame.T @ self.problem.gram @ frame
        return np.asarray(np.linalg.solve(gram, frame.T @ self.problem.moment), dtype=np.float64)

    def _miss(self, beta: Floats) -> Floats:
        miss: Floats = self.problem.gram @ beta - self.problem.moment
        return miss
