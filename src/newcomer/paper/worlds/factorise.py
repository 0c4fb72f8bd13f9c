"""Ratings as rewards beta_i . phi_j: the factorisation that the MovieLens experiments take for the truth, twice.

Both have users (n, d) of rank k and movie features (m, d) of norm at most 1, d = 200 and k = 18 as in the paper.

**literal**: what the paper describes. Alternating ridge regressions in d dimensions give the features; users are then
shrunk by a nuclear norm until their rank is exactly k. Soft-thresholding leaves trailing directions next to nothing:
the eigenvalues of E[beta beta^T] fall by five orders of magnitude, and from 5000 histories of 50 noisy ratings SOLD
finds the first direction and shows no step after the k-th.

**balanced**: the same rewards can be written in many coordinates, since beta -> A beta, phi -> A^-T phi changes no
prediction. So: a rank-k factorisation with little ridge and no soft-thresholding; coordinates in which E[theta
theta^T] is a multiple of the identity, so that the k eigenvalues are *equal* and what differs between directions
(nearly everybody likes the same movies; fine tastes move ratings little) is carried by the features; then d - k
further features on which beta is zero, taken from what a d-dimensional factorisation says of the movies beyond the
first k coordinates, uncorrelated, and of `SPARE` times the median size of the first k; last, a random rotation. The
step after k is real, and large enough to see. That is by design and not a finding: the ridge (2, of 1, 2, 5, 8, 12
tried) and `SPARE` (3, of 1, 2, 3, 5) were chosen by looking at SOLD's spectrum. With ridge 5 and spare features of the
size of the others, 5000 histories of 50 show no step.

A tenth of the ratings is held out of either fit, and `rmse` is the error of the very factorisation on them. On
MovieLens-1M with seed 0: 0.826 (literal, threshold 241, eigenvalues 127, 3.8, 1.6, ... 0.002) and 0.848 (balanced, 18
times 93.5).

Low-rank fits of a partly observed matrix: alternating ridge regressions, and a nuclear norm on one side.

With ratings r_ij on the observed set Omega, B (n, d) of users and F (m, d) of movies:

* `alternate` minimises sum_Omega (r_ij - b_i . f_j)^2 + ridge (|B|^2 + |F|^2) by solving for B and F in turn
  (`newcomer.linear.als`).
* `shrink` keeps F and minimises 1/2 sum_Omega (r_ij - b_i . f_j)^2 + threshold |B|_* over B, a convex problem, by
  proximal gradient steps with singular-value soft-thresholding (Cai, Candes and Shen 2010), accelerated as FISTA (Beck
  and Teboulle 2009) with restarts (O'Donoghue and Candes 2015).
* `shrink_to_rank` finds a threshold at which the rank of B is what was asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import sparse

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError
from newcomer.files import pack_file, unpack_file, write_file
from newcomer.linear.als import fit_als
from newcomer.paper.worlds.download import cache_folder
from newcomer.paper.worlds.ratings import Ratings
from newcomer.worlds.world import world_stream

Kind = Literal["literal", "balanced"]

RIDGE = {"literal": 12.0, "balanced": 2.0}
SWEEPS = {"literal": 8, "balanced": 15}
SPARE = 3.0  # size of the features that matter to nobody, relative to the median of those that do
FORMAT = 1


@dataclass(frozen=True)
class Recipe:
    """Everything that, besides the ratings, decides a factorisation."""

    kind: Kind = "literal"
    dim: int = 200
    rank: int = 18
    ridge: float = RIDGE["literal"]
    holdout: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Factors:
    """Reward vectors `users` (n, d) of rank `recipe.rank` and features `movies` (m, d) of norm at most 1.

    `rmse` is the error on the held-out ratings, `threshold` the nuclear-norm weight (0 if there is none).
    """

    users: Floats
    movies: Floats
    recipe: Recipe
    rmse: float
    threshold: float = 0.0

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return int(self.movies.shape[1])

    @property
    def rank(self) -> int:
        """Rank k of the users."""
        return self.recipe.rank

    @cached_property
    def spectrum(self) -> Floats:
        """Eigenvalues (d,) of the users' second moment, largest first; zero after the first k."""
        values = np.linalg.svd(self.users, compute_uv=False) ** 2 / len(self.users)
        return np.concatenate([values, np.zeros(self.dim - len(values))])


