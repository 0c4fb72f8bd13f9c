"""What the rows of `play` say: regret and reward for each policy, with their uncertainty.

Users are the independent units. A policy's cumulative regret is a mean over users with standard error
s / sqrt(users); two policies are compared on the same users, so their difference is a mean of paired differences with
the t-interval mean -+ t_{users - 1} s / sqrt(users).
"""

from __future__ import annotations

import polars as pl
from scipy.special import stdtrit

from newcomer import validate
from newcomer.errors import NewcomerError, nearest

_COLUMNS = ("policy", "user", "t", "reward", "regret", "in_subspace")


def summary(rows: pl.DataFrame, *, reference: str | None = None, window: int = 25, level: float = 0.95) -> pl.DataFrame:
    """One line for each policy: how it did by the last round.

    Parameters
    ----------
    rows : rows of `play`, every policy with the same users and rounds.
    reference : policy to compare the others with, user by user.
    window : rounds at the end over which `reward` is averaged.
    level : coverage of the intervals of the differences.

    Returns
    -------
    Columns `policy`, `users`, `horizon`; `regret` and `regret_se`, mean cumulative regret and its standard error;
    `reward` and `reward_se`, mean reward of the last `window` rounds; `stayed`, the share of users still in the
    subspace at the end (null where meaningless). With a reference also `difference` = regret less the reference's, its
    interval `difference_low`, `difference_high`, and `ratio` of the two mean regrets. Standard errors and intervals are
    null for a single user.

    >>> rows = pl.DataFrame({"policy": ["a", "a", "b", "b"], "user": [0, 1, 0, 1], "t": [1, 1, 1, 1]})
    >>> rows = rows.with_columns(reward=pl.lit(0.5), regret=pl.Series([1.0, 3.0, 2.0, 5.0]), in_subspace=pl.lit(None))
    >>> summary(rows, reference="a").select("regret", "difference", "ratio").rows()
    [(2.0, 0.0, 1.0), (3.5, 1.5, 1.75)]
    """
    _check(rows, window=window, level=level)
    each = totals(rows, window=window)
    table = each.group_by("policy", maintain_order=True).agg(
        users=pl.len(),
        horizon=pl.col("horizon").max(),
        **mean_and_error("regret"),
        **mean_and_error("reward"),
        stayed=pl.col("stayed").mean(),
    )
    if reference is None:
        return table
    _check_reference(each, reference)
    return table.join(_differences(each, reference, level), on="policy", maintain_order="left")


def curves(rows: pl.DataFrame, *, window: int = 25) -> pl.DataFrame:
    """One line for each policy and round: the curves that regret figures draw.

    Columns `policy`, `t`; `regret`, `regret_se`: cumulative regret, mean over users and its standard error; `reward`,
    `reward_se`: mean over users of the reward averaged over the last `window` rounds (over fewer at the start);
    `in_subspace`: share of users whose choice was made in the subspace.
    """
    _check(rows, window=window)
    each = rows.sort("policy", "user", "t").with_columns(
        pl.col("regret").cum_sum().over("policy", "user"),
        pl.col("reward").rolling_mean(window, min_samples=1).over("policy", "user"),
    )
    share = pl.col("in_subspace").mean()
    lines = each.group_by("policy", "t").agg(**mean_and_error("regret"), **mean_and_error("reward"), in_subspace=share)
    order = rows.select(pl.col("policy").unique(maintain_order=True)).with_row_index("_order")
    return lines.join(order, on="policy").sort("_order", "t").drop("_order")


def totals(rows: pl.DataFrame, *, window: int = 25) -> pl.DataFrame:
    """One line for each policy and user: what policies are compared by, user by user.

    Columns `policy`, `user`, `horizon`; `regret` of all rounds, mean `reward` of the last `window`, and whether the
    user `stayed` in the subspace to the end.
    """
    last = pl.col("t") > pl.col("t").max() - window
    return rows.group_by("policy", "user", maintain_order=True).agg(
        horizon=pl.col("t").max(),
        regret=pl.col("regret").sum(),
        reward=pl.col("reward").filter(last).mean(),
        stayed=pl.col("in_subspace").sort_by("t").last(),
    )


def exits(rows: pl.DataFrame) -> pl.DataFrame:
    """For each policy that has a subspace and each user: `left_at`, the first round outside it, null if never."""
    _check(rows)
    inside = rows.filter(pl.col("in_subspace").is_not_null())
    first = pl.col("t").filter(~pl.col("in_subspace")).min()
    return inside.group_by("policy", "user", maintain_order=True).agg(left_at=first)


def mean_and_error(column: str) -> dict[str, pl.Expr]:
    """The mean of a column, under its own name, and its standard error s / sqrt(n), with `_se` behind the name.

    >>> pl.DataFrame({"error": [1.0, 3.0]}).select(**mean_and_error("error")).rows()
    [(2.0, 1.0)]
    """
    value = pl.col(column)
    return {column: value.mean(), f"{column}_se": value.std() / pl.len().sqrt()}


def _differences(totals: pl.DataFrame, reference: str, level: float) -> pl.DataFrame:
    """Regret of each policy less that of the reference, user by user, with the t-interval of the mean."""
    base = totals.filter(pl.col("policy") == reference).select("user", base="regret")
    gap = pl.col("regret") - pl.col("base")
    paired = (
        totals.join(base, on="user")
        .group_by("policy")
        .agg(
            difference=gap.mean(),
            _se=gap.std() / pl.len().sqrt(),
            _users=pl.len(),
            ratio=pl.col("regret").mean() / pl.col("base").mean(),
        )
    )
    users = int(paired["_users"][0])
    half = pl.col("_se") * (float(stdtrit(users - 1, 0.5 + level / 2)) if users > 1 else None)
    bounds = {"difference_low": pl.col("difference") - half, "difference_high": pl.col("difference") + half}
    return paired.select("policy", "difference", **bounds, ratio="ratio")


def _check(rows: pl.DataFrame, *, window: int = 1, level: float = 0.5) -> None:
    if not isinstance(rows, pl.DataFrame):
        raise NewcomerError(f"rows are {validate.shown(rows)}", todo="pass the frame that play returned")
    missing = [name for name in _COLUMNS if name not in rows.columns]
    if missing:
        raise NewcomerError(f"rows lack the column '{missing[0]}'", todo="pass the frame that play returned")
    validate.whole(window, "window", kind=NewcomerError)
    validate.share(level, "level", least=1.0, todo="pass a number between 0 and 1", kind=NewcomerError)


def _check_reference(totals: pl.DataFrame, reference: str) -> None:
    """Refuse a policy that was not played, and policies that met different users."""
    names = totals["policy"].unique(maintain_order=True).to_list()
    if not isinstance(reference, str) or reference not in names:
        hint = nearest(reference, names) if isinstance(reference, str) else ""
        what = f"no policy {validate.shown(reference)} was played{hint}"
        raise NewcomerError(what, todo=f"choose one of {', '.join(names)}")
    users = totals.group_by("policy").agg(pl.col("user").sort())["user"].to_list()
    if any(met != users[0] for met in users):
        raise NewcomerError("policies were played on different users", todo="compare policies of one call of play")
