"""The steps of an evaluation: every number an average over people with the error that this has, a `Stretch`.

Differences are paired: the same people choose among the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from newcomer.interval import Stretch, shown
from newcomer.records import Shown

LOOK = 5  # interactions after which the first sentence tells the gain


@dataclass(frozen=True)
class HeadlineStep(Shown):
    """One choice after so many interactions, by PriorUCB: its reward, and how much more that is than by other rules.

    `population_mean`, `empirical_arms` (None where logs name no actions) and `logging` are paired differences to the
    population-mean ranking, to each action by itself, and to the average logged reward of the same candidates.
    """

    interactions: int
    people: int
    reward: Stretch
    population_mean: Stretch
    empirical_arms: Stretch | None
    logging: Stretch


@dataclass(frozen=True)
class CurveStep(Shown):
    """What one predictor says of the next rewards after so many interactions.

    `squared_error` of expected rewards; `saved`, how much less that is than the population mean's (paired);
    `concordance`, the share of pairs of candidates with different rewards that it puts in the right order (a half is
    chance); `reward` of the candidate that it puts first.
    """

    predictor: str
    interactions: int
    people: int
    squared_error: Stretch
    saved: Stretch
    concordance: Stretch
    reward: Stretch


@dataclass(frozen=True)
class PolicyRow(Shown):
    """A policy's average reward a round over the first `rounds`, and how much more it is than the population mean's."""

    policy: str
    rounds: int
    people: int
    reward: Stretch
    over_mean: Stretch


@dataclass(frozen=True)
class OffPolicyRow(Shown):
    """The value of one decision of a policy after so many logged interactions, by propensities.

    `ips` is inverse propensity scoring, `self_normalised` the same over the sum of weights, `doubly_robust` corrects
    what the model expects; `over_logging` is the doubly robust value less the average logged reward (paired).
    `effective` rows carry the weights, of which `largest` is the largest.
    """

    policy: str
    interactions: int
    people: int
    ips: Stretch
    self_normalised: Stretch
    doubly_robust: Stretch
    over_logging: Stretch
    effective: float
    largest: float


@dataclass(frozen=True)
class LearningStep(Shown):
    """The gain over the population mean after some interactions with a fit to fewer users, and what all users add."""

    users: int
    interactions: int
    gain: Stretch
    lacking: Stretch  # the gain of the fit to all users less this one, paired


def compared(value: Stretch, other: str) -> str:
    """A paired difference as people say it: more than another, less, or not clearly either.

    >>> compared(Stretch(-0.0001, 0.001, -0.0021, 0.0019, 90), "chance")
    'not clearly more or less than chance (-0.0001, 95% interval -0.0021 to +0.0019)'
    >>> compared(Stretch(-0.2, 0.05, -0.3, -0.1, 90), "chance")
    '0.200 (0.100 to 0.300) less than chance'
    """
    if value.error == 0:
        told = (
            "as much as" if value.value == 0 else f"{abs(value.value):.2f} {'more' if value.value > 0 else 'less'} than"
        )
        return f"{told} {other}, the same for everybody"
    if value.low <= 0 <= value.high or not np.isfinite(value.error):
        told = shown(value).replace(" (", ", 95% interval ", 1).removesuffix(")")
        return f"not clearly more or less than {other} ({told})"
    word, ends = ("more", (value.low, value.high)) if value.value > 0 else ("less", (-value.high, -value.low))
    positive = Stretch(abs(value.value), value.error, *ends, value.people)
    return f"{shown(positive).replace('+', '')} {word} than {other}"


def in_steps(rows: Sequence[Any]) -> Mapping[int, list[Any]]:
    """Records by their number of interactions, in order."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row.interactions, []).append(row)
    return dict(sorted(found.items()))
