"""Passes over the logs: counted, told of, and shared by all who climb at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.population.climb import Climber
from newcomer.population.likelihood import Sums, Task, expect, merge
from newcomer.users import Split

Partial = TypeVar("Partial")

LONGEST = 60  # passes of one climb
CODED = 1 << 21  # rows of a batch where features are in a catalogue


@dataclass(frozen=True)
class Progress:
    """What is told after a pass: how many there were, at which stage, and log-likelihood per row (fitted, held out)."""

    passes: int
    stage: str
    likelihood: float
    held_out: float


@dataclass
class Passes:
    """Reads the logs as often as needed, counts how often, and says so to those who listen."""

    logs: Logs
    progress: Callable[[int, int], None] | None = None
    listen: Callable[[Progress], None] | None = None
    count: int = 0

    def run(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial]) -> Partial:
        """One pass."""
        self.count += 1
        # Rows that name actions take no room for features.
        rows = CODED if self.logs.by_action else None
        return reduce(self.logs, map, merge, rows=rows, progress=self.progress)

    def climb(self, climbers: list[Climber], splits: list[Split], *, stage: str, tolerance: float, each: float) -> None:
        """Passes until no climber gains more than `tolerance` in log-likelihood, or more than `each` per parameter.

        All climbers take a step in every pass, each on its own split of the users, so that reading is shared.
        """
        for _ in range(LONGEST):
            tasks = tuple(Task(c.trial, s.fitted, s.judged) for c, s in zip(climbers, splits, strict=True))
            found: tuple[Sums, ...] = self.run(partial(expect, tasks=tasks), merge)
            for climber, sums in zip(climbers, found, strict=True):
                climber.tell(sums)
            if self.listen is not None:
                at = [c.sums for c in climbers if c.sums]
                fitted = sum(s.likelihood for s in at) / max(sum(s.rows for s in at), 1)
                judged = sum(s.judged_likelihood for s in at) / max(sum(s.judged_rows for s in at), 1)
                self.listen(Progress(self.count, stage, fitted, judged))
            if all(climber.gain < max(tolerance, each * climber.size) for climber in climbers):
                break
