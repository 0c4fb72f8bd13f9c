"""What degrades, and by how much, when the working model is wrong: tails, clusters, a wrong noise variance.

d = 50, k = 2, 5000 users of 20 steps, the true rank given, entries of U up to 1.25 and 0.5, twenty worlds of ten
newcomers, T = 200. Student tails have five degrees of freedom and the Gaussian's variance; "three clusters" are three
equally likely preferences with a little spread. A wrong noise variance is put into the fitted model: PriorUCB then
trusts rewards four times too much, or too little. Every number is compared with the well-specified case of the same
factor U (`ratio`, paired by world). "Outlier users" are those whom PriorUCB's test has moved to the full dimension:
heavy tails, and above all a noise variance taken too small, look to it like users who contradict the prior. The
picture shows entries up to 1.25 only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import ROUND
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, truth_of
from newcomer.simulate import play, simulated_curves, simulated_mean_and_error
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic

STEPS, ROUNDS, RANK, EVERY = 20, 200, 2, 10
PLAIN = "well-specified"
WORLDS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "heavy-tailed noise": {"noise_tails": "heavy"},
    "heavy-tailed latents": {"latents": "heavy"},
    "three clusters": {"latents": "clusters"},
}
WRONG = {"noise variance / 4": 0.25, "noise variance x 4": 4.0}
CASES = pl.Enum([*WORLDS, *WRONG])  # in the order of the table
SCALES = (1.25, 0.5)
SEEDS = 20


def sweep(scale: Scale) -> list[Point]:
    """Every world: a signal strength, a case and a seed."""
    users, newcomers, seeds = (1000, 3, 2) if scale.quick else (5000, 10, SEEDS)
    return [
        {"scale": entry, "case": case, "users": users, "newcomers": newcomers, "seed": seed}
        for seed in range(1, seeds + 1)
        for entry in SCALES
        for case in WORLDS
    ]


def run(setting: Setting, *, scale: float, case: str, users: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Errors and regrets of one world: `case`, `measure`, `t`, `value`.

    The policies with a wrong noise variance play in the well-specified world, with its fit; their rows are cases of
    their own.
    """
    world = replace(Synthetic(scale=scale, seed=seed), **WORLDS[case])
    logs = world.logs(users, STEPS, seed=seed)
    model = fit(logs, rank=RANK, null=False, calibrate=False)
    sold = fit(logs, rank=RANK, estimator="sold", ridge=1.0, null=False)
    policies: dict[str, Any] = {
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
    rows = play({**policies, **wrong}, world, horizon=ROUNDS, users=newcomers, seed=seed, progress=False)
    errors = [
        (case, f"{name} error", ROUNDS, subspace_distance(m.basis, world.basis))
        for name, m in (("EM", model), ("SOLD", sold))
    ]
    frame = pl.DataFrame([*_regrets(rows, case), *errors], schema=["case", "measure", "t", "value"], orient="row")
    return frame.with_columns(scale=pl.lit(scale), seed=pl.lit(seed))


def _regrets(rows: pl.DataFrame, case: str) -> list[tuple[str, str, int, float]]:
    """Mean cumulative regret every few rounds, and the share of users whom the test took for outliers."""
    lines = simulated_curves(rows).filter(pl.col("t") % EVERY == 0)
    found = [_named(case, policy, t, value) for policy, t, value in lines.select("policy", "t", "regret").iter_rows()]
    last = lines.filter((pl.col("t") == ROUNDS) & pl.col("policy").str.contains("PriorUCB"))
    outliers = last.select("policy", 1.0 - pl.col("in_subspace")).iter_rows()
    return found + [_named(case, f"{policy}, outlier users", ROUNDS, share) for policy, share in outliers]


def _named(case: str, policy: str, t: int, value: float) -> tuple[str, str, int, float]:
    """One row; the name of a policy with a wrong variance begins with the case it belongs to."""
    wrong = next((name for name in WRONG if policy.startswith(name)), None)
    return (case, policy, t, value) if wrong is None else (wrong, policy.removeprefix(f"{wrong} "), t, value)


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean of every measure in every case over worlds, and its ratio to the well-specified one's, paired by world."""
    base = rows.filter(case=PLAIN).select("scale", "measure", "t", "seed", base="value")
    both = rows.join(base, on=["scale", "measure", "t", "seed"], maintain_order="left")
    groups = both.group_by("scale", "measure", "case", "t", maintain_order=True)
    made = groups.agg(worlds=pl.len(), **simulated_mean_and_error("value"), **ratio_of_means("value", "base"))
    return made.sort(-pl.col("scale"), "measure", pl.col("case").cast(CASES), "t", maintain_order=True)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, a panel for each case, entries up to 1.25; LinUCB, far above, is in the table only."""
    shown = frame.filter(pl.col("scale") == SCALES[0], ~pl.col("measure").str.contains("error|outlier users|LinUCB"))
    shown = shown.sort(pl.col("case").cast(CASES), maintain_order=True)
    y = Axis("value", "cumulative regret")
    return draw_lines(shown, path, x=ROUND, y=y, series="measure", error="value_se", facet="case", columns=3)


STUDY = study(
    "prior-robust",
    claim="What tails, clusters and a wrong noise variance cost.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
