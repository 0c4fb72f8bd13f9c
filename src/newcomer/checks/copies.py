"""Rows that are there twice: a file that was appended to itself, or events joined with a rating that stays the same.

Copies look like proof that a user answers the same whenever an action comes again, and the gain of held-out users
counts them as such: a log of noise, written twice, promises as much as real preferences. Two signs give them away.

* **Every row several times.** The numbers of rows that agree in user, action and reward have a common divisor above
  one. Among some dozens of them chance does not do that.
* **Repeats that never differ.** People who rate again differ in two of five cases. Where rewards have several values,
  and nearly no repeat of an action brings the user a new one, rows are copies, or rewards looked up in a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from newcomer.findings import Finding
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import CODED, reduce

FEWEST = 50  # repeats, or different rows, below which nothing is said
SAME = 0.995  # share of repeats without a new value from which they are copies
VARIED = 0.8  # chance that two rewards of an action agree, up to which that is no accident
ADVICE = "Remove rows that say nothing new: each must be an outcome of its own, not a copy of one."


@dataclass(frozen=True)
class CopyCounts:
    """Of rows that name actions: how many repeat an action of the user, and how many of these bring no new value.

    `different` counts rows that differ in user, action or reward; `divisor` divides how often each of them is there.
    `pairs` counts pairs of rows of different users with one action, `agreeing` those with the same reward.
    """

    repeats: int = 0
    unchanged: int = 0
    different: int = 0
    divisor: int = 0
    pairs: float = 0.0
    agreeing: float = 0.0

    @classmethod
    def of(cls, batch: Batch) -> CopyCounts:
        """The counts of a batch of whole histories."""
        actions = batch.actions
        if actions is None or not len(actions):
            return cls()
        values, value = np.unique(batch.rewards, return_inverse=True)
        user = np.repeat(np.arange(len(batch.users)), batch.lengths)
        meeting = user * (int(actions.max()) + 1) + actions
        rows, times = np.unique(meeting * len(values) + value, return_counts=True)
        met = len(np.unique(meeting))
        valued, users = np.unique(actions * len(values) + value, return_counts=True)
        shown = np.bincount(valued // len(values), weights=users)
        return cls(
            repeats=len(actions) - met,
            unchanged=len(actions) - len(rows),
            different=len(rows),
            divisor=int(np.gcd.reduce(times)),
            pairs=float((shown * (shown - 1)).sum()),
            agreeing=float((users * (users - 1.0)).sum()),
        )

    def __add__(self, other: CopyCounts) -> CopyCounts:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return CopyCounts(**{**sums, "divisor": gcd(self.divisor, other.divisor)})

    @property
    def alike(self) -> float:
        """How often the rewards of two rows of one action agree."""
        return self.agreeing / self.pairs if self.pairs else 1.0


def count_copies(logs: Logs) -> CopyCounts:
    """One pass over the rows."""
    return reduce(logs, CopyCounts.of, CopyCounts.__add__, rows=CODED if logs.by_action else None)


def find_copies(repeats: Finding, counts: CopyCounts) -> Finding:
    """The finding on `repeats`, with another verdict where rows are copies."""
    if counts.divisor > 1 and counts.different >= FEWEST:
        what = f"Every row is there {counts.divisor} times: the numbers of rows that agree in user, action and reward"
        return replace(repeats, verdict="broken", what=f"{what} are multiples of {counts.divisor}.", advice=ADVICE)
    same = counts.unchanged / max(counts.repeats, 1)
    if counts.repeats >= FEWEST and same >= SAME and counts.alike <= VARIED:
        what = f"{counts.repeats:,} rows repeat an action of the same user, and {same:.1%} of them bring the reward of"
        what += " before to the digit: copies of rows, or rewards that are looked up and not observed anew."
        return replace(repeats, verdict="doubtful", what=what, advice=ADVICE)
    return repeats
