"""How the commands of this folder read their arguments and write a table of results, with its row of contents.

Every `python -m experiments...` that makes tables has the same arguments:

    python -m experiments.NAME [PART ...] [--quick] [--out DIR]

Without arguments it makes the tables of experiments/results. `--quick` takes the same way through the code with the
first few worlds, splits or people, in seconds, and writes to experiments/quick: `python -m experiments.contents waive`
compares such tables of two commits. Where a table has parts, parts may be made one by one: the rows of other parts stay
if they are of the same code, and are left out if they are not. A part that takes long is made of pieces (`PART/PIECE`:
a fold, a split, a world), each kept in out/pieces for the code that made it, so that they too can be made one by one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from newcomer.paper import contents

RESULTS = Path(__file__).parent / "results"
QUICK = Path(__file__).parent / "quick"
PIECES = Path(__file__).parents[1] / "out" / "pieces"
PACKAGES = {"newcomer": contents.PACKAGE, "experiments": Path(__file__).parent}


_elsewhere: list[float] = []  # processor seconds of pieces that other runs have made


@dataclass(frozen=True)
class Command:
    """What a command of this folder was asked for: which parts of its table, how much, and where to."""

    module: str
    parts: tuple[str, ...] = ()
    quick: bool = False
    out: Path = RESULTS
    whole: bool = True  # whether all parts were asked for

    @classmethod
    def read(cls, *parts: str, words: Sequence[str] | None = None) -> Command:
        """The arguments of the command that is running; without a named part all `parts` are asked for."""
        spec = sys.modules["__main__"].__spec__
        module = spec.name if spec else "experiments"
        parser = argparse.ArgumentParser(prog=f"python -m {module}")
        if parts:
            parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
        parser.add_argument("--quick", action="store_true", help="seconds: the first few worlds, splits or people")
        parser.add_argument("--out", type=Path, metavar="DIR", help="where tables go")
        asked = parser.parse_args(words)
        chosen = tuple(asked.parts) if parts else ()
        if unknown := [part for part in chosen if part.partition("/")[0] not in parts]:
            parser.error(f"there is no part '{unknown[0]}': choose of {', '.join(parts)}")
        out = asked.out or (QUICK if asked.quick else RESULTS)
        return cls(module, chosen or parts, asked.quick, out, whole=not chosen or {*chosen} == {*parts})

    @property
    def pieces(self) -> tuple[tuple[str, str], ...]:
        """The pieces that were asked for, as (part, piece): to be made and kept, without a table."""
        return tuple((part, piece) for part, _, piece in (one.partition("/") for one in self.parts) if piece)

    def piece(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A piece of a table: as this very code has made it before, or made now; a quick run keeps none."""
        if self.quick:
            return make()
        path = PIECES / f"{self.module}-{name.replace('/', '-')}-{contents.code([self.module], PACKAGES)}.parquet"
        if path.is_file():
            found = pl.read_parquet(path)
            _elsewhere.append(float(found["seconds"][0]))
            return found.drop("seconds")
        begun = time.process_time()
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        found.with_columns(seconds=time.process_time() - begun).write_parquet(path)
        return found

    def write(self, frame: pl.DataFrame, name: str, **options: Any) -> None:
        """Write a table, and note the command, its code and its processor seconds (ended workers included)."""
        self.out.mkdir(parents=True, exist_ok=True)
        frame.write_csv(self.out / name, **({} if self.quick else options))  # quick tables keep all digits
        told = f"python -m {self.module}{' --quick' if self.quick else ''}"
        spent = os.times()
        seconds = spent.user + spent.system + spent.children_user + spent.children_system + sum(_elsewhere)
        if (row := self._same_code(name)) and not self.whole:
            seconds += float(row.seconds)
        contents.record(self.out, name, command=told, modules=[self.module], seconds=seconds, packages=PACKAGES)

    def with_other_parts(self, frame: pl.DataFrame, name: str, part: pl.Expr) -> pl.DataFrame:
        """These rows and those of the parts of the table that they do not have; `part` names the part of a row.

        Rows of before count only if the code behind the table is still the same.
        """
        if not self._same_code(name) or not (self.out / name).is_file():
            return frame
        before = pl.read_csv(self.out / name, infer_schema_length=None)
        own = frame.select(part.unique()).to_series().to_list()
        return pl.concat([before.filter(~part.is_in(own)), frame], how="vertical_relaxed")

    def _same_code(self, name: str) -> contents.Row | None:
        """The row of a table that was made by the code as it is."""
        row = contents.read(self.out).get(name)
        return row if row and row.code == contents.code([self.module], PACKAGES) else None


def write_table(frame: pl.DataFrame, name: str, **options: Any) -> None:
    """Write a table of results for the command that is running."""
    spec = sys.modules["__main__"].__spec__
    Command(spec.name if spec else "experiments").write(frame, name, **options)
