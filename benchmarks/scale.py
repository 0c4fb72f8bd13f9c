"""How far it goes: fits from files of many users, by one process, by workers and by a cluster.

16 Parquet files, 20 steps a user, d = 50 through a table of 1,000 items, rows in the order in which they happened, so
that users span all files. Every fit is a process of its own, seen from outside: wall seconds, processor seconds of it
and of all its workers, and the peak memory of the largest process, libraries included. "after imports" are the
processor seconds of reading and fitting alone. SOLD is fitted with rank 2 and no null, the default fit with everything
as it comes. Peers and references are measured in the same run. Where one process takes many more wall than processor
seconds, other programs ran beside it.

`python -m benchmarks.scale --users 50000 local workers` measures some sections, smaller; what it measures takes the
place of what docs/benchmarks/scale.csv has of these sections, and the page is written from that file, with the day on
which each section was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import measure, processes, scale_page
from newcomer.paper.worlds.download import find_movielens
from newcomer.worlds import Synthetic

USERS, STEPS, FILES, DIM, ITEMS = 1_000_000, 20, 16, 50, 1000
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
DIMS, CATALOGUES = (10, 50, 200), (100, 1000, 10_000, 100_000)
BOTH = ("sold", "em")
SHARE = 20  # the sweeps over dimension and actions take this part of the users
PEERS = Path(
    os.environ.get("NEWCOMER_PEERS", processes.ROOT / "benchmarks" / "peers" / ".venv" / "bin" / "python")
)  # of `make bench-peers`
Row = dict[str, Any]


class Bench:
    """The sections, for so many `users`; files that were made and fits by one process are used again."""

    def __init__(self, folder: Path, users: int, films: int | None) -> None:
        self.folder, self.users, self.films = folder, users, films
        self._kept = cache(lambda estimator, users, dim, items: self.fit(estimator, users, dim=dim, items=items))

    def logs(self, users: int, dim: int = DIM, items: int = ITEMS) -> str:
        """Write logs, and say where."""
        world, place = Synthetic(dim=dim, scale=1.25, items=items, seed=0), self.folder / f"{users}-{dim}-{items}"
        if not place.exists():
            place.mkdir()
            world.write_logs(place / "logs", users, STEPS, seed=0, files=FILES, grouped=False)
            world.write_items(place / "items.parquet")
        return str(place)

    def alone(self, estimator: str, users: int, dim: int = DIM, items: int = ITEMS) -> Row:
        """A fit by one process, made once."""
        return self._kept(estimator, users, dim, items)

    def fit(
        self, estimator: str, users: int, *, engine: str = "local", workers: int = 1, dim: int = DIM, items: int = ITEMS
    ) -> Row:
        """A fit, as a row of the table."""
        place = self.logs(users, dim, items)
        asked = {"folder": place, "estimator": estimator, "engine": engine, "workers": workers}
        what = "SOLD" if estimator == "sold" else "default fit"
        sizes = {"users": users, "rows": users * STEPS, "dim": dim, "actions": items}
        return {"what": what, "engine": engine, "workers": workers, **sizes, **_taken("fit", asked)}

    def local(self) -> list[Row]:
        """Both fits beside the bare steps that a fit from files cannot do without."""
        rows = [self.alone(estimator, self.users) for estimator in BOTH]
        for step in ("kernel", "scan", "spill"):
            asked = {"folder": self.logs(self.users), "step": step, "users": self.users}
            rows.append({"what": step, "users": self.users, "rows": self.users * STEPS, **_taken("bare", asked)})
        return rows

    def workers(self) -> list[Row]:
        """One process, then two workers."""
        return [row for how in BOTH for row in (self.alone(how, self.users), self.fit(how, self.users, workers=2))]

    def cluster(self) -> list[Row]:
        """One process, then a Dask cluster of two."""
        rows = []
        for how in BOTH:
            rows += [self.alone(how, self.users), self.fit(how, self.users, engine="dask", workers=2)]
        return rows

    def growth(self) -> list[Row]:
        """Against the number of users."""
        sizes = sorted({*(n for n in SIZES if n < self.users), self.users})
        return [self.alone(estimator, users) for estimator in BOTH for users in sizes]

    def dimension(self) -> list[Row]:
        """Against the number of features."""
        return [self.alone(how, self.users // SHARE, dim) for how in BOTH for dim in DIMS]

    def actions(self) -> list[Row]:
        """Against the number of actions of the items table."""
        return [self.alone(how, self.users // SHARE, DIM, n) for how in BOTH for n in CATALOGUES]

    def shuffle(self) -> list[Row]:
        """Bytes a row that reading unsorted files writes."""
        users = self.users // SHARE
        told = processes.run("benchmarks.scale_runs", ["volume", json.dumps({"folder": self.logs(users)})]).told
        return [{"what": name, "users": users, "bytes": told[name]} for name in ("files", "scattered", "sorted")]

    def ratings(self) -> list[Row]:
        """MovieLens-1M as a plain CSV, beside the exact alternating least squares of `implicit`."""
        path = self.folder / "ratings.csv"
        rows = write_ratings(path, self.films)
        ours = {"what": "default fit", "rows": rows, **_taken("ratings", {"path": str(path)})}
        if not PEERS.exists():
            print("left out: implicit; `make bench-peers` prepares its environment", file=sys.stderr)
            return [ours]
        theirs = processes.run("benchmarks.peers.films", [str(path)], python=str(PEERS))
        return [ours, {"what": "implicit ALS", "rows": rows, **_shown(theirs)}]


SECTIONS: dict[str, Callable[[Bench], list[Row]]] = {
    "local": Bench.local,
    "workers": Bench.workers,
    "cluster": Bench.cluster,
    "growth": Bench.growth,
    "dimension": Bench.dimension,
    "actions": Bench.actions,
    "shuffle": Bench.shuffle,
    "ratings": Bench.ratings,
}


def write_ratings(path: Path, films: int | None) -> int:
    """MovieLens-1M with the column names that everybody has; only the most rated `films`, if that is given."""
    text = (find_movielens() / "ratings.dat").read_text().replace("::", ",")
    table = pl.read_csv(text.encode(), has_header=False, new_columns=["userId", "movieId", "rating", "timestamp"])
    if films is not None:
        most = table["movieId"].value_counts(sort=True)["movieId"][:films]
        table = table.filter(pl.col("movieId").is_in(most.to_list()))
    table.write_csv(path)
    return len(table)


def _taken(name: str, asked: dict[str, Any]) -> Row:
    """Run something of `scale_runs`, and say what it took."""
    return _shown(processes.run("benchmarks.scale_runs", [name, json.dumps(asked)]))


def _shown(taken: processes.Taken) -> Row:
    told = taken.told
    counted = {name: told[name] for name in ("rank", "passes", "sampled", "em") if name in told}
    return {"wall": taken.wall, "cpu": taken.cpu, "after_imports": told["cpu"], "peak_mb": taken.peak, **counted}


def main(words: Sequence[str] = ()) -> None:
    """Measure, keep the rows, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--films", type=int, default=None, help="only the most rated films")
    parser.add_argument("--out", type=Path, default=measure.PAGES, help="folder of the page and its CSV")
    given = parser.parse_args(list(words))
    unknown = set(given.sections) - SECTIONS.keys()
    if unknown:
        parser.error(f"no section '{min(unknown)}': choose from {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), given.users, given.films)
        for section in given.sections or SECTIONS:
            day = date.today().isoformat()
            rows = [{"section": section, **row, "day": day} for row in SECTIONS[section](bench)]
            scale_page.keep(given.out, section, rows)
    scale_page.write(given.out, __doc__ or "")


if __name__ == "__main__":
    main(sys.argv[1:])
