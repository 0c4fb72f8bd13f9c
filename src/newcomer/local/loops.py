"""Compiled loops of LOCAL-UCB: the value of a tilted subspace with its gradient, and the climb.

A tilt is a (d + k, 2) array: rows Y (d, 2), orthogonal to U_hat, above rows X (k, 2). It stands for the subspace spanned by
W = U_hat + Y X^T; rank two is enough (docs/local-ucb.md, Theorem 3). Beyond the allowed tilt the product Y X^T is scaled
back to it, so every tilt is allowed.
"""

from __future__ import annotations

import numpy as np

from newcomer.kernels import compiled
from newcomer.local.problem import Floats, Problem

MEMORY = 8  # steps that the quasi-Newton climb remembers
# Places of the numbers that `tilted` leaves in `facts` beside the value.
SCALE, RADIAL, KINK, TILT, LENGTH, FACTS = 0, 1, 2, 3, 4, 5


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
def inside(
    gram: Floats, norm: Floats, sides: Floats, solved: Floats, bound: float, squared: float, theta: Floats
) -> tuple[float, float, float]:
    """Maximise action . theta over |theta - gram^-1 moment|_gram^2 <= squared and |theta|_norm <= bound.

    The columns of `sides` (k, 2) are moment and action, `solved` is gram^-1 sides. Writes theta; returns the value (-inf if
    there is no such theta) and the multipliers of the two constraints.
    """
    moment, action = sides[:, 0], sides[:, 1]
    if not squared >= 0.0:
        return -np.inf, 0.0, 0.0
    width = np.sum(action * solved[:, 1])
    step = np.sqrt(squared / width) if width > 0.0 else 0.0
    theta[:] = solved[:, 0] + step * solved[:, 1]
    if bound == np.inf or np.sum(theta * (norm @ theta)) <= bound * bound:
        return np.sum(action * theta), 0.5 / step if step > 0.0 else 0.0, 0.0
    fit = np.sum(moment * solved[:, 0])
    flat = np.linalg.solve(norm, np.ascontiguousarray(action))
    length = np.sqrt(np.sum(action * flat))
    if length > 0.0:
        theta[:] = bound / length * flat
        if np.sum(theta * (gram @ theta)) - 2.0 * np.sum(moment * theta) + fit <= squared:
            return bound * length, 0.0, 0.5 * length / bound
    return on_both(gram, norm, sides, bound, squared - fit, theta)


@compiled
def mixed(
    gram: Floats, norm: Floats, sides: Floats, bound: float, room: float, kappa: float, theta: Floats
) -> tuple[float, float]:
    """Maximise action . theta over the one ellipsoid that is the sum of `inside`'s two constraints with weights 1 and kappa,
    where room = squared - |gram^-1 moment|_gram^2. Writes theta; returns the value and the multiplier."""
    solved = np.linalg.solve(gram + kappa * norm, sides)
    left = room + kappa * bound * bound + np.sum(sides[:, 0] * solved[:, 0])
    width = np.sum(sides[:, 1] * solved[:, 1])
    if not left > 0.0:
        return -np.inf, 0.0
    step = np.sqrt(left / width) if width > 0.0 else 0.0
    theta[:] = solved[:, 0] + step * solved[:, 1]
    return np.sum(sides[:, 1] * theta), 0.5 / step if step > 0.0 else 0.0


@compiled
def on_both(
    gram: Floats, norm: Floats, sides: Floats, bound: float, room: float, theta: Floats
) -> tuple[float, float, float]:
    """`inside` where ellipsoid and ball are both active: the kappa whose mixture has its maximiser on the ball.

    |theta(kappa)|_norm falls as kappa grows, which brackets the root; a mixture without points proves that there are none.
    """
    low, high, kappa = 0.0, np.inf, 0.1 * np.trace(gram) / theta.size
    excess_low, excess_high = 0.0, 0.0
    value, steep = -np.inf, 0.0
    for turn in range(80):
        value, steep = mixed(gram, norm, sides, bound, room, kappa, theta)
        if value == -np.inf:
            break
        excess = np.sum(theta * (norm @ theta)) / (bound * bound) - 1.0
        if abs(excess) < 1e-12 or high - low < 1e-14 * high:
            break
        if excess > 0.0:
            low, excess_low = kappa, excess
        else:
            high, excess_high = kappa, excess
        if high == np.inf:
            kappa *= 4.0
        elif low == 0.0:
            kappa = 0.25 * high
        elif turn % 3 == 2:
            kappa = np.sqrt(low * high)
        else:
            kappa = low + (high - low) * excess_low / (excess_low - excess_high)
        if kappa < 1e-14:
            break
    return value, steep, steep * kappa


