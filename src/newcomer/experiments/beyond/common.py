"""What the studies share: the true prior as a model, regret by newcomer, paired ratios, and verdicts.

A study is a `Figure` whose jobs are all tables. Ratios are of mean regrets over the same newcomers; with g = mean(a) / mean(b) over n paired
units the standard error is that of the mean of (a - g b) / mean(b) (delta method).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.experiments.bench import Bench
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.scale import Scale
from newcomer.model import Model
from newcomer.simulation import play
from newcomer.subspace import top_eigenvectors
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Newcomers

Floats = NDArray[np.float64]
DIGITS = 4
QUICK_SEEDS = 2


@dataclass(frozen=True)
class Verdict:
    """One target of a study: what was asked, what came out, and whether it holds (None: the interval leaves it open)."""

    what: str
    target: str
    measured: str
    holds: bool | None


def ask(what: str, value: float, most: float, error: float | None = None) -> Verdict:
    """A value that should be at most `most`."""
    spread = "" if error is None else f" (se {error:.2g})"
    return Verdict(what, f"at most {most:g}", f"{value:.3g}{spread}", bool(value <= most))


def ask_least(what: str, value: float, least: float) -> Verdict:
    """A value that should be at least `least`."""
    return Verdict(what, f"at least {least:g}", f"{value:.3g}", bool(value >= least))


def true_prior(mean: Floats, covariance: Floats, noise_variance: float, rank: int) -> Model:
    """The population's own mean (d,), covariance (d, d) of this rank and noise as a model."""
    spectrum, basis = top_eigenvectors(np.outer(mean, mean) + covariance, rank)
    values, vectors = np.linalg.eigh(covariance)
    factor = vectors[:, ::-1][:, :rank] * np.sqrt(np.maximum(values[::-1][:rank], 0.0))
    return Model(basis, spectrum, mean, np.ascontiguousarray(factor), noise_variance, estimator="truth")


def truth_of(world: Synthetic) -> Model:
    """The true prior of a synthetic world."""
    return true_prior(world.mean, world.covariance, world.noise**2, world.rank)


def regrets(
    policies: Mapping[str, Any], world: Newcomers, *, horizon: int, users: int, seed: int, every: int | None = None
) -> pl.DataFrame:
    """Cumulative regret of each newcomer: `policy`, `user`, `t`, `regret`, at the end or `every` so many rounds."""
    rows = play(policies, world, horizon=horizon, users=users, seed=seed, progress=False)
    running = rows.select("policy", "user", "t", pl.col("regret").cum_sum().over("policy", "user", order_by="t"))
    return running.filter((pl.col("t") == horizon) | (pl.col("t") % (every or horizon) == 0))


def compared(rows: pl.DataFrame, reference: str, by: Sequence[str], unit: Sequence[str]) -> pl.DataFrame:
    """For each group and policy: `regret`, `regret_se`, and `ratio`, `ratio_se` of the reference's mean regret to its own.

    `by` are the columns of the groups, `unit` those that tell paired units apart; regrets within a unit are averaged first.
    """
    own = rows.group_by(*by, "policy", *unit, maintain_order=True).agg(pl.col("regret").mean())
    base = own.filter(pl.col("policy") == reference).select(*by, *unit, base="regret")
    ratio = pl.col("base").mean() / pl.col("regret").mean()
    rest = (pl.col("base") - ratio * pl.col("regret")).std() / pl.len().sqrt() / pl.col("regret").mean()
    return (
        own.join(base, on=[*by, *unit], maintain_order="left")
        .group_by(*by, "policy", maintain_order=True)
        .agg(
            units=pl.len(),
            regret=pl.col("regret").mean(),
            regret_se=pl.col("regret").std() / pl.len().sqrt(),
            ratio=ratio,
            ratio_se=rest,
        )
    )


def rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Every number to a few digits, as results are kept."""
    return frame.with_columns(pl.col(pl.Float64).round_sig_figs(DIGITS))


def grid(name: str, points: Sequence[Mapping[str, Scalar]]) -> list[Table]:
    """One table job for each point."""
    return [Table(name, tuple(point.items())) for point in points]


def finished(jobs: Sequence[Table], bench: Bench) -> pl.DataFrame:
    """The rows of all jobs that are done."""
    done = [job for job in jobs if bench.place(job).is_file()]
    return pl.concat([bench.rows(job) for job in done], how="vertical_relaxed")


def nothing(scale: Scale) -> list[Any]:
    """The fits of a study: none, its tables fit for themselves."""
    return []


def quick(scale: Scale) -> bool:
    """Whether sizes are to be small."""
    return scale.name == "quick"


def pick(frame: pl.DataFrame, column: str, **where: Any) -> float:
    """The one value of a column where other columns have the values given."""
    return float(frame.filter(**where)[column].item())


Verdicts = Callable[[pl.DataFrame], list[Verdict]]
