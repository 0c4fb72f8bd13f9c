"""Does the calibrated radius mean what it says? Coverage and looseness over many worlds, with the paper's radii beside
it.

Worlds of the simulation study (d = 50, k = 2, 5000 users of 20 steps) at four signal strengths, entries of U up to
0.025 (as printed: hopeless), 0.25, 0.5 and 1.25; and "wide", d = 200 and k = 18, 2000 users of 30 steps, entries up to
5 (a size of which many worlds can be fitted). Each world is fitted once (EM, the true rank) and asked for its radius at
delta = 0.1 in both norms. The paper's radii, as in its figures (unclipped, coverage taken as known), bound the error of
SOLD's basis from the same logs. The aim is 400 worlds each; the table counts those that are done, and a verdict stays
open before that.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.jobs import Scalar
from newcomer.paper.scale import Scale, Setting
from newcomer.radius import KINDS
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic

STRENGTHS = {"hopeless": 0.025, "weak": 0.25, "moderate": 0.5, "strong": 1.25}  # entries of U are up to this
WIDE, WIDE_SCALE = "wide", 5.0
DELTA, WORLDS = 0.1, 400
SURE, FOUND = 0.99, 0.5  # a radius that says nothing is known; an error small enough to ask for tightness


def sweep(scale: Scale) -> list[Point]:
    """Every world, the strengths taking turns, the wide ones last: they take longest."""
    small = {"dim": 50, "rank": 2, "users": 5000, "steps": 20}
    large = {"dim": 200, "rank": 18, "users": 2000, "steps": 30}
    if scale.quick:
        small, large = small | {"dim": 20, "users": 1000}, {"dim": 40, "rank": 4, "users": 1000, "steps": 50}
    seeds = range(1, (2 if scale.quick else WORLDS) + 1)
    narrow: list[Point] = [{"strength": name, "scale": entry, **small} for name, entry in STRENGTHS.items()]
    wide: Point = {"strength": WIDE, "scale": WIDE_SCALE, **large}
    turns = [(point, seed) for seed in seeds for point in narrow] + [(wide, seed) for seed in seeds]
    return [{**point, "delta": DELTA, "seed": seed} for point, seed in turns]


def run(
    setting: Setting,
    *,
    strength: str,
    scale: float,
    dim: int,
    rank: int,
    users: int,
    steps: int,
    delta: float,
    seed: int,
) -> pl.DataFrame:
    """True errors and radii of one world, in both norms.

    The calibrated radius belongs to EM's basis, the paper's radii to SOLD's from the same logs; each is put beside
    the error of the basis it is about.
    """
    world = Synthetic(dim=dim, rank=rank, scale=scale, seed=seed)
    logs = world.logs(users, steps, seed=seed)
    model = fit(logs, rank=rank, null=False)
    sold = fit(logs, rank=rank, estimator="sold", ridge=1.0, null=False)
    row: dict[str, Scalar] = {"strength": strength, "seed": seed}
    for norm in ("spectral", "frobenius"):
        row[f"error {norm}"] = subspace_distance(model.basis, world.basis, norm=norm)
        row[f"calibrated {norm}"] = model.radius("calibrated", delta=delta, norm=norm)
        row[f"sold error {norm}"] = subspace_distance(sold.basis, world.basis, norm=norm)
        for kind in KINDS:
            row[f"{kind} {norm}"] = sold.radius(kind, delta=delta, norm=norm, clip=False, simplified=True)
    return pl.DataFrame([row])


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Coverage and looseness for each strength, norm and kind of radius.

    `covered` is the share of worlds whose error is within the radius; `loose` the median of radius / error over the
    `found` worlds whose subspace was found, in which tightness can be asked for; `unknown` the share that says nothing
    is known.
    """
    parts = [_cell(rows, norm, kind) for norm in ("spectral", "frobenius") for kind in ("calibrated", *KINDS)]
    order = pl.col("strength").cast(pl.Enum([*STRENGTHS, WIDE]))
    return pl.concat(parts).sort(order, maintain_order=True)


def _cell(rows: pl.DataFrame, norm: str, kind: str) -> pl.DataFrame:
    """One norm and kind: the calibrated radius bounds EM's error, the paper's radii that of SOLD's basis."""
    error = pl.col(f"error {norm}" if kind == "calibrated" else f"sold error {norm}")
    whose = "error spectral" if kind == "calibrated" else "sold error spectral"
    radius, small = pl.col(f"{kind} {norm}"), pl.col(whose) < FOUND
    found = rows.group_by("strength", maintain_order=True).agg(
        worlds=pl.len(),
        covered=(error <= radius).mean(),
        error=error.median(),
        radius=radius.median(),
        found=small.sum(),
        loose=(radius / error).filter(small).median(),
        unknown=(pl.col(f"{kind} spectral") >= SURE).mean(),
    )
    se = (pl.col("covered") * (1 - pl.col("covered")) / pl.col("worlds")).sqrt()
    return found.with_columns(covered_se=se).select(
        "strength", pl.lit(norm).alias("norm"), pl.lit(kind).alias("kind"), pl.exclude("strength")
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Median error and radii against signal strength, d = 50."""
    plain = frame.filter(pl.col("norm") == "spectral", pl.col("strength") != WIDE)
    entries = pl.DataFrame({"strength": list(STRENGTHS), "scale": list(STRENGTHS.values())})
    radii = plain.join(entries, on="strength", maintain_order="left").select("scale", line="kind", value="radius")
    errors = (
        plain.filter(kind="calibrated")
        .join(entries, on="strength", maintain_order="left")
        .select("scale", line=pl.lit("true error of EM"), value="error")
    )
    x, y = Axis("scale", "entries of U up to", log=True), Axis("value", "radius, or error (median)", log=True)
    shown = pl.concat([errors, radii]).filter(pl.col("value").is_finite())
    return draw_lines(shown, path, x=x, y=y, series="line", marked=True)


STUDY = study(
    "prior-calibration",
    claim="The calibrated radius covers the true error as often as it says and is within twice of it.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
