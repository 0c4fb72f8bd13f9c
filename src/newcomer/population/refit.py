"""Refit: the distribution of users from one that was fitted before, without searching again.

With the old logs and the new ones at hand, EM climbs from the old population, with its rank and its precision, to the
population of highest penalised likelihood of all of them: the answer does not depend on where the climb began, only the
passes that it takes do. With the new logs alone it cannot be found, since EM needs the rows again. What can be done is
to fit the new users and to `blend`: the mixture of two populations has the mean and the covariance of both together,
cut down to the rank. That is approximate: both fits were shrunk, and one population fitted to all of the rows weighs
each direction by how much the rows of each user tell of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from newcomer.arrays import Floats
from newcomer.population.beginning import begin_with
from newcomer.population.calibration import Parts
from newcomer.population.estimation import Fitted, everybody_of, finish, some_of
from newcomer.population.passing import Passes
from newcomer.population.record import Population


def refit_population(
    passes: Passes,
    start: Population,
    *,
    precision: float,
    persistence: float | None = None,
    calibrate: bool = False,
) -> Fitted:
    """Climb from `start` to the best population of its rank; `precision` is that of the entries of its factor."""
    begin, few = begin_with(passes, persistence), some_of(passes)
    climber = everybody_of(begin).climber(precision, start)
    fitted = finish(passes, begin, climber, calibrate=calibrate and few is passes)
    if few is passes:
        return fitted
    return replace(fitted, chosen=few, parts=Parts(begin_with(few, persistence), fitted.climber.penalty))


def blend(first: Population, second: Population, share: float) -> Population:
    """The population of two groups of users, a `share` of whom is in the second, with the rank of the second.

    >>> one, two = (Population(np.array([m]), np.ones((1, 1)), 1.0) for m in (0.0, 2.0))
    >>> both = blend(one, two, 0.5)
    >>> both.mean.tolist(), round(float(both.factor[0, 0] ** 2), 6)
    ([1.0], 2.0)
    """
    mean = (1 - share) * first.mean + share * second.mean
    gap = np.sqrt(share * (1 - share)) * (first.mean - second.mean)
    root = np.column_stack([np.sqrt(1 - share) * first.factor, np.sqrt(share) * second.factor, gap])
    left, lengths, _ = np.linalg.svd(root, full_matrices=False)
    several = first.by_action is not None and second.by_action is not None
    return replace(
        second,
        mean=mean,
        factor=left[:, : second.rank] * lengths[: second.rank],
        noise_variance=(1 - share) * first.noise_variance + share * second.noise_variance,
        by_action=(1 - share) * first.variances + share * second.variances if several else second.by_action,
        offsets=None if second.offsets is None else (1 - share) * first.levels + share * second.levels,
        uncertainty=_blended(first.uncertainty, second.uncertainty, share),
    )


def _blended(first: Floats | None, second: Floats | None, share: float) -> Floats | None:
    """The variance of the error of a weighted mean of two that err independently; as of the second alone if only that
    is known.
    """
    return second if first is None or second is None else (1 - share) ** 2 * first + share**2 * second
