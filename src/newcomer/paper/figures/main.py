"""main: the paper's first figure, four panels side by side.

Simulation, ProBALL-UCB against optimistic and against Thompson algorithms on MovieLens, and regret against N, drawn
from the same runs as the figures of their own, at one tau for each world (`Scale.shown`). The third panel has
ProBALL-TS as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, Panel, draw_panels
from newcomer.paper.figure import Figure
from newcomer.paper.figures import movielens, regret_vs_n, simulation
from newcomer.paper.jobs import Fit, JobFolder, Play
from newcomer.paper.lines import Line, curve_table, fits, newcomer_table
from newcomer.paper.panels import REGRET, within_sight
from newcomer.paper.scale import BALANCED, LEARNABLE, Scale

LAST_PANEL = "4"  # regret against N; panels are numbered as in the paper
SHOWS = {1: "LinUCB, LOCAL-UCB, ProBALL-UCB", 2: "optimistic algorithms", 3: "Thompson samplers", 4: "against N"}


def _curves(kept: JobFolder) -> list[tuple[str, list[Line]]]:
    """The lines of the first three panels, with the world that is shown of each; those of other tau are not played."""
    found = [
        (LEARNABLE, simulation.lines(kept, simulation.ABLATION, (LEARNABLE,))),
        (BALANCED, movielens.ucb_lines(kept, (BALANCED,))),
        (BALANCED, movielens.against_samplers(kept, (BALANCED,))),
    ]
    return [(world, [line for line in lines if _shown(kept, line)]) for world, lines in found]


def _against_n(kept: JobFolder) -> list[tuple[int, Line]]:
    """The lines of the last panel, with their number of offline users."""
    lines = regret_vs_n.regret_lines(kept, regret_vs_n.UCB, (BALANCED,))
    return [(users, line) for users, line in lines if _shown(kept, line)]


def _shown(kept: JobFolder, line: Line) -> bool:
    """Whether a line has the tau that is shown of its world, or none."""
    return line.tau is None or line.tau == kept.scale.shown[line.play.world]


def _fits(scale: Scale) -> list[Fit]:
    """Those of the worlds that are shown."""
    return [*fits(scale, (LEARNABLE, BALANCED), local=True), *regret_vs_n.fits(scale, (BALANCED,))]


def jobs(kept: JobFolder) -> list[Play]:
    """The plays of the four panels."""
    curves = [line.play for _, lines in _curves(kept) for line in lines]
    return curves + [line.play for _, line in _against_n(kept)]


def table(kept: JobFolder) -> pl.DataFrame:
    """`panel`, `policy`, `x` (round, or offline users), `regret`, `regret_se`, `left_at`."""
    parts = [curve_table(kept, lines) for _, lines in _curves(kept)]
    parts.append(regret_vs_n.table(kept, _against_n(kept)).rename({"users": "t"}))
    left = pl.col("left_at").cast(pl.Float64)
    return pl.concat(
        [
            own.select("panel", "policy", pl.col("t").alias("x"), "regret", "regret_se", left)
            for own in _named(kept, parts)
        ]
    )


def newcomers(kept: JobFolder) -> pl.DataFrame:
    """The regret of every newcomer in each panel, in the last at the largest N."""
    parts = [newcomer_table(kept, lines) for _, lines in _curves(kept)]
    against_n = regret_vs_n.newcomers(kept, _against_n(kept))
    parts.append(against_n.filter(pl.col("users") == pl.col("users").max()).drop("users"))
    return pl.concat([own.select("panel", "policy", "value", "^n[0-9]+$") for own in _named(kept, parts)])


def _named(kept: JobFolder, parts: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The rows of each panel with the name of the `panel`: its number, world and tau."""
    worlds = [*(world for world, _ in _curves(kept)), BALANCED]
    for number, (world, part) in enumerate(zip(worlds, parts, strict=True), start=1):
        tau = kept.scale.shown[world]
        yield part.with_columns(pl.lit(f"{number}. {world}, tau = {tau:g}").alias("panel"))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Four panels with one legend; a diamond where the subspace is left, which has no place against N."""
    panels = []
    frame = within_sight(frame)
    for name in frame["panel"].unique(maintain_order=True):
        own, against_n = frame.filter(pl.col("panel") == name), name.startswith(LAST_PANEL)
        leaving = None if against_n else own.filter((pl.col("x") == pl.col("left_at")) & (pl.col("x") > 1))
        x = Axis("x", "offline users N", log=True) if against_n else Axis("x", "round")
        title = f"{name}\n{SHOWS[int(name[0])]}"
        panels.append(Panel(title, own, x, regret_vs_n.LAST if against_n else REGRET, leaving, marked=against_n))
    return draw_panels(panels, path, error="regret_se")


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        "Simulation at the learnable scale, MovieLens with balanced factors; the remaining panels (other tau, literal "
        "factors, the printed scale) are in the figures of their own. tau is ours: at the paper's 5 and 0.1 every "
        "radius leaves the subspace in round 1. " + movielens.caption(scale, local=True)
    )


FIGURES = (
    Figure(
        name="main",
        claim="ProBALL-UCB outperforms all other algorithms, and approaches LinUCB with Hoeffding sets; with more "
        "offline users its subspace is almost as good as the true one.",
        caption=caption,
        fits=_fits,
        jobs=jobs,
        table=table,
        draw=draw,
        newcomers=newcomers,
    ),
)
