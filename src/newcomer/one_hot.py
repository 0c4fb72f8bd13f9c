"""One-hot features and diagonal matrices, never written out: the products that a fit needs of them, by name.

Where every action is a direction of its own, the table of features is the identity (with a last column of ones, if
there is a constant). Written out it would have A x A entries; what is needed of it are products, which cost nothing.
`OneHot` stands where a table of features (A, d) would, `Diagonal` where a Gram matrix (d, d) of one-hot features would,
and `Diagonals` where several of them (B, d, d) would.

`WIDE` is the number of features above which a fit forms nothing of d x d entries: from there on sparse sums are faster
(943 users who rated 1,682 items: 7 processor seconds in place of 216), and held-out users gain as much. `LARGE` is the
number above which a model writes no such matrix out either, and refuses policies that keep one for each user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints, read_only_array

WIDE = 1000  # features above which a fit forms no matrix of d x d entries
LARGE = 2000  # features above which nobody does


@dataclass(frozen=True)
class OneHot:
    """The features (A, d) of A one-hot actions; with a `constant`, d is A + 1 and the last feature is 1.

    >>> OneHot(3) @ np.array([[5.0], [6.0], [7.0]])
    array([[5.],
           [6.],
           [7.]])
    >>> (OneHot(2, constant=True).T @ np.array([[1.0], [2.0]])).ravel().tolist()
    [1.0, 2.0, 3.0]
    """

    actions: int
    constant: bool = False

    __array_ufunc__ = None  # products with arrays are ours, from either side

    def __len__(self) -> int:
        return self.actions

    @property
    def shape(self) -> tuple[int, int]:
        """(A, d), as of an array."""
        return self.actions, self.actions + self.constant

    @property
    def wide(self) -> bool:
        """Whether there are so many actions that nothing of d x d entries is formed."""
        return one_hot_is_wide(self.actions)

    @property
    def T(self) -> Turned:
        """The transpose (d, A)."""
        return Turned(self)

    def __matmul__(self, weights: Floats) -> Floats:
        return weights[:-1] + weights[-1] if self.constant else weights

    def __rmatmul__(self, left: Any) -> Floats:
        total: Floats = np.asarray(left, dtype=np.float64)
        return np.concatenate([total, total.sum(axis=-1, keepdims=True)], axis=-1) if self.constant else total

    def __getitem__(self, rows: Ints | slice | int) -> Floats:
        """Rows of the table, written out: of few actions, or of few rows."""
        which = np.arange(self.actions)[rows]
        out = np.zeros((*np.shape(which), self.shape[1]))
        out[..., self.actions :] = 1.0
        np.put_along_axis(out, np.asarray(which)[..., None], 1.0, axis=-1)
        return out

    def dense(self) -> Floats:
        """The whole table, written out; of few actions alone."""
        return _written(self)


@dataclass(frozen=True)
class Turned:
    """The transpose of a `OneHot` table."""

    table: OneHot

    __array_ufunc__ = None

    def __matmul__(self, values: Floats) -> Floats:
        return np.concatenate([values, values.sum(axis=0, keepdims=True)]) if self.table.constant else values


Catalogue = Floats | OneHot


def one_hot_is_wide(dim: int) -> bool:
    """Whether there are so many features that a fit forms nothing of d x d entries.

    >>> one_hot_is_wide(1000), one_hot_is_wide(1001)
    (False, True)
    """
    return dim > WIDE


def one_hot_is_large(dim: int) -> bool:
    """Whether there are so many features that nothing of d x d entries is written out.

    >>> one_hot_is_large(2000), one_hot_is_large(2001)
    (False, True)
    """
    return dim > LARGE


@dataclass(frozen=True, eq=False)
class Diagonal:
    """A matrix diag(values), (d, d), as a product sees it.

    >>> factor = np.ones((2, 1))
    >>> factor.T @ Diagonal(np.array([1.0, 2.0])) @ factor
    array([[3.]])
    """

    values: Floats  # (d,)

    __array_ufunc__ = None

    def __matmul__(self, right: Floats) -> Floats:
        return (self.values * right.T).T

    def __rmatmul__(self, left: Floats) -> Floats:
        return left * self.values

    def __truediv__(self, number: float) -> Diagonal:
        return Diagonal(self.values / number)


@dataclass(frozen=True, eq=False)
class Diagonals:
    """B diagonal matrices, as sums over buckets of users are kept."""

    values: Floats  # (B, d)

    def sum(self, axis: int = 0) -> Diagonal:
        """All of them added up."""
        return Diagonal(self.values.sum(axis=axis))

    def __getitem__(self, bucket: int) -> Diagonal:
        return Diagonal(self.values[bucket])


Square = Floats | Diagonal


def one_hot_gram(table: Catalogue, weights: Floats) -> Square:
    """T^T diag(weights) T for the features T (A, d) of the actions: written out unless it is diagonal and large.

    >>> one_hot_gram(np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([1.0, 0.5])).tolist()
    [[1.0, 1.0], [1.0, 3.0]]
    """
    if isinstance(table, OneHot):
        if table.wide and not table.constant:
            return Diagonal(weights)
        table = table.dense()
    product: Floats = table.T @ (weights[:, None] * table)
    return product


@lru_cache(maxsize=1)
def _written(table: OneHot) -> Floats:
    return read_only_array(table[:])
