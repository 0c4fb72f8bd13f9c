"""Drafts: findings before their verdict, which all tests of a check decide together; and the pictures they share.

A draft has what was measured and what to say in each case. `judged` puts Holm's step-down over the p-values of those
that accuse the logs, and gives each its verdict: an effect that chance does not explain is doubtful or broken by its
size; one that chance explains is fine if the logs were many enough to see an effect that breaks them, else unknowable.

Remedies: what to do about each finding, by verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats
from newcomer.checks.permutation import PermutationTest
from newcomer.findings import Finding, Picture, Verdict, chance, holm

BINS = 10
FEW = "{who} too few to tell: chance often gives effects up to about {blind:.2g}, and {broken:g} would spoil a fit."


@dataclass(frozen=True)
class Limits:
    """Effects from which logs are doubtful, and from which they are broken."""

    doubtful: float
    broken: float


@dataclass(frozen=True)
class Draft:
    """A test that accuses the logs: what it measured, and what to do by verdict. `scale` turns sizes into effects."""

    name: str
    chance: PermutationTest
    scale: float
    unit: str
    limits: Limits
    what: str  # with {effect} and {unit} to fill in
    advice: Mapping[Verdict, str]
    picture: Picture | None = None
    in_time: bool = False  # whether the test reads the order of a user's rows

    @property
    def effect(self) -> float:
        """The effect in its unit."""
        return self.chance.effect * self.scale

    def finding(self, adjusted: float, level: float, tested: UsersTested) -> Finding:
        """The finding, once Holm's p-value is known."""
        verdict, blind = self._verdict(adjusted, level), self.chance.blind * self.scale
        advice = self.advice[verdict]
        what = self.what.format(effect=f"{self.effect:.2g}", unit=self.unit)
        by_chance = f"this is within chance ({chance(self.chance.p_value)})"
        if self.chance.p_value <= level < adjusted:  # told apart by this test alone, not with all tests counted
            by_chance = f"chance gives this in one of the tests ({chance(adjusted)} with all tests counted)"
        sure = f"chance does not explain it ({chance(self.chance.p_value)})"
        slight = ", but it is too small to matter" if verdict == "fine" and adjusted <= level else ""
        told = f"{what}; {sure if adjusted <= level else by_chance}{slight}."
        if verdict == "unknowable":
            told = f"{told} {FEW.format(who=tested.who, blind=blind, broken=self.limits.broken)}"
            advice = tested.more
        if self.in_time and not tested.ordered:
            told = f"{told} {FILE_ORDER}"
            verdict, advice = ("unknowable", NAME_TIME) if verdict == "fine" else (verdict, f"{advice} {NAME_TIME}")
        return Finding(
            name=self.name,
            verdict=verdict,
            what=told,
            advice=advice,
            effect=self.effect,
            unit=self.unit,
            p_value=self.chance.p_value,
            adjusted=adjusted,
            doubtful=self.limits.doubtful,
            broken=self.limits.broken,
            picture=self.picture,
        )

    def _verdict(self, adjusted: float, level: float) -> Verdict:
        if adjusted > level:
            return "unknowable" if self.chance.blind * self.scale > self.limits.broken else "fine"
        sizes: tuple[tuple[float, Verdict], ...] = ((self.limits.broken, "broken"), (self.limits.doubtful, "doubtful"))
        return next((verdict for limit, verdict in sizes if self.effect >= limit), "fine")


@dataclass(frozen=True)
class UsersTested:
    """Who took part in the tests: `sample` users of `users`; `ordered` says whether an order in time is known."""

    users: int
    sample: int
    ordered: bool = True
    arm: bool = False  # whether they are those of the random arm

    @property
    def who(self) -> str:
        """The subject of a sentence that says that they are too few."""
        if self.arm and 2 * self.sample >= self.users:
            return f"The {self.users:,} users of the random arm are"
        if 2 * self.sample < self.users:
            return f"The {self.sample:,} users drawn for the tests (of {self.users:,}) are"
        return f"These {self.users:,} users are"

    @property
    def more(self) -> str:
        """What would tell more; a larger number of users would not change how many are drawn."""
        if self.arm and 2 * self.sample >= self.users:
            return "Serve more users at random."
        return "Longer histories would tell more." if 2 * self.sample < self.users else MORE


