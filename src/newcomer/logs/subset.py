"""Some of the users of logs: the same histories without the others, the catalogue as it was.

Who is taken is decided by the hash of the user alone, so that every source, engine and order gives the same people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from newcomer.arrays import Bools, Hashes, Ints
from newcomer.errors import LogsError
from newcomer.logs.disk_store import DiskStore, Scratch
from newcomer.logs.engine import Engine
from newcomer.logs.histories import Histories, Limits
from newcomer.logs.items import Items
from newcomer.logs.memory_store import Held, Source
from newcomer.logs.reward_histogram import RewardHistogram
from newcomer.logs.summary import LogTotals, totals_of

Keep = Callable[[Hashes], Bools]


class UserFilter:
    """A source that hands out some users of another, chosen anew at every pass: nothing is copied to keep."""

    def __init__(self, source: Source, keep: Keep) -> None:
        self._source, self._keep = source, keep
        self.limits: Limits | None = source.limits

    def parts(self) -> Iterator[Histories]:
        """What is left of each part, if anybody is."""
        for part in self._source.parts():
            who = np.flatnonzero(self._keep(part.hashes))
            if len(who):
                yield taken(part, who)

    def close(self) -> None:
        """Nothing of its own to release."""


class Kept:
    """Parts held in memory."""

    def __init__(self, parts: list[Histories], limits: Limits | None) -> None:
        self._parts, self.limits = parts, limits

    def parts(self) -> Iterator[Histories]:
        """One after another."""
        return iter(self._parts)

    def close(self) -> None:
        """Nothing to release."""


def keep_users(source: Source, keep: Keep, items: Items | None, engine: Engine | None) -> tuple[Source, LogTotals]:
    """The users for whose hashes `keep` is true, in a disk store where workers are to read them, and their totals."""
    left: Source = UserFilter(source, keep)
    if engine is not None:
        left = DiskStore.holding(left.parts(), engine.room(), left.limits)
    elif isinstance(source, Held | Kept):  # what is in memory is copied once
        left = Kept(list(left.parts()), left.limits)
    total = _totals(left, items)
    if not total.users:
        raise LogsError("none of the users is left", todo="keep some of them")
    return left, total


def keep_parts(
    source: Source, choose: Callable[[Histories], Histories | None], items: Items | None, engine: Engine | None
) -> tuple[Source, LogTotals]:
    """What is chosen of each part, written to disk where the parts are there; nobody may be left."""
    found = (part for part in map(choose, source.parts()) if part is not None)
    left: Source
    if engine is None and isinstance(source, Held | Kept):
        left = Kept(list(found), source.limits)
    else:
        left = DiskStore.holding(found, Scratch() if engine is None else engine.room(), source.limits)
    return left, _totals(left, items)


def _totals(source: Source, items: Items | None) -> LogTotals:
    total = LogTotals()
    for part in source.parts():
        total += totals_of(part, items) + LogTotals(rewards=RewardHistogram().seeing(part.rewards))
    return total


def taken(part: Histories, who: Ints) -> Histories:
    """The histories of the users at positions `who` (m,), in this order."""
    lengths = np.diff(part.offsets)[who]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(part.offsets[who] - offsets[:-1], lengths) + np.arange(offsets[-1])
    columns = {name: gather(column, rows) for name, column in part.columns().items()}
    return replace(
        part, users=part.users.gather(who), hashes=part.hashes[who], offsets=offsets, ties=0, clipped=0, **columns
    )


def gather(column: Any, rows: Ints) -> Any:
    """Some rows of a column: of an array, or of lists that are kept as one array and where each begins."""
    if isinstance(column, np.ndarray):
        return column[rows]
    lengths = np.diff(column.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(column.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(column, offsets=offsets, actions=column.actions[places])
