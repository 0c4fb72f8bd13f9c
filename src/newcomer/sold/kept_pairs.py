"""The moment of many one-hot actions as a sparse matrix: only pairs of actions that somebody met have an entry.

As long as these pairs fit into memory (`MOST`), the sum of M and the joint coverage are kept entry by entry, and every
entry is corrected as for few actions (`newcomer.sold.joint_coverage`): the answer is the same. The diagonal is left out
and completed by turns. With more pairs than that, `newcomer.sold.wide_correction` has a correction action by action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, eigsh

from newcomer.arrays import Floats, Ints
from newcomer.logs.batch import Batch
from newcomer.sold.joint_coverage import DENSE, TOLERANCE, TURNS
from newcomer.sold.wide_moments import SparseHalves, WideMoments

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


def kept_pairs_of(batch: Batch, ridge: float | None, *, actions: int, weights: Floats, joint: bool) -> KeptPairs:
    """The sums of the users of a batch, those of bucket i weighted by weights[i]: the map of a pass."""
    halves = SparseHalves.of(batch, ridge, actions)
    (b1, b2), (d1, d2) = halves.estimates, halves.coverage
    weighted = diags_array(weights[halves.buckets]) @ b2
    return KeptPairs(Sparse.of(b1.T @ weighted), Sparse.of(d1.T @ d2) if joint else None)


def fits(moments: WideMoments) -> bool:
    """Whether there is room for the pairs of these logs."""
    return min(moments.pairs, moments.dim**2 // 2) <= MOST


@dataclass(frozen=True, eq=False)
class PairCorrection:
    """Undoes what coverage did to X: pair by pair, or, `literal`, as the paper prints it."""

    factors: csr_array  # (d, d) what entries of the mean of M are multiplied with; on the pairs that were met
    bounds: Floats  # (d,) what the completed diagonal cannot exceed
    literal: bool

    @classmethod
    def of(cls, moments: WideMoments, joint: csr_array, *, literal: bool) -> PairCorrection:
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
            values, vectors = leading(csr_array(moment + diags_array(diagonal)), rank, start)
            now = np.minimum(vectors**2 @ np.maximum(values, 0.0), self.bounds)
            change, diagonal, start = np.abs(now - diagonal).max(), now, vectors.sum(axis=1)
            if change <= TOLERANCE * max(diagonal.max(), np.finfo(np.float64).tiny):
                break
        return csr_array(moment + diags_array(diagonal))


def leading(matrix: csr_array, rank: int, start: Floats | None = None) -> tuple[Floats, Floats]:
    """The `rank` largest eigenvalues, largest first, and their eigenvectors (d, rank)."""
    size = matrix.shape[0]
    if size <= DENSE or rank > size // 4:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = eigsh(matrix, rank, which="LA", v0=np.ones(size) if start is None else start)
    order = np.argsort(-values)[:rank]
    return values[order], vectors[:, order]


def top_beside(matrix: csr_array, found: Floats) -> float:
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
