"""Before the first test: machine code of loops that have changed is forgotten, and made anew by one process alone.

`make test` has done so already; this is for those who run pytest themselves.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from newcomer import compile_cache
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
