"""What degrades, and by how much, when the working model is wrong: tails, clusters, a wrong noise variance.

d = 50, k = 2, 5000 users of 20 steps, the true rank given, entries of U up to 1.25 and 0.5, twenty worlds of ten newcomers, T = 200. Student tails have
five degrees of freedom and the Gaussian's variance; "three clusters" are three equally likely tastes with a little spread. A wrong noise variance
is put into the fitted model: PriorUCB then trusts rewards four times too much, or too little. Every number is compared with the
well-specified case of the same factor U (`ratio`, paired by world).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import Verdict, finished, grid, nothing, quick, regrets, rounded, truth_of
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit
from newcomer.pictures import Axis, draw_lines
from newcomer.subspace import distance
from newcomer.worlds.synthetic import Synthetic

NAME = "prior-robust"
STEPS, ROUNDS, RANK = 20, 200, 2
PLAIN = "well-specified"
WORLDS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "heavy-tailed noise": {"noise_tails": "heavy"},
    "heavy-tailed latents": {"latents": "heavy"},
    "three clusters": {"latents": "clusters"},
}
WRONG = {"noise variance / 4": 0.25, "noise variance x 4": 4.0}
SCALES = (1.25, 0.5)


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each world."""
    users, newcomers, seeds = (1000, 3, 2) if quick(scale) else (5000, 10, 20)
    points: list[dict[str, Scalar]] = [
        {"scale": entry, "case": case, "users": users, "newcomers": newcomers, "seed": seed}
        for seed in range(1, seeds + 1)
        for entry in SCALES
        for case in WORLDS
    ]
    return grid(NAME, points)


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Errors and regrets of one world: `case`, `measure`, `value`."""
    users, newcomers, seed = (int(arguments[name] or 0) for name in ("users", "newcomers", "seed"))
    case, entry = str(arguments["case"]), float(arguments["scale"] or 0)
    world = replace(Synthetic(scale=entry, seed=seed), **WORLDS[case])
    logs = world.logs(users, STEPS, seed=seed)
    model = fit(logs, rank=RANK, null=False, calibrate=False)
    sold = fit(logs, rank=RANK, estimator="sold", ridge=1.0, null=False)
    policies = {
        "PriorUCB": nc.PriorUCB(model),
        "PriorTS": nc.PriorTS(model),
        "true prior": nc.PriorUCB(truth_of(world)),
        "ProBALL-UCB": nc.ProBALLUCB(sold, horizon=ROUNDS),
        "LinUCB": nc.LinUCB(world.dim, horizon=ROUNDS),
    }
    wrong = {
        f"{name} {policy}": make(replace(model, noise_variance=model.noise_variance * factor))
        for name, factor in (WRONG if case == PLAIN else {}).items()
        for policy, make in (("PriorUCB", nc.PriorUCB), ("PriorTS", nc.PriorTS))
    }
    rows = regrets({**policies, **wrong}, world, horizon=ROUNDS, users=newcomers, seed=seed)
    means = rows.group_by("policy", maintain_order=True).agg(pl.col("regret").mean())
    found = [_named(case, policy, value) for policy, value in means.iter_rows()]
    found += [(case, f"{name} error", distance(m.basis, world.basis)) for name, m in (("EM", model), ("SOLD", sold))]
    frame = pl.DataFrame(found, schema=["case", "measure", "value"], orient="row")
    return frame.with_columns(scale=pl.lit(entry), seed=pl.lit(seed))


def _named(case: str, policy: str, value: float) -> tuple[str, str, float]:
    """A wrong variance is a case of its own."""
    wrong = next((name for name in WRONG if policy.startswith(name)), None)
    return (case, policy, value) if wrong is None else (wrong, policy.removeprefix(f"{wrong} "), value)


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Mean of every measure in every case, and its ratio to the well-specified one's."""
    rows = finished(jobs(scale), bench)
    base = rows.filter(case=PLAIN).select("scale", "measure", "seed", base="value")
    ratio = pl.col("value").mean() / pl.col("base").mean()
    ratio_se = (pl.col("value") - ratio * pl.col("base")).std() / pl.len().sqrt() / pl.col("base").mean()
    found = rows.join(base, on=["scale", "measure", "seed"], maintain_order="left").group_by(
        "scale", "measure", "case", maintain_order=True
    )
    value_se = pl.col("value").std() / pl.len().sqrt()
    made = found.agg(worlds=pl.len(), value=pl.col("value").mean(), value_se=value_se, ratio=ratio, ratio_se=ratio_se)
    order = {name: place for place, name in enumerate([*WORLDS, *WRONG])}
    return rounded(made.sort(-pl.col("scale"), "measure", pl.col("case").replace_strict(order), maintain_order=True))


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """No target was set: what each case costs PriorUCB."""
    ours = frame.filter(pl.col("measure").is_in(["PriorUCB", "EM error"]), pl.col("case") != PLAIN)
    return [
        Verdict(
            f"{line['measure']}, {line['case']}, entries up to {line['scale']:g}: ratio to well-specified",
            "reported",
            f"{line['ratio']:.3g} (se {line['ratio_se']:.2g})",
            None,
        )
        for line in ours.iter_rows(named=True)
    ]


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """The ratios, one place on the axis for each case."""
    names = [*WORLDS, *WRONG]
    place = pl.col("case").replace_strict({name: i for i, name in enumerate(names)}, return_dtype=pl.Int64)
    legend = "; ".join(f"{i} {name}" for i, name in enumerate(names))
    shown = frame.with_columns(place=place, panel=pl.format("entries up to {}", "scale"))
    x, y = Axis("place", "case"), Axis("ratio", "ratio to the well-specified case", zero=False)
    return draw_lines(
        shown, path, x=x, y=y, series="measure", error="ratio_se", facet="panel", marked=True, title=legend
    )


FIGURE = Figure(
    name=NAME,
    claim="Tails, clusters and a wrong noise variance cost PriorUCB little.",
    caption=lambda scale: "Ratios to the well-specified case, paired by world; bands of one standard error.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
