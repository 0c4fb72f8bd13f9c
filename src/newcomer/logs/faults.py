"""Faults: what is wrong with a table, all of it at once, with how many rows are concerned and three of them.

A check asks `Place.refuse` about the rows that fail it. Without a collector the first of them is an error at once.
Where `Faults` are collected, reading goes on, nothing more is handed out, and one error tells everything at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import LogsError, error_in_one_line

SHOWN = 3  # examples of each fault
VALUE = 40  # characters of a value that are shown
MOST = 8  # faults that are described in full


class Example(NamedTuple):
    """A row that is wrong: its file, its number, what stands there, and the sentence and the place for it alone."""

    source: str
    row: int
    value: str
    what: str
    where: str
    header: bool = False  # whether rows are counted below a header


@dataclass
class Fault:
    """One thing that is wrong with one column, in `count` rows; without examples it is about the column as a whole."""

    told: str
    todo: str
    what: str = ""
    where: str = ""
    count: int = 0
    examples: list[Example] = field(default_factory=list)


class Faults:
    """What was found wrong so far, by column and kind."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Fault] = {}
        self._marked: tuple[object, dict[str, NDArray[np.bool_]]] = (None, {})

    def __bool__(self) -> bool:
        return bool(self._found)

    def new(self, chunk: object, column: str, bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The bad rows of a column of a chunk in which nothing was found wrong yet: what is missing is not small."""
        marked = self._marked[1] if self._marked[0] == chunk else {}
        before = marked.get(column, np.zeros(len(bad), dtype=np.bool_))
        self._marked = (chunk, {**marked, column: before | bad})
        return bad & ~before

    def add(self, column: str, kind: str, count: int, example: Callable[[int], Example], todo: str) -> None:
        """Add `count` rows of a column that are wrong in the same way; `example(i)` describes the i-th of them."""
        fault = self._found.setdefault((column, kind), Fault(f"{column} {kind}", todo))
        wanted = min(count, SHOWN - len(fault.examples))
        fault.examples += [example(i) for i in range(wanted)]
        fault.count += count

    def note(self, error: LogsError) -> None:
        """Add an error about a column as a whole, once."""
        what = f"{error.what} ({error.where})" if error.where else error.what
        self._found.setdefault((error.where, error.what), Fault(what, error.todo, error.what, error.where))

    def refuse(self) -> None:
        """Raise what was found as one error, if anything was."""
        found = list(self._found.values())
        if not found:
            return
        if len(found) == 1 and found[0].examples:
            raise _alone(found[0])
        if len(found) == 1:
            raise LogsError(found[0].what, where=found[0].where, todo=found[0].todo)
        sources = {one.source for fault in found for one in fault.examples}
        (source,) = sources if len(sources) == 1 else ("",)
        counted = (
            "data rows, without the header" if any(one.header for fault in found for one in fault.examples) else ""
        )
        source = ", ".join(part for part in (source, counted) if part)
        parts = [_told(fault, several=len(sources) > 1) for fault in found[:MOST]]
        more = [f"and {len(found) - MOST:,} more"] if len(found) > MOST else []
        todos = list(dict.fromkeys(fault.todo for fault in found if fault.todo))
        what = f"{len(found):,} faults: {'; '.join([*parts, *more])}"
        raise LogsError(what, where=source, todo="; ".join(todos))


def repeated_steps_fault(pairs: Sequence[tuple[object, int]], count: int) -> LogsError:
    """The error for integer steps that a user has more than once: `count` of them, the first few given as pairs."""
    first, *others = pairs[:SHOWN]
    also = ", ".join(f"user {user!r} step {step}" for user, step in others)
    return LogsError(
        f"user {first[0]!r} has step {first[1]} more than once",
        where="column step" + (f"; {count:,} such steps in all, also {also}" if count > 1 else ""),
        todo="give each row of a user its own step, store times as timestamps (equal ones are allowed), or say "
        "epoch='s' (--epoch s) if the steps are Unix seconds",
    )


def fault_mentioning(error: LogsError, notes: Sequence[str]) -> LogsError:
    """The error with what else is worth mending at the same time, as notes that are sentences.

    >>> str(fault_mentioning(LogsError("reward is missing", todo="fill it in"), ["'B' and 'b' are likely the same."]))
    "reward is missing: fill it in. Also: 'B' and 'b' are likely the same"
    """
    if not notes:
        return error
    said = " ".join(notes).removesuffix(".")
    return LogsError(error.what, where=error.where, todo=f"{error.todo}. Also: {said}")


def _alone(fault: Fault) -> LogsError:
    """The error for the only thing that is wrong: its first row, and how many there are like it."""
    first, *others = fault.examples
    if fault.count == 1:
        return LogsError(first.what, where=first.where, todo=fault.todo)
    also = ", ".join(_place(one, several=one.source != first.source) for one in others)
    return LogsError(first.what, where=f"{first.where}; {fault.count:,} rows in all, also {also}", todo=fault.todo)


def _told(fault: Fault, *, several: bool) -> str:
    """A fault among others: how many rows, and three of them."""
    if not fault.examples:
        return fault.told
    rows = "1 row" if fault.count == 1 else f"{fault.count:,} rows"
    return f"{fault.told} in {rows} ({', '.join(_place(one, several=several) for one in fault.examples)})"


def _place(one: Example, *, several: bool) -> str:
    """A row, with its file where there are several, and what stands there."""
    source = f"{one.source} " if several and one.source else ""
    return f"{source}row {one.row:,}" + (f": {error_in_one_line(one.value, VALUE)}" if one.value else "")
