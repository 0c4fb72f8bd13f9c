"""SOLD's moments where features are one-hot of the actions: the same sums, from the few actions that a user met.

With one-hot features a half of a history that met action a c times, for rewards that sum to s, has

    beta_a = s / (mu + c),      D_aa = c / (mu + c),

and nothing elsewhere (`sparse_moments.SparseHalves`). A product of sparse vectors costs what a user met, squared, in
place of the square of the number of actions: of 8 rows among 300 actions a thousandth.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Floats, Ints
from newcomer.logs.batch import Batch
from newcomer.sold.moments import Moments, PairSums, moment_stratum
from newcomer.sold.sparse_moments import SparseHalves, sparse_row_sums
from newcomer.users import user_bucket_count, user_group_bounds

FILLED = 0.1  # share of cells from which a product of dense matrices is faster than one of sparse ones


def one_hot_moments_of(batch: Batch, ridge: float | None) -> Moments:
    """The moments of the users of a batch of one-hot actions: the map of SOLD's one pass, as `moments.moments_of`."""
    assert batch.actions is not None
    dim, lengths = batch.dim, batch.lengths
    halves = SparseHalves.of(batch, ridge, dim)
    usable = np.repeat(lengths >= 2, lengths)
    odd = usable & ((np.arange(len(batch.rewards)) - np.repeat(batch.offsets[:-1], lengths)) % 2 == 0)
    met, rewards, odd_rewards = batch.actions[usable], batch.rewards[usable], batch.rewards[odd]
    each_length, of_length = np.unique(halves.lengths, return_inverse=True)
    named = np.array([moment_stratum(int(length), dim) for length in each_length], dtype=np.int64)
    strata, stratum = np.unique(named[of_length], return_inverse=True)
    first, second = halves.coverage
    covered = np.stack([_sums_by(stratum, half, len(strata)) for half in (first, second)], axis=1)
    return Moments(
        ridge=float(ridge or 0.0),
        lengths=strata,
        users=np.bincount(stratum, minlength=len(strata)),
        coverage=covered[..., None] * np.eye(dim),
        gram=np.diag(np.bincount(batch.actions[odd], minlength=dim).astype(np.float64)),
        rows=len(odd_rewards),
        reward_squares=float(odd_rewards @ odd_rewards),
        reward_max=float(np.abs(rewards).max(initial=0.0)),
        too_short=int((lengths < 2).sum()),
        pairs=_pair_sums(halves),
        joint=_product(first, second),
        by_action=np.stack([np.bincount(met, rewards**power, minlength=dim) for power in range(3)]),
    )


def _pair_sums(halves: SparseHalves) -> PairSums:
    """Sums by bucket and by group of users, which are slices where users are sorted by bucket."""
    order = np.argsort(halves.buckets, kind="stable")
    first, second = (half[order] for half in halves.estimates)
    buckets = user_bucket_count(first.shape[1])
    ends = np.searchsorted(halves.buckets[order], np.arange(buckets + 1))
    by_bucket = [slice(a, b) for a, b in pairwise(ends)]
    by_group = [slice(a, b) for a, b in pairwise(ends[user_group_bounds(buckets)])]
    sizes = [np.sqrt(sparse_row_sums(half.power(2))) for half in (first, second)]
    norms, inner = sizes[0] * sizes[1], sparse_row_sums(first.multiply(second))
    scaled = _scaled(first, sizes[1]), _scaled(second, sizes[0]), _scaled(first, inner)
    squares = [(scaled[0], scaled[0]), (scaled[1], scaled[1]), (scaled[2], second)]  # X X^T, X^T X, X^2
    return PairSums(
        counts=np.diff(ends).astype(np.int64),
        estimates=np.stack([_sums_by(halves.buckets[order], half, buckets) for half in (first, second)], axis=1),
        products=np.array([_product(first[users], second[users]) for users in by_bucket]),
        squares=np.array([[_product(left[users], right[users]) for left, right in squares] for users in by_group]),
        largest=np.array([norms.max(initial=0.0), ((np.abs(inner) + norms) / 2).max(initial=0.0)]),
    )


def _sums_by(part: Ints, rows: csr_array, parts: int) -> Floats:
    """Sums (parts, d) of the rows (n, d) of each part, `part` (n,)."""
    dim = rows.shape[1]
    cells = np.repeat(part, np.diff(rows.indptr)) * dim + rows.indices
    return np.bincount(cells, rows.data, minlength=parts * dim).astype(np.float64).reshape(parts, dim)


def _scaled(rows: csr_array, by: Floats) -> csr_array:
    """Each row (n, d) times its own number (n,)."""
    return csr_array((rows.data * np.repeat(by, np.diff(rows.indptr)), rows.indices, rows.indptr), shape=rows.shape)


def _product(left: csr_array, right: csr_array) -> Floats:
    """left^T right (d, d) of rows (n, d)."""
    if max(left.nnz, right.nnz) > FILLED * left.shape[0] * left.shape[1]:
        return np.asarray(left.toarray().T @ right.toarray())
    return np.asarray((left.T @ right).toarray())
