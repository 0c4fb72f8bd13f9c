"""`reduce`: the only way anything reads logs. This is the local engine: one process, out of core, a fixed order.

`map` turns a batch of whole histories into a partial result and `merge` joins two of them. Both must be pure, and merge
associative and commutative up to rounding: then the answer depends neither on how histories fall into batches nor on
the engine that deals them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from newcomer.logs.batch import Batch
from newcomer.logs.logbook import Logs

Partial = TypeVar("Partial")


def reduce(
    logs: Logs,
    map: Callable[[Batch], Partial],
    merge: Callable[[Partial, Partial], Partial],
    *,
    rows: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Partial:
    """Merge the map of every batch of the logs.

    Parameters
    ----------
    rows
        Rows per batch, see `Logs.batches`.
    progress
        Called after each batch with (rows done, rows in all).

    >>> from newcomer import Logs
    >>> logs = Logs.from_arrays(user=[7, 7, 8], features=[[1.0], [2.0], [3.0]], reward=[1, 0, 1])
    >>> reduce(logs, lambda batch: batch.rewards.sum(), lambda a, b: a + b).item()
    2.0
    """
    result: Partial | None = None
    done = 0
    for batch in logs.batches(rows=rows):
        part = map(batch)
        result = part if result is None else merge(result, part)
        done += len(batch.rewards)
        if progress is not None:
            progress(done, logs.summary.rows)
    assert result is not None  # logs have at least one row
    return result
