"""Two independent estimates of a user's reward vector, from the odd and the even steps (SOLD, steps 2 and 3).

For a half with features X (h, d) and rewards r, ridge mu:

    beta = (mu I + X^T X)^-1 X^T r   = X^T (X X^T + mu I)^-1 r,
    D    = I - mu (mu I + X^T X)^-1  = X^T (X X^T + mu I)^-1 X.

With X X^T + mu I = L L^T and Z = L^-1 X this is D = Z^T Z and beta = Z^T (L^-1 r): only h x h systems, and the sum of D
over users is one product of stacked Z. A half longer than d is first compressed to d rows by a QR factorisation, which
changes neither. Without a ridge (the paper's pseudo-inverse version) D is the projection onto the rows of X, and L^-1
comes from the singular values of X where X X^T is singular or nearly so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from newcomer.array_loops import invert_cholesky
from newcomer.arrays import Floats

# Below this ratio of squared pivot to largest diagonal entry a Gram matrix without ridge may be singular, and has lost
# digits in any case: the singular values of the features themselves decide.
SINGULAR = 1e-4


@dataclass(frozen=True)
class Half:
    """Of n users: `roots` Z (n, m, d) with D = Z^T Z, and `estimates` beta (n, d)."""

    roots: Floats
    estimates: Floats


def estimate_half(features: Floats, rewards: Floats, ridge: float | None) -> Half:
    """Estimates of one half of equally long histories: features (n, h, d), rewards (n, h); no ridge: pseudo-inverse.

    One row phi = (2, 0) with reward 3 and ridge 1 gives beta = 2 * 3 / (4 + 1) along the first axis:

    >>> estimate_half(np.array([[[2.0, 0.0]]]), np.array([[3.0]]), 1.0).estimates.round(9).tolist()
    [[1.2, 0.0]]
    """
    if features.shape[1] > features.shape[2]:
        # X = Q R with R (n, d, d): R and Q^T r carry all that X^T X and X^T r know.
        q, features = np.linalg.qr(features)
        rewards = np.matmul(q.transpose(0, 2, 1), rewards[:, :, None])[:, :, 0]
    gram = features @ features.transpose(0, 2, 1)
    whiten = _whiten_ridge(gram, ridge) if ridge else _whiten_pseudo(gram, features)
    roots = whiten @ features
    weights = np.matmul(whiten, rewards[:, :, None])
    return Half(roots, np.matmul(roots.transpose(0, 2, 1), weights)[:, :, 0])


def _whiten_ridge(gram: Floats, ridge: float) -> Floats:
    """L^-1 (n, h, h) with L L^T = X X^T + mu I; the ridge is added to `gram` in place."""
    diagonal = np.arange(gram.shape[1])
    gram[:, diagonal, diagonal] += ridge
    inverse, fine = np.empty_like(gram), np.empty(len(gram), dtype=np.bool_)
    invert_cholesky(gram, 0.0, inverse, fine)
    return inverse


def _whiten_pseudo(gram: Floats, features: Floats) -> Floats:
    """W (n, h, h) with W^T W = (X X^T)^+: by Cholesky where X X^T is well conditioned, else by singular values."""
    inverse, fine = np.empty_like(gram), np.empty(len(gram), dtype=np.bool_)
    invert_cholesky(gram, SINGULAR, inverse, fine)
    if not fine.all():
        left, sizes, _ = np.linalg.svd(features[~fine], full_matrices=False)
        floor = max(features.shape[1:]) * np.finfo(np.float64).eps * sizes[:, :1]
        kept = (sizes > floor) & (sizes > 0)
        scale = np.where(kept, 1.0 / np.where(kept, sizes, 1.0), 0.0)
        inverse[~fine] = scale[:, :, None] * left.transpose(0, 2, 1)
    return inverse
