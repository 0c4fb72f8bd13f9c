"""Totals of logs: counts, moments and the fingerprint, as sums over users, from which the summary is made.

The fingerprint is a sum, modulo 2^64, of one hash per user over its id and the sequence of (features, reward), so it
changes with any value or with the order within a user, and with no other order. A row of features x is hashed by
multiply-shift, h(x) = mix(sum_j bits(x_j) a_j) with fixed odd a_j (Dietzfelbinger et al. 1997): one pass, no copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Hashes
from newcomer.evidence import Summary
from newcomer.logs.candidates import NOWHERE
from newcomer.logs.histories import Histories, Limits, hash_users
from newcomer.logs.items import Items
from newcomer.logs.reward_histogram import RewardHistogram
from newcomer.transforms import Transform
from newcomer.users import mix

CHUNK = 1 << 17


@dataclass(frozen=True)
class LogTotals:
    """Additive part of a summary; `+` joins those of disjoint users.

    Sums over rows (`squared_norm` of |x|^2, `reward`, `squared_reward`) and over users; `dim` is 0 where features come
    from the catalogue. Of the `candidates` in all rows, `nowhere` were never chosen in any. `rewards` is the histogram
    of all rewards as they were read, before any was clipped.
    """

    users: int = 0
    rows: int = 0
    too_short: int = 0
    ties: int = 0
    clipped: int = 0
    fingerprint: int = 0
    squared_norm: float = 0.0
    reward: float = 0.0
    squared_reward: float = 0.0
    max_reward: float = 0.0
    dim: int = 0
    candidates: int = 0
    nowhere: int = 0
    rewards: RewardHistogram = field(default_factory=RewardHistogram)

    def __add__(self, other: LogTotals) -> LogTotals:
        return LogTotals(
            users=self.users + other.users,
            rows=self.rows + other.rows,
            too_short=self.too_short + other.too_short,
            ties=self.ties + other.ties,
            clipped=self.clipped + other.clipped,
            fingerprint=self.fingerprint + other.fingerprint,
            squared_norm=self.squared_norm + other.squared_norm,
            reward=self.reward + other.reward,
            squared_reward=self.squared_reward + other.squared_reward,
            max_reward=max(self.max_reward, other.max_reward),
            dim=max(self.dim, other.dim),
            candidates=self.candidates + other.candidates,
            nowhere=self.nowhere + other.nowhere,
            rewards=self.rewards + other.rewards,
        )

    def summary(
        self,
        *,
        dim: int,
        intercept: bool,
        limits: Limits | None = None,
        arms: tuple[str, ...] = (),
        transform: Transform | None = None,
    ) -> Summary:
        """The public record; a constant feature adds 1 to every |x|^2, and changes the fingerprint.

        The names of the `arms` are part of the fingerprint, too: rows have their numbers alone.
        """
        mean, spread = self.reward / self.rows, self.rewards.spread(limits)
        values = self.rewards.listed(limits)[0]
        return Summary(
            users=self.users,
            rows=self.rows,
            dim=dim,
            usable=self.users - self.too_short,
            too_short=self.too_short,
            ties=self.ties,
            fingerprint=f"{(self.fingerprint + intercept + _named(arms)) % 2**64:016x}",
            mean_squared_norm=self.squared_norm / self.rows + intercept,
            mean_reward=mean,
            reward_deviation=float(np.sqrt(max(0.0, self.squared_reward / self.rows - mean * mean))),
            max_reward=self.max_reward,
            median_reward=spread.median,
            robust_deviation=spread.deviation,
            far_rewards=spread.far,
            tail_share=spread.tails,
            reward_step=spread.step if transform is None else 0.0,
            least_reward=float(values[0]) if len(values) else None,
            reward_transform=transform,
            clip=limits,
            clipped=self.clipped,
        )


def _named(arms: tuple[str, ...]) -> int:
    """A number that depends on the names of arms; 0 without any."""
    return int(hash_users(pl.Series(arms)).sum()) if arms else 0


def totals_of(part: Histories, items: Items | None) -> LogTotals:
    """The totals of some users' histories, a slice at a time so that temporaries stay small.

    What is said of features is worked out once for each item where features come from the catalogue.
    """
    described = _describe_items(items) if part.features is None and items is not None else None
    slices = (part.slice(first, last) for first, last in part.cuts(CHUNK))
    return reduce(
        add, (_batch_totals(piece, described) for piece in slices), LogTotals(ties=part.ties, clipped=part.clipped)
    )


def _batch_totals(part: Histories, items: tuple[Floats, Hashes] | None) -> LogTotals:
    """The totals of a slice; without features in the rows, what is known of `items` (norms, hashes) is looked up."""
    if part.features is not None:
        norms, hashes = _describe(part.features)
    else:
        assert items is not None and part.actions is not None
        norms, hashes = items[0][part.actions], items[1][part.actions]
    shown = part.candidates
    return LogTotals(
        users=len(part.users),
        rows=part.rows,
        too_short=int(np.count_nonzero(np.diff(part.offsets) < 2)),
        fingerprint=_fingerprint(part, hashes),
        squared_norm=float(norms.sum()),
        reward=float(part.rewards.sum()),
        squared_reward=float(part.rewards @ part.rewards),
        max_reward=float(np.abs(part.rewards).max()),
        dim=0 if part.features is None else int(part.features.shape[1]),
        candidates=0 if shown is None else len(shown.actions),
        nowhere=0 if shown is None else int(np.count_nonzero(shown.actions == NOWHERE)),
    )


def _describe_items(items: Items) -> tuple[Floats, Hashes]:
    """Squared norms and hashes (items,) of the catalogue: one-hot item j has norm 1 and hash mix(bits(1) a_j)."""
    if items.matrix is not None:
        return _describe(items.matrix)
    one = np.ones(1).view(np.uint64)
    return np.ones(items.dim), mix(one * _multipliers(items.dim))


def _describe(features: NDArray[np.floating]) -> tuple[Floats, Hashes]:
    """Squared norms (n,) and hashes (n,) of rows (n, d), some rows at a time."""
    norms, hashes = np.empty(len(features)), np.empty(len(features), np.uint64)
    multipliers, step = _multipliers(features.shape[1]), max(1, CHUNK // max(1, features.shape[1]))
    for i in range(0, len(features), step):
        exact = features[i : i + step].astype(np.float64) + 0.0  # + 0.0 turns -0.0 into 0.0
        norms[i : i + step] = np.einsum("ij,ij->i", exact, exact)
        hashes[i : i + step] = mix(exact.view(np.uint64) @ multipliers)
    return norms, hashes


def _multipliers(dim: int) -> Hashes:
    """The fixed odd numbers a_j, (d,)."""
    return mix(np.arange(dim, dtype=np.uint64)) | np.uint64(1)


def _fingerprint(part: Histories, features: Hashes) -> int:
    """Sum over users of a hash of (id, sequence of (features, reward, propensity)), from hashes of features (rows,).

    Within a user the hash of a row depends on its position, so that the order counts; across users it is a sum. Actions
    beside features are left out: the fingerprint is of what a fit reads. Candidates, as a set, and arms count where
    there are some.
    """
    columns = [column for column in (part.rewards, part.propensities) if column is not None]
    rows = reduce(lambda seen, column: mix(seen + (column + 0.0).view(np.uint64)), columns, features)
    if part.candidates is not None:
        each = mix(part.candidates.actions.astype(np.int64).view(np.uint64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each)])[part.candidates.offsets]
        rows = mix(rows + np.diff(sums))  # modulo 2^64: 0 for a row that offered the whole catalogue
    if part.arms is not None:
        rows = mix(rows + part.arms.astype(np.uint64))
    lengths = np.diff(part.offsets)
    positions = np.arange(part.rows) - np.repeat(part.offsets[:-1], lengths)  # 0, 1, 2, ... within each user
    rows = mix(rows + positions.astype(np.uint64))
    users = mix(part.hashes + np.add.reduceat(rows, part.offsets[:-1]))
    return int(users.sum())
