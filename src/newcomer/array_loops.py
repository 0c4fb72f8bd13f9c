"""Compiled loops that several rooms share: triangular systems, directions of quasi-Newton ascents, mean scores.

A compiled loop is an ordinary function of NumPy arrays that Numba turns into machine code. It lives in a file called
`*_loops.py`, and nowhere else, and runs (slowly) without the compiler too, with NUMBA_DISABLE_JIT=1. The machine code
is kept beside the file, so that it is made once; `newcomer.compile_cache` finds all these files and has it made during
set-up. For this each of them has a function `warm_<file>`, which calls its loops with the smallest arrays of the right
types.

Two habits of Numba to know. An array that is not contiguous, or not writeable, is of another type, for which a loop is
compiled again, in front of the person (`plain` gives the usual type). And a loop inherits the options of the loop that
first called it, unless its own say otherwise, so that its sums would depend on who was first: hence the two decorators
below, which say everything.

And a rule that keeps Ctrl-C from killing the interpreter: a loop that Python calls writes to arrays that the caller
brings, and returns a number or nothing. To hand over an array, a tuple or a record, Numba runs Python in the middle of
the call; a signal that waits is handled there, and the exception that it raises is lost (SystemError) or followed as if
it were the result (segmentation fault). Numbers are handed over without Python, so that compiled code never sees a
signal. Loops that return more are for other loops (`tests/test_architecture.py` looks at every call).

The shapes of the triangles: a matrix is square here, (n, n), and so is its factor, with nothing of interest above the
diagonal. States of users keep triangles packed instead, row i in places i (i + 1) / 2 and the i after it, which halves
the memory of a user; `invert_packed_triangle`, `append_triangle_row` and `solve_rows` work on those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numba import njit

from newcomer.arrays import Bools, Floats, Ints

Loop = TypeVar("Loop", bound=Callable[..., object])

# Sums may be reordered and fused so that they run in vector registers; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
# Features and rewards beyond this size would overflow when squared and summed.
HUGE = 1e100
# Scores this close, relative to the best, are a tie.
TIE = 1e-12
# Multiplications from which on a product of matrices is left to BLAS.
MATRICES = 2000
# Pivots that are swept at a time.
PIVOTS = 4
# A step is remembered if the gradient turned against it by at least this cosine.
TURNED = 1e-10

# Division by zero gives infinity, as in NumPy, in both; sums keep their written order in the first only.
compiled = njit(cache=True, error_model="numpy", fastmath=False)
fast = njit(cache=True, error_model="numpy", fastmath=FAST)
# For parts of loops that are called for every user with many arrays, which would take as long to pass as to read.
inlined = njit(error_model="numpy", fastmath=FAST, inline="always")


def quiet_loop(loop: Loop) -> Loop:
    """For loops that meet features nobody has checked: without the compiler, Python would warn of NaN and infinity."""
    return loop if hasattr(loop, "py_func") else np.errstate(invalid="ignore", over="ignore")(loop)


def plain(array: Floats) -> Floats:
    """The array as compiled loops expect it, contiguous and writeable; a copy where it is not."""
    return array if array.flags.carray else np.array(array, order="C")


# Small dense algebra, for sizes at which a call into LAPACK would cost more than the work.


@fast
def dot(x: Floats, y: Floats) -> float:
    """x . y."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@inlined
def add_products(left: Floats, right: Floats, count: int, out: Floats) -> None:
    """Add left^T right (m, m), which is symmetric, of the first `count` rows of two (n, m): all of it by BLAS where
    that pays, else the lower triangle.
    """
    if count * out.size > MATRICES:
        out += np.dot(left[:count].T, right[:count])
    else:
        for i in range(count):
            for a in range(out.shape[0]):
                x = left[i, a]
                for b in range(a + 1):
                    out[a, b] += x * right[i, b]


