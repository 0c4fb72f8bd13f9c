"""Passes over the logs: counted, reported, and shared by all ascents of the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from newcomer.em.likelihood import Probe, Sums, Task, likelihood_sums, merge_likelihood_sums
from newcomer.em.optimizer import Optimizer
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import CODED, reduce
from newcomer.users import Split

Partial = TypeVar("Partial")
Other = TypeVar("Other")
Job = tuple[Callable[[Batch], Partial], Callable[[Partial, Partial], Partial]]  # a map and a merge

LONGEST = 60  # passes of one ascent


@dataclass(frozen=True)
class Progress:
    """Progress after a pass: how many there were, at which stage, and log-likelihood per row (fitted, held out)."""

    passes: int
    stage: str
    likelihood: float
    held_out: float
    sampled: bool = False  # whether these are passes over a sample of the users
    most: int | None = None  # about how many passes there will be, where that is known


@dataclass(frozen=True)
class Ascent:
    """An optimizer, the users whom it is for, and the gain in log-likelihood, in all or per parameter, at which it has
    arrived.
    """

    optimizer: Optimizer
    split: Split
    tolerance: float
    each: float
    judged: bool = True  # whether held-out users judge every step

    @property
    def arrived(self) -> bool:
        """Whether the last step gained no more than is asked for."""
        return self.optimizer.gain < max(self.tolerance, self.each * self.optimizer.size)

    @property
    def tasks(self) -> tuple[Task | Probe, ...]:
        """What a pass is to find for the next step, or for the next two, if the first is likely to be too long."""
        optimizer, fitted, judged = self.optimizer, self.split.fitted, self.split.judged
        judged = judged if self.judged else np.zeros_like(judged)
        shorter = optimizer.shorter
        if shorter is None:
            return (Task(optimizer.trial, fitted, judged),)
        return Probe(optimizer.trial, fitted), Task(shorter, fitted, judged)


@dataclass
class Passes:
    """Reads the logs as often as needed, counts how often, and says so to those who listen."""

    logs: Logs
    progress: Callable[[int, int], None] | None = None
    listen: Callable[[Progress], None] | None = None
    count: int = 0
    sampled: bool = False  # whether the logs are a sample
    most: int | None = None  # passes that there will be at most, where that is known

    def run(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial]) -> Partial:
        """One pass."""
        self.count += 1
        # Rows that name actions take no room for features.
        rows = CODED if self.logs.by_action else None
        return reduce(self.logs, map, merge, rows=rows, progress=self.progress)

    def run_both(self, first: Job[Partial], second: Job[Other]) -> tuple[Partial, Other]:
        """One pass that finds what two would, each given by its map and its merge."""
        both: tuple[Partial, Other] = self.run(
            partial(_both, first=first[0], second=second[0]), partial(_merged, first[1], second[1])
        )
        return both

    def ascend(
        self,
        ascents: Sequence[Ascent],
        *,
        stage: str,
        longest: int = LONGEST,
        lost: Callable[[Ascent], bool] | None = None,
    ) -> None:
        """Passes until every ascent has arrived, is `lost` or has looked at `longest` trials.

        All others take a step in every pass, each on its own split of the users, so that reading is shared.
        """
        before = {id(one): one.optimizer.passes for one in ascents}

        def goes(one: Ascent) -> bool:
            far = one.optimizer.passes - before[id(one)] >= longest
            return not (far or one.arrived or (lost is not None and lost(one)))

        while going := [one for one in ascents if goes(one)]:
            asked = [one.tasks for one in going]
            tasks = tuple(task for each in asked for task in each)
            found: tuple[Sums, ...] = self.run(partial(likelihood_sums, tasks=tasks), merge_likelihood_sums)
            sums = iter(found)
            for ascent, each in zip(going, asked, strict=True):
                likelihood = next(sums).likelihood if len(each) > 1 else None
                last = next(sums)
                if likelihood is None or (ascent.optimizer.probe(likelihood) and goes(ascent)):
                    ascent.optimizer.tell(last)
            self._tell(stage, [ascent.optimizer.sums for ascent in ascents if ascent.optimizer.sums])

    def judge(self, ascents: Sequence[Ascent], *, stage: str) -> None:
        """One pass, in which held-out users judge where ascents have ended that nobody judged on the way."""
        nobody = np.zeros_like(ascents[0].split.fitted)
        tasks = tuple(Task(one.optimizer.best or one.optimizer.trial, nobody, one.split.judged) for one in ascents)
        found: tuple[Sums, ...] = self.run(partial(likelihood_sums, tasks=tasks), merge_likelihood_sums)
        for ascent, sums in zip(ascents, found, strict=True):
            ascent.optimizer.judged(sums)
        self._tell(stage, [ascent.optimizer.sums for ascent in ascents if ascent.optimizer.sums])

    def _tell(self, stage: str, at: list[Sums]) -> None:
        """Say where the optimizers are."""
        if self.listen is not None:
            fitted = sum(s.likelihood for s in at) / max(sum(s.rows for s in at), 1)
            judged = sum(s.judged_likelihood for s in at) / max(sum(s.judged_rows for s in at), 1)
            self.listen(Progress(self.count, stage, fitted, judged, self.sampled, self.most))


def _both(
    batch: Batch, *, first: Callable[[Batch], Partial], second: Callable[[Batch], Other]
) -> tuple[Partial, Other]:
    return first(batch), second(batch)


def _merged(
    first: Callable[[Partial, Partial], Partial],
    second: Callable[[Other, Other], Other],
    one: tuple[Partial, Other],
    other: tuple[Partial, Other],
) -> tuple[Partial, Other]:
    return first(one[0], other[0]), second(one[1], other[1])
