"""The choice of rank and shrinkage, on held-out users.

The precision a of the entries of L and the rank are those with which each reward of *users who were not fitted* is
predicted best from their *other* actions (`likelihood_loops.others_gain`): five folds of users by a hash of their ids
where there are few, one held-out fifth where there are many. The rank is the smallest whose gain is within one (paired)
standard error of the best, and zero unless something is shared, clear of chance: there is a gain, and its linear part
is above zero by `CLEAR` standard errors (`Comparison.certainty`). Noise that differs between actions, or a few heavy
users, do not pass for preferences.

Passes are few because they are shared. A first fit is made at a middling precision; those at its neighbours start from
it, all in the same passes, with what its ascent has learned of the curvature of the likelihood. More directions start
from the few that were found, fewer from the best of the many.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from newcomer.em.likelihood import Comparison, compare_likelihoods
from newcomer.em.optimizer import Optimizer
from newcomer.em.pairs import TINY
from newcomer.em.passes import Ascent, Passes
from newcomer.em.shrinkage import USUAL, FitStart, HeldoutFold
from newcomer.evidence import CERTAIN, RankComparison
from newcomer.population import Population

Trail = tuple[tuple[float, float], ...]  # precisions tried, each with the held-out gain per user

MOST = (USUAL, 24)  # directions tried when the rank is open: few, then many if few are not enough
COARSE, FINER = 4.0, 2.0  # steps of the search for the precision
NEIGHBOURS = (1 / COARSE, 1 / FINER, FINER, COARSE)  # of a precision, that are tried at once
MIDDLING = 2.0  # times the precision that moments suggest: where the search begins
SLIGHTLY = 0.01  # share of the whole gain that is no reason for another direction
CLEAR = 2.33  # standard errors of the linear part of the gain below which nothing is shared: level 1 / 100
SURE = CERTAIN  # the same, where it is that of the clearest of several fits
FAR_BEHIND, PATIENCE = 30.0, 4  # of gain over all held-out users, after some passes: such a fit is given up
LOSS = 10.0  # of gain over all held-out users that likelihood does not make up for
LEAST = 0.25  # times the precision that entries of L have themselves: less is no belief, and rare actions need one
FARTHEST = 12  # steps from the first precision tried
LIVING = 1e-3  # share of the residual variance below which directions explain nothing
ROUGH, ROUGHLY = 0.5, 1e-3  # gain in log-likelihood at which an ascent ends, in all or per parameter


@dataclass(frozen=True)
class Candidate:
    """A precision, the optimizers that arrived with it (one a fold), and how well held-out users are predicted."""

    precision: float
    optimizers: list[Optimizer]
    score: float  # held-out gain per user
    likelihood: float  # held-out, per user

    @property
    def populations(self) -> list[Population]:
        """The populations fitted, one a fold."""
        return [optimizer.best or optimizer.trial for optimizer in self.optimizers]

    @property
    def rank(self) -> int:
        """Directions of each."""
        return self.optimizers[0].trial.rank


@dataclass
class RankSearch:
    """Chooses the precision and the rank on held-out users; `trails` tells what was tried."""

    passes: Passes
    origin: FitStart
    folds: list[HeldoutFold]
    trails: list[Trail] = field(default_factory=list)
    _starts: dict[int, list[Population]] = field(default_factory=dict)

    def rank(self, most: int, near: float | None = None) -> tuple[Candidate, RankComparison]:
        """As many directions as held-out users call for, at most `most`; more are tried where the first few all matter.

        `near` is a precision that was good before.
        """
        best: Candidate | None = None
        for tried in MOST:
            first = self.first(min(tried, most), near) if best is None else self._wider(best, min(tried, most))
            fits = self.around(first, "choosing the rank")
            if best is not None and not self._better(fits[0], best):
                break
            best, comparison = self._compared(fits)
            chosen = select_smallest_good_rank(comparison)
            if chosen < tried or tried >= most:
                break
        assert best is not None
        cut = best if chosen == best.rank else self._cut(best, chosen)
        deficits, errors = (tuple(values.tolist()) for values in comparison.deficits())
        return self.shrinkage(cut), RankComparison(
            chosen, deficits, errors, comparison.users, model_selection_certainty(comparison)
        )

    def shrinkage(self, first: Candidate) -> Candidate:
        """The precision for a rank that is settled, near that of a first fit.

        Precisions that predict about equally well are compared by the held-out likelihood: predictions from long
        histories hardly depend on how much people differ, and the likelihood does.
        """
        if first.rank == 0:
            self.trails.append(((first.precision, first.score),))
            return first
        return self.around(first, "choosing shrinkage", settled=True)[0]

    def first(self, rank: int, near: float | None = None) -> Candidate:
        """A fit from the moments of each fold."""
        precision = near or self._middling(rank)
        return self._fits([(precision, self._optimizers(precision, self._moments(rank)))], "choosing the rank")[0]

    def _middling(self, rank: int) -> float:
        """A precision somewhat above what the lengths of the directions of moments suggest."""
        return middling_model_precision(self._moments(rank))

    def around(self, first: Candidate, stage: str, *, settled: bool = False) -> list[Candidate]:
        """Fits at neighbouring precisions, the best first; farther away while the outermost is the best.

        Where no direction lives, less precision changes nothing for a while: that is no reason to stop.
        """
        lives = self._lives(first)
        fits = [first, *self._beside(first, [f for f in NEIGHBOURS if lives or f < 1], stage)]
        for _ in range(FARTHEST):
            best = self._best(fits, settled)
            low, high = min(fits, key=_precision), max(fits, key=_precision)
            # While the rank is open, what matters little is not worth a pass.
            matters = settled or (best.score - first.score) * self._users() > LOSS
            least = LEAST * model_precision_of_size(first.populations)
            if not self._lives(low) or (best is low and matters and low.precision > least):
                fits += self._beside(low, [1 / COARSE], stage)
            elif best is high and matters and self._better(high, first, settled) and self._lives(high):
                fits += self._beside(high, [COARSE], stage)
            else:
                break
        if settled and best.precision not in [first.precision * factor for factor in (1.0, *NEIGHBOURS)]:
            fits += self._beside(best, [FINER, 1 / FINER], stage)
            best = self._best(fits, settled)
        self.trails.append(tuple((found.precision, found.score) for found in fits))
        return [best, *(found for found in fits if found is not best)]

    def _best(self, fits: list[Candidate], settled: bool) -> Candidate:
        """The fit that predicts held-out users best, from simple to rich: less precision has to be clearly better."""
        best, *others = sorted(fits, key=_precision, reverse=True)
        for found in others:
            best = found if self._better(found, best, settled) else best
        return best

    def _better(self, found: Candidate, than: Candidate, settled: bool = False) -> bool:
        """Whether held-out users are predicted clearly better: by more than the tolerance of an ascent.

        Where the rank is `settled` and the gain much the same, they may also be more likely by more than it falls.
        """
        judged = self._users()
        gain = (found.score - than.score) * judged
        if settled and abs(gain) <= LOSS:
            gain += (found.likelihood - than.likelihood) * judged
        return gain > 2 * max(ROUGH, ROUGHLY * found.optimizers[0].size)

    def _lives(self, found: Candidate) -> bool:
        """Whether a direction is left that explains something: more than `LIVING` of the residual variance."""
        pairs = self.origin.pairs
        gram, rows = pairs.gram.sum(axis=0), float(pairs.rows.sum())
        explained = [np.vdot(one.factor, gram @ one.factor) / one.noise_variance for one in found.populations]
        return bool(max(explained) > LIVING * rows)

    def _moments(self, rank: int) -> list[Population]:
        """The moment estimate of each fold."""
        if rank not in self._starts:
            self.origin.moment.prepare([fold.split.fitted for fold in self.folds], rank)
            self._starts[rank] = [fold.start(rank) for fold in self.folds]
        return self._starts[rank]

    def _optimizers(self, precision: float, starts: Sequence[Population]) -> list[Optimizer]:
        return [fold.optimizer(precision, start) for fold, start in zip(self.folds, starts, strict=True)]

    def _beside(self, found: Candidate, factors: Sequence[float], stage: str) -> list[Candidate]:
        """Fits at several times the precision of another, from where that one arrived.

        Directions that shrank to nothing cannot return by themselves: where precision falls they are revived, and where
        none lives there is nothing to go on from, and the fit begins again.
        """
        wanted = []
        for precision in (found.precision * factor for factor in factors):
            if not self._lives(found):
                optimizers = self._optimizers(precision, self._moments(found.rank))
            else:
                triples = zip(self.folds, found.optimizers, self._moments(found.rank), strict=True)
                optimizers = [_onward(*three, precision, found.precision) for three in triples]
            wanted.append((precision, optimizers))
        return self._fits(wanted, stage, found.score)

    def _wider(self, found: Candidate, rank: int) -> Candidate:
        """A fit of more directions, from those found and the moments of the others."""
        each = zip(found.populations, self._moments(rank), self.folds, strict=True)
        starts = [one.widened(start, fold.gram.matrix) for one, start, fold in each]
        return self._fits([(found.precision, self._optimizers(found.precision, starts))], "choosing the rank")[0]

    def _cut(self, found: Candidate, rank: int) -> Candidate:
        """A fit of fewer directions, from the leading ones of those found."""
        starts, precision = [each[rank] for each in self._truncated(found, (rank,))], self._middling(rank)
        return self._fits([(precision, self._optimizers(precision, starts))], "choosing shrinkage")[0]

    def _fits(
        self, wanted: list[tuple[float, list[Optimizer]]], stage: str, beside: float = -np.inf
    ) -> list[Candidate]:
        """Ascend, all in the same passes, and judge the results on the held-out users.

        Who falls far behind a score that was reached `beside` gives up: it would not be chosen. Where there is no such
        score, nobody has to be judged before the end.
        """
        least, on_the_way = beside - FAR_BEHIND / max(self._users(), 1), bool(beside > -np.inf)
        together: dict[int, list[Optimizer]] = {}
        ascents = []
        for _, optimizers in wanted:
            for optimizer, fold in zip(optimizers, self.folds, strict=True):
                ascents.append(Ascent(optimizer, fold.split, ROUGH, ROUGHLY, judged=on_the_way))
                together[id(optimizer)] = optimizers
        behind = (lambda one: _behind(together[id(one.optimizer)], least)) if on_the_way else None
        self.passes.ascend(ascents, stage=stage, lost=behind)
        if not on_the_way:
            self.passes.judge(ascents, stage=stage)
        return [_judged(precision, optimizers) for precision, optimizers in wanted]

    def _users(self) -> int:
        """Users held out, in all folds."""
        return sum(int(self.origin.pairs.users[fold.split.judged].sum()) for fold in self.folds)

    def _compared(self, fits: list[Candidate]) -> tuple[Candidate, Comparison]:
        """A fit, and the held-out gains of its leading 0, 1, 2, ... directions.

        It is the best one, unless nothing of that is clearly better than the mean: too many directions may hide a few
        good ones, or little shrinkage a gain that is small and sure. Then the fit whose leading directions are clearest
        of chance is taken, if they are so by `SURE` standard errors, since there are several to choose from.
        """
        best, *others = fits
        (comparison,) = self.truncations([best])
        living = [found for found in others if self._lives(found)]
        if select_smallest_good_rank(comparison) or not living:
            return best, comparison
        clearest = max(
            zip(self.truncations(living), living, strict=True), key=lambda rival: model_selection_clarity(rival[0])
        )
        return (clearest[1], clearest[0]) if model_selection_clarity(clearest[0]) > SURE else (best, comparison)

    def truncations(self, fits: list[Candidate]) -> list[Comparison]:
        """Held-out gains of the leading 0, 1, 2, ... directions of several fits, in one pass."""
        ranks = range(fits[0].rank + 1)
        each = zip(*(self._truncated(found, ranks) for found in fits), strict=True)
        rivals = tuple(tuple(one for found in fold for one in found.values()) for fold in each)
        judged = tuple(fold.split.judged for fold in self.folds)
        whole: Comparison = self.passes.run(partial(compare_likelihoods, rivals=rivals, judged=judged), operator.add)
        return [whole.among(slice(i * len(ranks), (i + 1) * len(ranks))) for i in range(len(fits))]

    def _truncated(self, found: Candidate, ranks: Sequence[int]) -> list[dict[int, Population]]:
        """The leading directions of the populations of a fit, fold by fold."""
        each = []
        for one, fold in zip(found.populations, self.folds, strict=True):
            some = self.origin.pairs.take(fold.split.fitted)
            gram = some.gram[0] / float(some.rows[0])
            each.append({rank: one.truncated(gram, rank, self.origin.table) for rank in ranks})
        return each


def model_precision_of_size(fits: Sequence[Population]) -> float:
    """The precision under which entries of L are as likely as can be: one over their mean square."""
    size = np.mean([np.vdot(one.factor, one.factor) for one in fits])
    return fits[0].factor.size / max(float(size), TINY)


def middling_model_precision(starts: Sequence[Population]) -> float:
    """A precision of the entries of L somewhat above what the lengths of the directions of moments suggest."""
    size = np.mean([np.vdot(start.factor, start.factor) for start in starts])
    return MIDDLING * len(starts[0].mean) * max(starts[0].rank, 1) / max(float(size), TINY)


def _precision(found: Candidate) -> float:
    return found.precision


def _judged(precision: float, optimizers: list[Optimizer]) -> Candidate:
    """What held-out users say of fits, one a fold."""
    sums = [optimizer.sums for optimizer in optimizers if optimizer.sums is not None]
    users = max(sum(s.judged_users for s in sums), 1)
    score, likelihood = sum(s.judged_gain for s in sums) / users, sum(s.judged_likelihood for s in sums) / users
    return Candidate(precision, optimizers, score, likelihood)


def _onward(fold: HeldoutFold, optimizer: Optimizer, start: Population, precision: float, before: float) -> Optimizer:
    """The optimizer of a fold with another precision, from where one arrived."""
    assert optimizer.best is not None
    alive = optimizer.best if precision > before else optimizer.best.revived(start, fold.gram.matrix)
    if alive is optimizer.best or np.array_equal(alive.factor, optimizer.best.factor):
        return optimizer.again(fold.penalised(precision, optimizer.best.rank))
    return fold.optimizer(precision, alive)


def _behind(optimizers: list[Optimizer], least: float) -> bool:
    """Whether a fit has had some steps and is still below a held-out score."""
    return min(optimizer.passes for optimizer in optimizers) > PATIENCE and _judged(1.0, optimizers).score < least


def model_selection_clarity(comparison: Comparison) -> float:
    """Standard errors by which other actions tell of each reward of held-out users, with the rank that predicts them
    best; zero where that is not better than their mean.
    """
    return model_selection_certainty(comparison) if comparison.sums.max() - comparison.sums[0] > ROUGH else 0.0


def model_selection_certainty(comparison: Comparison) -> float:
    """Standard errors by which the linear part of the gain is above zero, of the best rank that has directions."""
    return comparison.certainty(1 + int(np.argmax(comparison.sums[1:]))) if len(comparison.sums) > 1 else 0.0


def select_smallest_good_rank(comparison: Comparison) -> int:
    """The smallest rank whose held-out gain is within one standard error, or a hundredth, of the best.

    Rank 0 predicts the population's mean for everybody: it is the answer unless something is shared that is clear of
    chance, and not the answer if there is.
    """
    if model_selection_clarity(comparison) <= CLEAR:
        return 0
    deficits, errors = comparison.deficits()
    enough = np.maximum(np.maximum(errors, ROUGH / comparison.users), SLIGHTLY * deficits[0])
    return 1 + int(np.flatnonzero((deficits <= enough)[1:])[0])
