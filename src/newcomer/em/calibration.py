"""How sure a basis by EM is: the population fitted to parts of the users, whose disagreement tells its error.

`newcomer.sold.radius_terms` has the formulas. Eighths of the users are tried first (every user is read once per step,
whatever the number of parts), unless the moments of halves are already far apart. Every part starts from its own
moments: started from the common fit, parts would inherit its errors and agree by descent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.em.optimizer import Optimizer, Shrinkage
from newcomer.em.passes import Ascent, Passes
from newcomer.em.shrinkage import FitStart, HeldoutFold, shrinkage_noise_floor
from newcomer.em.spikes import SpikeSearch
from newcomer.population import Population
from newcomer.radius import Draws
from newcomer.sold.radius_terms import (
    FAR,
    PARTS,
    SPLITS,
    radius_terms_cosines,
    radius_terms_draws_by,
    radius_terms_of_parts,
    radius_terms_splits,
    radius_terms_tangents,
)
from newcomer.users import Split, dealt_user_buckets, user_bucket_signs

ROOM = 1_000_000  # entries of W up to which there is memory for so many ascents at once
LARGE = 1.0  # tangent of the error of half of the moments beyond which no eighth will be that good
TOLERANCE, EACH = 0.05, 1e-3  # gain in log-likelihood, in all or per parameter, at which the fit of a part ends
STAGE = "how sure: parts"


class Parts:
    """Fits of parts of the users, each from its own moments, with the penalty of the fit to everybody.

    Most of the passes can be shared: `ascents` will be needed in any case, and take their steps in passes that are made
    anyway.
    """

    def __init__(self, origin: FitStart, penalty: Shrinkage) -> None:
        # What an earlier fit knows would make all parts agree, whatever their users say.
        self.origin, self.penalty, self.size = origin, replace(penalty, earlier=None), len(penalty.weights) - 1
        buckets = len(origin.pairs.users)
        halves = [signs > 0 for signs in user_bucket_signs(buckets)[:SPLITS]]
        self.possible = _all_have(origin.pairs.users, halves)
        self._started_parts: dict[int, list[Ascent]] = {}
        # Fits of eighths are worth their passes if at least the moments of halves are close.
        few = _all_have(origin.pairs.users, dealt_user_buckets(buckets, PARTS))
        self.roomy = room_for_calibration(len(penalty.anchor), self.size)
        self.eighths = self.possible and self.roomy and few and self._moments_agree()

    def _moments_agree(self) -> bool:
        self.origin.moment.prepare(self._halves(), max(self.size, 1))
        bases = [_basis(self.origin.start(half, self.size), max(self.size, 1)) for half in self._halves()]
        return radius_terms_tangents(radius_terms_cosines(*bases), 1)[0] <= LARGE

    def _halves(self) -> list[Bools]:
        return dealt_user_buckets(len(self.origin.pairs.users), 2)

    @property
    def ascents(self) -> list[Ascent]:
        """The ascents of the parts that are looked at first."""
        if not self.possible or not self.roomy:
            return []
        buckets = len(self.origin.pairs.users)
        return self._of(dealt_user_buckets(buckets, PARTS) if self.eighths else radius_terms_splits(buckets))

    def _of(self, parts: list[Bools]) -> list[Ascent]:
        """The ascents of parts of some size, started at their first use."""
        size = int(parts[0].sum())
        if size not in self._started_parts:
            self._started_parts[size] = self._started(parts)
        return self._started_parts[size]

    def _started(self, parts: list[Bools]) -> list[Ascent]:
        """Ascents of parts from their own moments."""
        self.origin.moment.prepare(parts, self.size)
        parted = [Split(part, np.zeros_like(part)) for part in parts]
        folds, floor = [HeldoutFold(self.origin, split) for split in parted], shrinkage_noise_floor(self.origin.pairs)
        optimizers = [Optimizer(fold.start(self.size), fold.gram, self.penalty, floor) for fold in folds]
        return [Ascent(optimizer, split, TOLERANCE, EACH) for optimizer, split in zip(optimizers, parted, strict=True)]

    def draws(self, passes: Passes, rank: int) -> Draws:
        """Draws of the error of a basis of this rank, by as many further passes as the parts still need."""
        if not self.possible:
            return Draws(2, (FAR, FAR), (FAR, FAR), hopeless=True)  # too few users to fit parts of them apart

        def ascended(ascents: list[Ascent]) -> list[Floats]:
            passes.ascend(ascents, stage=STAGE)
            return [_basis(ascent.optimizer.best or ascent.optimizer.trial, rank) for ascent in ascents]

        def fit(parts: list[Bools]) -> list[Floats]:
            if self.roomy:
                return ascended(self._of(parts))
            pairs = [list(pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            return [basis for pair in pairs for basis in ascended(self._started(pair))]

        return radius_terms_of_parts(fit, len(self.origin.pairs.users), eighths=self.eighths)


class MomentParts:
    """The same by the moments of all users, where these have chosen: ascents of parts of them would take too many
    passes.

    Moments err more than the fit does, so the radius errs on the large side. `base` has everything but directions.
    """

    def __init__(self, moments: SpikeSearch, base: Population) -> None:
        self.moments, self.base, self.origin = moments, base, moments.origin

    def draws(self, passes: Passes, rank: int) -> Draws:
        """Draws of the error of a basis of this rank, without a pass; where many actions leave no room, none is known.

        `passes` is not used.
        """
        wide, buckets = self.origin.moment.by_passes, len(self.moments.every)
        if wide and not room_for_calibration(len(self.base.mean), self.moments.most):
            return Draws(2, (FAR, FAR), (FAR, FAR), hopeless=True)

        def fit(parts: list[Bools]) -> list[Floats]:
            size = min(rank, self.moments.most)
            return [_basis(one.population(self.base, size), rank) for one in self.moments.of(parts)]

        return radius_terms_of_parts(fit, buckets, eighths=False) if wide else radius_terms_draws_by(fit, buckets)


def room_for_calibration(dim: int, rank: int) -> bool:
    """Whether there is memory for fits of several parts of the users at once."""
    return dim * (rank + 1) <= ROOM


def _all_have(users: Ints, parts: list[Bools]) -> bool:
    """Whether each part of the buckets, and the rest, has users; `users` (B,) are counted by bucket."""
    return all(users[part].sum() and users[~part].sum() for part in parts)


def _basis(population: Population, rank: int) -> Floats:
    return population.leading(rank)
