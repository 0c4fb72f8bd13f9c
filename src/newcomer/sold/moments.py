"""Moments: everything the offline half needs of the logs, as sums over users.

For user n with half estimates b1, b2 (see `halves`): M_n = (b1 b2^T + b2 b1^T) / 2, and D_n1, D_n2 its coverage. The
sums are kept

* of D1, D2 per *stratum*, the users of (nearly) one history length, because D1 and D2 of a user share that length;
* of M, b1, b2 per *bucket*, a share of the users given by a hash of the user id: from them come the null of the rank
  (signs flipped by bucket) and, at no cost, any resampling by groups of users;
* of M^2 per *group*, runs of 1, 1, 2, 4, ... buckets: the predictable sequence of the martingale bound.

Merging is associative and commutative, so the same record serves one array, files larger than memory, and many
machines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints, symmetric
from newcomer.errors import LogsError
from newcomer.logs.batch import Batch
from newcomer.sold.halves import estimate_half
from newcomer.users import bucket_count, bucket_of, group_bounds

EXACT_LENGTHS = 64  # up to this length and this dimension every history length is a stratum
EXACT_DIM = 256
CHUNK_BYTES = 3 << 20  # features worked on at a time: stays in a second-level cache


@dataclass(frozen=True)
class PairSums:
    """Sums over users of what pairs of half estimates give; B buckets, G groups, dimension d."""

    counts: Ints  # (B,) users
    estimates: Floats  # (B, 2, d) sums of b1, b2
    products: Floats  # (B, d, d) sums of b1 b2^T, whose symmetric part is the sum of M
    squares: Floats  # (G, d, d) sums of M^2
    largest: float  # largest |b1| |b2|

    def __add__(self, other: PairSums) -> PairSums:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return PairSums(**{**sums, "largest": max(self.largest, other.largest)})


@dataclass(frozen=True)
class Moments:
    """Sums over users with at least two rows; S strata, dimension d. `ridge` 0 means pseudo-inverse."""

    ridge: float
    lengths: Ints  # (S,) history length that names the stratum
    users: Ints  # (S,)
    coverage: Floats  # (S, 2, d, d) sums of D1, D2
    pairs: PairSums
    gram: Floats  # (d, d) sum of phi phi^T over odd steps, enough for the noise variance
    rows: int  # odd steps
    reward_squares: float  # sum of r^2 over odd steps
    reward_max: float
    too_short: int

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return int(self.gram.shape[0])

    @cached_property
    def count(self) -> int:
        """Users with at least two rows."""
        return int(self.users.sum())

    @cached_property
    def product(self) -> Floats:
        """Mean of M over users."""
        return symmetric(self.pairs.products.sum(axis=0)) / max(self.count, 1)

    @cached_property
    def mean_coverage(self) -> Floats:
        """Means of D1 and D2 over all users, (2, d, d): the paper's, lengths pooled."""
        mean: Floats = self.coverage.sum(axis=0) / max(self.count, 1)
        return mean


def stratum(length: int, dim: int) -> int:
    """The stratum of a history length, named by its shortest: itself up to 64, then four per octave.

    Above d = 256, where a d x d matrix per length would be large, one per octave throughout.

    >>> stratum(17, dim=50), stratum(100, dim=50), stratum(100, dim=300)
    (17, 96, 64)
    """
    octave = length.bit_length() - 1
    if dim > EXACT_DIM:
        return 1 << octave
    if length <= EXACT_LENGTHS:
        return length
    quarter = (length - (1 << octave)) * 4 >> octave
    return (1 << octave) + (quarter << octave) // 4


def longest(name: int, dim: int) -> int:
    """The longest history in the stratum of this name: what bounds the size of M_n for all of its users.

    >>> longest(17, dim=50), longest(96, dim=50), longest(64, dim=300)
    (17, 111, 127)
    """
    if dim > EXACT_DIM:
        return 2 * name - 1
    return name if name < EXACT_LENGTHS else name + (1 << name.bit_length() - 1) // 4 - 1


