"""Fits to a part of the users, so that something can be measured on the others, where no search has left such fits.

A refit keeps the rank and the shrinkage of the fit before it, and holds nobody out to choose them. What it is worth to
newcomers (`outlook`) is still to be told by people it has not met. The fit before may have met them, so these climbs
begin with the moments of the users they are fitted to, and not where that fit ended.
"""

from __future__ import annotations

from newcomer.arrays import Bools
from newcomer.population.beginning import Begin, Fold
from newcomer.population.estimation import arrived
from newcomer.population.passing import Ascent, Passes
from newcomer.population.record import Population
from newcomer.population.search import ROUGH, ROUGHLY
from newcomer.users import folds

HeldOut = tuple[tuple[Population, Bools], ...]  # populations, each with the buckets (B,) of users it was not fitted to


def fit_apart(passes: Passes, begin: Begin, rank: int, precision: float) -> HeldOut:
    """Populations of this rank and precision, each without a fold of the users; none where users are too few."""
    apart = [Fold(begin, split) for split in folds(begin.pairs.users)]
    if not apart:
        return ()
    climbers = [fold.climber(precision, fold.start(rank)) for fold in apart]
    ascents = [Ascent(one, fold.split, ROUGH, ROUGHLY) for one, fold in zip(climbers, apart, strict=True)]
    passes.climb(ascents, stage="fitting without some")
    return tuple((arrived(one.climber, begin), one.split.judged) for one in ascents if one.climber.best is not None)
