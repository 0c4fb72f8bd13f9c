"""How studies compare policies: ratios and differences of regret over paired units.

All policies serve the same newcomers, so they are compared unit by unit, where a unit is a newcomer or, if newcomers
share a fit, a world. Ratios are of mean regrets: with g = mean(a) / mean(b) over n paired units the standard error is
that of the mean of (a - g b) / mean(b), by the delta method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from newcomer.model import Model
from newcomer.paper.worlds.movielens import MovieLens
from newcomer.simulate import play, simulated_mean_and_error
from newcomer.subspace import top_eigenvectors
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Newcomers


def truth_of(world: Synthetic | MovieLens) -> Model:
    """The true prior of a world as a model: what PriorUCB would have with infinitely many logs.

    Mean (d,), covariance (d, d) of the true rank and noise variance are those of the world's population. A covariance
    C = L L^T is written by its leading eigenvectors, and the basis is that of mean mean^T + C, as a fit's would be.
    """
    if isinstance(world, Synthetic):
        mean, covariance, noise_variance = world.mean, world.covariance, world.noise**2
    else:
        users = world.factors.users
        mean, covariance = users.mean(axis=0), np.cov(users, rowvar=False, bias=True)
        noise_variance = world.noise_variance
    rank = world.rank
    spectrum, basis = top_eigenvectors(np.outer(mean, mean) + covariance, rank)
    values, vectors = np.linalg.eigh(covariance)
    factor = vectors[:, ::-1][:, :rank] * np.sqrt(np.maximum(values[::-1][:rank], 0.0))
    return Model(basis, spectrum, mean, np.ascontiguousarray(factor), noise_variance, estimator="truth")


def regrets(
    policies: Mapping[str, Any], world: Newcomers, *, horizon: int, users: int, seed: int, every: int | None = None
) -> pl.DataFrame:
    """Cumulative regret of each newcomer: `policy`, `user`, `t`, `regret`, at the end or `every` so many rounds.

    All policies serve the same `users` newcomers of the world, drawn from `seed`.
    """
    rows = play(policies, world, horizon=horizon, users=users, seed=seed, progress=False)
    running = rows.select("policy", "user", "t", pl.col("regret").cum_sum().over("policy", "user", order_by="t"))
    return running.filter((pl.col("t") == horizon) | (pl.col("t") % (every or horizon) == 0))


def paired(rows: pl.DataFrame, reference: str, by: Sequence[str], unit: Sequence[str]) -> pl.DataFrame:
    """The mean `regret` of each policy in each unit of each group, beside it that of the reference policy as `base`.

    `by` are the columns of the groups, `unit` those that tell the units of a group apart.
    """
    own = rows.group_by(*by, "policy", *unit, maintain_order=True).agg(pl.col("regret").mean())
    base = own.filter(pl.col("policy") == reference).select(*by, *unit, base="regret")
    return own.join(base, on=[*by, *unit], maintain_order="left")


def compared(rows: pl.DataFrame, reference: str, by: Sequence[str], unit: Sequence[str]) -> pl.DataFrame:
    """The mean regret of each policy in each group, beside the reference policy's.

    Columns `by`, `policy`, `units`, `regret`, `regret_se`, and `ratio`, `ratio_se` of the reference's regret to the
    policy's.
    """
    groups = paired(rows, reference, by, unit).group_by(*by, "policy", maintain_order=True)
    return groups.agg(units=pl.len(), **simulated_mean_and_error("regret"), **ratio_of_means("base", "regret"))


def ratio_of_means(above: str, below: str) -> dict[str, pl.Expr]:
    """The `ratio` of the means of two columns of paired numbers, and its standard error `ratio_se`.

    >>> pl.DataFrame({"a": [2.0, 4.0], "b": [1.0, 2.0]}).select(**ratio_of_means("a", "b")).rows()
    [(2.0, 0.0)]
    """
    a, b = pl.col(above), pl.col(below)
    ratio = a.mean() / b.mean()
    return {"ratio": ratio, "ratio_se": (a - ratio * b).std() / pl.len().sqrt() / b.mean()}


def t_intervals(pairs: pl.DataFrame, value: pl.Expr, by: Sequence[str], *, level: float) -> pl.DataFrame:
    """The `mean` of an expression in each group, with the ends `low` and `high` of its t-interval.

    The interval is mean -+ t_{n - 1} s / sqrt(n) over the n units of the group.

    >>> pairs = pl.DataFrame({"group": [1, 1], "x": [0.0, 2.0]})
    >>> t_intervals(pairs, pl.col("x"), ["group"], level=0.8).select(pl.all().round(2)).rows()
    [(1, 1.0, -2.08, 4.08)]
    """
    found = pairs.group_by(*by, maintain_order=True).agg(
        mean=value.mean(), se=value.std() / pl.len().sqrt(), n=pl.len()
    )
    half = pl.col("se") * pl.Series([float(stdtrit(n - 1, (1 + level) / 2)) for n in found["n"]])
    return found.select(*by, "mean", low=pl.col("mean") - half, high=pl.col("mean") + half)
