"""The page: one file that needs no network and no script, readable on a phone and on paper."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from newcomer import __version__
from newcomer.reporting.about_logs import checks_section, data_section
from newcomer.reporting.about_model import model_sections
from newcomer.reporting.about_people import everybody_section, people_sections
from newcomer.reporting.dossier import Dossier
from newcomer.reporting.markup import Markup, listed, named, tag
from newcomer.reporting.style import STYLE
from newcomer.verdicts import Decision

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
    ("learning", "Would more logs help?"),
    ("model", "What users have in common"),
    ("directions", "What the directions mean"),
    ("parts", "What rewards are made of"),
    ("radii", "How sure the directions are"),
    ("data", "What was logged"),
    ("next", "What to do next"),
)


def page_of(dossier: Dossier) -> str:
    """The whole page as text."""
    decision = dossier.decision
    title = f"What should newcomers get? {WORDS[decision.answer].capitalize()}."
    head = tag(
        "head",
        tag("meta", given={"charset": "utf-8"}),
        tag("meta", given={"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", given={"http-equiv": "Content-Security-Policy", "content": POLICY}),
        tag("link", given={"rel": "icon", "href": "data:,"}),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    sections = [
        everybody_section(dossier),
        checks_section(dossier),
        *people_sections(dossier),
        *model_sections(dossier),
        data_section(dossier),
        _next(dossier, decision),
    ]
    main = tag("main", _verdict(dossier, decision), _contents(sections), *sections)
    body = tag("body", main, _footer(dossier))
    return "<!doctype html>\n" + tag("html", head, body, given={"lang": "en"}) + "\n"


def _verdict(dossier: Dossier, decision: Decision) -> Markup:
    """The sentences of the decision, before everything else."""
    chip = tag("span", WORDS[decision.answer], given={"class": f"chip {CHIPS[decision.answer]}"})
    head = tag("h1", "What should newcomers get? ", chip)
    first, *others = decision.sentences
    told = [tag("p", first, given={"class": "lead"}), *(tag("p", named(said, 900)) for said in others)]
    s = dossier.summary
    source = f"From {s.users:,} users and {s.rows:,} rows of {named(dossier.called, 80)}."
    return tag("header", head, *told, tag("p", source, given={"class": "small"}))


def _contents(sections: list[Markup]) -> Markup:
    """Links to the sections that there are."""
    there = [(one, name) for one, name in PARTS if any(f'<section id="{one}"' in section for section in sections)]
    links = [tag("a", name, given={"href": f"#{one}"}) for one, name in there]
    return tag("nav", listed(links), given={"aria-label": "Sections"})


def _next(dossier: Dossier, decision: Decision) -> Markup:
    """Commands that can be copied."""
    steps = [tag("li", f"{why} ", tag("pre", tag("code", command))) for command, why in commands(dossier, decision)]
    return tag("section", tag("h2", "What to do next"), tag("ol", *steps), given={"id": "next"})


def commands(dossier: Dossier, decision: Decision) -> list[tuple[str, str]]:
    """What to type next, and what for."""
    logs = dossier.called
    page = f"newcomer report {logs}{dossier.options} --out {shlex.quote(dossier.page)} --force"
    again = (page, "Make this page again, from mended or longer logs.")
    if dossier.broken or dossier.model is None:
        return [(f"newcomer check {logs}", "See every finding with what to do about it, and mend the logs."), again]
    fit = (f"newcomer fit {logs}{dossier.options} --out model.newcomer", "Fit the model, once and for all users.")
    look = ("newcomer inspect model.newcomer", "See what it knows, and how sure it is.")
    measure = (f"newcomer evaluate {logs}{dossier.options}", "Measure the gain again, with every number on the screen.")
    if decision.answer in ("no", "not yet"):
        return [(f"newcomer check {logs}", "See every finding with what to do about it."), measure, again]
    if decision.answer == "best for all":
        serve = (
            "python -c \"import newcomer as nc; print(nc.PopulationMean(nc.load('model.newcomer')))\"",
            "Serve a random share of newcomers the best for everybody (this policy ranks by it), and compare.",
        )
        return [fit, serve, measure, again]
    serve = (
        "python -c \"import newcomer as nc; print(nc.PriorUCB(nc.load('model.newcomer')))\"",
        "Serve a random share of newcomers with this policy (its methods start, choose and update), and compare.",
    )
    return [fit, look, serve, measure, again]


def _footer(dossier: Dossier) -> Markup:
    day = datetime.now(UTC).date().isoformat()
    said = f"Made with newcomer {__version__} on {day}. Fingerprint of the logs: {dossier.summary.fingerprint}."
    return tag("footer", tag("p", said, given={"class": "small"}))
