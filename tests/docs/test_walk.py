"""Guards that docs/explanation/architecture.md tells the way of a row and of a decision as it really goes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import newcomer as nc

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(nc.__file__).parent
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
ROW_STOPS, DECISION_STOPS = 30, 8  # files on the way, at most
SILENT = sys.version_info >= (3, 12)  # compiled loops do not tell profilers there that they are called
# Small files that everybody imports are no stops of a walk.
BASE = {"errors.py", "arrays.py", "validate.py", "records.py", "array_loops.py", "users.py", "transforms.py"}


def traced(work: Callable[[], object]) -> dict[str, set[str]]:
    """The functions that `work` calls, by file of the package in the order of their first call."""
    calls: dict[str, set[str]] = {}

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            file = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
            calls.setdefault(file, set()).add(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def walk(heading: str) -> list[tuple[str, list[str]]]:
    """The rows of a table of the page: the file of each stop, and the functions that are named."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [re.findall(r"`([^`]+)`", line.rsplit("|", 3)[1] + line.rsplit("|", 3)[2])
            for line in section.splitlines() if line.startswith("| ") and ".py`" in line]  # fmt: skip
    return [(row[0], row[1:]) for row in rows]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng, lines = np.random.default_rng(0), ["user,step,action,reward"]
    factor = rng.standard_normal((12, 2))
    for user in range(300):
        z = rng.standard_normal(2)
        for step, action in enumerate(rng.integers(0, 12, 10)):
            lines.append(f"u{user},{step},a{action},{factor[action] @ z + 0.5 * rng.standard_normal():.4f}")
    path = tmp_path_factory.mktemp("walk") / "logs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def named(calls: dict[str, set[str]], functions: list[str]) -> set[str]:
    """The functions that were called, or classes of which a method was; a class is named by itself."""
    every = {name for names in calls.values() for name in names}
    return {name for name in functions if any(one == name or one.startswith(f"{name}.") for one in every)}


def test_the_way_of_a_row_is_as_told(table):
    stops = walk("A row of a CSV becomes part of a model")
    nc.fit(nc.read_logs(table))  # imports are no part of the way
    calls = traced(lambda: nc.fit(nc.read_logs(table)))
    assert len(stops) <= ROW_STOPS
    for file, functions in stops:
        if not (SILENT and file.endswith("_loops.py")):
            assert file in calls and named(calls, functions) == set(functions), file
    passed = [file for file in calls if file.startswith(("logs/", "em/")) and not file.endswith("__init__.py")]
    assert set(passed) <= {file for file, _ in stops}, "a stop that the page leaves out"


def test_the_way_of_a_decision_is_as_told(table):
    stops = {file for file, _ in walk("A decision")}
    model = nc.fit(nc.read_logs(table), rank=1, null=False, calibrate=False)
    policy = nc.PriorUCB(model)
    state = policy.start(1)
    for work in (
        lambda: policy.choose(state, ids=["a1", "a2", "a3"]),
        lambda: policy.update(state, ids=["a1"], reward=[1.0]),
    ):
        work()  # what is made once, at the first call, is no part of the way
        passed = {file for file in traced(work) if file not in BASE}
        assert passed <= stops and len(passed) <= DECISION_STOPS