@compiled
def tilted(
    problem: Problem,
    action: Floats,
    tilt: Floats,
    smooth: float,
    slope: Floats,
    theta: Floats,
    facts: Floats,
) -> float:
    """The value of an action in the subspace of a tilt; writes its gradient, the maximiser theta (beta = W theta) and facts.

    By the envelope theorem the gradient with respect to W has rank two:
    [phi + 2 lam (b - V W theta) - 2 nu W theta] theta^T - 2 lam (1 - share) (b - V W c) c^T, with c = (W^T V W)^-1 W^T b.
    """
    d, k = problem.basis.shape
    y, x = tilt[:d], tilt[d:]
    gy, gx = y.T @ y, x.T @ x
    det_y = gy[0, 0] * gy[1, 1] - gy[0, 1] * gy[0, 1]
    det_x = gx[0, 0] * gx[1, 1] - gx[0, 1] * gx[0, 1]
    trace, det = np.sum(gx * gy), det_x * det_y
    omega = shrink(trace, det, problem.tilt)
    scale = np.sqrt(omega)
    xs = scale * x
    # The k x k system of W from that of U_hat, by a correction of rank four.
    vy = problem.gram @ y
    cross = (problem.gram_basis.T @ y) @ xs.T
    gram = problem.gram_inside + cross + cross.T + xs @ ((y.T @ vy) @ xs.T)
    norm = np.eye(k) + xs @ (gy @ xs.T)
    sides = np.empty((k, 2))
    sides[:, 0] = problem.moment_inside + xs @ (y.T @ problem.moment)
    sides[:, 1] = problem.basis.T @ action + xs @ (y.T @ action)
    solved = np.linalg.solve(gram, sides)
    rest = problem.outer - max(problem.energy - np.sum(sides[:, 0] * solved[:, 0]), 0.0)
    squared, share = both(problem.inner, rest, smooth)
    value, lam, nu = inside(gram, norm, sides, solved, problem.bound, squared, theta)
    if value == -np.inf:
        return value
    # Columns and rows of the gradient.
    rows = np.empty((k, 2))
    rows[:, 0], rows[:, 1] = theta, solved[:, 0]
    turned = xs.T @ rows
    images = problem.gram_basis @ rows + vy @ turned
    columns = np.empty((d, 2))
    columns[:, 0] = (
        action + 2.0 * lam * (problem.moment - images[:, 0]) - 2.0 * nu * (y @ np.ascontiguousarray(turned[:, 0]))
    )
    columns[:, 1] = -2.0 * lam * (1.0 - share) * (problem.moment - images[:, 1])
    columns -= problem.basis @ (problem.basis.T @ columns)
    onto = y.T @ columns
    radial = np.sum(onto * turned)
    slope[:d] = columns @ turned.T
    slope[d:] = scale * (rows @ onto.T)
    trace, det = omega * trace, omega * omega * det
    if omega < 1.0:
        # Scaling back takes away the part of the gradient that would leave the allowed tilts.
        share_t, share_d = (1.0 - det) / (1.0 + trace + det) ** 2, (2.0 + trace) / (1.0 + trace + det) ** 2
        back = 2.0 * radial / (2.0 * share_t * trace + 4.0 * share_d * det)
        flip_y = np.array([[gy[1, 1], -gy[0, 1]], [-gy[0, 1], gy[0, 0]]])
        flip_x = np.array([[gx[1, 1], -gx[0, 1]], [-gx[0, 1], gx[0, 0]]])
        slope[:d] -= back * (y @ (share_t * omega * gx + share_d * omega * omega * det_x * flip_y))
        slope[d:] -= back * (x @ (share_t * omega * gy + share_d * omega * omega * det_y * flip_x))
    if k <= 2:
        slope[d:] = 0.0
    facts[SCALE], facts[RADIAL], facts[KINK] = scale, radial, share
    facts[LENGTH] = np.sqrt(np.sum(theta * (norm @ theta)))
    facts[TILT] = (trace + 2.0 * det) / (1.0 + trace + det)
    return value


