"""How much of the residual lasts, told by users who met an action more than once, and by nothing else."""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats
from newcomer.evidence import PersistenceFacts
from newcomer.population.all_pairs import TINY, AnyPairs

LASTING = 0.95  # the largest share that can last: a person who never wavers is not told apart from one who hardly does


def share_of(pairs: AnyPairs, variances: Floats) -> PersistenceFacts | None:
    """The share of the residual that lasts, by users who met an action again; None where nobody did.

    Of an action with variance v, what does not last has the variance (1 - share) v, and so have deviations of a user's
    rewards from their own mean, over n - 1. So the sum of their squares over the sum of v, each repeat counted once,
    estimates 1 - share whatever lasts, whatever users like, and however they choose. Its standard error is that of a
    ratio of sums over buckets of users. `repeats` is the number of normal residuals that would tell as much.
    """
    if not pairs.again.sum():
        return None
    expected = pairs.again @ variances
    within, total = pairs.within.sum(axis=1), float(expected.sum())
    ratio = float(within.sum()) / total
    error = float(np.sqrt(np.sum((within - ratio * expected) ** 2))) / total
    normal = float(np.sqrt(2.0 * float(again_squares(pairs, variances)))) / total * min(ratio, 1.0)
    error = max(error, normal)
    estimate = min(max(1.0 - ratio, 0.0), LASTING)
    return PersistenceFacts(2.0 * (min(ratio, 1.0) / max(error, TINY)) ** 2, ratio, estimate, error)


def again_squares(pairs: AnyPairs, variances: Floats) -> float:
    """The sum over repeats of v^2: what the variance of their squared deviations is proportional to."""
    return float(pairs.again.sum(axis=0) @ variances**2)
