"""The few compiled loops, bodies only: the maths they carry out is told where they are called.

Numba compiles them once and caches them beside this file; they also run, slowly, with NUMBA_DISABLE_JIT=1.
`warm()` loads or compiles all of them, so that set-up pays and the first decision does not.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@njit(cache=True, error_model="numpy")
def invert_cholesky(gram: Floats, floor: float, inverse: Floats, fine: NDArray[np.bool_]) -> None:
    """For each symmetric `gram[n]` = L L^T write L^-1 to `inverse[n]`; `fine[n]` is False where a squared pivot of L
    falls below `floor` times the largest diagonal entry (then `inverse[n]` is meaningless)."""
    count, size = gram.shape[0], gram.shape[1]
    factor = np.empty((size, size))
    for n in range(count):
        limit = 0.0
        for i in range(size):
            limit = max(limit, gram[n, i, i])
        limit *= floor
        fine[n] = True
        for i in range(size):
            for j in range(i + 1):
                total = gram[n, i, j]
                for p in range(j):
                    total -= factor[i, p] * factor[j, p]
                if i > j:
                    factor[i, j] = total / factor[j, j]
                elif total > limit:
                    factor[i, i] = np.sqrt(total)
                else:
                    fine[n] = False
                    break
            if not fine[n]:
                break
        if not fine[n]:
            continue
        # Rows of L^-1 by forward substitution, each a combination of the rows above it.
        for i in range(size):
            scale = 1.0 / factor[i, i]
            for j in range(size):
                inverse[n, i, j] = 0.0
            for p in range(i):
                weight = factor[i, p] * scale
                for j in range(p + 1):
                    inverse[n, i, j] -= weight * inverse[n, p, j]
            inverse[n, i, i] = scale


def warm() -> None:
    """Load every kernel from the cache, compiling those that are not there yet."""
    one = np.ones((1, 1, 1))
    invert_cholesky(one, 0.0, np.empty_like(one), np.empty(1, dtype=np.bool_))
