"""Survey: what is said about logs as a whole (counts, moments, fingerprint), as sums over users.

The fingerprint is a sum, modulo 2^64, of one hash per user over its id and the sequence of (features, reward), so it
changes with any value or with the order within a user, and with no other order. A row of features x is hashed by
multiply-shift, h(x) = mix(sum_j bits(x_j) a_j) with fixed odd a_j (Dietzfelbinger et al. 1997): one pass, no copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from newcomer.evidence import Summary
from newcomer.logs.batch import Floats, Ints
from newcomer.logs.intake.histories import Histories
from newcomer.logs.intake.items import Items
from newcomer.users import mix

Hashes = NDArray[np.uint64]
CHUNK = 1 << 17


@dataclass(frozen=True)
class Survey:
    """Additive part of a summary; `+` joins the surveys of disjoint users."""

    users: int = 0
    rows: int = 0
    too_short: int = 0
    ties: int = 0
    fingerprint: int = 0
    squared_norm: float = 0.0
    reward: float = 0.0
    squared_reward: float = 0.0
    max_reward: float = 0.0
    dim: int = 0

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            users=self.users + other.users,
            rows=self.rows + other.rows,
            too_short=self.too_short + other.too_short,
            ties=self.ties + other.ties,
            fingerprint=(self.fingerprint + other.fingerprint) % 2**64,
            squared_norm=self.squared_norm + other.squared_norm,
            reward=self.reward + other.reward,
            squared_reward=self.squared_reward + other.squared_reward,
            max_reward=max(self.max_reward, other.max_reward),
            dim=max(self.dim, other.dim),
        )

    def summary(self, *, dim: int, intercept: bool) -> Summary:
        """The public record."""
        mean = self.reward / self.rows
        return Summary(
            users=self.users,
            rows=self.rows,
            dim=dim,
            usable=self.users - self.too_short,
            too_short=self.too_short,
            ties=self.ties,
            fingerprint=f"{(self.fingerprint + intercept) % 2**64:016x}",
            mean_squared_norm=self.squared_norm / self.rows + intercept,
            mean_reward=mean,
            reward_deviation=float(np.sqrt(max(0.0, self.squared_reward / self.rows - mean * mean))),
            max_reward=self.max_reward,
        )


def survey(part: Histories, items: Items | None) -> Survey:
    """Survey of some users' histories, a slice at a time so that temporaries stay small."""
    described = None if items is None else _describe_items(items)
    slices = (part.slice(first, last) for first, last in part.cuts(CHUNK))
    return reduce(add, (_survey(piece, described) for piece in slices), Survey(ties=part.ties))


def _survey(part: Histories, items: tuple[Floats, Hashes] | None) -> Survey:
    norms, hashes = _describe_rows(part, items)
    return Survey(
        users=len(part.users),
        rows=part.rows,
        too_short=int(np.count_nonzero(np.diff(part.offsets) < 2)),
        fingerprint=_fingerprint(part, hashes),
        squared_norm=float(norms.sum()),
        reward=float(part.rewards.sum()),
        squared_reward=float(part.rewards @ part.rewards),
        max_reward=float(np.abs(part.rewards).max()),
        dim=0 if part.features is None else int(part.features.shape[1]),
    )


def _describe_rows(part: Histories, items: tuple[Floats, Hashes] | None) -> tuple[Floats, Hashes]:
    """Squared norms and hashes of the features of every row; those of items are worked out once per item."""
    if part.features is not None:
        return _describe(part.features)
    assert items is not None and part.actions is not None
    return items[0][part.actions], items[1][part.actions]


def _describe_items(items: Items) -> tuple[Floats, Hashes]:
    if items.matrix is not None:
        return _describe(items.matrix)
    one = np.ones(1).view(np.uint64)
    return np.ones(items.dim), mix(one * _multipliers(items.dim))


def _describe(features: NDArray[np.floating]) -> tuple[Floats, Hashes]:
    """Squared norms (n,) and hashes (n,) of rows (n, d), some rows at a time."""
    step = max(1, CHUNK // max(1, features.shape[1]))
    pieces = [_describe_piece(features[i : i + step]) for i in range(0, len(features), step)]
    return np.concatenate([norms for norms, _ in pieces]), np.concatenate([hashes for _, hashes in pieces])


def _describe_piece(features: NDArray[np.floating]) -> tuple[Floats, Hashes]:
    exact = features.astype(np.float64) + 0.0  # + 0.0 turns -0.0 into 0.0
    return np.einsum("ij,ij->i", exact, exact), mix(exact.view(np.uint64) @ _multipliers(exact.shape[1]))


def _multipliers(dim: int) -> Hashes:
    return mix(np.arange(dim, dtype=np.uint64)) | np.uint64(1)


def _fingerprint(part: Histories, features: Hashes) -> int:
    """Sum over users of a hash of (id, sequence of (features, reward, propensity))."""
    columns = [column for column in (part.rewards, part.propensities) if column is not None]
    rows = reduce(lambda seen, column: mix(seen + (column + 0.0).view(np.uint64)), columns, features)
    rows = mix(rows + _positions(part.offsets))
    users = mix(part.hashes + np.add.reduceat(rows, part.offsets[:-1]))
    return int(users.sum())


def _positions(offsets: Ints) -> Hashes:
    """0, 1, 2, ... within each user."""
    lengths = np.diff(offsets)
    return (np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).astype(np.uint64)
