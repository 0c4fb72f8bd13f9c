"""The second moment of users by all pairs of their rows: where EM starts, and which directions moments alone show.

One interface, `PairMoment`. `DensePairMoment` has it from d x d sums that one pass adds up (`newcomer.em.pairs`).
`SparsePairMoment` has it from a few passes more, where one-hot actions are too many for a d x d matrix.
`pair_moment_of` takes the one that suits the logs.

**Many one-hot actions.** The start takes the leading eigenvectors of C^-1/2 P C^-1/2, where C = E[phi phi^T] and P is
the sum over users of their products of rewards, over pairs of different actions. With one-hot features C is diagonal,
and a product of P with a block Q of a few columns is

    P Q = sum_n share_n b_n (b_n^T Q) - diag(part from pairs of one action) Q,

b_n the sums of (centred) rewards by action, of which a user has as many as actions met: a pass over the logs, whose
cost does not depend on the number of actions. `PASSES` such products, and what can be made of all of them together,
give the directions (`newcomer.subspace.leading_subspace_by_products`). A pass serves all parts of the users that are
asked for at once, and what was found is kept.

Two things are done otherwise than for few actions. Among many actions, some are met in long histories above all: were
every *user* to count alike in P (share_n = 1 / pairs) while rows count alike in C, their entries would come out too
small, and those of popular actions several times too large. With share_n = H / pairs every *row* counts alike in both.
And an action that was met n times gets a share n / (n + `FIRM`) of its entries of the directions: rare ones would have
the largest of all, by chance. (On a third of MovieLens-1M the fit takes a fifth of the time that it took before rows
counted alike.)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from newcomer.arrays import Bools, Floats, symmetric_part
from newcomer.em.pairs import (
    FIRM,
    DensePairs,
    Groups,
    Pairs,
    SparsePairs,
    dense_pairs_of,
    pair_action_levels,
    pair_action_variances,
    pair_weights_by_rows,
    sparse_pairs_of,
    start_from_pairs,
    what_pairs_leave,
)
from newcomer.em.passes import Passes
from newcomer.em.spikes import Spikes, spike_edge_of_part
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.population import Population
from newcomer.sold.sparse_moments import BlockProducts, Probe
from newcomer.subspace import leading_subspace_by_products
from newcomer.users import user_bucket_count, user_bucket_signs, user_buckets

PASSES = 3  # products that directions are found from
MORE = 7  # columns beyond the directions wanted, and the one after them
FLIPPED = 3  # flips by which passes tell the edge among many actions: one pass serves all of them
DENSE = 256  # features up to which all eigenvectors are as quick as the leading ones
FILLS = 10  # rounds of the completion of the diagonal


class PairMoment(Protocol):
    """What a fit asks of the second moment by pairs; parts of the users are buckets (B,)."""

    @property
    def pairs(self) -> Pairs:
        """The sums over pairs."""

    @property
    def by_passes(self) -> bool:
        """Whether directions take passes to find, so that each part of the users costs some."""

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets."""

    def prepare(self, parts: Sequence[Bools], rank: int) -> None:
        """Find the directions of several parts at once, where that saves passes."""

    def spikes(self, parts: Sequence[Bools], most: int, edge: float | None) -> tuple[list[Spikes], float]:
        """Up to `most` directions of each part that stand out (`newcomer.em.spikes`), and the edge of all users; `edge`
        is that, if it is known."""


def pair_moment_of(passes: Passes) -> PairMoment:
    """The second moment of the users of logs: one pass, or two where rows name actions, whose means are taken off
    first."""
    logs = passes.logs
    actions, centre = len(logs.action_ids or ()), None
    if actions:
        met, levels = passes.run(partial(pair_action_levels, actions=actions), operator.add)
        centre = np.divide(levels, met, out=np.zeros(actions), where=met > 0)
    if logs.wide and centre is not None:
        wide = passes.run(partial(sparse_pairs_of, actions=actions, centre=centre), operator.add)
        return SparsePairMoment(passes.run, wide, centre)
    return DensePairMoment(
        passes.run(partial(dense_pairs_of, actions=actions, centre=centre), operator.add), logs.one_hot
    )


