"""Contents: everything that the page of a report says, collected before a word is written.

Each part may be missing: logs that cannot be fitted have no model, logs of too few users no evaluation. What went
wrong is kept as the sentence that the error says; a page is written all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from newcomer._fit import fit_and_fit_parts
from newcomer.arrays import Ints
from newcomer.checks.check import check, check_with_gain
from newcomer.errors import NewcomerError
from newcomer.evaluation.evaluate import Stages, evaluate_fitted
from newcomer.evaluation.results import Evaluation
from newcomer.evidence import Everybody, Evidence, Summary
from newcomer.findings import Decision, Findings
from newcomer.gain.deals import Progress
from newcomer.gain.verdict import decide_verdict
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.model import Model
from newcomer.run_settings import Run

OCTAVES = 20  # of lengths of histories: 1, 2-3, 4-7, ...
WEIGHTS = {"check": 1.0, "fit": 1.0, "evaluate": 4.0}  # how long each takes, about

Part = TypeVar("Part")


class Trouble(NamedTuple):
    """Why a part is missing: what was wrong, and what to do about it."""

    what: str
    todo: str

    @property
    def sentence(self) -> str:
        """Both."""
        return contents_as_sentence(": ".join(filter(None, self)))


def contents_as_sentence(text: str) -> str:
    """The text with a capital letter and a full stop.

    >>> contents_as_sentence("no rows")
    'No rows.'
    """
    plain = text.strip()
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "!", "?")) else ".")


@dataclass(frozen=True)
class ColumnsSeen:
    """What a pass tells of the columns: users by octave of their length (OCTAVES,), and which columns there are."""

    lengths: Ints
    propensities: bool
    candidates: bool

    @classmethod
    def of(cls, batch: Batch) -> ColumnsSeen:
        """The map of the pass."""
        octaves = np.minimum(np.log2(np.maximum(batch.lengths, 1)).astype(np.int64), OCTAVES - 1)
        counts = np.bincount(octaves, minlength=OCTAVES)
        return cls(counts, batch.propensities is not None, batch.candidates is not None)

    def __add__(self, other: ColumnsSeen) -> ColumnsSeen:
        return ColumnsSeen(self.lengths + other.lengths, self.propensities, self.candidates)


@dataclass(frozen=True)
class ReportContents:
    """What a page is written from.

    `called` is how commands name the logs, with the options they were read with. `trouble` has, for each part that is
    missing ("check", "fit", "evaluate"), why it is.
    """

    called: str
    summary: Summary
    actions: int | None
    seen: ColumnsSeen
    advice: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    findings: Findings | None = None
    model: Model | None = None
    evaluation: Evaluation | None = None
    trouble: dict[str, Trouble] = field(default_factory=dict)
    page: str = "report.html"  # its file name
    options: str = ""  # of the commands that fit

    @property
    def broken(self) -> bool:
        """Whether the checks say that nothing learned from these logs may be trusted."""
        return self.findings is not None and self.findings.verdict == "broken"

    @property
    def everybody(self) -> Everybody | None:
        """What serving everybody the best is worth, where the fit tells."""
        heldout = self.model.evidence.measured if self.model else None
        return heldout.everybody if heldout else None

    @property
    def decision(self) -> Decision:
        """What all of it comes to."""
        return _decide_on_contents(self.findings, self.model, self.summary, self.trouble.get("fit"))

    def why(self, part: str) -> str:
        """The sentence that says why a part is missing."""
        return self.trouble[part].sentence if part in self.trouble else "It was not tried."


def collect_contents(
    logs: Logs,
    *,
    called: str,
    seed: int = 0,
    quick: bool = False,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    progress: Progress | None = None,
) -> ReportContents:
    """Check, fit and evaluate; what fails with a sentence of ours leaves that sentence behind."""
    stages, trouble = Stages(progress, sum(WEIGHTS.values())), dict[str, Trouble]()
    begun = stages.begin(WEIGHTS["check"])
    findings = _tried("check", lambda: check(logs, fit=False, seed=seed, run=Run(progress=begun)), trouble)
    checked = findings  # the checks are made once, for the page and for the evaluation
    tick = stages.begin_fit(WEIGHTS["fit"])
    settings: dict[str, Any] = {"rank": rank, "estimator": estimator, "null": True, "calibrate": True}
    fitted = _tried("fit", lambda: fit_and_fit_parts(logs, progress=tick, **settings), trouble)
    model = None if fitted is None else fitted.model
    decision = _decide_on_contents(findings, model, logs.summary, trouble.get("fit"))
    if findings is not None:  # as `check` does with a fit of its own
        findings = check_with_gain(findings, model, decision, trouble["fit"].what if "fit" in trouble else "")
    rest = stages.begin(WEIGHTS["evaluate"])
    found = None
    if fitted is None:
        trouble["evaluate"] = trouble["fit"]
    else:
        judged = partial(evaluate_fitted, logs, fitted, seed=seed, quick=quick, progress=rest, findings=checked)
        found = _tried("evaluate", partial(judged, rank=rank, estimator=estimator), trouble)
    stages.end()
    return ReportContents(
        called=called,
        options="".join(
            f" --{name} {value}"
            for name, value, usual in (("rank", rank, "auto"), ("estimator", estimator, "em"))
            if value != usual
        ),
        summary=logs.summary,
        actions=None if logs.action_ids is None else len(logs.action_ids),
        seen=reduce(logs, ColumnsSeen.of, ColumnsSeen.__add__),
        advice=tuple(logs.advice),
        arms=logs.arms,
        findings=findings,
        model=model,
        evaluation=found,
        trouble=trouble,
    )


def _decide_on_contents(
    findings: Findings | None, model: Model | None, summary: Summary, trouble: Trouble | None
) -> Decision:
    """What the checks and the fit come to; logs that could not be checked are trusted in nothing."""
    checks = Findings(()) if findings is None else findings
    if model is None:
        what, todo = trouble or Trouble("nothing was fitted", "")
        return decide_verdict(Evidence(checks=checks, logs=summary), trouble=what, todo=todo)
    return decide_verdict(replace(model.evidence, checks=checks))


def _tried(part: str, work: Callable[[], Part], trouble: dict[str, Trouble]) -> Part | None:
    """What the work gives, or None and, in `trouble`, why not."""
    try:
        return work()
    except NewcomerError as error:
        at = f" ({error.where})" if error.where else ""
        trouble[part] = Trouble(f"{error.what}{at}", error.todo or "")
        return None
