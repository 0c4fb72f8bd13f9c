"""What people wait for: checks, fits, evaluations and reports, each beside a reference of the same run.

Processor seconds of fresh processes, after imports and reading. MovieLens-1M (NEWCOMER_DATA has ml-1m) is 6,040 users,
1,000,209 ratings of 3,706 films, one-hot. The small table is simulated: 349 users who rate 20 of 100 items from 1 to 5.
Half a million users click on 8 of 300 items (`experiments.large_worlds.clicks`), fitted with outcome "gaussian".

References: a bare pass adds up the rewards of all rows, as every pass of a fit reads them; `implicit` is that
library's exact ALS, 15 iterations with 18 factors, one thread (benchmarks/peers/films.py; it needs the
environment of `make bench-peers`, or one named by NEWCOMER_PEERS); five fits are five times the fit above.

With two workers, "measured" is the time of one process over the time that the same work takes at best on two free
cores: the seconds of the main process and half of those of its workers. It is computed from processor seconds, since
wall seconds depend on what else the machine does. Logs below 200,000 rows are fitted by one process; folds are shared
out.

`python -m benchmarks.waits check fit` measures some rows and keeps what docs/benchmarks/waits.csv has of the others;
`--at-once 6` measures six processes at a time, which makes processor seconds longer where cores or caches are shared.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks import scale
from benchmarks.measure import PAGES, page
from benchmarks.processes import ROOT

if TYPE_CHECKING:
    import newcomer as nc

ROWS = {  # what is measured, its reference, and the aim
    "check": ("`check`, MovieLens-1M", "a bare pass", "10 s"),
    "fit": ("default fit, MovieLens-1M", "`implicit`", "4 times"),
    "evaluate": ("`evaluate --quick`, MovieLens-1M", "five fits", "60 s"),
    "evaluate-workers": ("the same with two workers, times as fast", "", "1.7"),
    "small-evaluate": ("`evaluate`, 349 users x 20 of 100", "a fit of the same", "6 s"),
    "small-report": ("`report`, 349 users x 20 of 100", "`evaluate` of the same", "1.1 times"),
    "many": ("default fit, 500,000 users x 8 of 300", "a bare pass", "60 s"),
}
GROUPS = ("many", "evaluate-workers", "evaluate", "small", "check", "fit", "implicit")
NOTES = """What is behind the numbers, and what keeps them from falling further:

* Every second trial of an ascent on MovieLens-1M is a step that is too long. Such a trial is probed by its likelihood
  alone, beside the shorter one; a search that begins with the step that was right before would need fewer, and would
  change the numbers of every fit.
* Of a pass with 24 directions about half is two products of matrices for each user, which BLAS makes in double
  precision.
* A check needs the whole fit: its decision names the best actions by the fit to everybody, and the gain by the fits
  that chose it, and is the same record that `fit`, `evaluate` and `report` give.
* Two aims are missed. A check of MovieLens-1M is a fit (13 of 15 s, nearly all of it passes of EM) and one pass of
  tests. Two workers share out the folds of an evaluation, but all processes together take about 5 s more than one.
