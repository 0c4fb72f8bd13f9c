"""check(): may these logs be learned from, and would it help? Every quick check, and whether a fit has enough users.

Enough users: whether held-out users gain from a fit to the others. What more users would add is not computed here:
`newcomer.evaluation` measures it, by fits to fewer users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from newcomer._fit import fit as fit_model
from newcomer.checks.quick import quick_check
from newcomer.errors import LogsError
from newcomer.evidence import Evidence, HeldoutGain
from newcomer.findings import SHARED, Decision, Finding, Findings, Picture
from newcomer.gain.verdict import decide_verdict, verdict_step, verdict_times
from newcomer.interval import interval_in_words
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs
from newcomer.model import Model
from newcomer.run_settings import Run
from newcomer.validate import validate_flag, validate_share, validate_whole


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
    """Test whether logs can be trusted: findings, each with a verdict, an effect and advice.

    Parameters
    ----------
    logs : logs, or what `read_logs` takes without options: a path, a pattern, a frame.
    level : probability that any of the tests accuses clean logs.
    fit : also fit a model, to say whether there are enough users and what to do. False: one pass over the logs, or a
        few where users are many and a sample of them shows no preferences.
    seed : seed of the permutations. The answer depends on it and on the logs, not on the order of rows or files.
    run : workers and a callback for progress (`nc.Run`). The keywords workers and progress do the same, and warn.

    >>> from newcomer.worlds import Synthetic
    >>> found = check(Synthetic.learnable(dim=8, seed=1).logs(1000, 10, seed=1), fit=False)
    >>> found.verdict, found["drift"].verdict
    ('fine', 'fine')
    """
    run = Run.asked(run, who="check", workers=workers, progress=progress).for_reading("check")
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    level = validate_share(level, "level", least=1.0, todo="choose a probability between 0 and 1", kind=LogsError)
    seed = validate_whole(seed, "seed", kind=LogsError, least=0)
    validate_flag(fit, "fit", kind=LogsError)
    found = quick_check(logs, level=level, seed=seed, progress=run.progress)
    if not fit:
        return found
    try:
        # The decision asks what held-out users gain, not how sure the basis is nor what chance would show.
        model = fit_model(logs, null=False, calibrate=False, run=run)
    except LogsError as error:
        decision = decide_verdict(Evidence(checks=found, logs=logs.summary), trouble=error.what, todo=error.todo or "")
        return replace(check_with_gain(found, None, decision, str(error)), decision=decision)
    decision = decide_verdict(replace(model.evidence, checks=found))
    return replace(check_with_gain(found, model, decision), decision=decision)


ENOUGH_USERS = "enough users"
UNIT = "reward over the population mean"


def check_with_gain(found: Findings, model: Model | None, decision: Decision, why: str = "") -> Findings:
    """The findings beside a fit: whether users are enough, and no advice that the decision contradicts.

    Held-out users may gain where the test of shared preferences sees none: it asks halves of histories, they are asked
    for what is served.
    """
    told = [_beside(one, decision) if one.name == SHARED else one for one in found.findings]
    return replace(found, findings=(*told, check_enough_users(model, decision, why)))


def _beside(shared: Finding, decision: Decision) -> Finding:
    """The finding on shared preferences, beside a decision to personalise."""
    if decision.personal != "yes" or shared.verdict not in ("doubtful", "unknowable"):
        return shared
    what = f"{shared.what} Held-out users gain from personalising all the same, and that takes precedence."
    advice = "Nothing to do." if shared.verdict == "doubtful" else shared.advice
    return replace(shared, verdict="fine" if shared.verdict == "doubtful" else shared.verdict, what=what, advice=advice)


def check_enough_users(model: Model | None, decision: Decision, why: str = "") -> Finding:
    """What held-out users gain by a fit to the others, after each number of interactions."""
    advice = "Nothing to do." if decision.personal == "yes" else decision.sentences[-1]
    if model is None:
        return Finding(ENOUGH_USERS, "broken", f"No model can be fitted: {why}.", advice)
    users = model.evidence.logs.users if model.evidence.logs else 0
    if model.rank == 0:
        return Finding(ENOUGH_USERS, "doubtful", f"{users:,} users show no shared direction.", advice)
    heldout = model.evidence.measured
    if heldout is None or not heldout.steps:
        what = f"Too few of the {users:,} users have histories long enough to measure a gain on."
        return Finding(ENOUGH_USERS, "doubtful", what, advice)
    look = verdict_step(heldout)
    what = f"{look.people:,} held-out users gain {interval_in_words(look.over_mean)} over the population mean after"
    what += (
        f" {verdict_times(look.interactions)}, in a choice among {heldout.choices}; `newcomer evaluate` measures what"
    )
    what += " more users add."
    if decision.logs == "broken":
        what += " The logs are broken: do not trust this number."
    verdict = "fine" if decision.personal == "yes" else "doubtful"
    return Finding(ENOUGH_USERS, verdict, what, advice, effect=look.gain, unit=UNIT, picture=_by_step(heldout))


def _by_step(heldout: HeldoutGain) -> Picture:
    """The gain after each number of interactions."""
    steps = heldout.steps
    return Picture(
        "What do held-out users gain?",
        "interactions",
        UNIT,
        tuple(float(one.interactions) for one in steps),
        tuple(one.gain for one in steps),
        tuple(one.low for one in steps),
        tuple(one.high for one in steps),
        band="95% interval",
    )
