"""Compiled loops of the pair relaxation's dual (its maths: `pencil` and docs/local-ucb.md, Theorem 4)."""

from __future__ import annotations

import numpy as np

from newcomer.array_loops import compiled
from newcomer.local.algebra import cholesky, dot, solve
from newcomer.local.problem import Floats


@compiled
def pair_terms(
    x: Floats,
    cone: Floats,
    polar: Floats,
    mean: Floats,
    half: Floats,
    inner: float,
    outer: float,
    slope: Floats,
    bend: Floats,
) -> tuple[float, float]:
    """The pair dual at multipliers x = (inner, outer, cone, polar cone, orthogonality), and its logarithmic barrier.

    The coordinates decouple: coordinate i maximises 2 u beta + 2 w r - (beta, r) Q (beta, r)^T, Q = [[a, e], [e, c]].
    Infinite where one Q is not positive definite. Writes gradients (2, 5) and Hessians (2, 5, 5) of both.
    """
    energy = dot(mean, mean)
    total, barrier = x[0] * (inner - energy) + x[1] * (outer - energy), 0.0
    slope[:], bend[:] = 0.0, 0.0
    slope[0, 0], slope[0, 1] = inner + energy, outer
    for p in range(4):
        barrier -= np.log(x[p])
        slope[1, p] = -1.0 / x[p]
        bend[1, p, p] = 1.0 / (x[p] * x[p])
    g, q = np.zeros((5, 2)), np.zeros((5, 3))  # how the linear terms, and the entries of Q, move with x
    q[0, 0], q[0, 1], q[1, 0], q[4, 2] = 1.0, 1.0, 1.0, 1.0
    for i in range(mean.size):
        a, c, e = x[0] + x[1] + x[2] * cone[i], x[0] + x[3] * polar[i], x[4]
        det = a * c - e * e
        if not (a > 0.0 and c > 0.0 and det > 0.0):
            return np.inf, np.inf
        u, w = half[i] + (x[0] + x[1]) * mean[i], x[0] * mean[i]
        beta, r = (c * u - e * w) / det, (a * w - e * u) / det
        total += u * beta + w * r
        barrier -= np.log(det)
        q[2, 0], q[3, 1] = cone[i], polar[i]
        g[0, 0], g[0, 1], g[1, 0] = mean[i] - beta, mean[i] - r, mean[i] - beta
        g[2, 0], g[3, 1], g[4, 0], g[4, 1] = -cone[i] * beta, -polar[i] * r, -r, -beta
        slope[0, 0] -= g[0, 0] * g[0, 0] + g[0, 1] * g[0, 1]
        slope[0, 1] -= g[0, 0] * g[0, 0]
        slope[0, 2] -= cone[i] * beta * beta
        slope[0, 3] -= polar[i] * r * r
        slope[0, 4] -= 2.0 * beta * r
        pa, pc, pe = c / det, a / det, -e / det
        for m in range(5):
            qa, qc, qe = q[m, 0], q[m, 1], q[m, 2]
            slope[1, m] -= pa * qa + pc * qc + 2.0 * pe * qe
            ma, mc = pa * pa * qa + 2.0 * pa * pe * qe + pe * pe * qc, pe * pe * qa + 2.0 * pe * pc * qe + pc * pc * qc
            me = pa * pe * qa + (pa * pc + pe * pe) * qe + pe * pc * qc
            s, t = 2.0 * (pa * g[m, 0] + pe * g[m, 1]), 2.0 * (pe * g[m, 0] + pc * g[m, 1])
            for n in range(m + 1):
                bend[0, m, n] += s * g[n, 0] + t * g[n, 1]
                bend[1, m, n] += ma * q[n, 0] + mc * q[n, 1] + 2.0 * me * q[n, 2]
    for m in range(5):
        for n in range(m):
            bend[:, n, m] = bend[:, m, n]
    return total, barrier


@compiled
def newton(slope: Floats, bend: Floats, weight: float, work: Floats, ahead: Floats) -> float:
    """Writes the Newton step `ahead` of dual + weight * barrier and returns its decrement (0 if there is none).

    The diagonal is scaled to one and raised a little, so that a flat direction does no harm.
    """
    matrix, lower, lean, scale = work[:5], work[5:10], work[10], work[11]
    for m in range(5):
        scale[m] = np.sqrt(bend[0, m, m] + weight * bend[1, m, m])
        lean[m] = -(slope[0, m] + weight * slope[1, m]) / scale[m]
    for m in range(5):
        for n in range(5):
            matrix[m, n] = (bend[0, m, n] + weight * bend[1, m, n]) / (scale[m] * scale[n])
        matrix[m, m] += 1e-13
    if not cholesky(matrix, lower):
        return 0.0
    solve(lower, lean, ahead)
    decrement = dot(lean, ahead)
    for m in range(5):
        ahead[m] /= scale[m]
    return decrement


@compiled
def pair_bound(
    cone: Floats, polar: Floats, mean: Floats, half: Floats, inner: float, outer: float, accuracy: float, x: Floats
) -> float:
    """Minimise the pair dual by Newton steps along a falling logarithmic barrier.

    Starts from x, where the dual must be finite, and leaves the last multipliers in it. Every value along the way is an
    upper bound, so stopping early costs sharpness, never validity.
    """
    slope, bend, trial_slope, trial_bend = np.zeros((2, 5)), np.zeros((2, 5, 5)), np.zeros((2, 5)), np.zeros((2, 5, 5))
    work, ahead, trial = np.empty((12, 5)), np.zeros(5), np.empty(5)
    value, wall = pair_terms(x, cone, polar, mean, half, inner, outer, slope, bend)
    first, best, last = value, value, accuracy / (4.0 + 2.0 * mean.size)
    weight = max(0.1 * abs(value) / (4.0 + 2.0 * mean.size), last)
    for _ in range(80):
        decrement = newton(slope, bend, weight, work, ahead)
        step, moved = 1.0, False
        for p in range(4):
            if ahead[p] < 0.0:
                step = min(step, -0.95 * x[p] / ahead[p])
        while step > 1e-7 and decrement > 0.0:
            for p in range(5):
                trial[p] = x[p] + step * ahead[p]
            found, at = pair_terms(trial, cone, polar, mean, half, inner, outer, trial_slope, trial_bend)
            if found - value + weight * (at - wall) <= -1e-4 * step * decrement:
                moved = True
                break
            step *= 0.5
        if moved:
            value, wall = found, at
            x[:], slope[:], bend[:] = trial, trial_slope, trial_bend
            best = min(best, value)
        if value < -1e9 * (abs(first) + accuracy):
            return -np.inf  # without bound from below: nothing is feasible
        if not moved or decrement < weight:
            if weight <= last:
                break
            weight = max(0.05 * weight, last)
    return best


def warm() -> None:
    """Load the loops from the cache, compiling those that are not there yet."""
    one = np.ones(1)
    pair_bound(-one, -one, one, one, 1.0, 1.0, 1e-3, np.array([1.0, 1.0, 0.5, 0.5, 0.0]))
