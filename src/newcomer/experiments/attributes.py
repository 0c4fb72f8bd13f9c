"""The privacy figure: what a recommender's knowledge of people gives away of their gender and age (`newcomer.experiments.privacy`).

Success is the area under the ROC curve: 0.5 is a coin, 1 is certainty. A newcomer is known by the posterior mean after some
real ratings; the flat lines are users known by all of their ratings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import DIGITS, Figure
from newcomer.experiments.jobs import Job, Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.privacy import OLDER, SEEN, privacy_table
from newcomer.experiments.scale import Scale
from newcomer.worlds.ratings import read_ratings

NAME = "privacy"
FOLDS = 10


def jobs(scale: Scale, bench: Bench) -> list[Job]:
    """One job: factorisations are shared by all its rows."""
    return [Table(NAME, (("dim", scale.replay_dim), ("rank", scale.rank), ("least", scale.least)))]


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """The table of `privacy_table` for the filtered ratings."""
    dim, rank, least = (int(arguments[name] or 0) for name in ("dim", "rank", "least"))
    ratings = read_ratings(Path(setting.data)).filtered(least)
    folds = FOLDS if setting.scale == "full" else 5
    return privacy_table(ratings, dim=dim, rank=rank, folds=folds, cache=Path(setting.cache))


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Base rate, accuracy and area for each attribute and each thing known."""
    rows = pl.concat([bench.rows(job) for job in jobs(scale, bench) if isinstance(job, Table)])
    return rows.with_columns(pl.col(pl.Float64).round_sig_figs(DIGITS))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Area against the number of ratings known, a panel for each attribute."""
    posterior = frame.filter(known="posterior").with_columns(line=pl.lit("newcomer, from this many ratings"))
    ends = pl.DataFrame({"ratings": [min(SEEN), max(SEEN)]})
    known = (
        frame.filter(known="factor vector").drop("ratings").with_columns(line=pl.lit("long-known user, all ratings"))
    )
    coin = known.with_columns(line=pl.lit("coin"), auc=pl.lit(0.5), auc_error=pl.lit(0.0))
    flat = pl.concat([known, coin]).join(ends, how="cross")
    shown = pl.concat([posterior, flat.select(posterior.columns)])
    return draw_lines(
        shown,
        path,
        x=Axis("ratings", "ratings known", log=True),
        y=Axis("auc", "area under the ROC curve", zero=False),
        series="line",
        error="auc_error",
        facet="attribute",
        marked=True,
    )


def _caption(scale: Scale) -> str:
    return (
        f"Ridge logistic regression on {scale.rank} coordinates, {FOLDS} folds of users, bands of one standard error over folds. "
        f"The newcomers are half of the users; features (d = {scale.replay_dim}) and prior come from the other half. Older is {OLDER} or more. "
        "The attacker is given the attribute of nine users in ten and tries no harder than this: the numbers are lower bounds."
    )


FIGURES = (
    Figure(
        name=NAME,
        claim="Latent states of users can reveal protected attributes (the paper's broader impact, which measures nothing).",
        caption=_caption,
        fits=lambda scale: [],
        jobs=jobs,
        table=table,
        draw=draw,
    ),
)
