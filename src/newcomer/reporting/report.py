"""report(): one page in a file, whatever the logs are like.

It needs no network and no script, and is readable on a phone and on paper: plain black on white, one column, the fonts
that the reader has. Every text has a contrast of at least 4.5 to what is behind it.

The page holds names from the logs, which may come from anywhere: all text is escaped, and the content policy of the
page forbids scripts and addresses, so that a name that slipped through could still do nothing. The order is that of a
reader's questions: the verdict, then whether the logs can be trusted, what users gain, what the model has learned.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from newcomer import __version__
from newcomer._fit import check_fit
from newcomer.errors import NewcomerError, OutputError
from newcomer.evaluation.results import Evaluation
from newcomer.files import write_file
from newcomer.findings import SPELLING, Decision, Findings
from newcomer.gain.deals import Progress
from newcomer.gain.verdict import verdict_serving_code
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs_if_path
from newcomer.logs.service_store import is_service_store, service_store_address
from newcomer.model import Model
from newcomer.records import Shown
from newcomer.reporting.contents import ReportContents, collect_contents
from newcomer.reporting.markup import Markup, list_markup, markup_tag, name_markup
from newcomer.reporting.sections_logs import logs_checks_section, logs_data_section
from newcomer.reporting.sections_model import model_sections
from newcomer.reporting.sections_users import TITLE, user_attribute_sections, user_sections, users_everybody_section
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
    """Check the logs, fit a model, measure what new users would gain, and write it all to one HTML page.

    Parameters
    ----------
    logs : logs, or what `read_logs` takes without options: a path, a pattern, a frame.
    path : where the page is written; an existing file is replaced.
    seed, quick, run : as in `evaluate`. The keywords workers and progress do the same as `run`, and warn.
    rank, estimator : of the fits, as in `fit`.
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
        contents = collect_contents(read, called=named, progress=run.progress, **settings)
    contents = replace(contents, page=target.name)
    decision = contents.decision
    write_file(target, report_page(contents).encode())
    return Report(
        path=target,
        answer=decision.answer,
        sentences=decision.sentences,
        findings=contents.findings,
        evaluation=contents.evaluation,
        model=contents.model,
        trouble={part: one.sentence for part, one in contents.trouble.items()},
        decision=decision,
    )


# Nothing is loaded from anywhere, and nothing runs, whatever found its way into the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
CHIPS = {"yes": "fine", "best for all": "fine", "with care": "doubtful", "not yet": "doubtful", "no": "broken"}
WORDS = {
    "yes": "personalise",
    "with care": "personalise, with care",
    "best for all": "the best for everybody",
    "not yet": "not known yet",
    "no": "no promise",
}
PARTS = (
    ("everybody", "What should everybody get?"),
    ("checks", "Can these logs be trusted?"),
    ("people", "What personalising adds"),
    ("policies", "Policies side by side"),
    ("learning", "Would more users help?"),
    ("model", "What users have in common"),
    ("directions", "What the directions mean"),
    ("parts", "What rewards are made of"),
    ("radii", "How sure the directions are"),
    ("attributes", TITLE),
    ("data", "What was logged"),
    ("next", "What to do next"),
)


