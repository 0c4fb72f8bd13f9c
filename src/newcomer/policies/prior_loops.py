"""Compiled loops of PriorUCB and EmpiricalArms by ids: one call chooses, one call learns.

They do what policies/belief.py and actions.py do array by array, for the commonest case: all actions are of the
catalogue, by their places, and users are served by the posterior of z. The tests of both ways hold them to each other.
Tables by place have a last row for unknown actions (policies/actions.py), which is not met here.

With g_a the loadings of action a, v_a its residual variance and w the user's repeatability, the loops use

    s2 = (1 - w) v_a              noise of one reward                     (`single`)
    se = w v_a + uncertainty      variance of the per-action effect       (`stays`)
    c  = se / (s2 + n se)         weight of one of the user's n rewards of a, with sum T over the population mean

    E[reward]      = mean_a + c T + (1 - c n) g_a . E[z]
    Var[reward]    = s2 + c s2 + |(1 - c n) g_a|^2 in Cov[z]

(without earlier rewards c n = 0, and se stands for c s2). So a reward of a new action is information about z, and a
reward of an action that the user has met is information mostly about that action: its row for z shrinks by 1 - c n.

For a single user a NamedTuple of arrays costs 1 us a call, hence the arrays one by one; the order is that of
`Tables`, `Entries`, and `System`.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

import numpy as np

from newcomer.array_loops import compiled, dot, fast
from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear.learning_loops import System, learn_row
from newcomer.linear.scoring_loops import NOT_FINITE, best_score, squared_score_lengths
from newcomer.policies.memory_loops import CATALOGUE, Entries, memory_likelihood_loop, reweigh_memory_loop

# Why `learn_by_prior_loop` stopped before its last row: there is no room for an entry of this row; this row's user left
# the prior; or a number is missing or far too large, and nothing changed.
NO_ROOM, OUTLIER, REFUSED = -1, -2, -3


@compiled
def _prior_place_of(keys: Ints, used: int, key: int) -> int:
    """The place of a key in a user's memory, or -1."""
    for j in range(used):
        if keys[j] == key:
            return j
    return -1


@fast
def choose_by_prior_loop(
    means: Floats,
    loadings: Floats,
    variance: Floats,
    effect: Floats,
    keys: Ints,
    counts: Floats,
    totals: Floats,
    used: Ints,
    share: Floats,
    extra: Floats,
    factor: Floats,
    mean: Floats,
    users: Ints,
    codes: Ints,
    weight: float,
    chosen: Ints,
) -> bool:
    """The best (m,) of the candidates with these codes (m, K), or (1, K) for all; False if a score is not finite.

    A score is the expected reward plus `weight` deviations of how far one more reward would move it:
    s^2 / sqrt(s^2 + noise), where s^2 is the posterior variance of g^T z.
    """
    count, rank = codes.shape[1], loadings.shape[1]
    block, scores = np.empty((count, rank)), np.empty(count)
    level, noise = np.empty(count), np.empty(count)
    for i in range(users.size):
        u, row = users[i], codes[0] if codes.shape[0] == 1 else codes[i]
        for a in range(count):
            code = row[a]
            single = (1.0 - share[u]) * variance[code]  # s2
            stays = share[u] * variance[code] + extra[u] + effect[code]  # se
            j = _prior_place_of(keys[u], used[u], code)
            met, level[a], noise[a] = 0.0, means[code], single + stays
            if j >= 0:
                c = stays / (single + counts[u, j] * stays) if stays > 0.0 else 0.0
                met, level[a], noise[a] = c * counts[u, j], means[code] + c * totals[u, j], single + c * single
            for q in range(rank):
                block[a, q] = loadings[code, q] * (1.0 - met)
        squared_score_lengths(factor[u], block, scores)
        for a in range(count):
            both = scores[a] + noise[a]
            bonus = weight * scores[a] / sqrt(both) if both > 0.0 else 0.0
            scores[a] = dot(block[a], mean[u]) + bonus + level[a]
        chosen[i] = best_score(scores, None, i)
        if chosen[i] == NOT_FINITE:
            return False
    return True


