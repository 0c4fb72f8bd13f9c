"""What a newcomer may expect of a prior, before anybody comes: three shares of variance, and how fast taste shows.

Over logged actions, the variance of rewards has three parts: what everybody agrees on (phi^T m), what users differ in (phi^T L z), and noise. After t
random interactions z is known up to a covariance P_t^-1, P_t = I + t L^T C L / s2 with C = E[phi phi^T]. Choices depend on how scores differ between actions, so with
C0 = Cov(phi) (a user's general level, or everybody's, changes no choice) the part of their variance that can be told is

    common + tr(L^T C0 L (I - P_t^-1)),      common = m^T C0 m,

and the gain of picking the best of a few actions over a random one is proportional to its square root (for normal scores). A known user is t at infinity, the
population mean is t = 0. A policy that chooses its actions learns no slower than random ones in the directions that matter to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.population.likelihood import Prior

Floats = NDArray[np.float64]

NEAR = 0.9  # "within 10% of a known user"
LOOK = 20  # interactions after which the gain over the population mean is told
LAST = 1 << 40  # interactions that nobody will have
WORTH = 0.01  # gain over the population mean that is worth speaking of


@dataclass(frozen=True)
class Forecast:
    """Variances of rewards (common, personal, noise) and what they mean for a newcomer.

    `interactions` until a newcomer's gain is within 10% of a known user's; `mean_value`, `early_value`: gain of the population mean,
    and after 20 interactions, as shares of a known user's.
    """

    common: float
    personal: float
    noise: float
    interactions: int
    mean_value: float
    early_value: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for the model file."""
        return asdict(self)


@dataclass(frozen=True)
class _Scores:
    """Variance of scores between actions that all users share, that differs (k, k), and what an interaction tells of z (k, k)."""

    common: float
    differ: Floats
    told: Floats

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


def forecast(prior: Prior, gram: Floats, centre: Floats) -> Forecast:
    """From a prior, C = E[phi phi^T] (d, d) and E[phi] (d,)."""
    spread, inside = gram - np.outer(centre, centre), prior.factor.T @ gram @ prior.factor
    common = max(float(prior.mean @ spread @ prior.mean), 0.0)
    scores = _Scores(common, prior.factor.T @ spread @ prior.factor, inside / prior.noise)
    return Forecast(
        common=common,
        personal=float(np.trace(inside)),
        noise=prior.noise,
        interactions=scores.needed(),
        mean_value=scores.value(0),
        early_value=scores.value(LOOK),
    )


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """A forecast in plain words, for people who did not ask for eigenvalues."""
    total = facts["common"] + facts["personal"] + facts["noise"]
    share = [round(100 * facts[part] / total) if total else 0 for part in ("common", "personal", "noise")]
    first = (
        f"Of the variance of rewards, {share[0]}% is common to all users, {share[1]}% is personal taste along shared"
        f" directions, and {share[2]}% is noise."
    )
    gain = facts["early_value"] / facts["mean_value"] - 1 if facts["mean_value"] > 0 else np.inf
    if facts["personal"] <= 0 or gain < WORTH:
        return [first, "Expect no gain over serving everybody the population mean: users hardly differ."]
    needed = facts["interactions"]
    wait = "from the first interaction" if needed == 0 else f"after about {needed:,} interaction{'s' * (needed != 1)}"
    better = f"{100 * gain:.0f}% above the population mean" if gain < 10 else "far above the population mean"
    return [
        first,
        f"A newcomer is within 10% of a known user {wait}.",
        f"Expect to beat the population mean: after {LOOK} interactions choices are worth {better}.",
    ]
