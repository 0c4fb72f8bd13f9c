"""Slow, obvious answers to the inner problem of LOCAL-UCB (Algorithm 2, step 4).

One covers all subspaces with a grid, the other is an optimiser that knows none of the reductions. Nothing here uses
newcomer.local.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from newcomer.arrays import Floats


@dataclass(frozen=True)
class Case:
    """One user, round and action, with what Algorithm 2 is given."""

    gram: Floats
    moment: Floats
    basis: Floats
    action: Floats
    radius: float
    inner: float
    outer: float
    bound: float

    @property
    def scale(self) -> float:
        """LinUCB's width a2 |phi|_{V^-1}."""
        return float(self.outer * np.sqrt(self.action @ np.linalg.solve(self.gram, self.action)))

    @property
    def tilt(self) -> float:
        """Delta^2 / 2."""
        return min(self.radius**2 / 2, 1.0)


def random_case(
    rng: np.random.Generator, d: int, k: int, *, bounded: bool | None = None, sine: float | None = None
) -> Case:
    """A user after a random number of rounds, with a basis near the truth, radii and R of every size."""
    truth = np.linalg.qr(rng.normal(size=(d, k)))[0]
    beta = truth @ rng.normal(size=k)
    basis = np.linalg.qr(truth + rng.uniform(0, 0.6) * rng.normal(size=(d, k)) / np.sqrt(d))[0]
    x = rng.normal(size=(rng.integers(0, 5 * d), d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    reward = x @ beta + 0.5 * rng.normal(size=len(x))
    action = rng.normal(size=d)
    sine = rng.uniform(0.02, 1.05) if sine is None else sine
    bounded = rng.random() < 0.5 if bounded is None else bounded
    inner, outer = rng.uniform(0.3, 2.0) * np.sqrt(k), rng.uniform(0.3, 2.0) * np.sqrt(d)
    bound = rng.uniform(0.6, 1.5) * np.linalg.norm(beta) if bounded else np.inf
    return Case(
        np.eye(d) + x.T @ x,
        x.T @ reward,
        basis,
        action / np.linalg.norm(action),
        float(np.sqrt(2) * sine),
        inner,
        outer,
        float(bound),
    )


def in_subspaces(case: Case, frames: Floats) -> Floats:
    """The best phi^T beta in the span of each orthonormal frame (n, d, k), k <= 2: -inf where nothing is feasible.

    Directions of beta within the span are scanned, and scanned again about the best one; along a direction every
    constraint is a quadratic inequality in the length of beta.
    """
    k = frames.shape[2]
    if k == 1:
        return np.maximum(_along(case, frames[:, :, 0]), _along(case, -frames[:, :, 0]))
    best, centre, width = np.full(len(frames), -np.inf), np.zeros(len(frames)), np.pi
    for _ in range(4):
        angles = centre[:, None] + np.linspace(-width, width, 25)
        directions = (
            np.cos(angles)[..., None] * frames[:, None, :, 0] + np.sin(angles)[..., None] * frames[:, None, :, 1]
        )
        values = _along(case, directions.reshape(-1, frames.shape[1]), np.repeat(_gap(case, frames), 25)).reshape(
            angles.shape
        )
        place = values.argmax(axis=1)
        centre, width = angles[np.arange(len(frames)), place], width / 8
        best = np.maximum(best, values.max(axis=1))
    return best


def _gap(case: Case, frames: Floats) -> Floats:
    """min over the span of |beta - beta_2|_V^2, for each frame."""
    inside = np.einsum("ndk,de,nel->nkl", frames, case.gram, frames)
    moments = np.einsum("ndk,d->nk", frames, case.moment)
    fit = np.einsum("nk,nk->n", moments, np.linalg.solve(inside, moments[..., None])[..., 0])
    return case.moment @ np.linalg.solve(case.gram, case.moment) - fit


def _along(case: Case, directions: Floats, gap: Floats | None = None) -> Floats:
    """The largest phi^T (t u), t >= 0, over |t u - beta_2|_V^2 <= min(a2^2, a1^2 + gap) and |t u| <= R, for unit u."""
    gap = _gap(case, directions[:, :, None]) if gap is None else gap
    a = np.einsum("nd,de,ne->n", directions, case.gram, directions)
    b = directions @ case.moment
    c = case.moment @ np.linalg.solve(case.gram, case.moment) - np.minimum(case.outer**2, case.inner**2 + gap)
    square = b**2 - a * c
    root = np.sqrt(np.maximum(square, 0))
    low, high = np.maximum((b - root) / a, 0.0), np.minimum((b + root) / a, case.bound)
    reward = directions @ case.action
    return np.where((square >= 0) & (high >= low), np.maximum(low * reward, high * reward), -np.inf)


def frames_of(case: Case, tilts: Floats) -> Floats:
    """Orthonormal frames of U_hat + U_hat_perp B for tilts B (n, d - k, k).

    Tilts that exceed the radius are scaled back to it.
    """
    k = case.basis.shape[1]
    complement = np.linalg.svd(case.basis, full_matrices=True)[0][:, k:]
    if case.tilt < 1:
        low, high = np.zeros(len(tilts)), np.ones(len(tilts))
        inside = _sines(tilts) <= case.tilt
        for _ in range(60):
            middle = (low + high) / 2
            fits = _sines(middle[:, None, None] * tilts) <= case.tilt
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        tilts = np.where(inside, 1.0, low)[:, None, None] * tilts
    return np.linalg.qr(case.basis + complement @ tilts)[0]


def _sines(tilts: Floats) -> Floats:
    """tr(B^T B (I + B^T B)^-1): the sum of the squared sines of the angles between the two subspaces."""
    squares = np.swapaxes(tilts, 1, 2) @ tilts
    return np.trace(np.linalg.solve(np.eye(tilts.shape[2]) + squares, squares), axis1=1, axis2=2)


def cover_value(case: Case, *, cells: int, keep: int, levels: int) -> float:
    """The best value over a grid of tilts, refined `levels` times about the `keep` best cells.

    Tilts are written B = tan-scaled points of a box that reaches the edge of the radius; beyond it they are scaled
    back, so that the edge itself is covered. Without a radius the box reaches to angles of 88 degrees.
    """
    d, k = case.basis.shape
    size = (d - k) * k
    edge = np.arctan(np.sqrt(case.tilt / (1 - case.tilt))) if case.tilt < 0.999 else np.deg2rad(88)
    width = 1.02 * edge
    axes = np.stack(np.meshgrid(*[np.linspace(-width, width, cells)] * size, indexing="ij"), axis=-1).reshape(-1, size)
    best, step = -np.inf, 2 * width / (cells - 1)
    offsets = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * size, indexing="ij"), axis=-1).reshape(-1, size)
    for _ in range(levels):
        values = in_subspaces(case, frames_of(case, np.tan(np.clip(axes, -1.55, 1.55)).reshape(-1, d - k, k)))
        best = max(best, float(values.max()))
        leaders = axes[np.argsort(-values)[:keep]]
        step *= 0.6
        axes = (leaders[:, None] + step * offsets).reshape(-1, size)
    return best


