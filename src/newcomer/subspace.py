"""Subspaces: leading eigenvectors with signs that do not depend on the machine, and the distance of two subspaces."""

from __future__ import annotations

from typing import Literal

import numpy as np

from newcomer.arrays import Floats

Norm = Literal["spectral", "frobenius"]


def top_eigenvectors(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """All eigenvalues (d,), largest first, and the `rank` leading eigenvectors (d, rank), with signs fixed.

    >>> values, vectors = top_eigenvectors(np.diag([1.0, 3.0, 2.0]), 1)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0, 1.0], [0.0, 1.0, 0.0])
    """
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_signs(vectors[:, ::-1][:, :rank])


def fix_signs(basis: Floats) -> Floats:
    """The same columns (d, k) with the largest entry of each positive, so that equal logs give equal files.

    >>> fix_signs(np.array([[0.6], [-0.8]])).tolist()
    [[-0.6], [0.8]]
    """
    if basis.shape[1] == 0:
        return basis.copy()
    # Rounding first: of two entries of equal size, the earlier decides on every machine.
    largest = np.argmax(np.round(np.abs(basis), 9), axis=0)
    signs = np.sign(basis[largest, np.arange(basis.shape[1])])
    return np.ascontiguousarray(basis * np.where(signs == 0, 1.0, signs))


def distance(basis: Floats, other: Floats, *, norm: Norm = "spectral") -> float:
    """Distance of two subspaces, each given by an orthonormal basis (d, k): the norm of the difference of projections.

    Spectral: the sine of the largest angle, in [0, 1]. Frobenius: at most sqrt(2k). Through residuals, which are exact
    for small angles where arccos is not.

    >>> distance(np.array([[1.0], [0.0]]), np.array([[0.8], [0.6]]))
    0.6
    """
    there, back = basis - other @ (other.T @ basis), other - basis @ (basis.T @ other)
    if norm == "frobenius":
        return float(np.hypot(np.linalg.norm(there), np.linalg.norm(back)))
    return float(min(1.0, max((np.linalg.norm(x, 2) if x.size else 0.0) for x in (there, back))))
