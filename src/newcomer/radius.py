"""Delta_off: how far the found subspace may be from the true one. Formulas only: a few numbers in, one number out.

The paper's radius. Theorem 1 turns bounds dM on ||M_N - E M|| and dD on ||D_N - E D|| into one on the error E of the
corrected moment,

    ||E|| <= B^3 (2 - B dD)/(1 - B dD)^2 (R^2 + dM) dD + (B/(1 - B dD))^2 dM,      infinite unless B dD < 1,

and that into one on the subspace. Two forms are offered:

* "theorem", the paper's (Davis-Kahan): 2 sqrt(2k) ||E|| / gap, with the gap of the corrected moment, bounds the
  *Frobenius* distance of the projections; the spectral distance is at most that / sqrt 2;
* "identity": S has rank k, so U_perp^T U_hat = U_perp^T E U_hat Lam_hat^-1 exactly, hence ||E|| / lambda_k bounds the
  *spectral* distance, and sqrt(2 min(k, d - k)) times it the Frobenius one. Sharper, and valid too.

dM comes from matrix Hoeffding, empirical Bernstein, or the martingale Bernstein bound of Waudby-Smith and Ramdas (2023)
in the matrix form of Wang and Ramdas (2024); with 2d in the logarithm, either for the two sides of a symmetric mean or
for the dilation of one that is not, and the mean of squares where the paper prints the sum. The numbers they need are
collected by `newcomer.sold.radius_terms`. `printed` gives the formulas as the paper has them, slips included.

The calibrated radius. Parts of the users that were fitted apart gave draws of the error of the whole
(`newcomer.em.calibration` says how); with Student's law on their logarithms they give its quantile at any
level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from newcomer.errors import ModelError, error_name_hint
from newcomer.subspace import Norm

Form = Literal["theorem", "identity"]

KINDS = ("hoeffding", "bernstein", "martingale")
ALL = ("calibrated", *KINDS)
LARGEST_STEP = 0.5  # of the martingale bound's g, which must stay below 1
FACTORS = tuple(1.25**i for i in range(1, 9))  # 1.25 to 6: what may stand for sqrt(log(2d / alpha)) in the steps
KNOWN = 0.5  # sine, 30 degrees, up to which a direction is called known: three quarters of its variance are kept
Simplified = bool | Literal["without B"]


@dataclass(frozen=True)
class Walk:
    """The martingale bound for each of the `FACTORS` c, in units where (X + L I)/(2L) lies in [0, 1].

    Its steps g = min(c sqrt(2 / (N v)), 1/2) are fixed by earlier groups of users, v being the variance that they
    suggest. Any c that is chosen without looking at the data gives a valid bound, so that one short list serves every
    level.
    """

    spreads: tuple[float, ...]  # lambda_max(sum psi(g) (X - Xhat)^2)
    steps: tuple[float, ...]  # sum of g over users
    offsets: tuple[float, ...]  # ||weighted mean - mean||, in the units of the mean


@dataclass(frozen=True)
class Printed:
    """What the printed formulas take instead: a range R^2 (2 + H / (2 mu)), ||mean of M^2||, the gap of M itself."""

    largest_range: float
    square_norm: float
    gap: float


@dataclass(frozen=True)
class Martingale:
    """The martingale bound of model files of before 0.3: g = c step, c = sqrt(log(2d / alpha)), less where g would
    exceed 1/2 in *any* group, which later users decide: not quite predictable, and replaced by `Walk`.
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
    square_norm: float  # ||mean of M^2||, or max(||mean of X X^T||, ||mean of X^T X||)
    gap: float  # lambda_k - lambda_{k+1} of the corrected moment
    eigenvalue: float  # lambda_k
    dilated: bool | None = None  # the mean is of X = b1 b2^T, not of M; None in older files
    martingale: Martingale | None = None  # of older files
    walk: Walk | None = None
    printed: Printed | None = None
    completed: float | None = None  # how much completing the diagonal may enlarge ||E||; 0: any; None: not completed


