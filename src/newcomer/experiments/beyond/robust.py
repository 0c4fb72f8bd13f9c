"""What degrades, and by how much, when the working model is wrong: tails, clusters, a wrong noise variance.

d = 50, k = 2, 5000 users of 20 steps, the true rank given, entries of U up to 1.25 and 0.5, twenty worlds of ten newcomers, T = 200. Student tails have
five degrees of freedom and the Gaussian's variance; "three clusters" are three equally likely tastes with a little spread. A wrong noise variance
is put into the fitted model: PriorUCB then trusts rewards four times too much, or too little. Every number is compared with the
well-specified case of the same factor U (`ratio`, paired by world). "Strangers" are users whom PriorUCB's test has moved to the full dimension: heavy tails, and
above all a noise variance taken too small, look to it like users who contradict the prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import newcomer as nc
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.common import Verdict, finished, grid, nothing, quick, rounded, truth_of
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting
from newcomer.experiments.scale import Scale
from newcomer.fitting import fit
from newcomer.outcomes import curves
from newcomer.simulation import play
from newcomer.subspace import distance
from newcomer.worlds.synthetic import Synthetic

NAME = "prior-robust"
STEPS, ROUNDS, RANK, EVERY = 20, 200, 2, 10
PLAIN = "well-specified"
WORLDS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "heavy-tailed noise": {"noise_tails": "heavy"},
    "heavy-tailed latents": {"latents": "heavy"},
    "three clusters": {"latents": "clusters"},
}
WRONG = {"noise variance / 4": 0.25, "noise variance x 4": 4.0}
SCALES = (1.25, 0.5)
SEEDS = 20


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """One job for each world."""
    users, newcomers, seeds = (1000, 3, 2) if quick(scale) else (5000, 10, SEEDS)
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
        (case, f"{name} error", ROUNDS, distance(m.basis, world.basis)) for name, m in (("EM", model), ("SOLD", sold))
    ]
    schema = ["case", "measure", "t", "value"]
    frame = pl.DataFrame([*_regrets(rows, case), *errors], schema=schema, orient="row")
    return frame.with_columns(scale=pl.lit(entry), seed=pl.lit(seed))


def _regrets(rows: pl.DataFrame, case: str) -> list[tuple[str, str, int, float]]:
    """Mean cumulative regret every few rounds, and the share of users whom the test has taken for strangers by the end."""
    lines = curves(rows).filter(pl.col("t") % EVERY == 0)
    found = [_named(case, policy, t, value) for policy, t, value in lines.select("policy", "t", "regret").iter_rows()]
    last = lines.filter((pl.col("t") == ROUNDS) & pl.col("policy").str.contains("PriorUCB"))
    strangers = last.select("policy", 1.0 - pl.col("in_subspace")).iter_rows()
    return found + [_named(case, f"{policy}, strangers", ROUNDS, share) for policy, share in strangers]


def _named(case: str, policy: str, t: int, value: float) -> tuple[str, str, int, float]:
    """A wrong variance is a case of its own."""
    wrong = next((name for name in WRONG if policy.startswith(name)), None)
    return (case, policy, t, value) if wrong is None else (wrong, policy.removeprefix(f"{wrong} "), t, value)


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Mean of every measure in every case, and its ratio to the well-specified one's."""
    rows = finished(jobs(scale), bench)
    base = rows.filter(case=PLAIN).select("scale", "measure", "t", "seed", base="value")
    ratio = pl.col("value").mean() / pl.col("base").mean()
    ratio_se = (pl.col("value") - ratio * pl.col("base")).std() / pl.len().sqrt() / pl.col("base").mean()
    found = rows.join(base, on=["scale", "measure", "t", "seed"], maintain_order="left").group_by(
        "scale", "measure", "case", "t", maintain_order=True
    )
    value_se = pl.col("value").std() / pl.len().sqrt()
    made = found.agg(worlds=pl.len(), value=pl.col("value").mean(), value_se=value_se, ratio=ratio, ratio_se=ratio_se)
    order = {name: place for place, name in enumerate([*WORLDS, *WRONG])}
    return rounded(
        made.sort(-pl.col("scale"), "measure", pl.col("case").replace_strict(order), "t", maintain_order=True)
    )


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """No target was set: what each case costs PriorUCB."""
    end = frame.filter(pl.col("t") == ROUNDS, pl.col("case") != PLAIN)
    ours = end.filter(pl.col("measure").is_in(["PriorUCB", "EM error"]))
    return [
        Verdict(
            f"{line['measure']}, {line['case']}, entries up to {line['scale']:g}: ratio to well-specified",
            "reported",
            f"{line['ratio']:.3g} (se {line['ratio_se']:.2g}, {line['worlds']} of {SEEDS} worlds)",
            None,
        )
        for line in ours.iter_rows(named=True)
    ]


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """Everything after the last round, with the ratio to the well-specified case."""
    end = frame.filter(pl.col("t") == ROUNDS)
    value, ratio = pl.col("value").round_sig_figs(3), pl.col("ratio").round_sig_figs(3)
    told = pl.when(ratio.is_finite()).then(pl.format("{} (x {})", value, ratio)).otherwise(pl.format("{}", value))
    return end.with_columns(told=told).pivot("case", index=["scale", "measure"], values="told").fill_null("")


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret against rounds, a panel for each case, entries up to 1.25."""
    shown = frame.filter(pl.col("scale") == SCALES[0], ~pl.col("measure").str.contains("error|strangers"))
    order = {name: place for place, name in enumerate([*WORLDS, *WRONG])}
    shown = shown.filter(pl.col("measure") != "LinUCB").sort(pl.col("case").replace_strict(order), maintain_order=True)
    x, y = Axis("t", "round"), Axis("value", "cumulative regret")
    return draw_lines(shown, path, x=x, y=y, series="measure", error="value_se", facet="case", columns=3)


FIGURE = Figure(
    name=NAME,
    claim="What tails, clusters and a wrong noise variance cost.",
    caption=lambda scale: "Entries of U up to 1.25; LinUCB, far above, is in the table; bands of one standard error.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)
