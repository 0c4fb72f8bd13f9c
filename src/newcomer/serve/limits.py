"""How much is taken: sizes of bodies, models, candidates and batches, and requests a second; all may be set."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from newcomer.serve.shapes import Refused

CALLERS = 10_000  # whose buckets are remembered; the one not seen for longest makes room


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes or counts; `rate` is requests a second and caller, 0 for no limit."""

    body: int = 1_000_000
    model: int = 512_000_000
    candidates: int = 10_000
    batch: int = 1_000
    rate: float = 0.0

    def count(self, found: int, most: int, what: str, where: str) -> None:
        """Refuse more than `most`."""
        if found > most:
            raise Refused(413, "too_many", f"at most {most:,} {what} are taken, and these are {found:,}", where)


@dataclass
class Rate:
    """A token bucket for each caller: `rate` requests a second, twice as many at once."""

    rate: float
    clock: Callable[[], float] = time.monotonic
    buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, caller: str) -> None:
        """Count a request, or refuse it.

        >>> rate = Rate(1.0, clock=lambda: 0.0)
        >>> rate.take("ann"), rate.take("ann")
        (None, None)
        >>> rate.take("ann")
        Traceback (most recent call last):
            ...
        newcomer.serve.shapes.Refused: more than 1 requests a second: wait a moment and send it again
        """
        if self.rate <= 0:
            return
        now, most = self.clock(), max(2 * self.rate, 1.0)
        left, last = self.buckets.pop(caller, (most, now))
        left = min(most, left + max(now - last, 0.0) * self.rate)
        allowed = left >= 1
        self.buckets[caller] = (left - 1 if allowed else left, now)
        if len(self.buckets) > CALLERS:
            self.buckets.popitem(last=False)
        if not allowed:
            message = f"more than {self.rate:g} requests a second: wait a moment and send it again"
            raise Refused(429, "too_many_requests", message, retry=1)
