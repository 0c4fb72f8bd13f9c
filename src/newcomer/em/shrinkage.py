"""What all fits begin with: sums over pairs of rows, where an ascent starts, and what is believed beforehand.

Shrinkage is a Gaussian prior:

* of the entries of L with one precision a, chosen by the search. Since |L|^2 is the trace of the covariance this is a
  nuclear norm: weak directions shrink to nothing;
* of m with precision d / |m|^2, where |m|^2 is estimated without bias by the product of the means of two halves of the
  users. Where features are one-hot, m is shrunk towards the mean over actions in place of zero, each with the weight
  n / (n + `FIRM`) of its n rows: an action that was met once is worth about as much as the others. (Where a policy
  chose what was shown, the mean over rows is that of the best actions.);
* of the offsets with the precision that their variance between actions suggests, beyond what their noise explains;
  there are none where features are one-hot.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.em.optimizer import Earlier, Gram, Optimizer, Shrinkage, Totals
from newcomer.em.pair_moment import PairMoment, pair_moment_of
from newcomer.em.pairs import FEW, FIRM, NOISELESS, TINY, Pairs, pair_action_variances, pair_reward_spread
from newcomer.em.passes import Passes
from newcomer.em.variance_components import LARGEST_REPEATABILITY, persistent_variance_share
from newcomer.errors import LogsError
from newcomer.logs.batch import Batch
from newcomer.one_hot import Catalogue, OneHot, one_hot_gram
from newcomer.population import Population
from newcomer.users import Split

USUAL = 8  # directions whose lengths the moments tell, when the residual variances are first looked at
SLIGHT = 1e-3  # share of the residual variance below which offsets are nothing


@dataclass(frozen=True, eq=False)
class FitStart:
    """What all fits begin with: the second moment by pairs of rows, the catalogue's features where rows name actions of
    one, and the persistence.
    """

    moment: PairMoment
    table: Catalogue | None  # (A, d)
    one_hot: bool
    share: float | None = None  # of the residual that comes again, if it was given
    towards: Floats | None = None  # (A,) what variances are shrunk towards, where a sample has estimated it
    left: Floats | None = None  # (A,) sums of r - phi^T m, where rows name actions and bring features of their own
    earlier: Earlier | None = None  # what is known of users whose logs are not at hand

    @property
    def pairs(self) -> Pairs:
        """The sums over pairs."""
        return self.moment.pairs

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets."""
        found = self.moment.start(buckets, rank)
        return replace(found, share=self.share_for(found))

    def share_for(self, population: Population) -> float:
        """The persistence, as given or as repeats estimate it; 0 where no user met an action again."""
        if self.share is not None:
            return min(self.share, LARGEST_REPEATABILITY)
        repeats = persistent_variance_share(self.pairs, population.variances)
        return 0.0 if repeats is None else repeats.estimate

    def anchor(self, buckets: Bools) -> Floats:
        """What the mean is shrunk towards (d,)."""
        some = self.pairs.take(buckets)
        anchor = np.zeros(some.cross.shape[1])
        if self.one_hot:
            actions = some.met.shape[1]
            constant = slice(actions, None) if len(anchor) > actions else slice(None)  # it has the level by itself
            met, firm = np.maximum(some.met[0], 1.0), some.met[0] / (some.met[0] + FIRM)
            anchor[constant] = float(firm @ (some.levels[0] / met)) / max(float(firm.sum()), TINY)
        return anchor


@dataclass(frozen=True, eq=False)
class HeldoutFold:
    """A split of the users, and what all fits to its fitted users share."""

    origin: FitStart
    split: Split

    @cached_property
    def gram(self) -> Gram:
        """The sum of phi phi^T / v over the fitted users, v as the moments have it."""
        pairs, table = self.origin.pairs.take(self.split.fitted), self.origin.table
        variances = pair_action_variances(pairs)
        if table is None or variances is None:
            noise = self.origin.start(self.split.fitted, 0).noise_variance
            return Gram(pairs.gram[0] / noise, float(pairs.rows[0]) / noise)
        weights = pairs.met[0] / variances
        return Gram(one_hot_gram(table, weights), float(weights.sum()))

    @cached_property
    def penalty(self) -> Shrinkage:
        """What is believed beforehand, with a precision of L yet to be chosen."""
        origin, fitted = self.origin, self.split.fitted
        anchor = origin.anchor(fitted)
        precision = mean_shrinkage_precision(origin.pairs, fitted, anchor)
        towards = self._towards(len(anchor)) if origin.towards is None else origin.towards
        pairs = origin.pairs.take(fitted)
        variances = pair_action_variances(pairs)
        totals = None if variances is None or not pairs.met.any() else Totals(pairs.met[0], variances, towards)
        offsets = offset_shrinkage_precision(origin, fitted)
        return Shrinkage(np.array([precision]), anchor, towards, offsets, totals, origin.earlier)

    def _towards(self, dim: int) -> Floats:
        """What moments leave of the variance of each action, a little of it common to all: until there is a fit."""
        alone = self.start(min(USUAL, dim))
        return (FEW * alone.noise_variance + FIRM * alone.variances) / (FEW + FIRM)

    def start(self, rank: int) -> Population:
        """The moment estimate of the fitted users."""
        return self.origin.start(self.split.fitted, rank)

    def optimizer(self, precision: float, start: Population) -> Optimizer:
        """The optimizer from `start` with this precision of the entries of L."""
        return Optimizer(
            start, self.gram, self.penalised(precision, start.rank), shrinkage_noise_floor(self.origin.pairs)
        )

    def penalised(self, precision: float, rank: int) -> Shrinkage:
        """What is believed beforehand, with this precision of the entries of L."""
        return replace(self.penalty, weights=np.append(self.penalty.weights, np.full(rank, precision)))