def moments_of(batch: Batch, ridge: float | None) -> Moments:
    """The moments of the users of a batch: SOLD's one pass over the logs. Users with one row are counted, not used.

    Users of equal length are worked on together, as stacked arrays. Sums of D go to the stratum of the length at once;
    half estimates are kept until the end of the batch, where one sort by bucket turns all sums of products into slices.
    """
    dim = batch.dim
    users: Counter[int] = Counter()
    coverage: dict[int, tuple[_Squares, _Squares]] = {}
    gram = _Squares(dim)
    pairs, hashes, rewards_seen, too_short = [], [], [], 0
    for length, who, features, rewards in batch.by_length():
        if length < 2:
            too_short += len(who)
            continue
        name = stratum(length, dim)
        users[name] += len(who)
        halves = coverage.setdefault(name, (_Squares(dim), _Squares(dim)))
        pairs.append(_half_estimates(features, rewards, ridge, halves, gram))
        hashes.append(batch.hashes[who])
        rewards_seen.append(rewards)
    odd = np.concatenate([r[:, ::2].ravel() for r in rewards_seen] or [np.empty(0)])
    order = sorted(users)
    return Moments(
        ridge=float(ridge or 0.0),
        lengths=np.array(order, dtype=np.int64),
        users=np.array([users[name] for name in order], dtype=np.int64),
        coverage=np.array([[half.sum() for half in coverage[name]] for name in order]).reshape(-1, 2, dim, dim),
        gram=gram.sum(),
        rows=len(odd),
        reward_squares=float(odd @ odd),
        reward_max=max((float(np.abs(r).max()) for r in rewards_seen), default=0.0),
        too_short=too_short,
        pairs=_pair_sums(pairs, hashes, dim),
    )


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of the users of both: sums add up, strata that only one of them has are taken over."""
    if a.ridge != b.ridge or a.dim != b.dim:
        raise LogsError(
            "moments of different ridge or dimension cannot be merged", todo="compute both with one setting"
        )
    lengths = np.union1d(a.lengths, b.lengths)
    users = np.zeros(len(lengths), dtype=np.int64)
    coverage = np.zeros((len(lengths), *a.coverage.shape[1:]))
    for part in (a, b):
        place = np.searchsorted(lengths, part.lengths)
        users[place] += part.users
        coverage[place] += part.coverage
    names = ("pairs", "gram", "rows", "reward_squares", "too_short")
    sums = {name: getattr(a, name) + getattr(b, name) for name in names}
    reward_max = max(a.reward_max, b.reward_max)
    return replace(a, lengths=lengths, users=users, coverage=coverage, reward_max=reward_max, **sums)


class _Squares:
    """A sum of A^T A over blocks of rows A, gathered until a product is worth its d x d result.

    A product of few rows costs more in reading and writing the d x d sum than in multiplying.
    """

    def __init__(self, dim: int) -> None:
        self._total = np.zeros((dim, dim))
        self._blocks: list[Floats] = []
        self._held = 0
        self._enough = max(dim, CHUNK_BYTES // (16 * dim))

    def add(self, rows: Floats) -> None:
        """Take rows (n, d); they are not copied and must not change."""
        self._blocks.append(rows)
        self._held += len(rows)
        if self._held >= self._enough:
            self.sum()

    def sum(self) -> Floats:
        """The sum so far."""
        if self._blocks:
            rows = self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)
            self._total += rows.T @ rows
            self._blocks, self._held = [], 0
        return self._total


def _half_estimates(
    features: Floats, rewards: Floats, ridge: float | None, coverage: tuple[_Squares, _Squares], gram: _Squares
) -> Floats:
    """Estimates b1, b2 (n, 2, d) of n equally long histories, features (n, H, d); a part at a time, to stay in cache.

    The roots of D1 and D2 go to `coverage`, the features of odd steps to `gram`.
    """
    count, length, dim = features.shape
    estimates = np.empty((count, 2, dim))
    step = max(1, CHUNK_BYTES // (length * dim * 8))
    for start in range(0, count, step):
        part = slice(start, start + step)
        for i, squares in enumerate(coverage):
            steps = np.ascontiguousarray(features[part, i::2])
            half = estimate_half(steps, rewards[part, i::2], ridge)
            estimates[part, i] = half.estimates
            squares.add(half.roots.reshape(-1, dim))
            if i == 0:
                gram.add(steps.reshape(-1, dim))
    return estimates


def _pair_sums(pairs: list[Floats], hashes: list[Hashes], dim: int) -> PairSums:
    """Sums by bucket and by group over users with estimates (n, 2, d) and hashes of their ids (n,).

    Sorted by bucket, a bucket and a group are slices of users, and each sum of outer products is one matrix product.
    """
    buckets = bucket_count(dim)
    estimates = np.concatenate(pairs) if pairs else np.empty((0, 2, dim))
    where = bucket_of(np.concatenate(hashes), buckets) if hashes else np.empty(0, dtype=np.int64)
    order = np.argsort(where, kind="stable")
    ends = np.searchsorted(where[order], np.arange(buckets + 1))
    estimates = estimates[order]
    first, second = np.ascontiguousarray(estimates[:, 0]), np.ascontiguousarray(estimates[:, 1])
    by_bucket = [slice(a, b) for a, b in pairwise(ends)]
    by_group = [slice(a, b) for a, b in pairwise(ends[group_bounds(buckets)])]
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products, squares = np.empty((buckets, dim, dim)), np.empty((len(by_group), dim, dim))
    for s, out in zip(by_bucket, products, strict=True):
        np.matmul(first[s].T, second[s], out=out)
    for s, out in zip(by_group, squares, strict=True):
        _sum_of_squares(first[s], second[s], out)
    return PairSums(
        counts=np.diff(ends).astype(np.int64),
        estimates=np.array([estimates[s].sum(axis=0) for s in by_bucket]),
        products=products,
        squares=squares,
        largest=float(norms.max(initial=0.0)),
    )


def _sum_of_squares(first: Floats, second: Floats, out: Floats) -> None:
    """Write the sum over users of M_n^2 (d, d) from b1 and b2, (n, d) each, without forming any M_n:

    M_n^2 = [ (b1.b2)(b1 b2^T + b2 b1^T) + |b2|^2 b1 b1^T + |b1|^2 b2 b2^T ] / 4.
    """
    inner = np.einsum("nd,nd->n", first, second)
    cross = (inner[:, None] * first).T @ second
    scaled_first = np.linalg.norm(second, axis=1)[:, None] * first
    scaled_second = np.linalg.norm(first, axis=1)[:, None] * second
    out[:] = (cross + cross.T + scaled_first.T @ scaled_first + scaled_second.T @ scaled_second) / 4
