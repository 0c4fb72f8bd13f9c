"""What the paper's radii need to know of the logs, collected from the moments: see `newcomer.radius` for the formulas.

The error that counts is that of the mean which is corrected. By default this is the mean of X_n = b1 b2^T, which is not
symmetric: its bounds are those of the Hermitian dilation [[0, X], [X^T, 0]], of dimension 2d, whose largest eigenvalue
is ||X|| and whose square is diag(X X^T, X^T X). Where the moment is symmetrised before the correction (`literal=True`,
and one-hot features) it is the mean of M_n, of half the second moment or less.

L bounds ||X_n|| or ||M_n||: with a ridge mu it is R^2 sqrt(h1 h2) / (4 mu), h1 and h2 the rows of the two halves;
without one it is the largest seen, |b1||b2| of X and (|b1.b2| + |b1||b2|)/2 of M, a plug-in without guarantee. R is the
largest |reward| seen, a plug-in as well.

Draws for the calibrated radius: how much do independent parts of the users disagree?

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

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.special import betaincinv

from newcomer.arrays import Bools, Floats, symmetric_part
from newcomer.radius import FACTORS, LARGEST_STEP, Draws, Ingredients, Printed, Walk
from newcomer.sold.correction import MomentCorrection, diagonal_correction_factor, leading_for_correction
from newcomer.sold.moments import Moments, longest_in_moment_stratum
from newcomer.users import dealt_user_buckets, user_bucket_signs, user_group_bounds


def radius_terms_of(moments: Moments, correction: MomentCorrection, spectrum: Floats, basis: Floats) -> Ingredients:
    """The numbers for the leading eigenvectors `basis` (d, k) of a corrected moment with this spectrum (d,)."""
    rank = basis.shape[1]
    ranges = _ranges(moments, whole=not correction.symmetric_first)
    squares = _squares(moments, correction).sum(axis=0)
    return Ingredients(
        users=moments.count,
        dim=moments.dim,
        rank=rank,
        reward_bound=moments.reward_max,
        inverse_norm=correction.norm_of_inverse(rank),
        mean_square_range=float(moments.users / moments.count @ ranges**2),
        largest_range=float(ranges.max()),
        square_norm=max(map(_top, squares)) / moments.count,
        gap=_gap(spectrum, rank),
        eigenvalue=float(spectrum[rank - 1]),
        dilated=not correction.symmetric_first,
        walk=_walked(moments, correction, float(ranges.max())),
        printed=_printed(moments, rank),
        completed=diagonal_correction_factor(basis) if correction.completes(rank) else None,
    )


def _printed(moments: Moments, rank: int) -> Printed:
    """What the formulas need as they are printed: of M, symmetrised and not corrected."""
    steps = longest_in_moment_stratum(int(moments.lengths[-1]), moments.dim)
    bound = moments.reward_max**2 * (2 + steps / (2 * moments.ridge)) if moments.ridge else moments.pairs.largest[1]
    return Printed(
        largest_range=float(bound),
        square_norm=_top(moments.pairs.symmetric_squares.sum(axis=0)) / moments.count,
        gap=_gap(np.linalg.eigvalsh(symmetric_part(moments.product))[::-1].astype(np.float64), rank),
    )


def _gap(spectrum: Floats, rank: int) -> float:
    """Between the eigenvalues `rank` and `rank` + 1 of a spectrum, largest first."""
    return float(spectrum[rank - 1] - (spectrum[rank] if rank < len(spectrum) else 0.0))


def _ranges(moments: Moments, *, whole: bool) -> Floats:
    """L (S,) of each stratum: the bound for its users on ||X_n|| (`whole`) or ||M_n||, by the longest history there."""
    if not moments.ridge:
        return np.full(len(moments.lengths), moments.pairs.largest[0 if whole else 1])
    steps = np.array([longest_in_moment_stratum(int(name), moments.dim) for name in moments.lengths])
    halves = np.sqrt((steps + 1) // 2 * (steps // 2))
    ranges: Floats = moments.reward_max**2 * halves / (4 * moments.ridge)
    return ranges


def _squares(moments: Moments, correction: MomentCorrection) -> Floats:
    """Sums (G, s, d, d) over the users of each group: of M^2 (s = 1), or of X X^T and X^T X (s = 2)."""
    pairs = moments.pairs
    return pairs.symmetric_squares[:, None] if correction.symmetric_first else pairs.squares[:, :2]


class Group(NamedTuple):
    """One group of users of the walk: `steps` (C,) and `centre` (d, d) come from the groups before it, the sums from
    its own users."""

    steps: Floats
    centre: Floats
    users: int
    total: Floats  # (d, d) sum of the users' matrices
    squares: Floats  # (s, d, d) sums of their squares


def walk_for_radius_terms(moments: Moments, correction: MomentCorrection, L: float) -> Iterator[Group]:
    """Walk through the groups of users: the step and the centre of each come from the groups before it.

    The bound holds for any steps that are fixed before the users they apply to are seen; the best step for N users of
    variance v is sqrt(2 log / (N v)), with v as the earlier users suggest it. A step is cut at 1/2 by itself, whatever
    comes later, for each of the `FACTORS` that stand for sqrt(log).
    """
    pairs, squares = moments.pairs, _squares(moments, correction)
    seen, seen_squares, seen_users = np.zeros((moments.dim, moments.dim)), np.zeros_like(squares[0]), 0
    for (first, last), square in zip(pairwise(user_group_bounds(len(pairs.counts))), squares, strict=True):
        users, total = int(pairs.counts[first:last].sum()), pairs.products[first:last].sum(axis=0)
        total = symmetric_part(total) if correction.symmetric_first else total
        centre = seen / max(seen_users, 1)
        pace = np.sqrt(2 / (moments.count * _variance(seen_squares, centre, seen_users, L)))
        yield Group(np.minimum(np.array(FACTORS) * pace, LARGEST_STEP), centre, users, total, square)
        seen, seen_squares, seen_users = seen + total, seen_squares + square, seen_users + users


def _walked(moments: Moments, correction: MomentCorrection, L: float) -> Walk:
    """What the bound needs of the whole walk, for each of the `FACTORS`."""
    spread: Floats | float = 0.0
    weighted: Floats | float = 0.0
    plain, steps = np.zeros((moments.dim, moments.dim)), np.zeros(len(FACTORS))
    for g, centre, users, total, squares in walk_for_radius_terms(moments, correction, L):
        psi = -np.log1p(-g) - g
        spread = spread + psi[:, None, None, None] * _around(squares, total, centre, users) / (4 * L**2)
        weighted = weighted + g[:, None, None] * total
        plain, steps = plain + total, steps + g * users
    offsets = weighted / steps[:, None, None] - plain / moments.count
    return Walk(
        tuple(max(map(_top, matrices)) for matrices in np.asarray(spread)),
        tuple(steps.tolist()),
        tuple(float(np.sqrt(max(_top(offset @ offset.T), 0.0))) for offset in offsets),
    )


def _around(squares: Floats, total: Floats, centre: Floats, users: int) -> Floats:
    """Sums (s, d, d) of squared deviations from `centre`, of users whose sums are `squares` and `total`."""
    first = centre @ total.T
    second = centre.T @ total
    own = (centre @ centre.T, centre.T @ centre)
    shifts = [users * c - turned - turned.T for c, turned in zip(own, (first, second), strict=True)]
    return squares + np.array(shifts[: len(squares)])


def _variance(squares: Floats, centre: Floats, users: int, L: float) -> float:
    """The variance, of values in [0, 1], to expect of the next group from the users before it."""
    if users < 2:
        return 0.25
    spread = max(map(_top, _around(squares / users, centre, centre, 1))) / (4 * L**2)
    return min(0.25, max(spread, 1 / users**2))


def _top(matrix: Floats) -> float:
    """The largest eigenvalue of a symmetric matrix (d, d)."""
    return float(leading_for_correction(matrix, 1, np.ones(len(matrix)))[0][-1])


PARTS = 8
SMALL = 0.3  # tangent of the error of an eighth up to which errors fall like 1 / users
SPLITS = 4
FAR = 1e6  # a tangent of an error about which nothing is known
CHANCE = 0.01  # level at which agreement must differ from that of random directions


def radius_terms_sold_draws(moments: Moments, correction: MomentCorrection, rank: int) -> Draws:
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

    return radius_terms_draws_by(fit, len(pairs.counts))


def radius_terms_draws_by(fit: Callable[[list[Bools]], list[Floats]], buckets: int) -> Draws:
    """Draws from bases (d, k) that `fit` finds in parts of the buckets; eighths only where halves agree well."""
    eighths = (
        radius_terms_tangents(radius_terms_cosines(*fit(dealt_user_buckets(buckets, 2))), 1)[0] <= SMALL
    )  # or eighths are worse still
    return radius_terms_of_parts(fit, buckets, eighths=eighths)


def radius_terms_of_parts(fit: Callable[[list[Bools]], list[Floats]], buckets: int, *, eighths: bool) -> Draws:
    """Draws from bases (d, k), leading directions first, that `fit` finds in parts of the buckets: eighths if they are
    to be tried and agree well enough, or else several splits in halves."""
    if eighths:
        bases = fit(dealt_user_buckets(buckets, PARTS))
        angles = [radius_terms_cosines(a, b) for a, b in zip(bases[::2], bases[1::2], strict=True)]
        if np.median([radius_terms_tangents(c, 1)[0] for c in angles]) <= SMALL:
            return _draws(bases, PARTS)
    return _draws(fit(radius_terms_splits(buckets)), 2)


def radius_terms_splits(buckets: int) -> list[Bools]:
    """Several splits of the buckets in halves: one half after another, side by side."""
    return [side for signs in user_bucket_signs(buckets)[:SPLITS] for side in (signs > 0, signs < 0)]


def _draws(bases: list[Floats], parts: int) -> Draws:
    """Draws from the bases of parts that stand side by side; of all directions, and of the leading 1, 2, ..., k."""
    dim, rank = bases[0].shape
    pairs = list(zip(bases[::2], bases[1::2], strict=True))
    angles = [[radius_terms_cosines(a[:, :count], b[:, :count]) for a, b in pairs] for count in range(1, rank + 1)]
    # Eighths are only taken where they agree, so that chance need not be asked.
    lost = [parts == 2 and _by_chance(own, dim, count) for count, own in enumerate(angles, start=1)]
    spectral, frobenius = zip(*(radius_terms_tangents(c, parts) for c in angles[-1]), strict=True)
    leading = [
        tuple(FAR if far else radius_terms_tangents(c, parts)[0] for c in own)
        for far, own in zip(lost, angles, strict=True)
    ]
    return Draws(parts, spectral, frobenius, lost[-1], tuple(leading), dim)


def radius_terms_cosines(first: Floats, second: Floats) -> Floats:
    """Cosines (k,) of the angles between two subspaces given by orthonormal bases (d, k)."""
    return np.clip(np.linalg.svd(first.T @ second, compute_uv=False).astype(np.float64), 1e-9, 1.0)


def radius_terms_tangents(angles: Floats, parts: int) -> tuple[float, float]:
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
