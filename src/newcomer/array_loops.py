"""The few compiled loops, bodies only: the maths they carry out is told where they are called.

Numba compiles them once and caches them beside this file; they also run, slowly, with NUMBA_DISABLE_JIT=1.
`warm()` loads or compiles all of them, so that set-up pays and the first decision does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Loop = TypeVar("Loop", bound=Callable[..., object])

# Sums may be reordered and fused so that they run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
# Features and rewards beyond this size would overflow when squared and summed.
HUGE = 1e100
# Scores this close, relative to the best, are a tie.
TIE = 1e-12


# For compiled loops that live beside their maths: numba itself is imported here alone.
compiled = njit(cache=True, error_model="numpy")


def quiet(loop: Loop) -> Loop:
    """For loops that meet features nobody has checked: without the compiler, Python would warn of NaN and infinity."""
    return loop if hasattr(loop, "py_func") else np.errstate(invalid="ignore", over="ignore")(loop)


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


@quiet
@njit(cache=True, fastmath=FAST)
def mean_scores(mean: Floats, users: Ints, actions: Floats, out: Floats) -> None:
    """out[i, a] = actions[i, a] . mean[users[i]]; one block of actions (1, K, d) serves all rows."""
    shared = actions.shape[0] == 1
    for i in range(users.size):
        block = actions[0] if shared else actions[i]
        weights = mean[users[i]]
        for a in range(block.shape[0]):
            total = 0.0
            for j in range(block.shape[1]):
                total += block[a, j] * weights[j]
            out[i, a] = total


@njit(cache=True, fastmath=FAST)
def append_row(
    factor: Floats, residual: Floats, cross: Floats, variance: Floats, error: Floats, floor: float, gain: Floats
) -> None:
    """Append one row to each packed lower triangle L_s = `factor[s]` and to `residual[s]` = L_s^-1 (errors so far).

    `cross` (S, t) and `variance` (S,) are the new row of the matrix L_s L_s^T, whose squared pivot is at least `floor`;
    `gain[s]` becomes the log density of `error[s]` given the errors before it, up to a constant.
    """
    count = cross.shape[1]
    begin = count * (count + 1) // 2
    for s in range(cross.shape[0]):
        row = factor[s, begin:]
        left, known = variance[s], 0.0
        for i in range(count):
            above = factor[s, i * (i + 1) // 2 :]
            total = 0.0
            for j in range(i):
                total += above[j] * row[j]
            value = (cross[s, i] - total) / above[i]
            row[i] = value
            left -= value * value
            known += value * residual[s, i]
        pivot = np.sqrt(max(left, floor))
        row[count] = pivot
        residual[s, count] = (error[s] - known) / pivot
        gain[s] = -np.log(pivot) - residual[s, count] ** 2 / 2


@njit(cache=True, fastmath=FAST)
def solve_rows(factor: Floats, residual: Floats, out: Floats) -> None:
    """Replace each row x of `out` (q, t) by L^-T (residual - L^-1 x), L the packed lower triangle `factor`."""
    count = out.shape[1]
    for q in range(out.shape[0]):
        x = out[q]
        for i in range(count):
            row = factor[i * (i + 1) // 2 :]
            total = 0.0
            for j in range(i):
                total += row[j] * x[j]
            x[i] = (x[i] - total) / row[i]
        for i in range(count):
            x[i] = residual[i] - x[i]
        for i in range(count - 1, -1, -1):
            row = factor[i * (i + 1) // 2 :]
            x[i] /= row[i]
            for j in range(i):
                x[j] -= x[i] * row[j]


def warm() -> None:
    """Load every kernel from the cache, compiling those that are not there yet."""
    one = np.ones((1, 1, 1))
    invert_cholesky(one, 0.0, np.empty_like(one), np.empty(1, dtype=np.bool_))
    row, table = np.ones((1, 1)), np.empty((1, 1))
    mean_scores(row, np.zeros(1, dtype=np.int64), one, table)
    append_row(np.ones((1, 1)), table, np.empty((1, 0)), row[0], row[0], 1.0, np.empty(1))
    solve_rows(row[0], row[0], np.ones((1, 1)))
    _warm_priors(row)
    from newcomer.linear import learning_loops, scoring_loops
    from newcomer.policies import exit_loops

    for loops in (scoring_loops, learning_loops, exit_loops):
        loops.warm()


def _warm_priors(row: Floats) -> None:
    from newcomer.population import likelihood_loops as loops

    rows = np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    loops.likelihoods(row, *rows, 1.0, np.empty((1, 0)), np.empty(1))
    loops.expectations(row, *rows, 1.0, np.zeros((1, 1)), np.zeros((1, 1)))
