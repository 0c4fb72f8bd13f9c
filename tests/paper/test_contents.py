"""Guards the table of contents of the results: what a table rests on, and that every table gets its row."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from experiments import contents as states
from experiments import contents_page, results_table

from newcomer.paper import contents
from newcomer.paper.catalogue import EVERYTHING, modules_behind

HERE = {"newcomer": contents.PACKAGE}
FILES = {
    "__init__": "",
    "table": "from shop.parts import sums\n\ndef run():\n    from shop import late\n    return sums.add(1) + late.x\n",
    "parts/__init__": "",
    "parts/sums": 'def add(a):\n    """One more."""\n    return a + 1\n',
    "late": "from shop import wrong\n\nx = 1\n",
    "wrong": "def wrong():\n    raise ValueError('said')\n",
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
        ("wrong", "def wrong():\n    raise ValueError('said otherwise')\n", True),
        ("wrong", "def wrong():\n    raise TypeError('said')\n", False),
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
    assert not [name for name in found if name.startswith(contents.ASIDE)]
    study = contents.behind(modules_behind(EVERYTHING["check-rates"]), HERE)
    assert "newcomer.checks.quick" in study and "newcomer.paper.figures.main" not in study


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


def test_tables_without_a_quick_run_are_not_waived() -> None:
    with pytest.raises(SystemExit, match="make it again"):
        states.waive(["radii.csv"], "because")
