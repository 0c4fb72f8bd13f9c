"""Delta_off: how far the found subspace may be from the true one.

Theorem 1 turns bounds dM on ||M_N - E M|| and dD on ||D_N - E D|| into a bound on the error E of the corrected moment,

    ||E|| <= B^3 (2 - B dD)/(1 - B dD)^2 (R^2 + dM) dD + (B/(1 - B dD))^2 dM,      infinite unless B dD < 1,

and that into one on the subspace. Two forms are offered, both of the *Frobenius* distance of the projections:

* "theorem", the paper's (Davis-Kahan): 2 sqrt(2k) ||E|| / gap, with the gap of the corrected moment;
* "identity": S has rank k, so U_perp^T U_hat = U_perp^T E U_hat Lam_hat^-1 exactly, hence sqrt(2k) ||E|| / lambda_k. Sharper, valid too.

The spectral distance is at most the Frobenius one / sqrt 2. dM comes from matrix Hoeffding, empirical Bernstein, or the
martingale Bernstein bound of Waudby-Smith and Ramdas (2023) in the matrix form of Wang and Ramdas (2024); all with the two-sided
2d in the logarithm and the mean of M^2 where the paper prints the sum. L bounds ||M_n||: R^2 sqrt(h1 h2)/(4 mu) with a ridge;
without one the largest |b1||b2| seen, a plug-in without guarantee. R is the largest |reward| seen, a plug-in as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import ModelError, nearest
from newcomer.sold.moments import Moments, group_bounds, longest, symmetric
from newcomer.subspace import Coverage, Norm

Floats = NDArray[np.float64]
Form = Literal["theorem", "identity"]

KINDS = ("hoeffding", "bernstein", "martingale")
ALL = ("calibrated", *KINDS)
LARGEST_STEP = 0.5  # of the martingale bound's g, which must stay below 1


@dataclass(frozen=True)
class Martingale:
    """The martingale bound up to the level: g = c step, c = sqrt(log(2d / alpha)) (less where g would exceed 1/2).

    In units where (M + L I)/(2L) lies in [0, 1]. Steps are fixed by earlier groups of users, so that one eigenvalue,
    `spread` = lambda_max(sum step^2 (X - Xhat)^2), serves every level.
    """

    spread: float
    steps: float  # sum over users
    largest_step: float
    offset: float  # ||weighted mean of M - mean of M||, in the units of M


@dataclass(frozen=True)
class Ingredients:
    """The few numbers from which every radius at every level follows; kept in the model file."""

    users: int
    dim: int
    rank: int
    reward_bound: float  # R
    inverse_norm: float  # B
    mean_square_range: float  # mean over users of L_n^2
    largest_range: float  # L
    square_norm: float  # ||mean of M^2||
    gap: float  # lambda_k - lambda_{k+1} of the corrected moment
    eigenvalue: float  # lambda_k
    martingale: Martingale

    @classmethod
    def of(cls, moments: Moments, coverage: Coverage, spectrum: Floats, rank: int) -> Ingredients:
        """Collect them for the leading `rank` eigenvectors of a corrected moment with this spectrum."""
        ranges = _ranges(moments)
        shares = moments.users / moments.count
        below = spectrum[rank] if rank < len(spectrum) else 0.0
        return cls(
            users=moments.count,
            dim=moments.dim,
            rank=rank,
            reward_bound=moments.reward_max,
            inverse_norm=coverage.inverse_norm,
            mean_square_range=float(shares @ ranges**2),
            largest_range=float(ranges.max()),
            square_norm=float(np.linalg.eigvalsh(moments.pairs.squares.sum(axis=0))[-1]) / moments.count,
            gap=float(spectrum[rank - 1] - below) if rank else 0.0,
            eigenvalue=float(spectrum[rank - 1]) if rank else 0.0,
            martingale=_martingale(moments, float(ranges.max())),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Ingredients:
        """The inverse of `to_dict`."""
        parts = dict(values)
        inner = parts.pop("martingale")
        return cls(**parts, martingale=Martingale(**inner))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, for the model file."""
        return asdict(self)


def moment_error(x: Ingredients, kind: str, delta: float) -> float:
    """dM: with probability 1 - delta, ||M_N - E M||_2 is at most this."""
    if kind == "hoeffding":
        return float(np.sqrt(32 * x.mean_square_range * _log(2 * x.dim, delta) / x.users))
    if kind == "bernstein":
        return _bernstein(x, delta)
    if kind == "martingale":
        return _martingale_error(x, delta)
    raise ModelError(f"no radius of kind '{kind}'", todo=f"choose one of {', '.join(ALL)}{nearest(kind, ALL)}")


