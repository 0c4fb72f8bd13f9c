"""Calls of very different length, done by worker processes (`newcomer.logs.crew`), and the time that is left.

Jobs differ in cost by a factor of a thousand, so the share of jobs that are done says nothing about the time left.
Each call therefore has a kind, the calls of which take about as long as each other, and the time left is told only
when every kind that is still to be done has been timed at least once (`time_left`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from newcomer.logs.carrying import Work
from newcomer.logs.crew import Crew

Progress = Callable[[int, int, float | None], None]  # calls done, calls in all, seconds left or None if unknown
Plain = str | int | float | None


def run(
    crew: Crew,
    work: Callable[..., None],
    calls: Sequence[tuple[Plain, ...]],
    kinds: Sequence[str],
    *,
    progress: Progress,
) -> None:
    """Call `work` with each of the argument lists, begun in their order; returns when all are done.

    `kinds` says of each call which others take about as long. `progress` is told of every call that ends.
    """
    waiting, taken = dict(enumerate(kinds)), dict[str, list[float]]()
    for number, seconds in crew.as_done(Work(_timed, calls, work)):
        taken.setdefault(waiting.pop(number), []).append(seconds)
        progress(len(calls) - len(waiting), len(calls), time_left(list(waiting.values()), taken, crew.workers))


def time_left(waiting: Sequence[str], taken: Mapping[str, Sequence[float]], workers: int) -> float | None:
    """Seconds until the calls of the kinds `waiting` are done, from the seconds `taken` by those of each kind before.

    Each is expected to take the mean of its kind. None while some kind that is waiting has never been timed.

    >>> time_left(["play", "play"], {"play": [3.0, 5.0]}, workers=2)
    4.0
    >>> time_left(["play", "fit"], {"play": [3.0, 5.0]}, workers=2) is None
    True
    """
    if not taken.keys() >= set(waiting):
        return None
    return sum(sum(taken[kind]) / len(taken[kind]) for kind in waiting) / workers


def _timed(work: Callable[..., None], call: tuple[Plain, ...]) -> float:
    """What a worker does for one call; the seconds it took."""
    begun = time.perf_counter()
    work(*call)
    return time.perf_counter() - begun
