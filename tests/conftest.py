"""Before the first test: machine code of loops that have changed is forgotten, and made anew by one process alone.

`make test` has done so already; this is for those who run pytest themselves.
"""

from __future__ import annotations

import subprocess
import sys

from newcomer import warming


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return
    warming.forget_old_code()
    if getattr(config.option, "numprocesses", None):
        subprocess.run([sys.executable, "-m", "newcomer.warming"], check=True)
