"""The second moment of users by SOLD, whatever the estimator: one interface for few features and for many actions.

Coverage, the spectrum, the test of the rank and the terms of the paper's radii are needed of every fit. `DenseSold` has
them from d x d sums that one pass adds up; `SparseSold` (`newcomer.sold.sparse`) from a few passes more, where one-hot
actions are too many for a d x d matrix. `find_second_moment` takes the one that suits the logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol
from warnings import warn

import numpy as np

from newcomer.arrays import Floats
from newcomer.errors import FitWarning, LogsError
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logs import BATCH_BYTES, Logs
from newcomer.logs.reduce import CODED, Pass, PassOver
from newcomer.population import Estimate, Population
from newcomer.radius import Ingredients
from newcomer.sold.correction import (
    Coverage,
    MomentCorrection,
    corrected_population_mean,
    corrected_second_moment,
    correction_of,
    coverage_for_correction,
)
from newcomer.sold.coverage import (
    SMALLEST_NOISE,
    NoCoverageError,
    classify_uncovered,
    named_for_coverage,
    no_coverage_error,
)
from newcomer.sold.dealt import DealtPass
from newcomer.sold.moments import Moments, merge_moments, moments_of, moments_share_near_square
from newcomer.sold.one_hot_moments import one_hot_moments_of
from newcomer.sold.radius_terms import radius_terms_of, radius_terms_sold_draws
from newcomer.sold.rank_test import rank_flip_tests
from newcomer.sold.sparse import SparseSold
from newcomer.subspace import top_eigenvectors

UNPAIRED, OFTEN = 0.1, 5.0  # share of pairs, each expected so often, that never meet across the halves: one order
NEAR_SQUARE = 0.01  # share of users with nearly square halves from which pseudo-inverses are warned of


class SecondMoment(Protocol):
    """What a fit asks of E[beta beta^T]."""

    @property
    def tests(self) -> tuple[RankTest, ...]:
        """The tests of the rank of the second moment and of the covariance, where they were asked for."""

    @property
    def spectrum(self) -> Floats:
        """Its leading eigenvalues, largest first."""

    def facts(self, rank: int) -> CoverageFacts:
        """How well actions cover the features, for a basis of this rank."""

    def radius(self, rank: int) -> Ingredients | None:
        """What the paper's radii of a basis of this rank follow from."""

    def estimate(self, *, calibrate: bool) -> Estimate:
        """SOLD's basis and population."""

    @property
    def share_near_square(self) -> float:
        """The share of users whose halves have about as many rows as there are features."""


@dataclass(frozen=True)
class SoldSettings:
    """What is asked of SOLD; `ridge` None is the pseudo-inverse version."""

    rank: int | Literal["auto"]
    ridge: float | None
    literal: bool = False
    null: bool = True
    spectrum_only: bool = False  # for em, which finds its own basis


