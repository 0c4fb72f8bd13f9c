"""How many directions are real: the spectrum against a null of sign flips.

If a direction carries no signal, M_n is as likely as -M_n along it. Flipping signs by bucket of users, with the B - 1
balanced patterns of a Hadamard matrix (which with the unflipped one form a group), gives B - 1 spectra of pure noise in which
what all users share cancels. Directions are tested one after another, largest first: the next eigenvalue must exceed the
largest eigenvalue that *any* flip reaches orthogonally to the directions already found (whose own spread would otherwise drown
a weaker one). Where nothing is shared a first direction is found with probability at most about 1 / B, 1/64 up to d = 256.

Two moments are tested the same way: the second moment E[beta beta^T], whose span the basis must have, and the covariance, which
says whether users *differ* (users all alike: second moment of rank 1, covariance of rank 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from newcomer.sold.moments import Moments, symmetric
from newcomer.subspace import Correction, coverage_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankTest:
    """Evidence for a rank.

    `observed` (c,): eigenvalues, largest first. `null` (B - 1, c): at a position up to the rank, the largest eigenvalue of each flip
    orthogonally to the directions before it; further down, the rest of that flip's spectrum.
    """

    rank: int
    observed: Floats
    null: Floats

    @property
    def thresholds(self) -> Floats:
        """What an eigenvalue at each position had to exceed, (c,)."""
        highest: Floats = self.null.max(axis=0)
        return highest

    @property
    def level(self) -> float:
        """Probability of a false direction where there is none, at most about this."""
        return 1.0 / (len(self.null) + 1)


@dataclass(frozen=True)
class RankEvidence:
    """The test of the second moment and that of the covariance."""

    moment: RankTest
    covariance: RankTest


def rank_evidence(moments: Moments, *, correction: Correction | None = None) -> RankEvidence:
    """Test both moments; lengths are pooled on both sides of the comparison."""
    correction = correction or Correction.of(moments, coverage_of(moments))
    pairs = moments.pairs
    means = pairs.estimates.sum(axis=0) / max(moments.count, 1)
    products = symmetric(pairs.products)
    shift = _cross(pairs.estimates[:, 0], means[1]) + _cross(means[0], pairs.estimates[:, 1])
    centred = products - shift + pairs.counts[:, None, None] * _cross(means[0], means[1])
    return RankEvidence(*(_test(correction.pooled(sums) / max(moments.count, 1)) for sums in (products, centred)))


def _test(parts: Floats) -> RankTest:
    """The test of a mean over users, given as the sum of `parts` (B, c, c) that its buckets contribute."""
    values, vectors = np.linalg.eigh(parts.sum(axis=0))
    observed, vectors = values[::-1].copy(), vectors[:, ::-1]
    flips = _flipped(vectors.T @ parts @ vectors)
    tops: list[Floats] = []
    while True:
        # In the eigenvectors' coordinates the complement of those found is the trailing block.
        spectra = np.linalg.eigvalsh(flips[:, len(tops) :, len(tops) :])[:, ::-1].astype(np.float64)
        if observed[len(tops)] <= spectra[:, 0].max() or len(tops) == len(observed) - 1:
            break
        tops.append(spectra[:, 0].copy())
    rank = len(tops) + int(observed[len(tops)] > spectra[:, 0].max())
    return RankTest(rank, observed, np.column_stack([*tops, spectra]))


def _flipped(parts: Floats) -> Floats:
    """Every balanced signed sum of the parts, (B - 1, c, c)."""
    signs = hadamard(len(parts))[1:].astype(np.float64)
    flipped: Floats = signs @ parts.reshape(len(parts), -1)
    return flipped.reshape(-1, *parts.shape[1:])


def _cross(first: Floats, second: Floats) -> Floats:
    """Symmetrised outer product over the last axes."""
    return symmetric(first[..., :, None] * second[..., None, :])
