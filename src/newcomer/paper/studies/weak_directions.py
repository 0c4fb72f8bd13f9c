"""Are weak directions worth keeping? Four ways to keep more than the clear ones, on real people.

The list was fixed before the first result. Beside the fit by its clear directions alone (`clear`): `average`, its
covariance averaged with that of a full covariance by MAP-EM, where held-out users are predicted as well by it (what
`fit` does, `newcomer.em.full_covariance`); `always`, the same whatever held-out users say; `ranks`, L L^T
averaged over fits of half, once and twice the rank; `entries`, each entry of the covariance of pairs of residuals
shrunk towards L L^T by the variance that its count leaves it (empirical Bayes), positive part. Tables: Young People (20
and 60 answers logged), bfi (12), and both as likes (answer at least 4). 40 rounds of ten questions that come again with
the same answer or with half redrawn, or each question once; six splits, a hundred newcomers each. `ratio` is PriorUCB's
regret to that with the clear directions alone, standard errors over splits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import newcomer as nc
from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.em import full_covariance
from newcomer.em.full_covariance import MOST, full_covariance_is_accepted
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import reduce
from newcomer.paper.figure import Point, study
from newcomer.paper.panels import side_by_side
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.comparison import ratio_of_means, regrets
from newcomer.paper.studies.people import people_table
from newcomer.simulate import simulated_mean_and_error

CASES: dict[str, dict[str, Any]] = {
    "same answer again": {},
    "half redrawn": {"retest": 0.5},
    "each once": {"repeat": False},
}
LOGGED = (("young", 20), ("young", 60), ("bfi", 12), ("young 0/1", 20), ("bfi 0/1", 12))
SPLITS, ROUNDS = 6, 40
CLEAR = "clear"


def sweep(scale: Scale) -> list[Point]:
    """Every table and split."""
    splits, newcomers = (1, 8) if scale.quick else (SPLITS, 100)
    return [
        {"people": people, "answers": answers, "newcomers": newcomers, "seed": seed}
        for people, answers in (LOGGED[:1] if scale.quick else LOGGED)
        for seed in range(1, splits + 1)
    ]


def run(setting: Setting, *, people: str, answers: int, newcomers: int, seed: int) -> pl.DataFrame:
    """Regret of one split with each covariance: `people`, `answers`, `case`, `unit`, `policy`, `regret`."""
    world = people_table(setting, people, seed)
    models = variants(world.logs(steps=min(answers, world.dim // 2), seed=seed))
    found = []
    for case, settings in CASES.items():
        place = replace(world, **settings)
        horizon = ROUNDS if place.repeat else place.dim // place.choices
        policies = {name: nc.PriorUCB(model) for name, model in models.items()}
        rows = regrets(policies, place, horizon=horizon, users=newcomers, seed=seed)
        own = rows.group_by("policy", maintain_order=True).agg(pl.col("regret").mean())
        found.append(own.with_columns(case=pl.lit(case)))
    kept = pl.col("policy").replace_strict({name: model.factor.shape[1] for name, model in models.items()})
    labels = {"people": pl.lit(people), "answers": pl.lit(answers), "unit": pl.lit(seed), "directions": kept}
    return pl.concat(found).with_columns(**labels)


def variants(logs: Logs) -> dict[str, nc.Model]:
    """The fit with clear directions, and the rivals."""
    with patch.object(full_covariance, "ACTIONS", 0):
        clear = fit(logs, null=False, calibrate=False)
    with patch.object(full_covariance, full_covariance_is_accepted.__name__, return_value=True):
        always = fit(logs, null=False, calibrate=False)
    average = fit(logs, null=False, calibrate=False)
    return {
        CLEAR: clear,
        "average": average,
        "always": always,
        "ranks": _ranks(logs, clear),
        "entries": _entries(logs, clear),
    }


def _ranks(logs: Logs, clear: nc.Model) -> nc.Model:
    """The mean of L L^T over half, once and twice the rank."""
    rank = clear.factor.shape[1]
    others = {max(rank // 2, 1), min(2 * rank, logs.dim)} - {rank} if rank else set()
    factors = [clear.factor, *(fit(logs, rank=one, null=False, calibrate=False).factor for one in sorted(others))]
    return _with(clear, np.mean([factor @ factor.T for factor in factors], axis=0))


def _entries(logs: Logs, clear: nc.Model) -> nc.Model:
    """Pair covariances of residuals, shrunk towards L L^T entry by entry."""
    shared, own = clear.factor @ clear.factor.T, ~np.eye(clear.dim, dtype=bool)
    sums = reduce(logs, lambda batch: _pairs(batch, clear.mean), lambda a, b: a + b)
    counts = np.maximum(sums[0], 1.0)
    total = np.diag(shared) + clear.residual_variance
    noise = (np.outer(total, total) + shared**2) / counts
    away, weight = sums[1] / counts - shared, 1.0 / noise[own] ** 2
    between = max(0.0, float(weight @ (away[own] ** 2 - noise[own]) / weight.sum()))
    return _with(clear, shared + np.where(own, between / (between + noise) * away, 0.0))


def _pairs(batch: Batch, mean: Floats) -> Floats:
    """How often two actions were met by one user, and the products of their residuals, (2, A, A)."""
    assert batch.actions is not None
    users = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
    met, residual = np.zeros((2, len(batch.lengths), len(mean)))
    met[users, batch.actions] = 1.0
    residual[users, batch.actions] = batch.rewards - mean[batch.actions]
    return np.stack([met.T @ met, residual.T @ residual])


def _with(model: nc.Model, covariance: Floats) -> nc.Model:
    """The model with the leading directions of another covariance."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    values, vectors = values[::-1][:MOST], vectors[:, ::-1][:, :MOST]
    kept = values > 1e-3 * max(float(values[0]), 1e-12)
    return replace(model, factor=np.ascontiguousarray(vectors[:, kept] * np.sqrt(values[kept])))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Regret with each covariance, and its ratio to that with the clear directions."""
    by = ["people", "answers", "case"]
    base = rows.filter(policy=CLEAR).select(*by, "unit", base="regret")
    both = rows.join(base, on=[*by, "unit"], maintain_order="left")
    return both.group_by(*by, "policy", maintain_order=True).agg(
        units=pl.len(),
        directions=pl.col("directions").mean(),
        **simulated_mean_and_error("regret"),
        **ratio_of_means("regret", "base"),
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Ratios by table, a panel a case: dashes with boxes of one standard error, for tables have no order."""
    named = frame.with_columns(table=pl.format("{}, {}", "people", "answers")).filter(pl.col("policy") != CLEAR)
    order = {f"{people}, {answers}": i + 1 for i, (people, answers) in enumerate(LOGGED)}
    placed = named.with_columns(place=pl.col("table").replace_strict(order, default=1))
    x, y = Axis("place", "table", zero=False), Axis("ratio", "regret / that of clear directions", zero=False)
    dashes = side_by_side(placed, "place", "policy", "ratio")
    title = "tables and answers logged: " + "; ".join(f"{i} {name}" for name, i in order.items())
    return draw_lines(dashes, path, x=x, y=y, error="ratio_se", facet="case", columns=3, title=title)


STUDY = study(
    "weak-directions",
    claim="A full covariance averaged with the fit's, where held-out users say so, serves Young People better and bfi "
    "on average neither better nor worse.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)
