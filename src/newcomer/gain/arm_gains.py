"""What each arm of an experiment paid, user by user, and what one arm paid more than another.

A user counts once, with the average reward of the first t rows of the user's arm, if there are so many; users who met
several arms are left out. Differences are between users, who are drawn to arms by lot: Welch's interval, for one look.
Who looks every day needs intervals that hold at any time, which the service has (`GET /v1/lift`).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial

import numpy as np

from newcomer.arrays import Floats
from newcomer.gain.settings import GAINS
from newcomer.interval import FEWEST, Interval, interval_in_words
from newcomer.logs.arms import OBSERVED, RANDOM, TREATED
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.records import Shown

OTHERS = ("control", "incumbent", RANDOM)  # arms that the treated one is compared with, in this order


@dataclass(frozen=True)
class ArmStep(Shown):
    """The average reward of an arm's users over their first interactions; `over`, how much more treated users got."""

    arm: str
    interactions: int
    people: int
    reward: Interval
    over: Interval | None = None


def arm_gains(logs: Logs) -> tuple[ArmStep, ...]:
    """Every arm, by the number of interactions; nothing where logs have no arms of a service."""
    if TREATED not in logs.arms and RANDOM not in logs.arms:
        return ()
    sums = reduce(logs, partial(_look, arms=logs.arms), operator.add)
    treated = logs.arms.index(TREATED) if TREATED in logs.arms else None
    found = []
    for step, t in enumerate(GAINS.arm_steps):
        for place, arm in enumerate(logs.arms):
            own = sums[place, step]
            if arm == OBSERVED or own[0] < 2:
                continue
            ours = None if treated in (None, place) else sums[treated, step]
            over = None if ours is None or ours[0] < 2 else arm_gain_difference(ours, own)
            found.append(ArmStep(arm, t, int(own[0]), _mean(own), over))
    return tuple(found)


def _look(batch: Batch, *, arms: tuple[str, ...]) -> Floats:
    """Users, their mean rewards and the squares of these, (k, steps, 3): the map of a pass."""
    assert batch.arms is not None
    sums = np.zeros((len(arms), len(GAINS.arm_steps), 3))
    owner = np.repeat(np.arange(len(batch.users)), batch.lengths)
    decided = batch.arms != (arms.index(OBSERVED) if OBSERVED in arms else -1)
    rows, owner, arm = batch.paid[decided], owner[decided], batch.arms[decided]
    counts = np.bincount(owner, minlength=len(batch.users))
    starts = np.cumsum(counts) - counts
    least, most = np.full(len(counts), len(arms)), np.full(len(counts), -1)
    np.minimum.at(least, owner, arm)
    np.maximum.at(most, owner, arm)
    inside = np.arange(len(owner)) - starts[owner]
    for step, t in enumerate(GAINS.arm_steps):
        able = (counts >= t) & (least == most)
        kept = (inside < t) & able[owner]
        means = np.bincount(owner[kept], weights=rows[kept], minlength=len(counts))[able] / t
        for power in range(3):
            sums[:, step, power] = np.bincount(least[able], weights=means**power, minlength=len(arms))
    return sums


def arm_gain_lift(steps: tuple[ArmStep, ...]) -> ArmStep | None:
    """Treated users against those of the control arm, over the most first interactions that 30 users of both have."""
    able = [one for one in steps if one.arm == "control" and one.over is not None and one.over.people >= FEWEST]
    return max(able, key=lambda one: one.interactions, default=None)


def _moments(sums: Floats) -> tuple[float, float, float]:
    """Users, mean, and variance of the mean, from (3,) sums."""
    n = float(sums[0])
    mean = float(sums[1]) / n
    return n, mean, max(float(sums[2]) / n - mean**2, 0.0) / (n - 1)


def _mean(sums: Floats) -> Interval:
    n, mean, variance = _moments(sums)
    return Interval.around(mean, float(np.sqrt(variance)), int(n))


def arm_gain_difference(one: Floats, other: Floats) -> Interval:
    """The mean of one group less that of another, from (3,) sums of each: Welch (1947). `people` is the smaller group.

    >>> arm_gain_difference(np.array([2.0, 6.0, 20.0]), np.array([2.0, 2.0, 4.0])).value
    2.0
    """
    (n, a, v), (m, b, w) = _moments(one), _moments(other)
    error = float(np.sqrt(v + w))
    free = (v + w) ** 2 / (v**2 / (n - 1) + w**2 / (m - 1)) if error > 0 else 1.0
    return Interval.around(a - b, error, int(min(n, m)), freedom=free)


def arm_gain_sentences(steps: tuple[ArmStep, ...]) -> list[str]:
    """What the arms paid, over the most first interactions that 30 users of the treated arm and of another have."""
    able = {s.interactions for s in steps if s.over is not None and min(s.people, s.over.people) >= FEWEST}
    if not able:
        if not any(step.over is not None for step in steps):
            return []
        return ["The treated arm cannot be compared yet: an arm has fewer than 30 users."]
    t = max(able)
    at = {step.arm: step for step in steps if step.interactions == t}
    ours = at[TREATED].reward
    parts = [
        f"{interval_in_words(at[arm].over)} "  # type: ignore[arg-type]
        f"over the {at[arm].people:,} users of the arm {arm}"
        for arm in (*OTHERS, *sorted(set(at) - {*OTHERS, TREATED}))
        if arm in at and at[arm].over is not None and at[arm].people >= FEWEST
    ]
    users = f"Over their first {t} interactions" if t > 1 else "At their first interaction"
    got = f"{users} the {at[TREATED].people:,} treated users got {ours.value:.4g} a decision: {', '.join(parts)}."
    return [f"{got} Users are assigned to arms at random, so serving caused this; the 95% intervals are for one look."]
