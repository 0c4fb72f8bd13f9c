"""Is a table of results older than the code that it rests on?

    python -m experiments.contents                     # every table: fresh, waived, old, or of no known command
    python -m experiments.contents waive TABLE ... --reason "why the numbers cannot differ"     # or: waive all

`results/contents.csv` says which code made a table (`newcomer.paper.contents`). A table whose code has changed since is
old, and is made again; or it is waived: `waive` makes the figure with `--quick` at the commit that made the table and
as the code is now, and if all numbers agree to 1e-9 it writes the table, the hash of the code and the reason to
`results/waivers.csv`. The next change of the code ends the waiver. Tables of `python -m experiments...` have no quick
run, and are made again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from experiments.results_table import PACKAGES, RESULTS
from newcomer.paper import contents
from newcomer.paper.catalogue import EVERYTHING, modules_behind

ROOT = Path(__file__).parents[1]
WAIVERS = RESULTS / "waivers.csv"


def code_now(row: contents.Row) -> str:
    """The hash of the code behind a table as it is now."""
    figure = figure_of(row.table)
    if figure is not None:
        return contents.code(modules_behind(EVERYTHING[figure]), PACKAGES)
    return contents.code([row.command.split()[2]], PACKAGES)


def figure_of(table: str) -> str | None:
    """The id of the figure that a table belongs to."""
    name = table.removesuffix(".csv").removesuffix("-newcomers")
    return name if name in EVERYTHING else None


def waived() -> set[tuple[str, str]]:
    """Table and code of every waiver."""
    if not WAIVERS.is_file():
        return set()
    return set(pl.read_csv(WAIVERS, infer_schema=False).select("table", "code").iter_rows())


def states(results: Path = RESULTS) -> dict[str, str]:
    """Of every table whether it is fresh, waived, old, or not in the table of contents."""
    rows, found = contents.read(results), {}
    for path in sorted(results.glob("*.csv")):
        row = rows.get(path.name)
        if path.name in (contents.NAME, WAIVERS.name):
            continue
        if row is None:
            found[path.name] = "of no known command"
            continue
        now = code_now(row)
        found[path.name] = "fresh" if now == row.code else "waived" if (path.name, now) in waived() else "old"
    return found


def waive(tables: list[str], reason: str) -> None:
    """Waive tables whose quick runs are the same before and after; `all` are those that are old and have one."""
    rows = contents.read(RESULTS)
    if tables == ["all"]:
        told = states()
        tables = [name for name, state in told.items() if state == "old" and figure_of(name) and rows[name].code]
    by_commit: dict[str, list[str]] = {}
    for table in tables:
        row = rows.get(table)
        if row is None or figure_of(table) is None:
            raise SystemExit(f"{table} has no quick run, or no row in {contents.NAME}: make it again")
        if row.commit.endswith("+"):
            raise SystemExit(f"{table} was made by code that was not committed ({row.commit}): make it again")
        by_commit.setdefault(row.commit, []).append(table)
    wrong = []
    for commit, own in by_commit.items():
        unlike = differences_since(commit, own)
        for table in own:
            if unlike[table]:
                wrong.append(f"{table}: {unlike[table]}: make it again")
            else:
                _enter(table, code_now(rows[table]), reason)
                print(f"{table}: the same to 1e-9, waived")
    if wrong:
        raise SystemExit("\n".join(wrong))


def _enter(table: str, code: str, reason: str) -> None:
    """Write a waiver, in place of an earlier one of the table."""
    own = pl.DataFrame({"table": [table], "code": [code], "reason": [reason]})
    before = own[:0]
    if WAIVERS.is_file():
        before = pl.read_csv(WAIVERS, infer_schema=False).filter(pl.col("table") != table)
    pl.concat([before, own]).sort("table").write_csv(WAIVERS)


def differences_since(commit: str, tables: list[str]) -> dict[str, str]:
    """What differs first between the quick tables at a commit and now, by table; empty where nothing does."""
    from tests.compare_results import difference

    figures = sorted({str(figure_of(table)) for table in tables})
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder, "then")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(beside), commit], check=True)
        try:
            then, now = (_quick(figures, code, Path(folder, name)) for code, name in ((beside, "a"), (ROOT, "b")))
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(beside)], check=True)
        return {table: difference(then / table, now / table) for table in tables}


def _quick(figures: list[str], code: Path, folder: Path) -> Path:
    """The folder with the quick tables of some figures, by the code of a worktree."""
    words = ["reproduce", *figures, "--quick", "--out", str(folder / "out"), "--work", str(folder / "work")]
    environment = {**os.environ, "PYTHONPATH": str(code / "src")}
    subprocess.run([sys.executable, "-m", "newcomer", *words], check=True, env=environment, stdout=subprocess.DEVNULL)
    return folder / "out"


if __name__ == "__main__":
    words = argparse.ArgumentParser(prog="python -m experiments.contents")
    words.add_argument("tables", nargs="*", metavar="waive TABLE ...")
    words.add_argument("--reason", default="")
    asked = words.parse_args()
    if asked.tables:
        if asked.tables[0] != "waive" or not asked.tables[1:] or not asked.reason:
            words.error("say: waive TABLE ... --reason TEXT")
        waive(asked.tables[1:], asked.reason)
    else:
        for name, state in states().items():
            print(f"{state:20s} {name}")
