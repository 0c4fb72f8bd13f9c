"""Who is fitted to, who is held out, and who is looked at: all by hashes of users.

Who is held out is told by the buckets of a fit to all users (`newcomer.users.folds`), so that what is compared here is
judged by the people who judged that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Bools, Hashes
from newcomer.logs.logs import Logs
from newcomer.users import Purpose, UserSample, bucket_of


@dataclass(frozen=True)
class InBuckets:
    """Says of hashes whether their users are in some buckets, and among a share of these drawn by lot."""

    buckets: Bools
    seed: int
    share: float = 1.0
    purpose: Purpose = "judge"

    def __call__(self, hashes: Hashes) -> Bools:
        inside = self.buckets[bucket_of(hashes, len(self.buckets))]
        return np.asarray(inside & UserSample(self.purpose, self.share, self.seed)(hashes))


@dataclass(frozen=True)
class Fold:
    """One split: the logs to fit to, and those of people to be judged by."""

    fitted: Bools
    judged: Bools
    seed: int

    def to_fit(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are fitted to, or of a share of them; smaller shares are within larger ones."""
        return logs.some(InBuckets(self.fitted, self.seed, share, "learning curve"))

    def held_out(self, logs: Logs, share: float = 1.0) -> Logs:
        """The logs of those who are held out, or of a share of them: users who judged the fit."""
        return logs.some(InBuckets(self.judged, 0, share, "judge"))


def shares_of(users: int, least: int) -> Iterator[float]:
    """An eighth, a quarter and a half, where they leave at least so many users."""
    return (share for share in (0.125, 0.25, 0.5) if users * share >= least)
