"""Compiled loop of LOCAL-UCB's ascent: from one tilt to a better one, until no step promises anything.

The value of a tilt (`tilt_loops`) is smooth wherever it is finite, once its kink is rounded. It is climbed by a
quasi-Newton method with a limited memory (`array_loops`), each step shortened until it gains a fair share of what the
gradient promises, which also keeps the ascent where the value is finite. The maximum that is found is one among its
neighbours only; where to begin is the business of `tilts` and `rounds`.

Compiled loops of the pair relaxation's dual, the upper bound of LOCAL-UCB's values (docs/paper/local-ucb.md,
Theorem 4).

In the coordinates of `upper_bounds` beta and r = b - V beta_1(U) meet five constraints, all diagonal:

    |beta - m|^2 + |r - m|^2 <= a1^2 + |m|^2     (inner),        sum cone_i beta_i^2 <= 0      (cone),
    |beta - m|^2 <= a2^2                         (outer),        sum polar_i r_i^2 <= 0        (polar),
                                                                 beta . r = 0                  (cross),

with m the coordinates of beta_2. For fixed multipliers x = (inner, outer, cone, polar, cross), the first four positive,
the Lagrangian of maximising phi . beta splits into d problems in two variables, (beta_i, r_i): its supremum is the
dual, which bounds the value from above whatever the multipliers are. They are chosen by Newton's method with a barrier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import (
    StepMemory,
    cholesky,
    compiled,
    dot,
    lbfgs_first_loop,
    lbfgs_second_loop,
    remember,
    solve,
)
from newcomer.arrays import Floats
from newcomer.local.problem import Problem
from newcomer.local.tilt_loops import (
    NUMBERS,
    Tilted,
    evaluate_tilt_loop,
    example_for_tilt_loops,
    project_out_of_tilt_loop,
    room_for_tilt_loops,
    write_tilt_evaluation_loop,
)

MEMORY = 8  # steps that the ascent remembers
STEPS = 200  # at most
HALVINGS = 12  # of an infeasible start on its way to U_hat; the last goes all the way
FAIR = 1e-4  # share of the promised gain that a step must attain


class Ascent(NamedTuple):
    """The end of an ascent."""

    end: Tilted
    steepness: float  # |tilt| |gradient|, small at a smooth maximum
    evaluations: int


@compiled
def _ascent_newton_direction(memory: StepMemory, slope: Floats, ahead: Floats) -> None:
    """Write the quasi-Newton direction of ascent for a gradient `slope` (n,).

    The first guess of the inverse Hessian is the multiple of I that fits the newest step.
    """
    ahead[:] = slope
    weights = np.zeros(MEMORY)
    lbfgs_first_loop(memory, ahead, weights)
    newest = (memory.taken[0] - 1) % MEMORY
    scale = memory.curves[newest] / dot(memory.turns[newest], memory.turns[newest])
    for i in range(ahead.size):
        ahead[i] *= scale
    lbfgs_second_loop(memory, weights, ahead)


@compiled
def _project_ascent_tilt(basis: Floats, tilt: Floats) -> None:
    """Take the part in U_hat away from both columns of Y, in place."""
    for c in range(2):
        column = tilt[: basis.shape[0], c].copy()
        project_out_of_tilt_loop(basis, column)
        tilt[: basis.shape[0], c] = column


@compiled
def _first_feasible_ascent(problem: Problem, action: Floats, tilt: Floats, smooth: float) -> tuple[Tilted, int]:
    """Evaluate the start of an ascent; where it holds no feasible point, move it to U_hat, in place, until it does.

    Returns what was found and the number of evaluations.
    """
    spent = 0
    while True:
        found = evaluate_tilt_loop(problem, action, tilt, smooth)
        spent += 1
        if found.value > -np.inf or spent > HALVINGS:
            return found, spent
        for i in range(problem.basis.shape[0]):
            for c in range(2):
                tilt[i, c] *= 0.5 if spent < HALVINGS else 0.0


@compiled
def _ascend_tilt(problem: Problem, action: Floats, tilt: Floats, smooth: float, tolerance: float) -> Ascent:
    """Ascend from a tilt, in place, until two steps in a row gain and promise less than about `tolerance`.

    A step promises what the value would gain if it were linear. It is shortened while it gains less than FAIR of that:
    to the maximum of the parabola through value, slope and gain, or to three tenths where it led to where nothing is
    feasible. Where not even a short step gains, the memory is dropped and the gradient itself is tried once; the ascent
    begins with the gradient too, and with a step in proportion to the length of Y. All arrays are worked on as flat
    vectors of n = 2 (d + k).
    """
    shape, d, n = tilt.shape, problem.basis.shape[0], tilt.size
    here, spent = _first_feasible_ascent(problem, action, tilt, smooth)
    if here.value == -np.inf:
        return Ascent(here, 0.0, spent)
    taken = np.zeros(1, dtype=np.int64)
    memory = StepMemory(np.zeros((MEMORY, n)), np.zeros((MEMORY, n)), np.ones(MEMORY), taken)
    trial, ahead, move, turn = np.empty(shape), np.empty(n), np.empty(n), np.empty(n)
    now, new, slope = tilt.reshape(n), trial.reshape(n), here.slope.reshape(n)
    quiet, stuck = 0, False
    for _ in range(STEPS):
        steepness = dot(slope, slope)
        if taken[0] > 0:
            _ascent_newton_direction(memory, slope, ahead)
        elif steepness > 0.0 and not stuck:
            reach = (0.3 * np.sqrt(dot(now[: 2 * d], now[: 2 * d])) + 1e-3) / np.sqrt(steepness)
            for i in range(n):
                ahead[i] = reach * slope[i]
        else:
            break
        _project_ascent_tilt(problem.basis, ahead.reshape(shape))
        promise, step, gain, done = dot(slope, ahead), 1.0, 0.0, False
        while step * promise > 0.01 * tolerance and not done:
            for i in range(n):
                new[i] = now[i] + step * ahead[i]
            there = evaluate_tilt_loop(problem, action, trial, smooth)
            spent += 1
            gain, promised = there.value - here.value, step * promise
            done = gain >= FAIR * promised
            if not done:
                step *= 0.3 if gain == -np.inf else min(max(0.5 * promised / (promised - gain), 0.1), 0.6)
        if not done:  # without a memory there was nothing left to try
            stuck, taken[0] = taken[0] == 0, 0
            continue
        stuck, beyond = False, there.slope.reshape(n)
        for i in range(n):
            move[i], turn[i] = new[i] - now[i], slope[i] - beyond[i]
            now[i] = new[i]
        remember(memory, move, turn)
        here, slope = there, beyond
        quiet = quiet + 1 if gain < tolerance and step * promise < 10.0 * tolerance else 0
        if quiet >= 2:
            break
    return Ascent(here, np.sqrt(dot(now, now) * dot(slope, slope)), spent)


@compiled
def write_ascent(
    problem: Problem,
    action: Floats,
    tilt: Floats,
    smooth: float,
    tolerance: float,
    slope: Floats,
    theta: Floats,
    numbers: Floats,
) -> int:
    """`_ascend_tilt`, for callers in Python: the end as by `write_evaluated_tilt_loop`, and the steepness.

    Returns the number of evaluations.
    """
    found = _ascend_tilt(problem, action, tilt, smooth, tolerance)
    write_tilt_evaluation_loop(found.end, slope, theta, numbers)
    numbers[NUMBERS] = found.steepness
    return int(found.evaluations)


DUAL_STEPS = 80  # of Newton's method, at most
FAIR_FALL = 1e-4  # share of the promised fall that a step must attain
RAISE = 1e-13  # of the scaled diagonal, so that a flat direction does no harm


class PairDual(NamedTuple):
    """What the dual of one action is made of."""

    cone: Floats  # (d,), the diagonal of M
    polar: Floats  # (d,), the diagonal of M'
    mean: Floats  # (d,), m
    half: Floats  # (d,), phi / 2
    inner: float  # a1^2
    outer: float  # a2^2


class Terms(NamedTuple):
    """The dual, row 0, and its logarithmic barrier, row 1, at some multipliers; infinite outside the dual's domain."""

    value: float
    barrier: float
    slope: Floats  # (2, 5), gradients
    bend: Floats  # (2, 5, 5), Hessians