@compiled
def direction(slope: Floats, steps: Floats, turns: Floats, curves: Floats, count: int, reach: float) -> Floats:
    """The quasi-Newton direction of ascent from the last steps and turns of the gradient (two-loop recursion)."""
    ahead = slope.copy()
    first = max(0, count - MEMORY)
    weights = np.zeros(MEMORY)
    for c in range(count - 1, first - 1, -1):
        m = c % MEMORY
        weights[m] = np.sum(steps[m] * ahead) / curves[m]
        ahead -= weights[m] * turns[m]
    if count > 0:
        m = (count - 1) % MEMORY
        ahead *= curves[m] / np.sum(turns[m] * turns[m])
    else:
        ahead *= reach / np.sqrt(np.sum(slope * slope))
    for c in range(first, count):
        m = c % MEMORY
        ahead += (weights[m] - np.sum(turns[m] * ahead) / curves[m]) * steps[m]
    return ahead


@compiled
def climb(
    problem: Problem,
    action: Floats,
    tilt: Floats,
    smooth: float,
    tolerance: float,
    turns_allowed: int,
    theta: Floats,
    facts: Floats,
) -> tuple[float, int]:
    """Ascend from a tilt, in place, until steps promise less than `tolerance`; returns the value and the evaluations.

    A tilt without feasible theta is first shrunk towards U_hat.
    """
    d = problem.basis.shape[0]
    slope, trial_slope = np.zeros_like(tilt), np.zeros_like(tilt)
    value = tilted(problem, action, tilt, smooth, slope, theta, facts)
    spent = 1
    while value == -np.inf and spent < 12:
        tilt[:d] *= 0.5 if spent < 11 else 0.0
        value = tilted(problem, action, tilt, smooth, slope, theta, facts)
        spent += 1
    if value == -np.inf:
        return value, spent
    steps, turns, curves = np.zeros((MEMORY, *tilt.shape)), np.zeros((MEMORY, *tilt.shape)), np.ones(MEMORY)
    count, quiet = 0, 0
    for _ in range(turns_allowed):
        if not np.sum(slope * slope) > 0.0:
            break
        ahead = direction(slope, steps, turns, curves, count, 0.3 * np.sqrt(np.sum(tilt[:d] * tilt[:d])) + 1e-3)
        ahead[:d] -= problem.basis @ (problem.basis.T @ ahead[:d])
        promise = np.sum(slope * ahead)
        if not promise > 0.0:
            if count == 0:
                break
            count = 0
            continue
        step, gain = 1.0, -np.inf
        trial = tilt
        while step * promise > 0.01 * tolerance:
            trial = tilt + step * ahead
            found = tilted(problem, action, trial, smooth, trial_slope, theta, facts)
            spent += 1
            gain = found - value
            if gain >= 1e-4 * step * promise:
                break
            step *= 0.3 if gain == -np.inf else min(max(0.5 * step * promise / (step * promise - gain), 0.1), 0.6)
            gain = -np.inf
        if gain == -np.inf:
            if count == 0:
                break
            count = 0
            continue
        m = count % MEMORY
        steps[m], turns[m] = trial - tilt, slope - trial_slope
        curves[m] = np.sum(steps[m] * turns[m])
        if curves[m] > 1e-10 * np.sqrt(np.sum(steps[m] ** 2) * np.sum(turns[m] ** 2)):
            count += 1
        value += gain
        tilt[:], slope[:] = trial, trial_slope
        quiet = quiet + 1 if gain < tolerance and step * promise < 10.0 * tolerance else 0
        if quiet >= 2:
            break
    value = tilted(problem, action, tilt, smooth, slope, theta, facts)
    return value, spent + 1


@compiled
def ascend(
    problem: Problem, action: Floats, tilt: Floats, tolerance: float, theta: Floats, facts: Floats
) -> tuple[float, int]:
    """Climb from a tilt, in place, with the kink where a1 and a2 meet smoothed less and less; the exact value at the end."""
    d = problem.basis.shape[0]
    smooth, spent = 1e-3 * problem.inner, 1
    for _ in range(3):
        value, used = climb(problem, action, tilt, smooth, tolerance, 200, theta, facts)
        spent += used
        if value > -np.inf and facts[SCALE] < 1.0 and facts[RADIAL] < 0.0:
            # Less tilt is better: go on inside, where scaling back does not hide it.
            tilt[:d] *= 0.98 * facts[SCALE]
            value, used = climb(problem, action, tilt, smooth, tolerance, 200, theta, facts)
            spent += used
        if value == -np.inf or not 1e-4 < facts[KINK] < 1.0 - 1e-4:
            break
        smooth *= 1e-2
    facts[SCALE] = 1.0
    value = tilted(problem, action, tilt, 0.0, np.empty_like(tilt), theta, facts)
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
    inside(frame, frame, np.ones((1, 2)), np.ones((1, 2)), 1.0, 1.0, np.empty(1))
    tilted(problem, np.ones(3), tilt, 0.0, np.empty_like(tilt), np.empty(1), facts)
