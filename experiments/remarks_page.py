"""What docs/paper/measured-clicks.md and measured-samples.md say under their tables, with the numbers of these."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import markdown
from newcomer.paper.studies.people import AGAIN, WAVERING

POOLED, DRAWN, HALF = ", pooled", "everything redrawn", "half of the people redraw"  # cases of rare-clicks.csv
RARE, NOBODY = "It should not.", "Where nobody has a taste"  # how the paragraphs begin


def with_rare_clicks(page: str, results: Path) -> str:
    """The page with its paragraph under the table of rare answers made anew, if there is such a table."""
    if not (results / "rare-clicks.csv").is_file():
        return page
    found = pl.read_csv(results / "rare-clicks.csv").filter(policy="binary")
    found = found.with_columns(apart=(pl.col("ratio") - 1) / pl.col("error"), told=pl.col("case").str.ends_with(POOLED))
    alone, told = (found.filter(told=kind) for kind in (False, True))
    worse = {case: _span(alone.filter(case=case)["ratio"]) for case in (AGAIN, WAVERING, HALF)}
    wins, clear = alone.filter(pl.col("apart") < -2), told.filter(pl.col("apart").abs() > 2)
    text = f"{RARE} Simulated clicks are drawn afresh each time, and the binary model rightly begins with the belief "
    text += "that a single rare click is no habit. A rare answer of these people does come again, at least in part, "
    text += "and the binary model takes longer to learn it. Alone it loses where the same answer comes again "
    text += (
        f"({worse[AGAIN]} more regret), where half of the people answer as before ({worse[HALF]}) and where half is "
    )
    text += f"redrawn ({worse[WAVERING]}); it wins beyond two standard errors in {_named(wins)}. Earlier users tell "
    text += f"which of the two it is: after twenty of them the ratios are {min(told['ratio']):.3g} to "
    text += f"{max(told['ratio']):.3g}, beyond two standard errors in {len(clear)} of {len(told)} ({_named(clear)}). "
    return markdown.replaced(page, RARE, text + "The service pools them by itself.")


def _span(ratios: pl.Series) -> str:
    """Ratios as percentages above one, least to most."""
    least, most = (round(100 * (float(value) - 1)) for value in sorted(ratios)[:: len(ratios) - 1])
    return f"{least} to {most}%"


def _named(found: pl.DataFrame) -> str:
    """Cases with their ratios, by place."""
    rows = found.select("place", "case", "ratio", "error").iter_rows()
    told = [
        f"{place}, {case.removesuffix(POOLED)}: {markdown.number(ratio, error)}" for place, case, ratio, error in rows
    ]
    return "; ".join(told) or "no case"


def with_no_taste(page: str, results: Path) -> str:
    """The page with its sentence on the world where nobody has a taste made anew, if there is such a table."""
    if not (results / "large-worlds.csv").is_file():
        return page
    row = pl.read_csv(results / "large-worlds.csv", infer_schema_length=None).filter(directions=0).row(0, named=True)
    paid = " and ".join(dict.fromkeys(f"{row[name]:.3f}" for name in ("prior_ucb", "told")))
    text = f"{NOBODY} PriorUCB pays {paid}, as fitted and told the truth, and the best for all "
    text += (
        f"{row['best_for_all']:.3f}: it goes on trying what single answers of a newcomer say, which here is nothing."
    )
    return markdown.replaced(page, NOBODY, text)
