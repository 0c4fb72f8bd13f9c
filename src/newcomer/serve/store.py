"""What a store promises, whatever keeps it: work on it is done in transactions, acknowledged once it is on disk.

    result = await store.transact(work)        work(tx) -> result; all of its writes last, or none

`work` is a coroutine function that reads and writes through `tx` alone. PostgreSQL awaits its answers; SQLite answers
at once, so that many works fit into one commit (`drive`). Work may be tried again, so it changes nothing but the
store; what it would tell the rest of the process, caches say, it hands to `tx.later`, which is called when the work has
succeeded, and `store.on_loss` is called when a commit failed that later works had already relied on.

Statements are written once for both, with `$1` parameters and two words of their own: `/*LOCK*/` locks the rows of `u`
until the transaction ends, `/*NOW*/` is the store's clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Row = Sequence[Any]


class Tx(Protocol):
    """A transaction."""

    async def all(self, sql: str, *values: Any) -> Sequence[Row]:
        """The rows of a query."""

    async def run(self, sql: str, *values: Any) -> Sequence[Row]:
        """Write; the rows that the statement returns."""

    async def changes(self, count: int = 1) -> int:
        """The first of `count` numbers of changes, in the order of commits; the counter is locked until the end."""

    def later(self, call: Callable[[], None]) -> None:
        """Call this when the work has succeeded."""


Work = Callable[[Tx], Coroutine[Any, Any, Result]]


class Store(Protocol):
    """Where events, users, models and requests are kept."""

    name: str
    alone: bool  # nobody else writes to it: what was read last is true until it is written here
    on_loss: Callable[[], None]

    async def open(self) -> None:
        """Connect, and take the migrations that are missing."""

    async def close(self) -> None:
        """Finish what was begun, and let go."""

    async def transact(self, work: Work[Result]) -> Result:
        """Do work in one transaction; returns when it is on disk."""

    async def clean(self) -> None:
        """After an erasure: have what was deleted leave the files."""


def drive_store(work: Awaitable[Result]) -> Result:
    """Carry out a coroutine that never waits.

    >>> async def sum_of(*parts): return sum(parts)
    >>> drive_store(sum_of(1, 2))
    3
    """
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("work on this store waited for something else than the store")
