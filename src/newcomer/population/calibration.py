"""Draws for the calibrated radius: how much do independent parts of the users disagree?

Fit the population (or SOLD) to two disjoint parts of the users and compare the subspaces. With errors that are
independent and, in d >> k dimensions, nearly orthogonal, the cosine of each angle between the two is the product of
the cosines of their angles with the truth,

    c = cos^2(part),   tan^2(part) = 1 / c - 1,   tan^2(all) = tan^2(part) / G    (G parts: squared errors ~ 1 / users),

so every pair of parts gives a draw of the error of the whole, with nothing assumed about its size: halves that fit
only noise are at right angles. A few draws give the scale and the quantile for any level (`newcomer.radius`). Eighths
are tried first (every user is read once per step, whatever the number of parts), unless the moments of halves are
already far apart; where eighths disagree too much for errors to fall like 1 / users, several splits in halves follow.
If halves agree no better than subspaces would whose last direction is drawn at random, nothing is known of it and the
radius is the largest distance there is.

Every part starts from its own moments: started from the common fit, parts would inherit its errors and agree by
descent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh
from scipy.special import betaincinv

from newcomer.arrays import Bools, Floats, Ints
from newcomer.population.beginning import Begin, Fold, noise_floor
from newcomer.population.climb import Climber, Penalty
from newcomer.population.passing import Ascent, Passes
from newcomer.population.record import Population
from newcomer.population.spikes import Moments
from newcomer.radius import Draws
from newcomer.sold.correction import AnyCorrection
from newcomer.sold.moments import Moments as SoldMoments
from newcomer.users import Split, balanced_signs, dealt

PARTS = 8
ROOM = 1_000_000  # entries of W up to which there is memory for so many climbs at once
SMALL = 0.3  # tangent of the error of an eighth up to which errors fall like 1 / users
LARGE = 1.0  # tangent of the error of half of the moments beyond which no eighth will be that good
SPLITS = 4
TOLERANCE, EACH = 0.05, 1e-3  # gain in log-likelihood, in all or per parameter, at which the fit of a part ends
FAR = 1e6  # a tangent of an error about which nothing is known
STAGE = "how sure: parts"
CHANCE = 0.01  # level at which agreement must differ from that of random directions


class Parts:
    """Fits of parts of the users, each from its own moments, with the penalty of the fit to everybody.

    Most of the passes can be shared: `ascents` are those that will be needed whatever comes, for whoever is climbing
    anyway.
    """

    def __init__(self, begin: Begin, penalty: Penalty) -> None:
        self.begin, self.penalty, self.size = begin, penalty, len(penalty.weights) - 1
        buckets = len(begin.pairs.users)
        halves = [signs > 0 for signs in balanced_signs(buckets)[:SPLITS]]
        self.possible = _all_have(begin.pairs.users, halves)
        self._climbing: dict[int, list[Ascent]] = {}
        # Fits of eighths are worth their passes if at least the moments of halves are close.
        few = _all_have(begin.pairs.users, dealt(buckets, PARTS))
        self.roomy = room_for(len(penalty.anchor), self.size)
        self.eighths = self.possible and self.roomy and few and self._moments_agree()

    def _moments_agree(self) -> bool:
        self.begin.prepare(self._halves(), max(self.size, 1))
        bases = [_basis(self.begin.start(half, self.size), max(self.size, 1)) for half in self._halves()]
        return _tangents(_cosines(*bases), 1)[0] <= LARGE

    def _halves(self) -> list[Bools]:
        return dealt(len(self.begin.pairs.users), 2)

    @property
    def ascents(self) -> list[Ascent]:
        """The climbs of the parts that are looked at first."""
        if not self.possible or not self.roomy:
            return []
        buckets = len(self.begin.pairs.users)
        return self._of(dealt(buckets, PARTS) if self.eighths else splits(buckets))

    def _of(self, parts: list[Bools]) -> list[Ascent]:
        """The climbs of parts of some size, begun when they are first asked for."""
        size = int(parts[0].sum())
        if size not in self._climbing:
            self._climbing[size] = self._begun(parts)
        return self._climbing[size]

    def _begun(self, parts: list[Bools]) -> list[Ascent]:
        """Climbs of parts from their own moments."""
        self.begin.prepare(parts, self.size)
        splits = [Split(part, np.zeros_like(part)) for part in parts]
        folds, floor = [Fold(self.begin, split) for split in splits], noise_floor(self.begin.pairs)
        climbers = [Climber(fold.start(self.size), fold.gram, self.penalty, floor) for fold in folds]
        return [Ascent(climber, split, TOLERANCE, EACH) for climber, split in zip(climbers, splits, strict=True)]

    def draws(self, passes: Passes, rank: int) -> Draws:
        """Draws of the error of a basis of this rank, by as many further passes as the parts still need."""
        if not self.possible:
            return Draws(2, (FAR, FAR), (FAR, FAR), hopeless=True)  # too few users to fit parts of them apart

        def climbed(ascents: list[Ascent]) -> list[Floats]:
            passes.climb(ascents, stage=STAGE)
            return [_basis(ascent.climber.best or ascent.climber.trial, rank) for ascent in ascents]

        def fit(parts: list[Bools]) -> list[Floats]:
            if self.roomy:
                return climbed(self._of(parts))
            pairs = [list(pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            return [basis for pair in pairs for basis in climbed(self._begun(pair))]

        return _compare(fit, len(self.begin.pairs.users), eighths=self.eighths)


class MomentParts:
    """The same by the moments of all users, where these have chosen: a climb of parts of them would take too many
    passes.

    Moments err more than the fit does, so the radius errs on the large side. `base` has everything but directions.
    """

    def __init__(self, moments: Moments, base: Population) -> None:
        self.moments, self.base, self.begin = moments, base, moments.begin

    def draws(self, passes: Passes, rank: int) -> Draws:
        """Draws of the error of a basis of this rank, without a pass; where many actions leave no room, none is known.

        `passes` is not used.
        """
        wide, buckets = self.begin.directions is not None, len(self.moments.every)
        if wide and not room_for(len(self.base.mean), self.moments.most):
            return Draws(2, (FAR, FAR), (FAR, FAR), hopeless=True)

        def fit(parts: list[Bools]) -> list[Floats]:
            size = min(rank, self.moments.most)
            return [_basis(one.population(self.base, size), rank) for one in self.moments.of(parts)]

        return _compare(fit, buckets, eighths=False) if wide else draws_by(fit, buckets)


def room_for(dim: int, rank: int) -> bool:
    """Whether there is memory for fits of several parts of the users at once."""
    return dim * (rank + 1) <= ROOM


def _all_have(users: Ints, parts: list[Bools]) -> bool:
    """Whether each part of the buckets, and the rest, has users; `users` (B,) are counted by bucket."""
    return all(users[part].sum() and users[~part].sum() for part in parts)


def sold_draws(moments: SoldMoments, correction: AnyCorrection, rank: int) -> Draws:
    """The same for SOLD's basis, from the moments it was made of: no further pass.

    Parts are corrected with everybody's coverage, so what coverage varies between them counts as error too: the radius
    errs on the large side.
    """
    pairs, span = moments.pairs, correction.span
    last = [moments.dim - rank, moments.dim - 1]

    def fit(parts: list[Bools]) -> list[Floats]:
        sums = [pairs.products[part].sum(axis=0) / max(pairs.counts[part].sum(), 1) for part in parts]
        found = [correction.filled(correction.pooled(mean), rank) for mean in sums]
        return [eigh(span @ inside @ span.T, subset_by_index=last)[1] for inside in found]

    return draws_by(fit, len(pairs.counts))


def draws_by(fit: Callable[[list[Bools]], list[Floats]], buckets: int) -> Draws:
    """Draws from bases (d, k) that `fit` finds in parts of the buckets; eighths only where halves agree well."""
    eighths = _tangents(_cosines(*fit(dealt(buckets, 2))), 1)[0] <= SMALL  # or eighths are worse still
    return _compare(fit, buckets, eighths=eighths)


def _compare(fit: Callable[[list[Bools]], list[Floats]], buckets: int, *, eighths: bool) -> Draws:
    """Draws from bases (d, k) that `fit` finds in parts of the buckets: eighths if they are to be tried and agree well
    enough, or else several splits in halves."""
    if eighths:
        bases = fit(dealt(buckets, PARTS))
        cosines = [_cosines(a, b) for a, b in zip(bases[::2], bases[1::2], strict=True)]
        if np.median([_tangents(c, 1)[0] for c in cosines]) <= SMALL:
            return _draws(cosines, PARTS, hopeless=False)
    bases = fit(splits(buckets))
    cosines = [_cosines(a, b) for a, b in zip(bases[::2], bases[1::2], strict=True)]
    return _draws(cosines, 2, hopeless=_by_chance(cosines, *bases[0].shape))


def splits(buckets: int) -> list[Bools]:
    """Several splits of the buckets in halves: one half after another, side by side."""
    return [side for signs in balanced_signs(buckets)[:SPLITS] for side in (signs > 0, signs < 0)]


def _draws(cosines: list[Floats], parts: int, *, hopeless: bool) -> Draws:
    spectral, frobenius = zip(*(_tangents(c, parts) for c in cosines), strict=True)
    return Draws(parts, spectral, frobenius, hopeless)


def _basis(population: Population, rank: int) -> Floats:
    return population.leading(rank)


def _cosines(first: Floats, second: Floats) -> Floats:
    """Cosines (k,) of the angles between two subspaces given by orthonormal bases (d, k)."""
    return np.clip(np.linalg.svd(first.T @ second, compute_uv=False).astype(np.float64), 1e-9, 1.0)


def _tangents(cosines: Floats, parts: int) -> tuple[float, float]:
    """The largest tangent, and the Frobenius norm of all, of the error of `parts` parts together."""
    squares = (1.0 / cosines - 1.0) / parts
    return float(np.sqrt(squares.max())), float(np.sqrt(squares.sum()))


def _by_chance(cosines: list[Floats], dim: int, rank: int) -> bool:
    """Whether the least cosine is, on average, no more than a random last direction would have.

    The squared cosine of a random direction in f dimensions with a fixed one is Beta(1/2, (f - 1) / 2).
    """
    free = dim - rank + 1
    if free < 2:
        return False
    squares = np.mean([float(c.min()) ** 2 for c in cosines])
    return bool(squares <= betaincinv(0.5, (free - 1) / 2, 1 - CHANCE))
