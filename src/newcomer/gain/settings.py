"""Settings of the held-out gain and of the verdict: which numbers are estimated, by how many users, and thresholds.

The verdict has few thresholds, and all are here. Whether a gain is clear is not one of them: that is the 95% interval
of `newcomer.interval`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GainSettings:
    """Sizes and thresholds; `GAINS` has the values that `fit`, `check`, `evaluate` and `report` use."""

    # Deals: some rows of a held-out history are known, K others are the candidates.
    steps: tuple[int, ...] = (1, 2, 5, 10, 20)  # interactions after which a gain is estimated
    look: int = 5  # interactions whose gain stands first everywhere; histories are cut so that most users have them
    choices: int = 10  # candidates K, or fewer where histories are short
    longest: int = 255  # rows from which lengths of histories are counted together

    # Users who judge: the interval shrinks with the square root of their number.
    deals: int = 4  # random cuts of each history ...
    many: int = 2_500  # ... and one, where more users judge than this: the interval is then narrow enough
    least: int = 5_000  # users who judge, whatever it costs
    rows: int = 1_000_000  # rows dealt in all: about 2 CPU seconds where actions are known by their ids
    written: int = 100  # features that cost as much to write out as the rest of a row costs
    bytes: int = 16 << 20  # of features that are written out at a time
    states: int = 2_000  # users whose states are held at a time

    # The best actions for everybody.
    named_best: int = 5
    firm: float = 10.0  # users' worth of the common variance in each action's own: a rare action has little of its own
    weighed: int = 100_000  # held-out users whose propensities are used

    # Propensities.
    catalogue: int = 500  # actions up to which all count as candidates where the logs name none
    sure: float = 4.0  # standard errors by which the mean of 1 / p may miss the number of candidates

    # Arms of an experiment.
    arm_steps: tuple[int, ...] = (1, 2, 5, 10, 20, 50)  # first interactions over which rewards are averaged

    # The verdict.
    slight: float = 0.01  # share of the variance of rewards from which preferences are mentioned
    agreed: float = 5e-4  # share of the residual variance from which agreement of halves counts as preferences
    trial: int = 50  # actions up to which a randomised test of the best ones is proposed: each arm needs its users
    named: int = 3  # actions in a sentence
    longest_name: int = 60  # characters of a name


GAINS = GainSettings()
