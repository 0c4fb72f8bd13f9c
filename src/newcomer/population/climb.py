"""Climbing the penalised marginal likelihood of a prior, one pass over the logs per step.

EM's M-step solves sum_n X_n^T X_n W E_n = ..., a system that would need a pass for every iteration of its own. Instead every pass
moves W: the M-step with X_n^T X_n replaced by its share H_n of the common Gram matrix (an ECM step; its fixed points are EM's) is the
metric, and limited-memory BFGS (Nocedal 1980; for EM: Jamshidian and Jennrich 1997) learns from the passes what it leaves out. A
step that does not increase the penalised likelihood is shortened, so the likelihood of accepted steps never decreases.

The penalty 1/2 sum_j a_j |w_j|^2 says that the entries of column j of W = [m, L] are N(0, 1 / a_j) beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from newcomer.arrays import Floats
from newcomer.population.likelihood import Sums
from newcomer.population.record import Population

MEMORY = 10
SUFFICIENT = 1e-4  # of the slope: Armijo's condition
SHORTEST = 1e-6


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
    """One prior on its way up. Ask for `trial`, run a pass there, `tell` what it found."""

    trial: Population
    gram: Gram  # of the users fitted to
    penalty: Floats  # (k + 1,) precision of each column of W
    floor: float = 0.0  # of the noise variance: rewards without noise have no likeliest one
    best: Population | None = None
    value: float = -np.inf  # penalised likelihood at `best`
    sums: Sums | None = None  # at `best`
    gain: float = np.inf  # of the last accepted step
    _step: float = 1.0
    _direction: Floats | None = None
    _move: Floats | None = None
    _slope: float = 0.0
    _gradient: Floats | None = None
    _pairs: list[tuple[Floats, Floats]] = field(default_factory=list)
    passes: int = 0

    def tell(self, sums: Sums) -> None:
        """Take the sums of a pass at `trial`, and choose the next trial."""
        self.passes += 1
        value = sums.likelihood - 0.5 * float(self.penalty @ (self.trial.weights**2).sum(axis=0))
        if self.best is not None and not value >= self.value + SUFFICIENT * self._step * self._slope:
            self._shorten()
            return
        gradient = self._ascent(sums)
        if self.best is not None and self._gradient is not None and self._move is not None:
            self._remember(self._move, self._gradient - gradient)
            self.gain = value - self.value
        self.best, self.value, self.sums, self._gradient = self.trial, value, sums, gradient
        self._aim()

    def _shorten(self) -> None:
        assert self._direction is not None and self.best is not None
        if self._step < SHORTEST or (self._pairs and self._step < 0.2):
            if not self._pairs:
                self.gain, self.trial = 0.0, self.best
                return
            self._pairs = []
            self._aim()
            return
        self._step *= 0.25
        self._place()

    def _ascent(self, sums: Sums) -> Floats:
        """Gradient in (W, log s2), flat."""
        weights = sums.gradient / self.trial.noise_variance - self.trial.weights * self.penalty
        noise = 0.5 * (sums.residual / self.trial.noise_variance - sums.rows)
        return np.append(weights.ravel(), max(noise, 0.0) if self.trial.noise_variance <= self.floor else noise)

    def _aim(self) -> None:
        assert self._gradient is not None
        direction = self._two_loops(self._gradient)
        slope = float(direction @ self._gradient)
        if not slope > 0:
            self._pairs = []
            direction = self._metric(self._gradient)
            slope = float(direction @ self._gradient)
        # The noise changes by a factor of at most e in a step.
        shrink = min(1.0, 1.0 / max(abs(direction[-1]), 1e-300))
        self._direction, self._slope, self._step = direction, slope, shrink
        self._place()

    def _place(self) -> None:
        assert self._direction is not None and self.best is not None
        move = self._step * self._direction
        weights = self.best.weights + move[:-1].reshape(self.best.weights.shape)
        noise = max(self.best.noise_variance * float(np.exp(move[-1])), self.floor)
        move[-1] = np.log(noise / self.best.noise_variance)
        self._move, self.trial = move, Population(weights[:, 0].copy(), weights[:, 1:].copy(), noise)

    def _remember(self, move: Floats, change: Floats) -> None:
        if float(move @ change) > 1e-10 * float(np.linalg.norm(move) * np.linalg.norm(change)):
            self._pairs = [*self._pairs[-(MEMORY - 1) :], (move, change)]

    def _two_loops(self, gradient: Floats) -> Floats:
        """The inverse Hessian of BFGS times the gradient (Nocedal and Wright, algorithm 7.4)."""
        q, alphas = gradient.copy(), []
        for move, change in reversed(self._pairs):
            alphas.append(float(move @ q) / float(move @ change))
            q -= alphas[-1] * change
        q = self._metric(q)
        for (move, change), alpha in zip(self._pairs, reversed(alphas), strict=True):
            q += (alpha - float(change @ q) / float(move @ change)) * move
        return q

    def _metric(self, flat: Floats) -> Floats:
        """The ECM step: (Gram W Ebar / s2 + W a)^-1, and 2 / rows for log s2."""
        assert self.sums is not None and self.best is not None
        values, vectors = self.gram.eigen
        expected = self.sums.weights / (self.sums.rows * self.best.noise_variance)
        systems = values[:, None, None] * expected + np.diag(self.penalty + 1e-12 * values[-1] * np.trace(expected))
        inside = vectors.T @ flat[:-1].reshape(len(values), -1)
        moved = vectors @ np.linalg.solve(systems, inside[:, :, None])[:, :, 0]
        return np.append(moved.ravel(), flat[-1] * 2.0 / self.sums.rows)
