"""Who is fitted to, who is held out, and who is looked at: all by hashes of users.

The split is not the one that a fit makes for itself (`users.folds` of the plain hashes): a fit has to find people of
every one of its own folds among those it is given.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from newcomer.arrays import Bools, Hashes, Ints
from newcomer.errors import LogsError
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.logs.logbook import Logs
from newcomer.users import bucket_of, folds, lots, reshuffled

BUCKETS = 64
FEW = 500  # users below whom every fifth is held out in turn, whatever it costs ...
MANY, AFFORDABLE = 10_000, 200_000  # ... and below which it is done where five fits of so many rows are quick
SPLIT, LOOKED_AT, LEARNED = 1, 2, 3  # purposes of hashes


@dataclass(frozen=True)
class Chosen:
    """Says of hashes whether their users are in some buckets, and among a share of these drawn by lot."""

    buckets: Bools
    seed: int
    share: float = 1.0
    purpose: int = LOOKED_AT

    def __call__(self, hashes: Hashes) -> Bools:
        inside = self.buckets[bucket_of(reshuffled(hashes, self.seed, SPLIT), BUCKETS)]
        drawn = lots(reshuffled(hashes, self.seed, self.purpose)) < self.share
        return np.asarray(inside & drawn)


@dataclass(frozen=True)
class Fold:
    """One split: the logs to fit to, and those of people to be judged by."""

    fitted: Bools
    judged: Bools
    seed: int

    def to_fit(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are fitted to, or of a share of them; smaller shares are within larger ones."""
        return logs.some(Chosen(self.fitted, self.seed, share, LEARNED))

    def held_out(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are held out, or of a share of them."""
        return logs.some(Chosen(self.judged, self.seed, share, LOOKED_AT))


def split(logs: Logs, seed: int, *, rows: int) -> tuple[list[Fold], int]:
    """The folds, and how many of all people who have at least `rows` rows they hold out."""
    counts = reduce(logs, partial(_count, seed=seed, rows=rows), operator.add)
    every = counts.sum() < FEW or (counts.sum() < MANY and logs.summary.rows <= AFFORDABLE)
    splits = folds(counts, every=True)
    found = [Fold(one.fitted, one.judged, seed) for one in (splits if every else splits[:1])]
    if not found:
        raise LogsError(
            f"{int(counts.sum()):,} of {logs.summary.users:,} users have the {rows} rows that it takes to judge a fit",
            todo="log more rows of more users; 150 users of 10 rows are a beginning",
        )
    return found, int(sum(counts[fold.judged].sum() for fold in found))


def _count(batch: Batch, *, seed: int, rows: int) -> Ints:
    """Users with enough rows, by bucket."""
    able = batch.hashes[batch.lengths >= rows]
    return np.bincount(bucket_of(reshuffled(able, seed, SPLIT), BUCKETS), minlength=BUCKETS).astype(np.int64)


def shares_of(users: int, least: int) -> Iterator[float]:
    """An eighth, a quarter and a half, where they leave at least so many users."""
    return (share for share in (0.125, 0.25, 0.5) if users * share >= least)
