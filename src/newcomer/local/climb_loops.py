"""Compiled loops of LOCAL-UCB: the value of a tilted subspace with its gradient, and the climb.

A tilt is a (d + k, 2) array: rows Y (d, 2), orthogonal to U_hat, above rows X (k, 2). It stands for the subspace spanned by
W = U_hat + Y X^T; rank two is enough (docs/local-ucb.md, Theorem 3). Beyond the allowed tilt the product Y X^T is scaled
back to it, so every tilt is allowed. Plain loops, because array expressions take Numba a minute to compile.
"""

from __future__ import annotations

import numpy as np

from newcomer.array_loops import compiled
from newcomer.local.algebra import cholesky, dot, form, solve
from newcomer.local.problem import Floats, Problem

MEMORY = 8  # steps that the quasi-Newton climb remembers
# Places of the numbers that `tilted` leaves in `facts` beside the value; STEEP is |tilt| |gradient| where a climb ended,
# small at a smooth maximum.
SCALE, RADIAL, KINK, TILT, LENGTH, STEEP, FACTS = 0, 1, 2, 3, 4, 5, 6


@compiled
def shrink(trace: float, det: float, tilt: float) -> float:
    """omega <= 1 such that sqrt(omega) B has squared sines summing to at most `tilt`, if B^T B has this trace and, as
    the product of its two eigenvalues, this determinant: their sum is (t + 2 d) / (1 + t + d)."""
    if tilt >= 1.0 or trace + 2.0 * det <= tilt * (1.0 + trace + det):
        return 1.0
    half = trace * (1.0 - tilt)
    return float(2.0 * tilt / (half + np.sqrt(half * half + 4.0 * det * (2.0 - tilt) * tilt)))


@compiled
def both(inner: float, rest: float, smooth: float) -> tuple[float, float]:
    """A smooth lower bound of min(inner, rest), and its derivative with respect to `rest`."""
    gap = rest - inner
    root = np.sqrt(gap * gap + smooth * smooth)
    share = 0.5 if root == 0.0 else 0.5 * (1.0 - gap / root)
    return 0.5 * (inner + rest - root), share


@compiled
def mixed(
    gram: Floats, norm: Floats, sides: Floats, room: float, kappa: float, work: Floats, theta: Floats
) -> tuple[float, float]:
    """Maximise action . theta over |theta|_gram^2 - 2 moment . theta + kappa |theta|_norm^2 <= room, where the rows of `sides`
    are moment and action. Writes theta; returns the value (-inf if there is no such theta) and the multiplier."""
    k = theta.size
    matrix, lower, centre, width = work[:k], work[k : 2 * k], work[2 * k], work[2 * k + 1]
    for i in range(k):
        for j in range(k):
            matrix[i, j] = gram[i, j] + kappa * norm[i, j]
    if not cholesky(matrix, lower):
        return -np.inf, 0.0
    solve(lower, sides[0], centre)
    solve(lower, sides[1], width)
    left, wide = room + dot(sides[0], centre), dot(sides[1], width)
    if not left >= 0.0:
        return -np.inf, 0.0
    step = np.sqrt(left / wide) if wide > 0.0 else 0.0
    for i in range(k):
        theta[i] = centre[i] + step * width[i]
    return dot(sides[1], theta), 0.5 / step if step > 0.0 else 0.0


