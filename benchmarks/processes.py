"""Work in processes of its own, and what it took: of the process and of every worker that it has started and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Taken:
    """Wall seconds, processor seconds of all processes, peak MB of the largest of them, and what the work printed."""

    wall: float
    cpu: float
    peak: float
    told: dict[str, Any]


def run(module: str, words: Sequence[str], *, python: str = sys.executable) -> Taken:
    """`python -m module words`, whose last line is a JSON object, from outside: start and imports included."""
    begun = time.perf_counter()
    process = subprocess.Popen([python, "-m", module, *words], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout as pipe:
        said = pipe.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [module, *words])
    wall = time.perf_counter() - begun
    return Taken(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(said.splitlines()[-1]))
