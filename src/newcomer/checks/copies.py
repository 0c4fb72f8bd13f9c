"""Rows and users that are there twice: a file that was appended to itself, events joined with a rating that stays the
same, or one person under several ids.

Copies look like proof that a user answers the same whenever an action comes again, and the gain of held-out users
counts them as such: a log of noise, written twice, promises as much as real preferences. Three signs give them away.

* **Every row several times.** The numbers of rows that agree in user, action and reward have a common divisor above
  one. Among some dozens of them chance does not do that.
* **Repeats that never differ.** People who rate again differ in two of five cases. Where rewards have several values,
  and nearly no repeat of an action brings the user a new one, rows are copies, or rewards looked up in a table.
* **Users with the same history**: the same actions with the same rewards, in the same order. A held-out user whose twin
  was fitted is predicted from it. Chance makes twins too where everybody answers the same questions, so that as many
  are allowed for as if only half of the rows were independent. Histories so short that two of them may well agree by
  chance, and users who give everything the same reward, are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import gcd

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints
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
COMPARED, BINS = 64, 2048  # actions whose rewards are compared, and bins of their hashes
PEOPLE = (
    "Give each person one id and keep one copy of each history; if these are different people, nothing is to be done."
)
ADVICE = "Remove rows that say nothing new: each must be an outcome of its own, not a copy of one."


@dataclass(frozen=True, eq=False)
class CopyCounts:
    """Of rows that name actions: how many repeat an action of the user, and how many of these bring no new value.

    `different` counts rows that differ in user, action or reward; `divisor` divides how often each of them is there.
    `answers` (COMPARED x BINS) counts the rows of some actions by a hash of their rewards. `histories` are of users.
    """

    repeats: int
    unchanged: int
    different: int
    divisor: int
    answers: Ints
    histories: HistoryHashes

    @classmethod
    def of(cls, batch: Batch, apart: int = 1, share: float = 1.0) -> CopyCounts:
        """The counts of a batch of whole histories; rewards are compared of actions whose codes are `apart`."""
        actions, answers = batch.actions, np.zeros(COMPARED * BINS, np.int64)
        histories = HistoryHashes.of(batch, share)
        if actions is None or not len(actions):
            return cls(0, 0, 0, 0, answers, histories)
        values, value = np.unique(batch.rewards, return_inverse=True)
        user = np.repeat(np.arange(len(batch.users)), batch.lengths)
        meeting = user * (int(actions.max()) + 1) + actions
        rows, times = np.unique(meeting * len(values) + value, return_counts=True)
        kinds = rows // len(values)  # ascending, too
        met = 1 + int((kinds[1:] != kinds[:-1]).sum())
        bins = (_hashed_rewards(values) % np.uint64(BINS)).astype(np.int64)
        compared = actions % apart == 0
        cell = (actions[compared] // apart) % COMPARED * BINS + bins[value[compared]]
        answers += np.bincount(cell, minlength=len(answers))
        divisor = int(np.gcd.reduce(times))
        return cls(len(actions) - met, len(actions) - len(rows), len(rows), divisor, answers, histories)

    def __add__(self, other: CopyCounts) -> CopyCounts:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return CopyCounts(**{**sums, "divisor": gcd(self.divisor, other.divisor)})

    @property
    def alike(self) -> float:
        """How often the rewards of two rows of one action agree; of the actions that are compared."""
        answers = self.answers.reshape(COMPARED, BINS).astype(np.float64)
        shown = answers.sum(axis=1)
        pairs = float((shown * (shown - 1.0)).sum())
        return float((answers * (answers - 1.0)).sum()) / pairs if pairs else 1.0


def count_copies(logs: Logs, *, progress: Callable[[int, int], None] | None = None) -> CopyCounts:
    """One pass over the rows."""
    actions = len(logs.action_ids or ())
    counted = partial(CopyCounts.of, apart=-(-actions // COMPARED) or 1, share=_looked_share(logs.summary.users))
    return reduce(logs, counted, CopyCounts.__add__, rows=CODED if logs.by_action else None, progress=progress)


def _looked_share(users: int) -> float:
    return min(1.0, LOOKED / max(users, 1))


def _hashed_rewards(rewards: Floats) -> Hashes:
    """A hash of each reward (n,); zero and its negative are one."""
    return mix_user_hashes(np.ascontiguousarray(rewards + 0.0).view(np.uint64))


@dataclass(frozen=True, eq=False)
class HistoryHashes:
    """Hashes of the histories of users who gave several rewards: of their actions, of their actions with rewards, (n,),
    and their lengths (n,).
    """

    actions: Hashes
    rows: Hashes
    lengths: Ints

    @classmethod
    def of(cls, batch: Batch, share: float = 1.0) -> HistoryHashes:
        """The histories of a batch; the share is drawn by what they hold, so that twins are in it together."""
        if batch.actions is None or not len(batch.actions):
            return cls(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
        starts, rewards = batch.offsets[:-1], batch.rewards
        place = (np.arange(len(rewards)) - np.repeat(starts, batch.lengths)).astype(np.uint64)
        action = mix_user_hashes(mix_user_hashes(place) ^ batch.actions.astype(np.uint64))
        row = mix_user_hashes(action ^ _hashed_rewards(rewards))
        actions, rows = (np.add.reduceat(one, starts) for one in (action, row))
        several = np.minimum.reduceat(rewards, starts) < np.maximum.reduceat(rewards, starts)
        kept = several & (user_lots(mix_user_hashes(rows)) < share)
        return cls(actions[kept], rows[kept], batch.lengths[kept])

    def __add__(self, other: HistoryHashes) -> HistoryHashes:
        return HistoryHashes(**{name: np.append(value, getattr(other, name)) for name, value in vars(self).items()})

    def twins(self, alike: float, share: float = 1.0) -> Twins:
        """The users who have the history of another; none where chance may have made them, if rewards of an action
        agree as often as `alike`.
        """
        long = ALLOWED * alike ** (0.5 * self.lengths) < 1.0
        _, first, together = np.unique(self.actions[long], return_index=True, return_counts=True)
        # Users with the same actions are both in the share with its square, those who agree in all rewards with it.
        chance = float((0.5 * together * (together - 1.0)) @ alike ** (0.5 * self.lengths[long][first])) / share
        same = np.unique(self.rows[long], return_counts=True)[1]
        same = same[same > 1]
        if float((0.5 * same * (same - 1.0)).sum()) <= ALLOWED * chance:
            return Twins(0, 0, len(self.rows), False)
        course = int(together.max(initial=0)) > 0.5 * len(self.rows)
        return Twins(int((same - 1).sum()), len(same), len(self.rows), course)


@dataclass(frozen=True)
class Twins:
    """How many of the `users` have the history of one before them, how many histories these are, and whether most users
    met the same actions in the same order (a `course`).
    """

    users_again: int
    histories: int
    users: int
    course: bool


def find_twins(repeats: Finding, counts: CopyCounts, users: int) -> Finding:
    """The finding on `repeats`, with another verdict where users are copies of others; `users` are in the logs."""
    found = counts.histories.twins(counts.alike, _looked_share(users))
    again, kinds = found.users_again, found.histories
    if again < max(TWINS, SHARES[0] * found.users):
        return repeats
    what = f"{again:,} of {found.users:,} users have the actions and the rewards of another user, row by row: the same"
    what += " people under several ids, or copies"
    what += ", or many with the same answers to the same questions." if found.course else "."
    what += " A held-out user is then known from a twin, and every gain is too large."
    broken = again >= SHARES[1] * found.users and again + kinds <= CROWD * kinds and not found.course
    return replace(repeats, verdict="broken" if broken else "doubtful", what=what, advice=PEOPLE)


def find_copies(repeats: Finding, counts: CopyCounts) -> Finding:
    """The finding on `repeats`, with another verdict where rows are copies."""
    if counts.divisor > 1 and counts.different >= FEWEST:
        what = f"Every row is there {counts.divisor} times: the numbers of rows that agree in user, action and reward"
        return replace(repeats, verdict="broken", what=f"{what} are multiples of {counts.divisor}.", advice=ADVICE)
    same = counts.unchanged / max(counts.repeats, 1)
    if repeats.verdict != "broken" and counts.repeats >= FEWEST and same >= SAME and counts.alike <= VARIED:
        what = f"{counts.repeats:,} rows repeat an action of the same user, and {same:.1%} of them bring the reward of"
        what += " before to the digit: copies of rows, or rewards that are looked up and not observed anew."
        return replace(repeats, verdict="doubtful", what=what, advice=ADVICE)
    return repeats
