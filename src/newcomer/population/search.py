"""The distribution of users: mean, low-rank covariance and noise of reward vectors, from short histories.

    beta_n = m + L z_n,   z_n ~ N(0, I_k),   r = phi^T beta_n + noise of variance s2.

Moments over all pairs of rows (`all_pairs`) give a start; climbing the marginal likelihood (`likelihood`, `climb`)
improves on it; a few passes over the logs in all. A basis alone leaves most of the value on the table: it is the mean
and the spread along each direction that serve a newcomer, and with many directions and short histories they must be
shrunk. Shrinkage is a Gaussian prior of the entries of W = [m, L]:

* of L with one precision a. Since |L|^2 is the trace of the covariance this is a nuclear norm: weak directions shrink
  to nothing;
* of m with precision d / |m|^2, where |m|^2 is estimated without bias by the product of the means of two halves of the
  users.

The precision a and the rank are those with which *users who were not fitted* are predicted best: five folds of users
by a hash of their ids where there are few, one held-out fifth where there are many. The rank is the smallest whose
predictive likelihood is within one (paired) standard error of the best.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, TypeVar

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.errors import LogsError
from newcomer.evidence import PopulationFacts, RankComparison
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.population.all_pairs import Pairs, pairs_of, start_from
from newcomer.population.climb import Climber, Gram
from newcomer.population.forecast import forecast
from newcomer.population.likelihood import Comparison, Sums, Task, compare, expect, merge
from newcomer.population.record import Population
from newcomer.users import Split, folds

Partial = TypeVar("Partial")
Trail = tuple[tuple[float, float], ...]  # precisions tried, each with the held-out log-likelihood per user

MOST = (8, 24)  # directions tried when the rank is open: few, then many if few are not enough
COARSE, FINER = 4.0, 2.0  # steps of the search for the precision
TINY = 1e-300
ROUGH, FINE = 0.5, 0.01  # gain in log-likelihood at which climbing ends: while choosing, and at last ...
ROUGHLY, FINELY = 1e-3, 1e-4  # ... or this much per parameter: sampling leaves half a unit of each open
LONGEST = 60  # passes of one climb
CODED = 1 << 21  # rows of a batch where features are in a catalogue
NOISELESS = 1e-8  # share of the mean squared reward below which noise counts as none


@dataclass(frozen=True)
class Progress:
    """What is told after a pass: how many there were, at which stage, and log-likelihood per row (fitted, held out)."""

    passes: int
    stage: str
    likelihood: float
    held_out: float


@dataclass
class Passes:
    """Reads the logs as often as needed, counts how often, and says so to those who listen."""

    logs: Logs
    progress: Callable[[int, int], None] | None = None
    listen: Callable[[Progress], None] | None = None
    count: int = 0

    def run(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial]) -> Partial:
        """One pass."""
        self.count += 1
        # Rows that name actions take no room for features.
        rows = CODED if self.logs.by_action else None
        return reduce(self.logs, map, merge, rows=rows, progress=self.progress)

    def climb(self, climbers: list[Climber], splits: list[Split], *, stage: str, tolerance: float, each: float) -> None:
        """Passes until no climber gains more than `tolerance` in log-likelihood, or more than `each` per parameter.

        All climbers take a step in every pass, each on its own split of the users, so that reading is shared.
        """
        for _ in range(LONGEST):
            tasks = tuple(Task(c.trial, s.fitted, s.judged) for c, s in zip(climbers, splits, strict=True))
            found: tuple[Sums, ...] = self.run(partial(expect, tasks=tasks), merge)
            for climber, sums in zip(climbers, found, strict=True):
                climber.tell(sums)
            if self.listen is not None:
                at = [c.sums for c in climbers if c.sums]
                fitted = sum(s.likelihood for s in at) / max(sum(s.rows for s in at), 1)
                judged = sum(s.judged_likelihood for s in at) / max(sum(s.judged_rows for s in at), 1)
                self.listen(Progress(self.count, stage, fitted, judged))
            if all(climber.gain < max(tolerance, each * climber.trial.weights.size) for climber in climbers):
                break


@dataclass(frozen=True, eq=False)
class Fold:
    """A split of the users, and what all fits to its fitted users share."""

    pairs: Pairs
    split: Split

    @cached_property
    def gram(self) -> Gram:
        """The sum of phi phi^T over the fitted users."""
        return Gram(self.pairs.gram[self.split.fitted].sum(axis=0))

    @cached_property
    def mean_precision(self) -> float:
        """The precision of the entries of m that the fitted users suggest."""
        return mean_precision(self.pairs, self.split.fitted)

    def start(self, rank: int) -> Population:
        """The moment estimate of the fitted users."""
        return start_from(self.pairs.take(self.split.fitted), rank)

    def climber(self, precision: float, start: Population) -> Climber:
        """A climb from `start` with this precision of the entries of L."""
        penalty = np.full(start.rank + 1, precision)
        penalty[0] = self.mean_precision
        return Climber(start, self.gram, penalty, noise_floor(self.pairs))


@dataclass(frozen=True)
class Found:
    """A precision, the populations fitted with it (one a fold), their held-out score, and what was tried before."""

    precision: float
    populations: list[Population]
    score: float  # held-out log-likelihood per user
    trail: Trail


@dataclass(frozen=True)
class Fitted:
    """The population fitted to everybody, the penalty (k + 1,) of its fit, the sums it began with, and why it is so."""

    population: Population
    penalty: Floats
    pairs: Pairs
    facts: PopulationFacts


def estimate_population(passes: Passes, *, rank: int | Literal["auto"] = "auto") -> Fitted:
    """Estimate the distribution of reward vectors; `rank` directions, or as many as held-out users call for.

    >>> from newcomer.worlds import Synthetic
    >>> found = estimate_population(Passes(Synthetic.learnable(dim=8, seed=1).logs(400, 8, seed=1)), rank=2)
    >>> found.population.factor.shape, round(found.population.noise_variance, 2)
    ((8, 2), 0.25)
    """
    pairs = passes.run(pairs_of, operator.add)
    if not pairs.squares.sum() > 0:
        raise LogsError("all rewards are zero", todo="log rewards that tell good from bad")
    search = Search(passes, pairs, [Fold(pairs, split) for split in folds(pairs.users)])
    if rank == "auto":
        return search.finish(*search.rank(min(passes.logs.dim, max(1, int(pairs.users.sum()) // 20))))
    found = search.precision(search.begin(int(rank)), "choosing shrinkage")
    return search.finish(found, (found.trail,), None)


@dataclass
class Search:
    """Chooses the precision and the rank on held-out users."""

    passes: Passes
    pairs: Pairs
    folds: list[Fold]

    def rank(self, most: int) -> tuple[Found, tuple[Trail, ...], RankComparison]:
        """As many directions as held-out users call for, at most `most`; more are tried where the first few all matter.

        Where fewer directions serve as well, the precision is chosen anew for that many.
        """
        trails = []
        for tried in MOST:
            found = self.precision(self.begin(min(tried, most)), "choosing the rank")
            trails.append(found.trail)
            comparison = self.truncations(found)
            chosen = smallest_good(comparison)
            if chosen < tried or tried >= most:
                break
        if chosen < len(comparison.sums) - 1:
            found = self.precision(self.begin(chosen), "choosing shrinkage")
            trails.append(found.trail)
        deficits, errors = (tuple(values.tolist()) for values in comparison.deficits())
        return found, tuple(trails), RankComparison(chosen, deficits, errors, comparison.users)

    def begin(self, rank: int) -> Found:
        """The moments of each fold, at a precision well above what the lengths of their directions suggest."""
        starts = [fold.start(rank) for fold in self.folds]
        size = np.mean([np.vdot(start.factor, start.factor) for start in starts])
        precision = COARSE**2 * self.pairs.cross.shape[1] * max(rank, 1) / max(float(size), TINY)
        return Found(precision, starts, -np.inf, ())

    def precision(self, start: Found, stage: str) -> Found:
        """From simple to rich: less precision while held-out users are predicted better (or else more), then finer."""
        best = self._fit(start.precision, start.populations, stage, ())
        if start.populations[0].rank == 0:
            return best
        down = self._walk(best, 1 / COARSE, start, stage)
        if down.precision < best.precision:
            best = down
        else:
            best = self._walk(replace(best, trail=down.trail), COARSE, start, stage)
        for factor in (FINER, 1 / FINER):
            finer = self._fit_from(best, factor, start, stage)
            if self._better(finer, best):
                return finer
            best = replace(best, trail=finer.trail)
        return best

    def _walk(self, best: Found, factor: float, start: Found, stage: str) -> Found:
        """Multiply the precision by `factor` as long as that helps."""
        while True:
            last = self._fit_from(best, factor, start, stage)
            if not self._better(last, best):
                return replace(best, trail=last.trail)
            best = last

    def _fit_from(self, best: Found, factor: float, start: Found, stage: str) -> Found:
        """Fits at `factor` times the best precision so far, from the best populations with dead directions revived."""
        triples = zip(best.populations, start.populations, self.folds, strict=True)
        revived = [one.revived(first, fold.gram.matrix) for one, first, fold in triples]
        return self._fit(best.precision * factor, revived, stage, best.trail)

    def _fit(self, precision: float, starts: list[Population], stage: str, trail: Trail) -> Found:
        """Climb from `starts`, one a fold, and judge the result on the held-out users."""
        climbers = [fold.climber(precision, start) for fold, start in zip(self.folds, starts, strict=True)]
        splits = [fold.split for fold in self.folds]
        self.passes.climb(climbers, splits, stage=stage, tolerance=ROUGH, each=ROUGHLY)
        sums = [c.sums for c in climbers if c.sums is not None]
        score = sum(s.judged_likelihood for s in sums) / max(sum(s.judged_users for s in sums), 1)
        fitted = [c.best for c in climbers if c.best is not None]
        return Found(precision, fitted, score, (*trail, (precision, score)))

    def _better(self, found: Found, than: Found) -> bool:
        """Whether held-out users are clearly more likely: by more than climbing leaves open."""
        judged = sum(int(self.pairs.users[fold.split.judged].sum()) for fold in self.folds)
        return (found.score - than.score) * judged > ROUGH

    def truncations(self, found: Found) -> Comparison:
        """Held-out likelihoods of the leading 0, 1, 2, ... directions of a fit, in one pass."""
        rivals = []
        for one, fold in zip(found.populations, self.folds, strict=True):
            gram = fold.gram.matrix / float(self.pairs.rows[fold.split.fitted].sum())
            rivals.append(tuple(one.truncated(gram, rank) for rank in range(one.rank + 1)))
        judged = tuple(fold.split.judged for fold in self.folds)
        comparison: Comparison = self.passes.run(partial(compare, rivals=tuple(rivals), judged=judged), operator.add)
        return comparison

    def finish(self, found: Found, tried: tuple[Trail, ...], ranks: RankComparison | None) -> Fitted:
        """Fit everybody with what was chosen, and keep why."""
        everybody = np.ones(len(self.pairs.users), dtype=np.bool_)
        fold = Fold(self.pairs, Split(everybody, ~everybody))
        climber = fold.climber(found.precision, found.populations[0])
        self.passes.climb([climber], [fold.split], stage="fitting everybody", tolerance=FINE, each=FINELY)
        assert climber.best is not None and climber.sums is not None
        population, rows = climber.best.principal(), int(self.pairs.rows.sum())
        facts = PopulationFacts(
            passes=self.passes.count,
            likelihood=climber.sums.likelihood / rows,
            directions=population.rank,
            users=int(self.pairs.users.sum()),
            rows=rows,
            forecast=forecast(population, self.pairs.gram.sum(axis=0) / rows, self.pairs.shown.sum(axis=0) / rows),
            tried=tried,
            precision=found.precision,
            mean_precision=fold.mean_precision,
            ranks=ranks,
        )
        return Fitted(population, climber.penalty, self.pairs, facts)


def noise_floor(pairs: Pairs) -> float:
    """The least noise variance that is told apart from none."""
    return NOISELESS * float(pairs.squares.sum()) / float(pairs.rows.sum())


def mean_precision(pairs: Pairs, buckets: Bools) -> float:
    """d / |m|^2, with |m|^2 the product of the means of two halves of the users in some buckets (B,).

    The plain |m|^2 would count the error of the mean as mean; the product does not, since the halves err independently,
    but it may come out near zero or negative: it is taken to be at least a hundredth of the plain one.
    """
    order = np.cumsum(buckets) % 2 == 1
    sides = [buckets & side for side in (order, ~order)]
    halves = [start_from(pairs.take(side), 0).mean for side in sides if pairs.users[side].sum()]
    plain = start_from(pairs.take(buckets), 0).mean
    square = float(halves[0] @ halves[-1])
    return len(plain) / max(square, 0.01 * float(plain @ plain), TINY)


def smallest_good(comparison: Comparison) -> int:
    """The smallest rank whose held-out likelihood is within one standard error of the best, or as good as equal."""
    deficits, errors = comparison.deficits()
    return int(np.flatnonzero(deficits <= np.maximum(errors, ROUGH / comparison.users))[0])
