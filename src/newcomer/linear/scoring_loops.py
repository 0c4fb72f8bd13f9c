"""Compiled loops that choose: scores and samples of the systems of ridge.py, alone and in pairs, and ties.

For an action x the optimistic score is x . mean + width |W x|, because |x|_{V^-1} = |W x|; a sample of the reward
vector is mean + width W^T noise. In a pair (policies/two_systems.py) a user in the subspace has the small system, to
which a basis (k, d) takes the action first, and anybody else the full one. Most of the time goes into |W x| for K
actions: d^2 / 2 multiplications each, or k d + k^2 / 2 for users in the subspace.

Features come unchecked: a NaN or an infinity makes a score that is not finite, which `best_score` finds on its way to
the best, so that nobody has to look at all features before.

The maths is in ridge.py and policies/two_systems.py; a packed triangle holds row i of a lower triangular matrix in
places i (i + 1) / 2 and the i after it. Loops that call each other live in one file, because Numba's cache looks at the
file of the caller only; those that learn are in learning_loops.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from newcomer.array_loops import FAST, TIE, quiet_loop
from newcomer.arrays import Bools, Floats, Ints

# In place of an action, or of a row, where all scores are fine.
NOT_FINITE, ALL_FINITE = -1, -1


class Ellipsoid(NamedTuple):
    """What scores need of a system: {beta : |beta - mean|_V <= width} of each user."""

    factor: Floats  # (n, p), W
    mean: Floats  # (n, d)
    widths: Floats  # (m,) for the rows of the query, or (1,) for all alike


@njit(cache=True)
def best_score(scores: Floats, mask: Bools | None, i: int) -> int:
    """The first index within a tie of the best score, or NOT_FINITE if some score, masked or not, is not finite.

    Row i of the mask, if there is one, says which indices may win; None and an empty mask allow all.
    """
    best = -np.inf
    for a in range(scores.size):
        if not abs(scores[a]) < np.inf:
            return NOT_FINITE
        if scores[a] > best and (mask is None or mask.size == 0 or mask[i, a]):
            best = scores[a]
    limit, first = best - TIE * abs(best), 0
    while scores[first] < limit or not (mask is None or mask.size == 0 or mask[i, first]):
        first += 1
    return first


@njit(cache=True)
def first_best_scores(scores: Floats, mask: Bools, chosen: Ints) -> int:
    """Write the best of each row (m, K) to `chosen` (m,); returns ALL_FINITE, or the first row that is not."""
    for i in range(scores.shape[0]):
        chosen[i] = best_score(scores[i], mask, i)
        if chosen[i] == NOT_FINITE:
            return i
    return ALL_FINITE


@njit(cache=True, fastmath=FAST)
def squared_score_lengths(factor: Floats, block: Floats, out: Floats) -> None:
    """out[a] = |W x_a|^2 for packed lower triangular W and rows x_a of `block` (K, d).

    Four rows share each load of W, which keeps four independent sums in registers; where fewer than four are left, the
    last row is computed several times, with the same result.
    """
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
    """out[a] = x_a . mean + width |W x_a| for rows x_a of `block` (K, d): the scores of one user's actions."""
    squared_score_lengths(factor, block, out)
    for a in range(block.shape[0]):
        total = 0.0
        for j in range(block.shape[1]):
            total += block[a, j] * mean[j]
        out[a] = total + width * np.sqrt(out[a])


@njit(cache=True)
def _width(system: Ellipsoid, i: int) -> float:
    """The width for row i of the query."""
    return float(system.widths[0] if system.widths.size == 1 else system.widths[i])


@quiet_loop
@njit(cache=True, fastmath=FAST)
def ucb_scores(system: Ellipsoid, users: Ints, actions: Floats, out: Floats) -> None:
    """Optimistic scores (m, K) in the systems of `users`; actions are (m, K, d), or (1, K, d) for all alike."""
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        _ucb_row(system.factor[u], system.mean[u], block, _width(system, i), out[i])


@quiet_loop
@njit(cache=True, fastmath=FAST)
def curious_scores(system: Ellipsoid, users: Ints, actions: Floats, noise: Floats, out: Floats) -> None:
    """Expectations plus width deviations of how far one more reward would move them: s^2 / sqrt(s^2 + noise), (m, K).

    s^2 = |W x|^2, and `noise` (m, K) is the variance of the rest of a reward.
    """
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        width, mean = _width(system, i), system.mean[u]
        squared_score_lengths(system.factor[u], block, out[i])
        for a in range(block.shape[0]):
            total = 0.0
            for j in range(block.shape[1]):
                total += block[a, j] * mean[j]
            both = out[i, a] + noise[i, a]
            out[i, a] = total + (width * out[i, a] / np.sqrt(both) if both > 0 else 0.0 * both)


@quiet_loop
@njit(cache=True, fastmath=FAST)
def learned_score_shares(system: Ellipsoid, users: Ints, actions: Floats, noise: Floats, out: Floats) -> None:
    """What part of the variance of one more reward the coefficients have: s^2 / (s^2 + noise), (m, K)."""
    for i in range(users.size):
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        squared_score_lengths(system.factor[users[i]], block, out[i])
        for a in range(block.shape[0]):
            both = out[i, a] + noise[i, a]
            out[i, a] = out[i, a] / both if both > 0 else 0.0


