"""How many directions are real: the spectrum against a null of sign flips.

If a direction carries no signal, b1 b2^T of a user is as likely as its negative along it. Flipping signs by bucket of
users, with the B - 1 balanced patterns of a Hadamard matrix (which with the unflipped one form a group), gives B - 1
spectra of pure noise in which what all users share cancels. Directions are tested one after another, largest first: the
next eigenvalue must exceed the largest eigenvalue that *any* flip reaches orthogonally to the directions already found
(whose own spread would otherwise drown a weaker one). Where nothing is shared a first direction is found with
probability at most about 1 / B, 1/64 up to d = 256.

Two moments are tested the same way: the second moment E[beta beta^T], whose span the basis must have, and the
covariance, which says whether users *differ* (users all alike: second moment of rank 1, covariance of rank 0).

For one-hot features the diagonal is not tested: of the flips it is left out, of the moment it is what the directions
already found make of it (`newcomer.sold.correction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from newcomer.arrays import Floats
from newcomer.evidence import RankTest
from newcomer.sold.correction import MomentCorrection, correction_of, coverage_for_correction
from newcomer.sold.moments import Moments
from newcomer.users import user_bucket_signs

SHOWN = 64  # leading eigenvalues kept as evidence


@dataclass(frozen=True)
class FlipTest:
    """The outcome for one moment.

    `observed` (c,): eigenvalues, largest first. `null` (B - 1, c): at a position up to the rank, the largest eigenvalue
    of each flip orthogonally to the directions before it; further down, the rest of that flip's spectrum.
    """

    rank: int
    observed: Floats
    null: Floats

    def evidence(self) -> RankTest:
        """What the model file keeps: the leading eigenvalues, what each had to exceed, and 95% of the null's."""
        low, high = np.quantile(self.null[:, :SHOWN], [0.025, 0.975], axis=0)
        return RankTest(
            rank=self.rank,
            level=1.0 / (len(self.null) + 1),
            spectrum=tuple(self.observed[:SHOWN].tolist()),
            null_low=tuple(low.tolist()),
            null_high=tuple(high.tolist()),
            threshold=tuple(self.null[:, :SHOWN].max(axis=0).tolist()),
        )


class FlipTests(NamedTuple):
    """The test of the second moment, and that of the covariance."""

    moment: FlipTest
    covariance: FlipTest


def rank_flip_tests(moments: Moments, *, correction: MomentCorrection | None = None) -> FlipTests:
    """Test both moments; lengths are pooled on both sides of the comparison.

    With m1, m2 the means of b1, b2 over users, the covariance is the mean over users of (b1 - m1)(b2 - m2)^T, corrected
    and then symmetrised, and a bucket's share in it follows from its sums of b1 b2^T, b1 and b2.
    """
    correction = correction or correction_of(moments, coverage_for_correction(moments))
    pairs = moments.pairs
    means = pairs.estimates.sum(axis=0) / max(moments.count, 1)
    shift = _cross(pairs.estimates[:, 0], means[1]) + _cross(means[0], pairs.estimates[:, 1])
    centred = pairs.products - shift + pairs.counts[:, None, None] * _cross(means[0], means[1])
    of_products, of_centred = (correction.pooled(sums) / max(moments.count, 1) for sums in (pairs.products, centred))
    return FlipTests(_test(correction, of_products), _test(correction.of_covariance(), of_centred))


def _test(correction: MomentCorrection, parts: Floats) -> FlipTest:
    """The test of a mean over users, given as the sum of corrected `parts` (B, c, c) that its buckets contribute."""
    total, parts, signs = parts.sum(axis=0), correction.hollow(parts), user_bucket_signs(len(parts))
    limit = min(correction.most or len(total), len(total))
    tops: list[Floats] = []
    moment = None
    while True:
        filled = correction.filled(total, len(tops))
        if filled is not moment:
            moment = filled
            observed, flips = _turned(moment, parts, signs)
        # In the eigenvectors' coordinates the complement of those found is the trailing block.
        spectra = np.linalg.eigvalsh(flips[:, len(tops) :, len(tops) :])[:, ::-1].astype(np.float64)
        if observed[len(tops)] <= spectra[:, 0].max() or len(tops) == limit - 1:
            break
        tops.append(spectra[:, 0].copy())
    rank = len(tops) + int(observed[len(tops)] > spectra[:, 0].max())
    return FlipTest(rank, observed, np.column_stack([*tops, spectra]))


def _turned(moment: Floats, parts: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (c,) of a moment, largest first, and in the coordinates of its eigenvectors every balanced signed
    sum (B - 1, c, c) of the parts, by one matrix product."""
    values, vectors = np.linalg.eigh(moment)
    vectors = vectors[:, ::-1]
    turned = vectors.T @ parts @ vectors
    return values[::-1].copy(), (signs @ turned.reshape(len(parts), -1)).reshape(-1, *turned.shape[1:])


def _cross(first: Floats, second: Floats) -> Floats:
    """Outer product over the last axes: (..., c) and (..., c) to (..., c, c)."""
    return np.asarray(first[..., :, None] * second[..., None, :])
