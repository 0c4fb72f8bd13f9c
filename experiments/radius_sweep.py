"""How loose the radii are: true subspace error beside every Delta_off, against the number of offline users.

`python -m experiments.radius_sweep` runs the sweep and writes its rows to experiments/results/radii.csv (350 fits);
the table in docs/explanation/radius.md is made of them. Worlds are those of the learnable scale, d = 50, k = 2, 20
steps a user; SOLD has ridge 1 and the true rank.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import fit
from newcomer.radius import KINDS
from newcomer.subspace import subspace_distance
from newcomer.worlds.synthetic import Synthetic

USERS = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
WORLDS, STEPS, DELTA = 50, 20, 0.05
START = "| radius |"  # of the table on the page


def run(users: int, seed: int) -> dict[str, float]:
    """One world: the true Frobenius error and every radius, unclipped and in the same norm."""
    world = Synthetic.learnable(seed=seed)
    logs = world.logs(users, STEPS, seed=seed)
    model = fit(logs, rank=world.rank, estimator="sold", ridge=1.0, null=False)
    row = {"users": users, "seed": seed, "error": subspace_distance(model.basis, world.basis, norm="frobenius")}
    for kind in KINDS:
        for form in ("theorem", "identity"):
            for simplified in (True, False):
                name = f"{kind} {form}{' simplified' if simplified else ''}"
                row[name] = model.radius(
                    kind, delta=DELTA, norm="frobenius", clip=False, simplified=simplified, form=form
                )
    return row


def medians(rows: pl.DataFrame) -> pl.DataFrame:
    """Medians over worlds of the error and of each radius (rows) against users (columns).

    The last column is the share of all worlds that a radius covered.
    """
    radii = [name for name in rows.columns if name not in ("users", "seed", "error")]
    long = rows.unpivot(["error", *radii], index=["users", "seed"], variable_name="radius", value_name="value")
    wide = long.pivot("users", index="radius", values="value", aggregate_function="median")
    covered = [1.0] + [float((rows["error"] <= rows[name]).mean()) for name in radii]  # type: ignore[arg-type]
    return wide.with_columns(covered=pl.Series(covered))


def with_table(page: str, results: Path) -> str:
    """The page with its table of radii made anew from radii.csv; the page as it is if there is no such file."""
    if not (results / "radii.csv").is_file():
        return page
    found = medians(pl.read_csv(results / "radii.csv", infer_schema_length=None))
    text = markdown.table(found.columns, [[name, *map(markdown.short, values)] for name, *values in found.rows()])
    return markdown.replaced(page, START, text)


if __name__ == "__main__":
    command = Command.read()
    sizes, worlds = (USERS[:2], 1) if command.quick else (USERS, WORLDS)
    command.write(pl.DataFrame([run(users, seed) for users in sizes for seed in range(worlds)]), "radii.csv")
