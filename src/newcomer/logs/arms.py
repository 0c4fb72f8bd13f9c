"""Arms: whose actions were drawn at random, whatever the user, and whose were chosen.

The decision service serves a part of its users at random (`random`), a part what is best for everybody (`control`), a
part what was shown before (`incumbent`), the rest by the policy (`treated`); what it did not decide is `observed`. What
a policy chose depends on what its users prefer, as it should, so that whatever needs actions that do not is judged by
the users of the random arm: checks, off-policy values, the held-out gain, SOLD. EM learns from all rows.

A user of the random arm has rows of no other arm but `observed`, and of these only the random ones count: users whose
histories were merged across arms are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs.columns import Place, identifier_column
from newcomer.logs.histories import Histories, gather_history_rows

MOST_ARMS = 1000
RANDOM, TREATED, INCUMBENT, OBSERVED = "random", "treated", "incumbent", "observed"  # arms of the decision service
SERVICE = frozenset({RANDOM, TREATED, INCUMBENT, OBSERVED, "control"})
Judges = Literal["all", "random", "nobody"]


def names_of_arms(columns: Sequence[pl.Series], place: Place) -> tuple[str, ...]:
    """The distinct arms of some columns, in alphabetical order; of missing ones the rows tell."""
    found = sorted({str(name) for column in columns for name in _arm_texts(column.drop_nulls(), place).unique()})
    if len(found) > MOST_ARMS:
        todo = "name the few arms of an experiment; an action belongs in the column action (--column action=arm)"
        raise LogsError(f"{len(found):,} different arms", where=place.column(columns[0].name), todo=todo)
    return tuple(found)


def numbers_of_arms(column: pl.Series, names: Sequence[str], place: Place) -> NDArray[np.int16]:
    """The arm of each row (rows,) as its position among the names."""
    positions = pl.Series(np.arange(len(names), dtype=np.int16))
    found = _arm_texts(column, place).replace_strict(pl.Series(names), positions, default=None, return_dtype=pl.Int16)
    return found.fill_null(0).to_numpy()


def _arm_texts(column: pl.Series, place: Place) -> pl.Series:
    return column.cast(pl.String) if column.dtype == pl.Boolean else identifier_column(column, place).cast(pl.String)


def judges_by_arms(arms: Sequence[str]) -> Judges:
    """Who judges logs with these arms: everybody, the users of the random arm, or, where a policy served all, nobody.

    Other arms than those of the service say nothing of how actions were chosen.

    >>> [judges_by_arms(arms) for arms in ((), ("a", "b"), ("random", "treated"), ("control", "treated"))]
    ['all', 'all', 'random', 'nobody']
    """
    if RANDOM in arms:
        return "random" if len(arms) > 1 else "all"
    return "nobody" if TREATED in arms or INCUMBENT in arms else "all"


def histories_of_random_arm(part: Histories, arms: Sequence[str]) -> Histories | None:
    """The histories of the users of the random arm, without the arm, which is no news any more; None without any."""
    assert part.arms is not None
    random = part.arms == arms.index(RANDOM)
    other = ~random & (part.arms != (arms.index(OBSERVED) if OBSERVED in arms else -1))
    lengths, starts = np.diff(part.offsets), part.offsets[:-1]
    pure = np.add.reduceat(other, starts, dtype=np.int64) == 0
    rows = np.flatnonzero(random & np.repeat(pure, lengths))
    counts = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[rows], minlength=len(lengths))
    who = np.flatnonzero(counts)
    if not len(who):
        return None
    columns = {name: gather_history_rows(column, rows) for name, column in part.columns().items()} | {"arms": None}
    offsets = np.concatenate([[0], np.cumsum(counts[who])])
    return replace(
        part, users=part.users.gather(who), hashes=part.hashes[who], offsets=offsets, ties=0, clipped=0, **columns
    )
