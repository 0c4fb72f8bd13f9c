"""Quick tables of the head to head, our side of it: `python quick_rivals.py OUT TABLE ...`.

`experiments.contents` starts it with the code of two commits, as it does `quick_figures.py`. The first job of each part
is run, of a small table or of few people, and the programs of other authors are left out: they have environments of
their own, which our code does not change.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl

PARTS = {
    "rivals.csv": "rivals_people",
    "rivals-recommenders.csv": "rivals_recommenders",
    "rivals-taxes.csv": "rivals_taxes",
    "rivals-transformer.csv": "rivals_transformer",
}
SMALLER: dict[str, dict[str, Any]] = {
    "rivals_people": {"TABLES": {"bfi": (12,)}},
    "rivals_recommenders": {"TABLES": ("young 101",)},
    "rivals_taxes": {"DEALS": 1},
    "rivals_transformer": {"ANSWERS": (20,)},
}
PEOPLE = 300  # of `taxes`


def first_of(name: str, job: Any, every: Iterable[Mapping[str, Any]], *, made: bool = True) -> pl.DataFrame:
    """The rows of the first job; nothing is kept."""
    rows: pl.DataFrame = job(**next(iter(every)))
    return rows


def main(out: Path, tables: list[str]) -> None:
    """The quick tables, in `out`."""
    out.mkdir(parents=True, exist_ok=True)

    def write(frame: pl.DataFrame, name: str, **_: Any) -> None:
        frame.write_csv(out / name)

    for table in tables:
        module = import_module(f"experiments.{PARTS[table]}")
        changed = SMALLER[PARTS[table]] | {"write_table": write, "all_kept": first_of}
        if hasattr(module, "kept"):
            changed["kept"] = lambda name, job, settings, *, made=True: job(**settings)
        if hasattr(module, "choices"):
            frame, levels, people = module.choices()
            some = people["user"].sort()[:PEOPLE].to_list()
            chosen = tuple(one.filter(pl.col("user").is_in(some)) for one in (frame, people))
            changed["choices"] = lambda chosen=chosen, levels=levels: (chosen[0], levels, chosen[1])
        with patch.multiple(module, **changed):
            module.write()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"NEWCOMER_WORK": folder, "NEWCOMER_PEERS": folder}
        main(Path(sys.argv[1]), sys.argv[2:])
