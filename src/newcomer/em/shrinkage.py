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

Where the ascent starts if actions are many and one-hot: the leading directions of all pairs, without a d x d matrix.

The start of `all_pairs` takes the leading eigenvectors of C^-1/2 P C^-1/2, where C = E[phi phi^T] and P is the sum over
users of their products of rewards, over pairs of different actions. With one-hot features C is diagonal, and a product
of P with a block Q of a few columns is

    P Q = sum_n share_n b_n (b_n^T Q) - diag(part from pairs of one action) Q,

b_n the sums of (centred) rewards by action, of which a user has as many as actions met: a pass over the logs, whose
cost does not depend on the number of actions. `PASSES` such products, and what can be made of all of them together,
give the directions (`subspace.leading_by_products`). A pass serves all parts of the users that are asked for at once,
and what was found is kept.

Two things are done otherwise than for few actions. Among many actions, some are met in long histories above all: were
every *user* to count alike in P (share_n = 1 / pairs) while rows count alike in C, their entries would come out too
small, and those of popular actions several times too large. With share_n = H / pairs every *row* counts alike in both.
And an action that was met n times gets a share n / (n + `FIRM`) of its entries of the directions: rare ones would have
the largest of all, by chance. (On a third of MovieLens-1M the fit takes a fifth of the
time that it took before rows counted alike.)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Bools, Floats
from newcomer.em.optimizer import Gram, Optimizer, Shrinkage, Totals
from newcomer.em.pairs import (
    FEW,
    FIRM,
    NOISELESS,
    TINY,
    AnyPairs,
    Groups,
    Pairs,
    SparsePairs,
    pair_action_levels,
    pair_action_variances,
    pair_weights_by_rows,
    pairs_of,
    pairs_of_many_actions,
    start_from_pairs,
    start_mean_from_pairs,
    what_pairs_leave,
)
from newcomer.em.passes import Passes
from newcomer.em.variance_components import LASTING, persistent_variance_share
from newcomer.errors import LogsError
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.one_hot import Catalogue, OneHot, one_hot_gram
from newcomer.population import Population
from newcomer.subspace import leading_subspace_by_products
from newcomer.users import Split, user_bucket_count, user_buckets

USUAL = 8  # directions whose lengths the moments tell, when the residual variances are first looked at
SLIGHT = 1e-3  # share of the residual variance below which offsets are nothing