@compiled
def inside(
    gram: Floats, norm: Floats, sides: Floats, bound: float, room: float, work: Floats, theta: Floats
) -> tuple[float, float, float]:
    """Maximise action . theta over |theta - gram^-1 moment|_gram^2 <= squared and |theta|_norm <= bound, where the rows of
    `sides` (2, k) are moment and action and room = squared - |gram^-1 moment|_gram^2.

    Writes theta; returns the value (-inf if there is no such theta) and the multipliers of the two constraints. Tries the
    ellipsoid alone and the ball alone; otherwise both are active, and their mixture with the right weight kappa has its
    maximiser on the ball: its length falls as kappa grows. A mixture without points proves that there are none.
    """
    k = theta.size
    value, steep = mixed(gram, norm, sides, room, 0.0, work, theta)
    if value == -np.inf or bound == np.inf or form(norm, theta) <= bound * bound:
        return value, steep, 0.0
    lower, flat = work[k : 2 * k], work[2 * k + 1]
    cholesky(norm, lower)
    solve(lower, sides[1], flat)
    length = np.sqrt(dot(sides[1], flat))
    if length > 0.0:
        for i in range(k):
            theta[i] = bound / length * flat[i]
        if form(gram, theta) - 2.0 * dot(sides[0], theta) <= room:
            return bound * length, 0.0, 0.5 * length / bound
    low, high, kappa = 0.0, np.inf, 0.0
    for i in range(k):
        kappa += 0.1 * gram[i, i] / k
    above, below = 0.0, 0.0
    for turn in range(80):
        value, steep = mixed(gram, norm, sides, room + kappa * bound * bound, kappa, work, theta)
        excess = form(norm, theta) / (bound * bound) - 1.0
        if value == -np.inf or abs(excess) < 1e-12 or high - low < 1e-14 * high:
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
    return value, steep, steep * kappa


@compiled
def system(
    problem: Problem, action: Floats, y: Floats, xs: Floats, vy: Floats, gram: Floats, norm: Floats, sides: Floats
) -> None:
    """The k x k system of W = U_hat + y xs^T: writes V y, W^T V W, W^T W, and W^T b and W^T action as the rows of `sides`."""
    d, k = problem.basis.shape
    cross, image, products = np.zeros((k, 2)), np.zeros((2, 2)), np.zeros((2, 4))
    for i in range(d):
        row = problem.gram[i]
        first, second = 0.0, 0.0
        for j in range(d):
            first += row[j] * y[j, 0]
            second += row[j] * y[j, 1]
        vy[i, 0], vy[i, 1] = first, second
        for c in range(2):
            at = y[i, c]
            for j in range(k):
                cross[j, c] += problem.gram_basis[i, j] * at
            products[c, 0] += at * problem.moment[i]
            products[c, 1] += at * action[i]
            products[c, 2] += at * y[i, 0]
            products[c, 3] += at * y[i, 1]
            image[c, 0] += at * first
            image[c, 1] += at * second
    for i in range(k):
        sides[0, i] = problem.moment_inside[i] + xs[i, 0] * products[0, 0] + xs[i, 1] * products[1, 0]
        sides[1, i] = xs[i, 0] * products[0, 1] + xs[i, 1] * products[1, 1]
        v0, v1 = xs[i, 0] * image[0, 0] + xs[i, 1] * image[1, 0], xs[i, 0] * image[0, 1] + xs[i, 1] * image[1, 1]
        n0 = xs[i, 0] * products[0, 2] + xs[i, 1] * products[1, 2]
        n1 = xs[i, 0] * products[0, 3] + xs[i, 1] * products[1, 3]
        for j in range(k):
            both_ways = (
                cross[i, 0] * xs[j, 0] + cross[i, 1] * xs[j, 1] + xs[i, 0] * cross[j, 0] + xs[i, 1] * cross[j, 1]
            )
            gram[i, j] = problem.gram_inside[i, j] + both_ways + v0 * xs[j, 0] + v1 * xs[j, 1]
            norm[i, j] = n0 * xs[j, 0] + n1 * xs[j, 1] + (1.0 if i == j else 0.0)
    for i in range(d):
        for j in range(k):
            sides[1, j] += problem.basis[i, j] * action[i]


