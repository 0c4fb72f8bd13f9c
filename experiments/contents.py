"""Is a table of results older than the code that it rests on?

    python -m experiments.contents                     # every table: fresh, waived, old, or of no known command
    python -m experiments.contents waive TABLE ... --reason "why the numbers cannot differ"     # or: waive all
    python -m experiments.contents hash                # after a change of what the hash counts

`results/contents.csv` says which code made a table (`newcomer.paper.contents`). A table whose code has changed since is
old, and is made again; or it is waived: `waive` makes the table with `--quick` at the commit that made it and as the
code is now, and if all numbers agree to 1e-9 it writes the table, the hash of the code and the reason to
`results/waivers.csv`. The next change of the code ends the waiver. A test fails while a table is old.

All quick tables of a commit are made by one run, and stay in `.work/quick` (NEWCOMER_WORK) by the hash of their code:
the next waiver needs only those of code that has changed. `hash` writes the hashes of `contents.csv` anew, each from
the code of its own commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl

from experiments.results_table import PACKAGES, RESULTS
from newcomer.paper import contents
from newcomer.paper.catalogue import EVERYTHING, modules_behind

ROOT = Path(__file__).parents[1]
WAIVERS = RESULTS / "waivers.csv"
FIGURES = Path(__file__).with_name("quick_figures.py")


def code_now(row: contents.Row, packages: Mapping[str, Path] = PACKAGES) -> str:
    """The hash of the code behind a table as it is now, or as it is in other folders."""
    figure = figure_of(row.table)
    modules = [row.command.split()[2]] if figure is None else modules_behind(EVERYTHING[figure])
    return contents.code(modules, packages)


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
    rows, waivers, found = contents.read(results), waived(), {}
    for path in sorted(results.glob("*.csv")):
        row = rows.get(path.name)
        if path.name in (contents.NAME, WAIVERS.name):
            continue
        if row is None:
            found[path.name] = "of no known command"
            continue
        now = code_now(row)
        found[path.name] = "fresh" if now == row.code else "waived" if (path.name, now) in waivers else "old"
    return found


def to_make_again(results: Path = RESULTS) -> str:
    """What to do about tables that are older than their code; empty if none is."""
    rows = contents.read(results)
    wrong = [(name, state) for name, state in states(results).items() if state not in ("fresh", "waived")]
    if not wrong:
        return ""
    lines = [f"  {state}: {name}" for name, state in wrong]
    commands = dict.fromkeys(rows[name].command for name, _ in wrong if name in rows)
    old = [name for name, state in wrong if state == "old" and rows[name].code]
    told = [f"{len(wrong)} tables are not of the code as it is:", *lines, "make them again:"]
    told += [f"  {command}" for command in commands]
    if old:
        told += ["or, if their numbers cannot have moved, let quick runs show it:"]
        told += [f'  python -m experiments.contents waive {" ".join(old)} --reason "..."']
    return "\n".join(told)


def waive(tables: list[str], reason: str) -> None:
    """Waive tables whose quick runs are the same before and after; `all` are those that are old."""
    rows = contents.read(RESULTS)
    if tables == ["all"]:
        tables = [name for name, state in states().items() if state == "old" and rows[name].code]
    by_commit: dict[str, list[contents.Row]] = {}
    for table in tables:
        row = rows.get(table)
        if row is None or not row.code:
            raise SystemExit(f"of {table} it is not known which code made it: make it again")
        if row.commit.endswith("+"):
            raise SystemExit(f"{table} was made by code that was not committed ({row.commit}): make it again")
        by_commit.setdefault(row.commit, []).append(row)
    now = {table: code_now(rows[table]) for table in tables}
    make_quick_tables({table: (rows[table], code) for table, code in now.items()}, ROOT)
    wrong = []
    for commit, own in by_commit.items():
        then = {row.table: (row, row.code) for row in own}
        if any(not quick_table(*pair).is_file() for pair in then.values()):
            with code_of(commit) as beside:
                make_quick_tables(then, beside)
        for row in own:
            if told := _difference(quick_table(row, row.code), quick_table(row, now[row.table])):
                wrong.append(f"{row.table}: {told}: make it again")
            else:
                _enter(row.table, now[row.table], reason)
                print(f"{row.table}: the same to 1e-9, waived", flush=True)
    if wrong:
        raise SystemExit("\n".join(wrong))


def _difference(then: Path, now: Path) -> str:
    from tests.compare_results import difference

    return difference(then, now)


def _enter(table: str, code: str, reason: str) -> None:
    """Write a waiver, in place of an earlier one of the table."""
    own = pl.DataFrame({"table": [table], "code": [code], "reason": [reason]})
    before = own[:0]
    if WAIVERS.is_file():
        before = pl.read_csv(WAIVERS, infer_schema=False).filter(pl.col("table") != table)
    pl.concat([before, own]).sort("table").write_csv(WAIVERS)


def quick_table(row: contents.Row, code: str) -> Path:
    """Where the quick table of some code stays."""
    return Path(os.environ.get("NEWCOMER_WORK", ROOT / ".work")) / "quick" / code / row.table


@contextmanager
def code_of(commit: str) -> Iterator[Path]:
    """The files of a commit, for as long as they are needed."""
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder, "then")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(beside), commit], check=True)
        try:
            yield beside
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(beside)], check=True)


def make_quick_tables(asked: Mapping[str, tuple[contents.Row, str]], code: Path) -> None:
    """Make the quick tables that are missing, each a row of contents and a hash of code, by the code of a folder."""
    missing = {table: pair for table, pair in asked.items() if not quick_table(*pair).is_file()}
    figures = sorted({figure for table in missing if (figure := figure_of(table))})
    modules = sorted({row.command.split()[2] for table, (row, _) in missing.items() if not figure_of(table)})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        commands = [[str(FIGURES), str(out), str(Path(folder, "work")), *figures]] if figures else []
        commands += [["-m", module, "--quick", "--out", str(out)] for module in modules]
        for words in commands:
            print("by", code.name + ":", *words, flush=True)
            environment = {**os.environ, "PYTHONPATH": str(code / "src")}
            subprocess.run([sys.executable, *words], check=True, cwd=code, env=environment, stdout=subprocess.DEVNULL)
            for table in [one for one in missing if (out / one).is_file()]:
                place = quick_table(*missing[table])
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(out / table, place)


def hash_again() -> None:
    """Write the hash of every table that has one from the code of its commit, by what the hash counts today."""
    rows = contents.read(RESULTS)
    for commit in sorted({row.commit for row in rows.values() if row.code and not row.commit.endswith("+")}):
        with code_of(commit) as beside:
            packages = {"newcomer": beside / "src" / "newcomer", "experiments": beside / "experiments"}
            for row in [one for one in rows.values() if one.commit == commit and one.code]:
                rows[row.table] = replace(row, code=code_now(row, packages))
    contents.write(RESULTS, rows)


if __name__ == "__main__":
    words = argparse.ArgumentParser(prog="python -m experiments.contents")
    words.add_argument("tables", nargs="*", metavar="waive TABLE ... | hash")
    words.add_argument("--reason", default="")
    asked = words.parse_args()
    if asked.tables == ["hash"]:
        hash_again()
    elif asked.tables:
        if asked.tables[0] != "waive" or not asked.tables[1:] or not asked.reason:
            words.error("say: waive TABLE ... --reason TEXT")
        waive(asked.tables[1:], asked.reason)
    else:
        for name, state in states().items():
            print(f"{state:20s} {name}")
