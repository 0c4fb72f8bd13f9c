"""What docs/paper/theory.md says of the lower bound, tried: the numbers of the study `hard`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.paper.studies import hard

BEGIN, END = "<!-- hard: written by experiments.write_pages -->", "<!-- end of hard -->"
CELL = ["scale", "steps", "horizon", "users"]
LONG = 10.0  # times the theorem's scale
LEARNING = ("LinUCB", "ProBALL-UCB", "LOCAL-UCB")  # those that do not use what all users share


def with_numbers(text: str, results: Path) -> str:
    """The page with today's numbers between the marks."""
    before, rest = text.split(BEGIN, 1)
    told = sentences(pl.read_csv(results / "hard.csv", infer_schema_length=None))
    return f"{before}{BEGIN}\n{told}\n{END}{rest.split(END, 1)[1]}"


def sentences(frame: pl.DataFrame) -> str:
    """How far everybody is from the bounds at the theorem's scale, and what is saved with longer beta."""
    limits = frame.filter(policy=hard.PROVEN).select(*CELL, limit="regret")
    own = frame.filter(pl.col("policy").is_in(hard.policies_in(frame))).join(limits, on=CELL, how="left")
    theirs, far = own.filter(scale=1.0), own.filter(scale=LONG)
    ratios, blind = theirs["regret"] / theirs["limit"], theirs["blind"]
    hybrid, offline = far.filter(family="hybrid"), far.filter(family="offline", policy="PriorUCB", steps=2)["blind"]
    saved = 1 - hybrid.filter(pl.col("policy").is_in(LEARNING))["blind"]
    short, long = (1 - hybrid.filter(policy="PriorUCB", steps=steps)["blind"].sort() for steps in (2, 20))
    return (
        f"At the theorem's scale everybody loses {_range(blind)} of what random actions lose, {ratios.min():.1f} to "
        f"{ratios.max():.1f} times the proven bound, whatever N, T and H. With beta ten times as long next to nothing "
        f"is proven, and in the hybrid cells LinUCB, ProBALL-UCB and LOCAL-UCB save {_range(saved)} of what random "
        f"actions lose; PriorUCB, which uses what all users share, saves {_range(short)} from histories of two steps "
        f"and {_range(long)} from histories of twenty: there the logs tell the hidden coordinates. In the offline "
        f"family, whose users share nothing but the plane, PriorUCB with two steps a user loses {_range(offline)} of "
        "what random actions lose: the mean it estimates is noise there."
    )


def _range(values: pl.Series) -> str:
    """The least and the largest share.

    >>> _range(pl.Series([0.25, 0.1]))
    '10% to 25%'
    """
    return f"{values.min():.0%} to {values.max():.0%}"
