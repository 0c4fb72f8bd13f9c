"""Climbing the penalised marginal likelihood of a prior, one pass over the logs per step.

EM's M-step solves sum_n X_n^T X_n W E_n = ..., a system that would need a pass for every iteration of its own. Instead
every pass moves W: the M-step with X_n^T X_n replaced by its share H_n of the common Gram matrix (an ECM step; its
fixed points are EM's) is the metric, and limited-memory BFGS (Nocedal 1980; for EM: Jamshidian and Jennrich 1997)
learns from the passes what it leaves out. A step that does not increase the penalised likelihood is shortened, so the
likelihood of accepted steps never decreases.

The penalty 1/2 sum_j a_j |w_j|^2 says that the entries of column j of W = [m, L] are N(0, 1 / a_j) beforehand. The
unknowns are the entries of W and the logarithm of the noise variance s2, which so stays positive: a flat vector of d (k
+ 1) + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from newcomer.array_loops import Memory, empty_memory, first_loop, remember, second_loop
from newcomer.arrays import Floats
from newcomer.population.likelihood import Sums
from newcomer.population.record import Population

MEMORY = 10  # steps that BFGS learns from
SUFFICIENT = 1e-4  # of the slope: Armijo's condition
SHORTEST = 1e-6  # step along the metric's own direction, below which there is nothing left to gain
DOUBTFUL = 0.2  # step along BFGS's direction, below which its memory is dropped instead


@dataclass(frozen=True, eq=False)
class Gram:
    """Sum of phi phi^T (d, d) over some users; climbers of the same users share its eigenvectors."""

    matrix: Floats

    @cached_property
    def eigen(self) -> tuple[Floats, Floats]:
        """Eigenvalues (d,), none negative, and eigenvectors (d, d)."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(values, 0.0), vectors


@dataclass
class Climber:
    """One prior on its way up. Ask for `trial`, run a pass there, `tell` what it found.

    A climber never reads the logs itself, so that one pass can serve several of them.
    """

    trial: Population
    gram: Gram  # of the users fitted to
    penalty: Floats  # (k + 1,) precision of each column of W
    floor: float = 0.0  # of the noise variance: rewards without noise have no likeliest one
    best: Population | None = None
    value: float = -np.inf  # penalised likelihood at `best`
    sums: Sums | None = None  # at `best`
    gain: float = np.inf  # of the last accepted step
    passes: int = 0
    _gradient: Floats = field(init=False)  # at `best`
    _direction: Floats = field(init=False)  # from `best`
    _slope: float = 0.0  # of the value along the direction
    _step: float = 1.0  # along the direction, to `trial`
    _move: Floats = field(init=False)  # from `best` to `trial`
    _memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self._memory = empty_memory(MEMORY, self.trial.weights.size + 1)

    def tell(self, sums: Sums) -> None:
        """Take the sums of a pass at `trial`, and choose the next trial.

        A trial that gains enough becomes the best, and the climb goes on from there in a new direction. After one that
        does not, the same direction is tried again with a quarter of the step.
        """
        self.passes += 1
        value = sums.likelihood - 0.5 * float(self.penalty @ (self.trial.weights**2).sum(axis=0))
        if self.best is not None and not value >= self.value + SUFFICIENT * self._step * self._slope:
            self._shorten()
            return
        gradient = self._ascent(sums)
        if self.best is not None:
            remember(self._memory, self._move, self._gradient - gradient)
            self.gain = value - self.value
        self.best, self.value, self.sums, self._gradient = self.trial, value, sums, gradient
        self._aim()

    def _shorten(self) -> None:
        """Step less far; where the step is short already, drop the memory; with nothing to drop, stay at the best."""
        learned = self._memory.taken[0] > 0
        if learned and self._step < DOUBTFUL:
            self._forget()
            self._aim()
        elif self._step < SHORTEST:
            assert self.best is not None
            self.gain, self.trial = 0.0, self.best
        else:
            self._step *= 0.25
            self._place()

    def _forget(self) -> None:
        self._memory.taken[0] = 0

    def _ascent(self, sums: Sums) -> Floats:
        """The gradient of the penalised likelihood at `trial` in (W, log s2), flat; at the floor the noise only rises.

        In W it is the pass's, divided by s2, less a_j w_j; in log s2 half of what the expected squared noise exceeds s2
        by.
        """
        weights = sums.gradient / self.trial.noise_variance - self.trial.weights * self.penalty
        noise = 0.5 * (sums.residual / self.trial.noise_variance - sums.rows)
        return np.append(weights.ravel(), max(noise, 0.0) if self.trial.noise_variance <= self.floor else noise)

    def _aim(self) -> None:
        """Choose a direction from `best`, BFGS's or, where that does not lead up, the metric's own; and a first step.

        The noise changes by a factor of at most e in a step.
        """
        direction = self._gradient.copy()
        weights = first_loop(self._memory, direction)
        direction = self._metric(direction)
        second_loop(self._memory, weights, direction)
        if not float(direction @ self._gradient) > 0:
            self._forget()
            direction = self._metric(self._gradient)
        self._direction, self._slope = direction, float(direction @ self._gradient)
        self._step = min(1.0, 1.0 / max(abs(direction[-1]), 1e-300))
        self._place()

    def _place(self) -> None:
        """Put the trial at the end of the step; a step that would take the noise below its floor ends there."""
        assert self.best is not None
        self._move = self._step * self._direction
        weights = self.best.weights + self._move[:-1].reshape(self.best.weights.shape)
        noise = max(self.best.noise_variance * float(np.exp(self._move[-1])), self.floor)
        self._move[-1] = np.log(noise / self.best.noise_variance)
        self.trial = Population(weights[:, 0].copy(), weights[:, 1:].copy(), noise)

    def _metric(self, flat: Floats) -> Floats:
        """The ECM step for a gradient, flat: the first guess of the inverse of the negative Hessian, times it.

        With E the mean over rows of E[(1, z)(1, z)^T], the M-step's system in W is Gram W E / s2 + W diag(a). In the
        eigenvectors of the Gram matrix it falls apart into one system (k + 1, k + 1) for each row of W, v E / s2 +
        diag(a) with v the eigenvalue; a little is added where v and a are both nothing. For log s2 the step is 2 /
        rows.
        """
        assert self.sums is not None and self.best is not None
        values, vectors = self.gram.eigen
        expected = self.sums.weights / (self.sums.rows * self.best.noise_variance)
        systems = values[:, None, None] * expected + np.diag(self.penalty + 1e-12 * values[-1] * np.trace(expected))
        inside = vectors.T @ flat[:-1].reshape(len(values), -1)
        moved = vectors @ np.linalg.solve(systems, inside[:, :, None])[:, :, 0]
        return np.append(moved.ravel(), flat[-1] * 2.0 / self.sums.rows)
