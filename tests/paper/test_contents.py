"""Guards the table of contents of the results: what a table rests on, and that every table gets its row."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
from experiments import contents as states
from experiments import contents_page, results_table

from newcomer.paper import contents
from newcomer.paper.catalogue import EVERYTHING, modules_behind

HERE = {"newcomer": contents.PACKAGE}
COMMANDS = {"radii": "radius_sweep", "process-power": "process_power"}
FILES = {
    "__init__": "",
    "table": "from shop.parts import sums\n\ndef run():\n    from shop import late\n    return sums.add(1) + late.x\n",
    "parts/__init__": "",
    "parts/sums": 'def add(a):\n    """One more."""\n    return a + 1\n',
    "late": "from shop import wrong\n\nx = 1\n",
    "wrong": "import warnings\n\ndef wrong(a: int) -> int:\n    warnings.warn('said')\n    raise ValueError('said')\n",
    "other": "y = 1\n",
    "typed": "z = 1\n",
}


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Path]:
    for name, text in FILES.items():
        path = tmp_path / "shop" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"shop": tmp_path / "shop"}


def test_modules_are_followed_into_functions_and_not_for_types(shop: dict[str, Path]) -> None:
    told = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop import typed\n"
    (shop["shop"] / "late.py").write_text(told + FILES["late"])
    found = contents.behind(["shop.table"], shop)
    assert found == {"shop", "shop.table", "shop.parts", "shop.parts.sums", "shop.late", "shop.wrong"}


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("parts/sums", 'def add(a):\n    """Another docstring."""\n    # and a comment\n    return (a + 1)\n', True),
        ("parts/sums", "def add(a):\n    return a + 2\n", False),
        ("wrong", FILES["wrong"].replace("raise ValueError('said')", "raise ValueError('said otherwise')"), True),
        ("wrong", FILES["wrong"].replace("warn('said')", "warn('said otherwise')"), True),
        ("wrong", FILES["wrong"].replace("a: int) -> int", "a: float) -> float"), True),
        ("wrong", FILES["wrong"].replace("(a: int)", "(a: int = 1)"), False),
        ("wrong", FILES["wrong"].replace("ValueError", "TypeError"), False),
        ("late", "from shop import wrong\n\nx = 2\n", False),
        ("other", "y = 2\n", True),
    ],
)
def test_code_counts_and_words_do_not(shop: dict[str, Path], name: str, text: str, same: bool) -> None:
    before = contents.code(["shop.table"], shop)
    (shop["shop"] / f"{name}.py").write_text(text)
    assert (contents.code(["shop.table"], shop) == before) == same


def test_figures_of_plays_rest_on_policies_and_fits_and_not_on_charts() -> None:
    found = contents.behind(modules_behind(EVERYTHING["main"]), HERE)
    assert {"newcomer.policies.proball", "newcomer.policies.two_systems", "newcomer._fit", "newcomer.em.fit"} <= found
    assert {"newcomer.simulate", "newcomer.local.rounds", "newcomer.paper.figures.movielens"} <= found
    assert not found & {*contents.ASIDE, *contents.OF_SERVICE}
    assert not [name for name in found if name.startswith(("newcomer.charts.", "newcomer.serve", "newcomer.cli"))]
    study = contents.behind(modules_behind(EVERYTHING["check-rates"]), HERE)
    assert "newcomer.checks.quick" in study and "newcomer.paper.figures.main" not in study


def test_what_is_left_out_exists_and_a_service_counts_its_store() -> None:
    for name in (*contents.ASIDE, *contents.OF_SERVICE, contents.SERVICE):
        assert contents._file(name, results_table.PACKAGES), name
    assert {*contents.OF_SERVICE} <= contents.behind(["experiments.service_loop"], results_table.PACKAGES)
    every = contents.behind(["experiments.one_verdict"], results_table.PACKAGES)
    assert {"newcomer.cli.check", "newcomer.checks.check", "newcomer.evaluation.evaluate"} <= every


def test_a_release_makes_no_table_old(tmp_path: Path) -> None:
    """The version and the list of public names stand in the root of the package."""
    shutil.copytree(contents.PACKAGE, tmp_path / "newcomer", ignore=shutil.ignore_patterns("__pycache__"))
    modules, packages = modules_behind(EVERYTHING["privacy"]), {"newcomer": tmp_path / "newcomer"}
    assert contents.code(modules, packages) == contents.code(modules, HERE)
    root = tmp_path / "newcomer" / "__init__.py"
    root.write_text(root.read_text().replace('__version__ = "', '__version__ = "9'))
    assert contents.code(modules, packages) == contents.code(modules, HERE)


def test_a_row_is_written_and_replaced(tmp_path: Path, shop: dict[str, Path]) -> None:
    for seconds in (1.0, 2.5):
        contents.record(tmp_path, "b.csv", command="make b", modules=["shop.table"], seconds=seconds, packages=shop)
    contents.record(tmp_path, "a.csv", command="make a, twice", modules=["shop.late"], seconds=0, packages=shop)
    rows = contents.read(tmp_path)
    assert list(rows) == ["a.csv", "b.csv"] and rows["b.csv"].seconds == "2.5"
    assert rows["a.csv"].command == "make a, twice" and rows["a.csv"].commit == contents.commit()
    assert rows["b.csv"].code == contents.code(["shop.table"], shop) != rows["a.csv"].code


def test_states_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("geometry", "radii", "kept", "people")
    for name in names:
        (tmp_path / f"{name}.csv").write_text("a\n1\n")
    for name in ("geometry", "kept"):
        modules = modules_behind(EVERYTHING[name])
        contents.record(
            tmp_path, f"{name}.csv", command="", modules=modules, seconds=1, packages=results_table.PACKAGES
        )
    command = "python -m experiments.radius_sweep"
    contents.record(tmp_path, "radii.csv", command=command, modules=[], seconds=1, packages=HERE)
    known = {"geometry.csv": "fresh", "kept.csv": "fresh", "people.csv": "of no known command", "radii.csv": "old"}
    monkeypatch.setattr(states, "WAIVERS", tmp_path / "waivers.csv")
    assert states.states(tmp_path) == known
    now = states.code_now(contents.read(tmp_path)["radii.csv"])
    waiver = {"table": ["radii.csv"], "code": [now], "reason": ["a test"]}
    pl.DataFrame(waiver).write_csv(tmp_path / "waivers.csv")
    assert states.states(tmp_path) == known | {"radii.csv": "waived"}


def test_every_table_of_the_results_has_a_row_on_the_page() -> None:
    """With a command that exists, and a commit; tables by newcomer are beside the table of their figure."""
    told = contents_page.page(results_table.RESULTS)
    rows = contents.read(results_table.RESULTS)
    for path in results_table.RESULTS.glob("*.csv"):
        if path.name not in (contents.NAME, states.WAIVERS.name):
            row = rows[path.name]
            assert f"](results/{path.name})" in told and f"`{row.command}`" in told, path.name
            assert row.commit, path.name
    names = {f"{name}.csv" for name in EVERYTHING}
    for row in rows.values():
        module = row.command.split()[2].split(".")[-1]
        assert row.command.startswith("newcomer reproduce ") or (states.ROOT / "experiments" / f"{module}.py").is_file()
        assert row.table.replace("-newcomers", "") in names or row.command.startswith("python -m experiments.")


def test_no_table_is_older_than_the_code_that_it_rests_on() -> None:
    """A table whose code has changed is made again, or waived by quick runs that are equal to 1e-9."""
    told = states.to_make_again()
    assert not told, told


def test_old_tables_are_named_with_the_commands_that_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "WAIVERS", tmp_path / "waivers.csv")
    assert states.to_make_again(tmp_path) == ""
    for name, code in {"radii": "1234", "process-power": "", "people": "5678"}.items():
        (tmp_path / f"{name}.csv").write_text("a\n1\n")
        command = "newcomer reproduce people" if name == "people" else f"python -m experiments.{COMMANDS[name]}"
        row = contents.Row(f"{name}.csv", command, "abc", code, "1.0")
        contents.write(tmp_path, contents.read(tmp_path) | {row.table: row})
    (tmp_path / "stray.csv").write_text("a\n1\n")
    told = states.to_make_again(tmp_path)
    assert told.startswith("4 tables are not of the code as it is:") and "of no known command: stray.csv" in told
    for command in (*(f"python -m experiments.{one}" for one in COMMANDS.values()), "newcomer reproduce people"):
        assert f"\n  {command}\n" in told
    assert "waive people.csv radii.csv --reason" in told  # of process-power it is not known which code made it


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (contents.Row("radii.csv", "python -m experiments.radius_sweep", "abc", "", ""), "not known which code"),
        (contents.Row("radii.csv", "python -m experiments.radius_sweep", "abc+", "12", "1"), "not committed"),
    ],
)
def test_tables_of_unknown_code_are_not_waived(
    row: contents.Row, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "RESULTS", tmp_path)
    contents.write(tmp_path, {row.table: row})
    with pytest.raises(SystemExit, match=f"{why}.*make it again"):
        states.waive([row.table], "because")


def test_a_waiver_needs_equal_quick_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of the code as it is, one of each commit, none of code that was run; seconds may differ."""
    then, ran = tmp_path / "then", list[tuple[str, set[str]]]()

    def make(asked: Mapping[str, tuple[contents.Row, str]], code: Path) -> None:
        missing = {table: states.quick_table(*pair) for table, pair in asked.items()}
        ran.append((code.name, {table for table, place in missing.items() if not place.is_file()}))
        for table, place in missing.items():
            value = 2.0 if table == "moved.csv" and code != then else 1.0 + 1e-12 * (code != then)
            place.parent.mkdir(parents=True, exist_ok=True)
            pl.DataFrame({"a": [value], "cpu_s": [float(code == then)]}).write_csv(place)

    monkeypatch.setattr(states, "RESULTS", tmp_path)
    monkeypatch.setattr(states, "WAIVERS", tmp_path / "waivers.csv")
    monkeypatch.setattr(states, "code_of", lambda commit: nullcontext(then))
    monkeypatch.setattr(states, "make_quick_tables", make)
    monkeypatch.setenv("NEWCOMER_WORK", str(tmp_path / "work"))
    rows = {
        name: contents.Row(name, "python -m experiments.process_power", commit, code, "1")
        for name, commit, code in [("moved.csv", "abc", "12"), ("radii.csv", "abc", "12"), ("since.csv", "def", "34")]
    }
    contents.write(tmp_path, rows)
    with pytest.raises(SystemExit, match="moved.csv: column a: .* make it again"):
        states.waive(list(rows), "a test")
    own = {"moved.csv", "radii.csv"}
    assert ran == [(states.ROOT.name, {*rows}), ("then", own), ("then", {"since.csv"})]
    now = states.code_now(rows["radii.csv"])
    assert states.waived() == {("radii.csv", now), ("since.csv", now)}
    states.waive(["radii.csv"], "again")
    assert ran[3:] == [(states.ROOT.name, set())]


