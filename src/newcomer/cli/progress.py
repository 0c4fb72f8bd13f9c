"""How far a long read is: rate and time left on stderr. A bar in a terminal, otherwise a line every half minute.

Nothing is shown for work that ends within the first second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from newcomer.cli.screen import aside

PATIENCE = 1.0  # seconds of silence before anything is shown
INTERVAL = 30.0  # seconds between lines without a terminal


class Meter:
    """A `progress(done, total)` callback to be used in a `with` block."""

    def __init__(
        self, what: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what, self.console, self.clock = what, console or aside(), clock
        self.begun = clock()
        self.spoken = self.begun + PATIENCE - INTERVAL
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, done: float, total: float) -> None:
        """Note that `done` of `total` is behind us."""
        now = self.clock()
        if now - self.begun < PATIENCE or total <= 0:
            return
        if self.console.is_terminal:
            self._draw(done, total)
        elif now - self.spoken >= INTERVAL:
            self.spoken = now
            self.console.print(self.line(done, total, now - self.begun), soft_wrap=True)

    def line(self, done: float, total: float, seconds: float) -> str:
        """Share, rate and time left as text."""
        rate = done / seconds
        left = f", {_duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{self.what}: {done / total:.0%}, {rate:,.0f} rows/s{left}"

    def _draw(self, done: float, total: float) -> None:
        if self.bar is None:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.percentage:.0f}%  {task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                console=self.console,
                transient=True,
                auto_refresh=False,
            )
            self.bar.start()
            self.bar.add_task(self.what, rate="")
        rate = f"{done / (self.clock() - self.begun):,.0f} rows/s"
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, rate=rate, refresh=True)


def _duration(seconds: float) -> str:
    """Seconds as a person says them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
