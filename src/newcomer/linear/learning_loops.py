"""Compiled loops that learn: rewards taken into the systems of ridge.py, alone and behind a projection.

Of each system V = I + sum x x^T, b = sum r x a user has five arrays, all of which one reward (x, r) changes:

    gram     V, a packed triangle, and `carry`, what rounding has kept out of it
    factor   W with V^-1 = W^T W, a packed triangle, turned by each reward and now and then computed afresh from V; with
             few dimensions after every reward, so that W, mean and guard are functions of V and b and need no saving
    moment   b
    mean     V^-1 b, moved by each reward along V^-1 x
    guard    when W is next computed afresh

The maths is in ridge.py; a packed triangle holds row i of a lower triangular matrix in places i (i + 1) / 2 and
the i after it. Loops that call each other live in one file, because Numba's cache looks at the file of the caller only;
those that choose are in scoring_loops.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from newcomer.array_loops import FAST, HUGE, invert_packed_triangle
from newcomer.arrays import Bools, Floats, Ints

# A factor is computed afresh before rank-one steps take it this far from V, but not more, or less, often than this.
EPSILON, DRIFT, SHORTEST, LONGEST = 2.0**-52, 2e-9, 8.0, 4096.0
# Up to so many dimensions that is after every reward: 2 us at 16, and saved states are smaller by more than a half.
ALWAYS = 16
# The columns of `System.guard`: trace of V, the trace at which W is computed afresh, steps since then, steps allowed.
TRACE, LIMIT, STEPS, ALLOWED = range(4)
# What `learning_faults` says if it does not name a row, and what `learn_in_subspace` says if it took none.
ALL_FINE, SOME_MISSING, REFUSED = -1, -2, -1
# What `learned_parts_to_save` says: all arrays, or V, b and the carry are enough, or b is, because V is the identity.
EVERYTHING, V_AND_B, B_ALONE = range(3)


class System(NamedTuple):
    """The arrays of `ridge.Ridge` as compiled loops take them; p = d (d + 1) / 2."""

    factor: Floats  # (n, p), W
    gram: Floats  # (n, p), V
    carry: Floats  # (n, p), what rounding has kept out of V so far
    moment: Floats  # (n, d), b
    mean: Floats  # (n, d)
    guard: Floats  # (n, 4), see TRACE and its neighbours
    seen: Ints  # (n,), how many rewards


class Diary(NamedTuple):
    """Rows of users whose full system is not built yet."""

    rows: Floats  # (n, c, d)
    kept: Ints  # (n,), how many of them are in use
    built: Bools  # (n,), whether the user has a full system and needs no rows
    open: bool  # whether rows are kept at all


@njit(cache=True)
def learning_faults(features: Floats, reward: Floats) -> int:
    """ALL_FINE, SOME_MISSING if some rewards (m,) are NaN, or else the first row that is not finite or beyond HUGE.

    Features (m, d) must be fine also where the reward is missing. Numbers beyond HUGE would overflow once squared.
    """
    status = ALL_FINE
    for i in range(features.shape[0]):
        if np.isnan(reward[i]):
            status = SOME_MISSING
        elif not abs(reward[i]) < HUGE:
            return i
        usable = 0
        for j in range(features.shape[1]):
            usable += 1 if abs(features[i, j]) < HUGE else 0
        if usable < features.shape[1]:
            return i
    return status


@njit(cache=True, fastmath=False)  # said in full, because loops inherit what their caller was given
def _add_outer(gram: Floats, carry: Floats, x: Floats) -> None:
    """Add x x^T to a packed triangle by Kahan's compensated sum: no sum may be reordered here.

    `carry` holds, for each entry, what the last addition has put in too much; it is taken off the next term. Without
    it, 100,000 equal terms would be off by 1e-12, which cond(V) = 1e5 turns into an error of 1e-7 in V^-1. It is
    rounded to the 24 bits of a float32: all that an error of rounding needs, and half the space in a saved state.
    """
    offset = 0
    for i in range(x.size):
        row, lost = gram[offset : offset + i + 1], carry[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            part = x[i] * x[j] - lost[j]
            total = row[j] + part
            lost[j] = np.float32((total - row[j]) - part)
            row[j] = total


@njit(cache=True, fastmath=FAST)
def _apply(factor: Floats, x: Floats) -> Floats:
    """W x, whose squared length is x^T V^-1 x."""
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
def learn_square(gram: Floats, carry: Floats, square: Floats) -> None:
    """Add a symmetric matrix (d, d), of many rows at once, to a packed triangle by Kahan's compensated sum."""
    offset = 0
    for i in range(square.shape[0]):
        row, lost = gram[offset : offset + i + 1], carry[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            part = square[i, j] - lost[j]
            total = row[j] + part
            lost[j] = np.float32((total - row[j]) - part)
            row[j] = total


@njit(cache=True, fastmath=FAST)
def _apply_transposed(factor: Floats, z: Floats, out: Floats) -> None:
    """out = W^T z; with z = W b it is V^-1 b."""
    out[:] = 0.0
    offset = 0
    for i in range(z.size):
        row = factor[offset : offset + i + 1]
        offset += i + 1
        for j in range(i + 1):
            out[j] += z[i] * row[j]


@njit(cache=True, fastmath=FAST)
def _turn_factor(factor: Floats, x: Floats, gain: Floats) -> float:
    """Turn W into the factor of (V + x x^T)^-1 and write V^-1 x to `gain`; returns 1 + x^T V^-1 x.

    One pass over the triangle (Carlson 1973, see ridge.py): before row i, `gain` is sum_{j<i} z_j w_j and `before` is
    s_{i-1} = 1 + z_1^2 + ... + z_{i-1}^2; row i becomes sqrt(s_{i-1} / s_i) (w_i - (z_i / s_{i-1}) gain).
    """
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
def refresh_learned_system(gram: Floats, factor: Floats, moment: Floats, mean: Floats, guard: Floats) -> None:
    """Compute one user's factor and mean afresh from V and b, and say in `guard` (4,) when to do so again.

    Rank-one steps lose about eps cond(V) each, at random, so (DRIFT / loss)^2 of them stay within DRIFT; cond(V) is
    taken for |V| |V^-1| in Frobenius norms over d. It grows with the trace, so four times the trace also asks for a
    fresh W. Where V cannot be factorised, the turned W stays.
    """
    size = moment.size
    invert_packed_triangle(gram, factor, size)
    _apply_transposed(factor, _apply(factor, moment), mean)
    guard[STEPS] = 0.0
    norm = spread = guard[TRACE] = 0.0
    offset = 0
    for i in range(size):
        for j in range(i + 1):
            norm += gram[offset + j] ** 2 * (1.0 if i == j else 2.0)
            spread += factor[offset + j] ** 2
        guard[TRACE] += gram[offset + i]
        offset += i + 1
    loss = EPSILON * np.sqrt(norm) * spread / size
    guard[LIMIT] = 4.0 * guard[TRACE]
    guard[ALLOWED] = min(max((DRIFT / loss) ** 2, SHORTEST), LONGEST)


@njit(cache=True, fastmath=FAST)
def learn_row(system: System, u: int, x: Floats, reward: float) -> None:
    """One reward in the system of user u: V += x x^T, b += reward x, and W, the mean to match.

    The mean moves by V^-1 x (reward - x . mean) / (1 + x^T V^-1 x), V being that of before.
    """
    moment, mean, guard, gain = system.moment[u], system.mean[u], system.guard[u], np.empty(x.size)
    _add_outer(system.gram[u], system.carry[u], x)
    total = _turn_factor(system.factor[u], x, gain)
    surprise = reward
    for j in range(x.size):
        surprise -= x[j] * mean[j]
    for j in range(x.size):
        moment[j] += reward * x[j]
        mean[j] += surprise / total * gain[j]
        guard[TRACE] += x[j] * x[j]
    system.seen[u] += 1
    guard[STEPS] += 1.0
    if x.size <= ALWAYS or guard[TRACE] > guard[LIMIT] or guard[STEPS] >= guard[ALLOWED]:
        refresh_learned_system(system.gram[u], system.factor[u], moment, mean, guard)


@njit(cache=True)
def derive_learned_parts(gram: Floats, moment: Floats, factor: Floats, mean: Floats, guard: Floats) -> bool:
    """Write factor (n, p), mean (n, d) and guard (n, 4) as V and b say; False if some V cannot be factorised."""
    fine = True
    for u in range(gram.shape[0]):
        factor[u] = np.nan
        refresh_learned_system(gram[u], factor[u], moment[u], mean[u], guard[u])
        for j in range(mean.shape[1]):
            fine = fine and np.isfinite(mean[u, j])
    return fine


@njit(cache=True)
def learned_parts_to_save(
    factor: Floats, gram: Floats, carry: Floats, moment: Floats, mean: Floats, guard: Floats
) -> int:
    """Which arrays of systems have to be saved: EVERYTHING, V_AND_B if the others can be derived, or B_ALONE."""
    first, middle, last = np.empty_like(factor[0]), np.empty_like(mean[0]), np.empty_like(guard[0])
    fresh = True
    for u in range(gram.shape[0]):
        first[:] = np.nan
        refresh_learned_system(gram[u], first, moment[u], middle, last)
        if (first != factor[u]).any() or (middle != mean[u]).any() or (last != guard[u]).any():
            return EVERYTHING
        offset = 0
        for i in range(moment.shape[1]):
            for j in range(i + 1):
                fresh = fresh and gram[u, offset + j] == (1.0 if i == j else 0.0) and carry[u, offset + j] == 0.0
            offset += i + 1
    return B_ALONE if fresh else V_AND_B


# `learn_rows` and `learn_in_subspace` run for every reward of a single user, where a NamedTuple of seven arrays costs 1
# us more than the arrays themselves: callers unpack it, `learn_rows(*system.parts, ...)`, and the loops put it together
# again.


@njit(cache=True)
def learn_rows(
    factor: Floats,
    gram: Floats,
    carry: Floats,
    moment: Floats,
    mean: Floats,
    guard: Floats,
    seen: Ints,
    users: Ints,
    features: Floats,
    reward: Floats,
) -> bool:
    """Rewards in turn: row i goes into the system of users[i], who may occur again; False, unchanged, at a fault."""
    if learning_faults(features, reward) != ALL_FINE:
        return False
    system = System(factor, gram, carry, moment, mean, guard, seen)
    for i in range(users.size):
        learn_row(system, users[i], features[i], reward[i])
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
def _keep(x: Floats, reward: float, row: Floats, owed: Floats) -> None:
    """Write x down in `row` for later, and add its reward to b, `owed`, now."""
    for j in range(x.size):
        row[j] = x[j]
        owed[j] += reward * x[j]


@njit(cache=True)
def learn_pair(
    basis: Floats,
    small: System,
    full: System,
    diary: Diary,
    users: Ints,
    features: Floats,
    reward: Floats,
    begin: int,
) -> int:
    """Rewards in turn, from row `begin` on, into small systems of projected features and, where built, full ones.

    The rows of the other users are kept, if the diary is `open`. Returns m, or the first row there is no room for.
    """
    low = np.empty(basis.shape[0])
    for i in range(begin, users.size):
        u, x, kept = users[i], features[i], diary.kept
        if diary.open and not diary.built[u] and kept[u] == diary.rows.shape[1]:
            return i
        _project(basis, x, low)
        learn_row(small, u, low, reward[i])
        if diary.built[u]:
            learn_row(full, u, x, reward[i])
        elif diary.open:
            _keep(x, reward[i], diary.rows[u, kept[u]], full.moment[u])
            kept[u] += 1
    return users.size


@njit(cache=True)
def learn_in_subspace(
    basis: Floats,
    factor: Floats,
    gram: Floats,
    carry: Floats,
    moment: Floats,
    mean: Floats,
    guard: Floats,
    seen: Ints,
    rows: Floats,
    kept: Ints,
    owed: Floats,
    patience: int,
    users: Ints,
    features: Floats,
    reward: Floats,
    begin: int,
) -> int:
    """Ordinary rewards of users without a full system, from row `begin` on; returns the first row that is none, or m.

    A reward goes into the small system, its features to `rows` (n, c, d), of which `kept` (n,) are in use, and reward
    times features to `owed` (n, d), the b of the full system to come. A row is out of the ordinary if its user has no
    room for it, or leaves the subspace with it, at `patience` rewards. At a fault nothing changes: REFUSED.
    """
    if begin == 0 and learning_faults(features, reward) != ALL_FINE:
        return REFUSED
    small, low = System(factor, gram, carry, moment, mean, guard, seen), np.empty(basis.shape[0])
    for i in range(begin, users.size):
        u, x = users[i], features[i]
        if kept[u] == rows.shape[1] or seen[u] + 1 >= patience:
            return i
        _project(basis, x, low)
        learn_row(small, u, low, reward[i])
        _keep(x, reward[i], rows[u, kept[u]], owed[u])
        kept[u] += 1
    return users.size


def warm_learning_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    row, one, who = np.ones((1, 1)), np.ones(1), np.zeros(1, dtype=np.int64)
    guard = np.array([[1.0, 4.0, 0.0, SHORTEST]])
    system = System(row, row.copy(), np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)), guard, who.copy())
    learning_faults(row, one)
    learn_square(np.ones(1), np.zeros(1), row)
    refresh_learned_system(one, one.copy(), one, one.copy(), guard[0])
    learn_row(system, 0, one, 1.0)
    derive_learned_parts(row.copy(), row, row.copy(), row.copy(), guard)
    learned_parts_to_save(row, row, row, row, row, guard)
    learn_rows(*system, who, row, one)
    diary = Diary(np.ones((1, 1, 1)), who.copy(), np.zeros(1, dtype=np.bool_), True)
    learn_pair(row, system, system, diary, who, row, one, 0)
    learn_in_subspace(row, *system, np.ones((1, 1, 1)), who.copy(), row.copy(), 9, who, row, one, 0)
