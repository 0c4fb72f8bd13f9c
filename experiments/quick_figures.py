"""Quick tables of figures with all their digits: `python quick_figures.py OUT WORK FIGURE ...`.

`experiments.contents` starts it with this code and with that of an earlier commit, so it uses nothing but names that
both have. Tables of results are rounded to a few digits; these are not, so that 1e-9 means 1e-9.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from newcomer.paper import catalogue
from newcomer.paper.scale import QUICK


def main(out: Path, work: Path, names: list[str]) -> None:
    """The quick tables of some figures, in `out`."""
    figures, kept = catalogue.chosen(names), catalogue.open_folder(QUICK, data=None, work=work)
    catalogue.reproduce(figures, kept, out=out, workers=os.cpu_count() or 1, progress=lambda stage: lambda *_: None)
    for figure in figures:
        figure.table(kept).write_csv(out / f"{figure.name}.csv")
        if figure.newcomers is not None:
            figure.newcomers(kept).write_csv(out / f"{figure.name}-newcomers.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
