"""The choice of rank and shrinkage, on people who were not fitted.

The precision a of the entries of L and the rank are those with which each reward of *users who were not fitted* is
predicted best from their *other* actions (`likelihood_loops.others_gain`): five folds of users by a hash of their ids
where there are few, one held-out fifth where there are many. The rank is the smallest whose gain is within one (paired)
standard error of the best, and zero unless the gain is clear of chance (`CLEAR` standard errors): noise that differs
between actions, or a few heavy users, then do not pass for taste.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from newcomer.evidence import RankComparison
from newcomer.population.all_pairs import TINY
from newcomer.population.beginning import USUAL, Begin, Fold
from newcomer.population.likelihood import Comparison, compare
from newcomer.population.passing import Passes
from newcomer.population.record import Population

Trail = tuple[tuple[float, float], ...]  # precisions tried, each with the held-out gain per user

MOST = (USUAL, 24)  # directions tried when the rank is open: few, then many if few are not enough
COARSE, FINER = 4.0, 2.0  # steps of the search for the precision
SLIGHTLY = 0.01  # share of the whole gain that is no reason for another direction
CLEAR = 2.2  # standard errors of gain over the population mean below which nothing is shared: level 1 / 64
LOSS = 10.0  # of gain over all held-out users, on the way to another precision, that is too much
FARTHEST = 12  # steps from the first precision tried
LIVING = 1e-3  # share of the residual variance below which directions explain nothing
ROUGH, ROUGHLY = 0.5, 1e-3  # gain in log-likelihood at which climbing ends, in all or per parameter


@dataclass(frozen=True)
class Found:
    """A precision, the populations fitted with it (one a fold), their held-out score, and what was tried before."""

    precision: float
    populations: list[Population]
    score: float  # held-out gain per user
    trail: Trail
    likelihood: float = -np.inf  # held-out, per user


@dataclass
class Search:
    """Chooses the precision and the rank on held-out users."""

    passes: Passes
    origin: Begin
    folds: list[Fold]

    def rank(self, most: int) -> tuple[Found, tuple[Trail, ...], RankComparison]:
        """As many directions as held-out users call for, at most `most`; more are tried where the first few all matter.

        Where fewer directions serve as well, the precision is chosen anew for that many.
        """
        trails, found, comparison, chosen = [], None, None, 0
        for tried in MOST:
            more = self.precision(self.begin_at(min(tried, most)), "choosing the rank")
            trails.append(more.trail)
            if found is not None and not self._better(more, found):
                break
            found, comparison = more, self.truncations(more)
            chosen = smallest_good(comparison)
            if chosen < tried or tried >= most:
                break
        assert found is not None and comparison is not None
        if chosen < found.populations[0].rank:
            found = self.precision(self.begin_at(chosen), "choosing shrinkage", settled=True)
            trails.append(found.trail)
        deficits, errors = (tuple(values.tolist()) for values in comparison.deficits())
        return found, tuple(trails), RankComparison(chosen, deficits, errors, comparison.users)

    def begin_at(self, rank: int) -> Found:
        """The moments of each fold, at a precision well above what the lengths of their directions suggest."""
        starts = [fold.start(rank) for fold in self.folds]
        size = np.mean([np.vdot(start.factor, start.factor) for start in starts])
        precision = COARSE**2 * self.origin.pairs.cross.shape[1] * max(rank, 1) / max(float(size), TINY)
        return Found(precision, starts, -np.inf, ())

    def precision(self, start: Found, stage: str, *, settled: bool = False) -> Found:
        """From simple to rich: less precision while held-out users are predicted better (or else more), then finer.

        Where the rank is `settled`, precisions that predict about equally well are told apart by the held-out
        likelihood: predictions from long histories hardly depend on how much people differ, and the likelihood does.
        """
        best = self._fit(start.precision, start.populations, stage, ())
        if start.populations[0].rank == 0:
            return best
        down = self._walk(best, 1 / COARSE, start, stage, settled)
        if down.precision < best.precision:
            best = down
        else:
            best = self._walk(replace(best, trail=down.trail), COARSE, start, stage, settled)
        for factor in (FINER, 1 / FINER):
            finer = self._fit_from(best, factor, start, stage)
            if self._better(finer, best, settled):
                return finer
            best = replace(best, trail=finer.trail)
        return best

    def _walk(self, best: Found, factor: float, start: Found, stage: str, settled: bool) -> Found:
        """Multiply the precision by `factor` as long as that helps; down, until a direction lives; up, until none does.

        Where no direction lives yet, less precision changes nothing for a while: that is no reason to stop.
        """
        last = best
        for _ in range(FARTHEST):
            last = self._fit_from(replace(last, trail=best.trail), factor, start, stage)
            best = last if self._better(last, best, settled) else replace(best, trail=last.trail)
            lives = any(map(self._lives, last.populations))
            lost = (best.score - last.score) * self._judged() > LOSS
            if lost or lives == (factor < 1 and last is not best):
                break
        return best

    def _lives(self, population: Population) -> bool:
        """Whether a direction is left that explains something: more than `LIVING` of the residual variance."""
        pairs = self.origin.pairs
        explained = np.einsum("dk,de,ek->", population.factor, pairs.gram.sum(axis=0), population.factor)
        return float(explained) > LIVING * population.noise_variance * float(pairs.rows.sum())

    def _fit_from(self, best: Found, factor: float, start: Found, stage: str) -> Found:
        """Fits at `factor` times the best precision so far, from the best populations with dead directions revived.

        Where no direction lives there is nothing to go on from, and the fit begins again.
        """
        triples = zip(best.populations, start.populations, self.folds, strict=True)
        revived = [one.revived(first, fold.gram.matrix) if self._lives(one) else first for one, first, fold in triples]
        return self._fit(best.precision * factor, revived, stage, best.trail)

    def _fit(self, precision: float, starts: list[Population], stage: str, trail: Trail) -> Found:
        """Climb from `starts`, one a fold, and judge the result on the held-out users."""
        climbers = [fold.climber(precision, start) for fold, start in zip(self.folds, starts, strict=True)]
        splits = [fold.split for fold in self.folds]
        self.passes.climb(climbers, splits, stage=stage, tolerance=ROUGH, each=ROUGHLY)
        sums = [c.sums for c in climbers if c.sums is not None]
        score = sum(s.judged_gain for s in sums) / max(sum(s.judged_users for s in sums), 1)
        likelihood = sum(s.judged_likelihood for s in sums) / max(sum(s.judged_users for s in sums), 1)
        fitted = [c.best for c in climbers if c.best is not None]
        return Found(precision, fitted, score, (*trail, (precision, score)), likelihood)

    def _better(self, found: Found, than: Found, settled: bool = False) -> bool:
        """Whether held-out users are predicted clearly better: by more than climbing leaves open.

        Where the rank is `settled` and the gain much the same, they may also be more likely by more than it falls.
        """
        judged = self._judged()
        gain = (found.score - than.score) * judged
        if settled and abs(gain) <= LOSS:
            gain += (found.likelihood - than.likelihood) * judged
        return gain > 2 * ROUGH

    def _judged(self) -> int:
        """Users held out, in all folds."""
        return sum(int(self.origin.pairs.users[fold.split.judged].sum()) for fold in self.folds)

    def truncations(self, found: Found) -> Comparison:
        """Held-out gains of the leading 0, 1, 2, ... directions of a fit, in one pass."""
        rivals = []
        for one, fold in zip(found.populations, self.folds, strict=True):
            some = self.origin.pairs.take(fold.split.fitted)
            gram = some.gram[0] / float(some.rows[0])
            rivals.append(tuple(one.truncated(gram, rank, self.origin.table) for rank in range(one.rank + 1)))
        judged = tuple(fold.split.judged for fold in self.folds)
        comparison: Comparison = self.passes.run(partial(compare, rivals=tuple(rivals), judged=judged), operator.add)
        return comparison


def smallest_good(comparison: Comparison) -> int:
    """The smallest rank whose held-out gain is within one standard error, or a hundredth, of the best.

    Rank 0 predicts the population's mean for everybody: there is nothing else unless the best gain over it is clear of
    chance.
    """
    deficits, errors = comparison.deficits()
    enough = np.maximum(np.maximum(errors, ROUGH / comparison.users), SLIGHTLY * deficits[0])
    if deficits[0] <= CLEAR * max(errors[0], ROUGH / comparison.users):
        return 0
    return int(np.flatnonzero(deficits <= enough)[0])
