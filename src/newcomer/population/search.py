"""The search for the population: its start, its climb, and the choice of rank and shrinkage on people who were not
fitted.

    reward = phi^T (m + L z_n) + o_a + e_na + noise,      z_n ~ N(0, I_k),   Var(e_na + noise) = v_a.

Moments over all pairs of rows (`all_pairs`) give a start; climbing the marginal likelihood (`likelihood`, `climb`)
improves on it; a few passes over the logs in all. A basis alone leaves most of the value on the table: it is the mean
and the spread along each direction that serve a newcomer, and with many directions and short histories they must be
shrunk. Shrinkage is a Gaussian prior:

* of the entries of L with one precision a. Since |L|^2 is the trace of the covariance this is a nuclear norm: weak
  directions shrink to nothing;
* of m with precision d / |m|^2, where |m|^2 is estimated without bias by the product of the means of two halves of the
  users. Where features are one-hot, m is shrunk towards the mean reward in place of zero: an action that was met once
  is worth about as much as the others;
* of the offsets with the precision that their variance between actions suggests, beyond what their noise explains;
  there are none where features are one-hot.

The precision a and the rank are those with which each reward of *users who were not fitted* is predicted best from
their *other* actions (`likelihood_loops.others_gain`): five folds of users by a hash of their ids where there are few,
one held-out fifth where there are many. The rank is the smallest whose gain is within one (paired) standard error of
the best, and zero unless the gain is clear of chance (`CLEAR` standard errors): noise that differs between actions, or
a few heavy users, then do not pass for taste.

How much of the residual lasts is told by users who met an action more than once, and by nothing else: see `share_of`.
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
from newcomer.evidence import PersistenceFacts, PopulationFacts, RankComparison
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.onehot import Catalogue, OneHot, gram_of
from newcomer.population.all_pairs import (
    FEW,
    FIRM,
    NOISELESS,
    TINY,
    AnyPairs,
    Pairs,
    action_variances,
    levels_of,
    pairs_of,
    start_from,
    wide_pairs_of,
)
from newcomer.population.climb import Climber, Gram, Penalty
from newcomer.population.forecast import forecast
from newcomer.population.likelihood import Comparison, Sums, Task, compare, expect, merge
from newcomer.population.record import Population
from newcomer.population.wide_start import Directions, start_mean
from newcomer.users import Split, folds

Partial = TypeVar("Partial")
Trail = tuple[tuple[float, float], ...]  # precisions tried, each with the held-out gain per user

MOST = (8, 24)  # directions tried when the rank is open: few, then many if few are not enough
COARSE, FINER = 4.0, 2.0  # steps of the search for the precision
SLIGHTLY = 0.01  # share of the whole gain that is no reason for another direction
CLEAR = 2.2  # standard errors of gain over the population mean below which nothing is shared: level 1 / 64
SLIGHT = 1e-3  # share of the residual variance below which offsets are nothing
PLAIN = 6.0  # standard errors of gain below which one held-out fifth of the users is not enough to tell ...
MANY = 50_000  # ... unless there are this many
LOSS = 10.0  # of gain over all held-out users, on the way to another precision, that is too much
FARTHEST = 12  # steps from the first precision tried
LIVING = 1e-3  # share of the residual variance below which directions explain nothing
LASTING = 0.95  # the largest share that can last: a person who never wavers is not told apart from one who hardly does
ROUGH, FINE = 0.5, 0.01  # gain in log-likelihood at which climbing ends: while choosing, and at last ...
ROUGHLY, FINELY = 1e-3, 1e-4  # ... or this much per parameter: sampling leaves half a unit of each open
LONGEST = 60  # passes of one climb
SETTLING, SETTLED = 5, 0.005  # climbs in which share and variances settle, and by how little the share then changes
CODED = 1 << 21  # rows of a batch where features are in a catalogue


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
            if all(climber.gain < max(tolerance, each * climber.size) for climber in climbers):
                break


@dataclass(frozen=True, eq=False)
class Begin:
    """What all fits begin with: the sums over pairs, the catalogue's features where rows name actions of one, and what
    lasts.
    """

    pairs: AnyPairs
    table: Catalogue | None  # (A, d)
    one_hot: bool
    share: float | None = None  # of the residual that lasts, if it was given
    directions: Directions | None = None  # of one-hot features of many actions: found by passes

    @property
    def centred(self) -> bool:
        """Whether the common part of each action was taken off before pairs were multiplied."""
        return bool(self.pairs.met.shape[1])

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets."""
        if self.directions is not None:
            found = self.directions.start(buckets, rank)
        else:
            assert isinstance(self.pairs, Pairs)
            found = start_from(self.pairs.take(buckets), rank, centred=self.centred)
        return replace(found, share=self.share_for(found))

    def prepare(self, parts: list[Bools], rank: int) -> None:
        """Where directions take passes to find: those of several parts of the users, in the same passes."""
        if self.directions is not None:
            self.directions.prepare(parts, rank)

    def share_for(self, population: Population) -> float:
        """The share that lasts, as given or as repeats tell it; none where there is nothing to tell it from."""
        if self.share is not None:
            return min(self.share, LASTING)
        lasting = share_of(self.pairs, population.variances)
        return 0.0 if lasting is None else lasting.estimate

    def anchor(self, buckets: Bools) -> Floats:
        """What the mean is shrunk towards (d,)."""
        some = self.pairs.take(buckets)
        anchor = np.zeros(some.cross.shape[1])
        if self.one_hot:
            actions = some.met.shape[1]
            constant = slice(actions, None) if len(anchor) > actions else slice(None)  # it has the level by itself
            anchor[constant] = float(some.levels.sum() / max(some.met.sum(), 1.0))
        return anchor