def report_page(contents: ReportContents) -> str:
    """The whole page as text."""
    decision = contents.decision
    title = f"What should newcomers get? {WORDS[decision.answer].capitalize()}."
    head = markup_tag(
        "head",
        markup_tag("meta", given={"charset": "utf-8"}),
        markup_tag("meta", given={"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        markup_tag("meta", given={"http-equiv": "Content-Security-Policy", "content": POLICY}),
        markup_tag("link", given={"rel": "icon", "href": "data:,"}),
        markup_tag("title", title),
        markup_tag("style", Markup(STYLE)),
    )
    sections = [
        users_everybody_section(contents),
        logs_checks_section(contents),
        *user_sections(contents),
        *user_attribute_sections(contents),
        *model_sections(contents),
        logs_data_section(contents),
        _next(contents, decision),
    ]
    main = markup_tag("main", _verdict(contents, decision), _contents(sections), *sections)
    body = markup_tag("body", main, _footer(contents))
    return "<!doctype html>\n" + markup_tag("html", head, body, given={"lang": "en"}) + "\n"


def _verdict(contents: ReportContents, decision: Decision) -> Markup:
    """The sentences of the decision, before everything else."""
    chip = markup_tag("span", WORDS[decision.answer], given={"class": f"chip {CHIPS[decision.answer]}"})
    head = markup_tag("h1", "What should newcomers get? ", chip)
    first, *others = decision.sentences
    parts = [
        markup_tag("p", first, given={"class": "lead"}),
        *(markup_tag("p", name_markup(said, 900)) for said in others),
    ]
    s = contents.summary
    source = f"From {s.users:,} users and {s.rows:,} rows of {name_markup(contents.called, 80)}."
    return markup_tag("header", head, *parts, markup_tag("p", source, given={"class": "small"}))


def _contents(sections: list[Markup]) -> Markup:
    """Links to the sections that there are."""
    there = [(one, name) for one, name in PARTS if any(f'<section id="{one}"' in section for section in sections)]
    links = [markup_tag("a", name, given={"href": f"#{one}"}) for one, name in there]
    return markup_tag("nav", list_markup(links), given={"aria-label": "Sections"})


def _next(contents: ReportContents, decision: Decision) -> Markup:
    """Commands, and lines of Python, that can be copied."""
    steps = [
        markup_tag("li", f"{why} ", markup_tag("pre", markup_tag("code", command)))
        for command, why in page_commands(contents, decision)
    ]
    return markup_tag("section", markup_tag("h2", "What to do next"), markup_tag("ol", *steps), given={"id": "next"})


def page_commands(contents: ReportContents, decision: Decision) -> list[tuple[str, str]]:
    """What to type next, and what for."""
    spelled = contents.findings is not None and SPELLING in {one.name for one in contents.findings}
    logs = contents.called + (" --tidy-ids" if spelled and "--tidy-ids" not in contents.called else "")
    page = f"newcomer report {logs}{contents.options} --out {shlex.quote(contents.page)} --force"
    joined = ", with spellings of an action joined" if spelled else ""
    again = (page, f"Make this page again, from corrected or longer logs{joined}.")
    if contents.broken or contents.model is None:
        return [(f"newcomer check {logs}", "See every finding with what to do about it, and correct the logs."), again]
    fit = (f"newcomer fit {logs}{contents.options} --out model.newcomer", "Fit the model, once and for all users.")
    look = ("newcomer inspect model.newcomer", "See what it knows, and how sure it is.")
    measure = (
        f"newcomer evaluate {logs}{contents.options}",
        "Measure the gain again, with every number on the screen.",
    )
    if decision.answer in ("no", "not yet"):
        return [(f"newcomer check {logs}", "See every finding with what to do about it."), measure, again]
    code = verdict_serving_code(decision, "model.newcomer", named=contents.model.action_ids is not None)
    why = "Serve a random share of newcomers the best for everybody, in Python, and compare."
    if decision.answer != "best for all":
        why = (
            "Serve a random share of newcomers by PriorUCB, in Python, and compare. It starts from the population "
            "mean, with a little exploration, and learns from every reward."
        )
    return [fit, look, (code, why), measure, again]


def _footer(contents: ReportContents) -> Markup:
    day = datetime.now(UTC).date().isoformat()
    said = f"Made with newcomer {__version__} on {day}. Fingerprint of the logs: {contents.summary.fingerprint}."
    return markup_tag("footer", markup_tag("p", said, given={"class": "small"}))


STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: #fff; color: #1b1f24; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main, footer { max-width: 46rem; margin: 0 auto; padding: 0 1rem; }
header { padding: 1.5rem 0 .5rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .75rem; }
h2 { font-size: 1.3rem; line-height: 1.25; margin: 2.25rem 0 .5rem; padding-top: .75rem;
  border-top: 2px solid #1b1f24; }
h3 { font-size: 1.05rem; margin: 1.25rem 0 .25rem; }
p, ul, ol, dl, figure { margin: .5rem 0; }
p, li, dd, h1, h2, h3, figcaption, summary, td, th { overflow-wrap: anywhere; }
.lead { font-size: 1.2rem; font-weight: 600; }
.small, figcaption, caption { font-size: .875rem; color: #4a5058; }
nav { font-size: .95rem; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
a { color: #0b5394; }
.chip { display: inline-block; padding: .05em .6em; border-radius: 1em; font-size: .8em; font-weight: 600; color: #fff;
  vertical-align: middle; white-space: nowrap; }
.chip.fine { background: #1b6e3c; } .chip.doubtful { background: #8a5a00; }
.chip.broken { background: #a51c1c; } .chip.unknowable { background: #4a5058; }
article { padding: .25rem 0 .5rem; border-bottom: 1px solid #d5d8dc; }
dl > div { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .2rem 0; border-bottom: 1px solid #e6e8eb; }
dt { flex: 0 0 8rem; font-weight: 600; } dd { flex: 1 1 12rem; margin: 0; }
.scroll { overflow-x: auto; max-width: 100%; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .25rem; }
th, td { padding: .3rem .6rem .3rem 0; text-align: right; border-bottom: 1px solid #d5d8dc; vertical-align: top;
  overflow-wrap: normal; }
th:first-child, th:last-child:nth-child(3), td:last-child:nth-child(3) { text-align: left; }
@media screen and (max-width: 48rem) {
  table, tbody, tr, caption, tbody th, td { display: block; width: 100%; }
  thead { display: none; }
  tbody tr { padding: .35rem 0; border-bottom: 1px solid #d5d8dc; }
  tbody th, td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0; border: 0;
    text-align: right; overflow-wrap: anywhere; }
  tbody th::before, td::before { content: attr(data-head); font-weight: 400; color: #4a5058; text-align: left; }
}
figure svg[role=img] { display: block; width: 100%; max-width: 27rem; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #1b1f24;
  paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 0 1.5rem; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .875rem; }
.swatch { width: 24px; height: 12px; margin-right: .4em; vertical-align: middle; flex: none; }
details { margin: .5rem 0; } summary { cursor: pointer; color: #0b5394; }
pre { margin: .25rem 0 .75rem; padding: .5rem .75rem; background: #f2f4f6; border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .9rem; }
footer { padding-top: 2rem; padding-bottom: 2rem; }
@media print {
  body { font-size: 10.5pt; } main, footer { max-width: none; padding: 0; }
  nav { display: none; } .pair { display: block; } .scroll { overflow: visible; } a { color: inherit; }
  h2, h3, summary, caption, thead, h2 + p, h3 + p, dt { break-after: avoid; }
  figure, article, table, tr, li, dl > div { break-inside: avoid; }
  p { orphans: 3; widows: 3; }
}
"""
