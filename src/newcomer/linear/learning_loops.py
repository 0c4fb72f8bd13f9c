"""Compiled loops that learn: rewards taken into the systems of ridge.py and of ProBALL's subspace phase.

The maths is told there; a packed triangle holds row i of a lower triangular matrix in places i (i + 1) / 2 and the i
after it. Loops that call each other live in one file, because Numba's cache looks at the file of the caller only; those
that choose are in ridge_kernels.py. Those called for every decision take their arrays one by one: tuples cost more.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from newcomer.array_loops import FAST, HUGE, Floats, Ints, invert_packed

# A factor is computed afresh before rank-one steps take it this far from V, but not more, or less, often than this.
EPSILON, DRIFT, SHORTEST, LONGEST = 2.0**-52, 2e-9, 8.0, 4096.0

# The arrays of ridge.Ridge: factor, gram, carry, moment, mean, guard, count.
System = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Ints]
# Of users who may leave ProBALL's subspace: rows kept, b of the full system, the rule.
Diary = tuple[Floats, Floats, Floats]


@njit(cache=True)
def fault(features: Floats, reward: Floats) -> int:
    """0 if all rewards (m,) and features (m, d) are usable, 1 if some rewards are NaN, 2 + the first bad row if not."""
    missing = 0
    for i in range(features.shape[0]):
        if np.isnan(reward[i]):
            missing = 1
        elif not abs(reward[i]) < HUGE:
            return 2 + i
        usable = 0
        for j in range(features.shape[1]):
            usable += 1 if abs(features[i, j]) < HUGE else 0
        if usable < features.shape[1]:
            return 2 + i
    return missing


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


@njit(cache=True, fastmath=FAST)
def _apply_transposed(factor: Floats, z: Floats, out: Floats) -> None:
    """out = W^T z."""
    out[:] = 0.0
    offset = 0
    for i in range(z.size):
        row = factor[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            out[j] += z[i] * row[j]


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
def refresh(gram: Floats, factor: Floats, moment: Floats, mean: Floats, guard: Floats) -> None:
    """Compute one user's factor and mean afresh from V and b, and say in `guard` when to do so again.

    Rank-one steps lose about eps cond(V) each, at random, so this many of them stay within DRIFT.
    """
    size = moment.size
    invert_packed(gram, factor, size)
    _apply_transposed(factor, _apply(factor, moment), mean)
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
def learn(
    factor: Floats,
    gram: Floats,
    carry: Floats,
    moment: Floats,
    mean: Floats,
    guard: Floats,
    count: Ints,
    users: Ints,
    features: Floats,
    reward: Floats,
) -> bool:
    """Rewards in turn: row i goes into the system of users[i], who may occur again; False, unchanged, at a fault."""
    if fault(features, reward) > 0:
        return False
    system = factor, gram, carry, moment, mean, guard, count
    for i in range(users.size):
        _learn(system, users[i], features[i], reward[i])
    return True


@njit(cache=True, fastmath=FAST)
def _project(basis: Floats, x: Floats, out: Floats) -> None:
    """out (k,) = basis (k, d) @ x."""
    for i in range(out.size):
        total = 0.0
        for j in range(x.size):
            total += basis[i, j] * x[j]
        out[i] = total


@njit(cache=True)
def phase_learn(
    basis: Floats,
    factor: Floats,
    gram: Floats,
    carry: Floats,
    moment: Floats,
    mean: Floats,
    guard: Floats,
    count: Ints,
    kept: Ints,
    diary: Diary | None,
    full: System | None,
    users: Ints,
    features: Floats,
    reward: Floats,
    begin: int,
) -> tuple[int, int]:
    """Rewards from row `begin` on, until a user needs room for a row, (row, -1), or a full system, (next row, user).

    `diary` is None while there is no room for rows, `full` while nobody has a full system; the rule is that of tau' = 0.
    At a fault nothing changes: (-1, -1).
    """
    if begin == 0 and fault(features, reward) > 0:
        return -1, -1
    low, small = np.empty(basis.shape[0]), (factor, gram, carry, moment, mean, guard, count)
    room = 0 if diary is None else diary[0].shape[1]
    for i in range(begin, users.size):
        u, x = users[i], features[i]
        if kept[u] == room:
            return i, -1
        _project(basis, x, low)
        _learn(small, u, low, reward[i])
        if full is not None and kept[u] == -1:
            _learn(full, u, x, reward[i])
        if diary is not None and kept[u] >= 0:
            rows, owed, rule = diary
            _keep(owed[u], rows[u, kept[u]], x, reward[i])
            kept[u] += 1
            if rule[0] * np.sqrt(count[u] + 1) > rule[3]:
                return i + 1, u
    return users.size, -1


@njit(cache=True)
def _keep(moment: Floats, row: Floats, x: Floats, reward: float) -> None:
    """Write x down for later, and add its reward to b now."""
    for j in range(x.size):
        row[j] = x[j]
        moment[j] += reward * x[j]


def warm() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    one, row, who = np.ones(1), np.ones((1, 1)), np.zeros(1, dtype=np.int64)
    guard, diary = np.array([[1.0, 4.0, 0.0, 8.0]]), (np.ones((1, 1, 1)), row.copy(), np.zeros(4))
    fault(row, one)
    refresh(row[0], row[0].copy(), row[0], row[0].copy(), guard[0])
    system = (row, row.copy(), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), guard, who.copy())
    learn(*system, who, row, one)
    add_outer(one.copy(), np.zeros(1), one)
    add_square(np.ones(1), np.zeros(1), row)
    for kept, full in ((None, None), (diary, None), (diary, system)):
        phase_learn(row, *system, np.full(1, -1), kept, full, who, row, one, 0)
