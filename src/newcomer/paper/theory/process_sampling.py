"""Coherence and exchangeability of processes that cannot be enumerated, from draws of omega, at a stated level.

Coherence is equality in value, so one case against it is a proof, and a coherent process is never refused. What may be
missed is said: if none of n draws shows a difference, then with confidence 1 - level fewer than 1 - level^(1/n) of all
draws would.

Exchangeability is equality in law: F(a_pi) ~ (Y_pi(1), ..., Y_pi(H)). Half of the level goes to each of two kinds of
comparison, and is shared out evenly within a kind, so that an exchangeable process is refused with probability at most
`level`:

* *within rows*: for a sequence of one repeated move the rewards themselves are exchangeable, so every row of a sample
  may be permuted by itself. That keeps what differs between rows, and sees the order alone;
* *between samples*: for random sequences and permutations, the rewards of the permuted moves and the permuted rewards,
  two independent samples, against relabelled rows.

Both are exact whatever the statistic. `features` of a row (scores of ranks at each place, tails, products at each lag,
longest runs) are compared by the largest of their standardised means; samples also by their energy distance (Szekely
and Rizzo 2004), which is zero for equal laws only. What such checks miss is measured by `python -m
experiments.process_power` (docs/paper/theory.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from newcomer.arrays import Bools, Floats
from newcomer.errors import NewcomerError
from newcomer.paper.theory.processes import Answer, Move, Process

DRAWS, RELABELLED, COMPARISONS = 300, 399, 4
ROWS = 2000  # draws of the comparisons whose cost is linear in them
BLOCK = 20_000  # rows whose features are computed at once
REPEATED = 4  # moves that are repeated, at most
TAIL = 0.01  # share of all values that is a tail, on either side


def coherent_sampled(
    process: Process, horizon: int, rng: np.random.Generator, *, draws: int = DRAWS, level: float = 0.01
) -> Answer:
    """Whether random pairs of sequences with one move in common have the same reward there, on the same omega.

    >>> from newcomer.paper.theory.process_examples import FirstMove
    >>> coherent_sampled(FirstMove(), 4, np.random.default_rng(0)).holds
    False
    """
    for _ in range(draws):
        omega = process.draw(rng, horizon)
        one, other = (_sequence(process, int(rng.integers(1, horizon + 1)), rng) for _ in range(2))
        h = int(rng.integers(min(len(one), len(other))))
        other = (*other[:h], one[h], *other[h + 1 :])
        first, second = process.rewards(omega, one)[h], process.rewards(omega, other)[h]
        for value, moves in ((first, one), (second, other)):
            _refuse_infinite(not math.isfinite(value), moves)
        if first != second:
            return Answer(False, f"reward {h + 1} is {first} with the moves {one} and {second} with {other}")
    missed = 1.0 - level ** (1.0 / draws)
    text = f"with confidence {1 - level:g} fewer than {missed:.2g} of all draws show a difference"
    return Answer(True, text, level=0.0, exact=False)


def exchangeable_sampled(
    process: Process,
    horizon: int,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    rows: int = ROWS,
    level: float = 0.05,
    comparisons: int = COMPARISONS,
) -> Answer:
    """Whether permuted moves and permuted rewards have the same law, for random sequences and permutations.

    `draws` is the size of each sample of the energy test; features are looked at in `rows`, or `draws` if that is more.
    """
    if horizon < 2 or (RELABELLED + 1) * level < 4 * comparisons:
        raise NewcomerError(
            "exchangeability cannot be tested so",
            where=f"horizon={horizon}, level={level}, comparisons={comparisons}",
            todo=f"take at least 2 steps, and at most level * {(RELABELLED + 1) // 4} comparisons",
        )
    size = max(draws, rows)
    repeated = rng.permutation(len(process.moves))[: min(REPEATED, comparisons)]
    for place in repeated:
        sequence = (process.moves[place],) * horizon
        chance = within_rows_test(_sample(process, sequence, size, rng), rng)
        if chance <= level / (2 * len(repeated)):
            text = f"the rewards of {sequence} depend on their order (p = {chance:.2g})"
            return Answer(False, text, level=level, exact=False)
    for _ in range(comparisons):
        sequence, order = _sequence(process, horizon, rng), rng.permutation(horizon)
        moved = tuple(sequence[place] for place in order)
        ours, theirs = (_sample(process, moves, size, rng) for moves in (moved, sequence))
        chance = two_sample_test(ours, theirs[:, order], rng, draws=draws)
        if chance <= level / (2 * comparisons):
            text = f"the rewards of {moved} are not those of {sequence}, permuted, in law (p = {chance:.2g})"
            return Answer(False, text, level=level, exact=False)
    return Answer(True, level=level, exact=False)


def features(ranks: Floats) -> Floats:
    """What is compared of rows (n, H) of ranks in (0, 1): their features (n, q).

    Cosine scores of orders 1 to 4 at each place (location, scale, skewness, kurtosis), tails at each place, products of
    the scores of order 1 and 2 at each lag, and whether the longest run above, or below, the middle has L steps or
    more.
    """
    scores = [np.sqrt(2) * np.cos(np.pi * order * ranks) for order in (1, 2, 3, 4)]
    tails = (np.abs(ranks - 0.5) > 0.5 - TAIL).astype(float)
    lags = range(1, ranks.shape[1])
    products = [(one[:, lag:] * one[:, :-lag]).mean(axis=1) for one in scores[:2] for lag in lags]
    runs = [_longest_run(side) for side in (ranks > 0.5, ranks < 0.5)]
    long = [(run > lag).astype(float) for run in runs for lag in lags]
    return np.concatenate([*scores, tails, np.stack([*products, *long], axis=1)], axis=1)


def within_rows_test(sample: Floats, rng: np.random.Generator) -> float:
    """The p-value of exchangeable rewards (n, H), by permuting every row by itself; exact.

    >>> rng = np.random.default_rng(0)
    >>> within_rows_test(rng.standard_normal((50, 3)), rng) > 0.01
    True
    """
    ranks = _ranks(sample)
    n, means = len(ranks), [features(ranks).mean(axis=0)]
    together = max(1, BLOCK // n)
    for begin in range(0, RELABELLED, together):
        count = min(together, RELABELLED - begin)
        permuted = features(rng.permuted(np.tile(ranks, (count, 1)), axis=1))
        means += list(permuted.reshape(count, n, -1).mean(axis=1))
    return _chance(_largest(np.array(means)))


def two_sample_test(one: Floats, other: Floats, rng: np.random.Generator, *, draws: int = DRAWS) -> float:
    """The p-value of equal laws of two samples (n, H), by features and, in the first `draws` rows, energy; exact.

    The first rows are relabelled among themselves and so are the others: both statistics see the same labels, and the
    smaller of their p-values is compared with that of every relabelling. It is 2 / (1 + RELABELLED) at least where one
    statistic alone sees a difference.
    """
    ranks = _ranks(np.stack([one, other]).reshape(2 * len(one), -1)).reshape(2, *one.shape)
    means, energies = np.zeros(0), np.zeros(0)
    for part in (slice(None, draws), slice(draws, None)):
        size = len(one[part])
        if not size:
            continue
        weight = _weights(size, size, rng)
        own = size / len(one) * weight @ features(np.concatenate(list(ranks[:, part])))
        means = means + own if means.size else own
        energies = energies if energies.size else _energies(np.concatenate([one[part], other[part]]), weight)
    chances = [_chances(statistic) for statistic in (_largest(means), energies)]
    return _chance(-np.minimum(*chances))


def energy_test(one: Floats, other: Floats, rng: np.random.Generator) -> float:
    """The p-value of equal laws of two samples (n, H) and (m, H), by relabelling; exact."""
    return _chance(_energies(np.concatenate([one, other]), _weights(len(one), len(other), rng)))


def _energies(pooled: Floats, weight: Floats) -> Floats:
    """The energy distance 2 E|X-Y| - E|X-X'| - E|Y-Y'| for each relabelling (b, n + m) of pooled rows (n + m, H)."""
    apart = np.sqrt(np.maximum(((pooled[:, None] - pooled) ** 2).sum(axis=2), 0.0))
    return np.asarray(-np.einsum("bi,bi->b", weight @ apart, weight))


def _weights(n: int, m: int, rng: np.random.Generator) -> Floats:
    """1/n for rows of the one sample and -1/m for those of the other (1 + RELABELLED, n + m), the true labels first."""
    marks = np.zeros((RELABELLED + 1, n + m), bool)
    marks[0, :n] = True
    for row in marks[1:]:
        row[rng.permutation(n + m)[:n]] = True
    return np.where(marks, 1.0 / n, -1.0 / m)


def _largest(means: Floats) -> Floats:
    """The largest standardised |mean| of a feature, for each relabelling (b, q); all are treated alike."""
    spread = means.std(axis=0)
    fine = spread > 1e-12
    if not fine.any():
        return np.zeros(len(means))
    found: Floats = (np.abs(means - means.mean(axis=0))[:, fine] / spread[fine]).max(axis=1)
    return found


def _chance(statistic: Floats) -> float:
    """The share of relabellings (b,) whose statistic is at least that of the first."""
    return float((statistic >= statistic[0] - 1e-12).mean())


def _chances(statistic: Floats) -> Floats:
    """For each relabelling (b,) the share of all whose statistic is at least its own."""
    return np.asarray(1.0 - np.searchsorted(np.sort(statistic), statistic - 1e-12) / len(statistic))


def _ranks(sample: Floats) -> Floats:
    """Ranks among all values (n, H), between 0 and 1; equal values have their average."""
    return np.asarray((rankdata(sample).reshape(sample.shape) - 0.5) / sample.size)


def _longest_run(marks: Bools) -> Floats:
    """The longest run of marked places of each row (n,)."""
    longest, run = np.zeros(len(marks)), np.zeros(len(marks))
    for column in marks.T:
        run = (run + 1) * column
        longest = np.maximum(longest, run)
    return longest


def _sequence(process: Process, length: int, rng: np.random.Generator) -> tuple[Move, ...]:
    return tuple(process.moves[i] for i in rng.integers(len(process.moves), size=length))


def _sample(process: Process, sequence: Sequence[Move], draws: int, rng: np.random.Generator) -> Floats:
    """Rewards (draws, H) of a sequence, each on an omega of its own."""
    rows = [process.rewards(process.draw(rng, len(sequence)), sequence) for _ in range(draws)]
    found = np.array(rows, dtype=float)
    _refuse_infinite(not np.isfinite(found).all(), sequence)
    return found


def _refuse_infinite(found: bool, sequence: Sequence[Move]) -> None:
    if found:
        raise NewcomerError(
            "the process pays rewards that are no finite numbers",
            where=f"moves {tuple(sequence)}",
            todo="make every reward a finite number: laws are compared by values",
        )
