"""All pairs of a user's rows: an unbiased second moment from additive sums, where the search for the population starts.

For rows phi_i, r_i of user n with b_n = sum phi r, two different rows have independent noise, so with C = E[phi phi^T]

    E[(b_n b_n^T - sum_i phi_i phi_i^T r_i^2) / (H_n (H_n - 1))] = C S C,        E[b_n / H_n] = C E[beta],

S = E[beta beta^T], whatever the lengths H_n. Unlike SOLD every pair of rows counts, not only those of an odd and an
even step. The sums are kept by bucket, a share of the users given by a hash of the user id (`users.bucket_of`), so
that held-out users, folds and halves of the logs are sums of buckets and cost no further pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Bools, Floats, Ints, symmetric
from newcomer.logs.batch import Batch, Coded
from newcomer.population.record import Population
from newcomer.users import bucket_count, bucket_of


@dataclass(frozen=True)
class Pairs:
    """Sums over users by bucket; B buckets, dimension d."""

    users: Ints  # (B,) users
    pairable: Ints  # (B,) users with at least two rows
    rows: Ints  # (B,)
    shown: Floats  # (B, d) of phi
    gram: Floats  # (B, d, d) of phi phi^T
    cross: Floats  # (B, d) of phi r
    squares: Floats  # (B,) of r^2
    means: Floats  # (B, d) of b / H
    products: Floats  # (B, d, d) of (b b^T - sum phi phi^T r^2) / (H (H - 1))

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def take(self, buckets: Bools) -> Pairs:
        """The sums of some buckets, added up; a leading axis of one remains."""
        return Pairs(**{name: value[buckets].sum(axis=0, keepdims=True) for name, value in vars(self).items()})


def pairs_of(batch: Batch) -> Pairs:
    """The sums of the users of a batch: where rows name actions of a catalogue, by action; else by row."""
    dim = batch.dim
    total = _empty(dim)
    where = bucket_of(batch.hashes, bucket_count(dim))
    np.add.at(total.users, where, 1)
    np.add.at(total.rows, where, batch.lengths)
    if batch.coded is not None:
        _add_coded(total, where, batch, batch.coded)
        return total
    for length, who, features, rewards in batch.by_length():
        # Sorted by bucket, so that each bucket is a slice and its sums are matrix products.
        order = np.argsort(where[who], kind="stable")
        ends = np.searchsorted(where[who][order], np.arange(len(total.users) + 1))
        for bucket in np.flatnonzero(np.diff(ends)):
            chosen = order[ends[bucket] : ends[bucket + 1]]
            _add(total, int(bucket), length, features[chosen], rewards[chosen])
    return total


def _empty(dim: int) -> Pairs:
    """Sums over nobody."""
    buckets = bucket_count(dim)
    users, pairable, rows = np.zeros((3, buckets), dtype=np.int64)
    shown, cross, means = np.zeros((3, buckets, dim))
    gram, products = np.zeros((2, buckets, dim, dim))
    return Pairs(users, pairable, rows, shown, gram, cross, np.zeros(buckets), means, products)


def _add(total: Pairs, bucket: int, length: int, features: Floats, rewards: Floats) -> None:
    """Add users of one length H in one bucket: features (n, H, d), rewards (n, H)."""
    flat, weighted = features.reshape(-1, features.shape[2]), features * rewards[:, :, None]
    sums = weighted.sum(axis=1)
    total.shown[bucket] += flat.sum(axis=0)
    total.gram[bucket] += flat.T @ flat
    total.cross[bucket] += sums.sum(axis=0)
    total.squares[bucket] += np.vdot(rewards, rewards)
    total.means[bucket] += sums.sum(axis=0) / length
    if length < 2:
        return
    weighted = weighted.reshape(flat.shape)
    total.pairable[bucket] += len(rewards)
    total.products[bucket] += (sums.T @ sums - weighted.T @ weighted) / (length * (length - 1))


def _add_coded(total: Pairs, where: Ints, batch: Batch, coded: Coded) -> None:
    """Add all users of a batch whose rows name actions of a catalogue T (items, d).

    Sums of x phi phi^T over rows are T^T diag(sums of x by action) T, and b = T^T (sums of r by action): the products
    with features are as many as there are actions, not rows.
    """
    buckets, items, lengths = len(total.users), len(coded.table), batch.lengths
    steps, counted = np.repeat(lengths, lengths), np.repeat(where, lengths) * items + coded.actions
    pairs = np.where(steps > 1, 1.0 / np.maximum(steps * (steps - 1.0), 1.0), 0.0)

    def by_action(values: Floats | None) -> Floats:
        return np.bincount(counted, values, minlength=buckets * items).reshape(buckets, items).astype(np.float64)

    counts, squares = by_action(None), by_action(batch.rewards**2 * pairs)
    rewards = csr_array((batch.rewards, coded.actions, batch.offsets), shape=(len(lengths), items))
    np.add.at(total.squares, np.repeat(where, lengths), batch.rewards**2)
    np.add.at(total.pairable, where, lengths > 1)
    for bucket in np.flatnonzero(np.bincount(where, minlength=buckets)):
        here = np.flatnonzero(where == bucket)
        sums = np.asarray(rewards[here] @ coded.table)
        total.cross[bucket] += sums.sum(axis=0)
        total.means[bucket] += (sums / lengths[here, None]).sum(axis=0)
        scaled = sums / np.sqrt(np.maximum(lengths[here] * (lengths[here] - 1.0), 1.0))[:, None]
        scaled = scaled[lengths[here] > 1]
        seen = np.flatnonzero(counts[bucket])
        table = coded.table[seen]
        total.shown[bucket] += counts[bucket, seen] @ table
        total.gram[bucket] += table.T @ (counts[bucket, seen, None] * table)
        total.products[bucket] += scaled.T @ scaled - table.T @ (squares[bucket, seen, None] * table)


def start_from(pairs: Pairs, rank: int) -> Population:
    """The moment estimate from summed pairs (one bucket), in the metric of C, regularised where C is poorly known.

    C is shrunk towards a multiple of the identity by as much as a share d / rows, which is what sampling leaves open.
    Directions beyond the positive part of the covariance get a small length, so that climbing can still find them.
    """
    dim, rows, users = pairs.cross.shape[1], float(pairs.rows[0]), float(pairs.users[0])
    gram = pairs.gram[0] / rows
    gram = gram + np.eye(dim) * (np.trace(gram) / dim) * dim / (dim + rows)
    values, vectors = np.linalg.eigh(gram)
    white = vectors / np.sqrt(values)  # white^T C white = I
    mean = white.T @ pairs.means[0] / users
    spread = white.T @ pairs.products[0] @ white / max(float(pairs.pairable[0]), 1.0) - np.outer(mean, mean)
    lengths, axes = np.linalg.eigh(symmetric(spread))
    lengths, axes = lengths[::-1][:rank], axes[:, ::-1][:, :rank]
    power = float(pairs.squares[0]) / rows
    lengths = np.maximum(lengths, 1e-3 * power / dim)
    noise_variance = power - float(mean @ mean) - float(lengths.sum())
    return Population(white @ mean, white @ (axes * np.sqrt(lengths)), max(noise_variance, 0.05 * power))
