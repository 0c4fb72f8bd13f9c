"""Delta_off: how far the found subspace may be from the true one. Formulas only: a few numbers in, one number out.

The paper's radius. Theorem 1 turns bounds dM on ||M_N - E M|| and dD on ||D_N - E D|| into one on the error E of the
corrected moment,

    ||E|| <= B^3 (2 - B dD)/(1 - B dD)^2 (R^2 + dM) dD + (B/(1 - B dD))^2 dM,      infinite unless B dD < 1,

and that into one on the subspace. Two forms are offered, both of the *Frobenius* distance of the projections:

* "theorem", the paper's (Davis-Kahan): 2 sqrt(2k) ||E|| / gap, with the gap of the corrected moment;
* "identity": S has rank k, so U_perp^T U_hat = U_perp^T E U_hat Lam_hat^-1 exactly, hence sqrt(2k) ||E|| / lambda_k.
  Sharper, and valid too.

The spectral distance is at most the Frobenius one / sqrt 2. dM comes from matrix Hoeffding, empirical Bernstein, or the
martingale Bernstein bound of Waudby-Smith and Ramdas (2023) in the matrix form of Wang and Ramdas (2024); all with the
two-sided 2d in the logarithm and the mean of M^2 where the paper prints the sum. The numbers they need are collected by
`newcomer.sold.ingredients`.

The calibrated radius. Parts of the users that were fitted apart gave draws of the error of the whole
(`newcomer.population.calibration` says how); with Student's law on their logarithms they give its quantile at any
level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from newcomer.errors import ModelError, nearest
from newcomer.subspace import Norm

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
    """The numbers from which every radius of the paper follows, at every level; kept in the model file."""

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


@dataclass(frozen=True)
class Draws:
    """Draws of the error of the subspace of all users, one from each pair of the `parts` that were fitted apart.

    Each is given by the tangents of its angles: the largest (`spectral`), and their Frobenius norm. `hopeless` says
    that the parts agreed no better than chance: then nothing is known of the error.
    """

    parts: int
    spectral: tuple[float, ...]
    frobenius: tuple[float, ...]
    hopeless: bool


def moment_error(x: Ingredients, kind: str, delta: float) -> float:
    """dM: with probability 1 - delta, ||M_N - E M||_2 is at most this."""
    if kind == "hoeffding":
        return float(np.sqrt(32 * x.mean_square_range * np.log(2 * x.dim / delta) / x.users))
    if kind == "bernstein":
        return _bernstein(x, delta)
    if kind == "martingale":
        return _martingale(x, delta)
    raise ModelError(f"no radius of kind '{kind}'", todo=f"choose one of {', '.join(ALL)}{nearest(kind, ALL)}")


def _bernstein(x: Ingredients, delta: float) -> float:
    """Matrix Bernstein with ||E M^2|| <= ||mean M^2|| + Hoeffding's slack for M^2, half of delta each."""
    L, N = x.largest_range, x.users
    slack = np.sqrt(8 * x.mean_square_range * L**2 * np.log(x.dim / (delta / 2)) / N)
    log = np.log(2 * x.dim / (delta / 2))
    return float(np.sqrt(2 * (x.square_norm + slack) * log / N) + 4 * L * log / (3 * N))


def _martingale(x: Ingredients, delta: float) -> float:
    """2L [log(2d/alpha) + lambda_max(sum psi(g)(X - Xhat)^2)] / sum g, recentred at the plain mean."""
    m, log = x.martingale, np.log(2 * x.dim / delta)
    c = min(np.sqrt(log), LARGEST_STEP / m.largest_step)
    g = c * m.largest_step
    # psi(g) / g^2 grows with g: its value at the largest step bounds it at all others.
    psi = (-np.log1p(-g) - g) / g**2 * c**2
    return float(2 * x.largest_range * (log + psi * m.spread) / (c * m.steps) + m.offset)


def coverage_error(x: Ingredients, delta: float) -> float:
    """dD: with probability 1 - delta, ||D_N - E D||_2 is at most this (matrix Hoeffding, 0 <= D <= I)."""
    return float(np.sqrt(8 * np.log(2 * x.dim / delta) / x.users))


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
    """The paper's Delta_off: with probability 1 - delta the found subspace is no further than this from the true one.

    A third of delta each goes to M, D1 and D2. `simplified` takes dD = 0, as the paper's figures do; `clip` cuts at the
    largest distance there is.

    >>> walk = Martingale(spread=1.0, steps=100.0, largest_step=0.01, offset=0.0)
    >>> x = Ingredients(users=10**6, dim=9, rank=2, reward_bound=1.0, inverse_norm=2.0, mean_square_range=1.0,
    ...                 largest_range=1.0, square_norm=0.1, gap=0.5, eigenvalue=0.5, martingale=walk)
    >>> round(subspace_radius(x, "bernstein"), 3)
    0.723
    """
    dM = moment_error(x, kind, delta / 3)
    dD = 0.0 if simplified else coverage_error(x, delta / 3)
    B, R = x.inverse_norm, x.reward_bound
    left = 1 - B * dD
    scale = 2 * np.sqrt(2 * x.rank) / x.gap if form == "theorem" else np.sqrt(2 * x.rank) / x.eigenvalue
    if not left > 0 or not scale > 0:
        radius = float("inf")
    else:
        radius = float(scale) * (B**3 * (2 - B * dD) / left**2 * (R**2 + dM) * dD + (B / left) ** 2 * dM)
    radius = radius if norm == "frobenius" else radius / float(np.sqrt(2))
    return min(radius, largest_distance(x.dim, x.rank, norm)) if clip else radius


def calibrated_radius(draws: Draws, *, dim: int, rank: int, delta: float, norm: Norm) -> float:
    """The distance that the error stays below with probability 1 - delta, by the law of the draws.

    It is the upper quantile of one more draw, by Student's prediction bound on the logarithms of the tangents. Splits
    share the users, so their mean is itself only one draw (hence twice the variance); and the length of an error in d
    - k directions varies by at least one part in sqrt(2 (d - k)).

    >>> draws = Draws(2, spectral=(0.1, 0.1, 0.1, 0.1), frobenius=(0.1, 0.1, 0.1, 0.1), hopeless=False)
    >>> round(calibrated_radius(draws, dim=52, rank=2, delta=0.1, norm="spectral"), 4)
    0.1251
    """
    from scipy.special import stdtrit

    most = largest_distance(dim, rank, norm)
    if draws.hopeless:
        return most
    logs = np.log(np.maximum(getattr(draws, norm), 1e-12))
    spread = max(float(logs.std(ddof=1)), 1.0 / np.sqrt(2.0 * max(dim - rank, 1))) * np.sqrt(2.0)
    tangent = float(np.exp(min(logs.mean() + stdtrit(len(logs) - 1, 1 - delta) * spread, 300.0)))
    if norm == "spectral":
        return min(most, tangent / float(np.hypot(1.0, tangent)))
    return min(most, float(np.sqrt(2.0) * tangent / np.hypot(1.0, tangent / np.sqrt(rank))))


def largest_distance(dim: int, rank: int, norm: Norm) -> float:
    """The largest distance of two subspaces of this rank: 1, or sqrt(2 min(k, d - k)); 0 for the whole space.

    >>> largest_distance(20, 2, "frobenius")
    2.0
    """
    return float(np.sqrt(2 * min(rank, dim - rank))) if norm == "frobenius" else float(rank < dim)
