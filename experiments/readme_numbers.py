"""The README's picture and numbers, from the tables of the studies `outlook` (promises) and `people` (alternatives)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import rivals_page
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.studies import people

PROMISE = "<!-- promise: written by experiments.write_pages -->", "<!-- end of promise -->"
PEOPLE = "<!-- people: written by experiments.write_pages -->", "<!-- end of people -->"
RIVALS = "<!-- rivals: written by experiments.write_pages -->", "<!-- end of rivals -->"
ANSWERS, DECISIONS, ALS = 60, 40, "ALS fold-in, own answers"
PANELS = {"young, 60 answers": "Young People Survey, 60 answers logged", "films": "MovieLens, 300 films"}
SHOWN = {
    people.MEAN: "PopulationMean",
    people.ARMS: "EmpiricalArms",
    ALS: "ALS, own answers",
    people.OURS: "PriorUCB",
    people.LIMIT: "limit",
}
INSTEAD = (
    (people.MEAN, "the best for everybody", "never learns who the user is"),
    (
        people.ARMS,
        "a mean per item, updated by the user's own ratings",
        "learns nothing about items that the user has not rated",
    ),
    (
        ALS,
        "matrix factorisation (ALS), new users folded in",
        "no uncertainty, so no exploration and no interval; the rank must be tuned",
    ),
    (
        people.OURS,
        "**newcomer** (`PriorUCB`)",
        "needs logs in which users' preferences did not decide what was shown",
    ),
    (people.LIMIT, "*limit: the logged people had answered every question*", ""),
)


def draw_people(results: Path, path: Path) -> None:
    """Reward lost by newcomers whose answers waver, at most six lines, named at their ends."""
    own = pl.read_csv(results / "people.csv").filter(
        pl.col("policy").is_in(list(SHOWN)), case=people.WAVERING, answers=ANSWERS
    )
    order = pl.DataFrame({"policy": list(SHOWN)}).join(own, on="policy", how="inner", maintain_order="left_right")
    named = order.with_columns(pl.col("policy").replace_strict(SHOWN))
    x, y = Axis("t", "question"), Axis("regret", "regret so far, to the best on offer")
    title = "Real people who were in no log; 60 answers logged, half of repeat answers redrawn"
    draw_lines(named, path, x=x, y=y, error="regret_se", title=title, labelled=True)


def draw_promise(results: Path, path: Path) -> None:
    """The gain that `fit` said with its interval, and the gain of users whom no log knew, by interactions."""
    own = pl.read_csv(results / "outlook.csv").filter(pl.col("people").is_in(list(PANELS)))
    own = own.with_columns(pl.col("people").replace_strict(PANELS))
    said = own.select("people", "interactions", policy=pl.lit("predicted"), gain="said", error=pl.col("width") / 2)
    happened = own.select(
        "people", "interactions", policy=pl.lit("measured"), gain="happened", error=1.96 * pl.col("happened_se")
    )
    x, y = Axis("interactions", "interactions with the new user"), Axis("gain", "gain per decision, rating points")
    title = "Gain over showing everybody the same: predicted from the logs, then measured on new users"
    draw_lines(pl.concat([said, happened]), path, x=x, y=y, facet="people", error="error", marked=True, title=title)


def with_numbers(text: str, results: Path) -> str:
    """The README with today's numbers between its marks."""
    for (begin, end), told in ((PROMISE, promise), (PEOPLE, alternatives), (RIVALS, rivals_page.in_readme)):
        if begin in text:
            before, rest = text.split(begin, 1)
            text = f"{before}{begin}\n{told(results)}\n{end}{rest.split(end, 1)[1]}"
    return text


def promise(results: Path) -> str:
    """How many of the promised intervals had what happened."""
    own = pl.read_csv(results / "outlook.csv").filter(pl.col("people").is_in(list(PANELS)))
    splits, covered, trials = own["splits"].max(), own["covered"].sum(), own["splits"].sum()
    return (
        f"*Two sets of real people who rate from 1 to 5, split {splits} times each. From the logs of most of them"
        " newcomer predicted what the next decision gains over showing everybody the same, after so many interactions,"
        " with a 95% interval (shaded); then it served the others, and the gain was measured."
        f" {covered} of {trials} intervals held what happened, so they are rather too wide. Here no user meets an item"
        f" twice; where items come again the gain is larger (about {_gain_of_repeats(results):.1f} points a decision in"
        " the table below).*"
    )


def _gain_of_repeats(results: Path) -> float:
    """What PriorUCB gains a decision over the best for everybody, in the table of alternatives."""
    end = people.last(pl.read_csv(results / "people.csv")).filter(case=people.WAVERING, answers=ANSWERS)
    lost = [end.filter(policy=policy)["regret"].item() for policy in (people.MEAN, people.OURS)]
    return (lost[0] - lost[1]) / DECISIONS


def alternatives(results: Path) -> str:
    """What newcomers lose by what teams run today, in the realistic case."""
    end = people.last(pl.read_csv(results / "people.csv"))
    rows = ["| you could run | main limitation | points lost in 40 decisions |", "|---|---|---:|"]
    for policy, name, lacks in INSTEAD:
        line = end.filter(case=people.WAVERING, policy=policy, answers=ANSWERS)
        rows.append(f"| {name} | {lacks} | {line['regret'].item():.1f} |" if len(line) else f"| {name} | {lacks} | ? |")
    return "\n".join(rows)
