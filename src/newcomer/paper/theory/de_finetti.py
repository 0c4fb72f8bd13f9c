"""The latent bandit behind a decision process, built as the theorem's proof builds it.

For a move a the proof repeats it for ever, (a, a, a, ...), and lets F(omega)(a) be the limit of the empirical
frequencies of the rewards. By coherence they are rewards on the same omega, by exchangeability the classical theorem
applies to them, and given F all rewards are independent with Y_h ~ F(a_h).

Cut off after n repetitions the frequencies F_n are a random measure that can be computed, and the mixture of products
E[F_n(a_1) x ... x F_n(a_H)] a latent bandit. For a process that goes on for n steps its distance from the process in
total variation is at most H (H - 1) / (2 n): sampling places with replacement, as F_n does, differs from sampling
without only if some place is drawn twice (the argument of Diaconis and Freedman 1980; for moves that differ it needs
coherence). So it vanishes for processes of all horizons, and need not for an urn that ends: `mixture_possible` tells
that an urn is no latent bandit by what two of its moves show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.paper.theory.processes import Answer, FiniteProcess, Move, Process, Rewards, Value, law, marginal

Measure = Mapping[Value, Fraction]


@dataclass(frozen=True)
class Mixture:
    """A latent bandit with finitely many states: `states` are (probability, a measure for each move).

    Rewards are independent given the state, each drawn from the measure of its move.
    """

    states: tuple[tuple[Fraction, Mapping[Move, Measure]], ...]

    def law(self, sequence: Sequence[Move]) -> dict[Rewards, Fraction]:
        """The law of the rewards of a sequence: the mean over states of products."""
        found: dict[Rewards, Fraction] = defaultdict(Fraction)
        for weight, measures in self.states:
            for draws in product(*(measures[move].items() for move in sequence)):
                chance = weight
                for _, own in draws:
                    chance *= own
                found[tuple(value for value, _ in draws)] += chance
        return dict(found)


def frequencies(process: Process, omega: Any, move: Move, steps: int) -> dict[Value, Fraction]:
    """F_n(omega)(a): how often each reward comes when a move is repeated so many times."""
    counts = Counter(process.rewards(omega, (move,) * steps))
    return {value: Fraction(count, steps) for value, count in counts.items()}


def latent_bandit(process: FiniteProcess, steps: int) -> Mixture:
    """The latent bandit of the empirical frequencies F_n of so many steps, exactly; equal states are put together."""
    found: dict[tuple[tuple[Move, frozenset[tuple[Value, Fraction]]], ...], Fraction] = defaultdict(Fraction)
    for omega, chance in process.outcomes(steps).items():
        measures = [(move, frozenset(frequencies(process, omega, move, steps).items())) for move in process.moves]
        found[tuple(measures)] += chance
    return Mixture(tuple((w, {move: dict(own) for move, own in state}) for state, w in found.items()))


def mixture_possible(process: FiniteProcess) -> Answer:
    """Whether two moves leave room for a latent bandit: no combination of indicators has negative covariance.

    In a latent bandit the covariance of 1[Y_1 = u] under move a and 1[Y_2 = v] under move b is Cov(F(a){u}, F(b){v}),
    so the matrix of these over all (a, u) and (b, v) is positive semi-definite. Necessary, not sufficient; to what
    ends after one move it says nothing.
    """
    if process.longest is not None and process.longest < 2:
        return Answer(True, "there is one move only", exact=False)
    pairs = {(a, b): law(process, (a, b)) for a in process.moves for b in process.moves}
    values = sorted({(a, u) for (a, _), own in pairs.items() for u, _ in own}, key=str)
    alone = {a: marginal(pairs[a, a], [0]) for a in process.moves}
    table = [
        [
            pairs[a, b].get((u, v), Fraction(0)) - alone[a].get((u,), Fraction(0)) * alone[b].get((v,), Fraction(0))
            for b, v in values
        ]
        for a, u in values
    ]
    least = float(np.linalg.eigvalsh(np.array(table, dtype=float))[0])
    if least < -1e-12:
        return Answer(False, f"two rewards are too far apart for any mixture: least eigenvalue {least:.3g}")
    return Answer(True, exact=False)


def distance_bound(length: int, steps: int) -> Fraction:
    """H (H - 1) / (2 n), which the mixture's distance from the process cannot exceed if both properties hold.

    >>> distance_bound(2, 10)
    Fraction(1, 10)
    """
    return Fraction(length * (length - 1), 2 * steps)


def sampled_measure(process: Process, omega: Any, move: Move, steps: int) -> Floats:
    """F_n(omega)(a) as the sorted rewards (n,) of a repeated move, each of mass 1/n: for continuous rewards."""
    return np.sort(np.array(process.rewards(omega, (move,) * steps), dtype=float))
