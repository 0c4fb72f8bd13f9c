"""How many offline users it takes: subspace error and regret against N.

Subspace error is the Frobenius distance of projections (at most sqrt(2k)), averaged over data sets, beside the parametric
rate 1/sqrt(N) through the first point. Regret is that of `rounds` rounds with the subspace, and the radii, of each N.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import DIGITS, KINDS, Figure, Line, proball, spread
from newcomer.experiments.jobs import Fit, Job, Scalar, Table
from newcomer.experiments.movielens import caption as films_caption
from newcomer.experiments.places import Setting, true_basis, world
from newcomer.experiments.scale import BALANCED, FILMS, LEARNABLE, LITERAL, PRINTED, Scale
from newcomer.experiments.sweeps import honest, prior, run, sold
from newcomer.outcomes import summary
from newcomer.subspace import distance

WORLDS = (LITERAL, BALANCED, PRINTED, LEARNABLE)
SWEEP = {"regret-vs-n-ucb": ("ProBALL-UCB", "LinUCB"), "regret-vs-n-ts": ("ProBALL-TS", "LinTS")}
_NUMBERS = ("spectral", *KINDS.values(), "inverse_coverage")
SIZE = Axis("users", "offline users N", log=True)


def error_jobs(scale: Scale, bench: Bench) -> list[Job]:
    """One error for each world, size and data set."""
    return [
        Table("subspace error and radii", (("world", world), ("users", users), ("seed", seed)))
        for world in WORLDS
        for users in scale.error_sizes
        for seed in range(1, scale.repeats + 1)
    ]


def subspace_error(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Frobenius and spectral error of one SOLD fit, its three radii, and the coverage factor B = max ||D_i^-1||."""
    from newcomer.experiments.jobs import perform_fit

    name, users, seed = str(arguments["world"]), int(arguments["users"] or 0), int(arguments["seed"] or 0)
    model = perform_fit(sold(setting.sizes, name, users=users, seed=seed), setting)
    truth = true_basis(world(name, setting))
    errors = {norm: distance(model.basis, truth, norm=norm) for norm in ("frobenius", "spectral")}
    radii = {kind: model.radius(kind, norm="frobenius", clip=False, simplified=True) for kind in KINDS.values()}
    assert model.evidence.coverage is not None
    coverage = {"inverse_coverage": 1.0 / model.evidence.coverage.lambda_A}
    return pl.DataFrame({"world": name, "users": users, "seed": seed, **errors, **radii, **coverage})


