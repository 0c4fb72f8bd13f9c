"""Fixtures of several rooms; and before the first test, machine code of loops that have changed is forgotten, and made
anew by one process alone. `make test` has done so already; this is for those who run pytest themselves.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from newcomer import compile_cache
from newcomer.logs import disk_store, workers
from tests.browser import open_browser
from tests.optional import NO_MOVIELENS, REQUIRED


def pytest_configure(config):
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # started in the background: programs it starts would ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        return
    compile_cache.forget_old_compile_cache()
    if getattr(config.option, "numprocesses", None):
        subprocess.run([sys.executable, "-m", "newcomer.compile_cache"], check=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    """Where something is required, nothing may be left out: a test that is skipped fails, and says why it was."""
    report = (yield).get_result()
    why = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
    missing = NO_MOVIELENS in why and "movielens" not in REQUIRED
    if "all" in REQUIRED and report.skipped and not hasattr(report, "wasxfail") and not missing:
        report.outcome, report.longrepr = "failed", f"skipped, and nothing may be: {why}"


@pytest.fixture(scope="session")
def pool() -> Iterator[workers.WorkerPool]:
    """Two worker processes for the whole run; one that a test kills is replaced."""
    with workers.WorkerPool(2) as two:
        yield two


@pytest.fixture
def crew(pool: workers.WorkerPool, monkeypatch: pytest.MonkeyPatch) -> workers.WorkerPool:
    """The two workers, which take part in every pass here, in several tasks, however few the rows are."""
    monkeypatch.setattr(workers, "ENOUGH", 0)
    monkeypatch.setattr(disk_store, "FEWEST", 50)
    return pool


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that temporary files go to, also those of processes that are started."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser; of one file, since other files may not start an event loop beside it."""
    yield from open_browser()
