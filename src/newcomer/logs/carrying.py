"""Engine: who carries out a pass over the logs, where that is not this process alone.

An engine has workers that see one folder, and two ways to use them: `each` for work with an answer per task, `fold` for
answers that are merged into one. Work is a function `work(given, task)`: `given` is sent to a worker once, and `task`
says where the rows are. `Crew` is the engine of this machine; `newcomer.engines.dask.Dask` that of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from newcomer.logs.intake.scratch import Scratch

Partial = TypeVar("Partial")


class Closing(ABC):
    """What is closed when its `with` block is left."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Engine(Protocol):
    """Workers, to be used in a `with` block or closed."""

    def room(self) -> Scratch:
        """A private folder that this process and the workers can open."""
        ...

    def visible(self, folder: Path) -> None:
        """Refuse, in one sentence, a folder that the workers cannot open."""
        ...

    def each(
        self, work: Callable[[Any, Any], Partial], tasks: Sequence[Any], *, given: object = None
    ) -> Iterator[Partial]:
        """`work(given, task)` for every task, in the order of tasks."""
        ...

    def fold(
        self,
        work: Callable[[Any, Any], Partial],
        tasks: Sequence[Any],
        merge: Callable[[Partial, Partial], Partial],
        *,
        given: object = None,
        tell: Callable[[int], None],
    ) -> Partial:
        """What the tasks give, merged in an order that depends on their number alone; `tell` hears of each one done."""
        ...

    def close(self) -> None:
        """End the workers, if they are ours."""
        ...
