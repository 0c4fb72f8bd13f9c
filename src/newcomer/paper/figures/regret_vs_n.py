"""regret-vs-n-ucb, regret-vs-n-ts: the regret of a newcomer against the number of offline users N.

ProBALL has the subspace and the radii of each N; the regret is that after the last round. The paper's claim is about
a low tau, at which ProBALL stays in the subspace: what is then left between it and the same algorithm on the true
features is the error of the subspace, which N offline users determine. Both rivals are the same runs at every N.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Figure
from newcomer.paper.figures.movielens import caption as films_caption
from newcomer.paper.jobs import Fit, JobFolder
from newcomer.paper.lines import Line, newcomer_table, own_lines, prior, proball, run, sold
from newcomer.paper.panels import SIZE, spread
from newcomer.paper.scale import FILMS, Scale
from newcomer.simulate import summary

LAST = Axis("regret", "regret after the last round")
UCB, TS = ("ProBALL-UCB", "LinUCB"), ("ProBALL-TS", "LinTS")  # a version of ProBALL, and what it is held against


def regret_lines(kept: JobFolder, versions: tuple[str, str], worlds: tuple[str, ...] = FILMS) -> list[tuple[int, Line]]:
    """For every N: ProBALL with each radius and tau, and the lines to hold it against.

    Those are its rival on all features and on the true ones, which are the same runs at every N, and the two lines
    that the paper lacks, fitted on the same N.
    """
    version, rival = versions
    found: list[tuple[int, Line]] = []
    for world in worlds:
        high = Line(rival, run(kept.scale, world, rival))
        low = Line(f"{rival}, true features", run(kept.scale, world, rival, latent=True))
        for users in kept.scale.sizes:
            lines = [high, low, *proball(kept, version, sold(kept.scale, world, users=users))]
            found += [(users, line) for line in (*lines, *own_lines(kept.scale, world, users=users))]
    return found


def fits(scale: Scale, worlds: tuple[str, ...] = FILMS) -> list[Fit]:
    """SOLD's fit and the prior's for every N."""
    return [make(scale, name, users=users) for name in worlds for users in scale.sizes for make in (sold, prior)]


def table(kept: JobFolder, found: list[tuple[int, Line]]) -> pl.DataFrame:
    """Regret after the last round: `world`, `tau`, `policy`, `users` and the round in which the subspace was left."""
    rows = []
    for users, line in found:
        end = summary(kept.rows(line.play)).row(0, named=True)
        place = (line.play.world, line.tau, line.label, users, line.play.left_at)
        rows.append((*place, end["regret"], end["regret_se"]))
    names = ["world", "tau", "policy", "users", "left_at", "regret", "regret_se"]
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def newcomers(kept: JobFolder, found: list[tuple[int, Line]]) -> pl.DataFrame:
    """The regret of every newcomer, as `newcomer_table` has it, with the number of `users` behind each line."""
    sizes = pl.Series("users", [users for users, _ in found], dtype=pl.Int64)
    return newcomer_table(kept, [line for _, line in found]).insert_column(3, sizes)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against N, a panel for each world and tau; titles lose the rounds of exit, which differ with N."""
    panels = spread(frame.rename({"users": "t"})).rename({"t": "users"})
    panels = panels.with_columns(pl.col("panel").str.split("\n").list.first())
    return draw_lines(panels, path, x=SIZE, y=LAST, error="regret_se", facet="panel", columns=3, marked=True)


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        films_caption(scale, users="N", exits=False)
        + " One data set for each N, nested; PopulationMean, EmpiricalArms and PriorUCB are fitted on the same N."
    )


def _figure(name: str, versions: tuple[str, str], claim: str) -> Figure:
    return Figure(
        name=name,
        claim=claim,
        caption=caption,
        fits=fits,
        jobs=lambda kept: [line.play for _, line in regret_lines(kept, versions)],
        table=lambda kept: table(kept, regret_lines(kept, versions)),
        draw=draw,
        newcomers=lambda kept: newcomers(kept, regret_lines(kept, versions)),
    )


FIGURES = (
    _figure(
        "regret-vs-n-ucb",
        UCB,
        "With a low tau the regret of ProBALL-UCB approaches that of LinUCB on true low-dimensional features as N "
        "grows.",
    ),
    _figure(
        "regret-vs-n-ts",
        TS,
        "With a low tau the regret of ProBALL-TS approaches that of TS on true low-dimensional features as N grows.",
    ),
)
