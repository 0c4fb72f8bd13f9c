"""How far long work is, on stderr: a bar in a terminal, otherwise a line every half minute and one at the end.

Nothing is shown for work that ends within the first second. A fit reads the logs many times, and how many is not known
before: the bar, rate and time left are those of the pass, and lines tell what the last one found and how long it has
been. Where there are many users most passes are over a sample of them, and of those over all rows it is known how many
there will be at most: then lines tell how long they will take, too. Of stages that take unequal times no time left is
told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from newcomer.cli.output import aside

if TYPE_CHECKING:
    from newcomer.em.passes import Progress as Passed

PATIENCE = 1.0  # seconds of silence before anything is shown
INTERVAL = 30.0  # seconds between lines without a terminal
MOMENT = 0.05  # seconds of a pass before its rate means anything


class Meter:
    """A `progress(done, total)` callback to be used in a `with` block.

    `first` is what to call the first of several passes; `unit` what is counted, nothing for shares of the work;
    `begun` is when the work began, `turn` when this pass of it did; `last` is how far the last call was, `made` the
    number of passes so far, which never falls, `note` what the last pass found, `spoken` when a line was last written.
    Tests bring a console and a clock of their own.
    """

    def __init__(
        self,
        what: str,
        *,
        first: str = "",
        unit: str = "rows",
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.first, self.unit = what, first, unit
        self.console, self.clock = console or aside(), clock
        self.begun = self.turn = clock()
        self.last, self.note = 0.0, ""
        self.made = self.lines = 0  # passes that are done, and lines that were written
        self.each, self.more = 0.0, 0  # seconds of the last pass, and about how many more there will be (0: unknown)
        self.spoken = self.begun + PATIENCE - INTERVAL
        self.bar: Progress | None = None
        self.bar_width = max(min(30, self.console.width // 4), 4)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        elif self.lines and kind is None:  # a reader of a file sees that the work came to its end
            self.console.print(f"{self.what}: done in {_duration(self.clock() - self.begun)}", soft_wrap=True)

    def __call__(self, done: float, total: float) -> None:
        """Note that `done` of `total` is behind us; less than last time begins another pass."""
        now = self.clock()
        if done < self.last or self.last >= total > 0:
            self.each, self.turn = now - self.turn, now
            self.made += self.last < total  # a pass that ended without saying so
        self.last = done
        self.made += done >= total > 0
        if now - self.begun < PATIENCE or total <= 0:
            return
        if self.console.is_terminal:
            self._draw(done, total)
        elif now - self.spoken >= INTERVAL:
            self.spoken, self.lines = now, self.lines + 1
            self.console.print(self.line(done, total, now), soft_wrap=True)

    def line(self, done: float, total: float, now: float) -> str:
        """Share, rate and time left as text; of a fit of many passes what the last one found."""
        if self.note:  # of the pass that is under way, share and time left would be taken for those of the fit
            left = f", about {_duration(self.each * self.more)} left" if self.more and self.each else ""
            return f"{self.what}{self.note}: {_duration(now - self.begun)} so far{left}"
        number = self.made + (done < total)
        which = f", pass {number}" if self.first and number > 1 else self.first
        if not self.unit:  # stages take unequal times: what is left of them cannot be told from what is done
            return f"{self.what}{which}: {done / total:.0%}, {_duration(now - self.begun)} so far"
        rate = self._rate(done, now)
        left = f", {_duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{self.what}{which}: {done / total:.0%}{self._speed(rate, ', ')}{left}"

    def _rate(self, done: float, now: float) -> float:
        """How much of this pass is done a second; 0 where it has just begun, and nothing can be said."""
        return done / (now - self.turn) if now - self.turn >= MOMENT else 0.0

    def _speed(self, rate: float, before: str = "") -> str:
        """How fast it goes, where that is known and what is counted means something to people."""
        return f"{before}{rate:,.0f} {self.unit}/s" if self.unit and rate else ""

    def hear(self, progress: Passed) -> None:
        """Remember what the last pass of a fit found, to be shown from now on."""
        held_out = f", held out {progress.held_out:.4f}" if progress.held_out else ""
        self.more = 0 if progress.most is None else max(progress.most - progress.passes, 0)
        self.made = max(self.made, progress.passes)
        which = " over a sample of the users" if progress.sampled else ""
        which = which if progress.most is None else f" of about {self.made + self.more}"
        told = f"{progress.stage}; log-likelihood {progress.likelihood:.4f} a row{held_out}"
        self.note = f", pass {self.made}{which} ({told})"

    def _draw(self, done: float, total: float) -> None:
        """Move the bar, which is put up when it is first needed and goes away with the work."""
        if self.bar is None:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=self.bar_width),
                TextColumn("{task.percentage:.0f}%  {task.fields[rate]}"),
                TimeRemainingColumn(compact=True) if self.unit else TimeElapsedColumn(),
                console=self.console,
                transient=True,
                auto_refresh=False,
            )
            self.bar.start()
            self.bar.add_task(self.what, rate="")
        rate = self._speed(self._rate(done, self.clock()))
        # The note gives way before the share, the rate and the time left do.
        room = self.console.width - self.bar_width - len(self.what) - 28
        said = self.what + (self.note if len(self.note) <= room else self.note[: room - 3] + "..." if room > 9 else "")
        self.bar.update(self.bar.task_ids[0], description=said, completed=done, total=total, rate=rate, refresh=True)


def _duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> _duration(7.2), _duration(125)
    ('7 s', '2 min 05 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