def test_quick_tables_are_made_once_with_all_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real commands: a figure, with all digits, and a command of experiments/."""
    monkeypatch.setenv("NEWCOMER_WORK", str(tmp_path))
    asked = {
        "geometry.csv": (contents.Row("geometry.csv", "newcomer reproduce geometry", "", "", ""), "12"),
        "radii.csv": (contents.Row("radii.csv", "python -m experiments.radius_sweep", "", "", ""), "34"),
    }
    states.make_quick_tables(asked, states.ROOT)
    assert pl.read_csv(tmp_path / "quick" / "34" / "radii.csv")["users"].to_list() == [500, 1000]
    lines = (tmp_path / "quick" / "12" / "geometry.csv").read_text().splitlines()
    assert max(len(cell) for line in lines for cell in line.split(",")) > 12
    monkeypatch.setattr(subprocess, "run", None)  # nothing is missing now
    states.make_quick_tables(asked, states.ROOT)


def test_every_command_that_makes_a_table_has_a_quick_run() -> None:
    for row in contents.read(results_table.RESULTS).values():
        if row.command.startswith("python -m experiments."):
            module = row.command.split()[2].split(".")[-1]
            assert "Command.read(" in (states.ROOT / "experiments" / f"{module}.py").read_text(), row.command


def test_arguments_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    read = results_table.Command.read
    assert read("a", "b", words=[]).parts == ("a", "b") and read("a", "b", words=[]).whole
    some = read("a", "b", words=["b", "--quick"])
    assert some.parts == ("b",) and not some.whole and some.out == results_table.QUICK
    assert read(words=["--out", "elsewhere"]).out == Path("elsewhere")
    with pytest.raises(SystemExit):
        read("a", "b", words=["c"])
    assert "there is no part 'c': choose of a, b" in capsys.readouterr().err


def test_parts_join_only_parts_of_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "code", lambda *_: "one")
    part = results_table.Command("experiments.click_worlds", ("b",), out=tmp_path, whole=False)

    def write(part_name: str) -> list[str]:
        rows = part.with_other_parts(pl.DataFrame({"part": [part_name], "x": [1.0]}), "t.csv", pl.col("part"))
        part.write(rows, "t.csv")
        return pl.read_csv(tmp_path / "t.csv")["part"].to_list()

    assert write("a") == ["a"]
    first = float(contents.read(tmp_path)["t.csv"].seconds)
    assert write("b") == ["a", "b"]
    assert float(contents.read(tmp_path)["t.csv"].seconds) > 1.9 * first
    monkeypatch.setattr(contents, "code", lambda *_: "two")
    assert write("b") == ["b"]
