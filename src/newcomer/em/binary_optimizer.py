"""The climb of a population of clicks: penalised marginal likelihood, EM's curvature as the metric.

EM itself is slow where a user's few rows say little of z. As in em/optimizer.py each pass over the logs is a step: EM's
curvature is the metric (one block for each one-hot action; the product of two small matrices where actions have
features), and limited-memory BFGS learns the rest. A step that loses is shortened.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from newcomer.array_loops import StepMemory, empty_step_memory, lbfgs_first_loop, lbfgs_second_loop, remember
from newcomer.arrays import Floats
from newcomer.em.binary_likelihood import ClickSums
from newcomer.em.optimizer import MEMORY, SUFFICIENT, optimizer_solve_rows
from newcomer.one_hot import Catalogue, OneHot
from newcomer.population import Population

LONGEST_STEP = 3.0  # of a level or a loading
LONGEST, DONE, DONE_EACH = 30, 0.02, 3e-4  # passes of a climb, and the gain at which it ends: in all, or per unknown
SHORTEST = 1e-3  # step below which a climb ends


@dataclass(frozen=True)
class ClickPrior:
    """What is believed beforehand of W = [m, L], its first column around `anchor` (d,), and of offsets around zero."""

    weights: Floats  # (k + 1,)
    anchor: Floats  # (d,)
    offsets: float | None = None

    def of(self, population: Population) -> float:
        """The log density, up to a constant."""
        weights = population.weights
        weights[:, 0] -= self.anchor
        value = -0.5 * float(self.weights @ (weights**2).sum(axis=0))
        return value if self.offsets is None else value - 0.5 * self.offsets * float((population.levels**2).sum())

    def slope(self, population: Population) -> Floats:
        """Its gradient, flat."""
        weights = population.weights
        weights[:, 0] -= self.anchor
        first = -(weights * self.weights).ravel()
        return first if self.offsets is None else np.concatenate([first, -self.offsets * population.levels])


@dataclass
class ClickOptimizer:
    """One population of clicks on its way up: ask for `trial`, run a pass there, `tell` what it found."""

    trial: Population
    prior: ClickPrior
    table: Catalogue | None  # (A, d) features of the catalogue, None where rows bring features
    best: Population | None = None
    value: float = -np.inf
    gain: float = np.inf
    sums: ClickSums | None = None
    passes: int = 0
    _memory: StepMemory = field(init=False)
    _gradient: Floats = field(init=False)
    _direction: Floats = field(init=False)
    _step: float = 1.0

    def __post_init__(self) -> None:
        self._memory = empty_step_memory(MEMORY, self.size)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.trial.weights.size + (0 if self.prior.offsets is None else len(self.trial.levels))

    @property
    def arrived(self) -> bool:
        """Whether the last step gained no more than is asked for."""
        return self.gain < max(DONE, DONE_EACH * self.size) or self.passes >= LONGEST

    @property
    def plain(self) -> bool:
        """Whether every action is a direction of its own."""
        return isinstance(self.table, OneHot) and not self.table.constant

    def tell(self, sums: ClickSums) -> None:
        """Take the sums of a pass at `trial`, and choose the next trial; a step that loses is made shorter."""
        self.passes += 1
        value = sums.likelihood + self.prior.of(self.trial)
        if self.best is not None:
            slope = float(self._direction @ self._gradient)
            if not value >= self.value + SUFFICIENT * self._step * slope:
                self._step *= 0.3
                self._memory.taken[0] = 0
                self.gain = 0.0 if self._step < SHORTEST else self.gain
                self._place()
                return
        gradient = self._ascent(sums)
        if self.best is not None:
            remember(self._memory, self._step * self._direction, self._gradient - gradient)
            self.gain = value - self.value
        self.best, self.value, self.sums, self._gradient = self.trial, value, sums, gradient
        self._aim()

    def _ascent(self, sums: ClickSums) -> Floats:
        """The gradient of the penalised likelihood at `trial`, flat."""
        pull = sums.pull if self.table is None else np.asarray(self.table.T @ sums.pull)
        parts = [pull.ravel()]
        if self.prior.offsets is not None:
            parts.append(sums.offsets[0] if self.table is None else sums.pull[:, 0])
        return np.asarray(np.concatenate(parts) + self.prior.slope(self.trial))

    def _aim(self) -> None:
        """BFGS's direction or, where that does not lead up, the metric's own."""
        direction, weights = self._gradient.copy(), np.zeros(len(self._memory.curves))
        lbfgs_first_loop(self._memory, direction, weights)
        direction = self._metric(direction)
        lbfgs_second_loop(self._memory, weights, direction)
        if not float(direction @ self._gradient) > 0:
            self._memory.taken[0] = 0
            direction = self._metric(self._gradient)
        longest = float(np.abs(direction).max(initial=0.0))
        self._direction, self._step = direction, min(1.0, LONGEST_STEP / max(longest, 1e-300))
        self._place()

    def _place(self) -> None:
        assert self.best is not None
        move, shape = self._step * self._direction, self.best.weights.shape
        cut = shape[0] * shape[1]
        weights = self.best.weights + move[:cut].reshape(shape)
        offsets = None if self.prior.offsets is None else self.best.levels + move[cut:]
        self.trial = replace(self.best, mean=weights[:, 0].copy(), factor=weights[:, 1:].copy(), offsets=offsets)

    def _metric(self, flat: Floats) -> Floats:
        """EM's curvature and the prior's, inverted, times a gradient."""
        assert self.sums is not None
        sums, shape = self.sums, self.trial.weights.shape
        cut = shape[0] * shape[1]
        given = flat[:cut].reshape(shape)
        if self.plain:
            systems = sums.bend + np.diag(self.prior.weights)
            return np.asarray(np.linalg.solve(systems, given[:, :, None])[:, :, 0].ravel())
        gram, curve, bend = self._curvature
        values, vectors = np.linalg.eigh(gram)
        values, mass = np.maximum(values, 0.0), max(float(curve[0, 0]), 1e-300)
        little = self.prior.weights + 1e-9 * max(float(values.max(initial=0.0)), 1e-9)
        moved = vectors @ optimizer_solve_rows(values, curve / mass, little, vectors.T @ given)
        parts = [moved.ravel()]
        if self.prior.offsets is not None:
            parts.append(flat[cut:] / (bend + self.prior.offsets))
        return np.concatenate(parts)

    @property
    def _curvature(self) -> tuple[Floats, Floats, Floats]:
        """(Gram matrix weighted by the curvature of levels, sum of curvatures, curvature of offsets)."""
        assert self.sums is not None
        sums = self.sums
        if self.table is None:
            return sums.gram, sums.curve, sums.offsets[1]
        features = self.table.dense() if isinstance(self.table, OneHot) else np.asarray(self.table)
        level = sums.bend[:, 0, 0]
        return (features * level[:, None]).T @ features, sums.bend.sum(axis=0), level