def coverage_error(x: Ingredients, delta: float) -> float:
    """dD: with probability 1 - delta, ||D_N - E D||_2 is at most this (matrix Hoeffding, 0 <= D <= I)."""
    return float(np.sqrt(8 * _log(2 * x.dim, delta) / x.users))


def corrected_error(x: Ingredients, kind: str, delta: float, *, simplified: bool) -> float:
    """The bound on ||E||_2; a third of delta each for M, D1 and D2. `simplified` takes dD = 0, as the paper's figures do."""
    dM = moment_error(x, kind, delta / 3)
    dD = 0.0 if simplified else coverage_error(x, delta / 3)
    B, R = x.inverse_norm, x.reward_bound
    left = 1 - B * dD
    if not left > 0:
        return float("inf")
    return B**3 * (2 - B * dD) / left**2 * (R**2 + dM) * dD + (B / left) ** 2 * dM


def subspace_radius(
    x: Ingredients,
    kind: str,
    *,
    delta: float = 0.05,
    norm: Norm = "spectral",
    clip: bool = True,
    simplified: bool = False,
    form: Form = "theorem",
) -> float:
    """Delta_off: with probability 1 - delta the distance of the found subspace from the true one is at most this."""
    scale = 2 * np.sqrt(2 * x.rank) / x.gap if form == "theorem" else np.sqrt(2 * x.rank) / x.eigenvalue
    radius = float(scale) * corrected_error(x, kind, delta, simplified=simplified) if scale > 0 else float("inf")
    radius = radius if norm == "frobenius" else radius / np.sqrt(2)
    return min(radius, largest_distance(x.dim, x.rank, norm)) if clip else radius


def largest_distance(dim: int, rank: int, norm: Norm) -> float:
    """The largest distance that two subspaces of this rank can have."""
    return float(np.sqrt(2 * min(rank, dim - rank))) if norm == "frobenius" else float(rank < dim)


def _log(many: float, delta: float) -> float:
    return float(np.log(many / delta))


def _ranges(moments: Moments) -> Floats:
    """L per stratum: the bound on ||M_n|| for its users (its longest history, where it spans several lengths)."""
    if not moments.ridge:
        return np.full(len(moments.lengths), moments.pairs.largest)
    steps = np.array([longest(int(name), moments.dim) for name in moments.lengths])
    halves = np.sqrt((steps + 1) // 2 * (steps // 2))
    ranges: Floats = moments.reward_max**2 * halves / (4 * moments.ridge)
    return ranges


def _bernstein(x: Ingredients, delta: float) -> float:
    """Matrix Bernstein with ||E M^2|| <= ||mean M^2|| + Hoeffding's slack for M^2, half of delta each."""
    L, N = x.largest_range, x.users
    slack = np.sqrt(8 * x.mean_square_range * L**2 * _log(x.dim, delta / 2) / N)
    log = _log(2 * x.dim, delta / 2)
    return float(np.sqrt(2 * (x.square_norm + slack) * log / N) + 4 * L * log / (3 * N))


def _martingale(moments: Moments, L: float) -> Martingale:
    """Walk through the groups of users: step and centre of each come from those before it."""
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
    """Centre of the next group and its expected variance (of values in [0, 1]) from the users before it."""
    if users < 2:
        return np.zeros_like(seen[0]), 0.25
    centre = seen[0] / users
    spread = float(np.linalg.eigvalsh(seen[1] / users - centre @ centre)[-1]) / (4 * L**2)
    return centre, min(0.25, max(spread, 1 / users**2))


def _martingale_error(x: Ingredients, delta: float) -> float:
    """2L [log(2d/alpha) + lambda_max(sum psi(g)(X - Xhat)^2)] / sum g, recentred at the plain mean."""
    m, log = x.martingale, _log(2 * x.dim, delta)
    c = min(np.sqrt(log), LARGEST_STEP / m.largest_step)
    g = c * m.largest_step
    # psi(g) / g^2 grows with g: its value at the largest step bounds it at all others.
    psi = (-np.log1p(-g) - g) / g**2 * c**2
    return float(2 * x.largest_range * (log + psi * m.spread) / (c * m.steps) + m.offset)
