"""The numbers of docs/paper/measured-people.md, from the tables of the studies `people` and `persistence`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from experiments import markdown, since
from newcomer.paper.studies import people, persistence

ALS, EASE = "ALS fold-in", "EASE fold-in"
SHOWN = {
    people.MEAN: "PopulationMean",
    EASE: "EASE fold-in",
    ALS: "ALS fold-in",
    people.ARMS: "EmpiricalArms",
    f"{EASE}, own answers": "EASE, own answers",
    f"{ALS}, own answers": "ALS, own answers",
    "PriorTS": "PriorTS",
    people.OURS: "**PriorUCB**",
    people.OURS + people.HEARD: "**PriorUCB**, told by 20 earlier newcomers",
    people.LIMIT: "limit (everything known of the others)",
}


def with_numbers(text: str, results: Path) -> str:
    """The page with today's numbers between each pair of marks."""
    end = people.last(pl.read_csv(results / "people.csv", infer_schema_length=None))
    share = pl.read_csv(results / "persistence.csv", infer_schema_length=None)
    told = {"people": _people(end), "likes": _likes(end), "persistence": _persistence(share)}
    if (results / since.NAME).is_file():
        told["since"] = since.verdicts(pl.read_csv(results / since.NAME))
    for mark, numbers in told.items():
        begin, close = f"<!-- {mark}: written by experiments.write_pages -->", f"<!-- end of {mark} -->"
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n{numbers}\n{close}{rest.split(close, 1)[1]}"
    return text


def _people(end: pl.DataFrame) -> str:
    """Young People: regret of every policy, how far PriorUCB goes, and what makes the difference."""
    cases = [(case, answers) for case in people.CASES for answers in people.ANSWERS]
    head = ["regret", *(f"{case}, {answers} logged" for case, answers in cases)]
    rows = [[name, *(_value(end, *case, policy, "regret", 1) for case in cases)] for policy, name in SHOWN.items()]
    both = (people.AGAIN, people.WAVERING)
    shares = [f"{share:g}: {_across(end, both, f'share {share:g} assumed')}" for share in people.SHARES]
    films = [_value(end, people.FILMS, 0, policy, "regret", 1) for policy in (people.OURS, "PriorTS", ALS, people.MEAN)]
    lost = f"PriorUCB {films[0]}, PriorTS {films[1]}, ALS {films[2]}, PopulationMean and EmpiricalArms {films[3]}"
    beside = f"PriorUCB / PopulationMean {_ratio(end, people.FILMS, 0, people.MEAN, 'ratio')}"
    splits = end.filter(case=people.AGAIN, policy=people.OURS)["units"].min()
    lines = [
        f"{splits} random splits of the people.",
        f"The way from PopulationMean to the limit that PriorUCB goes: {_each(end, both, people.OURS, 'way')}.",
        f"*EmpiricalArms.* PriorUCB / EmpiricalArms: {_each(end, both, people.OURS, 'arms')}.",
        f"*Memory.* PriorUCB / PriorUCB for which nothing comes again: {_each(end, both, 'share 0 assumed', 'ratio')}.",
        f"*The share.* PriorUCB / PriorUCB that assumes a share, least and largest of these: {'; '.join(shares)}.",
        f"*Recommenders.* PriorUCB / ALS with own answers: {_each(end, both, f'{ALS}, own answers', 'ratio')}.",
        f"*Each question once.* PriorUCB / PopulationMean: {_each(end, (people.ONCE,), people.MEAN, 'ratio')}.",
        f"*Films.* Replay of MovieLens, 40 rounds of ten rated films, each once, in stars: {lost}; {beside}.",
    ]
    return "\n".join([markdown.table(head, rows), "", *(f"- {line}" for line in lines)])


def _likes(end: pl.DataFrame) -> str:
    """What earlier newcomers are worth, on ratings and on likes."""
    cases = [(case, answers) for case in (people.AGAIN, people.WAVERING) for answers in people.ANSWERS]
    cases += [(f"{table}, {case}", answers) for table, answers in people.LIKED.items() for case in people.LIKES]
    ours, arms, heard = people.OURS, people.ARMS, people.HEARD
    policies = (people.MEAN, arms, arms + heard, ours, ours + heard, people.LIMIT)
    rows = [
        [
            f"{case}, {answers} logged",
            *(_value(end, case, answers, policy, "regret", 2) for policy in policies),
            _ratio(end, case, answers, ours, "arms"),
            _ratio(end, case, answers, ours + heard, "arms"),
        ]
        for case, answers in cases
    ]
    head = ["regret", "PopulationMean", "EmpiricalArms", "told", "PriorUCB", "told", "limit"]
    return markdown.table([*head, "PriorUCB / EmpiricalArms", "both told"], rows)


def _persistence(frame: pl.DataFrame) -> str:
    """Regret by true share and by the share that PriorUCB takes for granted."""
    said = [persistence.UNKNOWN, *(f"{share:g}" for share in persistence.ASSUMED)]
    columns = [("PriorUCB", one) for one in said] + [("EmpiricalArms", persistence.UNKNOWN)]
    rows = []
    for (actions, true), lines in frame.group_by("actions", "true", maintain_order=True):
        found = [lines.filter(policy=policy, assumed=one)["regret"] for policy, one in columns]
        found.append(lines.filter(policy="PopulationMean")["regret"])
        rows.append([str(actions), f"{true:g}", *(f"{one.item():.2f}" for one in found)])
    head = ["actions", "true share", *said, "EmpiricalArms, unknown", "PopulationMean"]
    return markdown.table(head, rows)


def _line(end: pl.DataFrame, case: str, answers: int, policy: str) -> dict[str, float] | None:
    """One line of the table, if it is there."""
    found = end.filter(case=case, answers=answers, policy=policy)
    return found.row(0, named=True) if len(found) else None


def _value(end: pl.DataFrame, case: str, answers: int, policy: str, name: str, digits: int) -> str:
    line = _line(end, case, answers, policy)
    return "" if line is None or line[name] is None else f"{line[name]:.{digits}f}"


def _ratio(end: pl.DataFrame, case: str, answers: int, policy: str, name: str) -> str:
    line = _line(end, case, answers, policy)
    return "?" if line is None else f"{line[name]:.3f} (se {line[name + '_se']:.3f})"


def _each(end: pl.DataFrame, cases: Sequence[str], policy: str, name: str) -> str:
    """A ratio in each case, for few and for many logged answers."""
    return "; ".join(
        f"{case} {' and '.join(f'{_ratio(end, case, n, policy, name)} with {n} logged' for n in people.ANSWERS)}"
        for case in cases
    )


def _across(end: pl.DataFrame, cases: Sequence[str], policy: str) -> str:
    """The least and the largest ratio of PriorUCB's regret to a policy's over cases and numbers of answers."""
    found = end.filter(pl.col("case").is_in(cases), pl.col("answers").is_in(people.ANSWERS), policy=policy)["ratio"]
    return f"{found.min():.3f} to {found.max():.3f}" if len(found) else "?"
