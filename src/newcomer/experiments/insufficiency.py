"""Why not just PCA, or matrix factorisation? Subspace error against N of four estimators on the same logs.

* PCA of raw rewards: top eigenvectors of the mean of b b^T, b = sum phi r / H, the reward-weighted features;
* PCA of single estimates: of the mean of beta beta^T, beta = X^+ r, one minimum-norm estimate for each user;
* PMF: r ~ z_user . q_item by alternating ridge regressions, features unseen, then the span of Phi^+ Q;
* SOLD, with pseudo-inverses.

PCA's targets contain E[noise^2 (X^T X)^+] and the coverage of the logs: with isotropic features both are multiples of the identity
and do no harm, so the worlds here include real movie features, which are not isotropic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import DIGITS, Figure
from newcomer.experiments.jobs import Job, Scalar, Table
from newcomer.experiments.places import Setting, world
from newcomer.experiments.scale import BALANCED, LITERAL, Scale
from newcomer.fitting import fit
from newcomer.logs import Logs
from newcomer.subspace import distance, top_eigenvectors
from newcomer.worlds.matrix_completion import Observed, alternate
from newcomer.worlds.movielens import MovieLens
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import stream

Floats = NDArray[np.float64]
Catalogued = Synthetic | MovieLens

ISOTROPIC = "isotropic items (simulation)"
SWEEP = (BALANCED, LITERAL, ISOTROPIC)
ITEMS, STEPS = 300, 20
RIDGE, SWEEPS = 2.0, 15  # of the factorisation


def jobs(scale: Scale, bench: Bench) -> list[Job]:
    """Every world, size and data set; each job runs all four estimators."""
    return [
        Table("insufficiency", (("world", name), ("users", users), ("seed", seed)))
        for name in SWEEP
        for users in scale.sizes
        for seed in range(1, scale.repeats + 1)
    ]


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Frobenius errors of the estimators on one data set."""
    name, users, seed = str(arguments["world"]), int(arguments["users"] or 0), int(arguments["seed"] or 0)
    place, steps = _place(name, setting), STEPS if name == ISOTROPIC else setting.sizes.film_steps
    logs = place.logs(users, steps, seed)
    rows = [
        (name, users, seed, label, distance(estimate(logs, place, seed), place.basis, norm="frobenius"))
        for label, estimate in ESTIMATORS.items()
    ]
    return pl.DataFrame(rows, schema=["world", "users", "seed", "estimator", "error"], orient="row")


def _place(name: str, setting: Setting) -> Catalogued:
    place = Synthetic(items=ITEMS) if name == ISOTROPIC else world(name, setting)
    assert isinstance(place, Synthetic | MovieLens)
    return place


def raw_rewards(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """PCA of reward-weighted features."""
    return _leading(logs, place.rank, lambda features, rewards: features.T @ rewards / len(rewards))


def single_estimates(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """PCA of one minimum-norm estimate for each user."""
    return _leading(
        logs,
        place.rank,
        lambda features, rewards: np.linalg.lstsq(features, rewards, rcond=1e-10)[0].astype(np.float64),
    )


def factorised(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """Matrix factorisation of user x item rewards, then the features' directions that explain the items' factors."""
    users, items, rewards = _triples(logs)
    shape = (int(users.max()) + 1, len(_catalogue(place)))
    observed = Observed(users, items, rewards, shape)
    _, factors = alternate(observed, place.rank, ridge=RIDGE, sweeps=SWEEPS, rng=stream(seed, "pmf"))
    seen = np.unique(items)
    loading = np.linalg.lstsq(_catalogue(place)[seen], factors[seen], rcond=1e-10)[0]
    return np.asarray(np.linalg.qr(loading)[0])


def sold(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """SOLD with pseudo-inverses and the true rank."""
    return fit(logs, rank=place.rank, estimator="sold-pinv", null=False).basis


ESTIMATORS: Mapping[str, Callable[[Logs, Catalogued, int], Floats]] = {
    "PCA of raw rewards": raw_rewards,
    "PCA of single estimates": single_estimates,
    "PMF": factorised,
    "SOLD": sold,
}


def _leading(logs: Logs, rank: int, vector: Callable[[Floats, Floats], Floats]) -> Floats:
    """Leading eigenvectors of the mean outer product of one vector for each user."""
    total = np.zeros((logs.dim, logs.dim))
    for batch in logs.batches():
        cuts = batch.offsets[1:-1]
        pairs = zip(np.split(batch.features, cuts), np.split(batch.rewards, cuts), strict=True)
        vectors = np.stack([vector(features, rewards) for features, rewards in pairs])
        total += vectors.T @ vectors
    return top_eigenvectors(total, rank)[1]


def _catalogue(place: Catalogued) -> Floats:
    assert place.catalogue is not None
    return place.catalogue


def _triples(logs: Logs) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Users by number, items by row of the catalogue, and rewards."""
    users, items, rewards, first = [], [], [], 0
    for batch in logs.batches():
        assert batch.actions is not None
        users.append(np.repeat(np.arange(first, first + len(batch.lengths)), batch.lengths))
        items.append(batch.actions)
        rewards.append(batch.rewards)
        first += len(batch.lengths)
    return np.concatenate(users), np.concatenate(items), np.concatenate(rewards)


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Mean error over data sets and its standard error."""
    rows = pl.concat([bench.rows(job) for job in jobs(scale, bench) if isinstance(job, Table)])
    mean = rows.group_by("world", "estimator", "users", maintain_order=True).agg(
        pl.col("error").mean(), error_se=pl.col("error").std() / pl.len().sqrt()
    )
    return mean.with_columns(pl.col("error", "error_se").round_sig_figs(DIGITS))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Error against N, a panel for each world."""
    x, y = Axis("users", "offline users N", log=True), Axis("error", "subspace error (Frobenius)")
    return draw_lines(
        frame, path, x=x, y=y, series="estimator", error="error_se", facet="world", columns=3, marked=True
    )


def _caption(scale: Scale) -> str:
    return (
        f"Mean over {scale.repeats} data sets, bands of one standard error, all with the true rank. MovieLens: d = "
        f"{scale.dim}, k = {scale.rank}, "
        f"{scale.film_steps} steps; simulation: d = 50, k = 2, {STEPS} steps, a catalogue of {ITEMS} isotropic "
        "items, entries of U up to 2.5/k. PMF: alternating ridge "
        f"regressions (ridge {RIDGE:g}, {SWEEPS} sweeps) of the user x item matrix, mapped to feature space by least "
        "squares on the items seen."
    )


FIGURES = (
    Figure(
        name="insufficiency",
        claim="PCA on raw rewards or on single estimates leads to erroneous subspaces; PMF has no bounds and no rank.",
        caption=_caption,
        fits=lambda scale: [],
        jobs=jobs,
        table=table,
        draw=draw,
    ),
)
