"""The one place where evidence becomes a decision, for `check`, `fit`, `evaluate` and `report` alike.

The evidence is what a model keeps (`newcomer.evidence`): what checks found in the logs, what serving everybody the best
gains over what was logged, and what personalising adds after t interactions. Checks come first: people who were held
out of broken logs are broken in the same way, so that nothing is promised over them.

**From how many interactions on.** Looking at five numbers of interactions and naming the first whose interval is above
zero would say "yes" too often. The steps are tested in a fixed order instead, the longest first, and the next shorter
one only if the one before is clear: then a false "yes" has the probability of a single test, and "yes from 5 on" means
5 and everything longer. The order begins with the longest that half of the people have the rows for.
"""

from __future__ import annotations

from math import ceil

from newcomer.evidence import Everybody, Evidence, Outlook, OutlookStep, Summary
from newcomer.findings import GAIN, Answer, Decision, Finding, Findings, Known
from newcomer.interval import FEWEST, shown

LOOK = 5  # interactions that histories should have room for
NAMED, LONG = 3, 60  # actions in a sentence, and letters of a name
PROMISE = "what is learned from them promises nothing"


def decide(evidence: Evidence, *, trouble: str = "", todo: str = "") -> Decision:
    """What the evidence comes to; `trouble` says why there is no fit, `todo` what to do about it."""
    checks, summary = evidence.checks, evidence.logs
    outlook = evidence.measured
    logs = trust(checks)
    if trouble:
        first = f"No: nothing can be learned from these logs: {trouble.rstrip('.')}."
        last = _sentence(todo) if todo else _more(outlook, summary)
        unknown = "What everybody should get cannot be told without a fit.", "Nor can what personalising would add."
        return Decision("no", logs, "unknown", "unknown", None, (), (first, *unknown, last))
    if logs == "broken" and checks is not None:
        return _broken(checks)
    steps, start = by_step(outlook, summary)
    everybody, personal = _everybody(outlook, summary), _personal(outlook, steps, start)
    answer = _answer(logs, everybody, personal)
    doubts = wrong(checks, "doubtful")
    return Decision(
        answer=answer,
        logs=logs,
        everybody=everybody,
        personal=personal,
        start=start,
        steps=steps,
        sentences=(
            _first(answer, start, logs, doubts, outlook),
            _all_alike(outlook),
            _added(outlook, steps, start, personal, checks),
            _advice(answer, personal, start, outlook, evidence, doubts),
        ),
    )


def trust(checks: Findings | None) -> str:
    """The verdict on the logs, whatever there is to gain; "unchecked" without checks."""
    return "unchecked" if checks is None else checks.verdict


def wrong(checks: Findings | None, verdict: str) -> tuple[Finding, ...]:
    """The findings on the logs with this verdict."""
    return tuple(
        one for one in checks or () if one.verdict == verdict and (verdict == "broken" or one.name not in GAIN)
    )


def by_step(outlook: Outlook | None, summary: Summary | None) -> tuple[tuple[tuple[int, Known], ...], int | None]:
    """Whether personalising adds to the best for everybody after each number of interactions, and from when on it does.

    The steps are tested in a fixed order, the longest first, until one is not clear. A reward far outside all others
    may decide by itself what people seem to like, and heavy tails may hide it: then nothing is clear.
    """
    steps = outlook.steps if outlook else ()
    most = max((step.people for step in steps), default=0)
    found: dict[int, Known] = {step.interactions: _alone(step) for step in steps}
    if summary is not None and summary.hiding:
        found = {t: "yes" if known == "yes" else "not clear" for t, known in found.items()}
    start, open_ = None, not (summary is not None and summary.far_rewards)
    for step in sorted(steps, key=lambda one: -one.interactions):
        if found[step.interactions] == "yes" and open_:
            start = step.interactions
        elif 2 * step.people >= most or found[step.interactions] == "no":
            open_ = False
        if found[step.interactions] == "yes" and start != step.interactions:
            found[step.interactions] = "not clear"
    return tuple(found.items()), start


def _alone(step: OutlookStep) -> Known:
    """One step by itself. Where a newcomer gets less than what was logged, the mean is no ranking to be beaten."""
    worse = step.over_logged is not None and step.over_logged.high < 0
    return "no" if step.high <= 0 or worse else "yes" if step.clear else "not clear"