@compiled
def _dual_ascent_terms(dual: PairDual, x: Floats) -> Terms:
    """The dual and its barrier at multipliers x (5,).

    Coordinate i maximises 2 u beta + 2 w r - (beta, r) Q (beta, r)^T with Q = [[a, e], [e, c]], at Q^-1 (u, w). The
    domain is where every Q is positive definite, and -sum log det Q - sum log x its barrier, over the four positive x.

    Row m of `q` (5, 3) is the derivative of (a, c, e) with respect to x_m, so that of Q is a symmetric matrix Q_m; row
    m of `g` (5, 2) is that of (u, w) less Q_m (beta, r)^T, the change of the linear terms at the maximiser. With P =
    Q^-1 the coordinate adds 2 g_m P g_n^T to the Hessian of the dual, tr(P Q_m P Q_n) to that of the barrier, and -tr(P
    Q_m) to its gradient.
    """
    inner, outer, cone, polar, cross = x
    energy = dot(dual.mean, dual.mean)
    total, barrier = inner * (dual.inner - energy) + outer * (dual.outer - energy), 0.0
    slope, bend = np.zeros((2, 5)), np.zeros((2, 5, 5))
    slope[0, 0], slope[0, 1] = dual.inner + energy, dual.outer
    for p in range(4):
        barrier -= np.log(x[p])
        slope[1, p] = -1.0 / x[p]
        bend[1, p, p] = 1.0 / (x[p] * x[p])
    g, q = np.zeros((5, 2)), np.zeros((5, 3))
    q[0, 0], q[0, 1], q[1, 0], q[4, 2] = 1.0, 1.0, 1.0, 1.0
    for i in range(dual.mean.size):
        mean, by_cone, by_polar = dual.mean[i], dual.cone[i], dual.polar[i]
        a, c, e = inner + outer + cone * by_cone, inner + polar * by_polar, cross
        det = a * c - e * e
        if not (a > 0.0 and c > 0.0 and det > 0.0):
            return Terms(np.inf, np.inf, slope, bend)
        u, w = dual.half[i] + (inner + outer) * mean, inner * mean
        beta, r = (c * u - e * w) / det, (a * w - e * u) / det
        total += u * beta + w * r
        barrier -= np.log(det)
        q[2, 0], q[3, 1] = by_cone, by_polar
        g[0, 0], g[0, 1], g[1, 0] = mean - beta, mean - r, mean - beta
        g[2, 0], g[3, 1], g[4, 0], g[4, 1] = -by_cone * beta, -by_polar * r, -r, -beta
        slope[0, 0] -= g[0, 0] * g[0, 0] + g[0, 1] * g[0, 1]
        slope[0, 1] -= g[0, 0] * g[0, 0]
        slope[0, 2] -= by_cone * beta * beta
        slope[0, 3] -= by_polar * r * r
        slope[0, 4] -= 2.0 * beta * r
        pa, pc, pe = c / det, a / det, -e / det  # the entries of P = Q^-1
        for m in range(5):
            qa, qc, qe = q[m, 0], q[m, 1], q[m, 2]
            slope[1, m] -= pa * qa + pc * qc + 2.0 * pe * qe
            # The entries of P (dQ / dx_m) P, and twice P times row m of g.
            ma, mc = pa * pa * qa + 2.0 * pa * pe * qe + pe * pe * qc, pe * pe * qa + 2.0 * pe * pc * qe + pc * pc * qc
            me = pa * pe * qa + (pa * pc + pe * pe) * qe + pe * pc * qc
            s, t = 2.0 * (pa * g[m, 0] + pe * g[m, 1]), 2.0 * (pe * g[m, 0] + pc * g[m, 1])
            for n in range(m + 1):
                bend[0, m, n] += s * g[n, 0] + t * g[n, 1]
                bend[1, m, n] += ma * q[n, 0] + mc * q[n, 1] + 2.0 * me * q[n, 2]
    for m in range(5):
        for n in range(m):
            bend[:, n, m] = bend[:, m, n]
    return Terms(total, barrier, slope, bend)


