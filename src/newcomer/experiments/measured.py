"""What the tables of the results say, as Markdown: every number of experiments/README.md comes from here, none is typed.

A number is a mean with its standard error, `mean ± error`, over newcomers (or, for subspace errors, over data sets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from newcomer.experiments.figure import KINDS, read_table

RADII_AT = 5000  # offline users at which the radii are shown
Say = Callable[[pl.DataFrame], str]


def number(mean: float, error: float | None) -> str:
    """`84.6 ± 2.1`, with as many digits as the error deserves."""
    if error is None or error == 0:
        return f"{mean:.3g}" if abs(mean) > 1e-9 else "0"
    digits = 0 if error >= 10 else 1 if error >= 0.5 else 2 if error >= 0.05 else 3
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def grid(frame: pl.DataFrame, *, value: str = "regret") -> str:
    """One table for each world: policies down, tau across, after the last round; lines without a tau have one number."""
    last = frame.filter(pl.col("t") == pl.col("t").max().over("world"))
    return "\n\n".join(_world(last.filter(pl.col("world") == name), value) for name in _order(last, "world"))


def _world(last: pl.DataFrame, value: str) -> str:
    taus = last["tau"].drop_nulls().unique(maintain_order=True).to_list()
    head = [last["world"][0], "any tau", *[f"tau = {tau:g}" for tau in taus]]
    body = [
        [policy, *_cells(last.filter(pl.col("policy") == policy), [None, *taus], value)]
        for policy in _order(last, "policy")
    ]
    return markdown(head, body)


def _cells(own: pl.DataFrame, taus: list[float | None], value: str) -> list[str]:
    found = {tau: number(mean, error) for tau, mean, error in own.select("tau", value, f"{value}_se").iter_rows()}
    return [found.get(tau, "") for tau in taus]


def rating_grid(frame: pl.DataFrame) -> str:
    """The same for the rating of the last 25 rounds."""
    return grid(frame, value="reward")


def size_grid(frame: pl.DataFrame) -> str:
    """Regret against offline users, at the smallest tau (the subspace is kept) and for the lines without one."""
    smallest = frame.filter(pl.col("tau").is_null() | (pl.col("tau") == pl.col("tau").min().over("world")))
    tables = []
    for name in _order(smallest, "world"):
        here = smallest.filter(pl.col("world") == name)
        tau = here["tau"].drop_nulls().first()
        tables.append(_against(here, f"{name}, tau = {tau:g}", "policy", "users", "regret"))  # type: ignore[str-bytes-safe]
    return "\n\n".join(tables)


def error_grid(frame: pl.DataFrame, *, lines: str) -> str:
    """Subspace error against offline users."""
    worlds = _order(frame, "world")
    return "\n\n".join(
        _against(frame.filter(pl.col("world") == name), name, lines, "users", "error") for name in worlds
    )


def greed_grid(frame: pl.DataFrame) -> str:
    """Subspace error against the share of the best reward that the logger got."""
    shown = frame.with_columns(pl.col("greed").round(2))
    worlds = _order(shown, "world")
    return "\n\n".join(
        _against(shown.filter(pl.col("world") == name), name, "estimator", "greed", "error") for name in worlds
    )


def spectrum_line(frame: pl.DataFrame) -> str:
    """Eigenvalues 1, 2, 17 to 20 of every world and series."""
    kept = frame.filter(pl.col("position").is_in([1, 2, 17, 18, 19, 20])).with_columns(eigenvalue_se=pl.lit(0.0))
    worlds = _order(kept, "world")
    return "\n\n".join(
        _against(kept.filter(pl.col("world") == name), f"{name}, position", "series", "position", "eigenvalue")
        for name in worlds
    )


def area_line(frame: pl.DataFrame) -> str:
    """Areas of the sets at each time."""
    areas = frame.group_by("time", "set", maintain_order=True).agg(area=_area(), area_se=pl.lit(0.0))
    return _against(areas.filter(pl.col("area") > 1e-9), "area", "set", "time", "area")


def _area() -> pl.Expr:
    """Gauss's formula for the area within an outline; sets whose outline crosses itself are undercounted."""
    x, y = pl.col("x").sort_by("order"), pl.col("y").sort_by("order")
    after = (x.shift(-1).fill_null(x.first()), y.shift(-1).fill_null(y.first()))
    return ((x * after[1] - after[0] * y).sum() / 2).abs()


