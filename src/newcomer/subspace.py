"""Subspaces: leading eigenvectors with signs that do not depend on the machine, and the distance of two subspaces.

Of a matrix that is too large to be written out, eigenvectors are found from its products with a few columns, each of
which costs a pass over the logs: block Krylov subspaces (Golub and Underwood 1977; Musco and Musco 2015), with the best
approximation that all products so far give (Rayleigh and Ritz).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from newcomer.arrays import Floats, symmetric_part

Norm = Literal["spectral", "frobenius"]


def top_eigenvectors(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """All eigenvalues (d,), largest first, and the `rank` leading eigenvectors (d, rank), with signs fixed.

    >>> values, vectors = top_eigenvectors(np.diag([1.0, 3.0, 2.0]), 1)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0, 1.0], [0.0, 1.0, 0.0])
    """
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1].copy(), fix_subspace_signs(vectors[:, ::-1][:, :rank])


def fix_subspace_signs(basis: Floats) -> Floats:
    """The same columns (d, k) with the largest entry of each positive, so that equal logs give equal files.

    >>> fix_subspace_signs(np.array([[0.6], [-0.8]])).tolist()
    [[-0.6], [0.8]]
    """
    if basis.shape[1] == 0:
        return basis.copy()
    # Rounding first: of two entries of equal size, the earlier decides on every machine.
    largest = np.argmax(np.round(np.abs(basis), 9), axis=0)
    signs = np.sign(basis[largest, np.arange(basis.shape[1])])
    return np.ascontiguousarray(basis * np.where(signs == 0, 1.0, signs))


def leading_subspace_by_products(
    products: Callable[[Sequence[Floats]], Sequence[Floats]],
    starts: Sequence[Floats],
    *,
    passes: int,
    wanted: int = 0,
    tolerance: float = 0.0,
) -> list[tuple[Floats, Floats]]:
    """Leading eigenvalues (q,) and eigenvectors (d, q) of several symmetric matrices, from at most `passes` products.

    `products` takes a block (d, b) for each matrix and returns the product of each matrix with its block: one pass over
    the logs serves all matrices. `starts` are the first blocks. With a `tolerance`, no more products are asked for once
    the residuals of the `wanted` leading eigenvectors are below it, relative to the largest eigenvalue.

    >>> matrix = np.diag([4.0, 1.0, 0.5, -3.0])
    >>> products = lambda blocks: [matrix @ one for one in blocks]
    >>> found = leading_subspace_by_products(products, [np.ones((4, 1))], passes=4)
    >>> found[0][0].round(6).tolist()
    [4.0, 1.0, 0.5, -3.0]
    """
    spans = [_orthonormal(start, np.zeros((len(start), 0))) for start in starts]
    blocks, images = spans, [np.zeros((len(start), 0)) for start in starts]
    found: list[tuple[Floats, Floats]] = []
    for last in range(1, passes + 1):
        told = products(blocks)
        images = [np.column_stack([before, new]) for before, new in zip(images, told, strict=True)]
        found = [_ritz(span, image) for span, image in zip(spans, images, strict=True)]
        if last == passes or all(
            _residual(pair, span, image, wanted) <= tolerance
            for pair, span, image in zip(found, spans, images, strict=True)
        ):
            break
        blocks = [_orthonormal(new, span) for new, span in zip(told, spans, strict=True)]
        spans = [np.column_stack([span, block]) for span, block in zip(spans, blocks, strict=True)]
    return [(values, span @ turn) for (values, turn), span in zip(found, spans, strict=True)]


def _orthonormal(block: Floats, span: Floats) -> Floats:
    """An orthonormal basis of what a block (d, b) adds to an orthonormal span (d, s); nothing, if it adds nothing."""
    size = float(np.linalg.norm(block))
    for _ in range(2):  # twice is enough: the first time may leave as much as rounding has grown
        block = block - span @ (span.T @ block)
        left, sizes, _ = np.linalg.svd(block, full_matrices=False)
        block = left[:, sizes > 1e-10 * size]
        size = 1.0
    return block


def _ritz(span: Floats, image: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (s,), largest first, of a matrix within a span (d, s), of which it makes `image`; and the turn."""
    values, vectors = np.linalg.eigh(symmetric_part(span.T @ image))
    return values[::-1].copy(), vectors[:, ::-1]


def _residual(pair: tuple[Floats, Floats], span: Floats, image: Floats, wanted: int) -> float:
    """How far the leading eigenvectors are from being some, relative to the largest eigenvalue; infinite if few."""
    values, turn = pair[0][:wanted], pair[1][:, :wanted]
    if span.shape[1] == len(span):
        return 0.0
    if not wanted or len(values) < wanted:
        return np.inf
    off = np.linalg.norm(image @ turn - span @ (turn * values), axis=0)
    return float(off.max() / max(np.abs(pair[0]).max(), np.finfo(np.float64).tiny))


def subspace_distance(basis: Floats, other: Floats, *, norm: Norm = "spectral") -> float:
    """Distance of two subspaces, each given by an orthonormal basis (d, k): the norm of the difference of projections.

    Spectral: the sine of the largest angle, in [0, 1]. Frobenius: at most sqrt(2k). Through residuals, which are exact
    for small angles where arccos is not.

    >>> subspace_distance(np.array([[1.0], [0.0]]), np.array([[0.8], [0.6]]))
    0.6
    """
    there, back = basis - other @ (other.T @ basis), other - basis @ (basis.T @ other)
    if norm == "frobenius":
        return float(np.hypot(np.linalg.norm(there), np.linalg.norm(back)))
    return float(min(1.0, max((np.linalg.norm(x, 2) if x.size else 0.0) for x in (there, back))))
