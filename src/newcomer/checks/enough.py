"""Enough: whether these are enough users, and what twice or ten times as many would bring, by a fitted model.

The calibrated radius, the sine of the largest angle that the basis may be off by, shrinks as 1/sqrt(N). Of what tastes
are worth, the part in directions that are off is lost: about the square of that sine. So with gain g at N users and
radius r, the gain at c N users is about g (1 - r^2 / c) / (1 - r^2), at most doubled: a projection, not a promise.
"""

from __future__ import annotations

from newcomer.evidence import OutlookStep
from newcomer.model import Model
from newcomer.verdicts import Finding, Picture

TIMES = (1, 2, 10)
NAME = "enough users"
UNIT = "reward over the population mean"


def enough_users(model: Model | None, why: str = "") -> Finding:
    """What held-out people gained, how sure the directions are, and what more users would change."""
    if model is None:
        return Finding(NAME, "broken", f"No model can be fitted: {why}.", "Log more users, with several rows each.")
    users = model.evidence.logs.users if model.evidence.logs else 0
    if model.rank == 0:
        what = f"{users:,} users show no shared direction at all."
        return Finding(NAME, "doubtful", what, "Serve everybody the best on average, or log more users.")
    radius = model.radius("calibrated") if model.evidence.calibrated else None
    population = model.evidence.population
    outlook = population.outlook if population else None
    if outlook is None or not outlook.steps:
        what = f"Of {users:,} users too few, or too short histories, could be kept out to measure a gain."
        return Finding(NAME, "doubtful", what, "Log more users, or longer histories.", effect=radius, unit="radius")
    return _told(outlook.steps[-1], users, 1.0 if radius is None else radius, clear=any(s.clear for s in outlook.steps))


def _told(step: OutlookStep, users: int, radius: float, *, clear: bool) -> Finding:
    gains = [projected(step.gain, radius, times) for times in TIMES]
    what = f"After {step.interactions} interactions people who were kept out gain {step.gain:+.2g} ({step.low:.2g} to"
    what += f" {step.high:.2g}) over the population mean; the directions may be off by {radius:.2f} (sine). With"
    what += f" {2 * users:,} users about {gains[1]:+.2g} and {radius / 2**0.5:.2f}, with {10 * users:,} about"
    what += f" {gains[2]:+.2g} and {radius / 10**0.5:.2f}."
    width = (step.high - step.low) / 2
    sizes, middle = (users * 1.0, users * 2.0, users * 10.0), tuple(gains)
    low, high = tuple(gain - width for gain in gains), tuple(gain + width for gain in gains)
    band = "replication interval at N users"
    picture = Picture("Are these enough users?", "users", UNIT, sizes, middle, low, high, band=band)
    advice = "Nothing to do." if clear else "Serve everybody the best on average until more is logged."
    verdict = "fine" if clear else "doubtful"
    return Finding(NAME, verdict, what, advice, effect=step.gain, unit=UNIT, picture=picture)


def projected(gain: float, radius: float, times: float) -> float:
    """The gain to expect of `times` as many users.

    >>> round(projected(1.0, 0.5, 10), 2), projected(-0.5, 0.5, 10)
    (1.3, -0.5)
    """
    if gain <= 0:
        return gain
    now, then = max(1 - radius**2, 0.5), 1 - radius**2 / times
    return gain * min(max(then / now, 1.0), 2.0)
