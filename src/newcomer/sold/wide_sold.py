"""SOLD where one-hot actions are many: leading directions, the null of sign flips and draws of the error, by passes.

`Pairwise` keeps the pairs of actions that somebody met as a sparse matrix, and does what is done for few actions;
`ByMargins` multiplies by passes and never has more than a few columns, where pairs are too many to be kept. Both are
asked the same: the leading values and directions with the diagonal that a rank gives, what sign flips make of the
largest value, and the directions of parts of the users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from newcomer.arrays import Bools, Floats
from newcomer.sold.joint_coverage import TOLERANCE, TURNS
from newcomer.sold.kept_pairs import KeptPairs, PairCorrection, kept_pairs_of, leading, top_beside
from newcomer.sold.rank import FlipTest
from newcomer.sold.wide_correction import MarginCorrection, Run
from newcomer.sold.wide_moments import Products, WideMoments, squares_of
from newcomer.subspace import fix_signs, leading_by_products
from newcomer.users import balanced_signs

LEADING = 24  # values of the spectrum that are kept, and directions that are tested
COLUMNS, PASSES = 16, 12  # of the products that leading directions are found from; fewer where they settle
SETTLED = 1e-7  # residual of the leading directions, relative to the largest value
FLIPPED = 4  # columns, for each flip


class Leading(NamedTuple):
    """The leading values, largest first, their directions (d, q), and the diagonal (d,) of the moment they are of."""

    values: Floats
    directions: Floats
    diagonal: Floats


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Every pair of actions corrected by itself."""

    run: Run
    ridge: float | None
    moments: WideMoments
    correction: PairCorrection
    moment: csr_array  # corrected
    name: str

    @classmethod
    def of(cls, run: Run, ridge: float | None, moments: WideMoments, *, literal: bool) -> Pairwise:
        """Sum the pairs, in one pass."""
        everybody = np.ones(len(moments.counts))
        asked = partial(kept_pairs_of, ridge=ridge, actions=moments.dim, weights=everybody, joint=True)
        kept: KeptPairs = run(asked, KeptPairs.__add__)
        assert kept.joint is not None
        correction = PairCorrection.of(moments, kept.joint.matrix, literal=literal)
        moment = correction.corrected(kept.products.matrix, moments.count)
        return cls(run, ridge, moments, correction, moment, "as printed" if literal else "pair by pair")

    def leading(self, rank: int, count: int = LEADING) -> Leading:
        """The leading `count` values with the diagonal of this rank."""
        filled = self.correction.filled(self.moment, rank)
        values, vectors = leading(filled, min(count, self.moments.dim))
        return Leading(values, fix_signs(vectors), np.asarray(filled.diagonal()))

    def _weighted(self, weights: Floats, users: float) -> csr_array:
        """The corrected moment with buckets weighted, by a pass."""
        asked = partial(kept_pairs_of, ridge=self.ridge, actions=self.moments.dim, weights=weights, joint=False)
        kept: KeptPairs = self.run(asked, KeptPairs.__add__)
        return self.correction.corrected(kept.products.matrix, users)

    def test(self) -> FlipTest:
        """The sign-flip test of the rank (`newcomer.sold.rank`): a pass for every flip."""
        most, found, tops = min(LEADING, self.moments.dim - 1), list[Leading](), []
        for signs in balanced_signs(len(self.moments.counts)):
            flipped, row = self._weighted(signs, self.moments.count), list[float]()
            for rank in range(most):
                if rank == len(found):
                    found.append(self.leading(rank, rank + 1))
                row.append(top_beside(flipped, found[rank].directions[:, :rank]))
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
            found.append(leading(self.correction.filled(moment, rank), rank)[1])
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

    run: Run
    ridge: float | None
    moments: WideMoments
    correction: MarginCorrection
    name: str = "by margins"

    @classmethod
    def of(cls, run: Run, ridge: float | None, moments: WideMoments) -> ByMargins:
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
        values, vectors = leading_by_products(
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
        return Leading(lengths[::-1][:count].copy(), fix_signs(vectors @ turn[:, ::-1][:, :count]), diagonal)

    def test(self) -> FlipTest:
        """The sign-flip test without taking directions out that were found: it may find too few, never too many."""
        signs = balanced_signs(len(self.moments.counts))
        found = leading_by_products(
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
        found = leading_by_products(partial(self._products, weights), [start] * len(parts), passes=PASSES // 2)
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


AnyWide = Pairwise | ByMargins


def square_norm(run: Run, ridge: float | None, moments: WideMoments) -> float:
    """||mean of M^2||, by passes."""

    def products(blocks: Sequence[Floats]) -> tuple[Floats, ...]:
        found: Products = run(partial(squares_of, ridge=ridge, columns=blocks[0]), Products.__add__)
        return found.blocks

    start = np.random.default_rng(0).standard_normal((moments.dim, min(FLIPPED, moments.dim)))
    values, _ = leading_by_products(products, [start], passes=PASSES, wanted=1, tolerance=1e-6)[0]
    return float(values[0]) / moments.count