@compiled
def columns(
    problem: Problem, action: Floats, y: Floats, xs: Floats, vy: Floats, rows: Floats, weights: Floats, out: Floats
) -> None:
    """The two columns of the gradient with respect to W, without their parts in U_hat: for rows theta and c of `rows` and
    weights (lam, share, nu), phi + 2 lam (b - V W theta) - 2 nu W theta and -2 lam (1 - share) (b - V W c)."""
    d, k = problem.basis.shape
    lam, share, nu = weights
    turned, inner = np.zeros((2, 2)), np.zeros((k, 2))
    for m in range(2):
        for i in range(k):
            turned[m, 0] += xs[i, 0] * rows[m, i]
            turned[m, 1] += xs[i, 1] * rows[m, i]
    for i in range(d):
        theta = vy[i, 0] * turned[0, 0] + vy[i, 1] * turned[0, 1] + dot(problem.gram_basis[i], rows[0])
        centre = vy[i, 0] * turned[1, 0] + vy[i, 1] * turned[1, 1] + dot(problem.gram_basis[i], rows[1])
        outside = y[i, 0] * turned[0, 0] + y[i, 1] * turned[0, 1]
        out[i, 0] = action[i] + 2.0 * lam * (problem.moment[i] - theta) - 2.0 * nu * outside
        out[i, 1] = -2.0 * lam * (1.0 - share) * (problem.moment[i] - centre)
    for i in range(d):
        for j in range(k):
            inner[j, 0] += problem.basis[i, j] * out[i, 0]
            inner[j, 1] += problem.basis[i, j] * out[i, 1]
    for i in range(d):
        for j in range(k):
            out[i, 0] -= problem.basis[i, j] * inner[j, 0]
            out[i, 1] -= problem.basis[i, j] * inner[j, 1]


@compiled
def gram_of(x: Floats, out: Floats) -> float:
    """Writes the adjugate of x^T x, for x (n, 2), behind x^T x itself to `out` (4, 2); returns the determinant."""
    out[:] = 0.0
    for i in range(x.shape[0]):
        out[0, 0] += x[i, 0] * x[i, 0]
        out[0, 1] += x[i, 0] * x[i, 1]
        out[1, 1] += x[i, 1] * x[i, 1]
    out[1, 0] = out[0, 1]
    out[2, 0], out[2, 1], out[3, 0], out[3, 1] = out[1, 1], -out[0, 1], -out[0, 1], out[0, 0]
    return float(out[0, 0] * out[1, 1] - out[0, 1] * out[0, 1])


@compiled
def tilted(
    problem: Problem, action: Floats, tilt: Floats, smooth: float, slope: Floats, theta: Floats, facts: Floats
) -> float:
    """The value of an action in the subspace of a tilt; writes its gradient, the maximiser theta (beta = W theta) and facts.

    By the envelope theorem the gradient with respect to W has rank two (`columns`); scaling back takes away the part that
    would leave the allowed tilts.
    """
    d, k = problem.basis.shape
    y, x = tilt[:d], tilt[d:]
    gy, gx = np.empty((4, 2)), np.empty((4, 2))
    det_y, det_x = gram_of(y, gy), gram_of(x, gx)
    trace, det = gx[0, 0] * gy[0, 0] + 2.0 * gx[0, 1] * gy[0, 1] + gx[1, 1] * gy[1, 1], det_x * det_y
    omega = shrink(trace, det, problem.tilt)
    scale = np.sqrt(omega)
    xs, vy, sides = scale * x, np.empty((d, 2)), np.zeros((2, k))
    gram, norm, work, rows = np.empty((k, k)), np.empty((k, k)), np.empty((2 * k + 2, k)), np.empty((2, k))
    system(problem, action, y, xs, vy, gram, norm, sides)
    if not cholesky(gram, work[:k]):
        return -np.inf
    solve(work[:k], sides[0], rows[1])
    fit = dot(sides[0], rows[1])
    squared, share = both(problem.inner, problem.outer - max(problem.energy - fit, 0.0), smooth)
    if not squared >= 0.0:
        return -np.inf
    value, lam, nu = inside(gram, norm, sides, problem.bound, squared - fit, work, theta)
    if value == -np.inf:
        return -np.inf
    rows[0] = theta
    out = np.empty((d, 2))
    columns(problem, action, y, xs, vy, rows, np.array([lam, share, nu]), out)
    onto, turned = np.zeros((2, 2)), np.zeros((2, 2))  # y^T columns; rows xs
    for c in range(2):
        for m in range(2):
            for i in range(d):
                onto[c, m] += y[i, c] * out[i, m]
            for i in range(k):
                turned[m, c] += rows[m, i] * xs[i, c]
    radial = (
        onto[0, 0] * turned[0, 0] + onto[0, 1] * turned[1, 0] + onto[1, 0] * turned[0, 1] + onto[1, 1] * turned[1, 1]
    )
    trace, det = omega * trace, omega * omega * det
    total = (1.0 + trace + det) ** 2
    by_trace, by_det = omega * (1.0 - det) / total, omega * omega * (2.0 + trace) / total
    back = 0.0
    if omega < 1.0:
        back = radial / (by_trace * trace / omega + 2.0 * by_det * det / (omega * omega))
    for c in range(2):
        for i in range(d):
            pull = by_trace * (y[i, 0] * gx[0, c] + y[i, 1] * gx[1, c])
            pull += by_det * det_x * (y[i, 0] * gy[2, c] + y[i, 1] * gy[3, c])
            slope[i, c] = out[i, 0] * turned[0, c] + out[i, 1] * turned[1, c] - back * pull
        for i in range(k):
            pull = by_trace * (x[i, 0] * gy[0, c] + x[i, 1] * gy[1, c])
            pull += by_det * det_y * (x[i, 0] * gx[2, c] + x[i, 1] * gx[3, c])
            along = scale * (rows[0, i] * onto[c, 0] + rows[1, i] * onto[c, 1])
            slope[d + i, c] = along - back * pull if k > 2 else 0.0
    facts[SCALE], facts[RADIAL], facts[KINK] = scale, radial, share
    facts[TILT], facts[LENGTH] = (trace + 2.0 * det) / (1.0 + trace + det), np.sqrt(form(norm, theta))
    return value


