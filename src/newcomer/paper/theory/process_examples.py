"""Decision processes to try the definitions on: some that are latent bandits, and one for each way of not being one.

LatentBandit      finitely many latent states, rewards of 0 or 1 drawn independently given the state: both properties
LinearFinite      a linear latent contextual bandit with finitely many tastes and two-valued noise: both properties
LinearLatent      the linear latent contextual bandit of Definition 1, Gaussian: both, for the sampled checks
FirstMove         every reward is theta XOR a_1: exchangeable, coherent in law, not coherent (the corrected example)
FirstMovePrinted  the example as printed, where the first reward is theta: not even exchangeable
Fading            only the first reward can be 1: coherent, not exchangeable
Urn               balls drawn without replacement: coherent and exchangeable up to its size, and no mixture

Three that are coherent and nearly exchangeable, on which the power of the sampled check is measured
(`experiments/process_power.py`):

Correlated        rewards are Gaussian, correlated with those before: AR(1)
HeavyFirst        the first reward has heavier tails than the others, and the same mean and variance
FlipAfterRun      fair coins; after a run of ones comes a zero
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.paper.theory.processes import Move, Rewards, draw_from
from newcomer.worlds.synthetic import Synthetic

HALF = Fraction(1, 2)
COIN: Mapping[int, Fraction] = {0: HALF, 1: HALF}


class _Endless(ABC):
    """A process whose omega are enumerated, and which goes on for ever."""

    @property
    def longest(self) -> int | None:
        """Any number of moves has rewards."""
        return None

    @abstractmethod
    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """Every omega with its probability."""

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """One omega."""
        return draw_from(rng, self.outcomes(horizon))


@dataclass(frozen=True)
class FirstMove(_Endless):
    """Every reward is theta XOR a_1, theta a fair coin: the whole history turns on the first move.

    The law of the rewards is (X, ..., X), X a fair coin, for every sequence: that of a latent bandit. In value they are
    not coherent, and no F on this omega makes the process itself a latent bandit.
    """

    moves: tuple[Move, ...] = (0, 1)

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """theta."""
        return COIN

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """theta XOR a_1, again and again."""
        return (omega ^ (sequence[0] == 1),) * len(sequence)


@dataclass(frozen=True)
class FirstMovePrinted(_Endless):
    """As printed: all rewards are theta if a_1 = 0; if a_1 = 1 the first is theta and all others 1 - theta."""

    moves: tuple[Move, ...] = (0, 1)

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """theta."""
        return COIN

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """theta, then theta or 1 - theta."""
        return (omega, *(omega ^ (sequence[0] == 1) for _ in sequence[1:]))


@dataclass(frozen=True)
class Fading(_Endless):
    """The first reward is a fair coin, all later ones are 0, whatever is done: interest that fades."""

    moves: tuple[Move, ...] = (0, 1)

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """The coin."""
        return COIN

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """The coin, then nothing."""
        return (omega, *(0 for _ in sequence[1:]))


@dataclass(frozen=True)
class Urn:
    """Every move draws the next ball of an urn, without putting it back: `ones` of `size` balls pay 1.

    Up to `size` moves it is coherent and exchangeable; it ends there, so the theorem, which needs all horizons, says
    nothing of it. Two draws have covariance below 0, which no mixture of independent draws has.
    """

    size: int = 4
    ones: int = 2
    moves: tuple[Move, ...] = (0, 1)

    @property
    def longest(self) -> int | None:
        """The number of balls."""
        return self.size

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """The order of the balls."""
        found: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        orders = list(permutations([1] * self.ones + [0] * (self.size - self.ones)))
        for order in orders:
            found[order] += Fraction(1, len(orders))
        return found

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """One order."""
        return tuple(int(ball) for ball in rng.permutation([1] * self.ones + [0] * (self.size - self.ones)))

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """The balls in order."""
        return tuple(omega[: len(sequence)])


@dataclass(frozen=True)
class LatentBandit(_Endless):
    """Rewards of 0 or 1: in state s, of probability `weights[s]`, move a pays 1 with probability `rates[s][a]`.

    omega is the state and a table of outcomes, one for each step and move.
    """

    weights: tuple[Fraction, ...] = (HALF, HALF)
    rates: tuple[tuple[Fraction, ...], ...] = ((Fraction(1, 4), HALF), (Fraction(3, 4), Fraction(0)))

    @property
    def moves(self) -> tuple[Move, ...]:
        """The actions, counted from 0."""
        return tuple(range(len(self.rates[0])))

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """States and tables (step by step, move by move) of positive probability."""
        found: dict[Any, Fraction] = {}
        rows = list(product((0, 1), repeat=len(self.moves)))
        for state, (weight, rates) in enumerate(zip(self.weights, self.rates, strict=True)):
            chances = [
                _product(rate if bit else 1 - rate for bit, rate in zip(row, rates, strict=True)) for row in rows
            ]
            likely = [(row, chance) for row, chance in zip(rows, chances, strict=True) if chance]
            for table in product(likely, repeat=horizon):
                found[state, tuple(row for row, _ in table)] = weight * _product(chance for _, chance in table)
        return found

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """A state and a table."""
        state = draw_from(rng, dict(enumerate(self.weights)))
        bits = rng.random((horizon, len(self.moves))) < np.array([float(rate) for rate in self.rates[state]])
        return state, tuple(tuple(int(bit) for bit in row) for row in bits)

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """The table at each step and move."""
        return tuple(omega[1][h][self.moves.index(move)] for h, move in enumerate(sequence))


@dataclass(frozen=True)
class LinearFinite(_Endless):
    """A linear latent contextual bandit that can be enumerated: phi(x, a) . theta plus or minus `noise`.

    Moves are the pairs of `features`, each with its vector; theta is uniform on `tastes`.
    """

    features: Mapping[Move, tuple[Fraction, ...]]
    tastes: tuple[tuple[Fraction, ...], ...]
    noise: Fraction = HALF

    @property
    def moves(self) -> tuple[Move, ...]:
        """Pairs of a context and an action."""
        return tuple(self.features)

    def outcomes(self, horizon: int) -> Mapping[Any, Fraction]:
        """Taste, and the sign of the noise at each step."""
        signs = list(product((-1, 1), repeat=horizon))
        each = Fraction(1, len(self.tastes) * len(signs))
        return {(taste, sign): each for taste in self.tastes for sign in signs}

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """phi . theta + noise at each step."""
        taste, signs = omega
        vectors = [self.features[move] for move in sequence]
        means = [sum((x * t for x, t in zip(phi, taste, strict=True)), Fraction(0)) for phi in vectors]
        return tuple(mean + sign * self.noise for mean, sign in zip(means, signs, strict=False))


@dataclass(frozen=True)
class LinearLatent:
    """The linear latent contextual bandit of a synthetic world with a catalogue, as a decision process.

    Moves are the items; omega is a reward vector beta = U theta and a table of noise. Its random measure is F(a) =
    N(phi_a . beta, noise^2).
    """

    world: Synthetic

    @property
    def moves(self) -> tuple[Move, ...]:
        """Items, by position."""
        return tuple(range(len(self._items)))

    @property
    def longest(self) -> int | None:
        """Any number of moves has rewards."""
        return None

    @property
    def _items(self) -> Floats:
        assert self.world.catalogue is not None, "the world needs items"
        return self.world.catalogue

    def draw(self, rng: np.random.Generator, horizon: int) -> Any:
        """Reward vector (d,) and noise (horizon, items)."""
        beta = self.world.factor @ self.world.draw_latents(rng, 1)[0]
        return beta, self.world.draw_noise(rng, (horizon, len(self._items)))

    def rewards(self, omega: Any, sequence: Sequence[Move]) -> Rewards:
        """phi . beta + noise at each step."""
        beta, noise = omega
        means = self._items @ beta
        return tuple(float(means[move] + noise[h, move]) for h, move in enumerate(sequence))


@dataclass(frozen=True)
class _InOrder(ABC):
    """A process whose rewards come in an order of their own, whatever the moves are: it is coherent."""

    moves: tuple[Move, ...] = (0, 1)

    @property
    def longest(self) -> int | None:
        """Any number of moves has rewards."""
        return None

    @abstractmethod
    def draw(self, rng: np.random.Generator, horizon: int) -> Floats:
        """All rewards (horizon,)."""

    def rewards(self, omega: Floats, sequence: Sequence[Move]) -> Rewards:
        """The first of them."""
        return tuple(float(value) for value in omega[: len(sequence)])


@dataclass(frozen=True)
class Correlated(_InOrder):
    """Y_h = correlation Y_{h-1} + noise, with variance 1 at every step."""

    correlation: float = 0.5

    def draw(self, rng: np.random.Generator, horizon: int) -> Floats:
        """The chain (horizon,)."""
        found = rng.standard_normal(horizon)
        for h in range(1, horizon):
            found[h] = self.correlation * found[h - 1] + np.sqrt(1 - self.correlation**2) * found[h]
        return found


@dataclass(frozen=True)
class HeavyFirst(_InOrder):
    """Standard normal rewards but for the first, which is Student's with `freedom`, scaled to variance 1."""

    freedom: float = 3.0

    def draw(self, rng: np.random.Generator, horizon: int) -> Floats:
        """One heavy reward, then light ones (horizon,)."""
        found = rng.standard_normal(horizon)
        found[0] = rng.standard_t(self.freedom) * np.sqrt((self.freedom - 2) / self.freedom)
        return found


@dataclass(frozen=True)
class FlipAfterRun(_InOrder):
    """Fair coins, but for a zero after `run` ones in a row."""

    run: int = 6

    def draw(self, rng: np.random.Generator, horizon: int) -> Floats:
        """The coins as they come out (horizon,)."""
        found = rng.integers(0, 2, size=horizon).astype(float)
        for h in range(self.run, horizon):
            found[h] *= not found[h - self.run : h].all()
        return found


def _product(factors: Any) -> Fraction:
    result = Fraction(1)
    for factor in factors:
        result *= factor
    return result