@quiet_loop
@njit(cache=True)
def choose_by_ucb_scores(
    factor: Floats, mean: Floats, users: Ints, actions: Floats, width: float, chosen: Ints
) -> bool:
    """The best (m,) by optimistic scores, all actions allowed; False if a score is not finite.

    For a single user a NamedTuple would cost this loop 1 us a call, hence the arrays one by one.
    """
    scores = np.empty(actions.shape[1])
    for i in range(users.size):
        u = users[i]
        _ucb_row(factor[u], mean[u], actions[0] if actions.shape[0] == 1 else actions[i], width, scores)
        chosen[i] = best_score(scores, None, i)
        if chosen[i] == NOT_FINITE:
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
def score_samples(system: Ellipsoid, users: Ints, noise: Floats, out: Floats) -> None:
    """Coefficients (m, d) drawn around the means of `users`, from standard normal noise (m, d)."""
    for i in range(users.size):
        u = users[i]
        _sample(system.factor[u], system.mean[u], noise[i], _width(system, i), out[i])


@njit(cache=True)
def project_to_score(basis: Floats, features: Floats, out: Floats) -> None:
    """out (m, k) = features (m, d) @ basis (k, d).T, row by row, so that users do not depend on their neighbours."""
    for i in range(features.shape[0]):
        _project(basis, features[i : i + 1], out[i : i + 1])


@njit(cache=True)
def score_lengths(factor: Floats, users: Ints, features: Floats, out: Floats) -> None:
    """out[i] = |W x_i| = |x_i|_{V^-1} in the system of users[i], for rows x_i of features (m, d)."""
    for i in range(users.size):
        squared_score_lengths(factor[users[i]], features[i : i + 1], out[i : i + 1])
        out[i] = np.sqrt(out[i])


@quiet_loop
@njit(cache=True)
def pair_scores(
    basis: Floats, small: Ellipsoid, full: Ellipsoid, in_subspace: Bools, users: Ints, actions: Floats, out: Floats
) -> None:
    """Optimistic scores (m, K), by the small system of projected actions in the subspace, else by the full system."""
    low = np.empty((actions.shape[1], basis.shape[0]))
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        if in_subspace[u]:
            _project(basis, block, low)
            _ucb_row(small.factor[u], small.mean[u], low, _width(small, i), out[i])
        else:
            _ucb_row(full.factor[u], full.mean[u], block, _width(full, i), out[i])


@quiet_loop
@njit(cache=True)
def choose_by_pair_scores(
    basis: Floats,
    factor: Floats,
    mean: Floats,
    width: float,
    full_factor: Floats,
    full_mean: Floats,
    full_width: float,
    in_subspace: Bools,
    users: Ints,
    actions: Floats,
    chosen: Ints,
) -> bool:
    """The best (m,) by `pair_scores`, all actions allowed; False if a score is not finite.

    For a single user each NamedTuple would cost this loop 1 us a call, hence the arrays one by one.
    """
    low, scores = np.empty((actions.shape[1], basis.shape[0])), np.empty(actions.shape[1])
    for i in range(users.size):
        u = users[i]
        block = actions[0] if actions.shape[0] == 1 else actions[i]
        if in_subspace[u]:
            _project(basis, block, low)
            _ucb_row(factor[u], mean[u], low, width, scores)
        else:
            _ucb_row(full_factor[u], full_mean[u], block, full_width, scores)
        chosen[i] = best_score(scores, None, i)
        if chosen[i] == NOT_FINITE:
            return False
    return True


@njit(cache=True)
def pair_score_samples(
    basis: Floats, small: Ellipsoid, full: Ellipsoid, in_subspace: Bools, users: Ints, noise: Floats, out: Floats
) -> None:
    """Coefficients (m, d) drawn by the small system and taken back to d dimensions, or drawn by the full system."""
    low = np.empty(basis.shape[0])
    for i in range(users.size):
        u = users[i]
        if in_subspace[u]:
            _sample(small.factor[u], small.mean[u], noise[i, : low.size], _width(small, i), low)
            out[i] = 0.0
            for c in range(low.size):
                for j in range(basis.shape[1]):
                    out[i, j] += low[c] * basis[c, j]
        else:
            _sample(full.factor[u], full.mean[u], noise[i], _width(full, i), out[i])


def warm_scoring_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    block, row, table, who = np.ones((1, 1, 1)), np.ones((1, 1)), np.empty((1, 1)), np.zeros(1, dtype=np.int64)
    mask, in_subspace, system = (
        np.ones((0, 0), dtype=np.bool_),
        np.ones(1, dtype=np.bool_),
        Ellipsoid(row, row, np.ones(1)),
    )
    first_best_scores(row, mask, who.copy())
    best_score(np.ones(1), mask, 0)
    squared_score_lengths(np.ones(1), row, np.empty(1))
    ucb_scores(system, who, block, table)
    curious_scores(system, who, block, row, table)
    learned_score_shares(system, who, block, row, table)
    choose_by_ucb_scores(row, row, who, block, 1.0, who.copy())
    score_samples(system, who, row, table)
    project_to_score(row, row, table)
    score_lengths(row, who, row, np.empty(1))
    pair_scores(row, system, system, in_subspace, who, block, table)
    choose_by_pair_scores(row, row, row, 1.0, row, row, 1.0, in_subspace, who, block, who.copy())
    pair_score_samples(row, system, system, in_subspace, who, row, table)