@dataclass(frozen=True)
class Draws:
    """Draws of the error of the subspace of all users, one from each pair of the `parts` that were fitted apart.

    Each is given by the tangents of its angles: the largest (`spectral`), and their Frobenius norm. `hopeless` says
    that the parts agreed no better than chance: then nothing is known of the error.

    One unsure direction makes the error of all of them 1. So `leading` has the spectral draws of the leading 1, 2,
    ..., k directions by themselves, and `dim` is the number of features. (A model of before they were kept has none.)
    """

    parts: int
    spectral: tuple[float, ...]
    frobenius: tuple[float, ...]
    hopeless: bool
    leading: tuple[tuple[float, ...], ...] = ()
    dim: int = 0

    @property
    def sure(self) -> tuple[int, float]:
        """How many leading directions are known, and the distance that their error stays below at level 0.05.

        They are known if the sine of the largest angle to the truth is at most `KNOWN`; (0, 1.0) if none is, or where
        the draws were not kept.

        >>> Draws(2, (9.0, 8.0), (9.0, 8.0), True, leading=((0.01, 0.01), (9.0, 8.0)), dim=5000).sure[0]
        1
        """
        for count in range(len(self.leading), 0, -1):
            error = self.error(count)
            if error <= KNOWN:
                return count, error
        return 0, 1.0

    def sentence(self, directions: int | None = None) -> str:
        """What is known of the directions of the basis, leading ones first, in words; empty where nothing was kept.

        Users differ along so many `directions`; where the basis has more, it spans the population mean as well.

        >>> Draws(2, (9.0, 8.0), (9.0, 8.0), True, leading=((0.01, 0.01), (9.0, 8.0)), dim=5000).sentence()
        'Of 2 directions 1 is known to within 0.01 (sine of the angle to the truth); the 2nd is not'
        >>> draws = Draws(2, (9.0, 8.0), (9.0, 8.0), True, leading=((0.01, 0.01), (9.0, 8.0)), dim=5000)
        >>> draws.sentence(1).split(" to within")[0]
        'Of 2 dimensions, the population mean and 1 direction, 1 is known'
        """
        count, error = self.sure
        every = len(self.leading)
        if directions and directions < every:
            return self._with_mean(directions)
        if not every:
            return ""
        if not count:
            return f"None of {every} directions is known" if every > 1 else "The direction is not known"
        known = f"known to within {error:.2f} (sine of the angle to the truth)"
        if count == every:
            return f"All {every} directions are {known}" if every > 1 else f"The direction is {known}"
        return f"Of {every} directions {count} {'are' if count > 1 else 'is'} {known}; the {_ordinal(count + 1)} is not"

    def _with_mean(self, directions: int) -> str:
        """The same of a basis that spans the population mean and the directions along which users differ."""
        (count, error), every = self.sure, len(self.leading)
        both = f"{every} dimensions, the population mean and {directions} direction{'s' * (directions != 1)},"
        if not count:
            return f"None of {both} is known"
        known = f"known to within {error:.2f} (sine of the angle to the truth)"
        if count == every:
            return f"All {both} are {known}"
        are = "are" if count > 1 else "is"
        return f"Of {both} {count} {are} {known}; the {_ordinal(count + 1)} is not"

    def error(self, count: int, delta: float = 0.05) -> float:
        """The distance (spectral) that the error of the leading `count` directions stays below, by their own draws."""
        tangents = self.leading[count - 1]
        own = Draws(self.parts, tangents, tangents, hopeless=False)
        return calibrated_radius(own, dim=self.dim, rank=count, delta=delta, norm="spectral")

    def scaled(self, share: float) -> Draws:
        """The draws for all users, where a share of them was fitted: squared errors fall like 1 / users.

        >>> Draws(2, (0.2,), (0.4,), hopeless=False).scaled(0.25).spectral
        (0.1,)
        """
        if share == 1:
            return self
        root = float(np.sqrt(share))
        spectral, frobenius, *leading = (
            tuple(root * one for one in tangents) for tangents in (self.spectral, self.frobenius, *self.leading)
        )
        return replace(self, spectral=spectral, frobenius=frobenius, leading=tuple(leading))


