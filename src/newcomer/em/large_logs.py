"""What all users choose, where they are many: a sample must not decide that nothing is shared.

Chance makes the eigenvalues of the moments of n users as large as 1 / sqrt(n): what 20,000 users cannot show, a million
may show plainly. So where a sample has chosen rank and shrinkage, the directions that moments of *all* users show
(`spikes`) are judged beside the sample's fit, by held-out users of all the logs who are not in the sample, in one pass:
the moments of some folds, with 0, 1, 2, ... directions, by the users of the other fold.

* Nothing is clear of chance in the moments of all users, or no more than the sample has found: the sample's fit stands.
* The sample's fit predicts as well as the moments do, or nearly (`NEARLY`: all users will ascend from it anyway), but
  these have more directions that matter: it gets the others from them.
* The moments predict better: all users ascend from there, with the precision that the lengths suggest (held-out gain is
  flat around it).

EM's search on a sample is the better judge where histories are long or actions few: there its fit stands.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from newcomer.arrays import Bools
from newcomer.em.calibration import room_for_calibration
from newcomer.em.likelihood import Comparison, compare_likelihoods
from newcomer.em.model_selection import (
    SURE,
    middling_model_precision,
    model_selection_certainty,
    model_selection_clarity,
    select_smallest_good_rank,
)
from newcomer.em.passes import Passes
from newcomer.em.shrinkage import USUAL, FitStart
from newcomer.em.spikes import SpikeSearch
from newcomer.evidence import RankComparison
from newcomer.population import Population
from newcomer.sold.radius_terms import radius_terms_splits
from newcomer.users import FOLDS, Split, dealt_user_buckets

NEARLY = 0.9  # share of the held-out gain of moments of all users with which the fit of a sample is as good


@dataclass(frozen=True, eq=False)
class Choice:
    """Where all users ascend from, with which precision; and those outside a fold, for whom the others judge."""

    start: Population
    apart: Population
    split: Split
    precision: float
    moments: SpikeSearch


@dataclass(frozen=True, eq=False)
class Judged:
    """What held-out users say of moments with 0, 1, 2, ... directions, and last of a rival that was fitted apart."""

    moments: SpikeSearch
    base: Population  # without directions
    folds: list[Bools]  # (B,) each: who judged the moments of the others
    ranks: tuple[int, ...]
    comparison: Comparison

    @property
    def by_moments(self) -> Comparison:
        """The comparison of the ranks of the moments."""
        return self.comparison.among(slice(len(self.ranks)))

    def told(self, chosen: int) -> RankComparison:
        """Why so many directions."""
        deficits, errors = (tuple(values.tolist()) for values in self.by_moments.deficits())
        return RankComparison(
            chosen, deficits, errors, self.comparison.users, model_selection_certainty(self.by_moments)
        )


def judge_large_logs(
    passes: Passes,
    origin: FitStart,
    base: Population,
    rank: int | Literal["auto"],
    *,
    rival: Population | None = None,
    sampled: float = 0.0,
    level: bool = True,
) -> Judged:
    """Let held-out users judge the moments of the others, in one pass; three more where actions are many.

    `base` has everything but directions. A `rival` was fitted to users in a sample of a share `sampled` of all. Without
    `level`, that some users give more than others, whatever the action, does not count.
    """
    wide = origin.moment.by_passes
    moments = SpikeSearch(origin, USUAL if rank == "auto" else int(rank))
    folds = dealt_user_buckets(len(origin.pairs.users), 2 if wide else FOLDS)
    more = (
        radius_terms_splits(len(origin.pairs.users))
        if wide and room_for_calibration(len(base.mean), moments.most)
        else []
    )
    every = moments.of([moments.every, *(~fold for fold in folds), *more])[0]
    ranks = tuple(range(max(int((every.strengths > 0).sum()), 1) + 1)) if rank == "auto" else (0, int(rank))
    others = () if rival is None else (rival,)
    shaped = (lambda one: one) if level else partial(_levelled, origin=origin)
    each = moments.of([~fold for fold in folds])
    rivals = tuple((*(shaped(one.population(base, k, shrunk=True)) for k in ranks), *others) for one in each)
    look = partial(compare_likelihoods, rivals=rivals, judged=tuple(folds), sampled=sampled)
    return Judged(moments, base, folds, ranks, passes.run(look, operator.add))


def choose_by_large_logs(
    judged: Judged, origin: FitStart, rival: Population, apart: Population, precision: float
) -> Choice | None:
    """What follows; None where the sample's fit stands. `apart` is that fit without the users of the first fold."""
    sums, found = judged.comparison.sums, judged.by_moments
    if model_selection_clarity(found) <= SURE:
        return None
    place = select_smallest_good_rank(found)
    rank = judged.ranks[place]
    beaten = bool(sums[-1] < NEARLY * sums[place])
    if not beaten and rank <= rival.rank:
        return None
    mine = [one.population(judged.base, rank) for one in judged.moments.of([judged.moments.every, ~judged.folds[0]])]
    if not beaten:
        gram = origin.pairs.gram.sum(axis=0)
        mine = [one.widened(start, gram, 1.0) for one, start in zip((rival, apart), mine, strict=True)]
    precision = middling_model_precision(mine[:1]) if beaten else precision
    held_out = judged.folds[0] & dealt_user_buckets(len(judged.folds[0]), FOLDS)[0]
    return Choice(mine[0], mine[1], Split(~held_out, held_out), precision, judged.moments)


def large_logs_without_directions(population: Population, origin: FitStart) -> Population:
    """The population without directions: what they explained is residual."""
    rows = float(origin.pairs.rows.sum())
    return population.truncated(origin.pairs.gram.sum(axis=0) / rows, 0, origin.table)


def shared_in_large_logs(passes: Passes, origin: FitStart) -> tuple[float, float]:
    """How certain it is, in standard errors, that preferences of all users agree, and their share of the residual.

    That some users give more than others, whatever the action, is no preference.
    """
    base = origin.start(np.ones(len(origin.pairs.users), dtype=np.bool_), 0)
    judged = judge_large_logs(passes, origin, base, "auto", level=False)
    best = judged.ranks[int(np.argmax(judged.by_moments.sums))]
    every = judged.moments.of([judged.moments.every])[0]
    differing = _levelled(every.population(base, best, shrunk=True), origin).factor
    explained = np.vdot(differing, origin.pairs.gram.sum(axis=0) @ differing) / float(origin.pairs.rows.sum())
    return model_selection_certainty(judged.by_moments), float(explained) / base.noise_variance


def _levelled(population: Population, origin: FitStart) -> Population:
    """The population whose directions leave the average reward of a user where it is, if features are one-hot."""
    if not origin.one_hot:
        return population
    shown = origin.pairs.shown.sum(axis=0)
    actions = origin.pairs.met.shape[1]
    factor = population.factor.copy()
    factor[:actions] -= shown[:actions] @ factor[:actions] / shown[:actions].sum()
    return replace(population, factor=factor)