@compiled
def _dual_ascent_step(terms: Terms, weight: float, ahead: Floats) -> float:
    """Write the Newton step `ahead` (5,) of dual + weight * barrier; returns its decrement, 0 if there is no step.

    The Hessian is scaled to a unit diagonal first: the multipliers differ by orders of magnitude.
    """
    matrix, scale, lean = np.empty((5, 5)), np.empty(5), np.empty(5)
    for m in range(5):
        scale[m] = np.sqrt(terms.bend[0, m, m] + weight * terms.bend[1, m, m])
        lean[m] = -(terms.slope[0, m] + weight * terms.slope[1, m]) / scale[m]
        for n in range(m + 1):
            matrix[m, n] = (terms.bend[0, m, n] + weight * terms.bend[1, m, n]) / (scale[m] * scale[n])
        matrix[m, m] += RAISE
    if not cholesky(matrix, matrix, 0.0):
        return 0.0
    solve(matrix, lean, ahead)
    decrement = dot(lean, ahead)
    for m in range(5):
        ahead[m] /= scale[m]
    return decrement


@compiled
def dual_ascent_bound(dual: PairDual, accuracy: float, x: Floats) -> float:
    """Minimise the dual over the multipliers, from x, where it must be finite; the last ones are left in x.

    Newton steps along a falling weight of the barrier: a tenth of the value in all at first, a twentieth of itself
    after each round, and at last so small that the barrier costs no more than `accuracy`. Every value on the way is an
    upper bound, so stopping early costs sharpness, never validity. -inf where the dual falls without end, which proves
    that nothing is feasible.
    """
    ahead, terms, parts = np.zeros(5), _dual_ascent_terms(dual, x), 4.0 + 2.0 * dual.mean.size
    first, best, last = terms.value, terms.value, accuracy / parts
    weight = max(0.1 * abs(first) / parts, last)
    for _ in range(DUAL_STEPS):
        decrement = _dual_ascent_step(terms, weight, ahead)
        step, moved = 1.0, False
        for p in range(4):  # stay where the first four are positive
            if ahead[p] < 0.0:
                step = min(step, -0.95 * x[p] / ahead[p])
        while step > 1e-7 and decrement > 0.0 and not moved:
            found = _dual_ascent_terms(dual, x + step * ahead)
            fall = terms.value - found.value + weight * (terms.barrier - found.barrier)
            moved = fall >= FAIR_FALL * step * decrement
            if not moved:
                step *= 0.5
        if moved:
            x += step * ahead
            terms = found
            best = min(best, terms.value)
        if terms.value < -1e9 * (abs(first) + accuracy):
            return -np.inf
        if not moved or decrement < weight:
            if weight <= last:
                break
            weight = max(0.05 * weight, last)
    return best


def warm_ascent_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    problem, action, tilt = example_for_tilt_loops()
    one, table = np.ones(8), np.ones((MEMORY, 8))
    memory = StepMemory(table, table.copy(), np.ones(MEMORY), np.ones(1, dtype=np.int64))
    _ascent_newton_direction(memory, one, one.copy())
    _project_ascent_tilt(problem.basis, tilt.copy())
    write_ascent(problem, action, tilt, 1e-3, 1e-3, *room_for_tilt_loops(problem))
    single, x = np.ones(1), np.array([1.0, 1.0, 0.5, 0.5, 0.0])
    dual = PairDual(-single, -single, single, single, 1.0, 1.0)
    _dual_ascent_step(Terms(0.0, 0.0, np.ones((2, 5)), np.ones((2, 5, 5))), 1.0, np.empty(5))
    dual_ascent_bound(dual, 1e-3, x)