@dataclass(frozen=True, eq=False)
class FitStart:
    """What all fits begin with: the sums over pairs, the catalogue's features where rows name actions of one, and what
    lasts.
    """

    pairs: AnyPairs
    table: Catalogue | None  # (A, d)
    one_hot: bool
    share: float | None = None  # of the residual that comes again, if it was given
    directions: Directions | None = None  # of one-hot features of many actions: found by passes
    towards: Floats | None = None  # (A,) what variances are shrunk towards, where a sample has told it
    left: Floats | None = None  # (A,) sums of r - phi^T m, where rows name actions and bring features of their own

    @property
    def centred(self) -> bool:
        """Whether the population mean of each action was taken off before pairs were multiplied."""
        return bool(self.pairs.met.shape[1])

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets."""
        if self.directions is not None:
            found = self.directions.start(buckets, rank)
        else:
            assert isinstance(self.pairs, Pairs)
            found = start_from_pairs(self.pairs.take(buckets), rank, centred=self.centred)
        return replace(found, share=self.share_for(found))

    def prepare(self, parts: list[Bools], rank: int) -> None:
        """Where directions take passes to find: those of several parts of the users, in the same passes."""
        if self.directions is not None:
            self.directions.prepare(parts, rank)

    def share_for(self, population: Population) -> float:
        """The persistence, as given or as repeats estimate it; 0 where no user met an action again."""
        if self.share is not None:
            return min(self.share, LASTING)
        lasting = persistent_variance_share(self.pairs, population.variances)
        return 0.0 if lasting is None else lasting.estimate

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
        return Shrinkage(np.array([precision]), anchor, towards, offset_shrinkage_precision(origin, fitted), totals)

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
    """The sums over pairs: one pass, or two where rows name actions, whose means are taken off first."""
    logs = passes.logs
    actions, centre = len(logs.action_ids or ()), None
    if actions:
        met, levels = passes.run(partial(pair_action_levels, actions=actions), operator.add)
        centre = np.divide(levels, met, out=np.zeros(actions), where=met > 0)
    pairs: AnyPairs
    directions = None
    if logs.wide and centre is not None:
        pairs = wide = passes.run(partial(pairs_of_many_actions, actions=actions, centre=centre), operator.add)
        directions = Directions(passes.run, wide, centre)
    else:
        pairs = passes.run(partial(pairs_of, actions=actions, centre=centre), operator.add)
    if not pairs.squares.sum() > 0:
        raise LogsError("all rewards are zero", todo="log rewards that tell good from bad")
    left = None
    if actions and not logs.by_action:
        mean = start_mean_from_pairs(pairs.take(np.ones(len(pairs.users), dtype=np.bool_)))
        left = passes.run(partial(left_by_action, mean=mean, actions=actions), operator.add)
    return FitStart(pairs, logs.table if logs.by_action else None, logs.one_hot, persistence, directions, left=left)


def left_by_action(batch: Batch, *, mean: Floats, actions: int) -> Floats:
    """Sums (A,) of r - phi^T m over the rows of each action: the map of a pass."""
    assert batch.actions is not None
    return np.bincount(batch.actions, batch.rewards - batch.features @ mean, minlength=actions).astype(np.float64)


def shrinkage_noise_floor(pairs: AnyPairs) -> float:
    """The least noise variance that is told apart from none."""
    return NOISELESS * float(pairs.squares.sum()) / float(pairs.rows.sum())


def mean_shrinkage_precision(pairs: AnyPairs, buckets: Bools, anchor: Floats) -> float:
    """d / |m - anchor|^2, with the square the product of the means of two halves of the users in some buckets (B,).

    The plain square would count the error of the mean as mean; the product does not, since the halves err
    independently, but it may come out near zero or negative: it is taken to be at least a hundredth of the plain one.
    """
    order = np.cumsum(buckets) % 2 == 1
    sides = [buckets & side for side in (order, ~order)]
    halves = [start_mean_from_pairs(pairs.take(side)) - anchor for side in sides if pairs.users[side].sum()]
    plain = start_mean_from_pairs(pairs.take(buckets)) - anchor
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


def _one_over(pairs: AnyPairs, away: Floats, free: float) -> float | None:
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


PASSES = 3  # products that directions are found from
MORE = 7  # columns beyond the directions wanted, and the one after them


class Probe(NamedTuple):
    """The weight (B,) of each bucket of users, and the columns (A, q) that their products are multiplied with."""

    weights: Floats
    columns: Floats


@dataclass(frozen=True)
class Images:
    """The products of a pass, one (A, q) for each probe."""

    blocks: tuple[Floats, ...]

    def __add__(self, other: Images) -> Images:
        return Images(tuple(map(operator.add, self.blocks, other.blocks)))


def sparse_pair_images(batch: Batch, *, probes: tuple[Probe, ...], centre: Floats) -> Images:
    """sum_n share_n b_n (b_n^T Q) over the users of a batch, by the weights of each probe: the map of a pass."""
    assert batch.actions is not None
    users, actions = len(batch.lengths), len(centre)
    where = user_buckets(batch.hashes, user_bucket_count(actions))
    share = pair_weights_by_rows(Groups.of(batch, batch.actions).pairs(users), batch.lengths)
    rewards = batch.rewards - centre[batch.actions]
    rows = csr_array((rewards, batch.actions, batch.offsets), shape=(users, actions))
    blocks = []
    for probe in probes:
        weights = probe.weights[where]
        own = np.flatnonzero(weights)
        some = rows if len(own) == users else rows[own]
        blocks.append(np.asarray(some.T @ ((weights * share)[own, None] * (some @ probe.columns))))
    return Images(tuple(blocks))


@dataclass(eq=False)
class Directions:
    """Finds the leading directions of parts of the users by passes, and keeps them."""

    run: Pass
    pairs: SparsePairs
    centre: Floats  # (A,) taken off rewards
    _kept: dict[bytes, tuple[Floats, Floats]] = field(default_factory=dict)

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets (B,): see `all_pairs.start_from`."""
        some = self.pairs.take(buckets)
        scale, mean = _scale(some), start_mean_from_pairs(some)
        lengths, axes = np.zeros(0), np.zeros((len(mean), 0))
        if rank:
            self.prepare([buckets], rank)
            lengths, axes = self._kept[buckets.tobytes()]
        left = what_pairs_leave(some, lengths, rank, common=0.0)
        firm = some.met[0] / (some.met[0] + FIRM)
        factor = (firm * scale)[:, None] * (axes[:, :rank] * np.sqrt(left.lengths))
        return Population(mean, factor, left.noise, left.by_action, units=left.units)

    def prepare(self, parts: Sequence[Bools], rank: int) -> None:
        """Find directions of several parts of the users in the same passes; those that are known cost nothing."""
        missing = {part.tobytes(): part for part in parts if not self._known(part, rank)}
        if not missing or not rank:
            return
        weights = [part.astype(np.float64) for part in missing.values()]
        scales = [_scale(self.pairs.take(part)) for part in missing.values()]
        for name, (lengths, axes) in zip(missing, self.spectra(weights, scales, [rank + 1] * len(scales)), strict=True):
            self._kept[name] = lengths[: rank + 1], axes[:, : rank + 1].copy()

    def spectra(
        self, weights: Sequence[Floats], scales: Sequence[Floats], counts: Sequence[int]
    ) -> list[tuple[Floats, Floats]]:
        """Leading eigenvalues and eigenvectors (A, .) of diag(scale) P diag(scale) over users, or over rows.

        For each: the `weights` (B,) with which the buckets of users count in P, which may be negative, and the `scale`
        (A,). At least so many as `counts` says are returned of each, where there are so many actions.
        """
        pairs = self.pairs
        alike = [one @ pairs.alike for one in weights]
        mass = [max(float(np.abs(one) @ pairs.pairable), 1.0) for one in weights]

        def products(blocks: Sequence[Floats]) -> list[Floats]:
            asked = zip(weights, blocks, scales, strict=True)
            probes = tuple(Probe(one, scale[:, None] * block) for one, block, scale in asked)
            found = self.run(partial(sparse_pair_images, probes=probes, centre=self.centre), operator.add).blocks
            return [
                scale[:, None] * (image - same[:, None] * probe.columns) / size
                for image, probe, same, size, scale in zip(found, probes, alike, mass, scales, strict=True)
            ]

        actions = len(self.centre)
        starts = [np.random.default_rng(0).standard_normal((actions, min(count + MORE, actions))) for count in counts]
        return leading_subspace_by_products(products, starts, passes=PASSES)

    def _known(self, part: Bools, rank: int) -> bool:
        """Whether so many directions, and the length of the next, are there already."""
        kept = self._kept.get(part.tobytes())
        return kept is not None and len(kept[0]) >= min(rank + 1, len(self.centre))


def _scale(some: SparsePairs) -> Floats:
    """C^-1/2 (A,), C regularised."""
    rows = max(float(some.rows[0]), 1.0)
    gram = (some.met[0] + 1.0) / rows  # as if each had been met once more
    return np.asarray(1.0 / np.sqrt(np.where(gram > 0, gram, 1.0)))