def _everybody(outlook: Outlook | None, summary: Summary | None) -> Known:
    found = outlook.everybody if outlook else None
    if found is None or found.gain.people < FEWEST:
        return "unknown"
    if summary is not None and summary.far_rewards:
        return "not clear"
    return "yes" if found.gain.clear else "no" if found.gain.high <= 0 else "not clear"


def _personal(outlook: Outlook | None, steps: tuple[tuple[int, Known], ...], start: int | None) -> Known:
    if outlook is None or not steps:
        return "unknown"
    return "yes" if start is not None else "no" if steps[-1][1] == "no" else "not clear"


def _answer(logs: str, everybody: Known, personal: Known) -> Answer:
    if logs == "unknowable":
        return "not yet"
    if personal == "yes":
        return "with care" if logs == "doubtful" else "yes"
    if everybody == "yes":
        return "best for all"
    return "no" if personal == "no" else "not yet"


def _broken(checks: Findings) -> Decision:
    """No, without a word of hope."""
    worst = wrong(checks, "broken")
    names = ", ".join(one.name for one in worst)
    return Decision(
        "no",
        "broken",
        "unknown",
        "unknown",
        None,
        (),
        (
            f"No: these logs are broken ({names}), and {PROMISE}.",
            "What everybody should get cannot be told from them.",
            "Nothing is promised of personalising: people who were held out are of the same logs.",
            " ".join(dict.fromkeys(_sentence(one.advice) for one in worst)),
        ),
    )


def _first(answer: Answer, start: int | None, logs: str, doubts: tuple[Finding, ...], outlook: Outlook | None) -> str:
    """The answer, with when."""
    names = ", ".join(one.name for one in doubts)
    care = f", with care: the logs leave doubts ({names})" if logs == "doubtful" else ""
    if answer in ("yes", "with care"):
        word = "Yes" if answer == "yes" else "Only with care"
        doubt = f"; the logs leave doubts ({names})" if answer == "with care" else ""
        return f"{word}: personalise from {_times(start or 0)} on, and serve everybody the best before{doubt}."
    if answer == "best for all":
        return f"Serve everybody the best{care}; that personalising adds to it is not shown."
    if answer == "no":
        return "No: neither serving everybody the best nor personalising gains anything by these logs."
    if logs == "unknowable":
        return "Not yet: these logs are too few, or too short, to be checked."
    if outlook is None:
        return "Not yet: what newcomers would gain was not measured (few people, short histories, or an old model)."
    return "Not yet: these logs do not show clearly that newcomers would be served better."


def _all_alike(outlook: Outlook | None) -> str:
    """What everybody should get, and what that gains."""
    found = outlook.everybody if outlook else None
    if found is None:
        return "What everybody should get was not measured."
    pays, value = worth(found), f"{shown(found.gain)}"
    alike = " (they do not differ beyond chance)" if found.alike else ""
    best = f"Best for everybody: {_names(found)}{alike}." if found.best else "Logs name no actions."
    return f"{best} {pays}: {value} over what was logged."


def worth(found: Everybody) -> str:
    """How serving everybody the best was valued, with both rewards."""
    both = f"{found.reward.value:.4g} against {found.logged:.4g} logged"
    if found.by == "propensities":
        return f"Serving everybody the best by the population mean pays {both} (by propensities, doubly robust)"
    return f"Ranking {found.choices} of a person's own rows by the population mean pays {both}"


def _names(found: Everybody) -> str:
    """The best actions with what they pay."""
    best = found.best[:NAMED]
    return ", ".join(f"{short_name(one.name)} at {one.mean:.3g} ({one.low:.3g} to {one.high:.3g})" for one in best)


def short_name(name: str) -> str:
    """A name in one line, without what a terminal would take for a command, and not too long.

    >>> short_name("a\\nfilm")
    'a film'
    """
    plain = "".join(letter for letter in " ".join(name.split()) if letter.isprintable())
    return plain if len(plain) <= LONG else f"{plain[: LONG - 3]}..."


