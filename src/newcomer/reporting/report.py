"""report(): the page in a file, whatever the logs are like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from newcomer._fit import check_fit
from newcomer.errors import NewcomerError, OutputError
from newcomer.evaluation.results import Evaluation
from newcomer.files import write_file
from newcomer.findings import Decision, Findings
from newcomer.gain.deals import Progress
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs_if_path
from newcomer.logs.service_store import is_service_store, service_store_address
from newcomer.model import Model
from newcomer.records import Shown
from newcomer.reporting.contents import collect_contents
from newcomer.reporting.page import report_page
from newcomer.run_settings import Run
from newcomer.validate import validate_flag, validate_instance, validate_path, validate_whole


@dataclass(frozen=True)
class Report(Shown):
    """What a page says: the `decision`, its `answer` in a word and its sentences, and what is behind.

    `findings`, `evaluation` and `model` are None where they could not be had; `trouble` says why.
    """

    path: Path
    answer: str
    sentences: tuple[str, str, str, str]
    findings: Findings | None
    evaluation: Evaluation | None
    model: Model | None
    trouble: dict[str, str]
    decision: Decision

    def facts(self) -> dict[str, Any]:
        """Where the page is, and its verdict."""
        return {"path": str(self.path), "answer": self.answer, **{str(i + 1): s for i, s in enumerate(self.sentences)}}


def report(
    logs: Logs | Any,
    path: str | Path,
    *,
    seed: int = 0,
    quick: bool = False,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    run: Run | None = None,
    workers: int | None = None,
    called: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check the logs, fit them, measure what newcomers would gain, and write it all on one page of HTML.

    Parameters
    ----------
    logs : logs, or whatever `read_logs` takes as it is: a path, a pattern, a frame.
    path : where the page goes; what is there is replaced.
    seed, quick, run : as in `evaluate`. workers, progress : of the run, as keywords of before, which warn.
    rank, estimator : of the fit that is shown and of those that are judged, as in `fit`.
    called : how commands on the page name the logs, options included; by default their path.
    """
    run = Run.asked(run, who="report", workers=workers, progress=progress).for_reading("report")
    target = validate_path(path, "path", kind=OutputError)
    seed = validate_whole(seed, "seed", least=0, most=2**62, kind=NewcomerError)
    quick = validate_flag(quick, "quick", kind=NewcomerError)
    if called is not None:
        validate_instance(called, str, "called", todo="pass the logs as a command would name them", kind=NewcomerError)
    named = called or (str(fspath(logs)) if isinstance(logs, str | PathLike) else "LOGS")
    named = service_store_address(named) if is_service_store(named) else named
    with read_logs_if_path(logs, run.workers) as read:
        check_fit(read, rank, estimator)
        settings: dict[str, Any] = {"rank": rank, "estimator": estimator, "seed": seed, "quick": quick}
        dossier = collect_contents(read, called=named, progress=run.progress, **settings)
    dossier = replace(dossier, page=target.name)
    decision = dossier.decision
    write_file(target, report_page(dossier).encode())
    return Report(
        path=target,
        answer=decision.answer,
        sentences=decision.sentences,
        findings=dossier.findings,
        evaluation=dossier.evaluation,
        model=dossier.model,
        trouble={part: one.sentence for part, one in dossier.trouble.items()},
        decision=decision,
    )
