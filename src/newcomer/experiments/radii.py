"""How loose the radii are: true subspace error beside every Delta_off, against the number of offline users.

`python -m newcomer.experiments.radii` writes experiments/results/radii.csv and prints the table of docs/radius.md. Worlds:
the learnable scale, d = 50, k = 2, 20 steps a user, SOLD with ridge 1 and the true rank.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.fitting import fit
from newcomer.radius import KINDS
from newcomer.subspace import distance
from newcomer.worlds import Synthetic

SWEEP = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)  # offline users
WORLDS, STEPS, DELTA = 50, 20, 0.05


def run(users: int, seed: int) -> dict[str, float]:
    """One world: the true Frobenius error and every radius, unclipped and in the same norm."""
    world = Synthetic.learnable(seed=seed)
    logs = world.logs(users, STEPS, seed=seed)
    model = fit(logs, rank=world.rank, estimator="sold", ridge=1.0, null=False)
    row = {"users": users, "seed": seed, "error": distance(model.basis, world.basis, norm="frobenius")}
    for kind in KINDS:
        for form in ("theorem", "identity"):
            for simplified in (True, False):
                name = f"{kind} {form}{' simplified' if simplified else ''}"
                row[name] = model.radius(
                    kind, delta=DELTA, norm="frobenius", clip=False, simplified=simplified, form=form
                )
    return row


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Median over worlds of the error and of each radius (rows) against users (columns), and the smallest coverage."""
    radii = [name for name in rows.columns if name not in ("users", "seed", "error")]
    long = rows.unpivot(["error", *radii], index=["users", "seed"], variable_name="radius", value_name="value")
    wide = long.pivot("users", index="radius", values="value", aggregate_function="median")
    covered = [1.0] + [float((rows["error"] <= rows[name]).mean()) for name in radii]  # type: ignore[arg-type]
    return wide.with_columns(covered=pl.Series(covered))


def main(folder: Path = Path("experiments/results")) -> None:
    """Run the sweep."""
    rows = pl.DataFrame([run(users, seed) for users in SWEEP for seed in range(WORLDS)])
    folder.mkdir(parents=True, exist_ok=True)
    rows.write_csv(folder / "radii.csv")
    found = table(rows)
    for row in (found.columns, ["---"] * found.width, *found.rows()):
        print("|", " | ".join(_cell(value) for value in row), "|")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    main()
