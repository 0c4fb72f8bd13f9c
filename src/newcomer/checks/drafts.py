"""Drafts: findings before their verdict, which all tests of a check decide together; and the pictures they share.

A draft has what was measured and what to say in each case. `judged` puts Holm's step-down over the p-values of those
that accuse the logs, and gives each its verdict: an effect that chance does not explain is doubtful or broken by its
size; one that chance explains is fine if the logs were many enough to see an effect that breaks them, else unknowable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats
from newcomer.checks.chance import Chance
from newcomer.verdicts import Finding, Picture, Verdict, holm

BINS = 10
FEW = (
    "These logs are too few to tell: chance alone gives up to {blind:.2g}, and {broken:g} would spoil what is learned."
)


@dataclass(frozen=True)
class Limits:
    """Effects from which logs are doubtful, and from which they are broken."""

    doubtful: float
    broken: float


@dataclass(frozen=True)
class Draft:
    """A test that accuses the logs: what it measured, and what to do by verdict. `scale` turns sizes into effects."""

    name: str
    chance: Chance
    scale: float
    unit: str
    limits: Limits
    what: str  # with {effect} and {unit} to fill in
    advice: Mapping[Verdict, str]
    picture: Picture | None = None

    @property
    def effect(self) -> float:
        """The effect in its unit."""
        return self.chance.effect * self.scale

    def finding(self, adjusted: float, level: float) -> Finding:
        """The finding, once Holm's p-value is known."""
        verdict, blind = self._verdict(adjusted, level), self.chance.blind * self.scale
        what = self.what.format(effect=f"{self.effect:.2g}", unit=self.unit)
        chance = f"chance explains it (p = {self.chance.p_value:.2g})"
        sure = f"chance does not explain it (p = {self.chance.p_value:.2g})"
        slight = " and it is too small to matter" if verdict == "fine" and adjusted <= level else ""
        told = f"{what}; {sure if adjusted <= level else chance}{slight}."
        if verdict == "unknowable":
            told = f"{told} {FEW.format(blind=blind, broken=self.limits.broken)}"
        return Finding(
            name=self.name,
            verdict=verdict,
            what=told,
            advice=self.advice[verdict],
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


def judged(drafts: Sequence[Draft | Finding], level: float) -> list[Finding]:
    """Findings in the order of the drafts; those that are findings already stay."""
    tests = [one for one in drafts if isinstance(one, Draft)]
    adjusted = dict(zip(map(id, tests), holm([one.chance.p_value for one in tests]), strict=True))
    return [one.finding(adjusted[id(one)], level) if isinstance(one, Draft) else one for one in drafts]


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
