"""Guards the map of the paper: a function and a test in every row, all of them there, and verdicts as told."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from experiments.figure_verdicts import VERDICTS

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "paper" / "map.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| piece"))
]


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_row_is_full_and_what_it_names_exists(row: list[str]) -> None:
    assert len(row) == 4 and all(row)
    for cell, home in ((row[1], ROOT / "src" / "newcomer"), (row[2], ROOT / "tests")):
        named = re.findall(r"`([^`]+)`", cell)
        files = [home / name for name in named if name.endswith(".py")]
        assert files and all(file.is_file() for file in files), files
        known, told = set().union(*map(defined, files)), [name for name in named if not name.endswith(".py")]
        assert told and [name for name in told if name not in known] == []
    assert any(name.startswith("test_") and not name.endswith(".py") for name in re.findall(r"`([^`]+)`", row[2]))


def test_verdicts_on_figures_are_those_of_the_experiments() -> None:
    """A link to a section of docs/paper/figures.md bears the answer that stands there."""
    linked = [re.findall(r"\[([a-z ]+)\]\(figures\.md#([a-z-]+)\)", row[3]) for row in ROWS]
    for row, links in zip(ROWS, linked, strict=True):
        assert links or not row[0].startswith("Figure"), row[0]
        for answer, name in links:
            assert answer == VERDICTS[name].answer, row[0]
    shown = {name for links in linked for _, name in links}
    ours = {"reward-seeking-logger", "replay"}  # rows of their own without a link, and what the paper lacks
    assert shown | ours == set(VERDICTS)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("Definition", 9), ("Assumption", 2), ("Lemma", 7), ("Theorem", 7), ("Proposition", 2), ("Algorithm", 5)]
    + [("Equation", 6), ("Figure", 18), ("Footnote", 9), ("Remark", 1)],
)
def test_every_numbered_piece_of_the_paper_has_a_row(kind: str, count: int) -> None:
    found = [re.match(rf"{kind} \(?(\d+)\)?\b", row[0]) for row in ROWS]
    assert sorted(int(match[1]) for match in found if match) == list(range(1, count + 1))
