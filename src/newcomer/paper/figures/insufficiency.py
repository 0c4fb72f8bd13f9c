"""insufficiency: why not just PCA, or matrix factorisation? Five estimators on the same logs, against N.

* PCA of raw rewards: top eigenvectors of the mean of b b^T, b = sum phi r / H, the reward-weighted features;
* PCA of single estimates: of the mean of beta beta^T, beta = X^+ r, one minimum-norm estimate for each user;
* PMF: r ~ z_user . q_item by alternating ridge regressions, features unseen, then the span of Phi^+ Q;
* M_N without correction: SOLD's moment of two half estimates, not corrected by coverage;
* SOLD, with pseudo-inverses.

PCA's targets contain E[noise^2 (X^T X)^+] and the coverage of the logs: with isotropic features both are multiples of
the identity and do no harm, so the worlds here include real movie features, which are not isotropic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from newcomer._fit import fit
from newcomer.arrays import Floats, Ints, symmetric_part
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.paper.figure import Point, data_sets, swept
from newcomer.paper.named_worlds import films
from newcomer.paper.panels import SIZE
from newcomer.paper.scale import BALANCED, LITERAL, Scale, Setting
from newcomer.paper.worlds.factorise import Observed, alternate
from newcomer.paper.worlds.movielens import MovieLens
from newcomer.simulate import simulated_mean_and_error
from newcomer.sold.moments import merge_moments, moments_of
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import world_stream

Catalogued = Synthetic | MovieLens

ISOTROPIC = "isotropic items (simulation)"
WORLDS = (BALANCED, LITERAL, ISOTROPIC)
ITEMS, STEPS = 300, 20
RIDGE, SWEEPS = 2.0, 15  # of the factorisation


def sweep(scale: Scale) -> list[Point]:
    """Every world, number of users and data set."""
    return data_sets(WORLDS, scale.sizes, scale.repeats)


def run(setting: Setting, *, world: str, users: int, seed: int) -> pl.DataFrame:
    """Frobenius errors of all estimators on one data set.

    The simulated world here has a catalogue of items, since a matrix factorisation needs items that come again.
    """
    isotropic = world == ISOTROPIC
    place = Synthetic(items=ITEMS) if isotropic else films(world, setting)
    logs = place.logs(users, STEPS if isotropic else setting.sizes.film_steps, seed)
    bases = {label: estimate(logs, place, seed) for label, estimate in ESTIMATORS.items()}
    errors = [subspace_distance(basis, place.basis, norm="frobenius") for basis in bases.values()]
    return pl.DataFrame({"world": world, "users": users, "seed": seed, "estimator": list(bases), "error": errors})


def raw_rewards(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """PCA of the reward-weighted features b = X^T r / H of each user."""
    return _leading(logs, place.rank, lambda features, rewards: features.T @ rewards / len(rewards))


def single_estimates(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """PCA of one minimum-norm least-squares estimate X^+ r for each user."""
    return _leading(
        logs,
        place.rank,
        lambda features, rewards: np.linalg.lstsq(features, rewards, rcond=1e-10)[0].astype(np.float64),
    )


def factorised(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """PMF: factors of the user x item matrix of rewards, mapped to the space of features.

    Factorisation knows nothing of features: it finds item factors Q (m, k) up to a turn. If rewards are phi^T U
    theta, then Q = Phi U R for some invertible R, so the span of U is that of the least-squares solution Phi^+ Q over
    the items seen.
    """
    assert place.catalogue is not None
    users, items, rewards = _triples(logs)
    observed = Observed(users, items, rewards, (int(users.max()) + 1, len(place.catalogue)))
    _, factors = alternate(observed, place.rank, ridge=RIDGE, sweeps=SWEEPS, rng=world_stream(seed, "pmf"))
    seen = np.unique(items)
    loading = np.linalg.lstsq(place.catalogue[seen], factors[seen], rcond=1e-10)[0]
    return np.asarray(np.linalg.qr(loading)[0])


def uncorrected(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """The leading eigenvectors of M_N itself: free of PCA's noise, and not of what the logs do not cover."""
    moments = reduce(logs, partial(moments_of, ridge=None), merge_moments)
    return top_eigenvectors(symmetric_part(moments.product), place.rank)[1]


def sold(logs: Logs, place: Catalogued, seed: int) -> Floats:
    """SOLD with pseudo-inverses and the true rank."""
    return fit(logs, rank=place.rank, estimator="sold-pinv", null=False).basis


ESTIMATORS: Mapping[str, Callable[[Logs, Catalogued, int], Floats]] = {
    "PCA of raw rewards": raw_rewards,
    "PCA of single estimates": single_estimates,
    "PMF": factorised,
    "M_N without correction": uncorrected,
    "SOLD": sold,
}


def _leading(logs: Logs, rank: int, vector: Callable[[Floats, Floats], Floats]) -> Floats:
    """The `rank` leading eigenvectors of the mean outer product of one `vector(features, rewards)` for each user."""
    total = np.zeros((logs.dim, logs.dim))
    for batch in logs.batches():
        cuts = batch.offsets[1:-1]
        pairs = zip(np.split(batch.features, cuts), np.split(batch.rewards, cuts), strict=True)
        vectors = np.stack([vector(features, rewards) for features, rewards in pairs])
        total += vectors.T @ vectors
    return top_eigenvectors(total, rank)[1]


def _triples(logs: Logs) -> tuple[Ints, Ints, Floats]:
    """The rows of the logs as a matrix is observed: users by number, items by row of the catalogue, and rewards."""
    users, items, rewards, first = [], [], [], 0
    for batch in logs.batches():
        assert batch.actions is not None
        users.append(np.repeat(np.arange(first, first + len(batch.lengths)), batch.lengths))
        items.append(batch.actions)
        rewards.append(batch.rewards)
        first += len(batch.lengths)
    return np.concatenate(users), np.concatenate(items), np.concatenate(rewards)


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean error over data sets and its standard error."""
    return rows.group_by("world", "estimator", "users", maintain_order=True).agg(**simulated_mean_and_error("error"))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Error against N, a panel for each world."""
    y = Axis("error", "subspace error (Frobenius)")
    return draw_lines(
        frame, path, x=SIZE, y=y, series="estimator", error="error_se", facet="world", columns=3, marked=True
    )


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"Mean over {scale.repeats} data sets, bands of one standard error, all with the true rank. MovieLens: d = "
        f"{scale.dim}, k = {scale.rank}, {scale.film_steps} steps; simulation: d = 50, k = 2, {STEPS} steps, a "
        f"catalogue of {ITEMS} isotropic items, entries of U up to 2.5/k. PMF: alternating ridge regressions (ridge "
        f"{RIDGE:g}, {SWEEPS} sweeps) of the user x item matrix, mapped to feature space by least squares on the items "
        "seen."
    )


FIGURES = (
    swept(
        "insufficiency",
        claim="PCA on raw rewards or on single estimates leads to erroneous subspaces, and so do the eigenvectors of "
        "M_N without correction; PMF has no bounds and no rank.",
        caption=caption,
        sweep=sweep,
        run=run,
        table=table,
        draw=draw,
    ),
)
