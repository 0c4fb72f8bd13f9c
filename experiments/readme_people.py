"""The README's first picture and the numbers beside it, from the table of the study `people`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.studies import people

BEGIN, END = "<!-- people: written by experiments.write_pages -->", "<!-- end of people -->"
ANSWERS, ALS = 60, "ALS fold-in, own answers"
HEADS = ("answers waver, 60 logged each", "20 logged", "same answer again, 60", "20", "each once (13), 60", "20")
SHOWN = {
    people.MEAN: "PopulationMean",
    people.ARMS: "EmpiricalArms",
    ALS: "ALS fold-in",
    people.OURS: "PriorUCB",
    people.LIMIT: "limit",
}


def draw(results: Path, path: Path) -> None:
    """Reward lost by newcomers whose answers waver, at most six lines, named at their ends."""
    own = pl.read_csv(results / "people.csv").filter(
        pl.col("policy").is_in(list(SHOWN)), case=people.WAVERING, answers=ANSWERS
    )
    order = pl.DataFrame({"policy": list(SHOWN)}).join(own, on="policy", how="inner", maintain_order="left_right")
    named = order.with_columns(pl.col("policy").replace_strict(SHOWN))
    x, y = Axis("t", "question"), Axis("regret", "lost so far, beside the best on offer")
    title = "Real people who were in no log, 40 questions each"
    draw_lines(named, path, x=x, y=y, error="regret_se", title=title, labelled=True)


def with_numbers(text: str, results: Path) -> str:
    """The README with today's numbers between its two marks."""
    if BEGIN not in text:
        return text
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{_told(results)}\n{END}{rest.split(END, 1)[1]}"


def _told(results: Path) -> str:
    """What newcomers lose, in the realistic case and in the others."""
    end = people.last(pl.read_csv(results / "people.csv"))

    def lost(case: str, policy: str, answers: int = ANSWERS) -> str:
        line = end.filter(case=case, policy=policy, answers=answers)
        return f"{line['regret'].item():.1f}" if len(line) else "?"

    names = {people.OURS: "**PriorUCB**", ALS: "ALS fold-in", people.ARMS: "EmpiricalArms"}
    names |= {people.MEAN: "PopulationMean", people.LIMIT: "limit: everything known of the others"}
    rows = [
        f"| 40 questions, regret | {' | '.join(HEADS)} |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    cases = [(case, answers) for case in (people.WAVERING, people.AGAIN, people.ONCE) for answers in (60, 20)]
    for policy, name in names.items():
        rows.append(f"| {name} | {' | '.join(lost(case, policy, answers) for case, answers in cases)} |")
    films = [lost(people.FILMS, policy, 0) for policy in (people.OURS, people.ARMS, people.MEAN)]
    last = f"MovieLens, 40 rounds of ten films that the person really rated, each once: PriorUCB {films[0]},"
    return "\n".join([*rows, "", f"{last} EmpiricalArms {films[1]}, PopulationMean {films[2]} stars."])
