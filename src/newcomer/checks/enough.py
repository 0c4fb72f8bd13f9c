"""Enough: whether these are enough users, and what twice or ten times as many would bring, by a fitted model.

The calibrated radius, the sine of the largest angle that the basis may be off by, shrinks as 1/sqrt(N). Of what tastes
are worth, the part in directions that are off is lost: about the square of that sine. So with gain g at N users and
radius r, the gain at c N users is about g (1 - r^2 / c) / (1 - r^2), at most doubled: a projection, not a promise.
"""

from __future__ import annotations

from dataclasses import replace

from newcomer.evidence import OutlookStep
from newcomer.interval import shown
from newcomer.model import Model
from newcomer.verdicts import Decision, Finding, Picture

TIMES = (1, 2, 10)
NAME = "enough users"
UNIT = "reward over the population mean"


def enough_users(model: Model | None, decision: Decision, why: str = "") -> Finding:
    """What held-out people gained, how sure the directions are, and what more users would change."""
    advice = "Nothing to do." if decision.personal == "yes" else decision.sentences[-1]
    if model is None:
        return Finding(NAME, "broken", f"No model can be fitted: {why}.", advice)
    users = model.evidence.logs.users if model.evidence.logs else 0
    if model.rank == 0:
        return Finding(NAME, "doubtful", f"{users:,} users show no shared direction at all.", advice)
    radius = model.radius("calibrated") if model.evidence.calibrated else None
    population = model.evidence.population
    outlook = population.outlook if population else None
    if outlook is None or not outlook.steps:
        what = f"Of {users:,} users too few, or too short histories, could be kept out to measure a gain."
        return Finding(NAME, "doubtful", what, advice, effect=radius, unit="radius")
    told = _told(outlook.steps[-1], users, 1.0 if radius is None else radius)
    return replace(told, verdict="fine" if decision.personal == "yes" else "doubtful", advice=advice)


def _told(step: OutlookStep, users: int, radius: float) -> Finding:
    gains = [projected(step.gain, radius, times) for times in TIMES]
    what = f"After {step.interactions} interactions people who were kept out gain {shown(step.over_mean)}"
    what += f" over the population mean; the directions may be off by {radius:.2f} (sine). With"
    what += f" {2 * users:,} users about {gains[1]:+.2g} and {radius / 2**0.5:.2f}, with {10 * users:,} about"
    what += f" {gains[2]:+.2g} and {radius / 10**0.5:.2f}."
    width = (step.high - step.low) / 2
    sizes, middle = (users * 1.0, users * 2.0, users * 10.0), tuple(gains)
    low, high = tuple(gain - width for gain in gains), tuple(gain + width for gain in gains)
    band = "95% interval at N users"
    picture = Picture("Are these enough users?", "users", UNIT, sizes, middle, low, high, band=band)
    return Finding(NAME, "doubtful", what, "", effect=step.gain, unit=UNIT, picture=picture)


def projected(gain: float, radius: float, times: float) -> float:
    """The gain to expect of `times` as many users.

    >>> round(projected(1.0, 0.5, 10), 2), projected(-0.5, 0.5, 10)
    (1.3, -0.5)
    """
    if gain <= 0:
        return gain
    now, then = max(1 - radius**2, 0.5), 1 - radius**2 / times
    return gain * min(max(then / now, 1.0), 2.0)
