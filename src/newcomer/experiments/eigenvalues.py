"""Can the rank be read off the eigenvalues? SOLD's estimate of E[beta beta^T] beside the truth, plainly and on a log scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import DIGITS, Figure
from newcomer.experiments.places import true_spectrum, world
from newcomer.experiments.scale import FILMS, Scale
from newcomer.experiments.sweeps import sold

SWEEP = 40  # leading eigenvalues
ESTIMATE, TRUTH = "SOLD, from the logs", "completed ratings"


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """`world`, `series`, `position` and `eigenvalue`."""
    frames = []
    for name in FILMS:
        estimate = bench.model(sold(scale, name)).spectrum
        for series, values in ((ESTIMATE, estimate), (TRUTH, true_spectrum(world(name, bench.setting)))):
            kept = values[:SWEEP]
            columns = {"position": np.arange(1, len(kept) + 1), "eigenvalue": kept}
            frames.append(
                pl.DataFrame(columns).select(pl.lit(name).alias("world"), pl.lit(series).alias("series"), pl.all())
            )
    return pl.concat(frames).with_columns(pl.col("eigenvalue").round_sig_figs(DIGITS))


def draw(frame: pl.DataFrame, path: Path, *, log: bool) -> Path:
    """Both spectra, a panel for each factorisation; a log axis leaves zeros out."""
    shown = frame.filter(pl.col("eigenvalue") > 1e-9) if log else frame
    y = Axis("eigenvalue", "eigenvalue", log=log)
    return draw_lines(shown, path, x=Axis("position", "position"), y=y, series="series", facet="world", marked=True)


def _caption(scale: Scale) -> str:
    return (
        f"Eigenvalues of the pseudo-inverse SOLD estimate from {scale.film_users:,} histories of {scale.film_steps} "
        f"steps (d = {scale.dim}, noise variance "
        f"0.5, uniform behaviour), beside those of the users' true second moment, whose rank is {scale.rank}. Left: "
        "the factorisation that the paper describes "
        "(nuclear norm); right: the same kind of rewards in coordinates with equal eigenvalues. Scaling: features of "
        "norm at most 1."
    )


def _figure(name: str, draw_it: Callable[[pl.DataFrame, Path], Path]) -> Figure:
    return Figure(
        name=name,
        claim="The eigenvalues of SOLD's estimate match those of the completed ratings; both fall after 18.",
        caption=_caption,
        fits=lambda scale: [sold(scale, world_name) for world_name in FILMS],
        jobs=lambda scale, bench: [],
        table=table,
        draw=draw_it,
    )


FIGURES = (_figure("eigenvalues", partial(draw, log=False)), _figure("eigenvalues-log", partial(draw, log=True)))
