"""Gathering: the one pass over the logs that every check needs, as sums and a sample of users.

Sums over all rows say how often each action was shown and what its propensities were. The tests look at whole people
instead, at most some tens of thousands of them: those whose hashed id is below a threshold, so that who is looked at
does not depend on the order of files, batches or workers. Of each the first `LONGEST` rows are kept, with the action
they name, or their features (mapped to `WIDEST` random directions if they are more). Kept people are sorted by hash
at the end, whoever gathered them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.users import UserSample

MOST = 20_000  # people looked at
LONGEST = 128  # rows kept of each
WIDEST = 64  # features kept of each row
COORDINATES = 32  # that the tests give to each row
NUMBERS = 10_000_000  # of all rows in one array: 80 MB, and some such arrays are there at a time
BATCH = 1 << 18  # rows of a batch that brings no features
LENGTHS = 1025  # history lengths that are counted apart; the last counts all longer ones
SIZES = np.unique(np.rint(2 ** np.arange(1, 7.01, 0.25))).astype(np.int64)  # of windows: four an octave, to LONGEST


@dataclass(frozen=True)
class Propensities:
    """Sums over the rows of each action (A,): 1/p, its square, and the least and largest p; one entry without names."""

    inverse: Floats
    squares: Floats
    least: Floats
    largest: Floats

    def __add__(self, other: Propensities) -> Propensities:
        least, largest = np.minimum(self.least, other.least), np.maximum(self.largest, other.largest)
        return Propensities(self.inverse + other.inverse, self.squares + other.squares, least, largest)


@dataclass(frozen=True)
class CheckSample:
    """What one pass gives: counts over everybody, and n people with their rows.

    `lengths` (LENGTHS,) counts users by length, `shown` (A,) rows by action (empty without names); `propensities` is
    None where none were logged. Of the people: `hashes` (n,), whole `length` (n,), `kept` rows (n,); of their rows:
    `rewards` (R,), `actions` (R,) or empty, `features` (R, q) or empty (R, 0), and `gram` (d, d), the sum of x x^T, or
    empty where features follow from the action or are too many.
    """

    lengths: Ints
    shown: Ints
    propensities: Propensities | None
    hashes: Hashes
    length: Ints
    kept: Ints
    rewards: Floats
    actions: Ints
    features: Floats
    gram: Floats

    def __add__(self, other: CheckSample) -> CheckSample:
        both = (self.propensities, other.propensities)
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _PEOPLE}
        summed = {name: getattr(self, name) + getattr(other, name) for name in ("lengths", "shown", "gram")}
        odds = None if both[0] is None or both[1] is None else both[0] + both[1]
        return CheckSample(propensities=odds, **joined, **summed)

    def in_order(self) -> CheckSample:
        """The same with people sorted by hash, so that it does not matter who gathered them and when."""
        order = np.argsort(self.hashes, kind="stable")
        starts = np.cumsum(self.kept) - self.kept
        rows = flat(starts[order], self.kept[order])
        people = {name: getattr(self, name)[order] for name in ("hashes", "length", "kept")}
        columns = {name: getattr(self, name) for name in ("rewards", "actions", "features")}
        columns = {name: column[rows] if len(column) else column for name, column in columns.items()}
        return CheckSample(self.lengths, self.shown, self.propensities, gram=self.gram, **people, **columns)


_PEOPLE = ("hashes", "length", "kept", "rewards", "actions", "features")


def take_sample(logs: Logs, *, progress: Callable[[int, int], None] | None = None) -> CheckSample:
    """One pass over the logs."""
    width = 0 if logs.by_action else min(logs.dim, WIDEST)
    average = min(logs.summary.rows / max(logs.summary.users, 1), LONGEST)
    most = min(MOST, int(NUMBERS / ((width + COORDINATES) * average)))
    share = min(1.0, most / max(logs.summary.usable, 1))
    look = partial(look_at, share=share, actions=len(logs.action_ids or ()), width=width)
    # Where features are not looked at, batches may be long: joining many short ones would copy people again and again.
    return reduce(logs, look, _join, rows=None if width else BATCH, progress=progress).in_order()


def _join(one: CheckSample, other: CheckSample) -> CheckSample:
    return one + other


def look_at(batch: Batch, *, share: float, actions: int, width: int) -> CheckSample:
    """What a batch gives: the map of the pass."""
    lengths = batch.lengths
    who = np.flatnonzero(UserSample("checks", share)(batch.hashes) & (lengths >= 2))
    kept = np.minimum(lengths[who], LONGEST)
    rows = flat(batch.offsets[:-1][who], kept)
    whole = batch.take(rows) if width else np.zeros((0, 0))
    return CheckSample(
        lengths=np.bincount(np.minimum(lengths, LENGTHS - 1), minlength=LENGTHS),
        shown=np.bincount(batch.actions, minlength=actions) if batch.actions is not None else np.zeros(0, np.int64),
        propensities=_propensities(batch, actions),
        hashes=batch.hashes[who],
        length=lengths[who],
        kept=kept,
        rewards=batch.rewards[rows],
        actions=np.zeros(0, np.int64) if batch.actions is None else batch.actions[rows],
        features=narrow(whole, width),
        gram=whole.T @ whole if whole.shape[1] <= 4 * WIDEST else np.zeros((0, 0)),
    )


def _propensities(batch: Batch, actions: int) -> Propensities | None:
    """Sums by action of what the propensities of a batch say."""
    if batch.propensities is None:
        return None
    which = np.zeros(len(batch.rewards), np.int64) if batch.actions is None else batch.actions
    odds, size = 1.0 / batch.propensities, max(actions, 1)
    least, largest = np.ones(size), np.zeros(size)
    np.minimum.at(least, which, batch.propensities)
    np.maximum.at(largest, which, batch.propensities)
    sums = [np.bincount(which, weights=odds**power, minlength=size).astype(np.float64) for power in (1, 2)]
    return Propensities(sums[0], sums[1], least, largest)


def flat(starts: Ints, counts: Ints) -> Ints:
    """The places start, start + 1, ... of `counts` rows from each of the `starts`, one after another.

    >>> flat(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def narrow(features: Floats, width: int) -> Floats:
    """Features (rows, d) as they are, or along `width` random directions that depend on d alone."""
    return features if features.shape[1] <= width else features @ random_directions(features.shape[1], width)


def random_directions(dim: int, count: int) -> Floats:
    """Directions (dim, count) of norm about 1, the same whenever they are asked for."""
    return np.asarray(np.random.default_rng([dim, count]).standard_normal((dim, count)) / np.sqrt(dim))