@compiled
def direction(slope: Floats, steps: Floats, turns: Floats, curves: Floats, count: int, ahead: Floats) -> None:
    """Writes the quasi-Newton direction of ascent from the last steps and turns of the gradient (two-loop recursion)."""
    ahead[:] = slope
    first = max(0, count - MEMORY)
    weights = np.zeros(MEMORY)
    for c in range(count - 1, first - 1, -1):
        m = c % MEMORY
        weights[m] = dot(steps[m], ahead) / curves[m]
        for i in range(ahead.size):
            ahead[i] -= weights[m] * turns[m, i]
    last = (count - 1) % MEMORY
    scale = curves[last] / dot(turns[last], turns[last])
    for i in range(ahead.size):
        ahead[i] *= scale
    for c in range(first, count):
        m = c % MEMORY
        weight = weights[m] - dot(turns[m], ahead) / curves[m]
        for i in range(ahead.size):
            ahead[i] += weight * steps[m, i]


@compiled
def project(basis: Floats, tilt: Floats) -> None:
    """Takes the part in U_hat away from the rows Y of a tilt, in place."""
    d, k = basis.shape
    for c in range(2):
        for j in range(k):
            inner = 0.0
            for i in range(d):
                inner += basis[i, j] * tilt[i, c]
            for i in range(d):
                tilt[i, c] -= inner * basis[i, j]


