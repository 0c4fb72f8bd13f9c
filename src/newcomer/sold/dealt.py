"""Halves dealt by lot, for logs in which everybody met the same actions in the same order.

SOLD takes odd and even steps for its two halves. In a questionnaire that everybody answers from the first question to
the last, each question is then in one half only, for all users, and no pair of halves meets. A user's rows may be
parted in any way that does not depend on the rewards; here the order is drawn by a hash of the user's id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.users import mix_user_hashes

Partial = TypeVar("Partial")


@dataclass(frozen=True)
class DealtPass:
    """A pass over the same logs, each user's rows in an order drawn by lot."""

    run: Pass

    def __call__(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial], /) -> Partial:
        """One pass."""
        return self.run(DealtMap(map), merge)


@dataclass(frozen=True)
class DealtMap(Generic[Partial]):
    """A map of batches, given them dealt."""

    map: Callable[[Batch], Partial]

    def __call__(self, batch: Batch) -> Partial:
        return self.map(dealt_batch(batch))


def dealt_batch(batch: Batch) -> Batch:
    """The users of a batch with their rows in an order drawn by lot, the same whatever batch they are in.

    >>> batch = Batch(np.arange(1), np.array([8], np.uint64), np.array([0, 4]), np.arange(4.0), np.eye(4))
    >>> dealt_batch(batch).rewards.tolist(), dealt_batch(batch).features.argmax(axis=1).tolist()
    ([1.0, 3.0, 0.0, 2.0], [1, 3, 0, 2])
    """
    lengths = batch.lengths
    user = np.repeat(np.arange(len(lengths)), lengths)
    place = (np.arange(len(user)) - np.repeat(batch.offsets[:-1], lengths)).astype(np.uint64)
    order = np.lexsort((mix_user_hashes(np.repeat(batch.hashes, lengths) ^ mix_user_hashes(place)), user))
    return Batch(
        batch.users,
        batch.hashes,
        batch.offsets,
        batch.rewards[order],
        row_features=None if batch.row_features is None else batch.row_features[order],
        table=batch.table,
        actions=None if batch.actions is None else batch.actions[order],
    )
