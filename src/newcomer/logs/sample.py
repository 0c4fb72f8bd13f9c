"""A sample of the users of logs, as logs of its own that are held in memory, or where the workers of the logs see them.

A hash of the id alone says who is in it (`UserSample`), so that the sample does not depend on files, batches or
workers. Its users come in the order of these hashes, and are called by them: the ids stay where they were. It takes one
pass, in which histories are handed over as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Floats, Hashes, Ints
from newcomer.logs.batch import Batch
from newcomer.logs.histories import Histories
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import Pass, reduce
from newcomer.users import UserSample

ROOM = 512 << 20  # bytes of the rows of a sample: where rows are long or many, users are fewer


@dataclass(frozen=True)
class Some:
    """Histories of some users of a batch; either actions say what the features are, or rows bring their own."""

    hashes: Hashes  # (n,)
    lengths: Ints  # (n,)
    rewards: Floats  # (rows,)
    actions: Ints | None  # (rows,)
    features: Floats | None  # (rows, d), without the constant


@dataclass(frozen=True)
class SampledHistories:
    """Histories of some users, as they came."""

    pieces: tuple[Some, ...]

    def __add__(self, other: SampledHistories) -> SampledHistories:
        return SampledHistories(self.pieces + other.pieces)


def sample_logs(logs: Logs, users: int, *, run: Pass | None = None) -> Logs:
    """About so many users of the logs; `run` makes the pass, where passes are counted.

    >>> logs = Logs.from_arrays(user=np.repeat(np.arange(900), 2), features=np.ones((1800, 1)), reward=np.ones(1800))
    >>> some = sample_logs(logs, 100)
    >>> 70 < some.summary.users < 130, some.summary.rows == 2 * some.summary.users
    (True, True)
    """
    look = partial(gather_sample, share=share_in_sample(logs, users), constant=logs.intercept)
    found: SampledHistories = reduce(logs, look, add) if run is None else run(look, add)
    held = logs.holding(_together(found))
    return held if logs.engine is None else held.on(logs.engine)


def share_in_sample(logs: Logs, users: int) -> float:
    """The share of the users of the logs who are in a sample of about so many, or of as many as there is room for."""
    whole, width = logs.summary, 12 + (0 if logs.by_action else 8 * logs.dim)
    return min(users, max(1, ROOM * whole.users // (width * whole.rows))) / whole.users


def gather_sample(batch: Batch, *, share: float, constant: bool) -> SampledHistories:
    """The histories of the users of a batch who are in a sample of this share: the map of the pass."""
    who = UserSample("fit", share)(batch.hashes)
    rows = np.repeat(who, batch.lengths)
    features = None if batch.row_features is None else batch.row_features[rows]
    if features is not None and constant:
        features = np.ascontiguousarray(features[:, :-1])
    actions = None if batch.actions is None else batch.actions[rows]
    return SampledHistories((Some(batch.hashes[who], batch.lengths[who], batch.rewards[rows], actions, features),))


def _together(found: SampledHistories) -> Histories:
    """The histories in the order of the hashes of their users."""
    hashes, lengths = _joined(found, "hashes"), _joined(found, "lengths")
    assert hashes is not None and lengths is not None
    order = np.argsort(hashes, kind="stable")
    starts = (np.cumsum(lengths) - lengths)[order]
    offsets = np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int64)
    rows = np.repeat(starts - offsets[:-1], lengths[order]) + np.arange(offsets[-1])
    columns = {name: _joined(found, name) for name in ("rewards", "actions", "features")}
    sorted_columns: dict[str, Any] = {name: None if one is None else one[rows] for name, one in columns.items()}
    if sorted_columns["actions"] is not None:
        sorted_columns["actions"] = sorted_columns["actions"].astype(np.int32)
    users = pl.Series(hashes[order].view(np.int64))
    return Histories(users=users, hashes=hashes[order], offsets=offsets, **sorted_columns)


def _joined(found: SampledHistories, name: str) -> NDArray[Any] | None:
    """A column of all pieces one after another; None where there is none."""
    parts = [getattr(piece, name) for piece in found.pieces]
    return None if parts[0] is None else np.concatenate(parts)