def radius_moment_error(x: Ingredients, kind: str, delta: float) -> float:
    """dM: with probability 1 - delta, the mean that is corrected is no further than this from its expectation."""
    if kind == "hoeffding":
        return float(np.sqrt(32 * x.mean_square_range * np.log(2 * x.dim / delta) / x.users))
    if kind == "bernstein":
        return _bernstein(x, delta)
    if kind == "martingale":
        if x.walk is None and x.martingale is None:
            todo = "choose hoeffding or bernstein: its steps would take d x d sums of many one-hot actions"
            raise ModelError("this model keeps nothing for the martingale bound", todo=todo)
        return _by_walk(x, x.walk, delta) if x.walk else _as_saved_before(x, delta)
    raise ModelError(f"no radius of kind '{kind}'", todo=f"choose one of {', '.join(ALL)}{error_name_hint(kind, ALL)}")


def _bernstein(x: Ingredients, delta: float) -> float:
    """Matrix Bernstein with ||E X^2|| <= ||mean X^2|| + Hoeffding's slack for X^2, half of delta each.

    The slack is one-sided: its dimension is d for the squares of a symmetric matrix, 2d for those of a dilation.
    """
    L, N = x.largest_range, x.users
    log = np.log(2 * x.dim / (delta / 2))
    slack = np.sqrt(8 * x.mean_square_range * L**2 * np.log((2 if x.dilated else 1) * x.dim / (delta / 2)) / N)
    return float(np.sqrt(2 * (x.square_norm + slack) * log / N) + 4 * L * log / (3 * N))


def _by_walk(x: Ingredients, walk: Walk, delta: float) -> float:
    """2L [log(2d/alpha) + lambda_max(sum psi(g)(X - Xhat)^2)] / sum g, recentred at the plain mean.

    Of the list of factors the one next to sqrt(log(2d/alpha)) is taken: no data has a say in it.
    """
    log = float(np.log(2 * x.dim / delta))
    at = int(np.argmin(np.abs(np.array(FACTORS) - np.sqrt(log))))
    return float(2 * x.largest_range * (log + walk.spreads[at]) / walk.steps[at] + walk.offsets[at])


def _as_saved_before(x: Ingredients, delta: float) -> float:
    """The martingale bound of an older file, as it was computed then."""
    assert x.martingale is not None
    m, log = x.martingale, np.log(2 * x.dim / delta)
    c = min(np.sqrt(log), LARGEST_STEP / m.largest_step)
    g = c * m.largest_step
    psi = (-np.log1p(-g) - g) / g**2 * c**2
    return float(2 * x.largest_range * (log + psi * m.spread) / (c * m.steps) + m.offset)


def radius_printed_moment_error(x: Ingredients, kind: str, delta: float) -> float:
    """dM at level delta by the formulas as printed, which hold with probability 1 - delta' / 2 at their own delta'.

    Empirical Bernstein is the proposition on M_N with the norm of the *sum* of squares. Hoeffding is that of the
    proposition on D_N, times the range of M_n. The martingale bound is cited, not printed.
    """
    p = x.printed
    if p is None:
        raise ModelError("this model file keeps nothing for the printed formulas", todo="fit it again")
    log = np.log(4 * x.dim / (2 * delta))
    if kind == "hoeffding":
        return float(p.largest_range * np.sqrt(8 * log / x.users))
    if kind == "bernstein":
        first = np.sqrt(2 * p.square_norm * log)  # the norm of the sum over N is the norm of the mean
        second = 2 * p.largest_range * (2 * log / x.users) ** 0.75
        return float(first + second + 4 * p.largest_range * log / (3 * x.users))
    return radius_moment_error(x, kind, delta)


