"""The steps of an evaluation: every number an average over people with the error that this has, a `Stretch`.

Differences are paired: the same people choose among the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from newcomer.interval import Stretch
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


def in_steps(rows: Sequence[Any]) -> Mapping[int, list[Any]]:
    """Records by their number of interactions, in order."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row.interactions, []).append(row)
    return dict(sorted(found.items()))
