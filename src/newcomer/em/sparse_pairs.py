"""Where the ascent starts if actions are many and one-hot: the leading directions of all pairs, without a d x d matrix.

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
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Bools, Floats
from newcomer.em.pairs import FIRM, Groups, SparsePairs, pair_weights_by_rows, start_mean_from_pairs, what_pairs_leave
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import Pass
from newcomer.population import Population
from newcomer.subspace import leading_subspace_by_products
from newcomer.users import user_bucket_count, user_buckets

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
