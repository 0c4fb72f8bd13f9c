"""Deciding: the verdict in three sentences. May it be used, will it help, what to do.

Checks come first: over broken logs no gain is told in the verdict, whatever the evaluation says, since held-out people
of broken logs are broken in the same way. "Yes" needs both, logs that nothing speaks against and an interval of the
gain that is above zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from newcomer.evaluation.answers import Evaluation, compared
from newcomer.reporting.dossier import Dossier, Trouble, as_sentence
from newcomer.verdicts import Findings

Answer = Literal["yes", "with care", "not yet", "no"]


@dataclass(frozen=True)
class Decision:
    """The answer in a word and in three sentences."""

    answer: Answer
    sentences: tuple[str, str, str]


def decide(dossier: Dossier) -> Decision:
    """What the dossier comes to."""
    findings, found = dossier.findings, dossier.evaluation
    if dossier.model is None:
        trouble = dossier.trouble.get("fit", Trouble("nothing was fitted", ""))
        first = f"No: nothing can be learned from these logs: {trouble.what.rstrip('.')}."
        last = as_sentence(trouble.todo) if trouble.todo else _more(dossier)
        return Decision("no", (first, "Without a fit nothing can be measured.", last))
    if findings is not None and findings.verdict == "broken":
        return _broken(findings)
    if findings is None or findings.verdict == "unknowable":
        first = "Not yet: whether these logs can be trusted is not known; they are too few, or too short."
        return Decision("not yet", (first, _measured(found, dossier), _more(dossier)))
    if found is None or found.verdict == "unknown":
        first = "Not yet: these logs do not tell whether newcomers would be served better."
        return Decision("not yet", (first, _measured(found, dossier), _more(dossier)))
    return _told(findings, found, dossier)


def _broken(findings: Findings) -> Decision:
    """No, without a word of hope."""
    worst = findings.of("broken")
    first = f"No: these logs are broken ({_names(findings, 'broken')}); what is learned from them promises nothing."
    then = "What is measured on this page was measured on the same logs: it may be better or worse than it looks."
    return Decision("no", (first, then, " ".join(dict.fromkeys(as_sentence(one.advice) for one in worst))))


def _told(findings: Findings, found: Evaluation, dossier: Dossier) -> Decision:
    """Logs that may be used: what people say."""
    measured, doubtful = _measured(found, dossier), findings.verdict == "doubtful"
    if found.verdict == "no help":
        first = "No: newcomers would gain nothing over a ranking by the population's mean."
        return Decision("no", (first, measured, "Serve everybody the ranking by the population's mean."))
    if found.verdict == "not clear":
        first = "Not yet: these logs do not show clearly that newcomers would be served better."
        return Decision("not yet", (first, measured, _more(dossier)))
    if doubtful:
        names = _names(findings, "doubtful")
        first = f"Only with care: held-out people were served better, but the logs leave doubts ({names})."
        last = "Settle the doubts below first, or try it on a small random share of newcomers beside what runs today."
        return Decision("with care", (first, measured, last))
    first = "Yes: nothing in these logs speaks against learning from them, and held-out people were served better."
    last = "Try it on a random share of newcomers beside what runs today, and compare."
    return Decision("yes", (first, measured, last))


def _measured(found: Evaluation | None, dossier: Dossier) -> str:
    """The gain with its interval, or why there is none."""
    if found is None:
        return f"What newcomers would gain could not be measured. {dossier.why('evaluate')}"
    look = found.look
    if look is None:
        return as_sentence(found.sentences()[0])
    return (
        f"After {look.interactions} interaction{'s' * (look.interactions != 1)}, a choice among {found.choices} paid "
        f"{compared(look.population_mean, 'the ranking by the population mean, which teams run today')}, and "
        f"{compared(look.logging, 'what was logged')}; measured on {look.people:,} people who were kept out of the fit "
        "(intervals of 95%)."
    )


def _more(dossier: Dossier) -> str:
    """What to log, where logs do not suffice."""
    if dossier.summary.usable < dossier.summary.users / 2:
        return "Log several rows of each user: one row tells nothing about the next."
    return "Log more users, with several rows each, and make this page again."


def _names(findings: Findings, verdict: Literal["broken", "doubtful"]) -> str:
    return ", ".join(one.name for one in findings.of(verdict))
