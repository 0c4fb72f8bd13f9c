"""The last minute of one process, in memory: decisions by second, how long they took, what was shown, what was refused.

It holds no id of a user and no body of a request, and ends with the process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from newcomer.serve.shapes import Problem, RecentError, Served, Speed

SECONDS = 60  # that decisions are counted by
LAST = 1_000  # decisions whose time and actions are remembered
ERRORS = 20
MOST = 8  # actions named
SHORT = 5  # seconds that "now" is the mean of


class Recent:
    """See the module; `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.begun = clock, clock()
        self.seconds: dict[int, int] = {}
        self.took: deque[float] = deque(maxlen=LAST)
        self.actions: deque[int | str | None] = deque(maxlen=LAST)
        self.errors: deque[RecentError] = deque(maxlen=ERRORS)

    def decided(self, actions: Iterable[int | str | None]) -> None:
        """A decide was answered with these actions, one a slot."""
        now = int(self.clock())
        self.seconds[now] = self.seconds.get(now, 0) + 1
        if len(self.seconds) > 2 * SECONDS:
            self.seconds = {second: n for second, n in self.seconds.items() if second >= now - SECONDS}
        self.actions.extend(actions)

    def refused(self, route: str, status: int, problem: Problem) -> None:
        """A request was refused; the same refusal once more is counted."""
        last = self.errors[0] if self.errors else None
        if last is not None and (last.route, last.status, last.code) == (route, status, problem.code):
            last.count, last.at = last.count + 1, time.time()
        else:
            self.errors.appendleft(RecentError(time.time(), route, status, problem.code, 1))

    def speed(self) -> Speed:
        """Decides by whole second, the last one last; the mean of the last few; and times in milliseconds.

        >>> ticks = iter([0.0, 3.0, 4.0, 5.5])
        >>> recent = Recent(lambda: next(ticks))
        >>> recent.decided([7]), recent.decided([7, 9])
        (None, None)
        >>> recent.speed().per_second
        0.4
        """
        now = int(self.clock())
        counts = [self.seconds.get(second, 0) for second in range(now - SECONDS, now)]
        lived = max(1, min(SHORT, now - int(self.begun)))
        p50, p99 = (None, None) if not self.took else 1e3 * np.quantile(list(self.took), (0.5, 0.99))
        times = [None if one is None else round(float(one), 3) for one in (p50, p99)]
        return Speed(sum(counts[-lived:]) / lived, counts, *times)

    def served(self) -> Sequence[Served]:
        """The actions shown most among the last ones."""
        total = len(self.actions)
        return [Served(action, count / total) for action, count in Counter(self.actions).most_common(MOST)]
