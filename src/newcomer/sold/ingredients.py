"""What the paper's radii need to know of the logs, collected from the moments: see `newcomer.radius` for the formulas.

L bounds ||M_n||: with a ridge mu it is R^2 sqrt(h1 h2) / (4 mu), h1 and h2 the rows of the two halves; without one it
is the largest |b1||b2| seen, a plug-in without guarantee. R is the largest |reward| seen, a plug-in as well.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from newcomer.arrays import Floats, symmetric
from newcomer.radius import Ingredients, Martingale
from newcomer.sold.correction import Coverage
from newcomer.sold.moments import Moments, longest
from newcomer.users import group_bounds


def ingredients_of(moments: Moments, coverage: Coverage, spectrum: Floats, rank: int) -> Ingredients:
    """The numbers for the leading `rank` eigenvectors of a corrected moment with this spectrum (d,), largest first."""
    ranges = _ranges(moments)
    below = spectrum[rank] if rank < len(spectrum) else 0.0
    return Ingredients(
        users=moments.count,
        dim=moments.dim,
        rank=rank,
        reward_bound=moments.reward_max,
        inverse_norm=coverage.inverse_norm,
        mean_square_range=float(moments.users / moments.count @ ranges**2),
        largest_range=float(ranges.max()),
        square_norm=float(np.linalg.eigvalsh(moments.pairs.squares.sum(axis=0))[-1]) / moments.count,
        gap=float(spectrum[rank - 1] - below),
        eigenvalue=float(spectrum[rank - 1]),
        martingale=_walk(moments, float(ranges.max())),
    )


def _ranges(moments: Moments) -> Floats:
    """L (S,) of each stratum: the bound on ||M_n|| for its users, by the longest history it may hold."""
    if not moments.ridge:
        return np.full(len(moments.lengths), moments.pairs.largest)
    steps = np.array([longest(int(name), moments.dim) for name in moments.lengths])
    halves = np.sqrt((steps + 1) // 2 * (steps // 2))
    ranges: Floats = moments.reward_max**2 * halves / (4 * moments.ridge)
    return ranges


def _walk(moments: Moments, L: float) -> Martingale:
    """Walk through the groups of users: the step and the centre of each come from the groups before it.

    The bound holds for any steps that are fixed before the users they apply to are seen; the best step for N users of
    variance v is sqrt(2 / (N v)), with v as the earlier users suggest it.
    """
    pairs, N, dim = moments.pairs, moments.count, moments.dim
    seen = np.zeros((2, dim, dim))  # sums of M and M^2 so far
    seen_users = 0
    spread, weighted, steps, largest = np.zeros((dim, dim)), np.zeros((dim, dim)), 0.0, 0.0
    for (first, last), square in zip(pairwise(group_bounds(len(pairs.counts))), pairs.squares, strict=True):
        users, total = int(pairs.counts[first:last].sum()), symmetric(pairs.products[first:last].sum(axis=0))
        centre, variance = _past(seen, seen_users, L)
        step = float(np.sqrt(2 / (N * variance)))
        around = square - centre @ total - total @ centre + users * (centre @ centre)
        spread += step**2 * around / (4 * L**2)
        weighted += step * total
        steps, largest = steps + step * users, max(largest, step if users else 0.0)
        seen += np.array([total, square])
        seen_users += users
    offset = weighted / steps - moments.product
    return Martingale(float(np.linalg.eigvalsh(spread)[-1]), steps, largest, float(np.linalg.norm(offset, 2)))


def _past(seen: Floats, users: int, L: float) -> tuple[Floats, float]:
    """Centre (d, d) of the next group and its expected variance (of values in [0, 1]) from the users before it."""
    if users < 2:
        return np.zeros_like(seen[0]), 0.25
    centre = seen[0] / users
    spread = float(np.linalg.eigvalsh(seen[1] / users - centre @ centre)[-1]) / (4 * L**2)
    return centre, min(0.25, max(spread, 1 / users**2))
