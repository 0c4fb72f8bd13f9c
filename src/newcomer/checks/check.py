"""check(): may these logs be learned from, and would it help? Every quick check, and whether a fit has enough users.

Enough: whether these are enough users, and what twice or ten times as many would bring, by a fitted model.

The calibrated radius, the sine of the largest angle that the basis may be off by, shrinks as 1/sqrt(N). Of what tastes
are worth, the part in directions that are off is lost: about the square of that sine. So with gain g at N users and
radius r, the gain at c N users is about g (1 - r^2 / c) / (1 - r^2), at most doubled: a projection, not a promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from newcomer import validate
from newcomer._fit import fit as fit_model
from newcomer.checks.quick import quick_check
from newcomer.errors import LogsError
from newcomer.evidence import Evidence, OutlookStep
from newcomer.findings import Decision, Finding, Findings, Picture
from newcomer.gain.verdict import decide
from newcomer.interval import shown
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs
from newcomer.model import Model
from newcomer.run import Run


def check(
    logs: Logs | Any,
    *,
    level: float = 0.05,
    fit: bool = True,
    seed: int = 0,
    run: Run | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Tell from logs whether what is learned from them may be trusted.

    Parameters
    ----------
    logs : logs, or whatever `read_logs` takes as it is: a path, a pattern, a frame.
    level : probability with which clean logs may be called anything but fine, by all tests together.
    fit : fit a model as well, to say whether there are enough users; without it one pass over the logs is all, or a few
        where users are many and a sample of them shows no taste.
    seed : of the permutations; the answer depends on it and on the logs, in whatever order they come.
    run : workers that pass over the logs when the model is fitted, and who is told of progress (`nc.Run`). workers,
        progress : the same, as keywords of before, which warn.

    >>> from newcomer.worlds import Synthetic
    >>> found = check(Synthetic.learnable(dim=8, seed=1).logs(1000, 10, seed=1), fit=False)
    >>> found.verdict, found["drift"].verdict
    ('fine', 'fine')
    """
    run = Run.asked(run, who="check", workers=workers, progress=progress).for_reading("check")
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    level = validate.share(level, "level", least=1.0, todo="choose a probability between 0 and 1", kind=LogsError)
    seed = validate.whole(seed, "seed", kind=LogsError, least=0)
    validate.flag(fit, "fit", kind=LogsError)
    found = quick_check(logs, level=level, seed=seed, progress=run.progress)
    if not fit:
        return found
    try:
        model = fit_model(logs, run=run)
    except LogsError as error:
        decision = decide(Evidence(checks=found, logs=logs.summary), trouble=error.what, todo=error.todo or "")
        return replace(found, findings=(*found.findings, enough_users(None, decision, str(error))), decision=decision)
    decision = decide(replace(model.evidence, checks=found))
    return replace(found, findings=(*found.findings, enough_users(model, decision)), decision=decision)


TIMES = (1, 2, 10)
ENOUGH_USERS = "enough users"
UNIT = "reward over the population mean"


def enough_users(model: Model | None, decision: Decision, why: str = "") -> Finding:
    """What held-out people gained, how sure the directions are, and what more users would change."""
    advice = "Nothing to do." if decision.personal == "yes" else decision.sentences[-1]
    if model is None:
        return Finding(ENOUGH_USERS, "broken", f"No model can be fitted: {why}.", advice)
    users = model.evidence.logs.users if model.evidence.logs else 0
    if model.rank == 0:
        return Finding(ENOUGH_USERS, "doubtful", f"{users:,} users show no shared direction at all.", advice)
    radius = model.radius("calibrated") if model.evidence.calibrated else None
    population = model.evidence.population
    outlook = population.outlook if population else None
    if outlook is None or not outlook.steps:
        what = f"Of {users:,} users too few, or too short histories, could be kept out to measure a gain."
        return Finding(ENOUGH_USERS, "doubtful", what, advice, effect=radius, unit="radius")
    known = model.evidence.calibrated.sentence() if model.evidence.calibrated else ""
    told = _told(outlook.steps[-1], users, 1.0 if radius is None else radius, known)
    return replace(told, verdict="fine" if decision.personal == "yes" else "doubtful", advice=advice)


def _told(step: OutlookStep, users: int, radius: float, known: str) -> Finding:
    gains = [projected(step.gain, radius, times) for times in TIMES]
    what = f"After {step.interactions} interactions people who were kept out gain {shown(step.over_mean)}"
    sure = f". {known}" if known else f"; the directions may be off by {radius:.2f} (sine)"
    what += f" over the population mean{sure}. With"
    what += f" {2 * users:,} users about {gains[1]:+.2g} and {radius / 2**0.5:.2f}, with {10 * users:,} about"
    what += f" {gains[2]:+.2g} and {radius / 10**0.5:.2f}."
    width = (step.high - step.low) / 2
    sizes, middle = (users * 1.0, users * 2.0, users * 10.0), tuple(gains)
    low, high = tuple(gain - width for gain in gains), tuple(gain + width for gain in gains)
    band = "95% interval at N users"
    picture = Picture("Are these enough users?", "users", UNIT, sizes, middle, low, high, band=band)
    return Finding(ENOUGH_USERS, "doubtful", what, "", effect=step.gain, unit=UNIT, picture=picture)


def projected(gain: float, radius: float, times: float) -> float:
    """The gain to expect of `times` as many users.

    >>> round(projected(1.0, 0.5, 10), 2), projected(-0.5, 0.5, 10)
    (1.3, -0.5)
    """
    if gain <= 0:
        return gain
    now, then = max(1 - radius**2, 0.5), 1 - radius**2 / times
    return gain * min(max(then / now, 1.0), 2.0)
