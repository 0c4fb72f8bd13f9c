"""Compiled loops of LOCAL-UCB: what an action is worth in the subspace of one tilt, and how that changes with the tilt.

A tilt is a (d + k, 2) array: rows Y (d, 2), orthogonal to U_hat, above rows X (k, 2). It stands for the subspace
spanned by W = U_hat + Y X^T; rank two is enough (docs/paper/local-ucb.md, Theorem 3). A product Y X^T that leads
further away from U_hat than the radius allows is scaled back to the edge, so every tilt is allowed and an ascent needs
no constraint for it.

Within the subspace the problem has k unknowns theta, beta = W theta, and is convex (Theorem 1): an ellipsoid, whose
squared radius is min(a1^2, a2^2 - gap), and the ball |W theta| <= R. Its value is -inf where these have no common
point, as the maximum over nothing. An evaluation costs one product of V with the two columns of Y, d^2 operations each,
and then order d k + k^3. The two columns of Y and of X are worked on as contiguous rows, y (2, d) and x (2, k). Plain
loops, because array expressions take Numba a minute to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import cholesky, compiled, dot, quadratic_form, solve
from newcomer.arrays import Floats
from newcomer.local.problem import Problem

MIXTURES = 80  # at most, tried for the weight at which the maximiser meets the ball
CLOSE = 1e-12  # relative distance of the squared length from R^2 at which it does
NUMBERS = 5  # of a `Tilted`


class Shape(NamedTuple):
    """A tilt taken apart: what does not depend on the action."""

    y: Floats  # (2, d), the columns of Y
    x: Floats  # (2, k), the columns of X
    vy: Floats  # (2, d), y V
    yy: Floats  # (2, 2), Y^T Y
    xx: Floats  # (2, 2), X^T X
    trace: float  # t, of X^T X Y^T Y
    det: float  # s, of the same
    omega: float  # at most 1: the tilt that is evaluated is sqrt(omega) Y X^T


class Section(NamedTuple):
    """An action's problem within one subspace, in the coordinates theta."""

    gram: Floats  # (k, k), W^T V W
    norm: Floats  # (k, k), W^T W
    moment: Floats  # (k,), W^T b
    action: Floats  # (k,), W^T phi


class Optimum(NamedTuple):
    """The maximiser of a section, and what a little more room in each constraint would be worth."""

    value: float  # phi . beta, -inf where no theta meets the constraints
    theta: Floats  # (k,)
    ellipsoid: float  # lambda, the multiplier of the ellipsoid's squared radius
    ball: float  # nu, the multiplier of R^2


class Tilted(NamedTuple):
    """What an evaluation of a tilt finds."""

    value: float  # phi . beta, -inf where the subspace holds no feasible beta
    slope: Floats  # (d + k, 2), the gradient of the value
    theta: Floats  # (k,), beta = W theta
    scale: float  # at most 1: what Y X^T was multiplied by to be allowed
    radial: float  # how the value changes as Y X^T grows in proportion, without scaling back
    share: float  # of a2 in the squared radius: near 0 where a1 decides, near 1 where a2 does, between them at the kink
    length: float  # |beta|, infinite where nothing is feasible


@compiled
def _scale_back_tilt(trace: float, det: float, tilt: float) -> float:
    """The largest omega <= 1 with which B = sqrt(omega) Y X^T has squared sines that sum to at most `tilt`.

    `trace` and `det` are the sum t and the product s of the two eigenvalues of (Y X^T)^T Y X^T that may differ from
    zero. The squared sines are eigenvalues over one plus themselves, and their sum is (t + 2 s) / (1 + t + s); with
    omega t and omega^2 s in their places, setting this equal to `tilt` is a quadratic equation in omega.
    """
    if tilt >= 1.0 or trace + 2.0 * det <= tilt * (1.0 + trace + det):
        return 1.0
    half = trace * (1.0 - tilt)
    return float(2.0 * tilt / (half + np.sqrt(half * half + 4.0 * det * (2.0 - tilt) * tilt)))