def error_table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Mean error and its standard error over data sets, and the rate 1/sqrt(N) through the first point."""
    rows = pl.concat([bench.rows(job) for job in error_jobs(scale, bench) if isinstance(job, Table)])
    mean = rows.group_by("world", "users", maintain_order=True).agg(
        pl.col("frobenius").mean().alias("error"),
        (pl.col("frobenius").std() / pl.len().sqrt()).alias("error_se"),
        pl.col(_NUMBERS).mean(),
    )
    anchor = mean.group_by("world").agg((pl.col("error") * pl.col("users").sqrt()).sort_by("users").first().alias("_c"))
    rate = mean.join(anchor, on="world", maintain_order="left").with_columns(
        pl.lit("1/sqrt(N)").alias("series"),
        (pl.col("_c") / pl.col("users").sqrt()).alias("error"),
        *[pl.lit(None, dtype=pl.Float64).alias(name) for name in ("error_se", *_NUMBERS)],
    )
    both = pl.concat([mean.with_columns(series=pl.lit("SOLD")), rate.select([*mean.columns, "series"])])
    return both.with_columns(pl.col("error", "error_se", *_NUMBERS).round_sig_figs(DIGITS))


def draw_error(frame: pl.DataFrame, path: Path) -> Path:
    """Error against N on logarithmic axes, a panel for each world."""
    y = Axis("error", "subspace error (Frobenius)", log=True)
    return draw_lines(
        frame,
        path,
        x=SIZE,
        y=y,
        series="series",
        error="error_se",
        facet="world",
        columns=2,
        marked=True,
    )


def regret_lines(scale: Scale, bench: Bench, name: str) -> list[tuple[int, Line]]:
    """For every N: ProBALL with each radius and tau, and the lines to hold it against."""
    version, baseline = SWEEP[name]
    found: list[tuple[int, Line]] = []
    for world_name in FILMS:
        low = Line(world_name, f"{baseline}, true features", run(scale, world_name, baseline, latent=True))
        high = Line(world_name, baseline, run(scale, world_name, baseline))
        for users in scale.sizes:
            fit = sold(scale, world_name, users=users)
            lines = proball(bench, scale.taus[world_name], run(scale, world_name, version, fit=fit))
            lines = [high, low, *lines, *honest(scale, world_name, users=users)]
            found += [(users, line) for line in lines]
    return found


def regret_fits(scale: Scale) -> list[Fit]:
    """Both fits of every N."""
    return [make(scale, name, users=users) for name in FILMS for users in scale.sizes for make in (sold, prior)]


def regret_table(scale: Scale, bench: Bench, name: str) -> pl.DataFrame:
    """Regret after the last round: `world`, `tau`, `policy`, `users` and the round in which the subspace was left."""
    rows = []
    for users, line in regret_lines(scale, bench, name):
        end = summary(bench.rows(line.play)).row(0, named=True)
        rows.append((line.world, line.tau, line.policy, users, line.play.leaves, end["regret"], end["regret_se"]))
    names = ["world", "tau", "policy", "t", "left_at", "regret", "regret_se"]
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return frame.with_columns(pl.col("regret", "regret_se").round_sig_figs(DIGITS)).rename({"t": "users"})


def draw_regret(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against N, a panel for each world and tau."""
    panels = spread(frame.rename({"users": "t"})).rename({"t": "users"})
    panels = panels.with_columns(pl.col("panel").str.split("\n").list.first())
    y = Axis("regret", "regret after the last round")
    return draw_lines(panels, path, x=SIZE, y=y, error="regret_se", facet="panel", columns=3, marked=True)


def _error_caption(scale: Scale) -> str:
    return (
        f"Mean over {scale.repeats} data sets, bands of one standard error; SOLD with pseudo-inverses on MovieLens "
        f"(d = {scale.dim}, k = {scale.rank}, "
        f"{scale.film_steps} steps), with ridge mu = 1 in the simulation (d = 50, k = 2, {scale.steps} steps); the "
        "true rank. The largest possible "
        "distance is sqrt(2k): 6 for k = 18, 2 for k = 2. The rate is drawn through the first point."
    )


def _regret_caption(scale: Scale) -> str:
    return (
        films_caption(scale) + " One data set for each N, nested; PopulationMean and PriorUCB are fitted on the same N."
    )


def _regret_figure(name: str, claim: str) -> Figure:
    return Figure(
        name=name,
        claim=claim,
        caption=_regret_caption,
        fits=regret_fits,
        jobs=lambda scale, bench: [line.play for _, line in regret_lines(scale, bench, name)],
        table=lambda scale, bench: regret_table(scale, bench, name),
        draw=draw_regret,
    )


FIGURES = (
    Figure(
        name="subspace-error",
        claim="The error of SOLD decreases quickly, compared with the parametric rate 1/sqrt(N).",
        caption=_error_caption,
        fits=lambda scale: [],
        jobs=error_jobs,
        table=error_table,
        draw=draw_error,
    ),
    _regret_figure(
        "regret-vs-n-ucb",
        "With a low tau the regret of ProBALL-UCB approaches that of LinUCB on true low-dimensional features as N "
        "grows.",
    ),
    _regret_figure(
        "regret-vs-n-ts",
        "With a low tau the regret of ProBALL-TS approaches that of TS on true low-dimensional features as N grows.",
    ),
)
