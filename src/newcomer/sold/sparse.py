"""SparseSold: what SOLD says of logs with many one-hot actions, from a few passes and without a d x d matrix.

One pass adds up what has d entries: coverage, half estimates, margins of pairs. For em, three more find the leading
values of the second moment, by margins; no null and no radius of the paper is computed, since nobody has asked. For
sold, leading directions, the null of sign flips and draws of the error take as many passes as they need.

`Pairwise` keeps the pairs of actions that somebody met as a sparse matrix, and does what is done for few actions;
`ByMargins` multiplies by passes and never has more than a few columns, where pairs are too many to be kept. Both are
asked the same: the leading values and directions with the diagonal that a rank gives, what sign flips make of the
largest value, and the directions of parts of the users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array, diags_array

from newcomer.arrays import Bools, Floats
from newcomer.errors import ModelError
from newcomer.evidence import CoverageFacts, RankTest
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import Pass
from newcomer.population import Estimate, Population
from newcomer.radius import Ingredients
from newcomer.sold.correction import TOLERANCE, TURNS, diagonal_correction_factor
from newcomer.sold.coverage import NAMED, SMALLEST_NOISE, named_for_coverage, no_coverage_error
from newcomer.sold.radius_terms import radius_terms_draws_by
from newcomer.sold.rank_test import FlipTest
from newcomer.sold.sparse_moments import (
    BlockProducts,
    KeptPairs,
    MarginCorrection,
    PairCorrection,
    SparseMoments,
    leading_of_sparse_moments,
    sparse_moment_pairs,
    sparse_moment_squares,
    sparse_moments_fit_memory,
    sparse_moments_of,
    top_of_sparse_moments_beside,
)
from newcomer.subspace import fix_subspace_signs, leading_subspace_by_products
from newcomer.users import user_bucket_signs

FEW_PASSES = 3  # that em's spectrum is found from


@dataclass(frozen=True, eq=False)
class SparseSold:
    """What follows from a few passes; `rank` is that asked for, or found by the test (sold)."""

    logs: Logs
    way: SparseMoment
    rank: int
    found: Leading
    tests: tuple[RankTest, ...] = ()
    dealt: bool = False  # whether rows were dealt to halves by lot

    @classmethod
    def of(
        cls,
        logs: Logs,
        run: Pass,
        ridge: float | None,
        *,
        rank: int | Literal["auto"],
        literal: bool,
        null: bool,
        spectrum_only: bool = False,
    ) -> SparseSold:
        """Add up what has d entries, then find the leading directions; their lengths alone for em, which has its own
        directions."""
        moments: SparseMoments = run(partial(sparse_moments_of, ridge=ridge, actions=logs.dim), SparseMoments.__add__)
        if not (moments.coverage > 0).all(axis=0).any():
            raise no_coverage_error(logs.dim)
        if spectrum_only:
            margins = ByMargins.of(run, ridge, moments)
            return cls(logs, margins, 0, margins.leading(0, passes=FEW_PASSES))
        way: SparseMoment
        if sparse_moments_fit_memory(moments):
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
    def moments(self) -> SparseMoments:
        """The sums of the first pass."""
        return self.way.moments

    @property
    def share_near_square(self) -> float:
        """None: one-hot rows are orthogonal or equal, and their halves are never nearly singular."""
        return 0.0

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
            never_features=named_for_coverage(never, self.logs),
            one_half=len(once),
            one_half_features=named_for_coverage(once, self.logs),
            correction=self.way.name,
            bounded=len(bound),
            bounded_actions=named_for_coverage(bound, self.logs),
            dealt=self.dealt,
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
            completed=diagonal_correction_factor(self.found.directions[:, :rank]) if self.way.completes else None,
            mean_square_range=float(moments.octaves / moments.count @ ranges**2),
            largest_range=float(ranges[met].max()),
            square_norm=_sparse_square_norm(self.way.run, self.way.ridge, moments),
            gap=float(spectrum[rank - 1] - spectrum[rank]),
            eigenvalue=float(spectrum[rank - 1]),
            dilated=False,
        )

    def estimate(self, *, calibrate: bool) -> Estimate:
        """The population in the span of SOLD's directions; see `newcomer.sold.second_moment.DenseSold.estimate`."""
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
        draws = (
            radius_terms_draws_by(partial(self.way.bases, rank=rank), len(moments.counts))
            if rank and calibrate
            else None
        )
        return Estimate(basis, Population(mean, factor, noise), draws)


LEADING = 24  # values of the spectrum that are kept, and directions that are tested
COLUMNS, PASSES = 16, 12  # of the products that leading directions are found from; fewer where they settle
SETTLED = 1e-7  # residual of the leading directions, relative to the largest value
FLIPPED = 4  # columns, for each flip


class Leading(NamedTuple):
    """The leading values, largest first, their directions (d, q), and the diagonal (d,) of the moment they are of."""

    values: Floats
    directions: Floats
    diagonal: Floats