@compiled
def _smooth_minimum_of_tilt(inner: float, rest: float, smooth: float) -> tuple[float, float]:
    """A smooth lower bound of min(inner, rest), and its derivative in `rest`, which is the share of `rest` in it.

    The squared radius of the ellipsoid is min(a1^2, a2^2 - gap), which has a kink; a lower bound of it keeps every
    point feasible. The bound is off by at most smooth / 2, and exact with smooth = 0.
    """
    gap = rest - inner
    root = np.sqrt(gap * gap + smooth * smooth)
    share = 0.5 if root == 0.0 else 0.5 * (1.0 - gap / root)
    return 0.5 * (inner + rest - root), share


@compiled
def _mixture_maximum(section: Section, room: float, kappa: float) -> Optimum:
    """Maximise action . theta over the one ellipsoid |theta|_gram^2 - 2 moment . theta + kappa |theta|_norm^2 <= room.

    With A = gram + kappa norm its centre is c = A^-1 moment and its squared radius in the A-norm is room + moment . c;
    the maximiser is c + step A^-1 action, where the step reaches the surface, and the multiplier is 1 / (2 step).
    """
    k = section.moment.size
    lower, theta, width = np.empty((k, k)), np.zeros(k), np.empty(k)
    for i in range(k):
        for j in range(i + 1):
            lower[i, j] = section.gram[i, j] + kappa * section.norm[i, j]
    if not cholesky(lower, lower, 0.0):
        return Optimum(-np.inf, theta, 0.0, 0.0)
    solve(lower, section.moment, theta)
    solve(lower, section.action, width)
    left, wide = room + dot(section.moment, theta), dot(section.action, width)
    if not left >= 0.0:
        return Optimum(-np.inf, theta, 0.0, 0.0)
    step = np.sqrt(left / wide) if wide > 0.0 else 0.0
    for i in range(k):
        theta[i] += step * width[i]
    multiplier = 0.5 / step if step > 0.0 else 0.0
    return Optimum(dot(section.action, theta), theta, multiplier, kappa * multiplier)


@compiled
def section_maximum(section: Section, bound: float, room: float) -> Optimum:
    """Maximise action . theta over |theta - gram^-1 moment|_gram^2 <= squared radius and |theta|_norm <= bound.

    `room` is the squared radius less |gram^-1 moment|_gram^2. First the ellipsoid alone is tried, then the ball alone.
    Where neither maximiser meets the other constraint both are active, and the maximiser is that of their mixture with
    the right weight kappa. Its length falls as kappa grows, so kappa is enclosed, and found by the rule of false
    position with a geometric mean every third time. A mixture without points proves that ellipsoid and ball have none
    in common.
    """
    best = _mixture_maximum(section, room, 0.0)
    if best.value == -np.inf or bound == np.inf or quadratic_form(section.norm, best.theta) <= bound * bound:
        return best
    k = section.moment.size
    lower, theta = np.empty((k, k)), np.empty(k)
    cholesky(section.norm, lower, 0.0)
    solve(lower, section.action, theta)
    length = np.sqrt(dot(section.action, theta))
    if length > 0.0:
        for i in range(k):
            theta[i] *= bound / length
        if quadratic_form(section.gram, theta) - 2.0 * dot(section.moment, theta) <= room:
            return Optimum(bound * length, theta, 0.0, 0.5 * length / bound)
    low, high, above, below, kappa = 0.0, np.inf, 0.0, 0.0, 0.0
    for i in range(k):
        kappa += 0.1 * section.gram[i, i] / k
    for turn in range(MIXTURES):
        best = _mixture_maximum(section, room + kappa * bound * bound, kappa)
        excess = quadratic_form(section.norm, best.theta) / (bound * bound) - 1.0
        if best.value == -np.inf or abs(excess) < CLOSE or high - low < 1e-14 * high:
            break
        if excess > 0.0:
            low, above = kappa, excess
        else:
            high, below = kappa, excess
        if high == np.inf:
            kappa *= 4.0
        elif low == 0.0:
            kappa = 0.25 * high
        elif turn % 3 == 2:
            kappa = np.sqrt(low * high)
        else:
            kappa = low + (high - low) * above / (above - below)
        if kappa < 1e-14:
            break
    return best


@compiled
def _tilt_products(a: Floats, b: Floats) -> Floats:
    """a b^T (2, 2), for a and b (2, n)."""
    out = np.empty((2, 2))
    for c in range(2):
        for e in range(2):
            out[c, e] = dot(a[c], b[e])
    return out