def find_second_moment(
    logs: Logs,
    asked: SoldSettings,
    *,
    before: Moments | None = None,
    keep: Callable[[Moments], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SecondMoment:
    """The second moment of the users of logs; of few features with the moments of users `before` added, and kept.

    Where everybody met the same actions in the same order, as in a questionnaire, odd and even steps have no pairs of
    actions in common, and nothing follows from them. Then rows are dealt to halves by lot.
    """
    missing = 0.0
    try:
        found, own = _second_moment(logs, asked, before, progress, dealt=False)
        missing = 0.0 if asked.literal or own is None else _share_never_paired(own)
    except NoCoverageError:
        if asked.literal:
            raise
        found, own, missing = None, None, 1.0
    if missing > UNPAIRED:
        again, dealt = _second_moment(logs, asked, before, progress, dealt=True)
        if found is None or dealt is None or _share_never_paired(dealt) < 0.5 * missing:
            found = replace(again, dealt=True)
    assert found is not None
    if keep is not None and isinstance(found, DenseSold):
        keep(found.moments)
    return found


def _share_never_paired(moments: Moments) -> float:
    """The share of pairs of one-hot actions that never meet across the halves, of those that by chance would often."""
    joint = moments.joint
    if not joint.size:
        return 0.0
    met = np.diagonal(moments.mean_coverage, axis1=1, axis2=2).sum(axis=0)
    both, chance = joint + joint.T, 0.5 * moments.count * np.outer(met, met)
    able = (chance >= OFTEN) & ~np.eye(len(joint), dtype=np.bool_)
    return float(np.mean(both[able] < 0.05 * chance[able])) if able.any() else 0.0


def _second_moment(
    logs: Logs,
    asked: SoldSettings,
    before: Moments | None,
    progress: Callable[[int, int], None] | None,
    *,
    dealt: bool,
) -> tuple[DenseSold | SparseSold, Moments | None]:
    """The same by halves as they are, or dealt by lot; of few features with the moments of these logs alone."""
    if logs.wide:
        if logs.intercept:
            todo = "leave it out: the mean of one-hot features has the level of every action already"
            raise LogsError(f"a constant beside {logs.dim - 1:,} one-hot actions", where="intercept", todo=todo)
        run: Pass = PassOver(logs, CODED, progress)
        run = DealtPass(run) if dealt else run
        how: dict[str, Any] = {"rank": asked.rank, "literal": asked.literal, "null": asked.null}
        return SparseSold.of(logs, run, asked.ridge, spectrum_only=asked.spectrum_only, **how), None
    one_hot = logs.one_hot and not logs.intercept
    add_up = partial(one_hot_moments_of if one_hot else moments_of, ridge=asked.ridge)
    rows = CODED if one_hot else second_moment_batch_rows(logs.dim)
    run = PassOver(logs, rows, progress)
    own = (DealtPass(run) if dealt else run)(add_up, merge_moments)
    moments = own if before is None else merge_moments(before, own)
    return DenseSold.of(logs, moments, rank=asked.rank, literal=asked.literal, null=asked.null), own


def second_moment_batch_rows(dim: int) -> int:
    """Rows of a batch: enough that adding up its d x d sums costs little beside computing them."""
    return max(BATCH_BYTES // (8 * dim), 16 * dim)


def second_moment_ridge(logs: Logs, estimator: str, ridge: float | None) -> tuple[float | None, str]:
    """The ridge of the half estimates, None for the pseudo-inverse, and where it came from."""
    if estimator == "sold-pinv":
        return None, "pseudo-inverse: no ridge"
    if ridge is not None:
        return float(ridge), "given"
    norm = logs.summary.mean_squared_norm
    if norm == 0:
        raise LogsError("all features are zero", todo="log features that tell actions apart")
    return norm, "mean squared norm of the features"


def warn_of_second_moment(found: SecondMoment, ridge: float | None, dim: int, *, stacklevel: int) -> str:
    """Warn where pseudo-inverses fail on these logs; the same in a few words, for the evidence, or nothing."""
    share = found.share_near_square if ridge is None else 0.0
    if share < NEAR_SQUARE:
        return ""
    users = f"{share:.0%} of the users have halves of about {dim} rows, as many as there are features"
    warn(
        f"sold-pinv is not to be trusted here: {users}, and a pseudo-inverse of such a half multiplies the noise; use "
        "estimator='sold'",
        FitWarning,
        stacklevel=stacklevel + 1,
    )
    return f"; not to be trusted: {users}"


@dataclass(frozen=True, eq=False)
class DenseSold:
    """What follows from SOLD's moments; `tests` are those of the second moment and of the covariance, if asked for."""

    logs: Logs
    moments: Moments
    coverage: Coverage
    correction: MomentCorrection
    tests: tuple[RankTest, ...]
    moment: Floats  # (d, d)
    spectrum: Floats  # (d,)
    directions: Floats  # (d, d) its eigenvectors
    rank: int  # that was asked for, or found by the test
    dealt: bool = False  # whether rows were dealt to halves by lot

    @classmethod
    def of(cls, logs: Logs, moments: Moments, *, rank: int | Literal["auto"], literal: bool, null: bool) -> DenseSold:
        """Correct the moments, test the rank, and take the leading directions."""
        coverage = coverage_for_correction(moments)
        if coverage.uncovered.shape[1] == logs.dim:
            raise no_coverage_error(logs.dim)
        correction = correction_of(moments, coverage, literal=literal)
        tests = rank_flip_tests(moments, correction=correction) if null else None
        asked = rank if rank != "auto" else tests.moment.rank if tests else 0
        moment = corrected_second_moment(moments, correction=correction, rank=asked)
        spectrum, directions = top_eigenvectors(moment, logs.dim)
        evidence = tuple(test.evidence() for test in tests or ())
        return cls(logs, moments, coverage, correction, evidence, moment, spectrum, directions, asked)

    @property
    def basis(self) -> Floats:
        """The leading directions (d, k)."""
        return np.ascontiguousarray(self.directions[:, : self.rank])

    @property
    def share_near_square(self) -> float:
        """The share of users whose halves have about as many rows as there are features."""
        return moments_share_near_square(self.moments)

    def radius(self, rank: int) -> Ingredients | None:
        """What the paper's radii of a basis of this rank follow from."""
        return radius_terms_of(self.moments, self.correction, self.spectrum, self.directions[:, :rank])

    def estimate(self, *, calibrate: bool) -> Estimate:
        """The population in the span of SOLD's `basis` (d, k), with mean m and covariance S - m m^T of its moments.

        S = `moment` (d, d) is an estimate, so that S - m m^T may have negative eigenvalues: F F^T is its positive part.
        The noise variance follows from E[r^2] = s2 + E[phi^T S phi], averaged over odd steps.
        """
        moments, moment, basis = self.moments, self.moment, self.basis
        mean = corrected_population_mean(moments, coverage=self.coverage)
        values, vectors = np.linalg.eigh(basis.T @ (moment - np.outer(mean, mean)) @ basis)
        factor = basis @ (vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0)))
        power = moments.reward_squares / moments.rows
        noise_variance = power - float(np.vdot(moment, moments.gram)) / moments.rows
        noise_variance = max(noise_variance, SMALLEST_NOISE * power) if power else 1.0
        rank = basis.shape[1]
        draws = radius_terms_sold_draws(moments, self.correction, rank) if rank and calibrate else None
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
            bounded_actions=named_for_coverage(bound, logs),
            dealt=self.dealt,
        )