class SparseMoment(Protocol):
    """The second moment of many one-hot actions, whichever of both corrections it has."""

    @property
    def run(self) -> Pass:
        """A pass over the logs."""

    @property
    def ridge(self) -> float | None:
        """Of the half estimates; None is the pseudo-inverse."""

    @property
    def moments(self) -> SparseMoments:
        """The sums of the first pass."""

    @property
    def name(self) -> str:
        """What the correction is called in the evidence."""

    @property
    def completes(self) -> bool:
        """Whether the diagonal is completed."""

    @property
    def inverse_norm(self) -> float:
        """A bound on how much the correction enlarges an error."""

    def leading(self, rank: int, count: int = LEADING) -> Leading:
        """The leading `count` values with the diagonal of this rank."""

    def test(self) -> FlipTest:
        """The sign-flip test of the rank."""

    def bases(self, parts: Sequence[Bools], rank: int) -> list[Floats]:
        """Leading directions (d, rank) of parts of the users."""


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Every pair of actions corrected by itself."""

    run: Pass
    ridge: float | None
    moments: SparseMoments
    correction: PairCorrection
    moment: csr_array  # corrected
    name: str

    @classmethod
    def of(cls, run: Pass, ridge: float | None, moments: SparseMoments, *, literal: bool) -> Pairwise:
        """Sum the pairs, in one pass."""
        everybody = np.ones(len(moments.counts))
        asked = partial(sparse_moment_pairs, ridge=ridge, actions=moments.dim, weights=everybody, joint=True)
        kept: KeptPairs = run(asked, KeptPairs.__add__)
        assert kept.joint is not None
        correction = PairCorrection.of(moments, kept.joint.matrix, literal=literal)
        moment = correction.corrected(kept.products.matrix, moments.count)
        return cls(run, ridge, moments, correction, moment, "as printed" if literal else "pair by pair")

    def leading(self, rank: int, count: int = LEADING) -> Leading:
        """The leading `count` values with the diagonal of this rank."""
        filled = self.correction.filled(self.moment, rank)
        values, vectors = leading_of_sparse_moments(filled, min(count, self.moments.dim))
        return Leading(values, fix_subspace_signs(vectors), np.asarray(filled.diagonal()))

    def _weighted(self, weights: Floats, users: float) -> csr_array:
        """The corrected moment with buckets weighted, by a pass."""
        asked = partial(sparse_moment_pairs, ridge=self.ridge, actions=self.moments.dim, weights=weights, joint=False)
        kept: KeptPairs = self.run(asked, KeptPairs.__add__)
        return self.correction.corrected(kept.products.matrix, users)

    def test(self) -> FlipTest:
        """The sign-flip test of the rank (`newcomer.sold.rank_test`): a pass for every flip."""
        most, found, tops = min(LEADING, self.moments.dim - 1), list[Leading](), []
        for signs in user_bucket_signs(len(self.moments.counts)):
            flipped, row = self._weighted(signs, self.moments.count), list[float]()
            for rank in range(most):
                if rank == len(found):
                    found.append(self.leading(rank, rank + 1))
                row.append(top_of_sparse_moments_beside(flipped, found[rank].directions[:, :rank]))
                if found[rank].values[-1] <= row[-1]:  # where one flip does as well, no further one can stand out
                    most = rank + 1
                    break
            tops.append(row)
        null, observed = np.array([row[:most] for row in tops]), np.array([one.values[-1] for one in found[:most]])
        beaten = np.flatnonzero(observed <= null.max(axis=0))
        rank = int(beaten[0]) if len(beaten) else most
        return FlipTest(rank, self.leading(rank).values, null)

    def bases(self, parts: Sequence[Bools], rank: int) -> list[Floats]:
        """Leading directions (d, rank) of parts of the users, a pass for each."""
        found = []
        for part in parts:
            moment = self._weighted(part.astype(np.float64), float(max(self.moments.counts[part].sum(), 1)))
            found.append(leading_of_sparse_moments(self.correction.filled(moment, rank), rank)[1])
        return found

    @property
    def completes(self) -> bool:
        """Whether the diagonal is completed."""
        return not self.correction.literal

    @property
    def inverse_norm(self) -> float:
        """The paper's B, or the root of a bound on what entrywise division by joint coverage does off the diagonal.

        With W one over the divisor it is at most the length of the longest row of W (Schur). W is known for pairs that
        were met; for others the divisor is its damped part alone, with e = 1/sqrt(N) not below e sqrt(g_a g_b)/(1 + e)
        for g the product of the mean coverages of both halves.
        """
        reached = self.moments.coverage / self.moments.count
        met = (reached > 0).all(axis=0)
        first, second = reached[:, met]
        if self.correction.literal:
            return float(1.0 / min(first.min(), second.min()))
        damping = 1.0 / np.sqrt(self.moments.count)
        each = np.zeros(self.moments.dim)
        each[met] = 1.0 / (first * second)
        pairs = self.correction.factors - diags_array(self.correction.factors.diagonal())
        pairs.eliminate_zeros()
        pattern = csr_array((np.ones_like(pairs.data), pairs.indices, pairs.indptr), shape=pairs.shape)
        unmet = np.maximum(each.sum() - each - pattern @ each, 0.0)
        rows = np.asarray(pairs.power(2).sum(axis=1)).ravel() + ((1.0 + damping) / damping) ** 2 * each * unmet
        return float(np.sqrt(np.sqrt(rows.max())))


@dataclass(frozen=True, eq=False)
class ByMargins:
    """Rows and columns corrected by the margins of joint coverage."""

    run: Pass
    ridge: float | None
    moments: SparseMoments
    correction: MarginCorrection
    name: str = "by margins"

    @classmethod
    def of(cls, run: Pass, ridge: float | None, moments: SparseMoments) -> ByMargins:
        """No further pass is needed."""
        return cls(run, ridge, moments, MarginCorrection.of(moments))

    def _products(self, weights: Sequence[Floats], blocks: Sequence[Floats]) -> list[Floats]:
        return self.correction.products(self.run, self.ridge, weights, blocks)

    def _start(self, columns: int) -> Floats:
        """A block to begin with, the same for the same actions."""
        return np.random.default_rng(0).standard_normal((self.moments.dim, min(columns, self.moments.dim)))

    def leading(self, rank: int, count: int = LEADING, passes: int = PASSES) -> Leading:
        """The leading `count` values with the diagonal of this rank, within the span that products have shown."""
        everybody = np.ones(len(self.moments.counts))
        values, vectors = leading_subspace_by_products(
            lambda blocks: self._products([everybody], blocks),
            [self._start(max(COLUMNS, rank + 4))],
            passes=passes,
            wanted=max(rank, 1),
            tolerance=SETTLED,
        )[0]
        diagonal = np.zeros(self.moments.dim)
        for _ in range(TURNS if rank else 0):
            lengths, turn = np.linalg.eigh(np.diag(values) + vectors.T @ (diagonal[:, None] * vectors))
            now = np.minimum((vectors @ turn[:, -rank:]) ** 2 @ np.maximum(lengths[-rank:], 0.0), self.moments.bounds)
            change, diagonal = np.abs(now - diagonal).max(), now
            if change <= TOLERANCE * max(diagonal.max(), np.finfo(np.float64).tiny):
                break
        lengths, turn = np.linalg.eigh(np.diag(values) + vectors.T @ (diagonal[:, None] * vectors))
        return Leading(lengths[::-1][:count].copy(), fix_subspace_signs(vectors @ turn[:, ::-1][:, :count]), diagonal)

    def test(self) -> FlipTest:
        """The sign-flip test without taking directions out that were found: it may find too few, never too many."""
        signs = user_bucket_signs(len(self.moments.counts))
        found = leading_subspace_by_products(
            partial(self._products, list(signs)), [self._start(FLIPPED)] * len(signs), passes=PASSES // 2
        )
        observed = self.leading(0).values
        null = np.array([[values[0]] * len(observed) for values, _ in found])
        beaten = np.flatnonzero(observed <= null.max())
        rank = int(beaten[0]) if len(beaten) else len(observed)
        return FlipTest(rank, observed, null)

    def bases(self, parts: Sequence[Bools], rank: int) -> list[Floats]:
        """Leading directions (d, rank) of parts of the users, all in the same passes."""
        weights = [part * (self.moments.count / max(self.moments.counts[part].sum(), 1)) for part in parts]
        start = self._start(rank + 4)
        found = leading_subspace_by_products(partial(self._products, weights), [start] * len(parts), passes=PASSES // 2)
        return [vectors[:, :rank] for _, vectors in found]

    @property
    def completes(self) -> bool:
        """Whether the diagonal is completed."""
        return True

    @property
    def inverse_norm(self) -> float:
        """The root of a bound on what multiplication with the outer product of the scales does off the diagonal.

        Leaving the diagonal out can double a norm.
        """
        return float(np.sqrt(2.0 * self.moments.count) * self.correction.scale.max())


def _sparse_square_norm(run: Pass, ridge: float | None, moments: SparseMoments) -> float:
    """||mean of M^2||, by passes."""

    def products(blocks: Sequence[Floats]) -> tuple[Floats, ...]:
        found: BlockProducts = run(
            partial(sparse_moment_squares, ridge=ridge, columns=blocks[0]), BlockProducts.__add__
        )
        return found.blocks

    start = np.random.default_rng(0).standard_normal((moments.dim, min(FLIPPED, moments.dim)))
    values, _ = leading_subspace_by_products(products, [start], passes=PASSES, wanted=1, tolerance=1e-6)[0]
    return float(values[0]) / moments.count