@inlined
def multiply_rows(rows: Floats, matrix: Floats, count: int, out: Floats) -> None:
    """out = rows matrix (n, m), of the first `count` rows, by BLAS where that pays."""
    if count * matrix.size > MATRICES:
        np.dot(rows[:count], matrix, out[:count])
    else:
        for i in range(count):
            for b in range(matrix.shape[1]):
                out[i, b] = 0.0
            for a in range(matrix.shape[0]):
                x = rows[i, a]
                for b in range(matrix.shape[1]):
                    out[i, b] += x * matrix[a, b]


@fast
def quadratic_form(matrix: Floats, x: Floats) -> float:
    """x^T matrix x."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * dot(matrix[i], x)
    return total


@fast
def cholesky(matrix: Floats, lower: Floats, floor: float) -> bool:
    """Write the Cholesky factor of a symmetric matrix = lower lower^T, row by row; `lower` may be `matrix` itself.

    Only the lower triangle is read and written. False, with `lower` half done, once a squared pivot is not above
    `floor`: with `floor` = 0 the matrix is then not positive definite (or not finite).
    """
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            left = matrix[i, j]
            for p in range(j):
                left -= lower[i, p] * lower[j, p]
            if i > j:
                lower[i, j] = left / lower[j, j]
            elif left > floor:
                lower[i, i] = np.sqrt(left)
            else:
                return False
    return True


@fast
def invert_lower_triangle(lower: Floats) -> None:
    """Turn a lower triangle L into L^-1, in place: row i of L L^-1 = I gives row i of L^-1 from the rows above it.

    Entry p of row i is needed once, before the entries up to p of the same row are written.
    """
    for i in range(lower.shape[0]):
        scale = 1.0 / lower[i, i]
        for p in range(i):
            weight = lower[i, p] * scale
            lower[i, p] = 0.0
            for j in range(p + 1):
                lower[i, j] -= weight * lower[p, j]
        lower[i, i] = scale


@fast
def sweep_pivots(system: Floats, first: int, rows: Floats, block: Floats) -> float:
    """Sweep a symmetric matrix (n, n) on its pivots from `first` on, a multiple of `PIVOTS` of them.

    Returns the log determinant of their block. With [[s, c^T], [c, P]], P the block of these pivots, the matrix becomes
    [[s - c^T P^-1 c, -c^T P^-1], [P^-1 c, P^-1]]: all that a least squares needs. `PIVOTS` whole rows are taken out at
    a time, for which there is room in `rows` (PIVOTS, n) and `block` (PIVOTS, PIVOTS). A matrix that is not positive
    definite gives NaN.
    """
    size, logdet = system.shape[0], 0.0
    for p in range(first, size, PIVOTS):
        for a in range(PIVOTS):
            for b in range(PIVOTS):
                block[a, b] = system[p + a, p + b]
        for a in range(PIVOTS):
            pivot = block[a, a] if block[a, a] > 0.0 else np.nan
            logdet += np.log(pivot)
            for c in range(PIVOTS):
                if c != a:
                    x = block[c, a] / pivot
                    for b in range(PIVOTS):
                        if b != a:
                            block[c, b] -= x * block[a, b]
                    block[c, a] = -x
            for b in range(PIVOTS):
                block[a, b] = block[a, b] / pivot if b != a else 1.0 / pivot
        for a in range(PIVOTS):
            x, y, z, w = block[a, 0], block[a, 1], block[a, 2], block[a, 3]
            for j in range(size):
                rows[a, j] = x * system[p, j] + y * system[p + 1, j] + z * system[p + 2, j] + w * system[p + 3, j]
            for b in range(PIVOTS):
                rows[a, p + b] = block[a, b]
        for i in range(size):
            x, y, z, w = system[i, p], system[i, p + 1], system[i, p + 2], system[i, p + 3]
            for b in range(PIVOTS):
                system[i, p + b] = 0.0
            for j in range(size):
                system[i, j] -= x * rows[0, j] + y * rows[1, j] + z * rows[2, j] + w * rows[3, j]
        for a in range(PIVOTS):
            for j in range(size):
                system[p + a, j] = rows[a, j]
    return logdet


@fast
def solve(lower: Floats, x: Floats, out: Floats) -> None:
    """out = (lower lower^T)^-1 x, by a forward and a backward substitution; `out` may be `x` itself."""
    for i in range(x.size):
        out[i] = (x[i] - dot(lower[i, :i], out[:i])) / lower[i, i]
    for i in range(x.size - 1, -1, -1):
        out[i] /= lower[i, i]
        for j in range(i):
            out[j] -= lower[i, j] * out[i]


@fast
def invert_cholesky(gram: Floats, floor: float, inverse: Floats, fine: Bools) -> None:
    """For each of many symmetric matrices gram[n] = L L^T write L^-1 to inverse[n], both (N, m, m).

    `fine[n]` is False where a squared pivot of L is not above `floor` times the largest diagonal entry, i.e. where the
    matrix is singular to that accuracy; `inverse[n]` is meaningless there.
    """
    for n in range(gram.shape[0]):
        largest = 0.0
        for i in range(gram.shape[1]):
            largest = max(largest, gram[n, i, i])
            inverse[n, i, i + 1 :] = 0.0
        fine[n] = cholesky(gram[n], inverse[n], floor * largest)
        if fine[n]:
            invert_lower_triangle(inverse[n])


@fast
def invert_packed_triangle(gram: Floats, factor: Floats, size: int) -> bool:
    """Write L^-1, where gram = L L^T (size, size), to `factor`, both packed; False, and nothing written, if singular.

    The triangle is unpacked for it, and packed again: size^2 copies beside size^3 operations.
    """
    square = np.empty((size, size))
    begin = 0
    for i in range(size):
        square[i, : i + 1] = gram[begin : begin + i + 1]
        begin += i + 1
    if not cholesky(square, square, 0.0):
        return False
    invert_lower_triangle(square)
    begin = 0
    for i in range(size):
        factor[begin : begin + i + 1] = square[i, : i + 1]
        begin += i + 1
    return True


# Limited-memory BFGS (Nocedal and Wright, Numerical Optimization, algorithm 7.4), for ascents: H stands for the inverse
# of the negative Hessian, and H times the gradient is the direction to ascend in.


class StepMemory(NamedTuple):
    """The last M steps of an ascent with n unknowns, in a ring: step number c is in row c mod M."""

    steps: Floats  # (M, n), from one place to the next
    turns: Floats  # (M, n), by how much the gradient fell between them
    curves: Floats  # (M,), step . turn, positive
    taken: Ints  # (1,), steps remembered so far, whether or not still here


def empty_step_memory(length: int, size: int) -> StepMemory:
    """Room for `length` steps with `size` unknowns."""
    return StepMemory(np.zeros((length, size)), np.zeros((length, size)), np.ones(length), np.zeros(1, dtype=np.int64))


@fast
def remember(memory: StepMemory, step: Floats, turn: Floats) -> None:
    """Keep a step in place of the oldest, if the gradient fell along it: any other would make H indefinite."""
    curve = dot(step, turn)
    if curve > TURNED * np.sqrt(dot(step, step) * dot(turn, turn)):
        m = memory.taken[0] % memory.curves.size
        memory.steps[m], memory.turns[m], memory.curves[m] = step, turn, curve
        memory.taken[0] += 1


@fast
def lbfgs_first_loop(memory: StepMemory, vector: Floats, weights: Floats) -> None:
    """Turn a gradient, in place, into what the first guess of H is applied to; write `weights` (M,) of the second loop.

    From the newest step to the oldest: the part of the gradient that a step accounts for is taken away.
    """
    length, count = memory.curves.size, memory.taken[0]
    for c in range(count - 1, max(0, count - length) - 1, -1):
        m = c % length
        weights[m] = dot(memory.steps[m], vector) / memory.curves[m]
        for i in range(vector.size):
            vector[i] -= weights[m] * memory.turns[m, i]


@fast
def lbfgs_second_loop(memory: StepMemory, weights: Floats, vector: Floats) -> None:
    """Turn the image of that under the first guess of H, in place, into H times the gradient, from oldest to newest."""
    length, count = memory.curves.size, memory.taken[0]
    for c in range(max(0, count - length), count):
        m = c % length
        weight = weights[m] - dot(memory.turns[m], vector) / memory.curves[m]
        for i in range(vector.size):
            vector[i] += weight * memory.steps[m, i]


# Scores, and the packed triangles of policies.


@quiet_loop
@fast
def mean_scores(mean: Floats, users: Ints, actions: Floats, out: Floats) -> None:
    """out[i, a] = actions[i, a] . mean[users[i]], (m, K); one block of actions (1, K, d) serves all rows."""
    shared = actions.shape[0] == 1
    for i in range(users.size):
        block = actions[0] if shared else actions[i]
        for a in range(block.shape[0]):
            out[i, a] = dot(block[a], mean[users[i]])


@fast
def append_triangle_row(
    factor: Floats, residual: Floats, cross: Floats, variance: Floats, error: Floats, floor: float, gain: Floats
) -> None:
    """Append one row to each packed lower triangle L_s = `factor[s]` and to `residual[s]` = L_s^-1 (errors so far).

    `cross` (S, t) and `variance` (S,) are the new row of the matrix L_s L_s^T, whose squared pivot is at least `floor`;
    `gain[s]` becomes the log density of `error[s]` given the errors before it, up to a constant. This is one more row
    of a Cholesky factor whose others stay as they are, the step that `cholesky` takes for every row.
    """
    count = cross.shape[1]
    begin = count * (count + 1) // 2
    for s in range(cross.shape[0]):
        row = factor[s, begin:]
        for i in range(count):
            above = factor[s, i * (i + 1) // 2 :]
            row[i] = (cross[s, i] - dot(above[:i], row)) / above[i]
        known = row[:count]
        pivot = np.sqrt(max(variance[s] - dot(known, known), floor))
        row[count] = pivot
        residual[s, count] = (error[s] - dot(known, residual[s])) / pivot
        gain[s] = -np.log(pivot) - residual[s, count] ** 2 / 2


@fast
def solve_rows(factor: Floats, residual: Floats, out: Floats) -> None:
    """Replace each row x of `out` (q, t) by L^-T (residual - L^-1 x), L the packed lower triangle `factor`.

    A forward substitution, a difference and a backward substitution, like `solve`.
    """
    count = out.shape[1]
    for q in range(out.shape[0]):
        x = out[q]
        for i in range(count):
            row = factor[i * (i + 1) // 2 :]
            x[i] = (x[i] - dot(row[:i], x)) / row[i]
        for i in range(count):
            x[i] = residual[i] - x[i]
        for i in range(count - 1, -1, -1):
            row = factor[i * (i + 1) // 2 :]
            x[i] /= row[i]
            for j in range(i):
                x[j] -= x[i] * row[j]


def warm_array_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    one, row, block, who = np.ones(1), np.ones((1, 1)), np.ones((1, 1, 1)), np.zeros(1, dtype=np.int64)
    dot(one, one)
    add_products(row, row, 1, row.copy())
    multiply_rows(row, row, 1, row.copy())
    quadratic_form(row, one)
    cholesky(row, row.copy(), 0.0)
    invert_lower_triangle(row.copy())
    sweep_pivots(np.eye(1 + PIVOTS), 1, np.empty((PIVOTS, 1 + PIVOTS)), np.empty((PIVOTS, PIVOTS)))
    solve(row, one, one.copy())
    invert_cholesky(block, 0.0, block.copy(), np.empty(1, dtype=np.bool_))
    invert_packed_triangle(one, one.copy(), 1)
    memory = empty_step_memory(1, 1)
    remember(memory, one, one)
    lbfgs_first_loop(memory, one.copy(), one.copy())
    lbfgs_second_loop(memory, one, one.copy())
    mean_scores(row, who, block, row.copy())
    append_triangle_row(row.copy(), row.copy(), np.empty((1, 0)), one, one, 1.0, one.copy())
    solve_rows(one, one, row.copy())
