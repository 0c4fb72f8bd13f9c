"""The dossier: everything that a page tells, gathered before a word is written.

Each part may be missing: logs that cannot be fitted have no model, logs of too few people no evaluation. What went
wrong is kept as the sentence that the error says; a page is written all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from newcomer.arrays import Ints
from newcomer.checks.checking import check
from newcomer.checks.enough import enough_users
from newcomer.errors import NewcomerError
from newcomer.evaluation.answers import Evaluation
from newcomer.evaluation.evaluating import evaluate
from newcomer.evaluation.persons import Progress
from newcomer.evaluation.stages import Stages
from newcomer.evidence import Summary
from newcomer.fitting import fit
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.logs.logbook import Logs
from newcomer.model import Model
from newcomer.verdicts import Findings

OCTAVES = 20  # of lengths of histories: 1, 2-3, 4-7, ...
WEIGHTS = {"check": 1.0, "fit": 1.0, "evaluate": 4.0}  # how long each takes, about

Part = TypeVar("Part")


@dataclass(frozen=True)
class Seen:
    """What a pass tells of the columns: users by octave of their length (OCTAVES,), and which columns there are."""

    lengths: Ints
    propensities: bool
    candidates: bool

    @classmethod
    def of(cls, batch: Batch) -> Seen:
        """The map of the pass."""
        octaves = np.minimum(np.log2(np.maximum(batch.lengths, 1)).astype(np.int64), OCTAVES - 1)
        counts = np.bincount(octaves, minlength=OCTAVES)
        return cls(counts, batch.propensities is not None, batch.candidates is not None)

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.lengths + other.lengths, self.propensities, self.candidates)


@dataclass(frozen=True)
class Dossier:
    """What a page is written from.

    `called` is how commands name the logs, with the options they were read with. `trouble` has, for each part that is
    missing ("check", "fit", "evaluate"), the sentence that says why.
    """

    called: str
    summary: Summary
    actions: int | None
    seen: Seen
    advice: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    findings: Findings | None = None
    model: Model | None = None
    evaluation: Evaluation | None = None
    trouble: dict[str, str] = field(default_factory=dict)


def collect(
    logs: Logs, *, called: str, seed: int = 0, quick: bool = False, progress: Progress | None = None
) -> Dossier:
    """Check, fit and evaluate; what fails with a sentence of ours leaves that sentence behind."""
    stages, trouble = Stages(progress, sum(WEIGHTS.values())), dict[str, str]()
    begun = stages.begin(WEIGHTS["check"])
    findings = _tried("check", lambda: check(logs, fit=False, seed=seed, progress=begun), trouble)
    told = stages.begin_fit(WEIGHTS["fit"])
    model = _tried("fit", lambda: fit(logs, progress=told), trouble)
    if findings is not None:  # as `check` does with a fit of its own
        enough = enough_users(model, trouble.get("fit", "").rstrip("."))
        findings = replace(findings, findings=(*findings.findings, enough))
    rest = stages.begin(WEIGHTS["evaluate"])
    found = _tried("evaluate", lambda: evaluate(logs, seed=seed, quick=quick, progress=rest), trouble)
    stages.end()
    return Dossier(
        called=called,
        summary=logs.summary,
        actions=None if logs.action_ids is None else len(logs.action_ids),
        seen=reduce(logs, Seen.of, Seen.__add__),
        advice=tuple(logs.advice),
        arms=logs.arms,
        findings=findings,
        model=model,
        evaluation=found,
        trouble=trouble,
    )


def _tried(part: str, work: Callable[[], Part], trouble: dict[str, str]) -> Part | None:
    """What the work gives, or None and, in `trouble`, why not."""
    try:
        return work()
    except NewcomerError as error:
        trouble[part] = str(error)
        return None
