"""Rows and users that are there twice: a file that was appended to itself, events joined with a rating that stays the
same, or one person under several ids.

Copies look like proof that a user answers the same whenever an action comes again, and the gain of held-out users
counts them as such: a log of noise, written twice, promises as much as real preferences. Three signs give them away.

* **Every row several times.** The numbers of rows that agree in user, action and reward have a common divisor above
  one. Among some dozens of them chance does not do that.
* **Repeats that never differ.** People who rate again differ in two of five cases. Where rewards have several values,
  and nearly no repeat of an action brings the user a new one, rows are copies, or rewards looked up in a table.
* **Users with the same history**: the same actions with the same rewards, in the same order. A held-out user whose twin
  was fitted is predicted from it. Chance makes twins too where histories are short, or everybody answers the same
  questions, so that as many are allowed for as if only half of the rows were independent. Users who give everything the
  same reward are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import gcd

import numpy as np

from newcomer.arrays import Hashes, Ints
from newcomer.findings import Finding
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import CODED, reduce
from newcomer.users import mix_user_hashes, user_lots

FEWEST = 50  # repeats, or different rows, below which nothing is said
SAME = 0.995  # share of repeats without a new value from which they are copies
VARIED = 0.8  # chance that two rewards of an action agree, up to which that is no accident
TWINS = 10  # users with the history of another, below which nothing is said
ALLOWED = 10.0  # times as many pairs of twins as chance may make
SHARES = 0.01, 0.05  # of the users who are another's twin, from which logs are doubtful, and broken
CROWD = 10.0  # users with one history, on average, above which they are more likely kinds of users than copies
LOOKED = 200_000  # users whose histories are compared
PEOPLE = (
    "Give each person one id and keep one copy of each history; if these are different people, nothing is to be done."
)
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


@dataclass(frozen=True, eq=False)
class Histories:
    """Hashes of the histories of users who gave several rewards: of their actions, of their actions with rewards, (n,),
    and their lengths (n,).
    """

    actions: Hashes
    rows: Hashes
    lengths: Ints

    @classmethod
    def of(cls, batch: Batch, share: float = 1.0) -> Histories:
        """The histories of a batch; the share is drawn by the actions, so that twins are in it together."""
        if batch.actions is None or not len(batch.actions):
            return cls(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
        starts, rewards = batch.offsets[:-1], batch.rewards + 0.0  # no negative zeros
        place = (np.arange(len(rewards)) - np.repeat(starts, batch.lengths)).astype(np.uint64)
        action = mix_user_hashes(mix_user_hashes(place) ^ batch.actions.astype(np.uint64))
        row = mix_user_hashes(action ^ mix_user_hashes(np.ascontiguousarray(rewards).view(np.uint64)))
        actions, rows = (np.add.reduceat(one, starts) for one in (action, row))
        several = np.minimum.reduceat(rewards, starts) < np.maximum.reduceat(rewards, starts)
        kept = several & (user_lots(mix_user_hashes(actions)) < share)
        return cls(actions[kept], rows[kept], batch.lengths[kept])

    def __add__(self, other: Histories) -> Histories:
        return Histories(**{name: np.append(value, getattr(other, name)) for name, value in vars(self).items()})

    def twins(self, alike: float) -> tuple[int, int]:
        """How many users have the history of one before them, and how many histories these are; none where chance may
        have made them, if rewards of an action agree as often as `alike`.
        """
        _, first, together = np.unique(self.actions, return_index=True, return_counts=True)
        chance = float((0.5 * together * (together - 1.0)) @ alike ** (0.5 * self.lengths[first]))
        same = np.unique(self.rows, return_counts=True)[1]
        same = same[same > 1]
        if float((0.5 * same * (same - 1.0)).sum()) <= ALLOWED * chance:
            return 0, 0
        return int((same - 1).sum()), len(same)


def gather_histories(logs: Logs) -> Histories:
    """One pass over the rows."""
    share = min(1.0, LOOKED / max(logs.summary.users, 1))
    return reduce(logs, partial(Histories.of, share=share), Histories.__add__, rows=CODED if logs.by_action else None)


def find_twins(repeats: Finding, histories: Histories, alike: float) -> Finding:
    """The finding on `repeats`, with another verdict where users are copies of others."""
    twins, kinds = histories.twins(alike)
    users = len(histories.lengths)
    if twins < max(TWINS, SHARES[0] * users):
        return repeats
    what = f"{twins:,} of {users:,} users have the actions and the rewards of another user, row by row: the same people"
    what += " under several ids, or copies. A held-out user is then known from a twin, and every gain is too large."
    broken = twins >= SHARES[1] * users and twins + kinds <= CROWD * kinds
    return replace(repeats, verdict="broken" if broken else "doubtful", what=what, advice=PEOPLE)


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