def judged(drafts: Sequence[Draft | Finding], level: float, tested: UsersTested) -> list[Finding]:
    """Findings in the order of the drafts; those that are findings already stay."""
    tests = [one for one in drafts if isinstance(one, Draft)]
    adjusted = dict(zip(map(id, tests), holm([one.chance.p_value for one in tests]), strict=True))
    return [one.finding(adjusted[id(one)], level, tested) if isinstance(one, Draft) else one for one in drafts]


def in_bins(x: Floats, y: Floats, *, title: str, x_label: str, y_label: str) -> Picture | None:
    """Means of y (n,) in ten bins of x (n,) with as many users each, and two standard errors to either side."""
    if len(x) < 2 * BINS:
        return None
    parts = np.array_split(np.argsort(x, kind="stable"), BINS)
    middle, means = ([float(one[part].mean()) for part in parts] for one in (x, y))
    errors = [2.0 * float(y[part].std()) / np.sqrt(len(part)) for part in parts]
    low = tuple(float(m - e) for m, e in zip(means, errors, strict=True))
    high = tuple(float(m + e) for m, e in zip(means, errors, strict=True))
    return Picture(title, x_label, y_label, tuple(middle), tuple(means), low, high, band="two standard errors")


def leading_pair(matrix: Floats) -> tuple[Floats, Floats]:
    """The directions (a,) and (b,) along which a matrix (a, b) is largest."""
    left, _, right = np.linalg.svd(matrix)
    return left[:, 0], right[0]


FINE = "Nothing to do."
MORE = "Log more users, or longer histories, and check again."
FILE_ORDER = "No column of times is known, so that this speaks of the order of rows in the file."
NAME_TIME = "Name the column of times, columns={'step': ...} (--column step=...), and check again."

ADAPTIVE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Either the logger learned from rewards, or actions were chosen by preference, which the first action"
    " alone may be too little to show. Fit with em, which allows the former, not with sold, and try the model on a"
    " small random part of newcomers first.",
    "broken": "Show a part of the users, one in ten say, random actions for their whole history, and run this again on"
    " them; until then a model of these logs is an experiment, beside what runs today, and no promise.",
}
CHOSEN: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "People, or a logger, chose what was shown by preference: expect too good a picture of rarely shown"
    " actions, and try the model on a small random part of newcomers first.",
    "broken": "What was shown was chosen by preference: rewards of other actions are not what these rows say. Show a"
    " part of the users random actions and run this again on them; until then a model of these logs is an experiment,"
    " beside what runs today, and no promise.",
}
LIKED: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "People, or a logger that knew or learned their preferences, chose what was logged: the mean of an"
    " action that few log is that of those who like it, and too high for others. Offer a small random part of newcomers"
    " random actions, and compare the means.",
    "broken": "People log what they like: the mean of an action is that of those who like it, and both the population"
    " mean and what is learned promise too much for what somebody would not have chosen. Ask a part of the users about"
    " random actions and fit to those; until then offer only what newcomers themselves chose to look at.",
}
SHOWN_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users were shown different things: what goes together across these groups rests on few users.",
    "broken": "Each user saw one kind of thing only: no log of this sort can tell how preferences for the kinds"
    " go together. Show a part of the users everything.",
}
LENGTH_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users who like what they see stay longer: the average counts them more often than newcomers will.",
    "broken": "Who stays depends on preferences: cut all histories to the same first rows, and fit on those.",
}
DRIFT_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Rewards change with position: log the position, or the time, as a feature.",
    "broken": "Rewards at the end of a history are not those of its beginning: log the position, or the time, as a"
    " feature, or fit on the first rows alone, which newcomers will meet.",
}
