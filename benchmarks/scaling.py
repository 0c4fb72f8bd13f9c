"""How the cost of a fit grows: sums over users plus the solution, against the number of users and the dimension.

20 steps a user, features in memory (a block of users is read again under other ids, so that a million users need no 8
GB). The reference is again the matrix product with 2 N H d^2 operations. Exponents are slopes of a line through all
points but the first in logarithmic scales. At small d the small systems of each user weigh more than the products,
at small N the fixed work.
"""

from __future__ import annotations

import time
from functools import reduce as fold
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import PAGES, page
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.logs.batch import Batch
from newcomer.sold.correction import corrected_second_moment, correction_of, coverage_for_correction
from newcomer.sold.moments import merge_moments, moments_of
from newcomer.sold.radius_terms import radius_terms_of
from newcomer.subspace import top_eigenvectors
from newcomer.users import mix_user_hashes

STEPS, RANK, BLOCK = 20, 2, 10_000
SWEEP = {
    "users": [(n, 50) for n in (1000, 10_000, 100_000, 1_000_000)],
    "dimension": [(5000, d) for d in (20, 50, 100, 200, 400)],
}


def block(users: int, dim: int, part: int, features: np.ndarray, rewards: np.ndarray) -> Batch:
    """A batch of users with ids that no other part has."""
    ids = np.arange(part * BLOCK, part * BLOCK + users, dtype=np.uint64)
    return Batch(
        ids, mix_user_hashes(ids), np.arange(users + 1) * STEPS, features[: users * STEPS], rewards[: users * STEPS]
    )


def once(users: int, dim: int) -> tuple[float, float]:
    """Seconds of a fit and of the matrix product."""
    rng = np.random.default_rng(0)
    size = min(users, BLOCK)
    features = rng.standard_normal((size * STEPS, dim)) / np.sqrt(dim)
    rewards, other = rng.standard_normal(size * STEPS), features.copy()
    start = time.perf_counter()
    parts = (moments_of(block(size, dim, p, features, rewards), 1.0) for p in range(max(1, users // BLOCK)))
    moments = fold(merge_moments, parts)
    spectrum, _ = top_eigenvectors(corrected_second_moment(moments), RANK)
    radius_terms_of(moments, correction_of(moments, coverage_for_correction(moments)), spectrum, RANK)
    fit = time.perf_counter() - start
    start = time.perf_counter()
    features.T @ other
    return fit, (time.perf_counter() - start) * users / size


def measure(users: int, dim: int) -> dict[str, float]:
    """Median of three, fewer where one takes long."""
    runs = [once(users, dim) for _ in range(3 if users * dim <= 5_000_000 else 1)]
    fit, product = np.median(runs, axis=0)
    return {"users": users, "dimension": dim, "seconds": fit, "to product": fit / product}


def slope(rows: list[dict[str, float]], by: str) -> float:
    """Measured exponent of the seconds in all points but the first."""
    last = rows[len(rows) // 2 - 1 :]
    x, y = (np.log([row[name] for row in last]) for name in (by, "seconds"))
    return float(np.polyfit(x, y, 1)[0])


def picture(by: str, rows: list[dict[str, float]], exponent: float) -> Path:
    """Seconds against users or dimension, both logarithmic, with the product."""
    lines = pl.DataFrame(
        [{"line": "fit", by: r[by], "seconds": r["seconds"]} for r in rows]
        + [{"line": "matrix product", by: r[by], "seconds": r["seconds"] / r["to product"]} for r in rows]
    )
    title = f"Cost of a fit against {by}: exponent {exponent:.2f}"
    x, y = Axis(by, by, log=True), Axis("seconds", "seconds, one thread", log=True)
    return draw_lines(lines, PAGES / f"scaling-{by}.png", x=x, y=y, series="line", marked=True, title=title)


def main() -> None:
    """Measure, draw and write the page."""
    once(1000, 20)
    PAGES.mkdir(parents=True, exist_ok=True)
    tables, exponents = {}, {}
    for by, points in SWEEP.items():
        rows = [measure(*point) for point in points]
        exponents[by] = slope(rows, by)
        picture(by, rows, exponents[by])
        tables[f"Against {by}"] = pl.DataFrame(rows)
    found = ", ".join(f"{value:.2f} in the {by}" for by, value in exponents.items())
    pictures = "\n\n".join(f"![cost against {by}](scaling-{by}.png)" for by in SWEEP)
    page(
        "scaling",
        "Cost against users and dimension",
        f"{__doc__}\n\nMeasured exponents: {found}.\n\n{pictures}",
        tables,
    )
