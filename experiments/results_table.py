"""How the commands of this folder write a table of results: with its row in the table of contents."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import polars as pl

from newcomer.paper import contents

RESULTS = Path(__file__).parent / "results"
PACKAGES = {"newcomer": contents.PACKAGE, "experiments": Path(__file__).parent}


def write_table(frame: pl.DataFrame, name: str, **options: Any) -> None:
    """Write a table of results, and note the command, its code and its processor seconds (ended workers included)."""
    frame.write_csv(RESULTS / name, **options)
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec else "experiments"
    command = " ".join(["python -m", module, *sys.argv[1:]])
    spent = os.times()
    seconds = spent.user + spent.system + spent.children_user + spent.children_system
    contents.record(RESULTS, name, command=command, modules=[module], seconds=seconds, packages=PACKAGES)
