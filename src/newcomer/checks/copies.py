"""Rows and users that are there twice: a file that was appended to itself, events joined with a rating that stays the
same, or one person under several ids.

Copies look like proof that a user answers the same whenever an action comes again, and the gain of held-out users
counts them as such: a log of noise, written twice, promises as much as real preferences. Three signs give them away.

* **Every row several times.** The numbers of rows that agree in user, action and reward have a common divisor above
  one. Among some dozens of them chance does not do that.
* **Repeats that never differ.** People who rate again differ in two of five cases. Where rewards have several values,
  and nearly no repeat of an action brings the user a new one, rows are copies, or rewards looked up in a table.
* **Users with the same history**: the same actions with the same rewards, in the same order. A held-out user whose twin
  was fitted is predicted from it. Chance makes twins too, and more of them where earlier rewards decide what is shown
  next: users who agree so far go on alike. So users are compared on the first half of their rows as well. Different
  people who agree there part ways in the second half about as often as in the first; copies never do. Histories so
  short that two of them may well agree by chance, and users who give everything the same reward, are not counted.

Twins make logs broken only where hardly anybody else met the same actions in the same order. Where many did, by a form,
a course or a policy, twins may be different people who were led the same way, and are doubtful.
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
RARE = 0.1  # chance that half of the rows of two users agree, below which a history is long enough to be compared
ALLOWED = 3.0  # times as many pairs of twins as chance may make
SHARES = 0.01, 0.05  # of the users who are another's twin, from which logs are doubtful, and broken
ALONE = 0.5  # share of twins among users who met the same actions at first, below which all were led
LOOKED = 200_000  # users whose histories are compared
COMPARED, BINS = 64, 2048  # actions whose rewards are compared, and bins of their hashes
FIRM = 1000.0  # pairs of rows beside which those of all actions count as so many
PEOPLE = (
    "Give each person one id and keep one copy of each history; if these are different people, nothing is to be done."
)
ADVICE = "Remove rows that say nothing new: each must be an outcome of its own, not a copy of one."


@dataclass(frozen=True, eq=False)
class CopyCounts:
    """Of rows that name actions: how many repeat an action of the user, and how many of these bring no new value.

    `different` counts rows that differ in user, action or reward; `divisor` divides how often each of them is there.
    `answers` ((COMPARED + 1) x BINS) counts rows by a hash of their rewards: of some actions each, and of all together.
    `histories` are of users.
    """

    repeats: int
    unchanged: int
    different: int
    divisor: int
    answers: Ints
    histories: HistoryHashes

    @classmethod
    def of(cls, batch: Batch, apart: int = 1, share: float = 1.0, ordered: bool = True) -> CopyCounts:
        """The counts of a batch of whole histories; rewards are compared of actions whose codes are `apart`."""
        actions, answers = batch.actions, np.zeros((COMPARED + 1) * BINS, np.int64)
        histories = HistoryHashes.of(batch, share, ordered)
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
        answers += np.bincount(np.append(cell, COMPARED * BINS + bins[value]), minlength=len(answers))
        divisor = int(np.gcd.reduce(times))
        return cls(len(actions) - met, len(actions) - len(rows), len(rows), divisor, answers, histories)

    def __add__(self, other: CopyCounts) -> CopyCounts:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return CopyCounts(**{**sums, "divisor": gcd(self.divisor, other.divisor)})

    @property
    def alike(self) -> float:
        """How often the rewards of two rows of one action agree; where few rows are compared, of any two rows.

        The few rows of rare actions may all be copies of each other.
        """
        answers = self.answers.reshape(COMPARED + 1, BINS).astype(np.float64)
        shown = answers.sum(axis=1)
        agree, pairs = (answers * (answers - 1.0)).sum(axis=1), shown * (shown - 1.0)
        if not pairs[-1]:
            return 1.0
        return float((agree[:-1].sum() + FIRM * agree[-1] / pairs[-1]) / (pairs[:-1].sum() + FIRM))

    def twins(self, users: int) -> Twins:
        """Which of the `users` in the logs are there under several ids."""
        return self.histories.twins(self.alike, _looked_share(users))


def count_copies(logs: Logs, *, progress: Callable[[int, int], None] | None = None) -> CopyCounts:
    """One pass over the rows."""
    apart = -(-len(logs.action_ids or ()) // COMPARED) or 1
    share, ordered = _looked_share(logs.summary.users), bool(getattr(logs, "ordered", True))
    counted = partial(CopyCounts.of, apart=apart, share=share, ordered=ordered)
    return reduce(logs, counted, CopyCounts.__add__, rows=CODED if logs.by_action else None, progress=progress)


def _looked_share(users: int) -> float:
    return min(1.0, LOOKED / max(users, 1))


def _hashed_rewards(rewards: Floats) -> Hashes:
    """A hash of each reward (n,); zero and its negative are one."""
    return mix_user_hashes(np.ascontiguousarray(rewards + 0.0).view(np.uint64))


@dataclass(frozen=True, eq=False)
class HistoryHashes:
    """Of users who gave several rewards (n,): hashes of all their rows, of the first half of them, and of the actions
    of that half; and their numbers of rows.
    """

    rows: Hashes
    halves: Hashes
    actions: Hashes
    lengths: Ints

    @classmethod
    def of(cls, batch: Batch, share: float = 1.0, ordered: bool = True) -> HistoryHashes:
        """The histories of a batch; the share is drawn by what they hold, so that twins are in it together.

        Where no order is known, rows are put into that of their actions.
        """
        if batch.actions is None or not len(batch.actions):
            empty = np.zeros(0, np.uint64)
            return cls(empty, empty, empty, np.zeros(0, np.int64))
        starts, lengths = batch.offsets[:-1], batch.lengths
        actions, rewards = batch.actions.astype(np.uint64), batch.rewards
        if not ordered:
            order = np.lexsort((rewards, actions, np.repeat(np.arange(len(lengths)), lengths)))
            actions, rewards = actions[order], rewards[order]
        place = np.arange(len(rewards)) - np.repeat(starts, lengths)
        action = mix_user_hashes(mix_user_hashes(place.astype(np.uint64)) ^ actions)
        row = mix_user_hashes(action ^ _hashed_rewards(rewards))
        several = np.minimum.reduceat(rewards, starts) < np.maximum.reduceat(rewards, starts)
        rows = np.add.reduceat(row, starts)
        kept = several & (user_lots(mix_user_hashes(rows)) < share)
        early, length = 2 * place < np.repeat(lengths, lengths), mix_user_hashes(lengths.astype(np.uint64))
        halves, shown = (np.add.reduceat(np.where(early, one, np.uint64(0)), starts) ^ length for one in (row, action))
        return cls(rows[kept], halves[kept], shown[kept], lengths[kept])

    def __add__(self, other: HistoryHashes) -> HistoryHashes:
        return HistoryHashes(**{name: np.append(value, getattr(other, name)) for name, value in vars(self).items()})

    def twins(self, alike: float, share: float = 1.0) -> Twins:
        """The users who have the history of another; none where chance may have made them.

        `alike` is how often two rewards of one action agree. Of pairs of twins the `share` was drawn, of others its
        square.
        """
        long = alike ** (0.5 * self.lengths) < RARE
        same = np.unique(self.rows[long], return_counts=True)[1]
        again = int((same - 1).sum())
        if not again:
            return Twins(0, len(self.rows), led=False)
        twins = _pairs(self.rows[long])
        full, every = twins / share, _pairs(self.lengths[long]) / share**2
        half = full + (_pairs(self.halves[long]) - twins) / share**2
        # People who agreed so far agree more often than others: their second half counts as half as many rows.
        chance = half * np.sqrt(half / max(every, half))
        multiplied = len(same) >= FEWEST and int(np.gcd.reduce(same)) > 1
        if full <= ALLOWED * chance and not multiplied:
            return Twins(0, len(self.rows), led=False)
        alike_shown = full + (_pairs(self.actions[long]) - twins) / share**2
        return Twins(again, len(self.rows), led=not multiplied and full < ALONE * alike_shown)


def _pairs(hashes: Hashes | Ints) -> float:
    """How many pairs of users have the same hash."""
    together = np.unique(hashes, return_counts=True)[1].astype(np.float64)
    return float((0.5 * together * (together - 1.0)).sum())


@dataclass(frozen=True)
class Twins:
    """How many of the `users` looked at have the history of one before them; `led` where many others met the same
    actions in the same order, so that these may be different people.
    """

    users_again: int
    users: int
    led: bool

    @property
    def share(self) -> float:
        """Of the users, those who are there again; zero where they are too few to say anything."""
        return self.users_again / self.users if self.users_again >= TWINS else 0.0


def find_twins(repeats: Finding, found: Twins, judging: Twins) -> Finding:
    """The finding on `repeats`, with another verdict where users are copies of others.

    Only twins among the users who judge make logs broken: where rows have arms, those of the random arm.
    """
    worse = max(found, judging, key=lambda one: one.share)
    if worse.share < SHARES[0]:
        return repeats
    what = f"{worse.users_again:,} of {worse.users:,} users whose rewards differ have the actions and the rewards of"
    what += " another user, row by row: the same people under several ids, or copies"
    what += ", or different people who were shown the same and answered alike." if worse.led else "."
    what += " A held-out user is then known from a twin, and every gain is too large."
    broken = judging.share >= SHARES[1] and not judging.led
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
