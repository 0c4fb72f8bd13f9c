"""The calibrated radius: how much do independent halves of the users disagree?

Fit the prior (or SOLD) to two disjoint parts of the users and compare the subspaces. With errors that are independent and, in d >> k dimensions, nearly
orthogonal, the cosine of each angle between the two is the product of the cosines of their angles with the truth,

    c = cos^2(part),   tan^2(part) = 1 / c - 1,   tan^2(all) = tan^2(part) / G      (G parts: squared errors fall like 1 / users),

so every pair of parts gives a draw of the error of the whole, with nothing assumed about its size: halves that fit only noise are at right angles.
A few draws give the scale and, with Student's law on their logarithms, the quantile for any level. Eighths are tried first (every user is read
once per step, whatever the number of parts), unless the moments of halves are already far apart; where they disagree too much for errors to fall like 1 / users, several splits in
halves follow. If halves agree no better than subspaces would whose last direction is drawn at random, nothing is known of it and the radius is the
largest distance there is.

Every part starts from its own moments: started from the common fit, parts would inherit its errors and agree by descent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, hadamard
from scipy.stats import beta, t

from newcomer.population.all_pairs import start_from
from newcomer.population.climb import Climber, Gram
from newcomer.population.likelihood import Prior
from newcomer.population.search import Estimate, Passes, Split, noise_floor
from newcomer.sold.moments import Moments
from newcomer.subspace import Correction, Norm, top_eigenvectors

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PARTS = 8
SMALL = 0.3  # tangent of the error of an eighth up to which errors fall like 1 / users
LARGE = 1.0  # tangent of the error of half of the moments beyond which no eighth will be that good
SPLITS = 4
TOLERANCE, EACH = 0.05, 3e-4  # gain in log-likelihood, in all or per parameter, at which the fit of a part ends
CHANCE = 0.01  # level at which agreement must differ from that of random directions


@dataclass(frozen=True)
class Draws:
    """Tangents of the error of the whole: largest, and Frobenius norm, one of each a pair of parts; or nothing is known."""

    parts: int
    spectral: tuple[float, ...]
    frobenius: tuple[float, ...]
    hopeless: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the model file."""
        return {
            "parts": self.parts,
            "spectral": list(self.spectral),
            "frobenius": list(self.frobenius),
            "hopeless": self.hopeless,
        }


def error_draws(passes: Passes, estimate: Estimate, rank: int) -> Draws:
    """Draws of the error of an EM basis of this rank from disagreeing parts of the logs."""
    side = np.arange(len(estimate.pairs.users)) % 2 == 0
    eighths = _moments_agree(estimate, side, rank)
    return _compare(lambda parts: _fit(passes, estimate, parts, rank), len(side), eighths=eighths)


def sold_draws(moments: Moments, correction: Correction, rank: int) -> Draws:
    """The same for SOLD's basis, from the moments it was made of: no further pass.

    Parts are corrected with everybody's coverage, so what coverage varies between them counts as error too: the radius errs on the large side.
    """

    def fit(parts: list[Bools]) -> list[Floats]:
        sums = [moments.pairs.products[part].sum(axis=0) / max(moments.pairs.counts[part].sum(), 1) for part in parts]
        span = correction.span
        return [_leading(span @ correction.pooled(mean) @ span.T, rank) for mean in sums]

    side = np.arange(len(moments.pairs.counts)) % 2 == 0
    eighths = _tangent(_cosines(*fit([side, ~side])), 1)[0] <= SMALL  # or eighths are worse still
    return _compare(fit, len(side), eighths=eighths)


def _leading(matrix: Floats, rank: int) -> Floats:
    """The leading eigenvectors (d, rank), without the others."""
    dim = len(matrix)
    vectors: Floats = eigh(matrix, subset_by_index=[dim - rank, dim - 1])[1]
    return vectors


