"""Decision processes without a state, and the two properties that make them latent bandits, as checks.

A stateless decision process is a random map: nature draws omega once, and then any sequence of moves (a_1, ..., a_H)
has its rewards F_H(omega)(a_1, ..., a_H) = (Y_1, ..., Y_H). A move is an action, or, in a transition-agnostic
contextual process, a pair of a context and an action: where contexts come from is no part of the process, and every
definition is the same with X x A in the place of A.

coherent        two sequences that share the moves from index h to k have the same rewards there, *in value*
exchangeable    permuting moves permutes rewards, in law: F(a_pi) ~ (Y_pi(1), ..., Y_pi(H))

The paper's theorem: a process with both, for all horizons, is a latent bandit (`newcomer.paper.theory.de_finetti`
builds it). Here both are decided exactly, by enumeration, for processes with finitely many omega; for others see
`newcomer.paper.theory.process_sampling`.

Coherence is stronger than it looks. Blocks may have length one, so it says that Y_h is a function of omega, h and a_h
alone, and nothing more. The sample points of a coherent process are therefore *sequences of functions* A -> R, the
smaller class of generalised bandits that the appendix mentions (`Functions`, `as_functions`): what is outside that
class, a process that adapts to earlier moves, is not coherent. Two weaker properties are checked beside it:
`prefix_coherent` (blocks that begin at the first step: later moves do not change earlier rewards), and
`coherent_in_law` (equality in law in the place of value, the property in the lemma on coherence).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import Any, Protocol, runtime_checkable

import numpy as np

from newcomer.errors import NewcomerError

Move = Hashable  # an action, or a pair of a context and an action
Value = Fraction | float | int
Rewards = tuple[Value, ...]
Law = Mapping[Rewards, Fraction]


@runtime_checkable
class Process(Protocol):
    """A stateless decision process, with contexts in its moves or without.

    `moves` are all moves there are; `longest` is the longest sequence it is defined for, None if there is none.
    """

    @property
    def moves(self) -> tuple[Move, ...]:
        """All moves."""

    @property
    def longest(self) -> int | None:
        """The longest sequence of moves that has rewards; None: every length."""

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """A draw of omega, as much of it as sequences of up to `horizon` moves look at."""

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """F_H(omega)(a_1, ..., a_H)."""


@runtime_checkable
class FiniteProcess(Process, Protocol):
    """A process of which everything within a horizon can be enumerated."""

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """Every omega, as much of it as sequences of up to `horizon` moves look at, with its probability."""


@dataclass(frozen=True)
class Answer:
    """What a check found: whether the property holds and, if it does not, the case in words.

    `level` is the probability with which a process that has the property is refused: 0 where nothing is left to
    chance. `exact` says that a property that was found to hold does, up to the horizon that was looked at.
    """

    holds: bool
    witness: str = ""
    level: float = 0.0
    exact: bool = True


def law(process: FiniteProcess, sequence: Sequence[Move]) -> dict[Rewards, Fraction]:
    """The law of the rewards of a sequence of moves."""
    found: dict[Rewards, Fraction] = defaultdict(Fraction)
    for omega, chance in process.outcomes(len(sequence)).items():
        found[process.rewards(omega, sequence)] += chance
    return dict(found)


def coherent(process: FiniteProcess, horizon: int) -> Answer:
    """Whether each Y_h depends on omega, h and a_h alone, for sequences of up to `horizon` moves.

    That is coherence as defined: sequences with equal moves from h to k have, taken one index at a time, the same
    rewards; and blocks of one index are among those of the definition.
    """
    _within(process, horizon)
    for omega in process.outcomes(horizon):
        found: dict[tuple[int, Move], tuple[Value, Sequence[Move]]] = {}
        for sequence in sequences(process, horizon):
            for h, (move, value) in enumerate(zip(sequence, process.rewards(omega, sequence), strict=True)):
                first, where = found.setdefault((h, move), (value, sequence))
                if first != value:
                    return _differ(omega, h, where, first, sequence, value)
    return Answer(True)


def prefix_coherent(process: FiniteProcess, horizon: int) -> Answer:
    """Whether Y_h depends on omega and a_1, ..., a_h alone: later moves, and the horizon, do not change the past."""
    _within(process, horizon)
    for omega in process.outcomes(horizon):
        found: dict[Sequence[Move], tuple[Value, Sequence[Move]]] = {}
        for sequence in sequences(process, horizon):
            for h, value in enumerate(process.rewards(omega, sequence)):
                first, where = found.setdefault(sequence[: h + 1], (value, sequence))
                if first != value:
                    return _differ(omega, h, where, first, sequence, value)
    return Answer(True)


def coherent_in_law(process: FiniteProcess, horizon: int) -> Answer:
    """Whether blocks of equal moves at equal places have rewards of the same law, whatever surrounds them."""
    _within(process, horizon)
    found: dict[tuple[int, Sequence[Move]], tuple[Law, Sequence[Move]]] = {}
    for sequence in sequences(process, horizon):
        whole = law(process, sequence)
        for h, k in _blocks(len(sequence)):
            own = marginal(whole, range(h, k))
            first, where = found.setdefault((h, sequence[h:k]), (own, sequence))
            if first != own:
                return Answer(False, f"steps {h + 1} to {k} of {sequence} and of {where} differ in law")
    return Answer(True)


def exchangeable(process: FiniteProcess, horizon: int) -> Answer:
    """Whether permuting moves permutes rewards, in law, for every sequence of up to `horizon` moves."""
    _within(process, horizon)
    for sequence in sequences(process, horizon):
        whole = law(process, sequence)
        for order in permutations(range(len(sequence))):
            moved = tuple(sequence[place] for place in order)
            if law(process, moved) != marginal(whole, order):
                return Answer(False, f"the rewards of {moved} are not those of {sequence}, permuted, in law")
    return Answer(True)


def marginal(whole: Law, places: Sequence[int]) -> dict[Rewards, Fraction]:
    """The law of the rewards at some places, in this order.

    >>> marginal({(1, 0): Fraction(1, 2), (1, 1): Fraction(1, 2)}, [0])
    {(1,): Fraction(1, 1)}
    """
    found: dict[Rewards, Fraction] = defaultdict(Fraction)
    for rewards, chance in whole.items():
        found[tuple(rewards[place] for place in places)] += chance
    return dict(found)


def total_variation(one: Law, other: Law) -> Fraction:
    """The largest difference of the probabilities of an event, between 0 and 1."""
    return sum((abs(one.get(r, Fraction(0)) - other.get(r, Fraction(0))) for r in {*one, *other}), Fraction(0)) / 2


@dataclass(frozen=True)
class Functions:
    """A generalised bandit in the smaller sense: a random *sequence of functions* from moves to rewards.

    A sample point is a tuple over steps of tuples over `moves`; it cannot adapt to what was done before.
    """

    moves: tuple[Move, ...]
    chances: Mapping[tuple[tuple[Value, ...], ...], Fraction]

    @property
    def longest(self) -> int | None:
        """The number of functions."""
        return min(map(len, self.chances))

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """The sequences of functions."""
        return self.chances

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """One of them."""
        return draw_from(rng, self.chances)

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """Each function at its own move."""
        return tuple(omega[h][self.moves.index(move)] for h, move in enumerate(sequence))


def as_functions(process: FiniteProcess, horizon: int) -> Functions:
    """A coherent process as a sequence of functions; others are outside the class, and refused with the case.

    Rewards are equal in law for every sequence, jointly over sequences too: g_h(omega, a) = Y_h of any sequence with
    a_h = a.
    """
    answer = coherent(process, horizon)
    if not answer.holds:
        raise NewcomerError("a process that is not coherent is no sequence of functions", where=answer.witness)
    found: dict[tuple[tuple[Value, ...], ...], Fraction] = defaultdict(Fraction)
    for omega, chance in process.outcomes(horizon).items():
        columns = [process.rewards(omega, (move,) * horizon) for move in process.moves]
        found[tuple(zip(*columns, strict=True))] += chance
    return Functions(process.moves, dict(found))


def sequences(process: Process, horizon: int) -> Iterator[tuple[Move, ...]]:
    """Every sequence of 1 to `horizon` moves."""
    for length in range(1, horizon + 1):
        yield from product(process.moves, repeat=length)


def draw_from(rng: np.random.Generator, chances: Mapping[Any, Fraction]) -> Any:
    """A draw from a finite law."""
    outcomes = list(chances)
    return outcomes[int(rng.choice(len(outcomes), p=np.array([float(chance) for chance in chances.values()])))]


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    """Beginning and end of every block of consecutive steps."""
    return ((h, k) for h in range(length) for k in range(h + 1, length + 1))


def _differ(omega: Any, h: int, one: Any, first: Value, other: Any, second: Value) -> Answer:
    text = f"omega = {omega}: reward {h + 1} is {first} with the moves {one} and {second} with {other}"
    return Answer(False, text)


def _within(process: Process, horizon: int) -> None:
    if horizon < 1 or (process.longest is not None and horizon > process.longest):
        raise NewcomerError(
            "the process has no rewards for sequences of this length",
            where=f"horizon={horizon}",
            todo=f"choose 1 to {process.longest}" if process.longest else "choose 1 or more",
        )
