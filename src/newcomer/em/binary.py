"""Clicks: a population whose rewards are 0 or 1, climbed from its Gaussian fit.

    P(r = 1 | user n, action a) = sigma(phi^T (m + L z_n) + o_a),      z_n ~ N(0, I_k),   sigma(x) = 1 / (1 + exp(-x)).

The likelihood is that of em/binary_likelihood.py, maximised as described below.

**The start** is the Gaussian fit, which has chosen the rank: with p the mean and F the loadings of an action,
V = F k / (p (1 - p)) with k = sqrt(1 + pi |V|^2 / 8) and |V| <= 3; the level is k logit(p).

**Shrinkage.** One-hot: loadings are N(0, 1/4), levels are normal with the mean and the variance that the levels of the
start have. Features: the precisions of the Gaussian fit, taken to log-odds by the average slope p (1 - p).

The optimizer for a population of clicks: penalised marginal likelihood, EM's curvature as the metric.

EM itself is slow where a user's few rows say little of z. As in em/optimizer.py each pass over the logs is a step: EM's
curvature is the metric (one block for each one-hot action; the product of two small matrices where actions have
features), and limited-memory BFGS learns the rest. A step that loses is shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from newcomer.array_loops import StepMemory, empty_step_memory, lbfgs_first_loop, lbfgs_second_loop, remember
from newcomer.arrays import Bools, Floats
from newcomer.em.binary_likelihood import ClickSums, ClickTask, binary_likelihood_sums, merge_binary_likelihood
from newcomer.em.optimizer import MEMORY, SUFFICIENT, optimizer_solve_rows
from newcomer.em.passes import Passes
from newcomer.one_hot import Catalogue, OneHot
from newcomer.population import Population
from newcomer.transforms import NOISE, logit, sigmoid_moments

RIDGE = 4.0  # precision of loadings of one-hot actions
LEVELS = 0.25  # least variance of the levels of one-hot actions
LONGEST_LOADING = 3.0  # of an action, at the start
EDGE = 0.002  # means of the Gaussian fit are taken to lie this far from 0 and 1, at least


@dataclass(frozen=True)
class ClickStart:
    """Where clicks begin: the Gaussian population, how many of its directions are clear, and the catalogue's features.

    `precision` and `mean_precision` are those of the Gaussian fit, used where actions have features.
    """

    gaussian: Population
    directions: int
    table: Catalogue | None
    precision: float = 1.0
    mean_precision: float = 1.0
    constant: bool = False  # whether the last feature is 1

    @property
    def plain(self) -> bool:
        """Whether every action is a direction of its own."""
        return isinstance(self.table, OneHot) and not self.table.constant

    @cached_property
    def _means(self) -> Floats:
        """What the Gaussian fit expects of each action, kept off 0 and 1; its average where actions are not named."""
        found = self.gaussian
        if self.table is None:
            # Rows of a Bernoulli reward have the variance p (1 - p): it tells the average p, up to its side.
            return np.array([0.5])
        return np.clip(np.asarray(self.table @ found.mean) + found.levels, EDGE, 1.0 - EDGE)

    @cached_property
    def slopes(self) -> Floats:
        """p (1 - p) of each action (A,), or (1,): log-odds are rewards divided by it."""
        if self.table is None:
            power = float(np.sum(self.gaussian.factor**2)) / max(len(self.gaussian.mean), 1)
            return np.array([min(max(self.gaussian.noise_variance + power, EDGE), 0.25)])
        return np.asarray(self._means * (1.0 - self._means))

    def population(self, rank: int) -> Population:
        """The first `rank` directions on the scale of log-odds."""
        found, kinds = self.gaussian, len(self.gaussian.variances)
        residual = None if found.by_action is None else np.full(kinds, NOISE)
        found = replace(found, noise_variance=NOISE, by_action=residual, units=None, uncertainty=self.uncertainty)
        if self.plain:
            loadings, scaled = stretched_binary_loadings(found.factor[:, :rank], self.slopes)
            return replace(found, mean=logit(self._means) * scaled, factor=loadings)
        slope = float(np.average(self.slopes))
        factor = found.factor[:, :rank] / slope
        mean = np.zeros_like(found.mean)
        if self.constant and self.table is not None:
            p = float(self._means.mean())
            mean = found.mean / slope
            mean[-1] += float(logit(np.array(p))) - p / slope
        offsets = None if found.offsets is None else found.offsets / slope
        return replace(found, mean=mean, factor=factor, offsets=offsets)

    @property
    def uncertainty(self) -> Floats | None:
        """Variances of the error of log-odds (A,), or (1,), from those of the Gaussian fit."""
        known = self.gaussian.uncertainty
        return None if known is None else np.minimum(known / self.slopes**2, LONGEST_LOADING**2)

    def prior(self, start: Population) -> ClickPrior:
        """What is believed of a population that starts here."""
        if self.plain:
            between = max(float(start.mean.var()), LEVELS)
            anchor = np.full(len(start.mean), float(start.mean.mean()))
            return ClickPrior(np.array([1.0 / between] + [RIDGE] * start.rank), anchor)
        slope = float(np.average(self.slopes)) ** 2
        weights = np.array([self.mean_precision * slope] + [self.precision * slope] * start.rank)
        offsets = start.offsets
        firm = None if offsets is None else 1.0 / max(float(offsets.var()), 1e-3)
        return ClickPrior(np.maximum(weights, 1e-6), np.array(start.mean) if self.constant else 0.0 * start.mean, firm)

    def weak(self, rank: int) -> Floats:
        """Loadings (d, j) of the directions beyond the first `rank`, on the scale of log-odds; one-hot has them."""
        if not self.plain:
            return np.zeros((len(self.gaussian.mean), 0))
        return stretched_binary_loadings(self.gaussian.factor[:, rank:], self.slopes)[0]


def stretched_binary_loadings(loadings: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """Loadings (A, k) on the scale of log-odds, at most `LONGEST_LOADING` long, and the scale k (A,) of each action.

    V = F k / slope with k^2 = 1 + pi |V|^2 / 8, solved for |V|.
    """
    plain = loadings / slopes[:, None]
    length2 = (plain**2).sum(axis=1)
    room = 1.0 - np.pi / 8 * length2
    most = LONGEST_LOADING**2
    squared = np.where(room * most > length2, length2 / np.maximum(room, 1e-12), most)
    scale = np.sqrt(squared / np.maximum(length2, 1e-300))
    return plain * scale[:, None], np.sqrt(1.0 + np.pi / 8 * squared)


MOST_DIRECTIONS = 8  # that are fitted: nodes in more dimensions are too few


def fit_binary_population(passes: Passes, starts: Sequence[tuple[ClickStart, Bools]]) -> list[Population]:
    """Maximise from each start, on the users of its buckets (B,), all in the same passes; populations of log-odds."""
    ascents = []
    for start, _ in starts:
        first = start.population(min(start.directions, start.gaussian.rank, MOST_DIRECTIONS))
        ascents.append(ClickOptimizer(first, start.prior(first), start.table))
    for _ in range(LONGEST):
        going = [i for i, one in enumerate(ascents) if not one.arrived]
        if not going:
            break
        tasks = tuple(ClickTask(ascents[i].trial, starts[i][1]) for i in going)
        found: tuple[ClickSums, ...] = passes.run(partial(binary_likelihood_sums, tasks=tasks), merge_binary_likelihood)
        for i, sums in zip(going, found, strict=True):
            ascents[i].tell(sums)
    return [_finished(one.best or one.trial, start) for one, (start, _) in zip(ascents, starts, strict=True)]


def _finished(found: Population, start: ClickStart) -> Population:
    """The population with the weak directions of the Gaussian fit beside its own.

    What they add to log-odds was noise to the optimizer, which flattens the rest by k = sqrt(1 + pi |V|^2 / 8).
    """
    weak = start.weak(found.rank)
    if not weak.shape[1]:
        return found
    flat = np.sqrt(1.0 + np.pi / 8 * (weak**2).sum(axis=1))
    return replace(found, mean=found.mean * flat, factor=np.column_stack([found.factor * flat[:, None], weak]))


def binary_on_reward_scale(population: Population, table: Catalogue | None) -> Population:
    """The Gaussian population of the same mean rewards, covariances and variances: where a Gaussian fit can start.

    One-hot actions have them exactly: mean E[sigma], loadings V E[sigma'] (Stein), and what is left of p (1 - p).
    Features are linear in log-odds and not in rewards: there it is the tangent at the average.
    """
    if isinstance(table, OneHot) and not table.constant:
        own = (population.factor**2).sum(axis=1)
        p, slope, _ = sigmoid_moments(population.mean, own)
        factor = population.factor * slope[:, None]
        left = np.maximum(p * (1.0 - p) - (factor**2).sum(axis=1), 1e-6)
        unsure = None if population.uncertainty is None else population.uncertainty * slope**2
        return replace(
            population, mean=p, factor=factor, noise_variance=float(left.mean()), by_action=left, uncertainty=unsure
        )
    slope_of_all = 0.25
    residual = None if population.by_action is None else np.full(len(population.by_action), slope_of_all)
    offsets = None if population.offsets is None else population.offsets * slope_of_all
    unsure = None if population.uncertainty is None else population.uncertainty * slope_of_all**2
    return replace(
        population,
        mean=population.mean * slope_of_all,
        factor=population.factor * slope_of_all,
        noise_variance=slope_of_all,
        by_action=residual,
        offsets=offsets,
        uncertainty=unsure,
    )


LONGEST_STEP = 3.0  # of a level or a loading
LONGEST, DONE, DONE_EACH = 30, 0.02, 3e-4  # passes of an ascent, and the gain at which it ends: in all, or per unknown
SHORTEST = 1e-3  # step below which an ascent ends


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
