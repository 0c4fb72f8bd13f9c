"""All pairs of a user's rows: an unbiased second moment from additive sums, where the search for the population starts.

For rows phi_i, r_i of user n with b_n = sum phi r, two rows of different actions have independent residuals, so with C
= E[phi phi^T]

    E[(b_n b_n^T - sum_i phi_i phi_i^T r_i^2) / (H_n (H_n - 1))] = C S C,        E[b_n / H_n] = C E[beta],

S = E[beta beta^T], whatever the lengths H_n. Unlike SOLD every pair of rows counts, not only those of an odd and an
even step. Two rows of the *same* action share what this user thinks of it, which is no shared direction: such pairs are
left out, in the sums and in the count of pairs. Where rows name actions, their means by action are taken off the
rewards first (`centre`): the population mean is then out of the way, and S is the covariance.

The sums are kept by bucket, a share of the users given by a hash of the user id (`users.bucket_of`), so that held-out
users, folds and halves of the logs are sums of buckets and cost no further pass.

Rows of a user and an action that was met n times also tell how much of the residual comes again with the action: their
squared deviations from their own mean, over n - 1, are an unbiased estimate of the variance of what does *not*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Bools, Floats, Ints, symmetric_part
from newcomer.logs.batch import Batch, Coded
from newcomer.one_hot import Diagonals, OneHot
from newcomer.population import Population
from newcomer.users import user_bucket_count, user_buckets

FIRM = 10.0  # rows from which what an action has shown is more its own than what is expected of it
FEW = 2.0  # rows from which an action's variance is more its own than the common one
TINY = 1e-300
NOISELESS = 1e-8  # share of the spread of rewards below which noise counts as none
EQUAL = 1e-12  # share of their mean square that the spread of equal rewards may have by rounding


class Pairs(Protocol):
    """What a fit asks of the sums over users, by bucket; B buckets, dimension d, A actions.

    `DensePairs` has sums of d x d entries. Where one-hot actions are many, `SparsePairs` has their diagonals alone.
    """

    @property
    def users(self) -> Ints:
        """Users, (B,)."""

    @property
    def rows(self) -> Ints:
        """Rows, (B,)."""

    @property
    def squares(self) -> Floats:
        """Sums of r^2, (B,)."""

    @property
    def shown(self) -> Floats:
        """Sums of phi, (B, d)."""

    @property
    def gram(self) -> Floats | Diagonals:
        """Sums of phi phi^T, (B, d, d)."""

    @property
    def cross(self) -> Floats:
        """Sums of phi r, (B, d)."""

    @property
    def met(self) -> Floats:
        """Rows of each action, (B, A); A = 0 where none is logged."""

    @property
    def levels(self) -> Floats:
        """Sums of r of each action, (B, A)."""

    @property
    def powers(self) -> Floats:
        """Sums of r^2 of each action, (B, A)."""

    @property
    def again(self) -> Floats:
        """Meetings of a user and an action beyond the first, (B, A)."""

    @property
    def within(self) -> Floats:
        """Sums of squared deviations of the rewards of such meetings from their mean, (B, A)."""

    def take(self, buckets: Bools) -> Pairs:
        """The sums of some buckets, added up; a leading axis of one remains."""

    def start_mean(self) -> Floats:
        """The mean (d,) of the moment estimate, of sums over one bucket."""


@dataclass(frozen=True)
class DensePairs:
    """Sums over users by bucket where there are few features; B buckets, dimension d."""

    users: Ints  # (B,) users
    pairable: Ints  # (B,) users with at least two rows
    rows: Ints  # (B,)
    shown: Floats  # (B, d) of phi
    gram: Floats  # (B, d, d) of phi phi^T
    cross: Floats  # (B, d) of phi r
    squares: Floats  # (B,) of r^2
    means: Floats  # (B, d) of b / H
    products: Floats  # (B, d, d) of (b b^T - its part from pairs of one action) / number of the other pairs
    met: Floats  # (B, A) rows of each action; A = 0 where none is logged
    levels: Floats  # (B, A) of r
    powers: Floats  # (B, A) of r^2
    again: Floats  # (B, A) meetings of a user and an action beyond the first
    within: Floats  # (B, A) of squared deviations of these from the mean of their user and action

    def __add__(self, other: DensePairs) -> DensePairs:
        return DensePairs(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def take(self, buckets: Bools) -> DensePairs:
        """The sums of some buckets, added up; a leading axis of one remains."""
        return DensePairs(**{name: value[buckets].sum(axis=0, keepdims=True) for name, value in vars(self).items()})

    def start_mean(self) -> Floats:
        """The mean (d,) of the moment estimate, of sums over one bucket."""
        return start_from_pairs(self, 0).mean


@dataclass(frozen=True)
class SparsePairs:
    """The same where features are one-hot and actions many: sums that are d x d are diagonal, and `products` has none.

    What is off the diagonal of the products is not kept: `newcomer.em.pair_moment` finds the directions that it
    has from further passes.
    """

    users: Ints  # (B,)
    pairable: Ints  # (B,) rows of users who met two actions or more
    rows: Ints  # (B,)
    squares: Floats  # (B,)
    alike: Floats  # (B, A) the part of b b^T from pairs of one action, weighted `pair_weights_by_rows`: a diagonal
    met: Floats  # (B, A)
    levels: Floats  # (B, A)
    powers: Floats  # (B, A)
    again: Floats  # (B, A)
    within: Floats  # (B, A)

    def __add__(self, other: SparsePairs) -> SparsePairs:
        return SparsePairs(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def take(self, buckets: Bools) -> SparsePairs:
        """The sums of some buckets, added up; a leading axis of one remains."""
        return SparsePairs(**{name: value[buckets].sum(axis=0, keepdims=True) for name, value in vars(self).items()})

    @property
    def gram(self) -> Diagonals:
        """Sums of phi phi^T."""
        return Diagonals(self.met)

    @property
    def shown(self) -> Floats:
        """Sums (B, d) of phi."""
        return self.met

    @property
    def cross(self) -> Floats:
        """Sums (B, d) of phi r."""
        return self.levels

    def start_mean(self) -> Floats:
        """The mean reward (d,) of each action of sums over one bucket, as if it had been met once more, at the mean."""
        met, levels = self.met[0], self.levels[0]
        return np.asarray((levels + levels.sum() / max(met.sum(), 1.0)) / (met + 1.0))


def sparse_pairs_of(batch: Batch, *, actions: int, centre: Floats) -> SparsePairs:
    """The sums of the users of a batch whose features are one-hot of many actions."""
    assert batch.actions is not None
    lengths, buckets = batch.lengths, user_bucket_count(actions)
    where, groups = user_buckets(batch.hashes, buckets), Groups.of(batch, batch.actions)
    met, levels, powers, again, within = np.zeros((5, buckets, actions))
    pairs = groups.pairs(len(lengths))
    sums = groups.sums(batch.rewards - centre[batch.actions]) ** 2 * pair_weights_by_rows(pairs, lengths)[groups.user]

    def summed(places: Ints, values: Floats, shape: tuple[int, ...] = (buckets,)) -> Floats:
        size = int(np.prod(shape))
        return np.bincount(places, values, minlength=size).astype(np.float64, copy=False).reshape(shape)

    total = SparsePairs(
        users=np.bincount(where, minlength=buckets),
        pairable=np.bincount(where, np.where(pairs > 0, lengths, 0), minlength=buckets).astype(np.int64),
        rows=np.bincount(np.repeat(where, lengths), minlength=buckets),
        squares=summed(np.repeat(where, lengths), batch.rewards**2),
        alike=summed(where[groups.user] * actions + groups.action, sums, met.shape),
        met=met,
        levels=levels,
        powers=powers,
        again=again,
        within=within,
    )
    _add_actions(total, where, batch, batch.actions, groups)
    return total


def share_of_pairs(pairs: Floats) -> Floats:
    """One over the number of pairs of each user, nothing for those who have none."""
    return np.where(pairs > 0, 1.0 / np.maximum(pairs, 1.0), 0.0)


def pair_weights_by_rows(pairs: Floats, lengths: Ints) -> Floats:
    """The weight H / pairs (n,) of a user's products where actions are many.

    With it every row counts alike: an action is in as many weighted pairs as it was met, however long the histories.
    """
    return np.asarray(lengths * share_of_pairs(pairs))


def pair_action_levels(batch: Batch, actions: int) -> Floats:
    """Rows (0) and rewards (1) of each action, (2, A), summed over a batch."""
    assert batch.actions is not None
    counted = [np.bincount(batch.actions, weights, minlength=actions) for weights in (None, batch.rewards)]
    return np.array(counted, dtype=np.float64)


def dense_pairs_of(batch: Batch, *, actions: int = 0, centre: Floats | None = None) -> DensePairs:
    """The sums of the users of a batch: where rows name actions of a catalogue, by action; else by row.

    `actions` is the number A of actions that are named, `centre` (A,) what is taken off their rewards in the products.
    """
    dim = batch.dim
    actions = len(batch.coded.table) if batch.coded is not None else actions
    total = _empty(dim, actions)
    where = user_buckets(batch.hashes, len(total.users))
    np.add.at(total.users, where, 1)
    np.add.at(total.rows, where, batch.lengths)
    named = batch.actions if actions else None
    groups = None
    rewards = batch.rewards
    if named is not None:
        groups = Groups.of(batch, named)
        _add_actions(total, where, batch, named, groups)
        rewards = rewards if centre is None else rewards - centre[named]
    if batch.coded is not None and groups is not None:
        _add_coded(total, where, batch, batch.coded, rewards, groups)
        return total
    for length, who, features, raw in batch.by_length():
        rows = batch.offsets[who][:, None] + np.arange(length)
        # Sorted by bucket, so that each bucket is a slice and its sums are matrix products.
        order = np.argsort(where[who], kind="stable")
        ends = np.searchsorted(where[who][order], np.arange(len(total.users) + 1))
        for bucket in np.flatnonzero(np.diff(ends)):
            chosen = order[ends[bucket] : ends[bucket + 1]]
            _add(total, int(bucket), length, features[chosen], raw[chosen], rewards[rows[chosen]])
    if groups is not None:
        _leave_out_repeats(total, where, batch, rewards, groups)
    return total


def _empty(dim: int, actions: int) -> DensePairs:
    """The sums over nobody."""
    buckets = user_bucket_count(dim)
    met, levels, powers, again, within = np.zeros((5, buckets, actions))
    return DensePairs(
        users=np.zeros(buckets, dtype=np.int64),
        pairable=np.zeros(buckets, dtype=np.int64),
        rows=np.zeros(buckets, dtype=np.int64),
        shown=np.zeros((buckets, dim)),
        gram=np.zeros((buckets, dim, dim)),
        cross=np.zeros((buckets, dim)),
        squares=np.zeros(buckets),
        means=np.zeros((buckets, dim)),
        products=np.zeros((buckets, dim, dim)),
        met=met,
        levels=levels,
        powers=powers,
        again=again,
        within=within,
    )


@dataclass(frozen=True)
class Groups:
    """Rows of one user and one action: which group each row is in, and user, action and size of each group."""

    of_row: Ints  # (rows,)
    user: Ints  # (groups,) position in the batch
    action: Ints  # (groups,)
    size: Floats  # (groups,)

    @classmethod
    def of(cls, batch: Batch, actions: Ints) -> Groups:
        """The groups of a batch."""
        lengths = batch.lengths
        user = np.repeat(np.arange(len(lengths)), lengths)
        key = user * (int(actions.max(initial=0)) + 1) + actions
        _, first, inverse, size = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return cls(inverse.ravel(), user[first], actions[first], size.astype(np.float64))

    def sums(self, values: Floats) -> Floats:
        """Sums of a number a row over groups, (groups,)."""
        return np.bincount(self.of_row, values, minlength=len(self.size)).astype(np.float64)

    def pairs(self, users: int) -> Floats:
        """Ordered pairs of rows of different actions of each user, (users,)."""
        lengths, same = (np.bincount(self.user, self.size**power, minlength=users) for power in (1, 2))
        return np.asarray(lengths**2 - same, dtype=np.float64)


def _add_actions(total: Pairs, where: Ints, batch: Batch, actions: Ints, groups: Groups) -> None:
    """Add what is counted by action."""
    count = total.met.shape[1]
    place = np.repeat(where, batch.lengths) * count + actions

    def by_action(places: Ints, values: Floats | None) -> Floats:
        return np.bincount(places, values, minlength=total.met.size).reshape(total.met.shape).astype(np.float64)

    total.met[:] += by_action(place, None)
    total.levels[:] += by_action(place, batch.rewards)
    total.powers[:] += by_action(place, batch.rewards**2)
    if len(groups.size) < len(actions):
        apart = batch.rewards - (groups.sums(batch.rewards) / groups.size)[groups.of_row]
        total.within[:] += by_action(place, apart**2)
        total.again[:] += by_action(where[groups.user] * count + groups.action, groups.size - 1.0)


def _add(total: DensePairs, bucket: int, length: int, features: Floats, raw: Floats, rewards: Floats) -> None:
    """Add users of one length: features (n, H, d), rewards (n, H) as they are, and less the population mean."""
    flat, weighted = features.reshape(-1, features.shape[2]), features * rewards[:, :, None]
    sums, plain = weighted.sum(axis=1), np.einsum("nhd,nh->nd", features, raw)
    total.shown[bucket] += flat.sum(axis=0)
    total.gram[bucket] += flat.T @ flat
    total.cross[bucket] += plain.sum(axis=0)
    total.squares[bucket] += np.vdot(raw, raw)
    total.means[bucket] += plain.sum(axis=0) / length
    if length < 2:
        return
    weighted = weighted.reshape(flat.shape)
    total.pairable[bucket] += len(rewards)
    total.products[bucket] += (sums.T @ sums - weighted.T @ weighted) / (length * (length - 1))


def _leave_out_repeats(total: DensePairs, where: Ints, batch: Batch, rewards: Floats, groups: Groups) -> None:
    """Take users who met an action twice out of the products, and add them again without the pairs of one action."""
    lengths, pairs = batch.lengths, groups.pairs(len(batch.lengths))
    for user in np.flatnonzero(pairs < lengths * (lengths - 1)):
        rows = slice(int(batch.offsets[user]), int(batch.offsets[user + 1]))
        weighted = batch.take(rows) * rewards[rows, None]
        b, inside = weighted.sum(axis=0), groups.of_row[rows]
        every = np.outer(b, b) - weighted.T @ weighted
        alike = np.zeros((int(inside.max()) + 1 - int(inside.min()), weighted.shape[1]))
        np.add.at(alike, inside - inside.min(), weighted)
        total.products[where[user]] -= every / (lengths[user] * (lengths[user] - 1))
        if pairs[user]:
            total.products[where[user]] += (np.outer(b, b) - alike.T @ alike) / pairs[user]
        else:
            total.pairable[where[user]] -= 1


def _add_coded(total: DensePairs, where: Ints, batch: Batch, coded: Coded, rewards: Floats, groups: Groups) -> None:
    """The same from a catalogue T: sums of phi phi^T x are T^T diag(sums of x by action) T, and b = T^T (sums of r by
    action)."""
    table_of_all = coded.table.dense() if isinstance(coded.table, OneHot) else coded.table
    items, lengths, pairs = len(table_of_all), batch.lengths, groups.pairs(len(batch.lengths))
    share = share_of_pairs(pairs)
    alike = np.bincount(
        where[groups.user] * items + groups.action,
        groups.sums(rewards) ** 2 * share[groups.user],
        minlength=total.met.size,
    ).reshape(total.met.shape)
    centred = csr_array((rewards, coded.actions, batch.offsets), shape=(len(lengths), items))
    raw = csr_array((batch.rewards, coded.actions, batch.offsets), shape=(len(lengths), items))
    np.add.at(total.squares, np.repeat(where, lengths), batch.rewards**2)
    np.add.at(total.pairable, where, pairs > 0)
    for bucket in np.flatnonzero(np.bincount(where, minlength=len(total.users))):
        own = np.flatnonzero(where == bucket)
        plain = np.asarray(raw[own] @ table_of_all)
        total.cross[bucket] += plain.sum(axis=0)
        total.means[bucket] += (plain / lengths[own, None]).sum(axis=0)
        scaled = np.asarray(centred[own] @ table_of_all) * np.sqrt(share[own])[:, None]
        seen = np.flatnonzero(total.met[bucket])
        table, counts = table_of_all[seen], np.bincount(_rows_of(batch, own, coded.actions), minlength=items)[seen]
        total.shown[bucket] += counts @ table
        total.gram[bucket] += table.T @ (counts[:, None] * table)
        total.products[bucket] += scaled.T @ scaled - table.T @ (alike[bucket, seen, None] * table)


def _rows_of(batch: Batch, users: Ints, values: Ints) -> Ints:
    """The values of the rows of some users."""
    chosen = np.zeros(len(batch.lengths), dtype=np.bool_)
    chosen[users] = True
    return values[np.repeat(chosen, batch.lengths)]


def start_from_pairs(pairs: DensePairs, rank: int, *, centred: bool = False) -> Population:
    """The moment estimate from summed pairs (one bucket), in the metric of C, regularised where C is poorly known.

    C is shrunk towards a multiple of the identity by as much as a share d / rows, which is what sampling leaves open.
    Lengths are those beyond the first direction that is left out: where people are few for the features, chance alone
    makes long ones, and an ascent from there is long. Directions with nothing left get a small length, so that
    refinement can still find them. `centred` says that the population mean was taken off the rewards in the products.
    """
    dim, rows, users = pairs.cross.shape[1], max(float(pairs.rows[0]), 1.0), max(float(pairs.users[0]), 1.0)
    gram = pairs.gram[0] / rows
    gram = gram + np.eye(dim) * (np.trace(gram) / dim) * dim / (dim + rows)
    values, vectors = np.linalg.eigh(gram)
    values = np.where(values > 0, values, 1.0)  # of features that are all zero
    white = vectors / np.sqrt(values)  # white^T C white = I
    mean = white.T @ pairs.means[0] / users
    spread = white.T @ pairs.products[0] @ white / max(float(pairs.pairable[0]), 1.0)
    lengths, axes = np.linalg.eigh(symmetric_part(spread if centred else spread - np.outer(mean, mean)))
    left = what_pairs_leave(pairs, lengths[::-1], rank, common=float(mean @ mean))
    factor = white @ (axes[:, ::-1][:, :rank] * np.sqrt(left.lengths))
    return Population(white @ mean, factor, left.noise, left.by_action, units=left.units)


class Left(NamedTuple):
    """How far users differ along the leading directions (rank,), and the residual that this leaves."""

    lengths: Floats
    noise: float
    by_action: Floats | None
    units: Floats


def what_pairs_leave(pairs: Pairs, lengths: Floats, rank: int, *, common: float) -> Left:
    """The lengths of the leading directions, less what chance gives to the next one, and the variance they leave.

    `lengths` are all of them, or the leading ones, largest first; `common` is the mean square of the population mean.
    """
    rest = max(float(lengths[rank]), 0.0) if rank < len(lengths) else 0.0
    rows, dim = max(float(pairs.rows[0]), 1.0), pairs.cross.shape[1]
    power = float(pairs.squares[0]) / rows
    apart = pair_action_variances(pairs)
    left = power - common if apart is None else float(pairs.met[0] @ apart) / rows
    kept = np.maximum(lengths[:rank] - rest, 1e-3 * (power if apart is None else left) / dim)
    noise = max(left - float(kept.sum()), 0.05 * (power if apart is None else left), TINY)
    by_action = None if apart is None else np.maximum(apart * (noise / max(left, TINY)), TINY)
    return Left(kept, noise, by_action, np.maximum(np.array([left]) if apart is None else apart, TINY))


def pair_reward_spread(pairs: Pairs) -> float:
    """The mean square of rewards, where rows name actions about the mean of each: no level of an action is spread.

    Where rewards of an action are all the same it is that about the mean of all, and where all are, their mean square:
    what is left is rounding.
    """
    rows, met = max(float(pairs.rows.sum()), 1.0), pairs.met.sum(axis=0)
    power, levels = float(pairs.squares.sum()) / rows, pairs.levels.sum(axis=0)
    total = max(float(met.sum()), 1.0)
    within = power - float((levels**2 / np.maximum(met, 1.0)).sum()) / total
    spread = power - (float(levels.sum()) / total) ** 2
    return next((one for one in (within, spread) if one > EQUAL * power), power)


def pair_action_variances(pairs: Pairs) -> Floats | None:
    """Variances (A,) of the rewards of each action around their mean, shrunk towards the common one by `FEW` rows; None
    without actions.

    >>> from newcomer.logs import Logs
    >>> logs = Logs.from_arrays(user=[1, 1, 2, 2], action=[0, 1, 0, 1], reward=[0.0, 1.0, 2.0, 1.0])
    >>> pairs = dense_pairs_of(next(logs.batches()), actions=2)
    >>> pair_action_variances(pairs.take(np.ones(64, dtype=bool))).round(2).tolist()
    [1.33, 0.67]
    """
    met, levels, powers = pairs.met[0], pairs.levels[0], pairs.powers[0]
    if not len(met):
        return None
    squares = np.maximum(powers - levels**2 / np.maximum(met, 1.0), 0.0)
    common = squares.sum() / max(np.maximum(met - 1.0, 0.0).sum(), 1.0)
    common = max(common, NOISELESS * pair_reward_spread(pairs), TINY)
    shrunk: Floats = (squares + FEW * common) / (np.maximum(met - 1.0, 0.0) + FEW)
    return shrunk