def factorise(
    ratings: Ratings,
    *,
    kind: Kind = "literal",
    dim: int = 200,
    rank: int = 18,
    ridge: float | None = None,
    holdout: float = 0.1,
    seed: int = 0,
    cache: str | Path | None = None,
) -> Factors:
    """Factorise ratings, or read the same factorisation from the cache (see `cache_folder`).

    Parameters
    ----------
    kind : "literal", the paper's, or "balanced", with k equal eigenvalues; see the module.
    ridge : of the alternating regressions; None takes 12 (literal) or 2 (balanced).
    holdout : share of ratings kept out of the fit, to measure its error on.
    """
    recipe = Recipe(kind, dim, rank, RIDGE.get(kind, 0.0) if ridge is None else ridge, holdout, seed)
    _check(recipe, ratings)
    place = cache_folder(cache) / f"factors-{_key(recipe, ratings)}.safetensors"
    factors = _read(place, recipe)
    if factors is None:
        factors = _fit(recipe, ratings)
        _write(place, factors)
    return factors


def _check(recipe: Recipe, ratings: Ratings) -> None:
    good = {
        f"kind={recipe.kind!r}": recipe.kind in RIDGE,
        f"rank={recipe.rank}, dim={recipe.dim}": 1 <= recipe.rank < recipe.dim <= min(ratings.shape),
        f"ridge={recipe.ridge}": recipe.ridge > 0,
        f"holdout={recipe.holdout}": 0 < recipe.holdout < 1,
    }
    for where, holds in good.items():
        if not holds:
            todo = "use kind literal or balanced, 1 <= rank < dim <= users and movies, ridge > 0, 0 < holdout < 1"
            raise ModelError("these ratings cannot be factorised so", where=where, todo=todo)


def _fit(recipe: Recipe, ratings: Ratings) -> Factors:
    """Fit to the training ratings, scale so that the longest movie has norm 1, and measure on the held-out ones."""
    train, test = _split(recipe, ratings)
    threshold = 0.0
    if recipe.kind == "literal":
        users, movies, threshold = _literal(train, recipe)
    else:
        users, movies = _balanced(train, recipe)
    scale = float(np.linalg.norm(movies, axis=1).max())
    return Factors(users * scale, movies / scale, recipe, test.error(users, movies), threshold)


def _split(recipe: Recipe, ratings: Ratings) -> tuple[Observed, Observed]:
    """Ratings to fit, and ratings to measure the error on."""
    test = world_stream(recipe.seed, "held-out ratings").random(len(ratings.rating)) < recipe.holdout
    parts = [Observed(ratings.user[p], ratings.movie[p], ratings.rating[p], ratings.shape) for p in (~test, test)]
    return parts[0], parts[1]


def _literal(train: Observed, recipe: Recipe) -> tuple[Floats, Floats, float]:
    """The paper's: features by alternating regressions in d dimensions, users shrunk until their rank is k."""
    start, movies = _wide(train, recipe, recipe.ridge)
    users, threshold = shrink_to_rank(train, movies, recipe.rank, start)
    return users, movies, threshold


def _wide(train: Observed, recipe: Recipe, ridge: float) -> tuple[Floats, Floats]:
    """A factorisation in all d dimensions."""
    rng = world_stream(recipe.seed, "wide factors")
    return alternate(train, recipe.dim, ridge=ridge, sweeps=SWEEPS["literal"], rng=rng)


