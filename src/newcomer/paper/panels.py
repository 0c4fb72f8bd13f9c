"""Pictures of regret figures: one panel for each world and tau, drawn from the table alone.

The tables are those of `newcomer.paper.lines.curve_table`. The axes that other figures share are here too.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines

CEILING = 1.3  # a line this many times above the plain linear bandit leaves the picture
ROUND, SIZE = Axis("t", "round"), Axis("users", "offline users N", log=True)
REGRET = Axis("regret", "cumulative regret")


def regret_panels(frame: pl.DataFrame, path: Path) -> Path:
    """Cumulative regret, one panel for each world and tau; a diamond where the subspace is left."""
    panels = within_sight(spread(frame))
    leaving = panels.filter((pl.col("t") == pl.col("left_at")) & (pl.col("t") > 1))
    return draw_lines(panels, path, x=ROUND, y=REGRET, error="regret_se", facet="panel", columns=3, points=leaving)


def rating_panels(frame: pl.DataFrame, path: Path) -> Path:
    """The reward averaged over the last 25 rounds, one panel for each world and tau."""
    y = Axis("reward", "rating (mean of the last 25 rounds)", zero=False)
    return draw_lines(spread(frame), path, x=ROUND, y=y, error="reward_se", facet="panel", columns=3)


def within_sight(panels: pl.DataFrame) -> pl.DataFrame:
    """The rows without those far above the plain linear bandit, beside which the others would look alike.

    A row stays if its regret is at most `CEILING` times the final regret of LinUCB in its panel, or of LinTS in a
    table without LinUCB; a table with neither keeps everything.
    """
    names = panels["policy"].unique().to_list()
    plain = next((name for name in ("LinUCB", "LinTS") if name in names), "")
    last = panels.filter(pl.col("policy") == plain).group_by("panel").agg(_top=CEILING * pl.col("regret").max())
    return panels.join(last, on="panel", how="left", maintain_order="left").filter(
        pl.col("_top").is_null() | (pl.col("regret") <= pl.col("_top"))
    )


def spread(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with a `panel`, in order; lines without a tau are repeated in every panel of their world.

    Panels come in the order of the grid of worlds and tau, lines in the order in which policies first appear in the
    table, so that a legend is the same for all panels.
    """
    everywhere, own = frame.filter(pl.col("tau").is_null()), frame.filter(pl.col("tau").is_not_null())
    grid = own.select("world", "tau").unique(maintain_order=True).with_row_index("_panel")
    order = frame.select(pl.col("policy").unique(maintain_order=True)).with_row_index("_policy")
    whole = pl.concat(
        [everywhere.drop("tau").join(grid, on="world"), own.join(grid, on=["world", "tau"])], how="diagonal"
    )
    titles = [_title(world, tau, own) for world, tau in grid.select("world", "tau").iter_rows()]
    named = whole.join(grid.select("_panel", panel=pl.Series(titles)), on="_panel").join(order, on="policy")
    return named.sort("_panel", "_policy", "t").drop("_panel", "_policy")


def _title(world: str, tau: float, own: pl.DataFrame) -> str:
    """World and tau and, below them, in which round each radius makes ProBALL leave the subspace."""
    here = own.filter((pl.col("world") == world) & (pl.col("tau") == tau)).unique("policy", maintain_order=True)
    exits = dict(zip(here["policy"].str.slice(0, 1), here["left_at"], strict=True))
    text = ", ".join(f"{letter} {'never' if left is None else f'{left:g}'}" for letter, left in exits.items())
    return f"{world}, tau = {tau:g}\nleft in round: {text}"


def side_by_side(frame: pl.DataFrame, place: str, series: str, value: str) -> pl.DataFrame:
    """Points of unordered places (1, 2, ...) as short dashes beside each other; rows without a value end each of them.

    >>> side_by_side(pl.DataFrame({"x": [1], "policy": ["a"], "y": [2.0]}), "x", "policy", "y")["x"].round(2).to_list()
    [0.68, 1.32, 1.36]
    """
    names = frame[series].unique(maintain_order=True).to_list()
    wide = 0.8 / len(names)
    middle = pl.col(place) + wide * (pl.col(series).replace_strict(names, range(len(names))) - (len(names) - 1) / 2)
    ends = [frame.with_columns((middle + sign * 0.4 * wide).alias(place)) for sign in (-1, 1)]
    gap = frame.with_columns((middle + 0.45 * wide).alias(place), pl.lit(None, pl.Float64).alias(value))
    return pl.concat([*ends, gap])
