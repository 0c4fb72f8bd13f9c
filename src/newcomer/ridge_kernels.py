"""Compiled loops over packed triangles: the bodies of ridge.py and of ProBALL's two phases, where the maths is told.

A packed triangle holds row i of a lower triangular matrix in places i (i + 1) / 2 and the i after it. Loops that call
each other live in one file, because Numba's cache looks at the file of the caller only.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from newcomer.kernels import FAST, Bools, Floats, Ints, quiet

# A factor is computed afresh before rank-one steps take it this far from V, but not more, or less, often than this.
EPSILON, DRIFT, SHORTEST, LONGEST = 2.0**-52, 2e-9, 8.0, 4096.0

# The arrays of ridge.Ridge: factor, gram, carry, moment, mean, guard, count.
System = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Ints]
# Where users are in ProBALL: rewards seen, sum of kappa^2, rows kept (-1: full system in use; -2: none), the rule.
Place = tuple[Ints, Floats, Ints, Floats]


@njit(cache=True, fastmath=FAST)
def _variances(factor: Floats, block: Floats, out: Floats) -> None:
    """out[a] = |W x_a|^2 for packed lower triangular W and rows x_a of `block`; four rows share each load of W."""
    last = block.shape[0] - 1
    for a in range(0, last + 1, 4):
        b, c, d = min(a + 1, last), min(a + 2, last), min(a + 3, last)
        x0, x1, x2, x3 = block[a], block[b], block[c], block[d]
        t0 = t1 = t2 = t3 = 0.0
        offset = 0
        for i in range(block.shape[1]):
            row = factor[offset : offset + i + 1]
            offset += i + 1
            s0 = s1 = s2 = s3 = 0.0
            for j in range(i + 1):
                w = row[j]
                s0 += w * x0[j]
                s1 += w * x1[j]
                s2 += w * x2[j]
                s3 += w * x3[j]
            t0 += s0 * s0
            t1 += s1 * s1
            t2 += s2 * s2
            t3 += s3 * s3
        out[a], out[b], out[c], out[d] = t0, t1, t2, t3


@njit(cache=True, fastmath=FAST)
def _project(basis: Floats, block: Floats, out: Floats) -> None:
    """out (K, k) = block (K, d) @ basis (k, d).T; four rows share each load of the basis."""
    last = block.shape[0] - 1
    for a in range(0, last + 1, 4):
        b, c, d = min(a + 1, last), min(a + 2, last), min(a + 3, last)
        x0, x1, x2, x3 = block[a], block[b], block[c], block[d]
        for i in range(basis.shape[0]):
            row = basis[i]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(block.shape[1]):
                w = row[j]
                s0 += w * x0[j]
                s1 += w * x1[j]
                s2 += w * x2[j]
                s3 += w * x3[j]
            out[a, i], out[b, i], out[c, i], out[d, i] = s0, s1, s2, s3


@njit(cache=True, fastmath=FAST)
def _ucb_row(factor: Floats, mean: Floats, block: Floats, width: float, out: Floats) -> None:
    """out[a] = x_a . mean + width |W x_a| for rows x_a of `block`."""
    _variances(factor, block, out)
    for a in range(block.shape[0]):
        total = 0.0
        for j in range(block.shape[1]):
            total += block[a, j] * mean[j]
        out[a] = total + width * np.sqrt(out[a])


@quiet
@njit(cache=True, fastmath=FAST)
def ucb_scores(factor: Floats, mean: Floats, users: Ints, actions: Floats, widths: Floats, out: Floats) -> None:
    """Optimistic scores (m, K) in the systems of `users`; `widths` is (m,), or (1,) for all alike."""
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        _ucb_row(factor[u], mean[u], block, widths[0] if widths.size == 1 else widths[i], out[i])


@njit(cache=True, fastmath=FAST)
def _sample(factor: Floats, mean: Floats, noise: Floats, width: float, out: Floats) -> None:
    """out = mean + width W^T noise, normal with covariance width^2 V^-1 if the noise is standard normal."""
    size = mean.size
    for j in range(size):
        out[j] = mean[j]
    offset = 0
    for i in range(size):
        row = factor[offset : offset + i + 1]
        offset += i + 1
        weight = width * noise[i]
        for j in range(i + 1):
            out[j] += weight * row[j]


@njit(cache=True)
def samples(factor: Floats, mean: Floats, users: Ints, noise: Floats, widths: Floats, out: Floats) -> None:
    """Coefficients (m, d) drawn around the means of `users`; `widths` is (m,), or (1,) for all alike."""
    for i in range(users.size):
        u = users[i]
        _sample(factor[u], mean[u], noise[i], widths[0] if widths.size == 1 else widths[i], out[i])


@njit(cache=True, fastmath=False)  # said in full, because loops inherit what their caller was given
def add_outer(gram: Floats, carry: Floats, x: Floats) -> None:
    """Add x x^T to a packed triangle by Kahan's compensated sum: no sum may be reordered here."""
    offset = 0
    for i in range(x.size):
        row, lost = gram[offset : offset + i + 1], carry[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            part = x[i] * x[j] - lost[j]
            total = row[j] + part
            lost[j] = (total - row[j]) - part
            row[j] = total


@njit(cache=True, fastmath=FAST)
def _apply(factor: Floats, x: Floats) -> Floats:
    """W x."""
    out = np.empty(x.size)
    offset = 0
    for i in range(x.size):
        row = factor[offset : offset + i + 1]
        offset += i + 1
        total = 0.0
        for j in range(i + 1):
            total += row[j] * x[j]
        out[i] = total
    return out


@njit(cache=True, fastmath=FAST)
def _turn_factor(factor: Floats, x: Floats, gain: Floats) -> float:
    """Turn W into the factor of (V + x x^T)^-1 and write V^-1 x to `gain`; returns 1 + x^T V^-1 x."""
    z = _apply(factor, x)
    gain[:] = 0.0
    offset = 0
    before = 1.0
    for i in range(x.size):
        row = factor[offset : offset + i + 1]
        offset += i + 1
        after = before + z[i] * z[i]
        lean, scale = z[i] / before, np.sqrt(before / after)
        for j in range(i + 1):
            w = row[j]
            row[j] = (w - lean * gain[j]) * scale
            gain[j] += z[i] * w
        before = after
    return before


@njit(cache=True, fastmath=FAST)
def _invert(gram: Floats, factor: Floats, size: int) -> bool:
    """Write W = L^-1, where V = L L^T, to `factor`; False, and nothing written, if V is singular to rounding."""
    lower = np.empty_like(gram)
    start = 0
    for i in range(size):
        row = lower[start : start + i + 1]
        offset = 0
        for j in range(i + 1):
            other = lower[offset : offset + j + 1]
            offset += j + 1
            total = 0.0
            for p in range(j):
                total += row[p] * other[p]
            total = gram[start + j] - total
            if i > j:
                row[j] = total / other[j]
            elif total > 0.0:
                row[j] = np.sqrt(total)
            else:
                return False
        start += i + 1
    start = 0
    for i in range(size):
        row, target = lower[start : start + i + 1], factor[start : start + i + 1]
        start += i + 1
        target[:] = 0.0
        offset = 0
        for p in range(i):
            above = factor[offset : offset + p + 1]
            offset += p + 1
            weight = row[p] / row[i]
            for j in range(p + 1):
                target[j] -= weight * above[j]
        target[i] = 1.0 / row[i]
    return True


@njit(cache=True, fastmath=FAST)
def refresh(gram: Floats, factor: Floats, moment: Floats, mean: Floats, guard: Floats) -> None:
    """Compute one user's factor and mean afresh from V and b, and say in `guard` when to do so again.

    Rank-one steps lose about eps cond(V) each, at random, so this many of them stay within DRIFT.
    """
    size = moment.size
    _invert(gram, factor, size)
    _sample(factor, np.zeros(size), _apply(factor, moment), 1.0, mean)
    guard[2] = 0.0
    norm = spread = guard[0] = 0.0
    offset = 0
    for i in range(size):
        for j in range(i + 1):
            norm += gram[offset + j] ** 2 * (1.0 if i == j else 2.0)
            spread += factor[offset + j] ** 2
        guard[0] += gram[offset + i]
        offset += i + 1
    loss = EPSILON * np.sqrt(norm) * spread / size
    guard[1] = 4.0 * guard[0]
    guard[3] = min(max((DRIFT / loss) ** 2, SHORTEST), LONGEST)


@njit(cache=True, fastmath=FAST)
def _learn(system: System, u: int, x: Floats, reward: float) -> None:
    """One reward in the system of user u: V += x x^T, b += reward x, and W, the mean to match."""
    factor, gram, carry, moments, means, guards, count = system
    moment, mean, guard, gain = moments[u], means[u], guards[u], np.empty(x.size)
    add_outer(gram[u], carry[u], x)
    total = _turn_factor(factor[u], x, gain)
    surprise = reward
    for j in range(x.size):
        surprise -= x[j] * mean[j]
    for j in range(x.size):
        moment[j] += reward * x[j]
        mean[j] += surprise / total * gain[j]
        guard[0] += x[j] * x[j]
    count[u] += 1
    guard[2] += 1.0
    if guard[0] > guard[1] or guard[2] >= guard[3]:
        refresh(gram[u], factor[u], moment, mean, guard)


@njit(cache=True)
def learn(system: System, users: Ints, features: Floats, reward: Floats) -> None:
    """Rewards in turn: row i goes into the system of users[i]; a user may occur more than once."""
    for i in range(users.size):
        _learn(system, users[i], features[i], reward[i])


@njit(cache=True)
def _inside(count: int, squares: float, rule: Floats) -> bool:
    """Is round count + 1 played in the subspace? `rule`: Delta tau, Delta tau', k, d."""
    t = count + 1
    bend = rule[1] * np.sqrt(rule[2] * squares / t) if squares > 0.0 else 0.0
    return bool(rule[0] * np.sqrt(t) + bend <= rule[3])


@njit(cache=True)
def inside(count: Ints, squares: Floats, rule: Floats, out: Bools) -> None:
    """out[u] = is user u served in the subspace?"""
    for u in range(out.size):
        out[u] = _inside(count[u], squares[u], rule)


@quiet
@njit(cache=True)
def phase_scores(
    basis: Floats,
    small: tuple[Floats, Floats],
    full: tuple[Floats, Floats],
    place: Place,
    users: Ints,
    actions: Floats,
    widths: Floats,
    width: float,
    out: Floats,
) -> bool:
    """Optimistic scores (m, K) of each row in its phase; False if a user has left but has no full system."""
    (factor, mean), (full_factor, full_mean), (count, squares, kept, rule) = small, full, place
    low = np.empty((actions.shape[1], basis.shape[0]))
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        if _inside(count[u], squares[u], rule):
            _project(basis, block, low)
            _ucb_row(factor[u], mean[u], low, widths[0] if widths.size == 1 else widths[i], out[i])
        elif kept[u] == -1:
            _ucb_row(full_factor[u], full_mean[u], block, width, out[i])
        else:
            return False
    return True


@njit(cache=True)
def phase_samples(
    basis: Floats,
    small: tuple[Floats, Floats],
    full: tuple[Floats, Floats],
    place: Place,
    users: Ints,
    noise: Floats,
    widths: Floats,
    width: float,
    out: Floats,
) -> bool:
    """Coefficients (m, d) drawn in the phase of each row; False if a user has left but has no full system."""
    (factor, mean), (full_factor, full_mean), (count, squares, kept, rule) = small, full, place
    low = np.empty(basis.shape[0])
    for i in range(users.size):
        u = users[i]
        if _inside(count[u], squares[u], rule):
            _sample(factor[u], mean[u], noise[i, : low.size], widths[0] if widths.size == 1 else widths[i], low)
            out[i] = 0.0
            for c in range(low.size):
                for j in range(basis.shape[1]):
                    out[i, j] += low[c] * basis[c, j]
        elif kept[u] == -1:
            _sample(full_factor[u], full_mean[u], noise[i], width, out[i])
        else:
            return False
    return True


@njit(cache=True)
def phase_learn(
    basis: Floats,
    small: System,
    full: System,
    place: Place,
    rows: Floats,
    bend: tuple[Floats, Floats],
    told: tuple[Ints, Floats, Floats],
    begin: int,
) -> tuple[int, int]:
    """Rewards from row `begin` on, until a user needs room for a row, (row, -1), or a full system, (next row, user)."""
    (users, features, reward), (count, squares, kept, rule), (cross, kappa) = told, place, bend
    low = np.empty((1, basis.shape[0]))
    for i in range(begin, users.size):
        u, x = users[i], features[i]
        if kept[u] == rows.shape[1]:
            return i, -1
        _project(basis, features[i : i + 1], low)
        _learn(small, u, low[0], reward[i])
        if cross.size > 0:
            _add_cross(cross[u], low[0], x)
            kappa[u] = np.sqrt(_largest(small[0][u], cross[u]))
            squares[u] += kappa[u] ** 2
        if kept[u] == -1:
            _learn(full, u, x, reward[i])
        if kept[u] < 0:
            continue
        _keep(full[3][u], rows[u, kept[u]], x, reward[i])
        kept[u] += 1
        if not _inside(count[u], squares[u], rule):
            return i + 1, u
    return users.size, -1


@njit(cache=True)
def _keep(moment: Floats, row: Floats, x: Floats, reward: float) -> None:
    """Write x down for later, and add its reward to b now."""
    for j in range(x.size):
        row[j] = x[j]
        moment[j] += reward * x[j]


@njit(cache=True)
def _add_cross(cross: Floats, low: Floats, x: Floats) -> None:
    """C += (U^T x) x^T."""
    for c in range(low.size):
        for j in range(x.size):
            cross[c, j] += low[c] * x[j]


@njit(cache=True)
def _largest(factor: Floats, cross: Floats) -> float:
    """The largest eigenvalue of C^T V^-1 C, which is that of (W C) (W C)^T."""
    image = np.zeros(cross.shape)
    offset = 0
    for i in range(cross.shape[0]):
        for p in range(i + 1):
            for j in range(cross.shape[1]):
                image[i, j] += factor[offset + p] * cross[p, j]
        offset += i + 1
    return float(max(np.linalg.eigvalsh(image @ image.T)[-1], 0.0))


@njit(cache=True, fastmath=False)
def add_square(gram: Floats, carry: Floats, square: Floats) -> None:
    """Add a symmetric matrix (d, d) to a packed triangle by Kahan's compensated sum."""
    offset = 0
    for i in range(square.shape[0]):
        row, lost = gram[offset : offset + i + 1], carry[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            part = square[i, j] - lost[j]
            total = row[j] + part
            lost[j] = (total - row[j]) - part
            row[j] = total
