"""check(): may these logs be learned from, and would it help? Every quick check, and whether a fit has enough users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from newcomer import arguments
from newcomer.checks.enough import enough_users
from newcomer.checks.quick import quick_check
from newcomer.errors import LogsError
from newcomer.evidence import Evidence
from newcomer.fitting import fit as fit_model
from newcomer.gain.verdict import decide
from newcomer.logs.from_files import read_logs
from newcomer.logs.logbook import Logs
from newcomer.verdicts import Findings


def check(
    logs: Logs | Any,
    *,
    level: float = 0.05,
    fit: bool = True,
    seed: int = 0,
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
    workers : processes that pass over the logs when the model is fitted.
    progress : called with (rows done, rows in all) again and again within each pass over the logs.

    >>> from newcomer.worlds import Synthetic
    >>> found = check(Synthetic.learnable(dim=8, seed=1).logs(1000, 10, seed=1), fit=False)
    >>> found.verdict, found["drift"].verdict
    ('fine', 'fine')
    """
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    level = arguments.share(level, "level", least=1.0, todo="choose a probability between 0 and 1", kind=LogsError)
    seed = arguments.whole(seed, "seed", kind=LogsError, least=0)
    arguments.flag(fit, "fit", kind=LogsError)
    arguments.callback(progress, "progress", kind=LogsError)
    found = quick_check(logs, level=level, seed=seed, progress=progress)
    if not fit:
        return found
    try:
        model = fit_model(logs, workers=workers, progress=progress)
    except LogsError as error:
        decision = decide(Evidence(checks=found, logs=logs.summary), trouble=error.what, todo=error.todo or "")
        return replace(found, findings=(*found.findings, enough_users(None, decision, str(error))), decision=decision)
    decision = decide(replace(model.evidence, checks=found))
    return replace(found, findings=(*found.findings, enough_users(model, decision)), decision=decision)