@compiled
def _tilt_shape(problem: Problem, tilt: Floats) -> Shape:
    """Take a tilt apart. The product of V with the columns of Y is the one part whose cost grows with d^2."""
    d = problem.basis.shape[0]
    y, x, vy = tilt[:d].T.copy(), tilt[d:].T.copy(), np.empty((2, d))
    for i in range(d):
        vy[0, i], vy[1, i] = dot(problem.gram[i], y[0]), dot(problem.gram[i], y[1])
    yy, xx = _tilt_products(y, y), _tilt_products(x, x)
    trace = xx[0, 0] * yy[0, 0] + 2.0 * xx[0, 1] * yy[0, 1] + xx[1, 1] * yy[1, 1]
    det = _tilt_determinant(xx) * _tilt_determinant(yy)
    return Shape(y, x, vy, yy, xx, trace, det, _scale_back_tilt(trace, det, problem.tilt))


@compiled
def _tilt_determinant(a: Floats) -> float:
    """Of a symmetric matrix (2, 2)."""
    return float(a[0, 0] * a[1, 1] - a[0, 1] * a[0, 1])


@compiled
def _tilt_section(problem: Problem, action: Floats, shape: Shape) -> Section:
    """The section of W = U_hat + sqrt(omega) Y X^T. With y of the shape, and x its x times sqrt(omega),

        W^T V W = U_hat^T V U_hat + cross^T x + x^T cross + x^T (y V y^T) x,    cross = y V U_hat (2, k),
        W^T W = I + x^T (y y^T) x.

    The products of U_hat are those of the problem, so that only products of y with vectors are needed. The last term of
    the first equation is split evenly between the two before it.
    """
    (d, k), y, x = problem.basis.shape, shape.y, np.sqrt(shape.omega) * shape.x
    cross, spread, moment, inside = np.zeros((2, k)), np.empty((2, k)), problem.moment_inside.copy(), np.zeros(k)
    for i in range(d):
        for j in range(k):
            cross[0, j] += y[0, i] * problem.gram_basis[i, j]
            cross[1, j] += y[1, i] * problem.gram_basis[i, j]
            inside[j] += action[i] * problem.basis[i, j]
    for c in range(2):
        first, second = 0.5 * dot(y[c], shape.vy[0]), 0.5 * dot(y[c], shape.vy[1])
        by_moment, by_action = dot(y[c], problem.moment), dot(y[c], action)
        for j in range(k):
            cross[c, j] += first * x[0, j] + second * x[1, j]
            spread[c, j] = shape.yy[c, 0] * x[0, j] + shape.yy[c, 1] * x[1, j]
            moment[j] += x[c, j] * by_moment
            inside[j] += x[c, j] * by_action
    gram, norm = problem.gram_inside.copy(), np.eye(k)
    for i in range(k):
        for j in range(k):
            for c in range(2):
                gram[i, j] += cross[c, i] * x[c, j] + x[c, i] * cross[c, j]
                norm[i, j] += x[c, i] * spread[c, j]
    return Section(gram, norm, moment, inside)


@compiled
def project_out_of_tilt_loop(basis: Floats, vector: Floats) -> None:
    """Take the part in U_hat away from a vector (d,), in place."""
    d, k = basis.shape
    inside = np.zeros(k)
    for i in range(d):
        for j in range(k):
            inside[j] += basis[i, j] * vector[i]
    for i in range(d):
        vector[i] -= dot(basis[i], inside)


@compiled
def slope_in_tilt_frame_loop(
    problem: Problem, action: Floats, shape: Shape, rows: Floats, turned: Floats, best: Optimum, share: float
) -> Floats:
    """The gradient of the value with respect to W, without its part in U_hat, which would not change the subspace.

    By the envelope theorem it is the Lagrangian's at the maximiser, of rank two: out^T rows, where the rows (2, k) are
    theta and the centre c = theta_W of the ellipsoid, and those of out (2, d)

        phi + 2 lambda (b - V W theta) - 2 nu W theta    and    -2 lambda (1 - share) (b - V W c).

    With turned = rows x^T (2, 2), V W theta is V U_hat theta + vy^T (x theta), and likewise for c.
    """
    y, vy, d = shape.y, shape.vy, problem.basis.shape[0]
    pull, balance, out = 2.0 * best.ellipsoid, 2.0 * best.ball, np.empty((2, d))
    for i in range(d):
        image = dot(problem.gram_basis[i], rows[0]) + vy[0, i] * turned[0, 0] + vy[1, i] * turned[0, 1]
        centre = dot(problem.gram_basis[i], rows[1]) + vy[0, i] * turned[1, 0] + vy[1, i] * turned[1, 1]
        beyond = y[0, i] * turned[0, 0] + y[1, i] * turned[0, 1]
        out[0, i] = action[i] + pull * (problem.moment[i] - image) - balance * beyond
        out[1, i] = -pull * (1.0 - share) * (problem.moment[i] - centre)
    project_out_of_tilt_loop(problem.basis, out[0])
    project_out_of_tilt_loop(problem.basis, out[1])
    return out


