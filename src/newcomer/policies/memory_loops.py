"""Compiled loops of per-action effects; the mathematics is in policies/action_memory.py.

A user's memory is a short list in the order of first meetings, searched from its beginning: a newcomer has met few
actions, and a list of a few hundred keys is read faster than a tree is walked.
"""

from __future__ import annotations

from math import erf, exp, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from newcomer.array_loops import compiled, fast
from newcomer.arrays import Floats, Ints
from newcomer.linear.learning_loops import System, refresh_learned_system

ANONYMOUS = np.iinfo(np.int64).min  # the key of a row that is never recognised again
CATALOGUE = -1  # the slot of an entry whose features are a row of the catalogue
MOST = 1000  # rows of features that a user's memory holds beside the catalogue
LEAST = 0.003  # probability, or density in residual deviations, that a repeat has at least under any share


class Entries(NamedTuple):
    """The memories of n users: M entries each, of which the first `used` count, and R rows of features."""

    keys: Ints  # (n, M), the place in the catalogue, or a number below zero that stands for the action
    counts: Floats  # (n, M), meetings
    totals: Floats  # (n, M), sum of rewards less their population mean
    slots: Ints  # (n, M), where the features are: CATALOGUE, or a row of `rows`
    fixed: Floats  # (n, M), 1 where the features were the same at every meeting, else 0
    used: Ints  # (n,)
    rows: Floats  # (n, R, d), sum over the meetings of the features of actions outside the catalogue


class Shares(NamedTuple):
    """Of each user: the `share` (n,) of the residual variance that repeats, and variance `extra` (n,) beyond it."""

    share: Floats
    extra: Floats


class Recalled(NamedTuple):
    """What memory says of each of (m, K) candidates."""

    weight: Floats  # n c: how much of the features is known from earlier meetings
    level: Floats  # c y: what these meetings add to the expected reward
    left: Floats  # variance of the per-action effect, given these meetings
    entry: Ints  # where the action is in the user's memory, or -1


class Predicted(NamedTuple):
    """What was expected of m rewards before they came, without the user's earlier meetings of the action."""

    population_mean: Floats  # (m,)
    personal: Floats  # (m,), what the user's latent coordinates add to it
    unsure: Floats  # (m,), variance of that
    variance: Floats  # (m,), residual variance, of which an unknown share repeats
    effect: Floats  # (m,), further variance of the per-action effect


class Repeats(NamedTuple):
    """What repeats say of the shares (S,) that may repeat; no shares where that is known."""

    shares: Floats  # (S,)
    scale: Floats  # (3,), of rewards: distance of neighbours, and both values where there are two; see repeatability.py
    log_likelihood: Floats  # (n, S), log-likelihood of each user's repeats


@compiled
def memory_fingerprints_loop(rows: Floats, multipliers: Ints, out: Ints) -> None:
    """A key (m,) below zero for each row (m, d) of numbers: equal rows have equal keys, others (nearly) never.

    The bits of an entry are folded, because round numbers have all their digits in the upper half, multiplied by an
    odd number of its own, and added up.
    """
    for i in range(rows.shape[0]):
        total = np.int64(0)
        for j in range(rows.shape[1]):
            bits = np.float64(rows[i, j] + 0.0).view(np.int64)
            total += (bits ^ (bits >> np.int64(29))) * multipliers[j]
        total ^= total >> np.int64(32)
        total *= np.int64(-7046029254386353131)
        total ^= total >> np.int64(29)
        out[i] = -1 - (total & np.int64(0x3FFFFFFFFFFFFFFF))


@compiled
def memory_is_inside_loop(used: Ints, slots: Ints, rows: int) -> bool:
    """Whether the entries in use (n,) are some of M, and all slots (n, M) a row of so many, or none."""
    fine = True
    for u in range(used.size):
        fine = fine and 0 <= used[u] <= slots.shape[1]
        for j in range(slots.shape[1]):
            fine = fine and -1 <= slots[u, j] < max(rows, 1)
    return fine


@compiled
def find_in_memory_loop(entries: Entries, user: int, key: int) -> int:
    """The place of a key in a user's memory, or -1."""
    if key != ANONYMOUS:
        for j in range(entries.used[user]):
            if entries.keys[user, j] == key:
                return j
    return -1


