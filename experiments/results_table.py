"""How the commands of this folder write a table of results: with its row in the table of contents."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import polars as pl

from newcomer.paper import contents

RESULTS = Path(__file__).parent / "results"
PACKAGES = {"newcomer": contents.PACKAGE, "experiments": Path(__file__).parent}
_BEGUN = time.monotonic()


def write_table(frame: pl.DataFrame, name: str, **options: Any) -> None:
    """Write a table of results, and note the command, its code and the seconds since it began."""
    frame.write_csv(RESULTS / name, **options)
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec else "experiments"
    command = " ".join(["python -m", module, *sys.argv[1:]])
    seconds = time.monotonic() - _BEGUN
    contents.record(RESULTS, name, command=command, modules=[module], seconds=seconds, packages=PACKAGES)
