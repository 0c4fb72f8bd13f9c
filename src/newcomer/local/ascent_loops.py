"""Compiled loop of LOCAL-UCB's ascent: from one tilt to a better one, until no step promises anything.

The value of a tilt (`tilt_loops`) is smooth wherever it is finite, once its kink is rounded. It is climbed by a
quasi-Newton method with a limited memory (`array_loops`), each step shortened until it gains a fair share of what the
gradient promises, which also keeps the ascent where the value is finite. The maximum that is found is one among its
neighbours only; where to begin is the business of `tilts` and `rounds`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import StepMemory, compiled, dot, first_loop, remember, second_loop
from newcomer.arrays import Floats
from newcomer.local.problem import Problem
from newcomer.local.tilt_loops import NUMBERS, Tilted, example, project, room_of, tilted, write

MEMORY = 8  # steps that the ascent remembers
STEPS = 200  # at most
HALVINGS = 12  # of an infeasible start on its way to U_hat; the last goes all the way
FAIR = 1e-4  # share of the promised gain that a step must attain


class Ascent(NamedTuple):
    """The end of an ascent."""

    end: Tilted
    steepness: float  # |tilt| |gradient|, small at a smooth maximum
    evaluations: int


@compiled
def newton_direction(memory: StepMemory, slope: Floats, ahead: Floats) -> None:
    """Write the quasi-Newton direction of ascent for a gradient `slope` (n,).

    The first guess of the inverse Hessian is the multiple of I that fits the newest step.
    """
    ahead[:] = slope
    weights = np.zeros(MEMORY)
    first_loop(memory, ahead, weights)
    newest = (memory.taken[0] - 1) % MEMORY
    scale = memory.curves[newest] / dot(memory.turns[newest], memory.turns[newest])
    for i in range(ahead.size):
        ahead[i] *= scale
    second_loop(memory, weights, ahead)


@compiled
def project_tilt(basis: Floats, tilt: Floats) -> None:
    """Take the part in U_hat away from both columns of Y, in place."""
    for c in range(2):
        column = tilt[: basis.shape[0], c].copy()
        project(basis, column)
        tilt[: basis.shape[0], c] = column


@compiled
def first_feasible(problem: Problem, action: Floats, tilt: Floats, smooth: float) -> tuple[Tilted, int]:
    """Evaluate the start of an ascent; where it holds no feasible point, move it to U_hat, in place, until it does.

    Returns what was found and the number of evaluations.
    """
    spent = 0
    while True:
        found = tilted(problem, action, tilt, smooth)
        spent += 1
        if found.value > -np.inf or spent > HALVINGS:
            return found, spent
        for i in range(problem.basis.shape[0]):
            for c in range(2):
                tilt[i, c] *= 0.5 if spent < HALVINGS else 0.0


@compiled
def ascend(problem: Problem, action: Floats, tilt: Floats, smooth: float, tolerance: float) -> Ascent:
    """Ascend from a tilt, in place, until two steps in a row gain and promise less than about `tolerance`.

    A step promises what the value would gain if it were linear. It is shortened while it gains less than FAIR of that:
    to the maximum of the parabola through value, slope and gain, or to three tenths where it led to where nothing is
    feasible. Where not even a short step gains, the memory is dropped and the gradient itself is tried once; the ascent
    begins with the gradient too, and with a step in proportion to the length of Y. All arrays are worked on as flat
    vectors of n = 2 (d + k).
    """
    shape, d, n = tilt.shape, problem.basis.shape[0], tilt.size
    here, spent = first_feasible(problem, action, tilt, smooth)
    if here.value == -np.inf:
        return Ascent(here, 0.0, spent)
    taken = np.zeros(1, dtype=np.int64)
    memory = StepMemory(np.zeros((MEMORY, n)), np.zeros((MEMORY, n)), np.ones(MEMORY), taken)
    trial, ahead, move, turn = np.empty(shape), np.empty(n), np.empty(n), np.empty(n)
    now, new, slope = tilt.reshape(n), trial.reshape(n), here.slope.reshape(n)
    quiet, stuck = 0, False
    for _ in range(STEPS):
        steepness = dot(slope, slope)
        if taken[0] > 0:
            newton_direction(memory, slope, ahead)
        elif steepness > 0.0 and not stuck:
            reach = (0.3 * np.sqrt(dot(now[: 2 * d], now[: 2 * d])) + 1e-3) / np.sqrt(steepness)
            for i in range(n):
                ahead[i] = reach * slope[i]
        else:
            break
        project_tilt(problem.basis, ahead.reshape(shape))
        promise, step, gain, done = dot(slope, ahead), 1.0, 0.0, False
        while step * promise > 0.01 * tolerance and not done:
            for i in range(n):
                new[i] = now[i] + step * ahead[i]
            there = tilted(problem, action, trial, smooth)
            spent += 1
            gain, promised = there.value - here.value, step * promise
            done = gain >= FAIR * promised
            if not done:
                step *= 0.3 if gain == -np.inf else min(max(0.5 * promised / (promised - gain), 0.1), 0.6)
        if not done:  # without a memory there was nothing left to try
            stuck, taken[0] = taken[0] == 0, 0
            continue
        stuck, beyond = False, there.slope.reshape(n)
        for i in range(n):
            move[i], turn[i] = new[i] - now[i], slope[i] - beyond[i]
            now[i] = new[i]
        remember(memory, move, turn)
        here, slope = there, beyond
        quiet = quiet + 1 if gain < tolerance and step * promise < 10.0 * tolerance else 0
        if quiet >= 2:
            break
    return Ascent(here, np.sqrt(dot(now, now) * dot(slope, slope)), spent)


@compiled
def write_climb(
    problem: Problem,
    action: Floats,
    tilt: Floats,
    smooth: float,
    tolerance: float,
    slope: Floats,
    theta: Floats,
    numbers: Floats,
) -> int:
    """`ascend`, for callers in Python: the end is written as `write_tilted` does, and the steepness as one number more.

    Returns the number of evaluations.
    """
    found = ascend(problem, action, tilt, smooth, tolerance)
    write(found.end, slope, theta, numbers)
    numbers[NUMBERS] = found.steepness
    return int(found.evaluations)


def warm() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    problem, action, tilt = example()
    one, table = np.ones(8), np.ones((MEMORY, 8))
    memory = StepMemory(table, table.copy(), np.ones(MEMORY), np.ones(1, dtype=np.int64))
    newton_direction(memory, one, one.copy())
    project_tilt(problem.basis, tilt.copy())
    write_climb(problem, action, tilt, 1e-3, 1e-3, *room_of(problem))