@dataclass(frozen=True, eq=False)
class Fold:
    """A split of the users, and what all fits to its fitted users share."""

    begin: Begin
    split: Split

    @cached_property
    def gram(self) -> Gram:
        """The sum of phi phi^T / v over the fitted users, v as the moments have it."""
        pairs, table = self.begin.pairs.take(self.split.fitted), self.begin.table
        variances = action_variances(pairs)
        if table is None or variances is None:
            noise = self.begin.start(self.split.fitted, 0).noise_variance
            return Gram(pairs.gram[0] / noise, float(pairs.rows[0]) / noise)
        weights = pairs.met[0] / variances
        return Gram(gram_of(table, weights), float(weights.sum()))

    @cached_property
    def penalty(self) -> Penalty:
        """What is believed beforehand, with a precision of L yet to be chosen."""
        begin, fitted = self.begin, self.split.fitted
        anchor = begin.anchor(fitted)
        precision = mean_precision(begin.pairs, fitted, anchor)
        alone = begin.start(fitted, min(MOST[0], len(anchor)))  # what moments leave of the variance
        towards = (FEW * alone.noise_variance + FIRM * alone.variances) / (FEW + FIRM)
        return Penalty(np.array([precision]), anchor, towards, offset_precision(begin, fitted))

    def start(self, rank: int) -> Population:
        """The moment estimate of the fitted users."""
        return self.begin.start(self.split.fitted, rank)

    def climber(self, precision: float, start: Population) -> Climber:
        """A climb from `start` with this precision of the entries of L."""
        weights = np.append(self.penalty.weights, np.full(start.rank, precision))
        return Climber(start, self.gram, replace(self.penalty, weights=weights), noise_floor(self.begin.pairs))


@dataclass(frozen=True)
class Found:
    """A precision, the populations fitted with it (one a fold), their held-out score, and what was tried before."""

    precision: float
    populations: list[Population]
    score: float  # held-out gain per user
    trail: Trail
    likelihood: float = -np.inf  # held-out, per user


@dataclass(frozen=True)
class Fitted:
    """The population fitted to everybody, the penalty of its fit, what it began with, and why it is so."""

    population: Population
    penalty: Penalty
    begin: Begin
    facts: PopulationFacts
    held_out: tuple[tuple[Population, Bools], ...] = ()  # fits to a part of the users, and the buckets of the others

    @property
    def pairs(self) -> AnyPairs:
        """The sums over pairs."""
        return self.begin.pairs


