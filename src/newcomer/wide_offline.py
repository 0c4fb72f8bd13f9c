"""WideOffline: what SOLD says of logs with many one-hot actions, from a few passes and without a d x d matrix.

One pass adds up what has d entries: coverage, half estimates, margins of pairs. A few more find the leading values of
the second moment. That is all that em asks for; no null and no radius of the paper is computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from newcomer.arrays import Floats
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logbook import Logs
from newcomer.offline import nothing_reached
from newcomer.population.record import Estimate
from newcomer.radius import Ingredients
from newcomer.sold.wide_correction import MarginCorrection, Run
from newcomer.sold.wide_moments import WideMoments, wide_moments_of
from newcomer.subspace import leading_by_products

LEADING = 24  # values of the spectrum that are kept
COLUMNS, PASSES = 16, 3  # of the products that em's are found from
NAMED = 10  # actions that are named


@dataclass(frozen=True, eq=False)
class WideOffline:
    """What follows from a few passes."""

    logs: Logs
    moments: WideMoments
    spectrum: Floats  # the leading values
    tests: tuple[RankTest, ...] = ()

    @classmethod
    def of(
        cls,
        logs: Logs,
        run: Run,
        ridge: float | None,
        *,
        rank: int | Literal["auto"],
        estimator: str,
        literal: bool,
        null: bool,
    ) -> WideOffline:
        """Add up what has d entries, then find the leading values."""
        moments: WideMoments = run(partial(wide_moments_of, ridge=ridge, actions=logs.dim), WideMoments.__add__)
        if not (moments.coverage > 0).all(axis=0).any():
            raise nothing_reached(logs.dim)
        correction, everybody = MarginCorrection.of(moments), np.ones(len(moments.counts))

        def products(blocks: Sequence[Floats]) -> list[Floats]:
            return correction.products(run, ridge, [everybody], blocks)

        start = np.random.default_rng(0).standard_normal((logs.dim, COLUMNS))
        values, _ = leading_by_products(products, [start], passes=PASSES)[0]
        return cls(logs, moments, values[:LEADING].copy())

    def facts(self, rank: int) -> CoverageFacts:
        """lambda_A and the plug-in for lambda_theta; actions that a half has not met are counted, ten of them named."""
        means, names = self.moments.coverage / self.moments.count, self.logs.action_ids or ()
        missed = (means == 0).sum(axis=0)
        never, once = (np.flatnonzero(missed == halves) for halves in (2, 1))
        largest = self.moments.reward_max
        theta = float(self.spectrum[rank - 1]) / largest**2 if 0 < rank <= len(self.spectrum) and largest else 0.0
        return CoverageFacts(
            lambda_A=float(means[:, missed == 0].min()),
            lambda_theta=theta,
            uncovered=len(never) + len(once),
            uncovered_features=tuple(np.flatnonzero(missed)[:NAMED].tolist()),
            never=len(never),
            never_features=tuple(str(names[i]) for i in never[:NAMED]),
            one_half=len(once),
            one_half_features=tuple(str(names[i]) for i in once[:NAMED]),
        )

    def radius(self, rank: int) -> Ingredients | None:
        """The paper's radii are not computed for em."""
        return None

    def estimate(self, *, calibrate: bool) -> Estimate:
        """SOLD's own estimate."""
        raise AssertionError
