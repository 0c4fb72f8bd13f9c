"""Small dense algebra for the compiled loops of LOCAL-UCB, where a call into LAPACK would cost more than the work."""

from __future__ import annotations

import numpy as np

from newcomer.array_loops import compiled
from newcomer.local.problem import Floats


@compiled
def dot(x: Floats, y: Floats) -> float:
    """x . y."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@compiled
def form(matrix: Floats, x: Floats) -> float:
    """x^T matrix x."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * dot(matrix[i], x)
    return total


@compiled
def cholesky(matrix: Floats, lower: Floats) -> bool:
    """matrix = lower lower^T; False if the matrix is not positive definite."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            total = matrix[i, j] - dot(lower[i, :j], lower[j, :j])
            if i > j:
                lower[i, j] = total / lower[j, j]
            elif total > 0.0:
                lower[i, i] = np.sqrt(total)
            else:
                return False
    return True


@compiled
def solve(lower: Floats, x: Floats, out: Floats) -> None:
    """out = (lower lower^T)^-1 x."""
    n = x.size
    for i in range(n):
        out[i] = (x[i] - dot(lower[i, :i], out[:i])) / lower[i, i]
    for i in range(n - 1, -1, -1):
        out[i] /= lower[i, i]
        for j in range(i):
            out[j] -= lower[i, j] * out[i]
