"""Engine: who carries out a pass over the logs, where that is not this process alone.

An engine has workers that see one folder, and two ways to use them: `each` for work with an answer per task, `fold` for
answers that are merged into one. What all engines do alike is written here; `WorkerPool` is the engine of this machine
and `newcomer.logs.dask.Dask` that of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from newcomer.logs.disk_store import Scratch

Partial = TypeVar("Partial")
ENOUGH = 200_000  # rows of logs below which starting workers costs more time than they save


@dataclass(frozen=True)
class Work(Generic[Partial]):
    """What is to be done for every task: `do(given, task)`.

    `given` is sent to a worker once, and a task says where the rows are. Tasks that are `alike` take about equally
    long: a worker may then be told of its next one before it has ended the last, and never waits for it.
    """

    do: Callable[[Any, Any], Partial]
    tasks: Sequence[Any]
    given: object = None
    alike: bool = False


class Engine(ABC):
    """Workers, to be used in a `with` block or closed."""

    @abstractmethod
    def room(self) -> Scratch:
        """A private folder that this process and the workers can open."""

    @abstractmethod
    def visible(self, folder: Path) -> None:
        """Refuse, in one sentence, a folder that the workers cannot open."""

    @abstractmethod
    def answers(self, work: Work[Partial]) -> Iterator[Partial]:
        """What comes of each task, in the order of tasks."""

    @abstractmethod
    def close(self) -> None:
        """End the workers, if they are ours."""

    def merged(
        self, work: Work[Partial], merge: Callable[[Partial, Partial], Partial], tell: Callable[[int], None]
    ) -> Partial:
        """What comes of all tasks together; here, of one after another."""
        answers = self.answers(work)
        total = next(answers)
        tell(0)
        for number, answer in enumerate(answers, start=1):
            total = merge(total, answer)
            tell(number)
        return total

    def each(
        self, do: Callable[[Any, Any], Partial], tasks: Sequence[Any], *, given: object = None
    ) -> Iterator[Partial]:
        """`do(given, task)` for every task, in the order of tasks; the workers may be ahead of who asks."""
        return self.answers(Work(do, tasks, given))

    def fold(
        self,
        do: Callable[[Any, Any], Partial],
        tasks: Sequence[Any],
        merge: Callable[[Partial, Partial], Partial],
        *,
        given: object = None,
        tell: Callable[[int], None],
    ) -> Partial:
        """What the tasks give, merged in an order that depends on their number alone; `tell` hears of each one done."""
        return self.merged(Work(do, tasks, given, alike=True), merge, tell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
