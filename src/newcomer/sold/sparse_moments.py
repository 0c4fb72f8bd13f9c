"""SOLD's moments where features are one-hot of many actions: everything that is diagonal, and products by passes.

With one-hot features a half of a history that met action a c times, for rewards that sum to s, has

    beta_a = s / (mu + c),      D_aa = c / (mu + c),

and nothing elsewhere: two sparse vectors for each half. D is diagonal, and M a sum of sparse outer products, of which
the product with a block Q of columns is

    sum_n (b1 (b2^T Q) + b2 (b1^T Q)) / 2:

one pass over the logs, whatever the number of actions (`sparse_moment_products`). What is kept of all users has d
entries or a few times d (`SparseMoments`), never d x d.

The moment of many one-hot actions as a sparse matrix: only pairs of actions that somebody met have an entry.

As long as these pairs fit into memory (`MOST`), the sum of M and the joint coverage are kept entry by entry, and every
entry is corrected as for few actions (`newcomer.sold.correction`): the answer is the same. The diagonal is left out
and completed by turns. With more pairs than that, `newcomer.sold.sparse_moments` has a correction action by action.

SOLD's correction where features are one-hot of many actions: one number an action, and no d x d matrix.

With few actions every entry of the moment is divided by the joint coverage of its two actions
(`newcomer.sold.correction`). Here joint coverage is taken to be the product of its margins,

    E[d1_a d2_b + d1_b d2_a] / 2  ~  w_a w_b / T,      w_a: pairs of action a with any other,

with T such that all pairs of different actions add up to the sum of w. That is a correction of rows and columns,
S ~ T W^-1 M W^-1 with W = diag(w). Margins of *pairs* are right for
any mixture of history lengths, which products of the means of D are not: long histories have more pairs. What they
leave out is that some actions are met together more often than their margins say (films of a series, of a decade); such
entries come out too large by as much. The diagonal is left out and completed, as for few actions. An action is taken to
have been met once more than it was, so that one which was met once does not outweigh all others.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, eigsh

from newcomer.arrays import Floats, Ints
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.sold.correction import DENSE, TOLERANCE, TURNS
from newcomer.users import user_bucket_count, user_buckets

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
        where = user_buckets(batch.hashes[usable], user_bucket_count(actions))
        return cls((estimates[0], estimates[1]), (coverage[0], coverage[1]), where, lengths[usable])


def _summed(values: Floats, actions: Ints, ends: Ints, count: int) -> csr_array:
    """Sums of values by user and action, (n, A)."""
    matrix = csr_array((values, actions, ends), shape=(len(ends) - 1, count), copy=True)  # summed in place
    matrix.sum_duplicates()
    return matrix


@dataclass(frozen=True)
class SparseMoments:
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

    def __add__(self, other: SparseMoments) -> SparseMoments:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items() if name != "count"}
        sums |= {"ridge": self.ridge, "reward_max": max(self.reward_max, other.reward_max)}
        return SparseMoments(**{**sums, "largest": np.maximum(self.largest, other.largest)})

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


def sparse_moments_of(batch: Batch, ridge: float | None, *, actions: int) -> SparseMoments:
    """The sums of the users of a batch: the map of the first pass."""
    halves = SparseHalves.of(batch, ridge, actions)
    (b1, b2), (d1, d2) = halves.estimates, halves.coverage
    assert batch.actions is not None
    lengths = batch.lengths
    step = np.arange(len(batch.rewards)) - np.repeat(batch.offsets[:-1], lengths)
    odd = np.repeat(lengths >= 2, lengths) & (step % 2 == 0)
    usable = np.repeat(lengths >= 2, lengths)
    used, met = batch.rewards[usable], batch.actions[usable]
    norms = np.sqrt(sparse_row_sums(b1.power(2)) * sparse_row_sums(b2.power(2)))
    both = b1.multiply(b2)
    return SparseMoments(
        ridge=float(ridge or 0.0),
        counts=np.bincount(halves.buckets, minlength=user_bucket_count(actions)),
        octaves=np.bincount(np.log2(np.maximum(halves.lengths, 1)).astype(np.int64), minlength=OCTAVES),
        coverage=np.stack([_columns(d1), _columns(d2)]),
        estimates=np.stack([_columns(b1), _columns(b2)]),
        own=_columns(both),
        margins=(d1.T @ sparse_row_sums(d2) + d2.T @ sparse_row_sums(d1)) / 2 - _columns(d1.multiply(d2)),
        gram=np.bincount(batch.actions[odd], minlength=actions).astype(np.float64),
        by_action=np.stack([np.bincount(met, weights, minlength=actions) for weights in (np.ones_like(used), used**2)]),
        rows=int(odd.sum()),
        reward_squares=float(batch.rewards[odd] @ batch.rewards[odd]),
        reward_max=float(np.abs(used).max(initial=0.0)),
        largest=np.array([((np.abs(sparse_row_sums(both)) + norms) / 2).max(initial=0.0)]),
        pairs=int(np.diff(b1.indptr).astype(np.int64) @ np.diff(b2.indptr).astype(np.int64)),
        too_short=int((lengths < 2).sum()),
    )


def sparse_row_sums(matrix: csr_array) -> Floats:
    """Sums of the entries of each user."""
    return np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()


def _columns(matrix: csr_array) -> Floats:
    """Sums of the entries of each action."""
    return np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()


class Probe(NamedTuple):
    """A weight for each bucket (B,) of users, and the columns (A, q) that their M is multiplied with."""

    weights: Floats
    columns: Floats


@dataclass(frozen=True)
class BlockProducts:
    """What a pass gave: a block (A, q) for each question."""

    blocks: tuple[Floats, ...]

    def __add__(self, other: BlockProducts) -> BlockProducts:
        return BlockProducts(tuple(map(operator.add, self.blocks, other.blocks)))


def sparse_moment_squares(batch: Batch, ridge: float | None, *, columns: Floats) -> BlockProducts:
    """sum_n M_n^2 Q over the users of a batch, without forming any M:

    4 M^2 = |b2|^2 b1 b1^T + |b1|^2 b2 b2^T + (b1.b2) (b1 b2^T + b2 b1^T).
    """
    b1, b2 = SparseHalves.of(batch, ridge, len(columns)).estimates
    first, second = b1 @ columns, b2 @ columns
    inner, sizes = sparse_row_sums(b1.multiply(b2))[:, None], [sparse_row_sums(b.power(2))[:, None] for b in (b1, b2)]
    block = b1.T @ (sizes[1] * first + inner * second) + b2.T @ (sizes[0] * second + inner * first)
    return BlockProducts((np.asarray(block / 4),))


def sparse_moment_products(
    batch: Batch, ridge: float | None, *, asked: tuple[Probe, ...], hollow: bool
) -> BlockProducts:
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
    return BlockProducts(tuple(blocks))


MOST = 20_000_000  # pairs of actions that are kept


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix (d, d) as a record of arrays, which passes can hand over and add up."""

    data: Floats
    indices: Ints
    ends: Ints

    @classmethod
    def of(cls, matrix: Any) -> Sparse:
        """The record of a matrix."""
        found = csr_array(matrix)
        return cls(found.data, found.indices, found.indptr)

    @property
    def matrix(self) -> csr_array:
        """The matrix of the record."""
        size = len(self.ends) - 1
        return csr_array((self.data, self.indices, self.ends), shape=(size, size))

    def __add__(self, other: Sparse) -> Sparse:
        return Sparse.of(self.matrix + other.matrix)


