"""Low-rank fits of a partly observed matrix: alternating ridge regressions, and a nuclear norm on one side.

With ratings r_ij on the observed set Omega, B (n, d) of users and F (m, d) of movies:

* `alternate` minimises sum_Omega (r_ij - b_i . f_j)^2 + ridge (|B|^2 + |F|^2) by solving for B and F in turn, the
  maximum a posteriori estimate of probabilistic matrix factorisation (Salakhutdinov and Mnih 2007).
* `shrink` keeps F and minimises 1/2 sum_Omega (r_ij - b_i . f_j)^2 + threshold |B|_* over B, a convex problem, by
  proximal gradient steps with singular-value soft-thresholding (Cai, Candes and Shen 2010), accelerated as FISTA (Beck
  and Teboulle 2009) with restarts (O'Donoghue and Candes 2015).
* `shrink_to_rank` finds a threshold at which the rank of B is what was asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from newcomer.arrays import Floats, Ints
from newcomer.errors import ModelError

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

    @cached_property
    def transposed(self) -> Observed:
        """The same entries of the transposed matrix."""
        return Observed(self.column, self.row, self.value, self.shape[::-1])

    @cached_property
    def rows(self) -> list[tuple[Ints, Floats]]:
        """For each row its observed columns and values."""
        order = np.argsort(self.row, kind="stable")
        cuts = np.searchsorted(self.row[order], np.arange(1, self.shape[0]))
        return list(zip(np.split(self.column[order], cuts), np.split(self.value[order], cuts), strict=True))

    def error(self, users: Floats, movies: Floats) -> float:
        """Root mean squared error of the predictions users . movies."""
        predicted = np.einsum("nd,nd->n", users[self.row], movies[self.column])
        return math.sqrt(np.mean((self.value - predicted) ** 2))


def ridge_rows(observed: Observed, features: Floats, ridge: float) -> Floats:
    """Ridge regression of each row of the matrix on `features` (m, d) of its observed columns: (n, d)."""
    dim = features.shape[1]
    weights = np.zeros((observed.shape[0], dim))
    for index, (columns, values) in enumerate(observed.rows):
        shown = features[columns]
        system = shown.T @ shown
        system.flat[:: dim + 1] += ridge
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        weights[index] = cho_solve(factor, shown.T @ values, check_finite=False)
    return weights


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
    for _ in range(sweeps):
        users = ridge_rows(observed, movies, ridge)
        movies = ridge_rows(observed.transposed, users, ridge)
    return users, movies


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