def _compare(fit: Callable[[list[Bools]], list[Floats]], buckets: int, *, eighths: bool) -> Draws:
    """Draws from bases (d, k) that `fit` finds in parts of the buckets: eighths if they are to be tried and small enough, or halves."""
    where = np.arange(buckets)
    if eighths:
        bases = fit([where % PARTS == part for part in range(PARTS)])
        cosines = [_cosines(a, b) for a, b in zip(bases[::2], bases[1::2], strict=True)]
        if np.median([_tangent(c, 1)[0] for c in cosines]) <= SMALL:
            return _draws(cosines, PARTS, hopeless=False)
    cosines = []
    for row in range(1, SPLITS + 1):
        side = hadamard(buckets)[row] > 0
        first, second = fit([side, ~side])
        cosines.append(_cosines(first, second))
    return _draws(cosines, 2, hopeless=_by_chance(cosines, *first.shape))


def calibrated_radius(draws: Any, *, dim: int, rank: int, delta: float, norm: Norm) -> float:
    """The distance that the error stays below with probability 1 - delta."""
    most = float(np.sqrt(2 * min(rank, dim - rank))) if norm == "frobenius" else float(rank < dim)
    if draws["hopeless"]:
        return most
    tangent = _quantile(np.asarray(draws[norm]), dim - rank, delta)
    if norm == "spectral":
        return min(most, tangent / float(np.hypot(1.0, tangent)))
    return min(most, float(np.sqrt(2.0) * tangent / np.hypot(1.0, tangent / np.sqrt(rank))))


def _quantile(values: Floats, free: int, delta: float) -> float:
    """Upper quantile of one more draw: Student's prediction bound on the logarithms.

    Splits share the users, so their mean is itself only one draw (hence twice the variance); and the length of an error in
    `free` directions varies by at least one part in sqrt(2 free).
    """
    logs = np.log(np.maximum(values, 1e-12))
    spread = max(float(logs.std(ddof=1)), 1.0 / np.sqrt(2.0 * max(free, 1))) * np.sqrt(2.0)
    return float(np.exp(min(logs.mean() + t.ppf(1 - delta, len(logs) - 1) * spread, 300.0)))


def _fit(passes: Passes, estimate: Estimate, parts: list[Bools], rank: int) -> list[Floats]:
    """Bases fitted to each part of the buckets, each from its own moments."""
    size = estimate.prior.factor.shape[1]
    climbers = []
    for part in parts:
        sums = estimate.pairs.take(part)
        climbers.append(
            Climber(start_from(sums, size), Gram(sums.gram[0]), estimate.penalty, noise_floor(estimate.pairs))
        )
    splits = [Split(part, np.zeros_like(part)) for part in parts]
    passes.climb(climbers, splits, stage="how sure: parts", tolerance=TOLERANCE, each=EACH)
    return [_basis(climber.best or climber.trial, rank) for climber in climbers]


def _moments_agree(estimate: Estimate, side: Bools, rank: int) -> bool:
    """Whether the moments of two halves are close enough for fits of eighths to be worth their passes."""
    size = estimate.prior.factor.shape[1]
    first, second = (_basis(start_from(estimate.pairs.take(half), size), rank) for half in (side, ~side))
    return _tangent(_cosines(first, second), 1)[0] <= LARGE


def _basis(prior: Prior, rank: int) -> Floats:
    return top_eigenvectors(np.outer(prior.mean, prior.mean) + prior.factor @ prior.factor.T, rank)[1]


def _cosines(first: Floats, second: Floats) -> Floats:
    return np.clip(np.linalg.svd(first.T @ second, compute_uv=False).astype(np.float64), 1e-9, 1.0)


def _tangent(cosines: Floats, parts: int) -> tuple[float, float]:
    """Largest tangent, and their Frobenius norm, of the error of `parts` parts together."""
    squares = (1.0 / cosines - 1.0) / parts
    return float(np.sqrt(squares.max())), float(np.sqrt(squares.sum()))


def _draws(cosines: list[Floats], parts: int, *, hopeless: bool) -> Draws:
    spectral, frobenius = zip(*(_tangent(c, parts) for c in cosines), strict=True)
    return Draws(parts, spectral, frobenius, hopeless)


def _by_chance(cosines: list[Floats], dim: int, rank: int) -> bool:
    """Whether the least cosine is, on average, no more than random directions of the last dimension would have."""
    free = dim - rank + 1
    if free < 2:
        return False
    squares = np.mean([float(c.min()) ** 2 for c in cosines])
    return bool(squares <= beta.ppf(1 - CHANCE, 0.5, (free - 1) / 2))