def random_starts_value(case: Case, *, starts: int, rng: np.random.Generator) -> float:
    """The best feasible value that SLSQP finds over (theta, B) from random starts; B has its full size."""
    found = [_slsqp(case, rng) for _ in range(starts)]
    return max(found)


def _slsqp(case: Case, rng: np.random.Generator) -> float:
    d, k = case.basis.shape
    complement = np.linalg.svd(case.basis, full_matrices=True)[0][:, k:]
    gram, moment = case.gram, case.moment
    estimate = np.linalg.solve(gram, moment)

    def split(x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        theta, tilt = x[:k], x[k:].reshape(d - k, k)
        frame = case.basis + complement @ tilt
        return theta, tilt, frame, frame @ theta

    def flat(on_theta: Floats, on_frame: Floats) -> Floats:
        return np.concatenate([on_theta, (complement.T @ on_frame).ravel()])

    def inner(x: Floats) -> float:
        _, _, frame, beta = split(x)
        first = frame @ np.linalg.solve(frame.T @ gram @ frame, frame.T @ moment)
        return float(case.inner**2 - (beta - first) @ gram @ (beta - first))

    def inner_slope(x: Floats) -> Floats:
        theta, _, frame, beta = split(x)
        centre = np.linalg.solve(frame.T @ gram @ frame, frame.T @ moment)
        miss, fit = gram @ beta - moment, moment - gram @ frame @ centre
        return -flat(2 * frame.T @ miss, 2 * np.outer(miss, theta) + 2 * np.outer(fit, centre))

    def outer(x: Floats) -> float:
        beta = split(x)[3]
        return float(case.outer**2 - (beta - estimate) @ gram @ (beta - estimate))

    def outer_slope(x: Floats) -> Floats:
        theta, _, frame, beta = split(x)
        miss = gram @ (beta - estimate)
        return -flat(2 * frame.T @ miss, 2 * np.outer(miss, theta))

    def ball(x: Floats) -> float:
        beta = split(x)[3]
        return float(case.bound**2 - beta @ beta)

    def ball_slope(x: Floats) -> Floats:
        theta, _, frame, beta = split(x)
        return -flat(2 * frame.T @ beta, 2 * np.outer(beta, theta))

    def sines(x: Floats) -> float:
        return float(case.tilt - _sines(split(x)[1][None])[0])

    def sines_slope(x: Floats) -> Floats:
        tilt = split(x)[1]
        shrink = np.linalg.inv(np.eye(k) + tilt.T @ tilt)
        return np.concatenate([np.zeros(k), -(2 * tilt @ shrink @ shrink).ravel()])

    limits = [(inner, inner_slope), (outer, outer_slope)]
    limits += [(ball, ball_slope)] if case.bound < np.inf else []
    limits += [(sines, sines_slope)] if case.tilt < 1 else []
    reach = np.sqrt(case.tilt / max(1 - case.tilt, 0.05)) / np.sqrt(k)
    start = np.concatenate(
        [rng.normal(size=k), rng.normal(size=(d - k) * k) * reach * rng.uniform(0.1, 1.0) / np.sqrt(d - k)]
    )
    result = minimize(
        lambda x: -float(case.action @ split(x)[3]),
        start,
        jac=lambda x: -flat(split(x)[2].T @ case.action, np.outer(case.action, split(x)[0])),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": f, "jac": g} for f, g in limits],
        options={"maxiter": 300, "ftol": 1e-10},
    )
    feasible = all(f(result.x) >= -1e-7 for f, _ in limits)
    return -float(result.fun) if feasible else -np.inf


def main(count: int) -> None:
    """Compare newcomer.local with both covers over `count` random cases each: python -m tests.oracles.local 200."""
    from newcomer.local import rounds
    from newcomer.local.problem import pose_problem

    for d, k, effort in ((3, 1, COVER_3), (4, 2, COVER_4)):
        worst, found = 0.0, 0
        for seed in range(count):
            case = random_case(np.random.default_rng([d, seed]), d, k)
            limits = {"radius": case.radius, "inner": case.inner, "outer": case.outer, "bound": case.bound}
            ours = rounds.solve_round(pose_problem(case.gram, case.moment, case.basis, **limits), case.action[None])
            oracle = cover_value(case, **effort)
            if np.isfinite(oracle):
                found += 1
                worst = max(worst, abs(oracle - float(ours.values[0])) / case.scale)
        print(f"d={d} k={k}: {found} of {count} cases feasible, largest difference {worst:.1e} of LinUCB's width")


COVER_3 = {"cells": 101, "keep": 50, "levels": 8}
COVER_4 = {"cells": 9, "keep": 30, "levels": 16}

if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]))