@compiled
def choose_arms_by_prior_loop(
    means: Floats,
    variance: Floats,
    effect: Floats,
    keys: Ints,
    counts: Floats,
    totals: Floats,
    used: Ints,
    share: Floats,
    extra: Floats,
    users: Ints,
    codes: Ints,
    weight: float,
    chosen: Ints,
) -> bool:
    """The same where nothing is shared between actions: population mean, effect, `weight` deviations of the effect."""
    scores = np.empty(codes.shape[1])
    for i in range(users.size):
        u, row = users[i], codes[0] if codes.shape[0] == 1 else codes[i]
        for a in range(scores.size):
            code = row[a]
            single, stays = (1.0 - share[u]) * variance[code], share[u] * variance[code] + extra[u] + effect[code]
            j = _prior_place_of(keys[u], used[u], code)
            level, left = 0.0, stays
            if j >= 0:
                c = stays / (single + counts[u, j] * stays) if stays > 0.0 else 0.0
                level, left = c * totals[u, j], c * single
            scores[a] = means[code] + level + weight * sqrt(left)
        chosen[i] = best_score(scores, None, i)
        if chosen[i] == NOT_FINITE:
            return False
    return True


@compiled
def _believe_by_prior(starting: Floats, log_prior: Floats, log_likelihood: Floats, shares: Floats) -> float:
    """The mean share under weights `starting` (S,) times exp(log_prior + log_likelihood), as in repeatability.py."""
    top = -np.inf
    for s in range(shares.size):
        top = max(top, log(max(starting[s], 1e-300)) + log_prior[s] + log_likelihood[s])
    total = found = 0.0
    for s in range(shares.size):
        part = exp(log(max(starting[s], 1e-300)) + log_prior[s] + log_likelihood[s] - top)
        total += part
        found += part * shares[s]
    return found / total


@compiled
def _prior_evidence(wealth: Floats, weights: Floats, scale_weights: Floats) -> float:
    """`OutlierTest.evidence` of one user: log averages of the running products (g + J,), the latter accumulated."""
    sizes = weights.size
    top = wealth[:sizes].max()
    total = 0.0
    for s in range(sizes):
        total += exp(wealth[s] - top) * weights[s]
    against = top + log(total)
    if scale_weights.size == 0:
        return float(against)
    top = wealth[sizes:].max()
    total, largest = 0.0, -np.inf
    for s in range(scale_weights.size):
        largest = max(largest, wealth[sizes + s])
        total += exp(largest - top) * scale_weights[s]
    return float(against - top - log(total))


@compiled
def _prior_log_ratio(error: float, scale: float) -> float:
    """Log of N(u; 0, s) / N(u; 0, 1)."""
    return 0.5 * (error * error * (1.0 - 1.0 / scale) - log(scale))


@compiled
def _meet_by_prior(
    keys: Ints,
    counts: Floats,
    totals: Floats,
    slots: Ints,
    fixed: Floats,
    used: Ints,
    u: int,
    j: int,
    code: int,
    target: float,
) -> None:
    """Write one meeting of an action of the catalogue down, as entry j of user u or, below zero, as a new one."""
    if j < 0:
        j = used[u]
        keys[u, j], slots[u, j], fixed[u, j] = code, CATALOGUE, 1.0
        counts[u, j], totals[u, j] = 1.0, target
        used[u] = j + 1
    else:
        counts[u, j] += 1.0
        totals[u, j] += target


