"""Compiled loops of what clicks say about a user; the mathematics is in policies/binary_belief.py.

The logistic likelihood has no conjugate posterior, so each action that the user has met is approximated by a Gaussian
site along its features (expectation propagation, Minka 2001): a precision and a shift that are added to the system
of z. A click of that action takes the site out, matches mean and variance along the features to the exact
one-dimensional posterior (logistic_loops.py), and puts the new site back. Sites of other actions stay as they are.

`chances` are probabilities p = E[sigma(level + x^T z)]; `spread` is 4 p (1 - p), which is 1 at p = 1/2 and small for
rare clicks; `shares` (S,) are the values of repeatability with `weights` (S,).
"""

from __future__ import annotations

from math import log

import numpy as np

from newcomer.array_loops import compiled
from newcomer.arrays import Floats, Ints
from newcomer.linear.learning_loops import System, refresh_learned_system
from newcomer.logistic_loops import logistic_posterior
from newcomer.policies.memory_loops import LEAST, Entries, Recalled, find_in_memory_loop

SMALL = 1e-12  # variance of log-odds below which clicks tell nothing of z


@compiled
def _click_share_at(share: float, spread: float, lasting: float) -> float:
    """s_p: the share of p (1 - p) that repeats where 4 p (1 - p) is `spread` and further variance of log-odds repeats.

    s / (1 - s) is the variance of the per-action effect on the scale of log-odds, over 4; that of rewards is p (1 - p)
    times it.
    """
    odds = (share / (1.0 - share) + 0.25 * lasting) * spread
    return odds / (1.0 + odds)


@compiled
def _click_trust(weights: Floats, shares: Floats, spread: float, lasting: float, count: float) -> float:
    """c: the weight of `count` clicks of an action in what is expected of it, on average over shares."""
    total = 0.0
    for s in range(shares.size):
        share = _click_share_at(shares[s], spread, lasting)
        total += weights[s] * count * share / (1.0 - share + count * share)
    return total


@compiled
def _effective_click_rows(weights: Floats, shares: Floats, spread: float, count: float) -> float:
    """How many rows `count` clicks of one action count for in what is learned of z."""
    total = 0.0
    for s in range(shares.size):
        total += weights[s] * count / (1.0 + (count - 1.0) * _click_share_at(shares[s], spread, 0.0))
    return total


@compiled
def hear_clicks(
    entries: Entries,
    users: Ints,
    keys: Ints,
    chances: Floats,
    lasting: Floats,
    reward: Floats,
    shares: Floats,
    told: Floats,
) -> None:
    """Add the log-likelihood of rewards (m,) of actions that come again, under each share, to `told` (n, S).

    `chances` (m,) are what z says of them; the reward is 1 with probability p + c_s (y - p), y the mean before.
    """
    for i in range(users.size):
        u, p = users[i], chances[i]
        j = find_in_memory_loop(entries, u, keys[i])
        if j < 0 or entries.fixed[u, j] == 0.0:
            continue
        count = entries.counts[u, j]
        mean = entries.totals[u, j] / count
        for s in range(shares.size):
            share = _click_share_at(shares[s], 4.0 * p * (1.0 - p), lasting[i])
            c = count * share / (1.0 - share + count * share)
            chance = min(max(p + c * (mean - p), LEAST), 1.0 - LEAST)
            told[u, s] += reward[i] * log(chance) + (1.0 - reward[i]) * log(1.0 - chance)


@compiled
def recall_clicks(
    entries: Entries,
    users: Ints,
    keys: Ints,
    chances: Floats,
    lasting: Floats,
    weights: Floats,
    shares: Floats,
    out: Recalled,
) -> None:
    """Look up candidates (m, K) of probabilities `chances`; `weights` (m, S) of each user's shares.

    `lasting` is the further variance of log-odds that repeats. Writes c, c times the mean reward, and the variance of
    the per-action effect that is left.
    """
    for i in range(users.size):
        u = users[i]
        for a in range(keys.shape[1]):
            p = chances[i, a]
            spread = 4.0 * p * (1.0 - p)
            j = find_in_memory_loop(entries, u, keys[i, a])
            out.entry[i, a] = j
            count = entries.counts[u, j] if j >= 0 else 0.0
            c = _click_trust(weights[i], shares, spread, lasting[i, a], count) if j >= 0 else 0.0
            out.weight[i, a] = c
            out.level[i, a] = c * entries.totals[u, j] / count if j >= 0 else 0.0
            left = 0.0
            for s in range(shares.size):
                share = _click_share_at(shares[s], spread, lasting[i, a])
                left += weights[i, s] * share * (1.0 - share) / (1.0 - share + count * share)
            out.left[i, a] = left * p * (1.0 - p)


@compiled
def _features(entries: Entries, user: int, j: int, table: Floats, through: Floats, x: Floats) -> None:
    """Write the features (k,) of entry j in the coordinates of z: a row of `table`, or kept rows taken `through`."""
    slot, count = entries.slots[user, j], entries.counts[user, j]
    if slot < 0:
        x[:] = table[entries.keys[user, j]]
    elif through.size == 0:
        x[:] = entries.rows[user, slot] / count
    else:
        for q in range(x.size):
            total = 0.0
            for d in range(through.shape[0]):
                total += entries.rows[user, slot, d] * through[d, q]
            x[q] = total / count


