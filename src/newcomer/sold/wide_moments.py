"""SOLD's moments where features are one-hot of many actions: everything that is diagonal, and products by passes.

With one-hot features a half of a history that met action a c times, for rewards that sum to s, has

    beta_a = s / (mu + c),      D_aa = c / (mu + c),

and nothing elsewhere: two sparse vectors for each half. D is diagonal, and M a sum of sparse outer products, of which
the product with a block Q of columns is

    sum_n (b1 (b2^T Q) + b2 (b1^T Q)) / 2:

one pass over the logs, whatever the number of actions (`products_of`). What is kept of all users has d entries or a few
times d (`WideMoments`), never d x d.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Floats, Ints
from newcomer.logs.batch import Batch
from newcomer.users import bucket_count, bucket_of

OCTAVES = 48  # of history lengths, which the ranges of the radius follow from


class SparseHalves(NamedTuple):
    """Of the n users of a batch with two rows or more: estimates b and diagonals of D (n, A), of either half."""

    estimates: tuple[csr_array, csr_array]
    coverage: tuple[csr_array, csr_array]
    buckets: Ints  # (n,)
    lengths: Ints  # (n,)

    @classmethod
    def of(cls, batch: Batch, ridge: float | None, actions: int) -> SparseHalves:
        """Split the histories of a batch into odd and even steps; users of one row are left out."""
        assert batch.actions is not None
        lengths = batch.lengths
        usable = lengths >= 2
        step = np.arange(len(batch.rewards)) - np.repeat(batch.offsets[:-1], lengths)
        kept = np.repeat(usable, lengths)
        estimates, coverage = [], []
        for half in range(2):
            chosen = np.flatnonzero(kept & (step % 2 == half))
            ends = np.concatenate([[0], np.cumsum((lengths[usable] + 1 - half) // 2)])
            sums, counts = (
                _summed(values, batch.actions[chosen], ends, actions)
                for values in (batch.rewards[chosen], np.ones(len(chosen)))
            )
            weight = 1.0 / (counts.data + (ridge or 0.0))
            estimates.append(csr_array((sums.data * weight, counts.indices, counts.indptr), shape=counts.shape))
            coverage.append(csr_array((counts.data * weight, counts.indices, counts.indptr), shape=counts.shape))
        where = bucket_of(batch.hashes[usable], bucket_count(actions))
        return cls((estimates[0], estimates[1]), (coverage[0], coverage[1]), where, lengths[usable])


def _summed(values: Floats, actions: Ints, ends: Ints, count: int) -> csr_array:
    """Sums of values by user and action, (n, A)."""
    matrix = csr_array((values, actions, ends), shape=(len(ends) - 1, count), copy=True)  # summed in place
    matrix.sum_duplicates()
    return matrix


@dataclass(frozen=True)
class WideMoments:
    """Sums over users with at least two rows; B buckets, d = A actions. `ridge` 0 means pseudo-inverse."""

    ridge: float
    counts: Ints  # (B,) users
    octaves: Ints  # (O,) users with histories of 2^i to 2^(i + 1) - 1 rows
    coverage: Floats  # (2, d) diagonals of D1, D2
    estimates: Floats  # (2, d) of b1, b2
    own: Floats  # (d,) of b1 b2, entry by entry: the diagonal of M
    margins: Floats  # (d,) of (d1 |d2| + d2 |d1|) / 2 - d1 d2, |.| sums of entries: pairs of each action with others
    gram: Floats  # (d,) meetings in odd steps
    by_action: Floats  # (2, d) of 1 and r^2 over the rows of each action
    rows: int  # odd steps
    reward_squares: float  # of odd steps
    reward_max: float
    largest: Floats  # (1,) largest ||M|| of a user
    pairs: int  # pairs of actions that users met in different halves
    too_short: int

    def __add__(self, other: WideMoments) -> WideMoments:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items() if name != "count"}
        sums |= {"ridge": self.ridge, "reward_max": max(self.reward_max, other.reward_max)}
        return WideMoments(**{**sums, "largest": np.maximum(self.largest, other.largest)})

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return len(self.own)

    @cached_property
    def count(self) -> int:
        """Users with at least two rows."""
        return int(self.counts.sum())

    @property
    def bounds(self) -> Floats:
        """The mean squared reward (d,) of each action, which a completed diagonal cannot exceed."""
        rows, squares = self.by_action
        return np.where(rows > 0, squares / np.maximum(rows, 1.0), np.inf)

    def at_bound(self, diagonal: Floats) -> Ints:
        """The actions whose entry of a completed `diagonal` (d,) is at its bound."""
        found: Ints = np.flatnonzero((diagonal > 0) & (diagonal >= self.bounds * (1.0 - 1e-12)))
        return found


def wide_moments_of(batch: Batch, ridge: float | None, *, actions: int) -> WideMoments:
    """The sums of the users of a batch: the map of the first pass."""
    halves = SparseHalves.of(batch, ridge, actions)
    (b1, b2), (d1, d2) = halves.estimates, halves.coverage
    assert batch.actions is not None
    lengths = batch.lengths
    step = np.arange(len(batch.rewards)) - np.repeat(batch.offsets[:-1], lengths)
    odd = np.repeat(lengths >= 2, lengths) & (step % 2 == 0)
    usable = np.repeat(lengths >= 2, lengths)
    used, met = batch.rewards[usable], batch.actions[usable]
    norms = np.sqrt(_rows(b1.power(2)) * _rows(b2.power(2)))
    both = b1.multiply(b2)
    return WideMoments(
        ridge=float(ridge or 0.0),
        counts=np.bincount(halves.buckets, minlength=bucket_count(actions)),
        octaves=np.bincount(np.log2(np.maximum(halves.lengths, 1)).astype(np.int64), minlength=OCTAVES),
        coverage=np.stack([_columns(d1), _columns(d2)]),
        estimates=np.stack([_columns(b1), _columns(b2)]),
        own=_columns(both),
        margins=(d1.T @ _rows(d2) + d2.T @ _rows(d1)) / 2 - _columns(d1.multiply(d2)),
        gram=np.bincount(batch.actions[odd], minlength=actions).astype(np.float64),
        by_action=np.stack([np.bincount(met, weights, minlength=actions) for weights in (np.ones_like(used), used**2)]),
        rows=int(odd.sum()),
        reward_squares=float(batch.rewards[odd] @ batch.rewards[odd]),
        reward_max=float(np.abs(used).max(initial=0.0)),
        largest=np.array([((np.abs(_rows(both)) + norms) / 2).max(initial=0.0)]),
        pairs=int(np.diff(b1.indptr).astype(np.int64) @ np.diff(b2.indptr).astype(np.int64)),
        too_short=int((lengths < 2).sum()),
    )


def _rows(matrix: csr_array) -> Floats:
    """Sums of the entries of each user."""
    return np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()


def _columns(matrix: csr_array) -> Floats:
    """Sums of the entries of each action."""
    return np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()


class Weighted(NamedTuple):
    """A weight for each bucket (B,) of users, and the columns (A, q) that their M is multiplied with."""

    weights: Floats
    columns: Floats


@dataclass(frozen=True)
class Products:
    """What a pass gave: a block (A, q) for each question."""

    blocks: tuple[Floats, ...]

    def __add__(self, other: Products) -> Products:
        return Products(tuple(map(operator.add, self.blocks, other.blocks)))


def squares_of(batch: Batch, ridge: float | None, *, columns: Floats) -> Products:
    """sum_n M_n^2 Q over the users of a batch, without forming any M:

    4 M^2 = |b2|^2 b1 b1^T + |b1|^2 b2 b2^T + (b1.b2) (b1 b2^T + b2 b1^T).
    """
    b1, b2 = SparseHalves.of(batch, ridge, len(columns)).estimates
    first, second = b1 @ columns, b2 @ columns
    inner, sizes = _rows(b1.multiply(b2))[:, None], [_rows(b.power(2))[:, None] for b in (b1, b2)]
    block = b1.T @ (sizes[1] * first + inner * second) + b2.T @ (sizes[0] * second + inner * first)
    return Products((np.asarray(block / 4),))


def products_of(batch: Batch, ridge: float | None, *, asked: tuple[Weighted, ...], hollow: bool) -> Products:
    """sum_n weight_n M_n Q over the users of a batch, for each question: the map of a pass.

    `hollow` leaves the diagonal of M out.
    """
    halves = SparseHalves.of(batch, ridge, len(asked[0].columns))
    b1, b2 = halves.estimates
    both = b1.multiply(b2).tocsr() if hollow else None
    blocks = []
    for one in asked:
        weight = one.weights[halves.buckets]
        half = weight[:, None] / 2
        block = np.asarray(b1.T @ (half * (b2 @ one.columns)) + b2.T @ (half * (b1 @ one.columns)))
        blocks.append(block if both is None else block - (both.T @ weight)[:, None] * one.columns)
    return Products(tuple(blocks))