@compiled
def recall_memory_loop(
    entries: Entries, shares: Shares, users: Ints, keys: Ints, variance: Floats, effect: Floats, out: Recalled
) -> None:
    """Look up candidates with keys, residual variances and further variances of the effect (m, K)."""
    for i in range(users.size):
        u = users[i]
        for a in range(keys.shape[1]):
            single = (1.0 - shares.share[u]) * variance[i, a]  # s2
            stays = shares.share[u] * variance[i, a] + shares.extra[u] + effect[i, a]  # se
            j = find_in_memory_loop(entries, u, keys[i, a])
            out.entry[i, a] = j
            if j < 0:
                out.weight[i, a], out.level[i, a], out.left[i, a] = 0.0, 0.0, stays
                continue
            c = stays / (single + entries.counts[u, j] * stays) if stays > 0.0 else 0.0
            out.weight[i, a] = c * entries.counts[u, j]
            out.level[i, a] = c * entries.totals[u, j]
            out.left[i, a] = c * single


@compiled
def remember_in_memory_loop(
    entries: Entries,
    users: Ints,
    keys: Ints,
    targets: Floats,
    features: Floats,
    predicted: Predicted,
    repeats: Repeats,
    again: Floats,
) -> None:
    """Write down one meeting of each user with features (m, d) and rewards less their population mean (m,).

    There must be room for an entry and a row. A meeting beyond the first of an action whose features stayed the same is
    a repeat: `again` (m,) becomes 1, else 0, and the log-likelihood of the reward under each share is added to
    that of the user's earlier repeats.
    """
    for i in range(users.size):
        u, j = users[i], find_in_memory_loop(entries, users[i], keys[i])
        again[i] = 0.0
        if j < 0:
            j = entries.used[u]
            slot = CATALOGUE if keys[i] >= 0 else _free_slot(entries, u)
            if slot >= 0 and entries.used[u] < j:
                j = entries.used[u]  # the oldest was dropped
            entries.keys[u, j], entries.slots[u, j], entries.fixed[u, j] = keys[i], slot, 1.0
            entries.counts[u, j], entries.totals[u, j] = 1.0, targets[i]
            if slot >= 0:
                entries.rows[u, slot] = features[i]
            entries.used[u] = j + 1
            continue
        count, slot = entries.counts[u, j], entries.slots[u, j]
        if slot >= 0:
            for d in range(features.shape[1]):
                if abs(entries.rows[u, slot, d] - count * features[i, d]) > 1e-9 * count * abs(features[i, d]) + 1e-300:
                    entries.fixed[u, j] = 0.0
                entries.rows[u, slot, d] += features[i, d]
        if entries.fixed[u, j] > 0.0:
            again[i] = 1.0
            for s in range(repeats.shares.size):
                chance = memory_likelihood_loop(
                    repeats.shares[s],
                    predicted.population_mean[i],
                    predicted.personal[i],
                    predicted.unsure[i],
                    predicted.variance[i],
                    predicted.effect[i],
                    repeats.scale,
                    count,
                    entries.totals[u, j] / count,
                    targets[i],
                )
                repeats.log_likelihood[u, s] += log(chance)
        entries.counts[u, j] = count + 1.0
        entries.totals[u, j] += targets[i]


@compiled
def memory_likelihood_loop(
    share: float,
    population_mean: float,
    personal: float,
    unsure: float,
    variance: float,
    effect: float,
    scale: Floats,
    count: float,
    mean: float,
    target: float,
) -> float:
    """How likely a reward is under a share, after `count` rewards with this mean; `Predicted` explains the others.

    Target and mean are less the population mean. A reward between two values has a geometric mean of their
    probabilities.
    """
    if variance <= 0.0:
        return 1.0  # there is no residual
    stays, single = share * variance + effect, (1.0 - share) * variance  # se, s2
    total = single + count * stays
    c = count * stays / total if stays > 0.0 else 0.0
    expected = personal + c * (mean - personal)
    step, low, high = scale[0], scale[1], scale[2]
    if high > low:
        chance = min(max((population_mean + expected - low) / (high - low), LEAST), 1.0 - LEAST)
        part = min(max((population_mean + target - low) / (high - low), 0.0), 1.0)
        return exp(part * log(chance) + (1.0 - part) * log(1.0 - chance))
    spread = sqrt(single + single * stays / total + (1.0 - c) ** 2 * unsure)
    away = (target - expected) / spread
    if step > 0.0:
        half = 0.5 * step / spread
        density = 0.5 * (erf((away + half) / sqrt(2.0)) - erf((away - half) / sqrt(2.0))) / step
    else:
        density = exp(-0.5 * away * away) / (spread * sqrt(2.0 * pi))
    return float(max(density * sqrt(variance), LEAST))