@compiled
def climb(
    problem: Problem, action: Floats, tilt: Floats, smooth: float, tolerance: float, theta: Floats, facts: Floats
) -> tuple[float, int]:
    """Ascend from a tilt, in place, until steps promise less than `tolerance`; returns the value and the evaluations.

    A tilt without feasible theta is first shrunk towards U_hat.
    """
    shape, d, n = tilt.shape, problem.basis.shape[0], tilt.size
    slope, trial, trial_slope, ahead = np.zeros(shape), np.empty(shape), np.zeros(shape), np.empty(n)
    now, new = tilt.reshape(n), trial.reshape(n)
    here, there = slope.reshape(n), trial_slope.reshape(n)
    value, spent = -np.inf, 0
    while value == -np.inf and spent < 13:
        if spent > 0:
            tilt[:d] *= 0.5 if spent < 12 else 0.0
        value = tilted(problem, action, tilt, smooth, slope, theta, facts)
        spent += 1
    if value == -np.inf:
        return value, spent
    kept, noted = theta.copy(), facts.copy()
    steps, turns, curves = np.zeros((MEMORY, n)), np.zeros((MEMORY, n)), np.ones(MEMORY)
    count, quiet, stuck = 0, 0, False
    for _ in range(200):
        steepness = dot(here, here)
        if count > 0:
            direction(here, steps, turns, curves, count, ahead)
        elif steepness > 0.0 and not stuck:
            reach = (0.3 * np.sqrt(dot(now[: 2 * d], now[: 2 * d])) + 1e-3) / np.sqrt(steepness)
            for i in range(n):
                ahead[i] = reach * here[i]
        else:
            break
        project(problem.basis, ahead.reshape(shape))
        promise, step, gain, done = dot(here, ahead), 1.0, 0.0, False
        while step * promise > 0.01 * tolerance:
            for i in range(n):
                new[i] = now[i] + step * ahead[i]
            gain = tilted(problem, action, trial, smooth, trial_slope, theta, facts) - value
            spent += 1
            done = gain >= 1e-4 * step * promise
            if done:
                break
            step *= 0.3 if gain == -np.inf else min(max(0.5 * step * promise / (step * promise - gain), 0.1), 0.6)
        if not done:
            # Forget the past and try the gradient once; if that does not help either, this is the end.
            stuck, count = count == 0, 0
            continue
        stuck = False
        kept[:], noted[:] = theta, facts
        m = count % MEMORY
        for i in range(n):
            steps[m, i], turns[m, i] = new[i] - now[i], here[i] - there[i]
            now[i], here[i] = new[i], there[i]
        curves[m] = dot(steps[m], turns[m])
        if curves[m] > 1e-10 * np.sqrt(dot(steps[m], steps[m]) * dot(turns[m], turns[m])):
            count += 1
        value += gain
        quiet = quiet + 1 if gain < tolerance and step * promise < 10.0 * tolerance else 0
        if quiet >= 2:
            break
    theta[:], facts[:] = kept, noted
    facts[STEEP] = np.sqrt(dot(now, now) * dot(here, here))
    return value, spent


def ascend(
    problem: Problem, action: Floats, tilt: Floats, tolerance: float, theta: Floats, facts: Floats
) -> tuple[float, int]:
    """Climb from a tilt, in place, with the kink where a1 and a2 meet smoothed less and less; the exact value at the end."""
    d = problem.basis.shape[0]
    smooth, spent, stage = 1e-3 * problem.inner, 1, 0
    while stage < 3:
        value, used = climb(problem, action, tilt, smooth, tolerance, theta, facts)
        spent += used
        if value == -np.inf:
            break
        if facts[SCALE] < 1.0 and facts[RADIAL] < 0.0 and spent < 600:
            # Less tilt is better: go on inside, where scaling back does not hide it.
            tilt[:d] *= 0.98 * facts[SCALE]
            continue
        if not 1e-4 < facts[KINK] < 1.0 - 1e-4:
            break
        smooth *= 1e-2
        stage += 1
    steep, facts[SCALE] = facts[STEEP], 1.0
    value = tilted(problem, action, tilt, 0.0, np.empty_like(tilt), theta, facts)
    facts[STEEP] = steep
    tilt[:d] *= facts[SCALE]
    return value, spent


def warm() -> None:
    """Load every loop from the cache, compiling those that are not there yet."""
    basis = np.ascontiguousarray(np.eye(3, 1))
    frame, one = np.eye(1), np.ones(1)
    problem = Problem(np.eye(3), np.eye(3), np.ones(3), np.ones(3), basis, basis, frame, one, 3.0, 0.5, 1.0, 2.0, 1.0)
    tilt, facts = np.zeros((4, 2)), np.empty(FACTS)
    ascend(problem, np.ones(3), tilt, 1e-3, np.empty(1), facts)
    both(1.0, 1.0, 0.0)
    inside(frame, frame, np.ones((2, 1)), 1.0, 1.0, np.empty((4, 1)), np.empty(1))
    tilted(problem, np.ones(3), tilt, 0.0, np.empty_like(tilt), np.empty(1), facts)