@dataclass(frozen=True, eq=False)
class DensePairMoment:
    """The second moment from sums of d x d entries."""

    pairs: DensePairs
    one_hot: bool
    by_passes: bool = False

    @property
    def centred(self) -> bool:
        """Whether the population mean of each action was taken off before pairs were multiplied."""
        return bool(self.pairs.met.shape[1])

    @property
    def hollow(self) -> bool:
        """Whether features are one-hot and nothing else, so that the products have no diagonal."""
        return self.one_hot and self.pairs.cross.shape[1] == self.pairs.met.shape[1]

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets."""
        return start_from_pairs(self.pairs.take(buckets), rank, centred=self.centred)

    def prepare(self, parts: Sequence[Bools], rank: int) -> None:
        """Nothing: the sums are there."""

    def spikes(self, parts: Sequence[Bools], most: int, edge: float | None) -> tuple[list[Spikes], float]:
        """See `PairMoment.spikes`."""
        pairs, (inward, outward) = self.pairs, self._scales()
        dim, users = pairs.cross.shape[1], float(pairs.users.sum())
        common = np.zeros(dim) if self.centred else pairs.means.sum(axis=0) / users

        def moment(weights: Floats) -> Floats:
            """M of the buckets, each with its weight (B,)."""
            mass = max(float(np.abs(weights) @ pairs.pairable), 1.0)
            level = float(weights @ pairs.pairable) * np.outer(common, common)
            return symmetric_part(inward.T @ (np.tensordot(weights, pairs.products, 1) - level) @ inward) / mass

        if edge is None:
            edge = float(np.mean([_largest(moment(signs)) for signs in user_bucket_signs(len(pairs.users))]))
        found = []
        for part in parts:
            own = spike_edge_of_part(pairs.users, part, edge)
            values, vectors = _leading(moment(part.astype(np.float64)), most, own, hollow=self.hollow)
            found.append(Spikes(values, outward @ vectors, own))
        return found, edge

    def _scales(self) -> tuple[Floats, Floats]:
        """A and B (d, d) of `newcomer.em.spikes`: from sums over pairs to M, and from its directions to reward
        vectors."""
        everybody = np.ones(len(self.pairs.users), dtype=np.bool_)
        every = self.pairs.take(everybody)
        if self.hollow:
            inward, outward = one_hot_pair_scales(every)
            return np.diag(inward), np.diag(outward)
        dim, rows = every.cross.shape[1], max(float(every.rows[0]), 1.0)
        gram = every.gram[0] / rows
        values, vectors = np.linalg.eigh(gram + np.eye(dim) * (np.trace(gram) / dim) * dim / (dim + rows))
        white = vectors / np.sqrt(np.where(values > 0, values, 1.0))
        deviation = float(np.sqrt(self.start(everybody, 0).noise_variance))
        return white / deviation, white * deviation


@dataclass(eq=False)
class SparsePairMoment:
    """The second moment by passes: the leading directions of parts of the users, which are kept."""

    run: Pass
    pairs: SparsePairs
    centre: Floats  # (A,) taken off rewards
    by_passes: bool = True
    _kept: dict[bytes, tuple[Floats, Floats]] = field(default_factory=dict)

    def start(self, buckets: Bools, rank: int) -> Population:
        """The moment estimate of the users in some buckets: see `newcomer.em.pairs.start_from_pairs`."""
        some = self.pairs.take(buckets)
        scale, mean = _scale(some), some.start_mean()
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
        found = self._spectra(weights, scales, [rank + 1] * len(scales))
        for name, (lengths, axes) in zip(missing, found, strict=True):
            self._kept[name] = lengths[: rank + 1], axes[:, : rank + 1].copy()

    def spikes(self, parts: Sequence[Bools], most: int, edge: float | None) -> tuple[list[Spikes], float]:
        """See `PairMoment.spikes`; passes serve all parts and flips."""
        users = self.pairs.users
        inward, outward = one_hot_pair_scales(self.pairs.take(np.ones(len(users), dtype=np.bool_)))
        flips = [] if edge is not None else list(user_bucket_signs(len(users))[:FLIPPED])
        asked = [part.astype(np.float64) for part in parts] + flips
        spectra = self._spectra(asked, [inward] * len(asked), [most] * len(parts) + [1] * len(flips))
        if edge is None:
            edge = float(np.mean([np.abs(values).max() for values, _ in spectra[len(parts) :]]))
        return [
            Spikes(values[:most], outward[:, None] * vectors[:, :most], spike_edge_of_part(users, part, edge))
            for part, (values, vectors) in zip(parts, spectra[: len(parts)], strict=True)
        ], edge

    def _spectra(
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
            found = self.run(partial(pair_moment_products, probes=probes, centre=self.centre), operator.add).blocks
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


def pair_moment_products(batch: Batch, *, probes: tuple[Probe, ...], centre: Floats) -> BlockProducts:
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
    return BlockProducts(tuple(blocks))


def _scale(some: SparsePairs) -> Floats:
    """C^-1/2 (A,), C regularised."""
    rows = max(float(some.rows[0]), 1.0)
    gram = (some.met[0] + 1.0) / rows  # as if each had been met once more
    return np.asarray(1.0 / np.sqrt(np.where(gram > 0, gram, 1.0)))


def one_hot_pair_scales(every: Pairs) -> tuple[Floats, Floats]:
    """The diagonals (A,) of A = (v C)^-1/2 and of B = v^1/2 C^-1/2, the latter less for actions hardly met."""
    met, variances = every.met[0], pair_action_variances(every)
    assert variances is not None
    often = (met + 1.0) / max(float(every.rows[0]), 1.0)  # as if each had been met once more
    return 1.0 / np.sqrt(variances * often), met / (met + FIRM) * np.sqrt(variances / often)


def _leading(moment: Floats, most: int, edge: float, *, hollow: bool) -> tuple[Floats, Floats]:
    """The leading eigenvalues, largest first, and eigenvectors; a diagonal that is missing is completed on the way."""
    count = min(most, len(moment))
    values, vectors = _top(moment, count)
    for _ in range(FILLS if hollow else 0):
        strengths = Spikes(values, vectors, edge).strengths
        np.fill_diagonal(moment, (vectors**2) @ strengths)
        values, vectors = _top(moment, count)
    return values, vectors


def _top(moment: Floats, count: int) -> tuple[Floats, Floats]:
    """`count` eigenvalues, largest first, and their eigenvectors."""
    size = len(moment)
    if size <= DENSE or count >= size - 1:
        values, vectors = eigh(moment, subset_by_index=[size - count, size - 1])
    else:
        values, vectors = eigsh(moment, k=count, which="LA", v0=np.ones(size))
        order = np.argsort(values, kind="stable")
        values, vectors = values[order], vectors[:, order]
    return values[::-1].copy(), vectors[:, ::-1].copy()


def _largest(moment: Floats) -> float:
    """The largest absolute eigenvalue."""
    if len(moment) <= DENSE:
        return float(np.abs(np.linalg.eigvalsh(moment)).max())
    (value,) = eigsh(moment, k=1, which="LM", v0=np.ones(len(moment)), tol=1e-3, return_eigenvectors=False)
    return abs(float(value))
