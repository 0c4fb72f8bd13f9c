"""Offline: what SOLD says of some logs, whatever the estimator: coverage, spectrum, test of the rank, radii.

From moments that are d x d (`newcomer.sold`). Where one-hot actions are many, `newcomer.sold.sparse` says the same
from a few passes more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import LogsError
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logs import Logs
from newcomer.population import Estimate, Population
from newcomer.radius import Ingredients
from newcomer.sold.correction import (
    AnyCorrection,
    Coverage,
    correction_of,
    coverage_of,
    population_mean,
    second_moment,
)
from newcomer.sold.coverage import classify_uncovered
from newcomer.sold.moments import Moments
from newcomer.sold.radius_terms import ingredients_of, sold_draws
from newcomer.sold.rank_test import flip_tests
from newcomer.subspace import top_eigenvectors

SMALLEST_NOISE = 1e-9  # of the mean squared reward: a noise variance is never zero
NAMED = 10  # actions that are named


@dataclass(frozen=True, eq=False)
class DenseSold:
    """What follows from SOLD's moments; `tests` are those of the second moment and of the covariance, if asked for."""

    logs: Logs
    moments: Moments
    coverage: Coverage
    correction: AnyCorrection
    tests: tuple[RankTest, ...]
    moment: Floats  # (d, d)
    spectrum: Floats  # (d,)
    directions: Floats  # (d, d) its eigenvectors
    rank: int  # that was asked for, or found by the test

    @classmethod
    def of(cls, logs: Logs, moments: Moments, *, rank: int | Literal["auto"], literal: bool, null: bool) -> DenseSold:
        """Correct the moments, test the rank, and take the leading directions."""
        coverage = coverage_of(moments)
        if coverage.uncovered.shape[1] == logs.dim:
            raise nothing_reached(logs.dim)
        correction = correction_of(moments, coverage, literal=literal)
        tests = flip_tests(moments, correction=correction) if null else None
        asked = rank if rank != "auto" else tests.moment.rank if tests else 0
        moment = second_moment(moments, correction=correction, rank=asked)
        spectrum, directions = top_eigenvectors(moment, logs.dim)
        told = tuple(test.evidence() for test in tests or ())
        return cls(logs, moments, coverage, correction, told, moment, spectrum, directions, asked)

    @property
    def basis(self) -> Floats:
        """The leading directions (d, k)."""
        return np.ascontiguousarray(self.directions[:, : self.rank])

    def radius(self, rank: int) -> Ingredients | None:
        """What the paper's radii of a basis of this rank follow from."""
        return ingredients_of(self.moments, self.correction, self.spectrum, self.directions[:, :rank])

    def estimate(self, *, calibrate: bool) -> Estimate:
        """The population in the span of SOLD's `basis` (d, k), with mean m and covariance S - m m^T of its moments.

        S = `moment` (d, d) is an estimate, so that S - m m^T may have negative eigenvalues: F F^T is its positive part.
        The noise variance follows from E[r^2] = s2 + E[phi^T S phi], averaged over odd steps.
        """
        moments, moment, basis = self.moments, self.moment, self.basis
        mean = population_mean(moments, coverage=self.coverage)
        values, vectors = np.linalg.eigh(basis.T @ (moment - np.outer(mean, mean)) @ basis)
        factor = basis @ (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))
        power = moments.reward_squares / moments.rows
        noise_variance = power - float(np.vdot(moment, moments.gram)) / moments.rows
        noise_variance = max(noise_variance, SMALLEST_NOISE * power) if power else 1.0
        rank = basis.shape[1]
        draws = sold_draws(moments, self.correction, rank) if rank and calibrate else None
        return Estimate(basis, Population(mean, factor, float(noise_variance)), draws)

    def facts(self, rank: int) -> CoverageFacts:
        """lambda_A and lambda_theta of Assumption 2 (the latter by its plug-in), and what was not reached and why."""
        coverage, logs, largest = self.coverage, self.logs, self.moments.reward_max
        weights = np.abs(coverage.uncovered).max(axis=1) if coverage.uncovered.size else np.zeros(0)
        never, collinear, one_half = classify_uncovered(coverage, logs.direction_names, logs.table)
        bound = self.correction.bound_actions(self.moment, self.rank)
        return CoverageFacts(
            lambda_A=coverage.smallest,
            lambda_theta=float(self.spectrum[rank - 1]) / largest**2 if rank and largest else 0.0,
            uncovered=int(coverage.uncovered.shape[1]),
            uncovered_features=tuple(int(i) for i in np.argsort(-weights, kind="stable")[:10] if weights[i] > 0.5),
            never=never.directions,
            never_features=never.features,
            collinear=collinear.directions,
            collinear_groups=collinear.groups,
            one_half=one_half.directions,
            one_half_features=one_half.features,
            bounded=len(bound),
            bounded_actions=named(bound, logs),
        )


def named(places: Ints, logs: Logs) -> tuple[str, ...]:
    """The first few of these actions by name."""
    names = logs.action_ids or ()
    return tuple(str(names[i]) for i in places[:NAMED]) if names else ()


def nothing_reached(dim: int) -> LogsError:
    """The refusal of logs that reach no direction in both halves."""
    return LogsError(
        f"no direction of the {dim} features is reached by both halves of the histories",
        todo="log more rows, or use fewer features",
    )


def check_coverage(found: CoverageFacts, logs: Logs) -> None:
    """Refuse logs that leave directions out."""
    if found.uncovered:
        raise LogsError(
            f"{found.uncovered} of {logs.dim} directions of the features are not reached: {'; '.join(found.reasons())}",
            todo="log actions that reach them, drop the features, or pass uncovered='restrict'",
        )