@compiled
def _free_slot(entries: Entries, user: int) -> int:
    """A row for new features: the next one, or, once there are MOST, that of the oldest, which is forgotten."""
    taken, oldest = 0, -1
    for j in range(entries.used[user]):
        if entries.slots[user, j] >= 0:
            taken += 1
            if oldest < 0:
                oldest = j
    if taken < MOST:
        return taken
    slot = entries.slots[user, oldest]
    for j in range(oldest, entries.used[user] - 1):
        entries.keys[user, j], entries.slots[user, j] = entries.keys[user, j + 1], entries.slots[user, j + 1]
        entries.counts[user, j], entries.totals[user, j] = entries.counts[user, j + 1], entries.totals[user, j + 1]
        entries.fixed[user, j] = entries.fixed[user, j + 1]
    entries.used[user] -= 1
    return int(slot)


@fast
def reweigh_memory_loop(
    entries: Entries,
    user: int,
    system: System,
    table: Floats,
    through: Floats,
    variance: Floats,
    effect: Floats,
    before: Floats,
    after: Floats,
    least: float,
) -> None:
    """Give the meetings of actions met at least `least` times, in the system of one user, another weight.

    n meetings of an action with features f and mean reward y count as one of variance v = se + s2 / n. `before` and
    `after` are (share, extra); a share below zero means that the meetings were not counted at all. `table` (A, q) are
    the features of the catalogue in the coordinates of the system, `through` (d, q) takes others there ((0, 0): as they
    are); `variance` and `effect` (A + 1,) are residual variances and further variances of the effect, the
    last those of actions outside the catalogue.
    """
    size = system.moment.shape[1]
    x = np.empty(size)
    gram, moment = system.gram[user], system.moment[user]
    for j in range(entries.used[user]):
        count, slot = entries.counts[user, j], entries.slots[user, j]
        if count < least or entries.fixed[user, j] == 0.0:
            continue
        key = entries.keys[user, j]
        place = key if key >= 0 else variance.size - 1
        residual, stays = variance[place], effect[place]
        weight = 1.0 / (residual * (after[0] + (1.0 - after[0]) / count) + after[1] + stays)
        if before[0] >= 0.0:
            weight -= 1.0 / (residual * (before[0] + (1.0 - before[0]) / count) + before[1] + stays)
        if slot < 0:
            x[:] = table[key]
        elif through.size == 0:
            x[:] = entries.rows[user, slot] / count
        else:
            for q in range(size):
                total = 0.0
                for d in range(through.shape[0]):
                    total += entries.rows[user, slot, d] * through[d, q]
                x[q] = total / count
        entry = 0
        for p in range(size):
            moment[p] += weight * x[p] * entries.totals[user, j] / count
            for q in range(p + 1):
                gram[entry] += weight * x[p] * x[q]
                entry += 1
    refresh_learned_system(
        system.gram[user], system.factor[user], system.moment[user], system.mean[user], system.guard[user]
    )


def warm_memory_loops() -> None:
    """Call every loop of this file once, with arrays of the types it meets."""
    one, row, block, who = np.ones(1), np.ones((1, 1)), np.ones((1, 1, 1)), np.zeros(1, dtype=np.int64)
    number = np.zeros((1, 1), dtype=np.int64)
    entries = Entries(number, row, row.copy(), number.copy(), row.copy(), who.copy(), block)
    memory_fingerprints_loop(row, np.ones(1, dtype=np.int64), who.copy())
    memory_is_inside_loop(who, number, 1)
    find_in_memory_loop(entries, 0, 0)
    recall_memory_loop(entries, Shares(one, one), who, number, row, row, Recalled(row, row, row, number.copy()))
    predicted, repeats = Predicted(one, one, one, one, one), Repeats(one * 0.5, np.array([1.0, 0.0, 1.0]), row.copy())
    remember_in_memory_loop(entries, who, np.full(1, -2), one, row, predicted, repeats, one.copy())
    memory_likelihood_loop(0.5, 1.0, 1.0, 1.0, 1.0, 1.0, repeats.scale, 1.0, 1.0, 1.0)
    _free_slot(entries, 0)
    guard = np.array([[1.0, 4.0, 0.0, 8.0]])
    system = System(row.copy(), row.copy(), row * 0.0, row.copy(), row.copy(), guard, who.copy())
    reweigh_memory_loop(
        entries, 0, system, row, row, np.ones(2), np.zeros(2), np.array([-1.0, 0.0]), np.array([0.5, 0.0]), 1.0
    )
