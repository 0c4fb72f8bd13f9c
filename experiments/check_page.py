"""The false alarms and the power of the checks on docs/paper/measured-check.md, from the table of `check-rates`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import markdown
from newcomer.checks.quick import TESTS
from newcomer.paper.studies.check_rates import DESIGNS, FAULTS, LEVEL, TOGETHER

BEGIN, END = "<!-- check-rates: written by experiments.write_pages -->", "<!-- end of check-rates -->"
UNITS = {
    "logger knows taste": "log-odds an sd of preference",
    "logger learns taste": "log-odds an sd of preference",
    "all rewards drift": "sd of rewards over a history",
    "a direction drifts": "sd of rewards over a history",
    "length by taste": "logarithm of the length an sd of preference",
    "contexts of the user": "share of the variance that is the user's",
    "people log what they like": "log-odds an sd of their own rewards",
}


def with_rates(page: str, results: Path) -> str:
    """The page with today's numbers between its marks; as it is if there is no such table."""
    if not (results / "check-rates.csv").is_file():
        return page
    frame = pl.read_csv(results / "check-rates.csv", infer_schema_length=None)
    before, rest = page.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{_alarms(frame)}\n\n{_power(frame)}\n\n{_exact(frame)}\n{END}{rest.split(END, 1)[1]}"


def _alarms(frame: pl.DataFrame) -> str:
    """How often clean sets are accused."""
    clean = frame.filter(design=TOGETHER)
    every = clean.filter(test="any").row(0, named=True)
    body = []
    for test in TESTS:
        for row in clean.filter(test=test).iter_rows(named=True):
            fewer = "" if row["sets"] == every["sets"] else f" ({row['sets']:,} sets)"
            body.append([test + fewer, f"{row['alarm']:.1%}", f"{row['named']:.1%}"])
    told = f"{every['alarm']:.1%} (se {100 * every['alarm_se']:.1f})"
    body.append(["any of them, after Holm's correction", told, f"{every['named']:.1%}"])
    text = f"On {every['sets']:,} clean data sets (300 users, about 10 rows; features and actions, drawn with and "
    text += f"without replacement, lengths equal and not, good actions popular or not) at level {LEVEL:g}:"
    return f"{text}\n\n{markdown.table(['test', 'alarms by itself', 'called doubtful or broken'], body)}"


def _power(frame: pl.DataFrame) -> str:
    """The least strength at which each fault is seen, and named, in all sets; and two faults that are hard to see."""
    body = []
    for fault, (test, _) in FAULTS.items():
        own = frame.filter(design=fault, test=test)
        least = [min(own.filter(pl.col(column) == 1.0)["strength"], default=None) for column in ("alarm", "named")]
        body.append(
            [
                fault.replace("taste", "preferences"),
                test,
                UNITS[fault],
                *("never" if one is None else f"{one:g}" for one in least),
            ]
        )
    knows = "logger knows taste"
    half, some = (_row(frame, knows, 0.2, test) for test in (FAULTS[knows][0], "any"))
    likes = "people log what they like"
    seen = _row(frame, likes, 0.25, FAULTS[likes][0])
    text = f"With 2,000 users of 20 rows, {half['sets']} data sets each: the least strength tried at which the test of "
    text += f"a fault sees it in all sets (p at most {LEVEL:g}), and at which it is called doubtful or broken in all."
    more = f"A logger that knows the preferences with log-odds of 0.2 was seen in {_of(half, 'alarm')} by the test of "
    more += "preference-dependent logging, which has one choice of each user to go by, and in "
    more += f"{_of(some, 'alarm')} by some test. People who log 20 of 100 actions by their own reward, noise and all, "
    more += f"with log-odds of 0.25 an sd of it were seen in {_of(seen, 'alarm')} and named in {_of(seen, 'named')} "
    more += f'by "{FAULTS[likes][0]}" (effect {seen["effect"]:.2f}).'
    head = ["fault", "test", "strength", "seen in all from", "named in all from"]
    return f"{text}\n\n{markdown.table(head, body)}\n\n{more}"


def _exact(frame: pl.DataFrame) -> str:
    """Where the tests are exact, and how far they are from it elsewhere."""
    once = frame.filter(pl.col("design").is_in([one for one in DESIGNS if "once" in one]))
    rates = {
        test: (sum(own["alarm"] * own["sets"]) / sum(own["sets"]), sum(own["sets"]))
        for (test,), own in once.group_by("test")
    }
    told = [f"{test} in {rates[test][0]:.1%} of {rates[test][1]}" for test in ("adaptive logging", "history length")]
    text = "The permutations of halves and of lengths and the turned histories are exact tests where rows are drawn "
    text += "independently, whatever the distribution of rewards; where actions come once each they are not exact: "
    text += f"drift alarmed in {rates['drift'][0]:.1%} of {rates['drift'][1]} such clean sets, {', '.join(told)}. "
    text += "[All rates and power curves](../paper/results.md#check-rates): `newcomer reproduce check-rates`."
    return text


def _row(frame: pl.DataFrame, design: str, strength: float, test: str) -> dict[str, float]:
    return frame.filter(design=design, strength=strength, test=test).row(0, named=True)


def _of(row: dict[str, float], column: str) -> str:
    """A share as a count of sets."""
    return f"{row[column] * row['sets']:.0f} of {row['sets']}"