def start_with_shrinkage(passes: Passes, persistence: float | None) -> FitStart:
    """The second moment by pairs of rows, and what is believed beforehand: a pass or two, one more for offsets."""
    logs, moment = passes.logs, pair_moment_of(passes)
    pairs, actions = moment.pairs, len(logs.action_ids or ())
    if not pairs.squares.sum() > 0:
        raise LogsError("all rewards are zero", todo="log rewards that tell good from bad")
    left = None
    if actions and not logs.by_action:
        mean = pairs.take(np.ones(len(pairs.users), dtype=np.bool_)).start_mean()
        left = passes.run(partial(left_by_action, mean=mean, actions=actions), operator.add)
    return FitStart(moment, logs.table if logs.by_action else None, logs.one_hot, persistence, left=left)


def left_by_action(batch: Batch, *, mean: Floats, actions: int) -> Floats:
    """Sums (A,) of r - phi^T m over the rows of each action: the map of a pass."""
    assert batch.actions is not None
    return np.bincount(batch.actions, batch.rewards - batch.features @ mean, minlength=actions).astype(np.float64)


def shrinkage_noise_floor(pairs: Pairs) -> float:
    """The least noise variance that is distinguished from zero."""
    return NOISELESS * pair_reward_spread(pairs)


def mean_shrinkage_precision(pairs: Pairs, buckets: Bools, anchor: Floats) -> float:
    """d / |m - anchor|^2, with the square the product of the means of two halves of the users in some buckets (B,).

    The plain square would count the error of the mean as mean; the product does not, since the halves err
    independently, but it may come out near zero or negative: it is taken to be at least a hundredth of the plain one.
    """
    order = np.cumsum(buckets) % 2 == 1
    sides = [buckets & side for side in (order, ~order)]
    halves = [pairs.take(side).start_mean() - anchor for side in sides if pairs.users[side].sum()]
    plain = pairs.take(buckets).start_mean() - anchor
    square = float(halves[0] @ halves[-1])
    return len(plain) / max(square, 0.01 * float(plain @ plain), TINY)


def offset_shrinkage_precision(origin: FitStart, buckets: Bools) -> float | None:
    """One over the variance of the offsets between actions; None where features say all that can be said, or nothing is
    named.

    The squared distance of an action's mean reward from phi^T m is that of its offset and v / n of noise: what remains
    on average, weighted by the rows, is the variance of offsets. The mean m is itself fitted, which takes d of the A
    distances away; where rows bring features of their own, which differ among rows of one action, it takes fewer, and
    all users tell it.
    """
    if origin.left is not None:
        pairs = origin.pairs.take(np.ones(len(origin.pairs.users), dtype=np.bool_))
        return _one_over(pairs, origin.left / np.maximum(pairs.met[0], 1.0), 1.0)
    if origin.one_hot or origin.table is None or isinstance(origin.table, OneHot):
        return None
    pairs = origin.pairs.take(buckets)
    met, seen = pairs.met[0], pairs.met[0] > 0
    actions, away = int(seen.sum()), np.zeros(len(met))
    if actions <= origin.table.shape[1] + 1:
        return None
    away[seen] = pairs.levels[0, seen] / met[seen] - origin.table[seen] @ _regression(
        origin.table[seen], pairs.levels[0, seen], met[seen]
    )
    return _one_over(pairs, away, 1.0 - origin.table.shape[1] / actions)


def _one_over(pairs: Pairs, away: Floats, free: float) -> float | None:
    """One over the variance of offsets whose actions are `away` (A,) from phi^T m, of which m leaves a share free."""
    met, variances = pairs.met[0], pair_action_variances(pairs)
    seen = met > 0
    if variances is None or int(seen.sum()) < 2:
        return None
    weights = met[seen] / met[seen].sum()
    between = float(weights @ away[seen] ** 2) / free - float(weights @ (variances[seen] / met[seen]))
    return 1.0 / between if between > SLIGHT * float(weights @ variances[seen]) else None


def _regression(table: Floats, levels: Floats, met: Floats) -> Floats:
    """Least squares of action means (A,) on features (A, d), weighted by rows."""
    root = np.sqrt(met)
    return np.asarray(np.linalg.lstsq(table * root[:, None], levels / root, rcond=None)[0], dtype=np.float64)