@dataclass(frozen=True)
class KeptPairs:
    """Sums over users of X = b1 b2^T, buckets weighted, and of d1 d2^T where that was asked for."""

    products: Sparse
    joint: Sparse | None

    def __add__(self, other: KeptPairs) -> KeptPairs:
        joint = None if self.joint is None or other.joint is None else self.joint + other.joint
        return KeptPairs(self.products + other.products, joint)


def sparse_moment_pairs(batch: Batch, ridge: float | None, *, actions: int, weights: Floats, joint: bool) -> KeptPairs:
    """The sums of the users of a batch, those of bucket i weighted by weights[i]: the map of a pass."""
    halves = SparseHalves.of(batch, ridge, actions)
    (b1, b2), (d1, d2) = halves.estimates, halves.coverage
    weighted = diags_array(weights[halves.buckets]) @ b2
    return KeptPairs(Sparse.of(b1.T @ weighted), Sparse.of(d1.T @ d2) if joint else None)


def sparse_moments_fit_memory(moments: SparseMoments) -> bool:
    """Whether there is room for the pairs of these logs."""
    return min(moments.pairs, moments.dim**2 // 2) <= MOST


@dataclass(frozen=True, eq=False)
class PairCorrection:
    """Undoes what coverage did to X: pair by pair, or, `literal`, as the paper prints it."""

    factors: csr_array  # (d, d) what entries of the mean of M are multiplied with; on the pairs that were met
    bounds: Floats  # (d,) what the completed diagonal cannot exceed
    literal: bool

    @classmethod
    def of(cls, moments: SparseMoments, joint: csr_array, *, literal: bool) -> PairCorrection:
        """From the joint coverage (d, d), summed over users."""
        reached = moments.coverage / moments.count
        met = np.asarray((reached > 0).all(axis=0))
        first, second = np.where(met, reached, 0.0)
        both = ((joint + joint.T) / 2).tocoo()
        inside = met[both.row] & met[both.col]
        row, column, shared = both.row[inside], both.col[inside], both.data[inside] / moments.count
        outer = (first[row] * second[column] + first[column] * second[row]) / 2
        if literal:
            data = outer / (first[row] * second[column] * first[column] * second[row])
        else:
            damping = 1.0 / np.sqrt(moments.count)
            data = (1.0 + damping) / (shared + damping * outer)
        return cls(csr_array((data, (row, column)), shape=joint.shape), moments.bounds, literal)

    def corrected(self, products: csr_array, users: float) -> csr_array:
        """The corrected moment (d, d) of the sum of X over so many users; without its diagonal unless `literal`."""
        moment = csr_array((products + products.T) / (2.0 * users))
        if not self.literal:
            moment = csr_array(moment - diags_array(moment.diagonal()))
        return csr_array(moment.multiply(self.factors))

    def filled(self, moment: csr_array, rank: int) -> csr_array:
        """The corrected moment with the diagonal that this rank gives it (see `joint_coverage.complete_diagonal`)."""
        if self.literal or not rank:
            return moment
        diagonal, start = np.zeros(moment.shape[0]), np.ones(moment.shape[0])
        for _ in range(TURNS):
            values, vectors = leading_of_sparse_moments(csr_array(moment + diags_array(diagonal)), rank, start)
            now = np.minimum(vectors**2 @ np.maximum(values, 0.0), self.bounds)
            change, diagonal, start = np.abs(now - diagonal).max(), now, vectors.sum(axis=1)
            if change <= TOLERANCE * max(diagonal.max(), np.finfo(np.float64).tiny):
                break
        return csr_array(moment + diags_array(diagonal))


def leading_of_sparse_moments(matrix: csr_array, rank: int, start: Floats | None = None) -> tuple[Floats, Floats]:
    """The `rank` largest eigenvalues, largest first, and their eigenvectors (d, rank)."""
    size = matrix.shape[0]
    if size <= DENSE or rank > size // 4:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = eigsh(matrix, rank, which="LA", v0=np.ones(size) if start is None else start)
    order = np.argsort(-values)[:rank]
    return values[order], vectors[:, order]


def top_of_sparse_moments_beside(matrix: csr_array, found: Floats) -> float:
    """The largest eigenvalue of a matrix within the complement of the span of `found` (d, j)."""
    size = matrix.shape[0]
    if size <= DENSE:
        beside = np.linalg.svd(found, full_matrices=True)[0][:, found.shape[1] :] if found.shape[1] else np.eye(size)
        return float(np.linalg.eigvalsh(beside.T @ (matrix @ beside))[-1])

    def product(vector: Floats) -> Floats:
        inside = vector - found @ (found.T @ vector)
        image = matrix @ inside
        return np.asarray(image - found @ (found.T @ image))

    operator = LinearOperator(matrix.shape, matvec=product, dtype=np.float64)
    return float(eigsh(operator, 1, which="LA", v0=np.ones(size), tol=1e-6, return_eigenvectors=False)[0])


@dataclass(frozen=True)
class MarginCorrection:
    """Undoes what coverage did to M, action by action."""

    scale: Floats  # (d,) by which rows and columns of the sum of M are multiplied

    @classmethod
    def of(cls, moments: SparseMoments) -> MarginCorrection:
        """From the margins of joint coverage; an action that a half has not met is left out."""
        total = float(moments.margins.sum())
        once = total / max(2.0 * float(moments.gram.sum()), 1.0)  # what one meeting adds to a margin
        met = (moments.coverage > 0).all(axis=0)
        shares = moments.margins / max(total, 1e-300)
        apart = total * (1.0 - float(shares @ shares))  # no pair is of one action, and the others have its share
        return cls(np.where(met, np.sqrt(max(apart, 0.0)) / np.where(met, moments.margins + once, 1.0), 0.0))

    def products(
        self, run: Pass, ridge: float | None, weights: Sequence[Floats], blocks: Sequence[Floats]
    ) -> list[Floats]:
        """The corrected moment, without its diagonal, times each block (d, q): one pass for all.

        Buckets of users count by `weights` (B,): ones, signs, or those of a part.
        """
        scaled = [self.scale[:, None] * block for block in blocks]
        asked = tuple(Probe(weight, block) for weight, block in zip(weights, scaled, strict=True))
        found: BlockProducts = run(
            partial(sparse_moment_products, ridge=ridge, asked=asked, hollow=True), BlockProducts.__add__
        )
        return [self.scale[:, None] * image for image in found.blocks]
