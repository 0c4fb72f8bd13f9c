"""WideOffline: what SOLD says of logs with many one-hot actions, from a few passes and without a d x d matrix.

One pass adds up what has d entries: coverage, half estimates, margins of pairs. For em, three more find the leading
values of the second moment, by margins; no null and no radius of the paper is computed, since nobody has asked. For
sold, `newcomer.sold.wide_sold` finds directions, null and draws of the error, by as many passes as that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import ModelError
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logbook import Logs
from newcomer.offline import NAMED, SMALLEST_NOISE, named, nothing_reached
from newcomer.population.record import Estimate, Population
from newcomer.radius import Ingredients
from newcomer.sold.calibration import draws_by
from newcomer.sold.joint_coverage import completion_factor
from newcomer.sold.kept_pairs import fits
from newcomer.sold.wide_correction import Run
from newcomer.sold.wide_moments import WideMoments, wide_moments_of
from newcomer.sold.wide_sold import LEADING, AnyWide, ByMargins, Leading, Pairwise, square_norm

FEW_PASSES = 3  # that em's spectrum is found from


@dataclass(frozen=True, eq=False)
class WideOffline:
    """What follows from a few passes; `rank` is that asked for, or found by the test (sold)."""

    logs: Logs
    way: AnyWide
    rank: int
    found: Leading
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
        """Add up what has d entries, then find the leading directions; for em their lengths alone."""
        moments: WideMoments = run(partial(wide_moments_of, ridge=ridge, actions=logs.dim), WideMoments.__add__)
        if not (moments.coverage > 0).all(axis=0).any():
            raise nothing_reached(logs.dim)
        if estimator == "em":
            margins = ByMargins.of(run, ridge, moments)
            return cls(logs, margins, 0, margins.leading(0, passes=FEW_PASSES))
        way: AnyWide
        if fits(moments):
            way = Pairwise.of(run, ridge, moments, literal=literal)
        elif literal:
            what = f"{moments.pairs:,} pairs of actions are too many for the correction as printed"
            raise ModelError(what, todo="leave literal out")
        else:
            way = ByMargins.of(run, ridge, moments)
        test = way.test() if null else None
        asked = rank if rank != "auto" else test.rank if test else 0
        found = way.leading(asked, max(LEADING, asked + 1))
        return cls(logs, way, asked, found, (test.evidence(),) if test else ())

    @property
    def moments(self) -> WideMoments:
        """The sums of the first pass."""
        return self.way.moments

    @property
    def spectrum(self) -> Floats:
        """The leading values of the second moment."""
        return self.found.values

    def facts(self, rank: int) -> CoverageFacts:
        """lambda_A and the plug-in for lambda_theta; actions that a half has not met are counted, ten of them named."""
        means = self.moments.coverage / self.moments.count
        missed = (means == 0).sum(axis=0)
        never, once = (np.flatnonzero(missed == halves) for halves in (2, 1))
        bound = self.moments.at_bound(self.found.diagonal) if self.way.completes else never[:0]
        largest = self.moments.reward_max
        theta = float(self.spectrum[rank - 1]) / largest**2 if 0 < rank <= len(self.spectrum) and largest else 0.0
        return CoverageFacts(
            lambda_A=float(means[:, missed == 0].min()),
            lambda_theta=theta,
            uncovered=len(never) + len(once),
            uncovered_features=tuple(np.flatnonzero(missed)[:NAMED].tolist()),
            never=len(never),
            never_features=named(never, self.logs),
            one_half=len(once),
            one_half_features=named(once, self.logs),
            correction=self.way.name,
            bounded=len(bound),
            bounded_actions=named(bound, self.logs),
        )

    def radius(self, rank: int) -> Ingredients | None:
        """What the paper's radii follow from, but for the martingale bound; nothing for em, which has its own."""
        if not self.rank:
            return None
        moments, steps = self.moments, 2.0 ** np.arange(len(self.moments.octaves))
        ranges = np.full(len(steps), float(moments.largest[0]))
        if moments.ridge:
            # The longest history of an octave has 2^(i + 1) - 1 rows: halves of 2^i and one less.
            ranges = moments.reward_max**2 * np.sqrt(steps * (steps - 1.0)) / (4 * moments.ridge)
        met, spectrum = moments.octaves > 0, self.spectrum
        return Ingredients(
            users=moments.count,
            dim=moments.dim,
            rank=rank,
            reward_bound=moments.reward_max,
            inverse_norm=self.way.inverse_norm,
            completed=completion_factor(self.found.directions[:, :rank]) if self.way.completes else None,
            mean_square_range=float(moments.octaves / moments.count @ ranges**2),
            largest_range=float(ranges[met].max()),
            square_norm=square_norm(self.way.run, self.way.ridge, moments),
            gap=float(spectrum[rank - 1] - spectrum[rank]),
            eigenvalue=float(spectrum[rank - 1]),
            dilated=False,
        )

    def estimate(self, *, calibrate: bool) -> Estimate:
        """The population in the span of SOLD's directions; see `newcomer.offline.Offline.estimate`."""
        moments, rank, found = self.moments, self.rank, self.found
        total = moments.coverage.sum(axis=0)
        met = (moments.coverage > 0).all(axis=0)
        mean = np.where(met, moments.estimates.sum(axis=0) / np.where(met, total, 1.0), 0.0)
        basis = np.ascontiguousarray(found.directions[:, :rank])
        inside = basis.T @ mean
        values, vectors = np.linalg.eigh(np.diag(found.values[:rank]) - np.outer(inside, inside))
        factor = basis @ (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))
        power = moments.reward_squares / moments.rows
        noise = power - float(moments.gram @ found.diagonal) / moments.rows
        noise = max(noise, SMALLEST_NOISE * power) if power else 1.0
        draws = draws_by(partial(self.way.bases, rank=rank), len(moments.counts)) if rank and calibrate else None
        return Estimate(basis, Population(mean, factor, noise), draws)