def end_line(frame: pl.DataFrame) -> str:
    """Regret and rating of every line after the last round, best first."""
    last = frame.filter(pl.col("t") == pl.col("t").max()).sort("regret")
    rows = last.select("policy", "regret", "regret_se", "reward", "reward_se").iter_rows()
    return markdown(
        ["policy", "regret", "rating, last 25"], [[p, number(a, b), number(c, d)] for p, a, b, c, d in rows]
    )


def guess_line(frame: pl.DataFrame) -> str:
    """Success at guessing each attribute, beside what always giving the more frequent answer gets right."""
    rows = [
        [
            row["attribute"],
            f"{row['known']}, {row['ratings'] or 'all'} ratings",
            f"{row['base_rate']:.3f}",
            number(row["accuracy"], row["accuracy_error"]),
            number(row["auc"], row["auc_error"]),
        ]
        for row in frame.iter_rows(named=True)
    ]
    return markdown(["guessed", "from", "base rate", "right", "area under ROC"], rows)


def panel_line(frame: pl.DataFrame) -> str:
    """Regret at the right end of each panel."""
    last = frame.filter(pl.col("x") == pl.col("x").max().over("panel"))
    return _against(last, "policy", "policy", "panel", "regret")


def _against(frame: pl.DataFrame, title: str, down: str, across: str, value: str) -> str:
    columns, errors = _order(frame, across), f"{value}_se"
    rows = []
    for name in _order(frame, down):
        own = frame.filter(pl.col(down) == name)
        found = {at: number(mean, error) for at, mean, error in own.select(across, value, errors).iter_rows()}
        rows.append([name, *[found.get(at, "") for at in columns]])
    return markdown([title, *[f"{at:,}" if isinstance(at, int) else str(at) for at in columns]], rows)


def markdown(head: list[str], body: list[list[str]]) -> str:
    """A table."""
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _order(frame: pl.DataFrame, column: str) -> list[str]:
    return frame[column].unique(maintain_order=True).to_list()


def _errors(frame: pl.DataFrame) -> str:
    found = frame.filter(pl.col("series") == "SOLD")
    return error_grid(found, lines="series") + "\n\n" + _radii(found.filter(pl.col("users") == RADII_AT))


def _radii(found: pl.DataFrame) -> str:
    """The radii of the paper's figures beside the error they bound, and what they would be without the factor B^2."""
    head = [f"Delta_off at N = {RADII_AT:,}", "true error", *KINDS, "B", *[f"{letter} / B^2" for letter in KINDS]]
    body = []
    for row in found.iter_rows(named=True):
        factor, values = row["inverse_coverage"], [row[kind] for kind in KINDS.values()]
        cells = [row["error"], *values, factor, *[value / factor**2 for value in values]]
        body.append([row["world"], *[f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}" for cell in cells]])
    return markdown(head, body)


def _estimators(frame: pl.DataFrame) -> str:
    return error_grid(frame, lines="estimator")


SAY: Mapping[str, Say] = {
    "main": panel_line,
    "eigenvalues": spectrum_line,
    "eigenvalues-log": spectrum_line,
    "subspace-error": _errors,
    "insufficiency": _estimators,
    "reward-seeking-logger": greed_grid,
    "regret-vs-n-ucb": size_grid,
    "regret-vs-n-ts": size_grid,
    "geometry": area_line,
    "replay": end_line,
    "privacy": guess_line,
}


def measured(name: str, results: Path) -> str:
    """What the table of a figure in the folder `results` says."""
    say = SAY.get(name) or (rating_grid if name.endswith("rating") else grid)
    return say(read_table(results / f"{name}.csv"))
