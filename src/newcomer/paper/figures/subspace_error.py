"""subspace-error: how many offline users it takes to find the subspace.

The error is the Frobenius distance of projections (at most sqrt(2k)), averaged over data sets, beside the parametric
rate 1/sqrt(N) drawn through the first point. The table has the radii of the same fits beside the error that they
bound: how loose they are, and what the factor B^2 of the theorem does to them, is in docs/paper/figures.md.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, data_sets, swept
from newcomer.paper.lines import KINDS, sold
from newcomer.paper.named_worlds import true_basis, world_named
from newcomer.paper.panels import SIZE
from newcomer.paper.performing import perform_fit
from newcomer.paper.players import paper_radius
from newcomer.paper.scale import BALANCED, LEARNABLE, LITERAL, PRINTED, Scale, Setting
from newcomer.simulate import simulated_mean_and_error
from newcomer.subspace import subspace_distance

WORLDS = (LITERAL, BALANCED, PRINTED, LEARNABLE)
NUMBERS = ("spectral", *KINDS.values(), "inverse_coverage")


def sweep(scale: Scale) -> list[Point]:
    """Every world, number of users and data set."""
    return data_sets(WORLDS, scale.error_sizes, scale.repeats)


def run(setting: Setting, *, world: str, users: int, seed: int) -> pl.DataFrame:
    """Frobenius and spectral error of one SOLD fit, its three radii, and the coverage factor B = max ||D_i^-1||."""
    model = perform_fit(sold(setting.sizes, world, users=users, seed=seed), setting)
    truth = true_basis(world_named(world, setting))
    errors = {norm: subspace_distance(model.basis, truth, norm=norm) for norm in ("frobenius", "spectral")}
    radii = {kind: paper_radius(model, kind) for kind in KINDS.values()}
    assert model.evidence.coverage is not None
    coverage = {"inverse_coverage": 1.0 / model.evidence.coverage.lambda_A}
    return pl.DataFrame({"world": world, "users": users, "seed": seed, **errors, **radii, **coverage})


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean error and its standard error over data sets, and the rate 1/sqrt(N) through the first point.

    The rate is a second `series` with the error e_1 sqrt(N_1 / N) in each world, and nothing in the other columns.
    """
    mean = rows.rename({"frobenius": "error"}).group_by("world", "users", maintain_order=True)
    found = mean.agg(**simulated_mean_and_error("error"), **{name: pl.col(name).mean() for name in NUMBERS})
    anchor = (pl.col("error") * pl.col("users").sqrt()).sort_by("users").first().over("world")
    nothing = [pl.lit(None, dtype=pl.Float64).alias(name) for name in ("error_se", *NUMBERS)]
    rate = found.with_columns(error=anchor / pl.col("users").sqrt()).with_columns(nothing)
    return pl.concat([found.with_columns(series=pl.lit("SOLD")), rate.with_columns(series=pl.lit("1/sqrt(N)"))])


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Error against N on logarithmic axes, a panel for each world."""
    y = Axis("error", "subspace error (Frobenius)", log=True)
    return draw_lines(frame, path, x=SIZE, y=y, series="series", error="error_se", facet="world", marked=True)


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"Mean over {scale.repeats} data sets, bands of one standard error; SOLD with pseudo-inverses on MovieLens "
        f"(d = {scale.dim}, k = {scale.rank}, {scale.film_steps} steps), with ridge mu = 1 in the simulation "
        f"(d = 50, k = 2, {scale.steps} steps); the true rank. The largest possible distance is sqrt(2k): 6 for "
        "k = 18, 2 for k = 2. The rate is drawn through the first point."
    )


FIGURES = (
    swept(
        "subspace-error",
        claim="The error of SOLD decreases quickly, compared with the parametric rate 1/sqrt(N).",
        caption=caption,
        sweep=sweep,
        run=run,
        table=table,
        draw=draw,
    ),
)
