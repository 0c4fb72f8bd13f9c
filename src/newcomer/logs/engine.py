"""Local engine: one process, out of core, batches in a fixed order.

`map` turns a batch of whole histories into a partial result and `merge` joins two; both must be pure, and merge
associative and commutative up to rounding, so that the answer does not depend on how histories fall into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from newcomer.logs import Logs
from newcomer.logs.batch import Batch

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
    batches = logs.batches(rows=rows)
    first = next(batches)
    done, total = len(first.rewards), logs.summary.rows
    result = map(first)
    _report(progress, done, total)
    for batch in batches:
        result = merge(result, map(batch))
        done += len(batch.rewards)
        _report(progress, done, total)
    return result


def _report(progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)