@compiled
def _adjugate_of_tilt(a: Floats, by_a: float, b: Floats, by_b: float) -> Floats:
    """by_a a + by_b adj(b), for symmetric a and b (2, 2); the adjugate is the gradient of the determinant."""
    out = np.empty((2, 2))
    out[0, 0], out[1, 1] = by_a * a[0, 0] + by_b * b[1, 1], by_a * a[1, 1] + by_b * b[0, 0]
    out[0, 1] = out[1, 0] = by_a * a[0, 1] - by_b * b[0, 1]
    return out


@compiled
def _slope_in_tilt(shape: Shape, out: Floats, rows: Floats, turned: Floats) -> tuple[Floats, float]:
    """The gradient (d + k, 2) with respect to the tilt, from that with respect to W, and the derivative along the tilt.

    In Y it is out^T turned, in X sqrt(omega) rows^T (out y^T). Where the tilt was scaled back to the edge, scaling
    undoes any change in proportion: the gradient loses the multiple `back` of that of the sum of squared sines h, so
    that it has no such part left. With t and s those of the scaled tilt, h = (t + 2 s) / (1 + t + s), and half the
    gradient of t in Y is Y X^T X, that of s is Y adj(Y^T Y) det(X^T X); in X likewise. With k <= 2 the rows X are
    fixed.
    """
    (y, x, omega), d, k = (shape.y, shape.x, shape.omega), out.shape[1], rows.shape[1]
    onto, slope, scale = _tilt_products(y, out), np.zeros((d + k, 2)), np.sqrt(omega)
    radial = (
        onto[0, 0] * turned[0, 0] + onto[0, 1] * turned[1, 0] + onto[1, 0] * turned[0, 1] + onto[1, 1] * turned[1, 1]
    )
    total = (1.0 + omega * shape.trace + omega * omega * shape.det) ** 2
    by_trace = omega * (1.0 - omega * omega * shape.det) / total
    by_det = omega * omega * (2.0 + omega * shape.trace) / total
    back = radial / (by_trace * shape.trace + 2.0 * by_det * shape.det) if omega < 1.0 else 0.0
    edge_y = _adjugate_of_tilt(shape.xx, back * by_trace, shape.yy, back * by_det * _tilt_determinant(shape.xx))
    edge_x = _adjugate_of_tilt(shape.yy, back * by_trace, shape.xx, back * by_det * _tilt_determinant(shape.yy))
    for c in range(2):
        for i in range(d):
            along = out[0, i] * turned[0, c] + out[1, i] * turned[1, c]
            slope[i, c] = along - y[0, i] * edge_y[0, c] - y[1, i] * edge_y[1, c]
        for i in range(k if k > 2 else 0):
            along = scale * (rows[0, i] * onto[c, 0] + rows[1, i] * onto[c, 1])
            slope[d + i, c] = along - x[0, i] * edge_x[0, c] - x[1, i] * edge_x[1, c]
    return slope, radial


