"""What a newcomer may expect, before anybody comes: shares of variance, and how fast preferences show.

Over logged actions, the variance of rewards has three parts: what everybody agrees on (phi^T m), what users differ in
(phi^T L z), and noise. With C = E[phi phi^T] and c = E[phi], what users differ in is

    tr(L^T C L)  =  |L^T c|^2  +  tr(L^T C0 L),        C0 = Cov(phi) = C - c c^T,

the variance of a user's level, which moves all actions alike and can change no choice, and that of preferences, which
change the order of actions. After t random interactions z is known up to a covariance P_t^-1, P_t = I + t L^T C L / s2,
and choices depend on how scores differ between actions: the part of their variance that can be told is

    common + tr(L^T C0 L (I - P_t^-1)),      common = m^T C0 m,

and the gain of picking the best of a few actions over a random one is proportional to its square root (for normal
scores). A known user is t at infinity, the population mean is t = 0. A policy that chooses its actions learns no slower
than random ones in the directions that matter to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats
from newcomer.evidence import LOOK, Forecast
from newcomer.onehot import Square
from newcomer.population.record import Population

NEAR = 0.9  # "within 10% of a known user"
LAST = 1 << 40  # interactions that nobody will have


@dataclass(frozen=True)
class _Scores:
    """What the gain after t interactions follows from."""

    common: float  # variance between actions of the scores that all users share
    differ: Floats  # L^T C0 L (k, k): how scores that differ between users vary between actions
    told: Floats  # L^T C L / s2 (k, k): what an interaction tells of z

    def value(self, steps: int) -> float:
        """Gain of best choices after some steps, as a share of a known user's."""
        total = self.common + float(np.trace(self.differ))
        unknown = np.linalg.solve(np.eye(len(self.told)) + steps * self.told, self.differ)
        return float(np.sqrt(max(1.0 - float(np.trace(unknown)) / total, 0.0))) if total > 0 else 1.0

    def needed(self) -> int:
        """Smallest number of steps with `NEAR` of a known user's gain, by doubling and bisection; at most `LAST`."""
        if self.value(0) >= NEAR:
            return 0
        low, high = 0, 1
        while self.value(high) < NEAR and high < LAST:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.value(middle) >= NEAR else (middle, high)
        return high


def forecast(population: Population, gram: Square, centre: Floats) -> Forecast:
    """The forecast for a population whose logged actions have C = E[phi phi^T] = `gram` (d, d) and E[phi] (d,).

    One direction of variance 1, noise 1, nothing in common: sqrt(t / (1 + t)) reaches 0.9 after 0.81 / 0.19 = 4.3.

    >>> forecast(Population(np.zeros(2), np.array([[1.0], [0.0]]), 1.0), np.eye(2), np.zeros(2)).interactions
    5
    """
    mean, factor = population.mean, population.factor
    inside, level, levels = factor.T @ (gram @ factor), centre @ mean, centre @ factor
    common = max(float(mean @ (gram @ mean) - level**2), 0.0)
    scores = _Scores(common, inside - np.outer(levels, levels), inside / population.noise_variance)
    return Forecast(
        common=common,
        personal=float(np.trace(inside)),
        noise_variance=population.noise_variance,
        interactions=scores.needed(),
        mean_value=scores.value(0),
        early_value=scores.value(LOOK),
        level=float(levels @ levels),
    )