* An evaluation of few users makes ten fits to fewer users besides, for the learning curve; `quick` leaves them out."""
COLUMNS = ("what", "measured", "reference", "of the reference", "ratio", "aim")
RESULTS = PAGES / "waits.csv"


def films() -> nc.Logs:
    """MovieLens-1M."""
    import newcomer as nc
    from newcomer.paper.worlds.ratings import read_ratings

    ratings = read_ratings(Path(os.environ["NEWCOMER_DATA"]) / "ml-1m")
    return nc.Logs.from_arrays(user=ratings.user, action=ratings.movie, reward=ratings.rating)


def small(users: int = 349, items: int = 100, rows: int = 20) -> nc.Logs:
    """Users with two preferences who rate some of the items, from 1 to 5."""
    import newcomer as nc

    rng = np.random.default_rng(0)
    tastes, directions, means = rng.normal(size=(users, 2)), rng.normal(size=(2, items)), rng.normal(size=items)
    action = np.concatenate([rng.permutation(items)[:rows] for _ in range(users)])
    user = np.repeat(np.arange(users), rows)
    likes = 3.0 + 0.5 * means[action] + 0.4 * (tastes @ directions)[user, action] + rng.normal(size=len(user))
    return nc.Logs.from_arrays(user=user, action=action, reward=np.clip(np.rint(likes), 1, 5))


def many() -> nc.Logs:
    """Half a million users."""
    from experiments.large_worlds import clicks

    return clicks().logs()


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of some work in this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def bare_pass(logs: nc.Logs) -> float:
    """Processor seconds of a pass that adds up rewards, the median of five."""
    from newcomer.logs.reduce import CODED, reduce

    rows = CODED if logs.by_action else None
    return float(np.median([seconds(lambda: reduce(logs, _total, float.__add__, rows=rows)) for _ in range(5)]))


def _total(batch: Any) -> float:
    return float(batch.rewards.sum())


def warm() -> None:
    """Fit, check and evaluate a few users, so that modules and machine code are loaded before the clock runs."""
    import newcomer as nc

    logs = small(60, 12, 8)
    nc.check(logs)
    nc.evaluate(logs, quick=True)


def measured(name: str) -> dict[str, float]:
    """Rows of one process: what was measured, and of its reference."""
    import newcomer as nc

    warm()
    if name == "small":
        logs = small()
        with tempfile.TemporaryDirectory() as folder:
            fit = seconds(lambda: nc.fit(logs))
            evaluated = seconds(lambda: nc.evaluate(logs))
            reported = seconds(lambda: nc.report(logs, Path(folder) / "report.html"))
        found = {"small-evaluate": evaluated, "small-evaluate:of": fit, "small-report": reported}
        return found | {"small-report:of": evaluated}
    logs = many() if name == "many" else films()
    if name == "evaluate-workers":
        begun = time.process_time()
        nc.evaluate(logs, quick=True, run=nc.Run(workers=2))
        own, workers = time.process_time() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        return {"workers:own": own, "workers:theirs": workers.ru_utime + workers.ru_stime}
    work: dict[str, Callable[[], object]] = {
        "check": lambda: nc.check(logs),
        "fit": lambda: nc.fit(logs),
        "evaluate": lambda: nc.evaluate(logs, quick=True),
        "many": lambda: nc.fit(logs, outcome="gaussian"),
    }
    found = {name: seconds(work[name])}
    return found | ({f"{name}:of": bare_pass(logs)} if name in ("check", "many") else {})


def implicit() -> float:
    """Processor seconds of the peer's fit of the same ratings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        scale.write_ratings(path, None)
        done = subprocess.run(
            [scale.PEERS, "-m", "benchmarks.peers.films", str(path)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
    return float(json.loads(done.stdout.splitlines()[-1])["cpu"])


def alone(name: str) -> dict[str, float]:
    """The same of a process of its own."""
    if name == "implicit":
        return {"fit:of": implicit()} if scale.PEERS.exists() else {}
    asked = [sys.executable, "-m", "benchmarks.waits", "--alone", name]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(words: Sequence[str] = ()) -> None:
    """Measure those named, by default all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=", ".join(GROUPS))
    parser.add_argument("--at-once", type=int, default=1)
    given = parser.parse_args(list(words))
    found = _kept()
    with ThreadPoolExecutor(given.at_once) as pool:
        for told in pool.map(alone, given.groups or GROUPS):
            found |= told
            _keep(found)
    _keep(found | {"load": os.getloadavg()[0]})
    write()


def write() -> None:
    """Write the page from what is kept."""
    found = _kept()
    if "fit" in found and "evaluate" in found:
        found["evaluate:of"] = 5.0 * found["fit"]
    if {"evaluate", "workers:own", "workers:theirs"} <= found.keys():
        found["evaluate-workers"] = found["evaluate"] / (found["workers:own"] + found["workers:theirs"] / 2.0)
    load = f"\n\nThe load of the machine was {found['load']:.0f} at the end." if "load" in found else ""
    page("waits", "What people wait for", f"{__doc__}\n{NOTES}{load}", {"": pl.DataFrame(_rows(found), strict=False)})


def _rows(found: dict[str, float]) -> list[dict[str, object]]:
    """The rows of the table that were measured."""
    rows = []
    for name, (what, reference, aim) in ROWS.items():
        if name in found:
            size = found.get(f"{name}:of")
            ratio = None if size is None else found[name] / size
            rows.append(dict(zip(COLUMNS, (what, found[name], reference, size, ratio, aim), strict=True)))
    return rows


def _kept() -> dict[str, float]:
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8") as file:
        return {row["what"]: float(row["seconds"]) for row in csv.DictReader(file)}


def _keep(found: dict[str, float]) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("what", "seconds"), *((name, f"{s:.4g}") for name, s in found.items())])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main(sys.argv[1:])
