"""Differences between policies, newcomer by newcomer: the only way in which the verdicts compare policies.

All policies of a figure meet the same newcomers, with the same candidates and noise (`*-newcomers.csv` has what each
of them got, a column a newcomer). A difference is the mean of the newcomers' own differences, with the standard error
of that mean; it is *clear* beyond two standard errors. Means with standard errors of their own, as the tables of curves
have them, would call level what every single newcomer tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from experiments.figure_numbers import read_table
from experiments.markdown import number
from newcomer.arrays import Floats
from newcomer.paper.lines import KINDS

CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class Gap:
    """The mean over newcomers of what one line has more than another, and its standard error.

    >>> Gap.of(np.array([1.0, 3.0, 2.0]), np.array([2.0, 5.0, 3.0])).less
    True
    """

    mean: float
    error: float

    @classmethod
    def of(cls, ours: Floats, other: Floats) -> Gap:
        """Of two lines of the same newcomers."""
        gaps = ours - other
        return cls(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))

    @property
    def less(self) -> bool:
        """Whether the one is clearly less than the other."""
        return self.mean < -CLEAR * self.error

    @property
    def more(self) -> bool:
        """Whether it is clearly more."""
        return self.mean > CLEAR * self.error

    @property
    def level(self) -> bool:
        """Whether neither is clear."""
        return not self.less and not self.more

    @property
    def words(self) -> str:
        """The difference without its sign, which the sentence around it tells, and its error."""
        return number(abs(self.mean), self.error)

    @property
    def signed(self) -> str:
        """The difference with its sign, and its error."""
        return ("+" if self.mean >= 0 else "") + number(self.mean, self.error)


@dataclass(frozen=True)
class Line:
    """A line of a figure: a policy, with its tau if it has one, and the number of offline users where that varies."""

    policy: str
    tau: float | None = None
    users: int | None = None


@dataclass(frozen=True)
class Ends:
    """What newcomers of each world had in the end, by every line of a figure."""

    curves: pl.DataFrame
    newcomers: pl.DataFrame
    value: str = "regret"

    @classmethod
    def of(cls, results: Path, name: str, value: str = "regret") -> Ends:
        """Of the tables of this figure; value "reward" is the rating of the last 25 rounds."""
        newcomers = read_table(results / f"{name}-newcomers.csv").filter(value=value)
        return cls(read_table(results / f"{name}.csv"), newcomers, value)

    @cached_property
    def _values(self) -> dict[tuple[str, Line], Floats]:
        sizes = "users" in self.newcomers.columns
        found = {}
        for row in self.newcomers.iter_rows(named=True):
            line = Line(row["policy"], row["tau"], row["users"] if sizes else None)
            found[row["world"], line] = np.array([row[name] for name in row if name[0] == "n" and name[1:].isdigit()])
        return found

    def each(self, world: str, line: Line) -> Floats:
        """What every newcomer had."""
        return self._values[world, line]

    def mean(self, world: str, line: Line) -> float:
        """The mean over newcomers."""
        return float(self.each(world, line).mean())

    def gap(self, world: str, ours: Line, other: Line) -> Gap:
        """What newcomers have more by the one line than by the other."""
        return Gap.of(self.each(world, ours), self.each(world, other))

    def ahead(self, world: str, ours: Line, other: Line) -> bool:
        """Whether the one is clearly better: less regret, or a higher rating."""
        gap = self.gap(world, ours, other)
        return gap.less if self.value == "regret" else gap.more

    def no_worse(self, world: str, ours: Line, other: Line) -> bool:
        """Whether the one is not clearly worse."""
        return not self.ahead(world, other, ours)

    def taus(self, world: str) -> list[float]:
        """From the largest to the smallest."""
        return self.newcomers.filter(world=world)["tau"].drop_nulls().unique().sort(descending=True).to_list()

    def kept(self, world: str, version: str, users: int | None = None) -> Line:
        """M-ProBALL at the smallest tau, which keeps everybody in the subspace."""
        return Line(f"M-{version}", self.taus(world)[-1], users)

    def variants(self, world: str, version: str) -> Iterator[Line]:
        """ProBALL with every radius at every tau."""
        return (Line(f"{letter}-{version}", tau) for tau in self.taus(world) for letter in KINDS)

    def left(self, world: str, line: Line) -> float:
        """The round in which a line of ProBALL leaves the subspace; infinite if it stays."""
        own = self.curves.filter(world=world, policy=line.policy, tau=line.tau)
        own = own if line.users is None else own.filter(users=line.users)
        rounds = own["left_at"].unique()
        assert len(rounds) == 1
        return math.inf if rounds[0] is None else float(rounds[0])
