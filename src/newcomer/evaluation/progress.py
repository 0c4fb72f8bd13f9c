"""How far an evaluation is: stages of known weight, so that a bar can show one share and one time left for all."""

from __future__ import annotations

from collections.abc import Callable

from newcomer.gain.per_user import Progress

UNITS = 1000  # that a weight of one is told as
PASSES = 25.0  # of a fit until half of its share is behind it; how many there will be nobody knows


class Stages:
    """Tells `progress(done, total)` about stages that follow one another; `total` is the sum of their weights."""

    def __init__(self, progress: Progress | None, total: float) -> None:
        self._progress, self._total = progress, total
        self._done = self._weight = 0.0

    def begin(self, weight: float) -> Progress:
        """The next stage, a pass: what it calls with (rows done, rows in all)."""
        self._enter(weight)
        return lambda done, total: self._tell(done / max(total, 1))

    def begin_fit(self, weight: float) -> Progress:
        """The next stage, a fit of unknown length: every pass brings it nearer to its end, and none reaches it."""
        self._enter(weight)
        return self._counting()

    def end(self) -> None:
        """All stages are behind us."""
        self._enter(0.0)
        self._done = self._total
        self._tell(0.0)

    def _enter(self, weight: float) -> None:
        self._done, self._weight = self._done + self._weight, weight
        self._tell(0.0)

    def _counting(self) -> Callable[[int, int], None]:
        passes, last = 0.0, 0

        def tell(done: int, total: int) -> None:
            nonlocal passes, last
            passes += done <= last
            last = done
            far = passes + done / max(total, 1)
            self._tell(far / (far + PASSES))

        return tell

    def _tell(self, share: float) -> None:
        if self._progress is not None:
            now = min(self._done + share * self._weight, self._total)
            self._progress(round(UNITS * now), round(UNITS * self._total))
