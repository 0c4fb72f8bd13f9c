"""Clicks: a population whose rewards are 0 or 1, climbed from its Gaussian fit.

    P(r = 1 | user n, action a) = sigma(phi^T (m + L z_n) + o_a),      z_n ~ N(0, I_k),   sigma(x) = 1 / (1 + exp(-x)).

The likelihood is that of em/binary_likelihood.py, its climb that of em/binary_optimizer.py.

**The start** is the Gaussian fit, which has chosen the rank: with p the mean and F the loadings of an action,
V = F k / (p (1 - p)) with k = sqrt(1 + pi |V|^2 / 8) and |V| <= 3; the level is k logit(p).

**Shrinkage.** One-hot: loadings are N(0, 1/4), levels are normal with the mean and the variance that the levels of the
start have. Features: the precisions of the Gaussian fit, taken to log-odds by the average slope p (1 - p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.em.binary_likelihood import ClickSums, ClickTask, binary_likelihood_sums, merge_binary_likelihood
from newcomer.em.binary_optimizer import LONGEST, ClickOptimizer, ClickPrior
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
            loadings, stretch = stretched_binary_loadings(found.factor[:, :rank], self.slopes)
            return replace(found, mean=logit(self._means) * stretch, factor=loadings)
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
    """Loadings (A, k) on the scale of log-odds, at most `LONGEST_LOADING` long, and the stretch k (A,) of each action.

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
    """Climb from each start, on the users of its buckets (B,), all in the same passes; populations of log-odds."""
    climbs = []
    for start, _ in starts:
        first = start.population(min(start.directions, start.gaussian.rank, MOST_DIRECTIONS))
        climbs.append(ClickOptimizer(first, start.prior(first), start.table))
    for _ in range(LONGEST):
        going = [i for i, one in enumerate(climbs) if not one.arrived]
        if not going:
            break
        tasks = tuple(ClickTask(climbs[i].trial, starts[i][1]) for i in going)
        found: tuple[ClickSums, ...] = passes.run(partial(binary_likelihood_sums, tasks=tasks), merge_binary_likelihood)
        for i, sums in zip(going, found, strict=True):
            climbs[i].tell(sums)
    return [_finished(one.best or one.trial, start) for one, (start, _) in zip(climbs, starts, strict=True)]


def _finished(found: Population, start: ClickStart) -> Population:
    """The population with the weak directions of the Gaussian fit beside its own.

    What they add to log-odds was noise to the climb, which flattens the rest by k = sqrt(1 + pi |V|^2 / 8).
    """
    weak = start.weak(found.rank)
    if not weak.shape[1]:
        return found
    flat = np.sqrt(1.0 + np.pi / 8 * (weak**2).sum(axis=1))
    return replace(found, mean=found.mean * flat, factor=np.column_stack([found.factor * flat[:, None], weak]))


def binary_on_reward_scale(population: Population, table: Catalogue | None) -> Population:
    """The Gaussian population of the same mean rewards, covariances and variances: where a Gaussian climb can begin.

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
