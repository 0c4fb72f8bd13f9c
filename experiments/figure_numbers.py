"""What the tables of the figures say, as Markdown: no number of docs/paper/figures.md is typed.

A number is a mean with its standard error, `mean ± error`, over newcomers (or, for subspace errors, over data sets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from experiments import markdown
from experiments.markdown import number
from newcomer.paper.lines import KINDS

RADII_AT = 5000  # offline users at which the radii are shown


def measured(name: str, results: Path) -> str:
    """What the table of a figure in the folder `results` says."""
    say = SAY.get(name) or (rating_grid if name.endswith("rating") else regret_grid)
    return say(read_table(results / f"{name}.csv"))


def read_table(path: Path) -> pl.DataFrame:
    """A table of the results as it was written: columns that begin with empty cells are numbers all the same."""
    frame = pl.read_csv(path, infer_schema_length=None)
    numbers = [name for name in ("tau", "left_at") if name in frame.columns]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64))


def regret_grid(frame: pl.DataFrame, *, value: str = "regret") -> str:
    """One table for each world, after the last round: policies down, tau across.

    Lines without a tau have one number, in the first column.
    """
    last = frame.filter(pl.col("t") == pl.col("t").max().over("world"))
    labels = ["any tau" if tau is None else f"tau = {tau:g}" for tau in last["tau"]]
    last = last.with_columns(label=pl.Series(labels, dtype=pl.String))
    tables = []
    for (world,), own in last.group_by("world", maintain_order=True):
        columns = ["any tau", *_order(own.drop_nulls("tau"), "label")]
        tables.append(_against(own, str(world), "policy", "label", value, columns))
    return "\n\n".join(tables)


def rating_grid(frame: pl.DataFrame) -> str:
    """The same for the rating of the last 25 rounds."""
    return regret_grid(frame, value="reward")


def size_grid(frame: pl.DataFrame) -> str:
    """Regret against offline users, at the smallest tau (the subspace is kept) and for the lines without one."""
    smallest = pl.col("tau").min().over("world")
    shown = frame.filter(pl.col("tau").is_null() | (pl.col("tau") == smallest))
    taus = shown.drop_nulls("tau").select("world", "tau").unique().iter_rows()
    titles = {world: f"{world}, tau = {tau:g}" for world, tau in taus}
    return _by_world(shown.with_columns(pl.col("world").replace(titles)), "policy", "users", "regret")


def error_grid(frame: pl.DataFrame) -> str:
    """Subspace error of each estimator against offline users."""
    return _by_world(frame, "estimator", "users", "error")


def greed_grid(frame: pl.DataFrame) -> str:
    """Subspace error against the share of the best reward that the logger got."""
    return _by_world(frame.with_columns(pl.col("greed").round(2)), "estimator", "greed", "error")


def spectrum_grid(frame: pl.DataFrame) -> str:
    """Eigenvalues 1, 2, 17 to 20 of every world and series, and the ranks that the test finds, beside the true ones."""
    shown = frame.filter(pl.col("position").is_in([1, 2, 17, 18, 19, 20]))
    shown = shown.with_columns(pl.col("world") + ", position", eigenvalue_se=pl.lit(0.0))
    ranks = frame.filter(position=1).select("world", "series", "rank", "rank_covariance")
    head = ["rank", "series", "of the second moment", "of the covariance"]
    table = markdown.table(head, [list(map(str, row)) for row in ranks.iter_rows()])
    return _by_world(shown, "series", "position", "eigenvalue") + "\n\n" + table


def area_grid(frame: pl.DataFrame) -> str:
    """Areas of the sets at each time."""
    areas = frame.group_by("time", "set", maintain_order=True).agg(area=_area(), area_se=pl.lit(0.0))
    return _against(areas.filter(pl.col("area") > 1e-9), "area", "set", "time", "area")


def _area() -> pl.Expr:
    """Gauss's formula for the area within an outline; sets whose outline crosses itself are undercounted."""
    x, y = pl.col("x").sort_by("order"), pl.col("y").sort_by("order")
    after = (x.shift(-1).fill_null(x.first()), y.shift(-1).fill_null(y.first()))
    return ((x * after[1] - after[0] * y).sum() / 2).abs()


