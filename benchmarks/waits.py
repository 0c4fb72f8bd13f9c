"""What people wait for: a check, a fit and a quick evaluation of MovieLens-1M, and a fit of half a million users.

Processor seconds of fresh processes, after imports and reading. MovieLens-1M (NEWCOMER_DATA has ml-1m) is 6,040 users,
1,000,209 ratings of 3,706 films, one-hot; half a million users click on 8 of 300 items
(`experiments.large_worlds.clicks`), fitted with outcome "gaussian". The column "before" is quoted
from notes on earlier versions and was not run again beside the other. A check no longer calibrates nor draws the null,
and a quick evaluation of so many actions no longer fits SOLD: part of the difference is work left out.

`python -m benchmarks.waits check fit` measures some of them and keeps what the page says of the others.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from benchmarks.measure import PAGES, page

ABOUT = {  # what is said, before, aim
    "check": ("`check`, MovieLens-1M", 62.0, 10.0),
    "fit": ("default fit, MovieLens-1M", 53.0, 33.0),
    "evaluate": ("`evaluate --quick`, MovieLens-1M", 114.0, 60.0),
    "many": ("default fit, 500,000 users x 8 of 300", None, 60.0),
}
AIMS = """The aim of the fit is four times the 15 iterations of `implicit`'s exact alternating least squares on the same
ratings, 8.3 s by the same notes. The machine was busy when "now" was measured (a load of about
fifteen on two cores), which makes processor seconds longer; what the table does not list has not been
measured by this command yet."""
RESULTS = PAGES / "waits.csv"


def measured(what: str) -> float:
    """Processor seconds of one of them, in this process."""
    import time

    import newcomer as nc

    if what == "many":
        from experiments.large_worlds import clicks

        logs = clicks().logs()
    else:
        from newcomer.paper.worlds.ratings import read_ratings

        ratings = read_ratings(Path(os.environ["NEWCOMER_DATA"]) / "ml-1m")
        logs = nc.Logs.from_arrays(user=ratings.user, action=ratings.movie, reward=ratings.rating)
    do = {
        "check": lambda: nc.check(logs),
        "fit": lambda: nc.fit(logs),
        "evaluate": lambda: nc.evaluate(logs, quick=True),
        "many": lambda: nc.fit(logs, outcome="gaussian"),
    }[what]
    start = time.process_time()
    do()
    return time.process_time() - start


def main(names: list[str] | None = None) -> None:
    """Measure those named, by default all, each in a process of its own, and write the page."""
    found = _kept()
    for name in ABOUT if names is None else names:
        asked = [sys.executable, "-m", "benchmarks.waits", "--alone", name]
        found[name] = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        _keep(found)
    rows = [
        {"what": said, "before": before, "now": found[name], "aim": aim}
        for name, (said, before, aim) in ABOUT.items()
        if name in found
    ]
    page("waits", "What people wait for", f"{__doc__}\n\n{AIMS}", {"": pl.DataFrame(rows, strict=False)})


def _kept() -> dict[str, float]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8") as file:
        return {row["what"]: float(row["seconds"]) for row in csv.DictReader(file)}


def _keep(found: dict[str, float]) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("what", "seconds"), *((name, f"{s:.2f}") for name, s in found.items())])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main(sys.argv[1:] or None)
