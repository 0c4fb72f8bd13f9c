"""Draws for the calibrated radius: how much do independent parts of the users disagree?

Fit the population (or SOLD) to two disjoint parts of the users and compare the subspaces. With errors that are
independent and, in d >> k dimensions, nearly orthogonal, the cosine of each angle between the two is the product of
the cosines of their angles with the truth,

    c = cos^2(part),   tan^2(part) = 1 / c - 1,   tan^2(all) = tan^2(part) / G    (G parts: squared errors ~ 1 / users),

so every pair of parts gives a draw of the error of the whole, with nothing assumed about its size: halves that fit
only noise are at right angles. A few draws give the scale and the quantile for any level (`newcomer.radius`). Eighths
are tried first, unless halves are already far apart; where eighths disagree too much for errors to fall like
1 / users, several splits in halves follow. If halves agree no better than subspaces would whose last direction is
drawn at random, nothing is known of it and the radius is the largest distance there is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh
from scipy.special import betaincinv

from newcomer.arrays import Bools, Floats
from newcomer.radius import Draws
from newcomer.sold.correction import AnyCorrection
from newcomer.sold.moments import Moments
from newcomer.users import balanced_signs, dealt

PARTS = 8
SMALL = 0.3  # tangent of the error of an eighth up to which errors fall like 1 / users
SPLITS = 4
FAR = 1e6  # a tangent of an error about which nothing is known
CHANCE = 0.01  # level at which agreement must differ from that of random directions


def sold_draws(moments: Moments, correction: AnyCorrection, rank: int) -> Draws:
    """Draws of the error of SOLD's basis, from the moments it was made of: no further pass.

    Parts are corrected with everybody's coverage, so what coverage varies between them counts as error too: the radius
    errs on the large side.
    """
    pairs, span = moments.pairs, correction.span
    last = [moments.dim - rank, moments.dim - 1]

    def fit(parts: list[Bools]) -> list[Floats]:
        sums = [pairs.products[part].sum(axis=0) / max(pairs.counts[part].sum(), 1) for part in parts]
        found = [correction.filled(correction.pooled(mean), rank) for mean in sums]
        return [eigh(span @ inside @ span.T, subset_by_index=last)[1][:, ::-1] for inside in found]

    return draws_by(fit, len(pairs.counts))


def draws_by(fit: Callable[[list[Bools]], list[Floats]], buckets: int) -> Draws:
    """Draws from bases (d, k) that `fit` finds in parts of the buckets; eighths only where halves agree well."""
    eighths = tangents(cosines(*fit(dealt(buckets, 2))), 1)[0] <= SMALL  # or eighths are worse still
    return compare_parts(fit, buckets, eighths=eighths)


def compare_parts(fit: Callable[[list[Bools]], list[Floats]], buckets: int, *, eighths: bool) -> Draws:
    """Draws from bases (d, k), leading directions first, that `fit` finds in parts of the buckets: eighths if they are
    to be tried and agree well enough, or else several splits in halves."""
    if eighths:
        bases = fit(dealt(buckets, PARTS))
        angles = [cosines(a, b) for a, b in zip(bases[::2], bases[1::2], strict=True)]
        if np.median([tangents(c, 1)[0] for c in angles]) <= SMALL:
            return _draws(bases, PARTS)
    return _draws(fit(splits(buckets)), 2)


def splits(buckets: int) -> list[Bools]:
    """Several splits of the buckets in halves: one half after another, side by side."""
    return [side for signs in balanced_signs(buckets)[:SPLITS] for side in (signs > 0, signs < 0)]


def _draws(bases: list[Floats], parts: int) -> Draws:
    """Draws from the bases of parts that stand side by side; of all directions, and of the leading 1, 2, ..., k."""
    dim, rank = bases[0].shape
    pairs = list(zip(bases[::2], bases[1::2], strict=True))
    angles = [[cosines(a[:, :count], b[:, :count]) for a, b in pairs] for count in range(1, rank + 1)]
    # Eighths are only taken where they agree, so that chance need not be asked.
    lost = [parts == 2 and _by_chance(own, dim, count) for count, own in enumerate(angles, start=1)]
    spectral, frobenius = zip(*(tangents(c, parts) for c in angles[-1]), strict=True)
    leading = [tuple(FAR if far else tangents(c, parts)[0] for c in own) for far, own in zip(lost, angles, strict=True)]
    return Draws(parts, spectral, frobenius, lost[-1], tuple(leading), dim)


def cosines(first: Floats, second: Floats) -> Floats:
    """Cosines (k,) of the angles between two subspaces given by orthonormal bases (d, k)."""
    return np.clip(np.linalg.svd(first.T @ second, compute_uv=False).astype(np.float64), 1e-9, 1.0)


def tangents(angles: Floats, parts: int) -> tuple[float, float]:
    """The largest tangent, and the Frobenius norm of all, of the error of `parts` parts together."""
    squares = (1.0 / angles - 1.0) / parts
    return float(np.sqrt(squares.max())), float(np.sqrt(squares.sum()))


def _by_chance(angles: list[Floats], dim: int, rank: int) -> bool:
    """Whether the least cosine is, on average, no more than a random last direction would have.

    The squared cosine of a random direction in f dimensions with a fixed one is Beta(1/2, (f - 1) / 2).
    """
    free = dim - rank + 1
    if free < 2:
        return False
    squares = np.mean([float(c.min()) ** 2 for c in angles])
    return bool(squares <= betaincinv(0.5, (free - 1) / 2, 1 - CHANCE))