@compiled
def learn_by_prior_loop(
    means: Floats,
    loadings: Floats,
    variance: Floats,
    effect: Floats,
    keys: Ints,
    counts: Floats,
    totals: Floats,
    slots: Ints,
    fixed: Floats,
    used: Ints,
    rows: Floats,
    share: Floats,
    extra: Floats,
    repeats: Floats,
    log_likelihood: Floats,
    log_prior: Floats,
    through: Floats,
    starting: Floats,
    shares: Floats,
    scale: Floats,
    factor: Floats,
    gram: Floats,
    carry: Floats,
    moment: Floats,
    mean: Floats,
    guard: Floats,
    seen: Ints,
    wealth: Floats,
    sizes: Floats,
    scales: Floats,
    limit: float,
    in_subspace: Bools,
    largest: float,
    users: Ints,
    codes: Ints,
    reward: Floats,
    begin: int,
    stopped: Ints,
) -> int:
    """Rewards (m,) of actions with these codes (m,), from row `begin` on, in turn; returns the row to go on with, or m.

    `starting` (S,) are the weights of `shares` (S,), empty if the model knows the share. `sizes` (2, g) and `scales`
    (2, J) are those of the outlier test with their weights, empty without one; `limit` is the evidence at which a user
    leaves the prior. Where a row stops the loop, `stopped` (1,) says why. Rewards beyond `largest` are refused.
    """
    if begin == 0:
        for i in range(users.size):
            if not abs(reward[i]) <= largest:
                stopped[0] = REFUSED
                return 0
    rank = loadings.shape[1]
    x, image = np.empty((1, rank)), np.empty(1)
    system = System(factor, gram, carry, moment, mean, guard, seen)
    tested = sizes.shape[1] > 0
    for i in range(begin, users.size):
        u, code = users[i], codes[i]
        j = _prior_place_of(keys[u], used[u], code)
        if j < 0 and used[u] == keys.shape[1]:
            stopped[0] = NO_ROOM
            return i
        single = (1.0 - share[u]) * variance[code]  # s2
        stays = share[u] * variance[code] + extra[u] + effect[code]  # se
        met, level, left = 0.0, 0.0, stays
        if j >= 0:
            c = stays / (single + counts[u, j] * stays) if stays > 0.0 else 0.0
            met, level, left = c * counts[u, j], c * totals[u, j], c * single
        target, noise = reward[i] - means[code], single + left
        personal = unsure = 0.0
        again = j >= 0 and fixed[u, j] > 0.0
        if again and starting.size > 0:
            x[0] = loadings[code]
            squared_score_lengths(factor[u], x, image)
            personal, unsure = dot(loadings[code], mean[u]), image[0]
        for q in range(rank):
            x[0, q] = loadings[code, q] * (1.0 - met)
        if tested and j < 0 and in_subspace[u]:
            squared_score_lengths(factor[u], x, image)
            error = (target - level - dot(x[0], mean[u])) / sqrt(noise + image[0])
            for s in range(sizes.shape[1]):
                wealth[u, s] += _prior_log_ratio(error, 1.0 + sizes[0, s])
            for s in range(scales.shape[1]):
                wealth[u, sizes.shape[1] + s] += _prior_log_ratio(error, scales[0, s])
        root = sqrt(noise)
        for q in range(rank):
            x[0, q] /= root
        learn_row(system, u, x[0], (target - level) / root)
        if again:
            for s in range(starting.size):
                log_likelihood[u, s] += log(
                    memory_likelihood_loop(
                        shares[s], means[code], personal, unsure, variance[code], effect[code] + extra[u], scale,
                        counts[u, j], totals[u, j] / counts[u, j], target,
                    )
                )  # fmt: skip
            repeats[u] += 1.0
        _meet_by_prior(keys, counts, totals, slots, fixed, used, u, j, code, target)
        if again and starting.size > 0:
            before = np.array([share[u], extra[u]])
            share[u] = _believe_by_prior(starting, log_prior[u], log_likelihood[u], shares)
            after = np.array([share[u], extra[u]])
            entries = Entries(keys, counts, totals, slots, fixed, used, rows)
            reweigh_memory_loop(entries, u, system, loadings, through, variance, effect, before, after, 2.0)
        if tested and in_subspace[u] and _prior_evidence(wealth[u], sizes[1], scales[1]) > limit:
            stopped[0] = OUTLIER
            return i + 1
    return users.size


