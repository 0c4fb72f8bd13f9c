"""Coherence and exchangeability of processes that cannot be enumerated, from draws of omega, at a stated level.

Coherence is equality in value, so one case against it is a proof, and a coherent process is never refused. What may be
missed is said: if none of n draws shows a difference, then with confidence 1 - level fewer than 1 - level^(1/n) of all
draws would.

Exchangeability is equality in law. For each of a few sequences and permutations two independent samples, the rewards of
the permuted moves and the permuted rewards, are compared by their energy distance (Szekely and Rizzo 2004), which is
zero for equal laws only, against relabelled samples. Relabelling is exact, and the level is shared out among
the comparisons: an exchangeable process is refused with probability at most `level`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError
from newcomer.paper.theory.processes import Answer, Move, Process

DRAWS, RELABELLED, COMPARISONS = 300, 399, 8


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
        if first != second:
            return Answer(False, f"reward {h + 1} is {first} with the moves {one} and {second} with {other}")
    missed = 1.0 - level ** (1.0 / draws)
    told = f"with confidence {1 - level:g} fewer than {missed:.2g} of all draws show a difference"
    return Answer(True, told, level=0.0, exact=False)


def exchangeable_sampled(
    process: Process,
    horizon: int,
    rng: np.random.Generator,
    *,
    draws: int = DRAWS,
    level: float = 0.05,
    comparisons: int = COMPARISONS,
) -> Answer:
    """Whether permuted moves and permuted rewards have the same law, for random sequences and permutations."""
    if horizon < 2 or (RELABELLED + 1) * level < comparisons:
        raise NewcomerError(
            "exchangeability cannot be tested so",
            where=f"horizon={horizon}, level={level}, comparisons={comparisons}",
            todo=f"take at least 2 steps, and at most level * {RELABELLED + 1} comparisons",
        )
    for _ in range(comparisons):
        sequence, order = _sequence(process, horizon, rng), rng.permutation(horizon)
        moved = tuple(sequence[place] for place in order)
        ours, theirs = (_sample(process, moves, draws, rng) for moves in (moved, sequence))
        chance = energy_test(ours, theirs[:, order], rng)
        if chance <= level / comparisons:
            told = f"the rewards of {moved} are not those of {sequence}, permuted, in law (p = {chance:.2g})"
            return Answer(False, told, level=level, exact=False)
    return Answer(True, level=level, exact=False)


def energy_test(one: Floats, other: Floats, rng: np.random.Generator) -> float:
    """The p-value of equal laws of two samples (n, H) and (m, H), by relabelling; exact."""
    pooled = np.concatenate([one, other])
    apart = np.sqrt(np.maximum(((pooled[:, None] - pooled) ** 2).sum(axis=2), 0.0))
    marks = np.zeros((RELABELLED + 1, len(pooled)), bool)
    marks[0, : len(one)] = True
    for row in marks[1:]:
        row[rng.permutation(len(pooled))[: len(one)]] = True
    weight = np.where(marks, 1.0 / len(one), -1.0 / len(other))
    energy = -np.einsum("bi,bi->b", weight @ apart, weight)  # 2 E|X-Y| - E|X-X'| - E|Y-Y'|
    return float((energy >= energy[0] - 1e-12).mean())


def _sequence(process: Process, length: int, rng: np.random.Generator) -> tuple[Move, ...]:
    return tuple(process.moves[i] for i in rng.integers(len(process.moves), size=length))


def _sample(process: Process, sequence: Sequence[Move], draws: int, rng: np.random.Generator) -> Floats:
    """Rewards (draws, H) of a sequence, each on an omega of its own."""
    rows = [process.rewards(process.draw(rng, len(sequence)), sequence) for _ in range(draws)]
    return np.array(rows, dtype=float)
