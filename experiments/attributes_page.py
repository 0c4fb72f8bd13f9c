"""What the pages say of the joint fit of attributes and the distribution of users, from attributes.csv."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import markdown
from experiments.attributes import OUT, TABLES, WITH

TOGETHER = "Fitted together,"  # how the paragraph begins


def with_sentence(page: str, results: Path) -> str:
    """The page with its paragraph on the joint fit made anew, if there is such a table.

    A case is a table after a number of interactions; it is worse, or better, where the paired difference of a choice to
    that by effects given the fit without attributes is beyond two standard errors.
    """
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT, infer_schema_length=None).filter(pl.col("table").is_in(list(TABLES)), rule=WITH)
    told = [(f"{row['table']} after {row['interactions']}", row["joined"], row["error of joined"])
            for row in found.iter_rows(named=True)]  # fmt: skip
    worse = _named([name for name, value, error in told if value < -2 * error])
    better = _named([name for name, value, error in told if value > 2 * error])
    mean = sum(value for _, value, _ in told) / len(told)
    text = f"{TOGETHER} attributes and the distribution of users are compared with effects given the fit without "
    text += f"attributes, in {len(told)} cases (a table of real people after some interactions): a choice pays "
    text += f"{mean:+.4f} on average; the paired difference is below zero by more than two standard errors in {worse}, "
    text += f"above in {better}."
    return markdown.replaced(page, TOGETHER, text)


def _named(cases: list[str]) -> str:
    return f"{len(cases)} ({', '.join(cases)})" if cases else "none"