@compiled
def evaluate_tilt_loop(problem: Problem, action: Floats, tilt: Floats, smooth: float) -> Tilted:
    """Evaluate a tilt: the value of the action in its subspace, the gradient, and what else an ascent has to know.

    The centre of the ellipsoid comes first, because gap(U) = |beta_2|_V^2 - |W c|_V^2 is needed for the squared radius,
    whose kink `smooth` rounds (`_smooth_minimum_of_tilt`); then the maximiser, then the gradient.
    """
    shape, k = _tilt_shape(problem, tilt), problem.basis.shape[1]
    section = _tilt_section(problem, action, shape)
    rows, lower = np.zeros((2, k)), np.empty((k, k))  # theta and the centre; a factor of W^T V W
    nothing = Tilted(-np.inf, np.zeros(tilt.shape), rows[0], 1.0, 0.0, 0.0, np.inf)
    if not cholesky(section.gram, lower, 0.0):
        return nothing
    solve(lower, section.moment, rows[1])
    fit = dot(section.moment, rows[1])
    squared, share = _smooth_minimum_of_tilt(problem.inner, problem.outer - max(problem.energy - fit, 0.0), smooth)
    if not squared >= 0.0:
        return nothing
    best = section_maximum(section, problem.bound, squared - fit)
    if best.value == -np.inf:
        return nothing
    rows[0], scale = best.theta, np.sqrt(shape.omega)
    turned = _tilt_products(rows, scale * shape.x)
    out = slope_in_tilt_frame_loop(problem, action, shape, rows, turned, best, share)
    slope, radial = _slope_in_tilt(shape, out, rows, turned)
    return Tilted(
        best.value, slope, best.theta, scale, radial, share, np.sqrt(quadratic_form(section.norm, best.theta))
    )


@compiled
def write_tilt_evaluation_loop(found: Tilted, slope: Floats, theta: Floats, numbers: Floats) -> None:
    """Write an evaluation to arrays: the slope (d + k, 2), theta (k,), and the NUMBERS in the order of `Tilted`."""
    slope[:], theta[:] = found.slope, found.theta
    numbers[0], numbers[1], numbers[2] = found.value, found.scale, found.radial
    numbers[3], numbers[4] = found.share, found.length


@compiled
def write_evaluated_tilt_loop(
    problem: Problem, action: Floats, tilt: Floats, smooth: float, slope: Floats, theta: Floats, numbers: Floats
) -> None:
    """`evaluate_tilt_loop`, for callers in Python."""
    write_tilt_evaluation_loop(evaluate_tilt_loop(problem, action, tilt, smooth), slope, theta, numbers)


@compiled
def write_tilt_section_loop(
    section: Section, bound: float, inner: float, rest: float, fit: float, theta: Floats, numbers: Floats
) -> None:
    """`section_maximum` in the ellipsoid of squared radius min(inner, rest), for callers in Python.

    Writes theta (k,), and the value, the multiplier of the ellipsoid and the share of `rest` to `numbers` (3,).
    """
    numbers[0] = -np.inf
    squared, numbers[2] = _smooth_minimum_of_tilt(inner, rest, 0.0)
    if squared >= 0.0:
        best = section_maximum(section, bound, squared - fit)
        theta[:], numbers[0], numbers[1] = best.theta, best.value, best.ellipsoid


def room_for_tilt_loops(problem: Problem) -> tuple[Floats, Floats, Floats]:
    """Where an evaluation is written: a slope, theta, and its numbers and one more."""
    d, k = problem.basis.shape
    return np.empty((d + k, 2)), np.empty(k), np.empty(NUMBERS + 1)


def read_tilt_loop_evaluation(slope: Floats, theta: Floats, numbers: Floats) -> Tilted:
    """The evaluation that was written there."""
    value, *others = numbers[:NUMBERS].tolist()
    return Tilted(value, slope, theta, *others)


def example_for_tilt_loops() -> tuple[Problem, Floats, Floats]:
    """A problem of the smallest kind that has every part, an action and a tilt, to call the loops with."""
    basis, three = np.ascontiguousarray(np.eye(3, 1)), np.ones(3)
    edges = (3.0, 0.5, 1.0, 2.0, 1.0)
    problem = Problem(np.eye(3), np.eye(3), three, three, basis, basis, np.eye(1), np.ones(1), *edges)
    return problem, three, np.zeros((4, 2))


def warm_tilt_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    problem, action, tilt = example_for_tilt_loops()
    section = Section(np.eye(1), np.eye(1), np.ones(1), np.ones(1))
    _scale_back_tilt(1.0, 1.0, 0.5)
    _tilt_determinant(np.ones((2, 2)))
    project_out_of_tilt_loop(problem.basis, action.copy())
    write_tilt_section_loop(section, 1.0, 1.0, 1.0, 0.0, np.empty(1), np.empty(3))
    room = room_for_tilt_loops(problem)
    write_evaluated_tilt_loop(problem, action, tilt, 0.0, *room)
    write_tilt_evaluation_loop(read_tilt_loop_evaluation(*room), *room)
