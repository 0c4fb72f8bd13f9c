"""`reduce`: the only way anything reads logs, on any engine.

`map` turns a batch of whole histories into a partial result and `merge` joins two of them. Both must be pure, and merge
associative and commutative up to rounding: then the answer depends neither on how histories fall into batches nor on
the engine that deals them out. In one process batches are merged in a fixed order. Workers (`Logs.on`) are dealt out
tasks, some batches each, that depend on the logs alone: any number of workers gives the same numbers to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from newcomer.logs.batch import Batch
from newcomer.logs.disk_store import Piece
from newcomer.logs.logs import Logs

Partial = TypeVar("Partial")

CODED = 1 << 21  # rows of a batch where features are in a catalogue, so that rows take no room for them


class Pass(Protocol):
    """Makes one pass over some logs, given a map and a merge: how anything that needs several passes asks for them."""

    def __call__(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial], /) -> Partial: ...


@dataclass(frozen=True)
class PassOver:
    """`reduce` bound to logs, as a `Pass`."""

    logs: Logs
    rows: int | None = None
    progress: Callable[[int, int], None] | None = None

    def __call__(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial], /) -> Partial:
        """One pass."""
        return reduce(self.logs, map, merge, rows=self.rows, progress=self.progress)


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
        Called after each batch, or each task of a worker, with (rows done, rows in all).

    >>> from newcomer import Logs
    >>> logs = Logs.from_arrays(user=[7, 7, 8], features=[[1.0], [2.0], [3.0]], reward=[1, 0, 1])
    >>> reduce(logs, lambda batch: batch.rewards.sum(), lambda a, b: a + b).item()
    2.0
    """
    carried_out: Callable[..., Partial] = _alone if logs.engine is None else _shared
    if logs.checkpoint is None:
        return carried_out(logs, map, merge, rows, progress)
    return logs.checkpoint.pass_over(map, lambda: carried_out(logs, map, merge, rows, progress))


def _alone(logs: Logs, map: Any, merge: Any, rows: int | None, progress: Callable[[int, int], None] | None) -> Any:
    """A pass by this process."""
    result, done = None, 0
    for batch in logs.batches(rows=rows):
        part = map(batch)
        result = part if result is None else merge(result, part)
        done += len(batch.rewards)
        if progress is not None:
            progress(done, logs.summary.rows)
    assert result is not None  # logs have at least one row
    return result


def _shared(logs: Logs, map: Any, merge: Any, rows: int | None, progress: Callable[[int, int], None] | None) -> Any:
    """A pass by the workers of the logs' engine."""
    assert logs.engine is not None
    tasks, counts = logs.tasks(rows)
    done = 0

    def tell(number: int) -> None:
        nonlocal done
        done += counts[number]
        if progress is not None:
            progress(done, logs.summary.rows)

    return logs.engine.fold(PassTask(map, merge), tasks, merge, given=logs, tell=tell)


@dataclass(frozen=True)
class PassTask(Generic[Partial]):
    """What a worker does with a task of a pass: the batches of its pieces mapped, and merged one after another."""

    map: Callable[[Batch], Partial]
    merge: Callable[[Partial, Partial], Partial]

    def __call__(self, logs: Logs, pieces: tuple[Piece, ...]) -> Partial:
        first, *others = pieces
        total = self.map(logs.piece(first))
        for piece in others:
            total = self.merge(total, self.map(logs.piece(piece)))
        return total