def estimate_population(
    passes: Passes, *, rank: int | Literal["auto"] = "auto", persistence: float | None = None
) -> Fitted:
    """Estimate the distribution of users; `rank` directions, or as many as held-out users call for.

    `persistence` is the share of the residual that lasts; None leaves it to users who met an action more than once.

    >>> from newcomer.worlds import Synthetic
    >>> found = estimate_population(Passes(Synthetic.learnable(dim=8, seed=1).logs(400, 8, seed=1)), rank=2)
    >>> found.population.factor.shape, round(found.population.noise_variance, 2)
    ((8, 2), 0.25)
    """
    begin = begin_with(passes, persistence)
    users = begin.pairs.users
    search = Search(passes, begin, [Fold(begin, split) for split in folds(users)])
    if not search.folds:  # too few users to hold some of them out: everybody gets the mean
        everybody = np.ones(len(users), dtype=np.bool_)
        alone = Found(1.0, [begin.start(everybody, 0 if rank == "auto" else int(rank))], 0.0, ())
        return search.finish(alone, (), None)
    if rank == "auto":
        most = min(passes.logs.dim, max(1, int(users.sum()) // 20))
        found, trails, ranks = search.rank(most)
        if len(search.folds) == 1 and users.sum() < MANY and ranks.deficits[0] < PLAIN * ranks.errors[0]:
            search = Search(passes, begin, [Fold(begin, split) for split in folds(users, every=True)])
            found, trails, ranks = search.rank(most)
        return search.finish(found, trails, ranks)
    found = search.precision(search.begin_at(int(rank)), "choosing shrinkage", settled=True)
    return search.finish(found, (found.trail,), None)


def begin_with(passes: Passes, persistence: float | None) -> Begin:
    """The sums over pairs: one pass, or two where rows name actions, whose means are taken off first."""
    logs = passes.logs
    actions, centre = len(logs.action_ids or ()), None
    if actions:
        met, levels = passes.run(partial(levels_of, actions=actions), operator.add)
        centre = np.divide(levels, met, out=np.zeros(actions), where=met > 0)
    pairs: AnyPairs
    directions = None
    if logs.wide and centre is not None:
        pairs = wide = passes.run(partial(wide_pairs_of, actions=actions, centre=centre), operator.add)
        directions = Directions(passes.run, wide, centre)
    else:
        pairs = passes.run(partial(pairs_of, actions=actions, centre=centre), operator.add)
    if not pairs.squares.sum() > 0:
        raise LogsError("all rewards are zero", todo="log rewards that tell good from bad")
    return Begin(pairs, logs.table if logs.by_action else None, logs.one_hot, persistence, directions)


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
        everybody = np.ones(len(self.origin.pairs.users), dtype=np.bool_)
        self.origin.prepare([*(fold.split.fitted for fold in self.folds), everybody], rank)
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
        explained = np.vdot(population.factor, pairs.gram.sum(axis=0) @ population.factor)
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

    def _settle(self, fold: Fold, found: Found) -> Climber:
        """Climb until what lasts and the variances it is a share of agree: each is estimated given the other."""
        best, share = found.populations[0], self.origin.share_for(found.populations[0])
        for _ in range(SETTLING):
            climber = fold.climber(found.precision, replace(best, share=share))
            self.passes.climb([climber], [fold.split], stage="fitting everybody", tolerance=FINE, each=FINELY)
            assert climber.best is not None
            best, before = climber.best, share
            share = self.origin.share_for(best)
            if abs(share - before) < SETTLED:
                break
        return climber

    def finish(self, found: Found, tried: tuple[Trail, ...], ranks: RankComparison | None) -> Fitted:
        """Fit everybody with what was chosen, and keep why."""
        begin, pairs = self.origin, self.origin.pairs
        everybody = np.ones(len(pairs.users), dtype=np.bool_)
        fold = Fold(begin, Split(everybody, ~everybody))
        climber = self._settle(fold, found)
        assert climber.best is not None and climber.sums is not None
        population, rows = climber.best.principal(), int(pairs.rows.sum())
        facts = PopulationFacts(
            passes=self.passes.count,
            likelihood=climber.sums.likelihood / rows,
            directions=population.rank,
            users=int(pairs.users.sum()),
            rows=rows,
            forecast=forecast(population, pairs.gram.sum(axis=0) / rows, pairs.shown.sum(axis=0) / rows),
            tried=tried,
            precision=found.precision,
            mean_precision=float(fold.penalty.weights[0]),
            ranks=ranks,
            persistence=share_of(pairs, population.variances),
        )
        judged = [fold.split.judged for fold in self.folds]
        apart = tuple(zip(found.populations, judged, strict=True)) if judged else ()
        return Fitted(population, climber.penalty, begin, facts, apart)


def noise_floor(pairs: AnyPairs) -> float:
    """The least noise variance that is told apart from none."""
    return NOISELESS * float(pairs.squares.sum()) / float(pairs.rows.sum())


def mean_precision(pairs: AnyPairs, buckets: Bools, anchor: Floats) -> float:
    """d / |m - anchor|^2, with the square the product of the means of two halves of the users in some buckets (B,).

    The plain square would count the error of the mean as mean; the product does not, since the halves err
    independently, but it may come out near zero or negative: it is taken to be at least a hundredth of the plain one.
    """
    order = np.cumsum(buckets) % 2 == 1
    sides = [buckets & side for side in (order, ~order)]
    halves = [start_mean(pairs.take(side)) - anchor for side in sides if pairs.users[side].sum()]
    plain = start_mean(pairs.take(buckets)) - anchor
    square = float(halves[0] @ halves[-1])
    return len(plain) / max(square, 0.01 * float(plain @ plain), TINY)


def offset_precision(begin: Begin, buckets: Bools) -> float | None:
    """One over the variance of the offsets between actions; None where features say all that can be said, or nothing is
    named.

    The squared distance of an action's mean reward from phi^T m is that of its offset and v / n of noise: what remains
    on average, weighted by the rows, is the variance of offsets. The mean m is itself fitted, which takes d of the A
    distances away.
    """
    if begin.one_hot or begin.table is None or isinstance(begin.table, OneHot):
        return None
    pairs = begin.pairs.take(buckets)
    met, seen = pairs.met[0], pairs.met[0] > 0
    variances, actions = action_variances(pairs), int(seen.sum())
    if variances is None or actions <= begin.table.shape[1] + 1:
        return None
    away = pairs.levels[0, seen] / met[seen] - begin.table[seen] @ _regression(
        begin.table[seen], pairs.levels[0, seen], met[seen]
    )
    weights = met[seen] / met[seen].sum()
    free = 1.0 - begin.table.shape[1] / actions
    between = float(weights @ away**2) / free - float(weights @ (variances[seen] / met[seen]))
    return 1.0 / between if between > SLIGHT * float(weights @ variances[seen]) else None


def _regression(table: Floats, levels: Floats, met: Floats) -> Floats:
    """Least squares of action means (A,) on features (A, d), weighted by rows."""
    root = np.sqrt(met)
    return np.asarray(np.linalg.lstsq(table * root[:, None], levels / root, rcond=None)[0], dtype=np.float64)


def share_of(pairs: AnyPairs, variances: Floats) -> PersistenceFacts | None:
    """The share of the residual that lasts, by users who met an action again; None where nobody did.

    Of an action with variance v, what does not last has the variance (1 - share) v, and so have deviations of a user's
    rewards from their own mean, over n - 1. So the sum of their squares over the sum of v, each repeat counted once,
    estimates 1 - share whatever lasts, whatever users like, and however they choose. Its standard error is that of a
    ratio of sums over buckets of users. `repeats` is the number of normal residuals that would tell as much.
    """
    if not pairs.again.sum():
        return None
    expected = pairs.again @ variances
    within, total = pairs.within.sum(axis=1), float(expected.sum())
    ratio = float(within.sum()) / total
    error = float(np.sqrt(np.sum((within - ratio * expected) ** 2))) / total
    normal = float(np.sqrt(2.0 * float(again_squares(pairs, variances)))) / total * min(ratio, 1.0)
    error = max(error, normal)
    estimate = min(max(1.0 - ratio, 0.0), LASTING)
    return PersistenceFacts(2.0 * (min(ratio, 1.0) / max(error, TINY)) ** 2, ratio, estimate, error)


def again_squares(pairs: AnyPairs, variances: Floats) -> float:
    """The sum over repeats of v^2: what the variance of their squared deviations is proportional to."""
    return float(pairs.again.sum(axis=0) @ variances**2)


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