@compiled
def _add(system: System, user: int, x: Floats, precision: float, shift: float) -> None:
    """V += precision x x^T, b += shift x in the system of a user, which has to be refreshed."""
    place = 0
    for p in range(x.size):
        system.moment[user, p] += shift * x[p]
        for q in range(p + 1):
            system.gram[user, place] += precision * x[p] * x[q]
            place += 1


@compiled
def _refresh(system: System, u: int) -> None:
    refresh_learned_system(system.gram[u], system.factor[u], system.moment[u], system.mean[u], system.guard[u])


@compiled
def rescale_clicks(
    entries: Entries,
    user: int,
    system: System,
    sites: Floats,
    table: Floats,
    through: Floats,
    shares: Floats,
    before: Floats,
    after: Floats,
) -> None:
    """Give actions that a user met several times the number of rows that they count for under other weights (S,)."""
    x = np.empty(system.moment.shape[1])
    for j in range(entries.used[user]):
        count = entries.counts[user, j]
        if count < 2.0 or entries.fixed[user, j] == 0.0:
            continue
        spread = sites[user, j, 2]
        ratio = _effective_click_rows(after, shares, spread, count) / _effective_click_rows(
            before, shares, spread, count
        )
        _features(entries, user, j, table, through, x)
        _add(system, user, x, (ratio - 1.0) * sites[user, j, 0], (ratio - 1.0) * sites[user, j, 1])
        sites[user, j, 0] *= ratio
        sites[user, j, 1] *= ratio
    _refresh(system, user)


@compiled
def learn_click(
    entries: Entries,
    users: Ints,
    keys: Ints,
    system: System,
    sites: Floats,
    levels: Floats,
    low: Floats,
    chances: Floats,
    reward: Floats,
    weights: Floats,
    shares: Floats,
) -> None:
    """Condition z of each user on one reward (m,), already written into memory, of log-odds levels + low^T z.

    `chances` (m,) are what z said of it.

    All meetings of the action together are one site (precision, shift) along its features: it is taken out of the
    posterior, the moments along the features are matched to what its clicks say, and it is put back.
    """
    moments = np.empty(2)
    for i in range(users.size):
        u, x = users[i], low[i]
        j = find_in_memory_loop(entries, u, keys[i])
        j = entries.used[u] - 1 if j < 0 else j
        count, mean = entries.counts[u, j], entries.totals[u, j] / entries.counts[u, j]
        spread = 4.0 * chances[i] * (1.0 - chances[i])
        rows = _effective_click_rows(weights[i], shares, spread, count)
        precision, shift = sites[u, j, 0], sites[u, j, 1]
        if entries.fixed[u, j] == 0.0:  # features have changed: this reward is by itself
            rows, mean, precision, shift = 1.0, reward[i], 0.0, 0.0
        elif count == 1.0:
            precision, shift = 0.0, 0.0
        variance, personal, place = 0.0, 0.0, 0
        for p in range(x.size):
            inside = 0.0
            for q in range(p + 1):
                inside += system.factor[u, place] * x[q]
                place += 1
            variance += inside * inside
            personal += x[p] * system.mean[u, p]
        system.seen[u] += 1
        if not variance > SMALL:
            continue
        less = max(1.0 - precision * variance, 1e-6)
        cavity, at = variance / less, (personal - variance * shift) / less
        logistic_posterior(levels[i] + at, cavity, rows * mean, rows * (1.0 - mean), moments)
        new = max(1.0 / moments[1] - 1.0 / cavity, 0.0)
        pull = (moments[0] - levels[i]) / moments[1] - at / cavity
        _add(system, u, x, new - precision, pull - shift)
        if entries.fixed[u, j] > 0.0:
            sites[u, j, 0], sites[u, j, 1], sites[u, j, 2] = new, pull, spread
        _refresh(system, u)


def warm_click_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    one, row, block, who = np.ones(1), np.ones((1, 1)), np.ones((1, 1, 1)), np.zeros(1, dtype=np.int64)
    number, used = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64)
    entries = Entries(number, 2 * row, row.copy(), number.copy(), row.copy(), used, block)
    guard, half = np.array([[1.0, 4.0, 0.0, 8.0]]), np.array([0.5])
    system = System(row.copy(), row.copy(), row * 0.0, row.copy(), row.copy(), guard, who.copy())
    sites = np.zeros((1, 1, 3))
    _click_share_at(0.5, 1.0, 0.0)
    _click_trust(one, half, 1.0, 0.0, 1.0)
    _effective_click_rows(one, half, 1.0, 1.0)
    hear_clicks(entries, who, who, half, one, one, half, row.copy())
    recall_clicks(
        entries, who, number, row * 0.5, row * 0.0, row, half, Recalled(row.copy(), row.copy(), row.copy(), number)
    )
    _features(entries, 0, 0, row, row, one.copy())
    _add(system, 0, one, 0.0, 0.0)
    _refresh(system, 0)
    rescale_clicks(entries, 0, system, sites, row, row, half, one, one)
    learn_click(entries, who, who, system, sites, one, row, half, one, row, half)