def _balanced(train: Observed, recipe: Recipe) -> tuple[Floats, Floats]:
    """Ours: k coordinates in which users have equal eigenvalues, then d - k spare features, all of it rotated."""
    rng = world_stream(recipe.seed, "narrow factors")
    narrow = alternate(train, recipe.rank, ridge=recipe.ridge, sweeps=SWEEPS["balanced"], rng=rng)
    latents, shown = whiten_users(*narrow)
    size = float(np.median(np.sqrt(np.mean(shown**2, axis=0))))
    spare = SPARE * size * _beyond(shown, _wide(train, recipe, RIDGE["literal"])[1])
    turn = np.linalg.qr(world_stream(recipe.seed, "rotation").standard_normal((recipe.dim, recipe.dim)))[0]
    return latents @ turn[: recipe.rank], np.hstack([shown, spare]) @ turn


def whiten_users(users: Floats, movies: Floats) -> tuple[Floats, Floats]:
    """The same products users @ movies.T with mean outer product of the users = identity.

    Columns follow the singular vectors of the product, so those of the movies are orthogonal, largest first.
    """
    left, from_users = np.linalg.qr(users)
    right, from_movies = np.linalg.qr(movies)
    turn_users, values, turn_movies = np.linalg.svd(from_users @ from_movies.T)
    root = np.sqrt(len(users))
    return left @ turn_users * root, right @ turn_movies.T * (values / root)


def _beyond(shown: Floats, wide: Floats) -> Floats:
    """The d - k strongest directions of `wide` (m, d) uncorrelated with `shown` (m, k), each of mean square 1."""
    basis = np.linalg.qr(shown)[0]
    left = np.linalg.svd(wide - basis @ (basis.T @ wide), full_matrices=False)[0]
    return np.asarray(left[:, : wide.shape[1] - shown.shape[1]] * np.sqrt(len(wide)))