def _added(
    outlook: Outlook | None,
    steps: tuple[tuple[int, Known], ...],
    start: int | None,
    personal: Known,
    checks: Findings | None,
) -> str:
    """What personalising adds, by the number of interactions."""
    if outlook is None or not steps:
        return "What personalising would add was not measured."
    known = dict(steps)
    told = ", ".join(f"{shown(one.over_mean)} after {one.interactions}" for one in outlook.steps)
    people = f"in a choice of {outlook.choices}, by {outlook.steps[0].people:,} people held out of the fit"
    first = {
        "yes": "Personalising adds to that",
        "not clear": "Whether personalising adds to that is not clear",
        "no": "Personalising adds nothing to that",
        "unknown": "What personalising adds is not known",
    }[personal]
    first += f": {_when(known)}" if personal == "yes" else ""
    numbers = f"Gain over the population mean {people}: {told} interactions (95% intervals)."
    return f"{first}. {numbers}{_seen(personal, checks)}"


def _when(known: dict[int, Known]) -> str:
    """`not after 1 or 2 interactions, yes after 5, 10 and 20`."""
    late = [t for t, one in known.items() if one == "yes"]
    early = [t for t, one in known.items() if one != "yes"]
    nots = f"not after {_listed(early, 'or')} interaction{'s' * (early != [1])}, " if early else ""
    return f"{nots}yes after {_listed(late, 'and')}{'' if nots else ' interactions'}"


def _seen(personal: Known, checks: Findings | None) -> str:
    """Tastes that a test finds, and that are too small to be served."""
    taste = next((one for one in checks or () if one.name == "shared taste"), None)
    if personal == "yes" or taste is None or taste.p_value is None or checks is None or taste.p_value > checks.level:
        return ""
    return f" Halves of histories do agree on tastes (p = {taste.p_value:.2g}), too small to be served from these logs."


def _advice(
    answer: Answer,
    personal: Known,
    start: int | None,
    outlook: Outlook | None,
    evidence: Evidence,
    doubts: tuple[Finding, ...],
) -> str:
    """What to do, as it follows from the evidence."""
    if answer == "with care":
        return (
            f"Settle the doubts first ({', '.join(one.name for one in doubts)}), or try it on a small random share of "
            "newcomers beside what runs today."
        )
    if answer == "yes":
        return "Try it on a random share of newcomers beside what runs today, and compare."
    serve = "Serve everybody the best, on a random share of newcomers first. " if answer == "best for all" else ""
    hiding = evidence.logs.hiding if evidence.logs else ""
    if hiding and personal != "yes":
        return f"{serve}What users prefer may be hidden by {hiding}: clip='auto' (--clip auto) limits what they do."
    return f"{serve}{_more(outlook, evidence.logs)}"


def _more(outlook: Outlook | None, summary: Summary | None) -> str:
    """What to log, where logs do not suffice: longer histories, more users, or nothing more."""
    if outlook is None or not outlook.steps:
        if summary is not None and 2 * summary.usable < summary.users:
            return "Log several rows of each user: one row tells nothing about the next."
        return "Log more users, with several rows each."
    last, rows = outlook.steps[-1], outlook.rows
    if last.interactions < LOOK:
        wanted = outlook.choices + LOOK
        return (
            f"Log longer histories: with {rows} rows of a usual user no more than {_times(last.interactions)} can be "
            f"told apart from a choice of {outlook.choices}; {wanted} would tell of {LOOK}."
        )
    best = max(outlook.steps, key=lambda one: one.gain / max(one.error, 1e-300))
    if best.gain <= 0 or best.error == 0:
        return (
            f"More rows of these users would not change that ({rows} a user are enough): as far as these logs show, "
            "users do not differ in what they prefer."
        )
    users = summary.users if summary is not None else best.people
    times = max((best.over_mean.high - best.gain) / best.gain, 1.0) ** 2
    needed = _rounded(users * times)
    return (
        f"If the gain after {_times(best.interactions)} is what it seems, about {needed:,} users (now {users:,}) would "
        f"show it: log more users; {rows} rows a user are enough."
    )


def _rounded(value: float) -> int:
    """Two figures, upwards."""
    unit = int(10 ** max(len(str(int(value))) - 2, 0))
    return ceil(value / unit) * unit


def _times(count: int) -> str:
    """`1 interaction`, `5 interactions`."""
    return f"{count} interaction{'s' * (count != 1)}"


def _listed(numbers: list[int], word: str) -> str:
    """`1, 2 or 5`."""
    head = ", ".join(map(str, numbers[:-1]))
    return f"{head} {word} {numbers[-1]}" if head else str(numbers[-1])


def _sentence(text: str) -> str:
    plain = text.strip()
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "!", "?")) else ".")
