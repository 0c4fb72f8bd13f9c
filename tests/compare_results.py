"""`python -m tests.compare_results OLD NEW`: are the tables of two folders of results the same?

OLD and NEW are folders into which `newcomer reproduce` has written. Every table (CSV) of either must be in both, with
the same columns and rows in the same order, equal text, and numbers that agree to 1e-9 (relative above one, absolute
below); seconds (`TIMES`) may differ. A change of shape of the code must not change a figure: run `newcomer reproduce
--quick all` on the old commit and on the new one, and compare. Prints each difference; exit code 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

TOLERANCE = 1e-9
TIMES = ("cpu_s", "seconds", "fit_seconds", "decision_us")


def differences(old: Path, new: Path) -> list[str]:
    """One sentence for each table that is not the same in both folders."""
    names = sorted({path.name for folder in (old, new) for path in folder.glob("*.csv")})
    if not names:
        return [f"there is no table in {old} or {new}"]
    return [f"{name}: {told}" for name in names if (told := difference(old / name, new / name))]


def difference(old: Path, new: Path) -> str:
    """What differs first between two tables; empty if nothing does."""
    for path in (old, new):
        if not path.is_file():
            return f"not in {path.parent}"
    one, other = (pl.read_csv(path, infer_schema_length=None) for path in (old, new))
    if one.columns != other.columns or len(one) != len(other):
        return f"columns {one.columns} and {len(one)} rows are now {other.columns} and {len(other)} rows"
    for name in [name for name in one.columns if name not in TIMES]:
        if told := _unlike(one[name], other[name]):
            return f"column {name}: {told}"
    return ""


def _unlike(one: pl.Series, other: pl.Series) -> str:
    if one.dtype.is_numeric() and other.dtype.is_numeric():
        a, b = (column.cast(pl.Float64).fill_null(np.nan).to_numpy() for column in (one, other))
        with np.errstate(invalid="ignore"):  # infinities that are equal are alike
            alike = (a == b) | (np.abs(a - b) <= TOLERANCE * np.maximum(1.0, np.abs(a))) | (np.isnan(a) & np.isnan(b))
        alike &= (one.is_null() == other.is_null()).to_numpy()
    else:
        alike = one.cast(pl.String).eq_missing(other.cast(pl.String)).to_numpy()
    if alike.all():
        return ""
    row = int(np.flatnonzero(~alike)[0])
    return f"{int((~alike).sum())} of {len(alike)} rows differ, first row {row}: {one[row]} is now {other[row]}"


if __name__ == "__main__":
    old, new = (Path(word) for word in sys.argv[1:])
    found = differences(old, new)
    print("\n".join(found) or f"the same to {TOLERANCE:g}: {len(list(new.glob('*.csv')))} tables")
    sys.exit(bool(found))
