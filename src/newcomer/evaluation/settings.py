"""Settings of an evaluation: how many users, rounds and actions it looks at, and why that many.

An interval shrinks with the square root of the number of users, and time grows with the number itself: each number
here trades one for the other. None of them changes what a model or a policy does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EvaluationSettings:
    """Sizes of an evaluation; `EVALUATION` has the values that `nc.evaluate` uses."""

    # Held-out users.
    judged: int = 6_000  # by whom predictors are compared: the error of a mean is 1.3% of one user's deviation
    deals: int = 4  # random cuts of each history where users are few, so that the cut itself adds little noise
    steps: tuple[int, ...] = (0, 1, 2, 5, 10, 20)  # interactions after which rewards are predicted
    least: int = 40  # users that the smallest fit of the learning curve has

    # Replay: policies play held-out users from their first round, among the user's own rows.
    played: int = 800  # users; a policy takes a decision a row, far more than a prediction costs
    pool: int = 30  # rows of a user that are on offer, drawn at random
    rounds: tuple[int, ...] = (1, 2, 5, 10)  # after which the average reward is reported

    # Values by propensities.
    windows: tuple[tuple[int, int], ...] = ((0, 1), (1, 2), (2, 5), (5, 10), (10, 20), (20, 30))
    # Interactions before a row, from and to (excluded): what a policy is worth depends on how well it knows the user.
    votes: int = 64  # draws that estimate the probabilities of PriorTS; the default of 256 costs four times as much

    # The simulation: policies in a world drawn from the fit.
    simulated: int = 200  # newcomers
    simulated_rounds: int = 20
    simulated_reported: tuple[int, ...] = (1, 5, 10, 20)  # rounds

    # Rivals.
    largest_system: int = 400  # dimensions up to which policies with a d x d system a user play
    recommended: int = 20_000  # users from whom ALS and EASE learn
    factors: int = 18  # of ALS, as in the paper's factorisation of MovieLens
    sweeps: int = 10  # of ALS
    hidden: float = 0.2  # share of logged rewards by which the ridge of ALS and EASE is chosen
    mean_prior: float = 5.0  # rewards of the mean of all actions that are added to each action's own
    ridges: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {"ALS": (3.0, 10.0, 30.0), "EASE": (30.0, 100.0, 300.0, 1000.0)}
    )
    largest_ease: int = 2_000  # actions: EASE inverts a matrix of all of them
    effects: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)  # shrinkage of a regression on attributes, in deviations

    # Memory.
    bytes: int = 64 << 20  # of features that are written out at a time
    states: int = 500  # users whose states are held at a time


EVALUATION = EvaluationSettings()