def _key(recipe: Recipe, ratings: Ratings) -> str:
    """Content hash of data, parameters and the constants of this version of the method."""
    method = [FORMAT, SWEEPS, SPARE, RIDGE]
    text = json.dumps([ratings.fingerprint, asdict(recipe), method], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _write(place: Path, factors: Factors) -> None:
    facts = {"rmse": factors.rmse, "threshold": factors.threshold, "recipe": asdict(factors.recipe)}
    write_file(place, pack_file("factors", {"users": factors.users, "movies": factors.movies}, facts))


def _read(place: Path, recipe: Recipe) -> Factors | None:
    """The cached factorisation, or None if there is none that can be trusted: it is then made anew."""
    if not place.is_file():
        return None
    try:
        arrays, facts = unpack_file(place.read_bytes(), "factors", where=str(place))
    except ModelError:
        return None
    return Factors(arrays["users"], arrays["movies"], recipe, facts["rmse"], facts["threshold"])


TOLERANCE = 1e-5  # relative change of B in a proximal step at which it counts as converged
STEPS = 300
PROBE = 40  # steps that tell a rank far from the wanted one; near it, to within NEAR, only convergence counts
NEAR = 5
BISECTIONS = 40


@dataclass(frozen=True)
class Observed:
    """Entries `value` (rows,) of an (n, m) matrix at `row`, `column`."""

    row: Ints
    column: Ints
    value: Floats
    shape: tuple[int, int]

    @cached_property
    def dense(self) -> tuple[Floats, Floats]:
        """Values, zero where unobserved, and the indicator of what is observed; both (n, m)."""
        values, seen = np.zeros(self.shape), np.zeros(self.shape)
        values[self.row, self.column] = self.value
        seen[self.row, self.column] = 1.0
        return values, seen

    @property
    def table(self) -> sparse.csr_array:
        """The matrix, sparse: what is not stored was not observed, and what was observed twice is stored twice."""
        order = np.argsort(self.row, kind="stable")
        starts = np.searchsorted(self.row[order], np.arange(self.shape[0] + 1))
        return sparse.csr_array((self.value[order], self.column[order], starts), shape=self.shape)

    def error(self, users: Floats, movies: Floats) -> float:
        """Root mean squared error of the predictions users . movies."""
        predicted = np.einsum("nd,nd->n", users[self.row], movies[self.column])
        return math.sqrt(np.mean((self.value - predicted) ** 2))


def alternate(
    observed: Observed, dim: int, *, ridge: float, sweeps: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Alternating least squares: users (n, dim) and movies (m, dim) after `sweeps` rounds of both.

    >>> entries = Observed(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([2.0, 4.0, 1.0]), (2, 2))
    >>> users, movies = alternate(entries, 1, ridge=1e-6, sweeps=20, rng=np.random.default_rng(0))
    >>> (users @ movies.T).round(3).tolist()
    [[2.0, 4.0], [1.0, 2.0]]
    """
    movies = rng.standard_normal((observed.shape[1], dim)) / math.sqrt(dim)
    movies[:, 0] = 1.0  # the level of the ratings, or the first sweep is spent on finding it
    return fit_als(observed.table, movies, ridge=ridge, sweeps=sweeps)


def soft_threshold(matrix: Floats, amount: float) -> tuple[Floats, int]:
    """Singular values lowered by `amount`, those below it dropped; with the rank that is left.

    From the Gram matrix, so meant for `amount` well above 1e-8 times the largest singular value.

    >>> lowered, rank = soft_threshold(np.diag([3.0, 1.0]), 2.0)
    >>> lowered.diagonal().round(9).tolist(), rank
    ([1.0, 0.0], 1)
    """
    squares, right = np.linalg.eigh(matrix.T @ matrix)
    values = np.sqrt(np.maximum(squares, 0.0))
    kept = values > amount
    right, values = right[:, kept], values[kept]
    return (matrix @ (right * ((values - amount) / values))) @ right.T, int(kept.sum())


def shrink(
    observed: Observed, movies: Floats, threshold: float, start: Floats, *, steps: int = STEPS
) -> tuple[Floats, int]:
    """Users (n, d) that minimise half the squared error plus `threshold` times their nuclear norm, and their rank.

    A step goes down the gradient at a point `ahead` of the current one and is soft-thresholded; `pace` is FISTA's t,
    which says how far ahead to look, and begins anew when the last step turned back.
    """
    values, seen = observed.dense
    curvature = float(np.linalg.norm(movies, 2)) ** 2  # bounds that of every user, who has rated some movies only
    current, ahead, pace, rank = start, start, 1.0, 0
    for _ in range(steps):
        gradient = (seen * (ahead @ movies.T) - values) @ movies
        following, rank = soft_threshold(ahead - gradient / curvature, threshold / curvature)
        change = following - current
        restart = float(np.vdot(ahead - following, change)) > 0.0
        faster = 1.0 if restart else (1.0 + math.sqrt(1.0 + 4.0 * pace * pace)) / 2.0
        current, ahead, pace = following, following + (pace - 1.0) / faster * change, faster
        if np.linalg.norm(change) <= TOLERANCE * np.linalg.norm(current):
            break
    return current, rank


def shrink_to_rank(observed: Observed, movies: Floats, rank: int, start: Floats) -> tuple[Floats, float]:
    """Users of rank exactly `rank`, and the threshold, found by bisection of its logarithm.

    At the largest threshold, the spectral norm of the gradient at zero, nothing is left; at a ten-thousandth of it
    practically everything is.
    """
    values, _ = observed.dense
    high = float(np.linalg.norm(values @ movies, 2))
    low = high * 1e-4
    users = start
    for _ in range(BISECTIONS):
        threshold = math.sqrt(low * high)
        users, found = shrink(observed, movies, threshold, users, steps=PROBE)
        if abs(found - rank) <= NEAR:
            users, found = shrink(observed, movies, threshold, users)
        if found == rank:
            return users, threshold
        low, high = (low, threshold) if found < rank else (threshold, high)
    raise ModelError(
        f"no threshold leaves users of rank {rank}", where=f"thresholds near {low:.4g}", todo="ask for another rank"
    )
