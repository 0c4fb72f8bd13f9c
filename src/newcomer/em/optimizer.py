"""Ascent of the penalised marginal likelihood of a population, one pass over the logs per step.

EM's M-step solves sum_n X_n^T S_n^-1 X_n W E_n = ..., a system that would need a pass for every iteration of its own.
Instead every pass moves W: the M-step with X_n^T S_n^-1 X_n replaced by its share of the common Gram matrix (an ECM
step; its fixed points are EM's), made bolder where histories tell little of z, is the metric, and limited-memory BFGS
(Nocedal 1980; for EM: Jamshidian and Jennrich 1997) learns from the passes what it leaves out. A step that does not
increase the penalised likelihood is shortened, so an accepted step never decreases it.

The unknowns are the entries of W = [m, L], the logarithms of the variances v (A,), which so stay positive, and the
offsets o (A,) where there are any: one flat vector. The penalty says what is believed beforehand:

* entries of L are N(0, 1 / a), entries of m are N(anchor, 1 / a_0), offsets are N(0, 1 / b);
* where an earlier fit is continued (`Earlier`), W is normal around where that ended instead, and v_a counts its rows as
  well;
* v_a is scaled inverse chi-squared with `FEW` + `FIRM` degrees of freedom around what is expected of the action: the
  mean and the directions fit the rewards of an action with few rows, and what they leave says little of its residual.
  What to expect is learned from the actions that have the rows (`Totals`), again after every accepted step. Where
  no action is named there is one variance, and nothing to shrink it to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from newcomer.array_loops import StepMemory, empty_step_memory, lbfgs_first_loop, lbfgs_second_loop, remember
from newcomer.arrays import Floats
from newcomer.em.likelihood import Sums
from newcomer.em.pairs import FEW, FIRM
from newcomer.one_hot import Catalogue, Diagonal, OneHot, Square, one_hot_is_wide
from newcomer.population import Population

MEMORY = 10  # steps that BFGS learns from ...
ROOM, FEWEST = 4_000_000, 3  # ... or fewer, where this many numbers do not hold them, but not fewer than that
SUFFICIENT = 1e-4  # of the slope: Armijo's condition
SHORTEST = 1e-6  # step along the metric's own direction, below which there is nothing left to gain
BOLD, TOLD = 0.9, 0.1  # share of what is not told of z that steps allow for, and the least that is told of a direction
SCATTER = 2.0 / (FEW + FIRM)  # variance of the log of a variance around what is expected of it
DOUBTFUL = 0.2  # step along BFGS's direction, below which its memory is dropped instead


@dataclass(frozen=True, eq=False)
class Gram:
    """Sum of phi phi^T / v (d, d) over some users, and of 1 / v; their optimizers share its eigenvectors."""

    matrix: Square
    mass: float

    @cached_property
    def eigen(self) -> tuple[Floats, Catalogue]:
        """Eigenvalues (d,), none negative, and eigenvectors (d, d)."""
        if isinstance(self.matrix, Diagonal):
            return self.matrix.values, OneHot(len(self.matrix.values))
        values, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(values, 0.0), vectors


def optimizer_solve_rows(values: Floats, expected: Floats, little: Floats, rows: Floats) -> Floats:
    """x (d, q) with (g E + diag(a)) x = y for each row y of `rows` (d, q) and its g of `values` (d,).

    Of many rows no system is formed: with R = diag(a)^-1/2 and R E R = V diag(e) V^T, x = R V diag(1 / (g e + 1)) V^T R
    y.

    >>> optimizer_solve_rows(np.array([2.0]), np.array([[1.5]]), np.array([1.0]), np.array([[8.0]])).tolist()
    [[2.0]]
    """
    if not one_hot_is_wide(len(values)):
        systems = values[:, None, None] * expected + np.diag(little)
        return np.asarray(np.linalg.solve(systems, rows[:, :, None])[:, :, 0])
    root = 1.0 / np.sqrt(little)
    if not (np.isfinite(expected).all() and np.isfinite(root).all()):
        return np.full_like(rows, np.nan)  # numbers that have run away: the ascent ends
    sizes, turn = np.linalg.eigh(root[:, None] * expected * root)
    inside = (rows * root) @ turn / (values[:, None] * np.maximum(sizes, 0.0) + 1.0)
    return np.asarray((inside @ turn.T) * root)


@dataclass(frozen=True)
class Totals:
    """Rows (A,) of each action, the variance (A,) of its rewards before anything is explained, and what moments leave.

    What a fit leaves of the variance of an action with few rows says little: the mean and the directions fit its
    rewards. Those with many rows tell what to expect of it: a line of log v in the log of the total variance, weighted
    by rows. Its slope is 0 where the residual is the same for all actions, 1 where it is a common share of their
    variance. Where all actions have few rows, nothing but moments (A,) holds the variances up: they count as `FIRM`
    rows of each action.
    """

    rows: Floats
    variances: Floats
    moments: Floats

    def expected(self, variances: Floats) -> Floats:
        """What variances are shrunk towards (A,) where the fit has these (A,)."""
        told = float(self.rows.sum()) / (float(self.rows.sum()) + FIRM * len(self.rows))
        return np.asarray(self.line(variances) ** told * self.moments ** (1.0 - told))

    def line(self, variances: Floats) -> Floats:
        """What is expected of each action (A,) by the variances (A,) of those with many rows.

        The slope is N(1/2, 1) beforehand, and variances are taken to lie `SCATTER` (a variance of logs) off the line.

        >>> one = Totals(np.array([900.0, 900.0, 2.0]), np.array([1.0, 2.0, 4.0]), np.ones(3))
        >>> one.line(np.array([0.5, 0.5, 0.01])).round(2).tolist()
        [0.47, 0.53, 0.6]
        """
        share = self.rows / self.rows.sum()
        x, y = np.log(self.variances), np.log(variances)
        x, level = x - share @ x, float(share @ y)
        count = 1.0 / float(share @ share)  # actions that have most of the rows
        both, square = count * float(share @ (x * y)), count * float(share @ (x * x))
        slope = (both + 0.5 * SCATTER) / (square + SCATTER)
        return np.asarray(np.exp(level + min(max(slope, 0.0), 1.0) * x))


@dataclass(frozen=True)
class Earlier:
    """What an earlier fit knows, whose logs are not at hand: its posterior is what is believed before the new logs.

    The row of an action in W errs by itself, each entry with variance 1 / p: the earlier fit says how far off it is,
    the variance u of the error of m + L z (`Optimizer.uncertainty`), and u = (k + 1) / p. By the same token an action
    had about n = (k + 1) v / u rows, which count for its variance v. Besides, the N users of the earlier fit were a
    sample: their coordinates had not quite the mean 0 and the covariance I, which moves all rows together, by L times a
    matrix with entries of variance 1 / N. So each column of W is normal around that of the earlier W with covariance

        diag(1 / p) + L L^T / N.

    An action that the earlier fit did not meet has a large u, and is learned from the new logs.
    """

    weights: Floats  # (d, k + 1) the earlier W; features are one-hot
    precision: Floats  # (d,) p
    variances: Floats  # (A,) v
    users: int  # N

    @classmethod
    def of(cls, population: Population, users: int) -> Earlier | None:
        """What a population fitted to so many users knows of one-hot actions; None if it does not say how far off it
        is.
        """
        unsure, weights = population.uncertainty, population.weights
        if unsure is None or population.by_action is None or unsure.shape != population.mean.shape or not unsure.all():
            return None
        return cls(weights, weights.shape[1] / unsure, population.by_action, users)

    def pull(self, weights: Floats) -> Floats:
        """The inverse of the covariance times the distance (d, k + 1) of W from the earlier W, by Woodbury."""
        far = self.precision[:, None] * (weights - self.weights)
        factor = self.weights[:, 1:]
        heavy = self.precision[:, None] * factor
        inner = self.users * np.eye(factor.shape[1]) + factor.T @ heavy
        return np.asarray(far - heavy @ np.linalg.solve(inner, factor.T @ far))

    @property
    def rows(self) -> Floats:
        """n (A,)."""
        return self.precision * self.variances


@dataclass(frozen=True)
class Shrinkage:
    """What is believed beforehand of W, of its first column around `anchor` (d,), of variances, and of offsets (None:
    there are none).
    """

    weights: Floats  # (k + 1,) precision of each column of W
    anchor: Floats  # (d,)
    variance: Floats  # (A,) what variances are shrunk towards
    offsets: float | None = None
    totals: Totals | None = None  # by which `variance` follows the fit; None: it stays
    earlier: Earlier | None = None  # in place of `weights` and `anchor`, and beside `variance`

    def following(self, population: Population) -> Shrinkage:
        """The same with variances shrunk towards those that the fit has where rows are many."""
        return self if self.totals is None else replace(self, variance=self.totals.expected(population.variances))

    def of(self, population: Population) -> float:
        """The log density of a population, up to a constant."""
        weights, inverse = population.weights, self.variance / population.variances
        if self.earlier is None:
            weights[:, 0] -= self.anchor
            value = -0.5 * float(self.weights @ (weights**2).sum(axis=0))
        else:
            known = self.earlier.variances / population.variances
            value = -0.5 * float(((weights - self.earlier.weights) * self.earlier.pull(weights)).sum())
            value += 0.5 * float(self.earlier.rows @ (np.log(known) - known))
        value += 0.5 * optimizer_shrinkage_strength(population) * float((np.log(inverse) - inverse).sum())
        return (
            value if self.offsets is None else value - 0.5 * self.offsets * float(population.levels @ population.levels)
        )

    def slope(self, population: Population) -> Floats:
        """Its gradient, flat."""
        weights, inverse = population.weights, self.variance / population.variances
        of_variances = 0.5 * optimizer_shrinkage_strength(population) * (inverse - 1.0)
        if self.earlier is None:
            weights[:, 0] -= self.anchor
            parts = [-(weights * self.weights).ravel(), of_variances]
        else:
            known = self.earlier
            of_weights = -known.pull(weights)
            of_variances = of_variances + 0.5 * known.rows * (known.variances / population.variances - 1.0)
            parts = [of_weights.ravel(), of_variances]
        return np.concatenate(parts if self.offsets is None else [*parts, -self.offsets * population.levels])


def optimizer_shrinkage_strength(population: Population) -> float:
    """Degrees of freedom of what is believed of variances: none where there is one for all actions."""
    return 0.0 if population.by_action is None else FEW + FIRM


@dataclass
class Optimizer:
    """One population on its way up. Ask for `trial`, run a pass there, `tell` what it found.

    An optimizer never reads the logs itself, so that one pass can serve several of them.
    """

    trial: Population
    gram: Gram  # of the users fitted to
    penalty: Shrinkage
    floor: float = 0.0  # of the variances: rewards without noise have no likeliest one
    best: Population | None = None
    value: float = -np.inf  # penalised likelihood at `best`
    sums: Sums | None = None  # at `best`
    gain: float = np.inf  # of the last accepted step
    passes: int = 0
    _gradient: Floats = field(init=False)  # at `best`
    _direction: Floats = field(init=False)  # from `best`
    _slope: float = 0.0  # of the value along the direction
    _step: float = 1.0  # along the direction, to `trial`
    _shortened: bool = False  # whether the last accepted step had to be
    _move: Floats = field(init=False)  # from `best` to `trial`
    _memory: StepMemory = field(init=False)

    def __post_init__(self) -> None:
        if self.penalty.offsets is not None and self.trial.offsets is None:
            self.trial = replace(self.trial, offsets=self.trial.levels)
        self._memory = empty_step_memory(max(FEWEST, min(MEMORY, ROOM // self.size)), self.size)

    @property
    def size(self) -> int:
        """Number of unknowns."""
        kinds = len(self.trial.variances)
        return self.trial.weights.size + kinds + (0 if self.penalty.offsets is None else kinds)

    def tell(self, sums: Sums) -> None:
        """Take the sums of a pass at `trial`, and choose the next trial.

        A trial that gains enough becomes the best, and the ascent goes on from there in a new direction. After one that
        does not, the same direction is tried again with a quarter of the step.
        """
        self.passes += 1
        if not self._enough(sums.likelihood):
            self._shorten()
            return
        value, gradient = sums.likelihood + self.penalty.of(self.trial), self._ascent(sums)
        if self.best is not None:
            remember(self._memory, self._move, self._gradient - gradient)
            self.gain, self._shortened = value - self.value, self._step < 1.0
        self.best, self.sums, self.penalty = self.trial, sums, self.penalty.following(self.trial)
        self.value, self._gradient = sums.likelihood + self.penalty.of(self.best), self._ascent(sums)
        self._aim()

    def _enough(self, likelihood: float) -> bool:
        """Whether the trial, of this likelihood, gains enough."""
        least = self.value + SUFFICIENT * self._step * self._slope
        return self.best is None or bool(likelihood + self.penalty.of(self.trial) >= least)

    @property
    def shorter(self) -> Population | None:
        """The next trial if this one gains too little, where that is likely, since the step before was too long.

        A pass that finds the sums there and the likelihood of the trial alone (`probe`) does the work of one and a half
        passes in place of that of two.
        """
        likely = self._shortened and self._step == 1.0 and self.best is not None
        return self._along(0.25)[0] if likely else None

    def probe(self, likelihood: float) -> bool:
        """Take the likelihood at `trial`, where `shorter` was looked at beside it; whether that is the next trial."""
        if self._enough(likelihood):
            self._shortened = False  # the sums at `trial` are wanted after all
            return False
        self.passes += 1
        self._shorten()
        return True

    def judged(self, sums: Sums) -> None:
        """Take what held-out users say of the best."""
        assert self.sums is not None
        told = {name: getattr(sums, name) for name in vars(sums) if name.startswith("judged")}
        self.sums = replace(self.sums, **told)

    def again(self, penalty: Shrinkage) -> Optimizer:
        """The optimizer of the same users with another penalty from the best of this one, where no pass is needed
        first.

        What BFGS has learned is kept: the sums are the same, and of the penalty it is known how it bends.
        """
        assert self.best is not None and self.sums is not None
        other = Optimizer(self.best, self.gram, penalty, self.floor)
        self._pass_on(other, 1.0)
        other.tell(self.sums)
        return other

    def among(self, gram: Gram, penalty: Shrinkage, times: float, start: Population | None = None) -> Optimizer:
        """The optimizer of other users, `times` as many, from the best of this one (or from a `start` that is much like
        it) with what it has learned.
        """
        other = Optimizer(start or self.best or self.trial, gram, penalty, self.floor)
        self._pass_on(other, times)
        return other

    def _pass_on(self, other: Optimizer, times: float) -> None:
        """Let another optimizer know how the likelihood bends, with `times` as many users and with its own penalty."""
        memory, length = self._memory, len(self._memory.curves)
        if other.size != self.size:
            return
        before, after = self._bend(), other._bend()
        for number in range(max(0, int(memory.taken[0]) - length), int(memory.taken[0])):
            step, turn = memory.steps[number % length], memory.turns[number % length]
            remember(other._memory, step, times * (turn - before * step) + after * step)

    def _bend(self) -> Floats:
        """How the penalty bends, along each unknown: of variances it hardly does."""
        first, last = self._cuts()
        bend = np.zeros(self.size)
        earlier, count = self.penalty.earlier, len(self.trial.mean)
        columns = len(self.penalty.weights)
        bend[:first] = (
            np.tile(self.penalty.weights, count) if earlier is None else np.repeat(earlier.precision, columns)
        )
        bend[last:] = self.penalty.offsets or 0.0
        return bend

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

    def uncertainty(self, table: Catalogue | None) -> Floats:
        """Variance (A,) of the error of phi^T (m + L z) + o at `best`, for the features (A, d) of the actions and z ~
        N(0, I); its average over rows, (1,), without a table.

        The posterior of W = [m, L] has in the eigenvectors of the Gram matrix one covariance C_i = (g_i E + diag(a))^-1
        for each row (see `_metric`; E as far as rows tell of z), so the variance is the sum over i of (phi^T x_i)^2
        trace C_i. For one-hot features that is the action's rows against the shrinkage: about v / n for n rows. An
        offset adds 1 / (n / v + b).
        """
        assert self.sums is not None and self.best is not None
        values, vectors = self.gram.eigen
        expected = self._told() / self.gram.mass
        if self.penalty.earlier is not None:
            sizes = np.maximum(np.linalg.eigvalsh(expected), 0.0)
            known = self._by_eigenvector(self.penalty.earlier.precision)
            traces = (1.0 / (values[:, None] * sizes + known[:, None])).sum(axis=1)
        else:
            root = 1.0 / np.sqrt(self.penalty.weights + 1e-12 * values.max() * np.trace(expected))
            sizes, turn = np.linalg.eigh(root[:, None] * expected * root)
            traces = (1.0 / (values[:, None] * np.maximum(sizes, 0.0) + 1.0)) @ (root**2 @ turn**2)
        if table is None:
            return np.array([float(values @ traces) / self.gram.mass])
        found = traces if isinstance(self.gram.matrix, Diagonal) else (table @ np.asarray(vectors)) ** 2 @ traces
        if self.penalty.offsets is not None:
            found = found + 1.0 / (self.sums.met / self.best.variances + self.penalty.offsets)
        return np.asarray(found)

    def _by_eigenvector(self, by_row: Floats) -> Floats:
        """Numbers (d,) of rows of W in the order of the eigenvectors of the Gram matrix, diagonal where one-hot."""
        vectors = self.gram.eigen[1]
        return by_row if isinstance(self.gram.matrix, Diagonal) else np.asarray((np.asarray(vectors) ** 2).T @ by_row)

    def _forget(self) -> None:
        self._memory.taken[0] = 0

    def _ascent(self, sums: Sums) -> Floats:
        """The gradient of the penalised likelihood at `trial`, flat; at the floor a variance only rises."""
        variances = self.trial.variances
        gradient = self.penalty.slope(self.trial)
        first, last = self._cuts()
        gradient[:first] += sums.gradient.ravel()
        gradient[first:last] += 0.5 * (sums.residual / variances - sums.met)
        gradient[last:] += sums.lean if last < len(gradient) else 0.0
        lowest = variances <= self.floor
        gradient[first:last][lowest] = np.maximum(gradient[first:last][lowest], 0.0)
        return gradient

    def _cuts(self) -> tuple[int, int]:
        """Where in the flat vector the variances begin, and where the offsets do."""
        first = self.trial.weights.size
        return first, first + len(self.trial.variances)

    def _aim(self) -> None:
        """Choose a direction from `best`, BFGS's or, where that does not lead up, the metric's own; and step along."""
        with np.errstate(over="ignore", invalid="ignore"):
            direction = self._gradient.copy()
            weights = np.zeros(len(self._memory.curves))
            lbfgs_first_loop(self._memory, direction, weights)
            direction = self._metric(direction)
            lbfgs_second_loop(self._memory, weights, direction)
            direction = self._limited(direction)
            if not float(direction @ self._gradient) > 0:
                self._forget()
                direction = self._limited(self._metric(self._gradient))
            slope = float(direction @ self._gradient)
        if not np.isfinite(slope):  # nothing is left to gain from numbers that have run away
            self.gain, self.trial, direction, slope = 0.0, self.best or self.trial, np.zeros_like(direction), 0.0
        self._direction, self._slope = direction, slope
        self._step = 1.0
        self._place()

    def _limited(self, direction: Floats) -> Floats:
        """The direction, along which a variance changes by a factor of at most e.

        Each by itself: one action whose variance would leap must not hold up all the others.
        """
        first, last = self._cuts()
        direction[first:last] = np.clip(direction[first:last], -1.0, 1.0)
        return direction

    def _place(self) -> None:
        """Put the trial at the end of the step."""
        self.trial, self._move = self._along(self._step)

    def _along(self, step: float) -> tuple[Population, Floats]:
        """The population at the end of a step, and the move to it; one that would take a variance below its floor ends
        there.
        """
        assert self.best is not None and self.sums is not None
        (first, last), before = self._cuts(), self.best.variances
        move = step * self._direction
        weights = self.best.weights + move[:first].reshape(self.best.weights.shape)
        variances = np.maximum(before * np.exp(move[first:last]), self.floor)
        move[first:last] = np.log(variances / before)
        trial = replace(
            self.best,
            mean=weights[:, 0].copy(),
            factor=weights[:, 1:].copy(),
            noise_variance=float(self.sums.met @ variances / max(self.sums.rows, 1)),
            by_action=None if self.best.by_action is None else variances,
            offsets=None if self.penalty.offsets is None else self.best.levels + move[last:],
        )
        return trial, move

    def _metric(self, flat: Floats) -> Floats:
        """The ECM step for a gradient, flat: the first guess of the inverse of the negative Hessian, times it.

        With E the sum over rows of E[(1, z)(1, z)^T] / v, over the mass of the Gram matrix, whose v are those of the
        start, the M-step's system in W is Gram W E + W diag(a). In the eigenvectors of the Gram matrix it falls apart
        into one system (k + 1, k + 1) for each row of W, g E + diag(a) with g the eigenvalue; a little is added where g
        and a are both nothing. For log v the step is 2 / (rows + FIRM), for offsets 1 / (rows / v + b).
        """
        assert self.sums is not None and self.best is not None
        values, vectors = self.gram.eigen
        first, last = self._cuts()
        expected = self._told() / self.gram.mass
        inside = vectors.T @ flat[:first].reshape(len(values), -1)
        met, earlier = self.sums.met + optimizer_shrinkage_strength(self.best), self.penalty.earlier
        if earlier is None:
            little = self.penalty.weights + 1e-12 * values.max() * np.trace(expected)
            moved = vectors @ optimizer_solve_rows(values, expected, little, inside)
        else:
            sizes, turn = np.linalg.eigh(expected)
            known = self._by_eigenvector(earlier.precision)[:, None]
            moved = vectors @ ((inside @ turn / (values[:, None] * np.maximum(sizes, 0.0) + known)) @ turn.T)
            met = met + earlier.rows
        parts = [moved.ravel(), flat[first:last] * 2.0 / met]
        if self.penalty.offsets is not None:
            parts.append(flat[last:] / (self.sums.met / self.best.variances + self.penalty.offsets))
        return np.concatenate(parts)

    def _told(self) -> Floats:
        """E times the mass, less most of what rows do not tell of z: what the likelihood itself bends by, about.

        EM takes z for known, and its steps along a direction of which a history tells a share rho are too short by
        that factor. The average posterior covariance of z is taken to be that of an average history.
        """
        assert self.sums is not None and self.best is not None
        weights, factor = self.sums.weights, self.best.factor
        if not factor.shape[1]:
            return weights
        each = np.eye(factor.shape[1]) + factor.T @ (self.gram.matrix @ factor) / max(self.sums.users, 1)
        root = np.linalg.cholesky(weights[1:, 1:] + 1e-12 * np.trace(weights) * np.eye(len(each)))
        unknown = np.linalg.solve(root, np.linalg.solve(root, weights[0, 0] * np.linalg.inv(each)).T)
        shares, axes = np.linalg.eigh(0.5 * (unknown + unknown.T))
        known = (axes * np.maximum(1.0 - BOLD * shares, TOLD)) @ axes.T
        told = weights.copy()
        told[1:, 1:] = root @ known @ root.T
        if np.linalg.eigvalsh(told)[0] <= 0:
            told[0, 1:] = told[1:, 0] = 0.0
        return told
