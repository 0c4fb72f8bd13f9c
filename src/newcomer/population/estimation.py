"""The distribution of users, from its start to its end.

    reward = phi^T (m + L z_n) + o_a + e_na + noise,      z_n ~ N(0, I_k),   Var(e_na + noise) = v_a.

Moments over all pairs of rows (`all_pairs`) give a start; climbing the marginal likelihood (`likelihood`, `climb`)
improves on it; a few passes over the logs in all. A basis alone leaves most of the value on the table: it is the mean
and the spread along each direction that serve a newcomer, and with many directions and short histories they must be
shrunk (`beginning`), by as much as people who were not fitted call for (`search`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from newcomer.arrays import Bools
from newcomer.evidence import PopulationFacts, RankComparison
from newcomer.population.all_pairs import Pairs
from newcomer.population.beginning import Begin, Fold, begin_with
from newcomer.population.climb import Climber, Penalty
from newcomer.population.forecast import forecast
from newcomer.population.passing import Passes
from newcomer.population.persistence import share_of
from newcomer.population.record import Population
from newcomer.population.search import Found, Search, Trail
from newcomer.users import Split, folds

PLAIN = 6.0  # standard errors of gain below which one held-out fifth of the users is not enough to tell ...
MANY = 50_000  # ... unless there are this many
FINE, FINELY = (
    0.01,
    1e-4,
)  # gain in log-likelihood at which the last climb ends, or this much per parameter: sampling ...
SETTLING, SETTLED = 5, 0.005  # climbs in which share and variances settle, and by how little the share then changes


@dataclass(frozen=True)
class Fitted:
    """The population fitted to everybody, the penalty of its fit, what it began with, and why it is so."""

    population: Population
    penalty: Penalty
    begin: Begin
    facts: PopulationFacts
    held_out: tuple[tuple[Population, Bools], ...] = ()  # fits to a part of the users, and the buckets of the others

    @property
    def pairs(self) -> Pairs:
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
        return finish(search, alone, (), None)
    if rank == "auto":
        most = min(passes.logs.dim, max(1, int(users.sum()) // 20))
        found, trails, ranks = search.rank(most)
        if len(search.folds) == 1 and users.sum() < MANY and ranks.deficits[0] < PLAIN * ranks.errors[0]:
            search = Search(passes, begin, [Fold(begin, split) for split in folds(users, every=True)])
            found, trails, ranks = search.rank(most)
        return finish(search, found, trails, ranks)
    found = search.precision(search.begin_at(int(rank)), "choosing shrinkage", settled=True)
    return finish(search, found, (found.trail,), None)


def _settle(search: Search, fold: Fold, found: Found) -> Climber:
    """Climb until what lasts and the variances it is a share of agree: each is estimated given the other."""
    best, share = found.populations[0], search.origin.share_for(found.populations[0])
    for _ in range(SETTLING):
        climber = fold.climber(found.precision, replace(best, share=share))
        search.passes.climb([climber], [fold.split], stage="fitting everybody", tolerance=FINE, each=FINELY)
        assert climber.best is not None
        best, before = climber.best, share
        share = search.origin.share_for(best)
        if abs(share - before) < SETTLED:
            break
    return climber


def finish(search: Search, found: Found, tried: tuple[Trail, ...], ranks: RankComparison | None) -> Fitted:
    """Fit everybody with what was chosen, and keep why."""
    begin, pairs = search.origin, search.origin.pairs
    everybody = np.ones(len(pairs.users), dtype=np.bool_)
    fold = Fold(begin, Split(everybody, ~everybody))
    climber = _settle(search, fold, found)
    assert climber.best is not None and climber.sums is not None
    population, rows = climber.best.principal(), int(pairs.rows.sum())
    facts = PopulationFacts(
        passes=search.passes.count,
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
    judged = [fold.split.judged for fold in search.folds]
    apart = tuple(zip(found.populations, judged, strict=True)) if judged else ()
    return Fitted(population, climber.penalty, begin, facts, apart)