def end_table(frame: pl.DataFrame) -> str:
    """Regret and rating of every line after the last round, best first."""
    last = frame.filter(pl.col("t") == pl.col("t").max()).sort("regret")
    rows = last.select("policy", "regret", "regret_se", "reward", "reward_se").iter_rows()
    return markdown.table(
        ["policy", "regret", "rating, last 25"], [[p, number(a, b), number(c, d)] for p, a, b, c, d in rows]
    )


def guess_table(frame: pl.DataFrame) -> str:
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
    return markdown.table(["guessed", "from", "base rate", "right", "area under ROC"], rows)


def panel_grid(frame: pl.DataFrame) -> str:
    """Regret at the right end of each panel."""
    last = frame.filter(pl.col("x") == pl.col("x").max().over("panel"))
    return _against(last, "policy", "policy", "panel", "regret")


def errors_and_radii(frame: pl.DataFrame) -> str:
    """SOLD's error, and the radii of the paper's figures beside the error they bound, also without the factor B^2."""
    found = frame.filter(pl.col("series") == "SOLD")
    head = [f"Delta_off at N = {RADII_AT:,}", "true error", *KINDS, "B", *[f"{letter} / B^2" for letter in KINDS]]
    body = []
    for row in found.filter(pl.col("users") == RADII_AT).iter_rows(named=True):
        factor, values = row["inverse_coverage"], [row[kind] for kind in KINDS.values()]
        cells = [row["error"], *values, factor, *[value / factor**2 for value in values]]
        body.append([row["world"], *map(markdown.short, cells)])
    return _by_world(found, "series", "users", "error") + "\n\n" + markdown.table(head, body)


def _by_world(frame: pl.DataFrame, down: str, across: str, value: str) -> str:
    """One table for each world, whose name is the title."""
    worlds = frame.group_by("world", maintain_order=True)
    return "\n\n".join(_against(own, str(world), down, across, value) for (world,), own in worlds)


def _against(
    frame: pl.DataFrame, title: str, down: str, across: str, value: str, columns: Sequence[object] | None = None
) -> str:
    """A table of `value` and its standard error: one column of the frame down, another across (or these `columns`)."""
    columns = columns or _order(frame, across)
    rows = []
    for (name,), own in frame.group_by(down, maintain_order=True):
        found = {at: number(mean, error) for at, mean, error in own.select(across, value, f"{value}_se").iter_rows()}
        rows.append([str(name), *[found.get(at, "") for at in columns]])
    return markdown.table([title, *[f"{at:,}" if isinstance(at, int) else str(at) for at in columns]], rows)


def _order(frame: pl.DataFrame, column: str) -> list[object]:
    return frame[column].unique(maintain_order=True).to_list()


def readings_table(frame: pl.DataFrame) -> str:
    """Every reading, form of the radius and tau down; radius, round of the exit and every claim across."""
    claims = _order(frame, "claim")
    rows = []
    for (reading, bound, tau), own in frame.group_by("reading", "bound", "tau", maintain_order=True):
        first = own.row(0, named=True)
        same = {"ProBALL-TS beats LinTS"} if first["left_at"] == 1 else set()  # LinTS from then on, with other draws
        found = {
            claim: "is the same" if holds == "is it" or claim in same else f"{holds}, {number(gap, error)}"
            for claim, holds, gap, error in own.select("claim", "holds", "difference", "difference_se").iter_rows()
        }
        spread = f" ({markdown.short(first['radius_least'])} to {markdown.short(first['radius_most'])})"
        head = [
            f"{reading}, {bound}, tau = {tau:g}",
            markdown.short(first["radius"]) + spread,
            f"{first['left_at']:.0f}",
        ]
        rows.append([*head, *[found[claim] for claim in claims]])
    return markdown.table(["reading", "radius (range)", "leaves in round", *map(str, claims)], rows)


SAY: Mapping[str, Callable[[pl.DataFrame], str]] = {
    "main": panel_grid,
    "eigenvalues": spectrum_grid,
    "eigenvalues-log": spectrum_grid,
    "subspace-error": errors_and_radii,
    "insufficiency": error_grid,
    "reward-seeking-logger": greed_grid,
    "regret-vs-n-ucb": size_grid,
    "regret-vs-n-ts": size_grid,
    "geometry": area_grid,
    "replay": end_table,
    "privacy": guess_table,
    "readings": readings_table,
}
