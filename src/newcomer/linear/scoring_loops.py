"""Compiled loops that choose: scores and samples of the systems of ridge.py and of ProBALL's two phases, and ties.

The maths is told there; a packed triangle holds row i of a lower triangular matrix in places i (i + 1) / 2 and the i
after it. Loops that call each other live in one file, because Numba's cache looks at the file of the caller only; those
that learn are in learn_kernels.py.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from newcomer.array_loops import FAST, TIE, Bools, Floats, Ints, quiet

# Where users are in ProBALL: rewards seen, sum of kappa^2, rows kept (-1: full system in use; -2: none), the rule.
Place = tuple[Ints, Floats, Ints, Floats]
# The arrays of a system that scores need: factor, mean.
Pair = tuple[Floats, Floats]


@njit(cache=True)
def _first_best(scores: Floats, mask: Bools | None, i: int) -> int:
    """The first index within a tie of the best score; -1 if one is not finite. Row i of the mask, if any, allows."""
    best = -np.inf
    for a in range(scores.size):
        if not abs(scores[a]) < np.inf:
            return -1
        if scores[a] > best and (mask is None or mask.size == 0 or mask[i, a]):
            best = scores[a]
    limit, first = best - TIE * abs(best), 0
    while scores[first] < limit or not (mask is None or mask.size == 0 or mask[i, first]):
        first += 1
    return first


@njit(cache=True)
def first_best(scores: Floats, mask: Bools, chosen: Ints) -> int:
    """Write the best of each row (m, K) to `chosen` (m,); returns -1, or the first row with a score not finite."""
    for i in range(scores.shape[0]):
        chosen[i] = _first_best(scores[i], mask, i)
        if chosen[i] < 0:
            return i
    return -1


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


@quiet
@njit(cache=True)
def ucb_choose(
    factor: Floats, mean: Floats, users: Ints, actions: Floats, width: float, mask: Bools, chosen: Ints
) -> bool:
    """The best (m,) by optimistic scores; False if one is not finite."""
    scores = np.empty(actions.shape[1])
    for i in range(users.size):
        u = users[i]
        _ucb_row(factor[u], mean[u], actions[0] if actions.shape[0] == 1 else actions[i], width, scores)
        chosen[i] = _first_best(scores, mask, i)
        if chosen[i] < 0:
            return False
    return True


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
    small: Pair,
    full: Pair,
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


@quiet
@njit(cache=True)
def phase_choose(
    basis: Floats,
    factor: Floats,
    mean: Floats,
    count: Ints,
    squares: Floats,
    settings: Floats,
    users: Ints,
    actions: Floats,
    chosen: Ints,
) -> bool:
    """The best (m,) by `phase_scores`, all allowed, of users in the subspace; False if a row cannot be decided so.

    `settings`: the rule, then the width. The arrays come one by one, and no others, because each costs a call 0.1 us.
    """
    low, scores = np.empty((actions.shape[1], basis.shape[0])), np.empty(actions.shape[1])
    for i in range(users.size):
        u = users[i]
        if not _inside(count[u], squares[u], settings):
            return False
        _project(basis, actions[0] if actions.shape[0] == 1 else actions[i], low)
        _ucb_row(factor[u], mean[u], low, settings[4], scores)
        chosen[i] = _first_best(scores, None, i)
        if chosen[i] < 0:
            return False
    return True


@njit(cache=True)
def phase_samples(
    basis: Floats,
    small: Pair,
    full: Pair,
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


def warm() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    one, row, table, who = np.ones((1, 1, 1)), np.ones((1, 1)), np.empty((1, 1)), np.zeros(1, dtype=np.int64)
    width, mask, pair = np.ones(1), np.ones((0, 0), dtype=np.bool_), (row, row)
    place = np.zeros(1, dtype=np.int64), np.zeros(1), np.full(1, -1), np.zeros(4)
    ucb_scores(row, row, who, one, width, table)
    first_best(table, mask, who.copy())
    ucb_choose(row, row, who, one, 1.0, mask, who.copy())
    samples(row, row, who, row, width, table)
    inside(who, width, np.ones(4), np.empty(1, dtype=np.bool_))
    phase_scores(row, pair, pair, place, who, one, width, 1.0, table)
    phase_choose(row, *pair, *place[:2], np.zeros(5), who, one, who.copy())
    phase_samples(row, pair, pair, place, who, row, width, 1.0, table)
