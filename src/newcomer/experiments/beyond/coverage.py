"""Does the calibrated radius mean what it says? Coverage and looseness over many worlds, with the paper's radii beside it.

Worlds of the simulation study (d = 50, k = 2, 5000 users of 20 steps) at four signal strengths, entries of U up to 0.025 (as printed: hopeless), 0.25, 0.5
and 1.25; and "wide", d = 200 and k = 18, 2000 users of 30 steps, entries up to 5 (a size of which many worlds can be fitted). Each world is fitted once (EM, the true rank) and asked for its radius at delta = 0.1 in both
norms. The paper's radii, as in its figures (unclipped, coverage taken as known), bound
the error of SOLD's basis from the same logs. The aim is 400 worlds each; the table counts those that are done, and a verdict
stays open before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import Verdict, ask, ask_least, finished, grid, nothing, quick, rounded
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit
from newcomer.radius import KINDS
from newcomer.subspace import distance
from newcomer.worlds.synthetic import Synthetic

NAME = "prior-calibration"
STRENGTHS = {"hopeless": 0.025, "weak": 0.25, "moderate": 0.5, "strong": 1.25}
WIDE = "wide"
WIDE_SCALE = 5.0
DELTA, WORLDS = 0.1, 400
SURE, FOUND = 0.99, 0.5  # a radius that says nothing is known; an error small enough to ask for tightness
COVERAGE, LOOSENESS, SAID = 0.86, 2.0, 0.95


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each world, the strengths taking turns, the wide ones last: they take longest."""
    sizes = _sizes(quick(scale))
    seeds = range(1, (2 if quick(scale) else WORLDS) + 1)
    points = [{"strength": name, **own, "delta": DELTA, "seed": seed} for seed in seeds for name, own in sizes.items()]
    return grid(NAME, sorted(points, key=lambda point: point["strength"] == WIDE))


def _sizes(small: bool) -> dict[str, dict[str, Scalar]]:
    plain: dict[str, Scalar] = {"dim": 20 if small else 50, "rank": 2, "users": 1000 if small else 5000, "steps": 20}
    wide = (
        {"dim": 40, "rank": 4, "users": 1000, "steps": 50}
        if small
        else {"dim": 200, "rank": 18, "users": 2000, "steps": 30}
    )
    found: dict[str, dict[str, Scalar]] = {name: {"scale": entry, **plain} for name, entry in STRENGTHS.items()}
    return {**found, WIDE: {"scale": WIDE_SCALE, **wide}}


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """True errors and radii of one world."""
    dim, rank, users, steps, seed = (int(arguments[name] or 0) for name in ("dim", "rank", "users", "steps", "seed"))
    delta = float(arguments["delta"] or 0)
    world = Synthetic(dim=dim, rank=rank, scale=float(arguments["scale"] or 0), seed=seed)
    logs = world.logs(users, steps, seed=seed)
    model = fit(logs, rank=rank, null=False)
    sold = fit(logs, rank=rank, estimator="sold", ridge=1.0, null=False)
    row: dict[str, Scalar] = {"strength": str(arguments["strength"]), "seed": seed}
    for norm in ("spectral", "frobenius"):
        row[f"error {norm}"] = distance(model.basis, world.basis, norm=norm)
        row[f"calibrated {norm}"] = model.radius("calibrated", delta=delta, norm=norm)
        row[f"sold error {norm}"] = distance(sold.basis, world.basis, norm=norm)
        for kind in KINDS:
            row[f"{kind} {norm}"] = sold.radius(kind, delta=delta, norm=norm, clip=False, simplified=True)
    return pl.DataFrame([row])


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """For each strength, norm and kind: share of worlds covered, median radius and error, median radius / error where found."""
    rows = finished(jobs(scale), bench)
    parts = [_cell(rows, norm, kind) for norm in ("spectral", "frobenius") for kind in ("calibrated", *KINDS)]
    order = pl.DataFrame({"strength": [*STRENGTHS, WIDE]}).with_row_index("_order")
    return rounded(pl.concat(parts).join(order, on="strength").sort("_order", maintain_order=True).drop("_order"))


def _cell(rows: pl.DataFrame, norm: str, kind: str) -> pl.DataFrame:
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


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Coverage in every cell of both norms, tightness where the subspace is found, candour where it is not."""
    found = []
    for line in frame.filter(kind="calibrated").iter_rows(named=True):
        what, own = f"{line['strength']}, {line['norm']}", []
        own.append(ask_least(f"{what}: coverage at delta = 0.1", line["covered"], COVERAGE))
        if line["loose"] is not None:
            own.append(
                ask(f"{what}: median radius / error ({line['found']} with error < 0.5)", line["loose"], LOOSENESS)
            )
        if line["strength"] == "hopeless" and line["norm"] == "spectral":
            own.append(ask_least(f"{what}: share with radius at least 0.99", line["unknown"], SAID))
        found += [_so_far(verdict, line["worlds"]) for verdict in own]
    return found


def _so_far(verdict: Verdict, worlds: int) -> Verdict:
    """Open until all worlds are done."""
    told = f"{verdict.measured} ({worlds} of {WORLDS} worlds)"
    return replace(verdict, measured=told, holds=verdict.holds if worlds >= WORLDS else None)


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Coverage, medians and looseness of all radii."""
    return frame.select(
        "strength", "norm", "kind", "worlds", "covered", "covered_se", "error", "radius", "loose", "unknown"
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
    x, y = Axis("scale", "entries of U up to", log=True), Axis("value", "median over worlds (spectral)", log=True)
    shown = pl.concat([errors, radii]).filter(pl.col("value").is_finite())
    return draw_lines(shown, path, x=x, y=y, series="line", marked=True)


FIGURE = Figure(
    name=NAME,
    claim="The calibrated radius covers the true error as often as it says and is within twice of it.",
    caption=lambda scale: "delta = 0.1; the paper's radii unclipped, for SOLD's basis.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