def radius_coverage_error(x: Ingredients, delta: float, *, printed: bool = False) -> float:
    """dD: with probability 1 - delta, ||D_N - E D||_2 is at most this (matrix Hoeffding, 0 <= D <= I).

    As printed the logarithm is of 4d / delta' and the probability 1 - delta' / 4.
    """
    return float(np.sqrt(8 * np.log((1 if printed else 2) * x.dim / delta) / x.users))


def subspace_radius(
    x: Ingredients,
    kind: str,
    *,
    delta: float = 0.05,
    norm: Norm = "spectral",
    clip: bool = True,
    simplified: Simplified = False,
    form: Form = "theorem",
    printed: bool = False,
) -> float:
    """The paper's Delta_off: with probability 1 - delta the found subspace is no further than this from the true one.

    A third of delta each goes to M, D1 and D2. `simplified` takes dD = 0, as the paper's figures do, and "without B"
    besides B = 1; `clip` cuts at the largest distance there is. `printed` takes the formulas as the paper prints them,
    with the gap of the moment that is not corrected, one number for either norm.

    >>> walk = Walk(spreads=(1.0,) * 8, steps=(100.0,) * 8, offsets=(0.0,) * 8)
    >>> x = Ingredients(users=10**6, dim=9, rank=2, reward_bound=1.0, inverse_norm=2.0, mean_square_range=1.0,
    ...                 largest_range=1.0, square_norm=0.1, gap=0.5, eigenvalue=0.5, walk=walk)
    >>> round(subspace_radius(x, "bernstein"), 3)
    0.723
    """
    dM = (radius_printed_moment_error if printed else radius_moment_error)(x, kind, delta / 3)
    dD = 0.0 if simplified else radius_coverage_error(x, delta / 3, printed=printed)
    B, R = 1.0 if simplified == "without B" else x.inverse_norm, x.reward_bound
    left = 1 - B * dD
    scale = _scale(x, norm, form, printed) * (1.0 if printed or x.completed is None else x.completed)
    if not left > 0 or not scale > 0:
        radius = float("inf")
    else:
        radius = scale * (B**3 * (2 - B * dD) / left**2 * (R**2 + dM) * dD + (B / left) ** 2 * dM)
    return min(radius, _largest_radius(x.dim, x.rank, norm)) if clip else radius


def _scale(x: Ingredients, norm: Norm, form: Form, printed: bool) -> float:
    """How large the distance of the subspaces may be for an error ||E|| = 1 of the corrected moment."""
    if printed:
        assert x.printed is not None
        return float(2 * np.sqrt(2 * x.rank) / x.printed.gap) if x.printed.gap else 0.0
    # Without a gap (as many directions as features, say), or where the directions that were found have no variance (a
    # single action), there is no bound, which a scale of zero stands for.
    if form == "identity":
        return (_largest_radius(x.dim, x.rank, norm) or 1.0) / x.eigenvalue if x.eigenvalue else 0.0
    return float(2 * np.sqrt((2 if norm == "frobenius" else 1) * x.rank) / x.gap) if x.gap else 0.0


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

    most = _largest_radius(dim, rank, norm)
    if draws.hopeless:
        return most
    logs = np.log(np.maximum(getattr(draws, norm), 1e-12))
    spread = max(float(logs.std(ddof=1)), 1.0 / np.sqrt(2.0 * max(dim - rank, 1))) * np.sqrt(2.0)
    tangent = float(np.exp(min(logs.mean() + stdtrit(len(logs) - 1, 1 - delta) * spread, 300.0)))
    if norm == "spectral":
        return min(most, tangent / float(np.hypot(1.0, tangent)))
    return min(most, float(np.sqrt(2.0) * tangent / np.hypot(1.0, tangent / np.sqrt(rank))))


def _largest_radius(dim: int, rank: int, norm: Norm) -> float:
    """The largest distance of two subspaces of this rank: 1, or sqrt(2 min(k, d - k)); 0 for the whole space.

    >>> _largest_radius(20, 2, "frobenius")
    2.0
    """
    return float(np.sqrt(2 * min(rank, dim - rank))) if norm == "frobenius" else float(rank < dim)


def _ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`.

    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    teen = 10 < number % 100 < 20
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
