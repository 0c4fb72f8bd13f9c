"""eigenvalues, eigenvalues-log: can the rank be read off the eigenvalues of SOLD's estimate?

They are drawn beside the true ones, plainly and on a log scale. The table says, too, what the sign-flip test of the
rank answers (`newcomer.sold.rank_test`), of the second moment and of the covariance.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Figure
from newcomer.paper.jobs import Fit, JobFolder
from newcomer.paper.lines import sold
from newcomer.paper.named_worlds import films
from newcomer.paper.scale import FILMS, Scale

SHOWN = 40  # leading eigenvalues
ESTIMATE, TRUTH = "SOLD, from the logs", "true second moment of users"


def open_rank(scale: Scale, world: str) -> Fit:
    """The paper's fit, with the rank left to the test."""
    return replace(sold(scale, world), rank=0)


def table(kept: JobFolder) -> pl.DataFrame:
    """The leading eigenvalues: `world`, `series`, `position` (from 1) and `eigenvalue`; `rank` and `rank_covariance`
    are what the test answers, or the truth.

    Both are spectra of (d, d) second moments of reward vectors, uncentred: SOLD estimates E[beta beta^T] from pairs
    of halves of histories, and the truth is the mean over the users of the factorisation. The paper draws "the
    eigenvalues of the completed ratings matrix" in its place, a (users, movies) matrix of the same rank whose singular
    values depend on the movies too: the numbers of the two agree only in where they end.
    """
    frames = []
    for name in FILMS:
        model, factors = kept.model(open_rank(kept.scale, name)), films(name, kept.setting).factors
        choice = model.evidence.rank
        assert choice and choice.moment and choice.covariance
        own = int(np.linalg.matrix_rank(factors.users - factors.users.mean(axis=0)))
        spectra = {
            ESTIMATE: (model.spectrum, choice.moment.rank, choice.covariance.rank),
            TRUTH: (factors.spectrum, factors.rank, own),
        }
        for series, (values, rank, differing) in spectra.items():
            shown = values[:SHOWN]
            columns = {"position": np.arange(1, len(shown) + 1), "eigenvalue": shown}
            facts = {"world": name, "series": series, "rank": rank, "rank_covariance": differing}
            frames.append(pl.DataFrame(columns).with_columns(**{key: pl.lit(value) for key, value in facts.items()}))
    return pl.concat(frames).select("world", "series", "position", "eigenvalue", "rank", "rank_covariance")


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
        claim="The eigenvalues of SOLD's estimate match those of the completed ratings; both drop after 18.",
        caption=caption,
        fits=lambda scale: [open_rank(scale, world) for world in FILMS],
        jobs=lambda kept: [],
        table=table,
        draw=partial(draw, log=log),
    )
    for name, log in (("eigenvalues", False), ("eigenvalues-log", True))
)
