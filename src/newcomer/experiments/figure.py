"""What a figure is: which fits and jobs it needs, the table it shows, how the table is drawn.

The table is the CSV in the results, and the picture is drawn from it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.jobs import Fit, Job, Play, first_round_outside
from newcomer.experiments.scale import Scale
from newcomer.outcomes import curves

KINDS = {"H": "hoeffding", "E": "bernstein", "M": "martingale"}
POINTS = 100  # rounds of a curve that are kept
DIGITS = 5
CEILING = 1.3


Draw = Callable[[pl.DataFrame, Path], Path]


@dataclass(frozen=True)
class Figure:
    """One figure of the results.

    `claim` is the paper's, in one line; `caption` says what the paper does not. `fits` come first, since the jobs of some
    figures depend on the radii found; `table` puts finished jobs together; `draw` makes the PNG.
    """

    name: str
    claim: str
    caption: Callable[[Scale], str]
    fits: Callable[[Scale], list[Fit]]
    jobs: Callable[[Scale, Bench], Sequence[Job]]
    table: Callable[[Scale, Bench], pl.DataFrame]
    draw: Draw


@dataclass(frozen=True)
class Line:
    """One line of a regret figure: in which world, for which tau (None: in every panel), its label, and its run."""

    world: str
    policy: str
    play: Play
    tau: float | None = None


Lines = Callable[[Scale, Bench], list[Line]]


def played(lines: Lines) -> Callable[[Scale, Bench], list[Job]]:
    """The jobs behind lines."""
    return lambda scale, bench: [line.play for line in lines(scale, bench)]


def proball(
    bench: Bench, taus: Sequence[float], play: Play, *, radii: Fit | None = None, suffix: str = ""
) -> list[Line]:
    """ProBALL with each of the three radii and each tau; `radii` tells which fit they come from (`play.fit` if None)."""
    source = radii or play.fit
    assert source is not None
    dim, found = bench.model(source).dim, {letter: bench.radius(source, kind) for letter, kind in KINDS.items()}
    return [
        Line(play.world, f"{letter}-{play.policy}{suffix}", _leaving(play, radius, tau, dim), tau)
        for tau in taus
        for letter, radius in found.items()
    ]


def _leaving(play: Play, radius: float, tau: float, dim: int) -> Play:
    leaves = first_round_outside(radius, tau, dim, play.rounds)
    return Play(**{**vars(play), "leaves": leaves})


def curve_table(lines: Lines) -> Callable[[Scale, Bench], pl.DataFrame]:
    """Regret and rolling reward of every line: `world`, `tau` (null: in every panel), `policy`, `t`, `left_at`, ..."""
    return lambda scale, bench: pl.concat([_curve(line, bench) for line in lines(scale, bench)])


def _curve(line: Line, bench: Bench) -> pl.DataFrame:
    rows = bench.rows(line.play)
    left = _left_at(line.play)
    curve = curves(rows).drop("policy", "in_subspace")
    step = -(-len(curve) // POINTS)
    kept = ((pl.col("t") - 1) % step == 0) | (pl.col("t") == pl.col("t").max()) | (pl.col("t") == (left or 0))
    return curve.filter(kept).select(
        pl.lit(line.world).alias("world"),
        pl.lit(line.tau, dtype=pl.Float64).alias("tau"),
        pl.lit(line.policy).alias("policy"),
        "t",
        pl.lit(left, dtype=pl.Float64).alias("left_at"),
        pl.col("regret", "regret_se", "reward", "reward_se").round_sig_figs(DIGITS),
    )


def _left_at(play: Play) -> int | None:
    """First round outside the subspace; null for a policy that has none, or does not leave it."""
    return None if play.leaves is None or play.leaves > play.rounds else play.leaves


def regret_panels(frame: pl.DataFrame, path: Path) -> Path:
    """Cumulative regret, one panel for each world and tau; a diamond where the subspace is left.

    A line leaves the picture where it is far above the plain linear bandit, or the others could not be told apart.
    """
    panels = within_sight(spread(frame))
    leaving = panels.filter((pl.col("t") == pl.col("left_at")) & (pl.col("t") > 1))
    return draw_lines(
        panels,
        path,
        x=Axis("t", "round"),
        y=Axis("regret", "cumulative regret"),
        error="regret_se",
        facet="panel",
        columns=3,
        points=leaving,
    )


def within_sight(panels: pl.DataFrame) -> pl.DataFrame:
    """Without what exceeds `CEILING` times the final regret of LinUCB (LinTS where there is no LinUCB; all without both)."""
    names = panels["policy"].unique().to_list()
    plain = next((name for name in ("LinUCB", "LinTS") if name in names), "")
    last = panels.filter(pl.col("policy") == plain).group_by("panel").agg(_top=CEILING * pl.col("regret").max())
    return panels.join(last, on="panel", how="left", maintain_order="left").filter(
        pl.col("_top").is_null() | (pl.col("regret") <= pl.col("_top"))
    )


def rating_panels(frame: pl.DataFrame, path: Path) -> Path:
    """Reward averaged over the last 25 rounds, one panel for each world and tau."""
    y = Axis("reward", "rating (mean of the last 25 rounds)", zero=False)
    return draw_lines(spread(frame), path, x=Axis("t", "round"), y=y, error="reward_se", facet="panel", columns=3)


def spread(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a `panel`, in order; lines without a tau are repeated in every panel of their world."""
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
    """World and tau and, below, when each radius makes ProBALL leave the subspace."""
    here = own.filter((pl.col("world") == world) & (pl.col("tau") == tau)).unique("policy", maintain_order=True)
    exits = dict(zip(here["policy"].str.slice(0, 1), here["left_at"], strict=True))
    told = ", ".join(f"{letter} {'never' if left is None else f'{left:g}'}" for letter, left in exits.items())
    return f"{world}, tau = {tau:g}\nleft in round: {told}"


def read_table(path: Path) -> pl.DataFrame:
    """A table of the results as it was written: columns that begin with empty cells are numbers all the same."""
    frame = pl.read_csv(path, infer_schema_length=None)
    numbers = [name for name in ("tau", "left_at") if name in frame.columns]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))
