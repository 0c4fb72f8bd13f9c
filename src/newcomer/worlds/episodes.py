"""Worlds: where newcomers come from.

A world draws newcomers. One newcomer is an `Episode`: the candidates of every round and the outcome of *every*
candidate, so that all policies are compared on the same users, the same action sets and the same noise. Anything with
`dim` and `episode` can be played: a synthetic world, or a replay of logged ratings whose means are its rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import NewcomerError

if TYPE_CHECKING:
    from newcomer.logs import Logs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Episode:
    """One newcomer over T rounds of K candidates.

    `actions` (T, K, d) are the candidates' features, `means` (T, K) their expected rewards, from which regret is
    counted, `rewards` (T, K) what choosing each would have paid. `mask` (T, K), if given, is False where a candidate is
    not on offer.
    """

    actions: Floats
    means: Floats
    rewards: Floats
    mask: NDArray[np.bool_] | None = None

    @property
    def best(self) -> Floats:
        """Largest expected reward on offer in each round, (T,)."""
        offered = self.means if self.mask is None else np.where(self.mask, self.means, -np.inf)
        return np.asarray(offered.max(axis=1))


@dataclass(frozen=True)
class LogRows:
    """Some users' log rows, users in order and each user's rows in time order.

    `user`, `step` and `reward` are (rows,), `features` (rows, d); `action` (rows,) indexes the catalogue if there is one.
    """

    user: Ints
    step: Ints
    features: Floats
    reward: Floats
    action: Ints | None = None


@runtime_checkable
class Newcomers(Protocol):
    """What `play` needs of a world."""

    @property
    def dim(self) -> int:
        """Feature dimension d."""

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer for `horizon` rounds; everything random comes from `rng`."""


@runtime_checkable
class World(Newcomers, Protocol):
    """A world that has logs of earlier users too."""

    def logs(self, users: int, steps: int, seed: int) -> Logs:
        """Histories of `users` earlier users; the first n are the same for any number of users."""


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """An independent generator for one purpose and one index (a user, a block), the same whatever else is drawn."""
    if seed < 0:
        raise NewcomerError("a seed must not be negative", where=f"seed={seed}", todo="pass 0 or a positive integer")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *index)))
