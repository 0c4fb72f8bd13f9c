"""The compiled loop of the literal exit; see exits.py."""

from __future__ import annotations

import numpy as np

from newcomer.array_loops import compiled
from newcomer.arrays import Floats


@compiled
def grow_cross(factor: Floats, cross: Floats, low: Floats, x: Floats) -> float:
    """C += low x^T, in place, for one user; returns kappa, the norm of C (k, d) with respect to V_U^-1 = W^T W.

    `factor` is the packed triangle W of the user's small system, `low` (k,) = U^T x. kappa is the root of the largest
    eigenvalue of C^T V_U^-1 C (d x d), which is that of (W C) (W C)^T (k x k).
    """
    for c in range(low.size):
        for j in range(x.size):
            cross[c, j] += low[c] * x[j]
    image = np.zeros(cross.shape)
    offset = 0
    for i in range(cross.shape[0]):
        for p in range(i + 1):
            for j in range(cross.shape[1]):
                image[i, j] += factor[offset + p] * cross[p, j]
        offset += i + 1
    return float(np.sqrt(max(np.linalg.eigvalsh(image @ image.T)[-1], 0.0)))


def warm() -> None:
    """Call the loop once, with arrays of the types it meets."""
    grow_cross(np.ones(1), np.zeros((1, 1)), np.ones(1), np.ones(1))
