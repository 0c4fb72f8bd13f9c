"""Alternating least squares (ALS): a table with most cells missing as a product of two thin matrices.

Of a table X (n, A) only the cells Omega were observed. With users P (n, k) and items V (A, k),

    minimise  sum over Omega of (x_ij - p_i . v_j)^2 + ridge (|P|^2 + |V|^2),

which is the maximum a posteriori estimate of probabilistic matrix factorisation (Salakhutdinov and Mnih 2007). The
problem is convex in each side, so ALS solves for P with V fixed, then for V with P fixed. With V fixed every user is a
ridge regression of their own on the items they met:

    p_i = (sum_j v_j v_j^T + ridge I)^-1 sum_j x_ij v_j,      sums over the cells of row i.

The same regression folds a newcomer in once the items are learned. The table is sparse because a cell that was observed
to be zero is data, and a cell that was not observed is none: a CSR matrix keeps zeros that are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from newcomer.arrays import Floats

_BLOCK = 4_000_000  # numbers (32 MB) that the systems of one block of rows may take
_PRODUCTS = 32_000_000  # numbers (256 MB) that the products of all factors may take: 100,000 factors of 18


@dataclass(frozen=True, eq=False)
class AlsRegression:
    """Ridge regression of the rows of a table on fixed factors (A, k): one half of a sweep, or a fold-in."""

    factors: Floats
    ridge: float

    def solve(self, table: Any) -> Floats:
        """The coefficients (n, k) of the rows of a sparse table (n, A).

        Rows are solved in blocks, because with k = 200 the systems of a few thousand users take gigabytes.

        >>> table = sparse.csr_array(np.array([[2.0, 4.0]]))
        >>> AlsRegression(np.array([[1.0], [2.0]]), ridge=0.0).solve(table).tolist()
        [[2.0]]
        """
        table, rank = sparse.csr_array(table), self.factors.shape[1]
        found, step = np.empty((table.shape[0], rank)), max(1, _BLOCK // rank**2)
        for start in range(0, len(found), step):
            rows = table[start : start + step]
            systems = self._grams(rows)
            np.einsum("nii->ni", systems)[:] += self.ridge
            pull = np.asarray(rows @ self.factors)
            found[start : start + step] = _solve_als_systems(systems, pull)
        return found

    def _grams(self, rows: Any) -> Floats:
        """Sums (n, k, k) of v v^T over the cells of each row.

        With few factors one sparse product gives those of all rows, a triangle each. With many, the products v v^T of
        all factors would not fit in memory, and rows are long enough for a product of matrices each.
        """
        count, rank = self.factors.shape
        grams = np.empty((rows.shape[0], rank, rank))
        if count * rank**2 <= _PRODUCTS:
            i, j = np.tril_indices(rank)
            grams[:, i, j] = grams[:, j, i] = observed_als_cells(rows) @ self._products
            return grams
        for gram, cells in zip(grams, np.split(rows.indices, rows.indptr[1:-1]), strict=True):
            shown = self.factors[cells]
            np.matmul(shown.T, shown, out=gram)
        return grams

    @cached_property
    def _products(self) -> Floats:
        """The lower triangle of v v^T (A, k (k + 1) / 2) of each factor, the same for all rows."""
        i, j = np.tril_indices(self.factors.shape[1])
        return np.asarray(self.factors[:, i] * self.factors[:, j])


def _solve_als_systems(systems: Floats, pull: Floats) -> Floats:
    """Solutions (n, k); where numbers are so large that the ridge vanishes beside them, with a ridge that does not."""
    try:
        return np.asarray(np.linalg.solve(systems, pull[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        sizes = np.einsum("nii->n", systems)[:, None]
        np.einsum("nii->ni", systems)[:] += 1e-12 * np.where(sizes > 0, sizes, 1.0)
        return np.asarray(np.linalg.solve(systems, pull[:, :, None])[:, :, 0])


def fit_als(table: Any, items: Floats, *, ridge: float, sweeps: int) -> tuple[Floats, Floats]:
    """Users (n, k) and items (A, k) of a sparse table (n, A) after `sweeps` rounds of both from these items.

    >>> table = sparse.csr_array((np.array([2.0, 4.0, 1.0]), (np.array([0, 0, 1]), np.array([0, 1, 0]))), shape=(2, 2))
    >>> users, items = fit_als(table, np.ones((2, 1)), ridge=1e-6, sweeps=20)
    >>> (users @ items.T).round(3).tolist()
    [[2.0, 4.0], [1.0, 2.0]]
    """
    table = sparse.csr_array(table)
    turned = table.T.tocsr()
    for _ in range(sweeps):
        users = AlsRegression(items, ridge).solve(table)
        items = AlsRegression(users, ridge).solve(turned)
    return users, items


def observed_als_cells(table: Any) -> Any:
    """One in each cell of a CSR table that was observed, whatever it holds."""
    return sparse.csr_array((np.ones(len(table.data)), table.indices, table.indptr), shape=table.shape)
