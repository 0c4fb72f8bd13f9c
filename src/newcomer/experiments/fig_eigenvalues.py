"""eigenvalues, eigenvalues-log: can the rank be read off the eigenvalues of SOLD's estimate?

They are drawn beside the true ones, plainly and on a log scale.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.figure import Figure
from newcomer.experiments.job_folder import JobFolder
from newcomer.experiments.lines import sold
from newcomer.experiments.named_worlds import films
from newcomer.experiments.scale import FILMS, Scale

SHOWN = 40  # leading eigenvalues
ESTIMATE, TRUTH = "SOLD, from the logs", "true second moment of users"


def table(kept: JobFolder) -> pl.DataFrame:
    """The leading eigenvalues: `world`, `series`, `position` (from 1) and `eigenvalue`.

    Both are spectra of (d, d) second moments of reward vectors, uncentred: SOLD estimates E[beta beta^T] from pairs
    of halves of histories, and the truth is the mean over the users of the factorisation. The paper draws "the
    eigenvalues of the completed ratings matrix" in its place, a (users, movies) matrix of the same rank whose singular
    values depend on the movies too: the numbers of the two agree only in where they end.
    """
    frames = []
    for name in FILMS:
        spectra = {
            ESTIMATE: kept.model(sold(kept.scale, name)).spectrum,
            TRUTH: films(name, kept.setting).factors.spectrum,
        }
        for series, values in spectra.items():
            shown = values[:SHOWN]
            columns = {"position": np.arange(1, len(shown) + 1), "eigenvalue": shown}
            frames.append(pl.select(world=pl.lit(name), series=pl.lit(series)).join(pl.DataFrame(columns), how="cross"))
    return pl.concat(frames)


def draw(frame: pl.DataFrame, path: Path, *, log: bool) -> Path:
    """Both spectra, a panel for each factorisation; a log axis leaves zeros out."""
    shown = frame.filter(pl.col("eigenvalue") > 1e-9) if log else frame
    y = Axis("eigenvalue", "eigenvalue", log=log)
    return draw_lines(shown, path, x=Axis("position", "position"), y=y, series="series", facet="world", marked=True)


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"Eigenvalues of the pseudo-inverse SOLD estimate from {scale.film_users:,} histories of {scale.film_steps} "
        f"steps (d = {scale.dim}, noise variance 0.5, uniform behaviour), beside those of the users' true second "
        f"moment, whose rank is {scale.rank}. Left: the factorisation that the paper describes (nuclear norm); right: "
        "the same kind of rewards in coordinates with equal eigenvalues. Scaling: features of norm at most 1."
    )


FIGURES = tuple(
    Figure(
        name=name,
        claim="The eigenvalues of SOLD's estimate match those of the completed ratings; both fall after 18.",
        caption=caption,
        fits=lambda scale: [sold(scale, world) for world in FILMS],
        jobs=lambda kept: [],
        table=table,
        draw=partial(draw, log=log),
    )
    for name, log in (("eigenvalues", False), ("eigenvalues-log", True))
)
