"""The distribution of users, from its start to its end.

    reward = phi^T (m + L z_n) + o_a + e_na + noise,      z_n ~ N(0, I_k),   Var(e_na + noise) = v_a.

Moments over all pairs of rows (`pairs`) give a start; quasi-Newton ascent of the marginal likelihood (`likelihood`,
`optimizer`) improves on it; a few passes over the logs in all. A basis alone leaves most of the value on the table: it
is the mean and the spread along each direction that serve a newcomer, and with many directions and short histories they
must be shrunk (`shrinkage`), by as much as held-out users call for (`model_selection`).

Where there are many users all of this is done for a sample of them, drawn by a hash of the id, and so is what tells how
sure the answer is. Then everybody is fitted from there: precisions are beliefs about L, which do not depend on how many
people are looked at. What a sample has not the power to see, moments of all users may show (`large_logs`): then all
users choose, and tell how sure the answer is.

Refit: the distribution of users from one that was fitted before, without searching again.

With the old logs and the new ones at hand, EM ascends from the old population, with its rank and its precision, to the
population of highest penalised likelihood of all of them: the answer does not depend on where the ascent started, only
the passes that it takes do. With the new logs alone it cannot be found, since EM needs the rows again. Where features
are one-hot, the posterior of the earlier fit, action by action, takes the place of the shrinkage (`optimizer.Earlier`),
so that an action which the new users hardly met stays what it was. With other features, and with attributes of users,
the new users are fitted alone and the two are mixed (`blend_fitted_populations`): the mixture has the mean and the
covariance of both together, cut down to the rank. So are clicks, on the scale of log-odds. All of it is approximate.

Fits to a part of the users, so that something can be measured on the others, where no search has left such fits.

A refit keeps the rank and the shrinkage of the fit before it, and holds nobody out to choose them. What it is worth to
newcomers (`newcomer.gain`) is still to be measured on users that it was not fitted to. The fit before may have been
fitted to them, so these ascents start with the moments of the users they are fitted to, and not where that fit ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.em.calibration import MomentParts, Parts
from newcomer.em.large_logs import choose_by_large_logs, judge_large_logs, large_logs_without_directions
from newcomer.em.model_selection import ROUGH, ROUGHLY, Candidate, RankSearch, Trail
from newcomer.em.optimizer import Earlier, Optimizer
from newcomer.em.pairs import Pairs
from newcomer.em.passes import LONGEST, Ascent, Passes
from newcomer.em.shrinkage import FitStart, HeldoutFold, start_with_shrinkage
from newcomer.em.variance_components import forecast_variance_components, persistent_variance_share
from newcomer.evidence import PopulationFacts, RankComparison, SampleFacts
from newcomer.logs.sample import sample_logs, share_in_sample
from newcomer.population import Population
from newcomer.radius import Draws
from newcomer.users import Split, user_folds

SAMPLE = 20_000  # users by whom everything is chosen, where there are more than twice as many
SPREADING = 12  # passes of the ascent of all users from where the sample's fit ended
PLAIN = 6.0  # standard errors of gain below which one held-out fifth of the users is not enough to tell
FINE, FINELY = 0.01, 3e-4  # gain in log-likelihood at which the last ascent ends, in all or per parameter
SETTLING, SETTLED = 5, 0.005  # ascents in which share and variances settle, and by how little the share then changes
STAGE = "fitting everybody"


@dataclass(frozen=True)
class FittedPopulation:
    """The population fitted to everybody, what it started from, and why it is so.

    `parts` tell how sure it is, by `chosen`, passes over the users by whom everything was chosen: all, or a sample.
    Where there is a sample and all users chose nevertheless, `decided` is passes over all.
    """

    population: Population
    optimizer: Optimizer
    origin: FitStart
    facts: PopulationFacts
    chosen: Passes
    parts: Parts | MomentParts
    held_out: tuple[tuple[Population, Bools], ...] = ()  # fits to a part of them, and the buckets of the others
    decided: Passes | None = None
    before: FittedPopulation | None = None  # the same before an earlier fit was added, and without weak directions

    @property
    def judges(self) -> Passes:
        """Passes over the users among whom those are whom nothing was fitted to."""
        return self.decided or self.chosen

    @property
    def pairs(self) -> Pairs:
        """The sums over pairs."""
        return self.origin.pairs

    def draws(self, rank: int) -> Draws:
        """Draws of the error of a basis of this rank, scaled to all users where a sample of them told: see `Parts`."""
        found = self.parts.draws(self.judges, rank)
        return found.scaled(self.judges.logs.summary.users / self.facts.users)

    def counted(self, passes: Passes) -> PopulationFacts:
        """The facts, with the passes made by now over all users and over the sample."""
        facts = replace(self.facts, passes=passes.count)
        return facts if facts.sample is None else replace(facts, sample=_sample_facts(self.chosen))


def _sample_facts(passes: Passes) -> SampleFacts:
    return SampleFacts(passes.logs.summary.users, passes.logs.summary.rows, passes.count)


def estimate_population(
    passes: Passes,
    *,
    rank: int | Literal["auto"] = "auto",
    persistence: float | None = None,
    calibrate: bool = False,
) -> FittedPopulation:
    """Estimate the distribution of users; `rank` directions, or as many as held-out users call for.

    `persistence` is the share of the residual that comes again with the action; None leaves it to users who met an
    action more than once.
    `calibrate` says that `FittedPopulation.draws` will be asked for, whose passes can then be shared.

    >>> from newcomer.worlds import Synthetic
    >>> found = estimate_population(Passes(Synthetic.learnable(dim=8, seed=1).logs(400, 8, seed=1)), rank=2)
    >>> found.population.factor.shape, round(found.population.noise_variance, 2)
    ((8, 2), 0.25)
    """
    few = sample_to_fit(passes)
    found = _estimate(few, rank, persistence, calibrate)
    return found if few is passes else _spread(passes, found, rank, persistence)


def sample_to_fit(passes: Passes) -> Passes:
    """Passes over a sample of about `SAMPLE` users, found in one pass; the same passes where there are hardly more."""
    if passes.logs.summary.users <= 2 * SAMPLE:
        return passes
    return Passes(sample_logs(passes.logs, SAMPLE, run=passes.run), passes.progress, passes.listen, sampled=True)


def _estimate(
    passes: Passes, rank: int | Literal["auto"], persistence: float | None, calibrate: bool
) -> FittedPopulation:
    """Choose what is open, and fit everybody."""
    origin = start_with_shrinkage(passes, persistence)
    users = origin.pairs.users
    search = RankSearch(passes, origin, [HeldoutFold(origin, split) for split in user_folds(users)])
    if not search.folds:  # too few users to hold some of them out: everybody gets the mean
        size = 0 if rank == "auto" else int(rank)
        return finish_population_fit(
            passes, origin, everybody_to_fit(origin).optimizer(1.0, everybody_to_fit(origin).start(size))
        )
    if rank != "auto":
        return _finish(search, search.shrinkage(search.first(int(rank))), None, calibrate)
    most = min(passes.logs.dim, max(1, int(users.sum()) // 20))
    found, ranks = search.rank(most)
    # Where one fifth is not enough to tell, every fifth is asked, or all users, if these are but a sample of them.
    unclear = len(search.folds) == 1 and ranks.deficits[0] <= PLAIN * ranks.errors[0]
    if unclear and (found.rank or not passes.sampled):
        search = RankSearch(passes, origin, [HeldoutFold(origin, split) for split in user_folds(users, every=True)])
        found, ranks = search.rank(most, near=found.precision if found.rank else None)
    return _finish(search, found, ranks, calibrate)


def everybody_to_fit(origin: FitStart) -> HeldoutFold:
    """Everybody, and nobody held out."""
    every = np.ones(len(origin.pairs.users), dtype=np.bool_)
    return HeldoutFold(origin, Split(every, ~every))


def _finish(search: RankSearch, found: Candidate, ranks: RankComparison | None, calibrate: bool) -> FittedPopulation:
    """Fit everybody with what the search has found."""
    start, trails = found.optimizers[0], tuple(search.trails)
    fitted = finish_population_fit(search.passes, search.origin, start, trails=trails, ranks=ranks, calibrate=calibrate)
    apart, judged = (
        [population_where_fit_ended(one, search.origin) for one in found.optimizers],
        [fold.split.judged for fold in search.folds],
    )
    return replace(fitted, held_out=tuple(zip(apart, judged, strict=True)))


def finish_population_fit(
    passes: Passes,
    origin: FitStart,
    start: Optimizer,
    *,
    trails: tuple[Trail, ...] = (),
    ranks: RankComparison | None = None,
    calibrate: bool = False,
) -> FittedPopulation:
    """Fit everybody from where an optimizer is, with its precision, and keep why.

    With `calibrate`, parts of the users are fitted apart in the same passes.
    """
    fold = everybody_to_fit(origin)
    precision = float(start.penalty.weights[-1]) if start.trial.rank else 1.0
    parts = Parts(origin, fold.penalised(precision, start.trial.rank))
    shared = parts.ascents if calibrate and _rank(start.best or start.trial, origin) else []
    optimizer = _settle(passes, fold, start, shared)
    facts = _facts(passes, origin, optimizer, precision, trails, ranks)
    assert optimizer.best is not None
    return FittedPopulation(population_where_fit_ended(optimizer, origin), optimizer, origin, facts, passes, parts)


def population_where_fit_ended(optimizer: Optimizer, origin: FitStart) -> Population:
    """The population where an ascent has ended, with how sure it is of each action."""
    assert optimizer.best is not None
    return replace(optimizer.best.principal(), uncertainty=optimizer.uncertainty(origin.table))


def _rank(population: Population, origin: FitStart) -> int:
    rows = float(origin.pairs.rows.sum())
    return population.basis_rank(origin.pairs.gram.sum(axis=0) / rows, rows)


def _settle(
    passes: Passes, fold: HeldoutFold, start: Optimizer, beside: list[Ascent], longest: int = LONGEST
) -> Optimizer:
    """Ascend until the persistence and the variances it is a share of agree: each is estimated given the other."""
    best, optimizer = start.best or start.trial, start
    share = fold.origin.share_for(best)
    for _ in range(SETTLING):
        optimizer = _among(fold, optimizer, replace(best, share=share))
        ascents = [_ascent(optimizer, fold), *beside]
        passes.ascend(ascents, stage=STAGE, longest=longest)
        assert optimizer.best is not None
        best, before = optimizer.best, share
        share = fold.origin.share_for(best)
        if abs(share - before) < SETTLED:
            break
    return optimizer


def _among(fold: HeldoutFold, optimizer: Optimizer, start: Population) -> Optimizer:
    """The optimizer of all users, from a start that is much like where another optimizer has arrived."""
    precision = float(optimizer.penalty.weights[-1]) if start.rank else 1.0
    users = float(fold.origin.pairs.users.sum())
    times = users / optimizer.sums.users if optimizer.sums is not None else 1.0
    return optimizer.among(fold.gram, fold.penalised(precision, start.rank), times, start)


def _spread(
    passes: Passes, sampled: FittedPopulation, rank: int | Literal["auto"], persistence: float | None
) -> FittedPopulation:
    """Fit all users from what was found for a sample of them, or from more that all of them show."""
    origin = start_with_shrinkage(passes, persistence)
    if origin.moment.by_passes:  # by passes, which those over the sample have saved
        origin = replace(origin, towards=sampled.optimizer.penalty.variance)
    best = sampled.optimizer.best or sampled.population
    best = replace(best, share=origin.share_for(sampled.population))
    base = large_logs_without_directions(best, origin)
    judged = judge_large_logs(passes, origin, base, rank, rival=best, sampled=share_in_sample(passes.logs, SAMPLE))
    apart = sampled.held_out[0][0] if sampled.held_out else base
    choice = choose_by_large_logs(judged, origin, best, apart, sampled.facts.precision)
    every, ranks = everybody_to_fit(origin), sampled.facts.ranks
    if choice is None:
        if ranks is not None and not ranks.chosen:  # which all users have confirmed
            ranks = judged.told(0)
        return _ascended(passes, sampled, every, [_ascent(_among(every, sampled.optimizer, best), every)], ranks)
    other = HeldoutFold(origin, choice.split)
    ascents = [_ascent(every.optimizer(choice.precision, choice.start), every)]
    ascents.append(_ascent(other.optimizer(choice.precision, choice.apart), other))
    ranks = None if ranks is None else judged.told(choice.start.rank)
    found = _ascended(passes, sampled, every, ascents, ranks)
    held_out = ((ascents[1].optimizer.best or choice.apart, choice.split.judged),)
    facts, parts = replace(found.facts, by_all=True), MomentParts(choice.moments, base)
    return replace(found, facts=facts, parts=parts, held_out=held_out, decided=passes)


def _ascent(optimizer: Optimizer, fold: HeldoutFold) -> Ascent:
    """An ascent to the end."""
    return Ascent(optimizer, fold.split, FINE, FINELY)


def _ascended(
    passes: Passes, sampled: FittedPopulation, every: HeldoutFold, ascents: list[Ascent], ranks: RankComparison | None
) -> FittedPopulation:
    """What a sample has found, with all users fitted instead: the first of the ascents."""
    # Then held-out users say what they gain; of all users who chose, also how well they fit in.
    passes.most = passes.count + SPREADING + 1 + (len(ascents) > 1)
    passes.ascend(ascents, stage=STAGE, longest=SPREADING)
    optimizer, origin = ascents[0].optimizer, every.origin
    assert optimizer.best is not None
    precision = float(optimizer.penalty.weights[-1]) if optimizer.best.rank else sampled.facts.precision
    facts = _facts(passes, origin, optimizer, precision, sampled.facts.tried, ranks)
    facts = replace(facts, sample=_sample_facts(sampled.chosen))
    return replace(
        sampled,
        population=population_where_fit_ended(optimizer, origin),
        optimizer=optimizer,
        origin=origin,
        facts=facts,
    )


def _facts(
    passes: Passes,
    origin: FitStart,
    optimizer: Optimizer,
    precision: float,
    trails: tuple[Trail, ...],
    ranks: RankComparison | None,
) -> PopulationFacts:
    """How the distribution was found."""
    assert optimizer.best is not None and optimizer.sums is not None
    pairs, population, rows = origin.pairs, optimizer.best.principal(), int(origin.pairs.rows.sum())
    return PopulationFacts(
        passes=passes.count,
        likelihood=optimizer.sums.likelihood / rows,
        directions=population.rank,
        users=int(pairs.users.sum()),
        rows=rows,
        forecast=forecast_variance_components(
            population, pairs.gram.sum(axis=0) / rows, pairs.shown.sum(axis=0) / rows
        ),
        tried=trails,
        precision=precision,
        mean_precision=float(optimizer.penalty.weights[0]),
        ranks=ranks,
        persistence=persistent_variance_share(pairs, population.variances),
    )


def refit_population(
    passes: Passes,
    start: Population,
    *,
    precision: float,
    persistence: float | None = None,
    calibrate: bool = False,
    earlier: Earlier | None = None,
) -> FittedPopulation:
    """Ascend from `start` to the best population of its rank; `precision` is that of the entries of its factor.

    With `earlier` the logs are of new users alone, and what is known of those before is what the fit starts out with.
    """
    origin, few = replace(start_with_shrinkage(passes, persistence), earlier=earlier), sample_to_fit(passes)
    optimizer = everybody_to_fit(origin).optimizer(precision, start)
    fitted = finish_population_fit(passes, origin, optimizer, calibrate=calibrate and few is passes)
    if few is passes:
        return fitted
    sampled = replace(start_with_shrinkage(few, persistence), earlier=earlier)
    return replace(fitted, chosen=few, parts=Parts(sampled, fitted.optimizer.penalty))


def blend_fitted_populations(first: Population, second: Population, share: float) -> Population:
    """The population of two groups of users, a `share` of them in the second, with the rank of the second.

    >>> one, two = (Population(np.array([m]), np.ones((1, 1)), 1.0) for m in (0.0, 2.0))
    >>> both = blend_fitted_populations(one, two, 0.5)
    >>> both.mean.tolist(), round(float(both.factor[0, 0] ** 2), 6)
    ([1.0], 2.0)
    """
    mean = (1 - share) * first.mean + share * second.mean
    gap = np.sqrt(share * (1 - share)) * (first.mean - second.mean)
    root = np.column_stack([np.sqrt(1 - share) * first.factor, np.sqrt(share) * second.factor, gap])
    left, lengths, _ = np.linalg.svd(root, full_matrices=False)
    several = first.by_action is not None and second.by_action is not None
    return replace(
        second,
        mean=mean,
        factor=left[:, : second.rank] * lengths[: second.rank],
        noise_variance=(1 - share) * first.noise_variance + share * second.noise_variance,
        by_action=(1 - share) * first.variances + share * second.variances if several else second.by_action,
        offsets=None if second.offsets is None else (1 - share) * first.levels + share * second.levels,
        uncertainty=_blended(first.uncertainty, second.uncertainty, share),
    )


def _blended(first: Floats | None, second: Floats | None, share: float) -> Floats | None:
    """The variance of the error of a weighted mean of two that err independently; as of the second alone if only that
    is known.
    """
    return second if first is None or second is None else (1 - share) ** 2 * first + share**2 * second


HeldOut = tuple[tuple[Population, Bools], ...]  # populations, each with the buckets (B,) of users it was not fitted to


def fit_populations_apart(passes: Passes, origin: FitStart, start: Population, precision: float) -> HeldOut:
    """Populations of the rank of `start` and this precision, each without a fold of the users; none of too few users.

    They start with moments, or, where they go on from an earlier fit to other users, where that ended: at `start`.
    """
    apart = [HeldoutFold(origin, split) for split in user_folds(origin.pairs.users)]
    if not apart:
        return ()
    starts = [fold.start(start.rank) if origin.earlier is None else start for fold in apart]
    optimizers = [fold.optimizer(precision, one) for fold, one in zip(apart, starts, strict=True)]
    ascents = [Ascent(one, fold.split, ROUGH, ROUGHLY) for one, fold in zip(optimizers, apart, strict=True)]
    passes.ascend(ascents, stage="fitting without some")
    done = [one for one in ascents if one.optimizer.best is not None]
    return tuple((population_where_fit_ended(one.optimizer, origin), one.split.judged) for one in done)