@compiled
def learn_arms_by_prior_loop(
    means: Floats,
    variance: Floats,
    effect: Floats,
    keys: Ints,
    counts: Floats,
    totals: Floats,
    slots: Ints,
    fixed: Floats,
    used: Ints,
    share: Floats,
    extra: Floats,
    repeats: Floats,
    log_likelihood: Floats,
    log_prior: Floats,
    starting: Floats,
    shares: Floats,
    scale: Floats,
    largest: float,
    users: Ints,
    codes: Ints,
    reward: Floats,
    begin: int,
    stopped: Ints,
) -> int:
    """`learn_by_prior_loop` where nothing is shared between actions: meetings, and what repeats say of the share."""
    if begin == 0:
        for i in range(users.size):
            if not abs(reward[i]) <= largest:
                stopped[0] = REFUSED
                return 0
    for i in range(begin, users.size):
        u, code, target = users[i], codes[i], reward[i] - means[codes[i]]
        j = _prior_place_of(keys[u], used[u], code)
        if j < 0 and used[u] == keys.shape[1]:
            stopped[0] = NO_ROOM
            return i
        again = j >= 0 and fixed[u, j] > 0.0
        if again:
            for s in range(starting.size):
                log_likelihood[u, s] += log(
                    memory_likelihood_loop(
                        shares[s], means[code], 0.0, 0.0, variance[code], effect[code], scale,
                        counts[u, j], totals[u, j] / counts[u, j], target,
                    )
                )  # fmt: skip
            repeats[u] += 1.0
        _meet_by_prior(keys, counts, totals, slots, fixed, used, u, j, code, target)
        if again and starting.size > 0:
            share[u] = _believe_by_prior(starting, log_prior[u], log_likelihood[u], shares)
    return users.size


@compiled
def choose_means_by_prior_loop(means: Floats, users: Ints, codes: Ints, chosen: Ints) -> bool:
    """The best (m,) by the population mean alone."""
    scores = np.empty(codes.shape[1])
    for i in range(users.size):
        row = codes[0] if codes.shape[0] == 1 else codes[i]
        for a in range(scores.size):
            scores[a] = means[row[a]]
        chosen[i] = best_score(scores, None, i)
        if chosen[i] == NOT_FINITE:
            return False
    return True


def warm_prior_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    one, row, who, number = np.ones(1), np.ones((1, 1)), np.zeros(1, dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
    two, table, flag = np.ones(2), np.ones((2, 1)), np.ones(1, dtype=np.bool_)
    entries: list[Any] = [number.copy(), row.copy(), row.copy(), number.copy(), row.copy(), who.copy()]
    found: list[Any] = [entries[0], entries[1], entries[2], entries[5]]
    shared: list[Any] = [one * 0.5, one * 0.0]
    repeats: list[Any] = [one.copy(), row.copy(), row.copy()]
    guard = np.array([[1.0, 4.0, 0.0, 8.0]])
    system: list[Any] = [row.copy(), row.copy(), row * 0.0, row * 0.0, row * 0.0, guard, who.copy()]
    _prior_place_of(number[0], 1, 0)
    given: list[Any] = [two, table, two, two, *found, *shared, row, row, who, number, 0.5, who.copy()]
    choose_by_prior_loop(*given)
    given = [two, two, two, *found, *shared, who, number, 0.5, who.copy()]
    choose_arms_by_prior_loop(*given)
    choose_means_by_prior_loop(two, who, number, who.copy())
    _believe_by_prior(one, one, one, one)
    _prior_evidence(two, one, one)
    _prior_log_ratio(1.0, 2.0)
    given = [*entries, 0, 0, 0, 1.0]
    _meet_by_prior(*given)
    wealth, stopped = np.ones((1, 2)), np.zeros(1, dtype=np.int64)
    scale, last = np.array([1.0, 0.0, 1.0]), [9.0, who, who, one, 0, stopped]
    given = [two, table, two, two, *entries, np.ones((1, 0, 1)), *shared, *repeats, row, one, one * 0.5]
    learn_by_prior_loop(*[*given, scale, *system, wealth, table, table, 9.0, flag, *last])
    given = [two, two, two, *entries, *shared, *repeats, one, one * 0.5, scale]
    learn_arms_by_prior_loop(*[*given, *last])
