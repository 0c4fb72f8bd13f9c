"""What a laptop may lack and continuous integration has: without it tests are not run, and say what is missing.

`NEWCOMER_REQUIRE` names what must be there, as `browser,dask,duckdb`: its absence then fails. `.ci/run` sets it.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

REQUIRED = frozenset(os.environ.get("NEWCOMER_REQUIRE", "").split(","))
MOVIELENS = Path(os.environ.get("NEWCOMER_DATA", "")) / "ml-1m"
NO_MOVIELENS = "not run: no MovieLens-1M (NEWCOMER_DATA names the folder that holds ml-1m)"

needs_movielens = pytest.mark.skipif("movielens" not in REQUIRED and not MOVIELENS.is_dir(), reason=NO_MOVIELENS)


def optional(module: str, *, name: str = "") -> Any:
    """The module, if it is installed; else the test is not run. `name` is what NEWCOMER_REQUIRE calls it."""
    if (name or module) in REQUIRED:
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"not run: no {name or module}")
