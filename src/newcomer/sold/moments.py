"""Moments: everything the offline half needs of the logs, as sums over users.

For user n with half estimates b1, b2 (see `halves`): X_n = b1 b2^T, whose symmetric part is the paper's M_n, and D_n1,
D_n2 its coverage. X is summed as it is: symmetrised before the correction it would be biased where the halves are of
different length (`newcomer.sold.correction`). The sums are kept

* of D1, D2 per *stratum*, the users of (nearly) one history length, because D1 and D2 of a user share that length;
* of X, b1, b2 per *bucket*, a share of the users given by a hash of the user id: from them come the null of the rank
  (signs flipped by bucket) and, at no cost, any resampling by groups of users;
* of X X^T, X^T X and X^2 per *group*, runs of 1, 1, 2, 4, ... buckets: the predictable steps of the martingale bound;
* for one-hot features, of d1 d2^T over all users, d_i the diagonal of D_i: how often half 1 met action a and half 2
  action b; and of 1, r and r^2 over the rows of each action, which bound the moment's diagonal
  (`newcomer.sold.correction`).

Merging is associative and commutative, so the same record serves one array, files larger than memory, and many
machines.

Two independent estimates of a user's reward vector, from the odd and the even steps (SOLD, steps 2 and 3).

For a half with features X (h, d) and rewards r, ridge mu:

    beta = (mu I + X^T X)^-1 X^T r   = X^T (X X^T + mu I)^-1 r,
    D    = I - mu (mu I + X^T X)^-1  = X^T (X X^T + mu I)^-1 X.

With X X^T + mu I = L L^T and Z = L^-1 X this is D = Z^T Z and beta = Z^T (L^-1 r): only h x h systems, and the sum of D
over users is one product of stacked Z. A half longer than d is first compressed to d rows by a QR factorisation, which
changes neither. Without a ridge (the paper's pseudo-inverse version) D is the projection onto the rows of X, and L^-1
comes from the singular values of X where X X^T is singular or nearly so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from newcomer.array_loops import invert_cholesky
from newcomer.arrays import Floats, Hashes, Ints, symmetric_part
from newcomer.errors import LogsError
from newcomer.logs.batch import Batch
from newcomer.users import user_bucket_count, user_buckets, user_group_bounds

EXACT_LENGTHS = 64  # up to this length and this dimension every history length is a stratum
EXACT_DIM = 256
CHUNK_BYTES = 3 << 20  # features worked on at a time: stays in a second-level cache


@dataclass(frozen=True)
class PairSums:
    """Sums over users of what pairs of half estimates give; B buckets, G groups, dimension d."""

    counts: Ints  # (B,) users
    estimates: Floats  # (B, 2, d) sums of b1, b2
    products: Floats  # (B, d, d) sums of X = b1 b2^T
    squares: Floats  # (G, 3, d, d) sums of X X^T, X^T X and X^2
    largest: Floats  # (2,) largest ||X|| = |b1||b2|, largest ||M|| = (|b1.b2| + |b1||b2|) / 2

    def __add__(self, other: PairSums) -> PairSums:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return PairSums(**{**sums, "largest": np.maximum(self.largest, other.largest)})

    @property
    def symmetric_squares(self) -> Floats:
        """Sums of M^2 (G, d, d), M the symmetric part of X: M^2 = (X X^T + X^T X + X^2 + (X^2)^T) / 4."""
        return (self.squares[:, 0] + self.squares[:, 1]) / 4 + symmetric_part(self.squares[:, 2]) / 2


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
    joint: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (d, d) of one-hot logs: sum of d1 d2^T
    by_action: Floats = field(default_factory=lambda: np.zeros((3, 0)))  # (3, d) of one-hot logs: sums of 1, r, r^2

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
        """Mean of X = b1 b2^T over users, not symmetrised."""
        mean: Floats = self.pairs.products.sum(axis=0) / max(self.count, 1)
        return mean

    @cached_property
    def mean_coverage(self) -> Floats:
        """Means of D1 and D2 over all users, (2, d, d): the paper's, lengths pooled."""
        mean: Floats = self.coverage.sum(axis=0) / max(self.count, 1)
        return mean


def moment_stratum(length: int, dim: int) -> int:
    """The stratum of a history length, named by its shortest: itself up to 64, then four per octave.

    Above d = 256, where a d x d matrix per length would be large, one per octave throughout.

    >>> moment_stratum(17, dim=50), moment_stratum(100, dim=50), moment_stratum(100, dim=300)
    (17, 96, 64)
    """
    octave = length.bit_length() - 1
    if dim > EXACT_DIM:
        return 1 << octave
    if length <= EXACT_LENGTHS:
        return length
    quarter = (length - (1 << octave)) * 4 >> octave
    return (1 << octave) + (quarter << octave) // 4


def longest_in_moment_stratum(name: int, dim: int) -> int:
    """The longest history in the stratum of this name: what bounds the size of M_n for all of its users.

    >>> tuple(longest_in_moment_stratum(name, dim) for name, dim in ((17, 50), (96, 50), (64, 300)))
    (17, 111, 127)
    """
    if dim > EXACT_DIM:
        return 2 * name - 1
    return name if name < EXACT_LENGTHS else name + (1 << name.bit_length() - 1) // 4 - 1


def moments_share_near_square(moments: Moments) -> float:
    """The share of users whose halves have about as many rows as there are features.

    The least singular value of such a half is close to zero, and its pseudo-inverse multiplies noise: with |h - d| <= 1
    for h rows in d dimensions the estimate has no variance. Lengths that share a stratum count as one. One-hot rows are
    orthogonal or equal, and their halves are never nearly singular.
    """
    if moments.joint.size or not moments.count:
        return 0.0
    near = max(2.0, moments.dim / 10)
    last = np.array([longest_in_moment_stratum(int(name), moments.dim) for name in moments.lengths])
    inside = (moments.lengths <= 2 * (moments.dim + near)) & (last >= 2 * (moments.dim - near))
    return float(moments.users[inside].sum() / moments.count)


def moments_of(batch: Batch, ridge: float | None) -> Moments:
    """The moments of the users of a batch: SOLD's one pass over the logs. Users with one row are counted, not used.
    Of one-hot actions they are had from the few that a user met (`newcomer.sold.one_hot_moments`).

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
        name = moment_stratum(length, dim)
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


def merge_moments(a: Moments, b: Moments) -> Moments:
    """The moments of the users of both: sums add up, strata that only one of them has are taken over."""
    if a.ridge != b.ridge or a.dim != b.dim or a.joint.shape != b.joint.shape:
        raise LogsError(
            "moments of different ridge, dimension or kind of features cannot be merged",
            todo="compute both with one setting",
        )
    lengths = np.union1d(a.lengths, b.lengths)
    users = np.zeros(len(lengths), dtype=np.int64)
    coverage = np.zeros((len(lengths), *a.coverage.shape[1:]))
    for part in (a, b):
        place = np.searchsorted(lengths, part.lengths)
        users[place] += part.users
        coverage[place] += part.coverage
    names = ("pairs", "gram", "rows", "reward_squares", "too_short", "joint")
    sums = {name: getattr(a, name) + getattr(b, name) for name in names}
    kept = [part.by_action for part in (a, b) if part.by_action.size]  # older files have none
    sums["by_action"] = sum(kept[1:], start=kept[0]) if kept else a.by_action
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
    features: Floats,
    rewards: Floats,
    ridge: float | None,
    coverage: tuple[_Squares, _Squares],
    gram: _Squares,
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
            half = half_estimates_for_moments(steps, rewards[part, i::2], ridge)
            estimates[part, i] = half.estimates
            squares.add(half.roots.reshape(-1, dim))
            if i == 0:
                gram.add(steps.reshape(-1, dim))
    return estimates


def _pair_sums(pairs: list[Floats], hashes: list[Hashes], dim: int) -> PairSums:
    """Sums by bucket and by group over users with estimates (n, 2, d) and hashes of their ids (n,).

    Sorted by bucket, a bucket and a group are slices of users, and each sum of outer products is one matrix product.
    """
    buckets = user_bucket_count(dim)
    estimates = np.concatenate(pairs) if pairs else np.empty((0, 2, dim))
    where = user_buckets(np.concatenate(hashes), buckets) if hashes else np.empty(0, dtype=np.int64)
    order = np.argsort(where, kind="stable")
    ends = np.searchsorted(where[order], np.arange(buckets + 1))
    estimates = estimates[order]
    first, second = np.ascontiguousarray(estimates[:, 0]), np.ascontiguousarray(estimates[:, 1])
    by_bucket = [slice(a, b) for a, b in pairwise(ends)]
    by_group = [slice(a, b) for a, b in pairwise(ends[user_group_bounds(buckets)])]
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    inner = np.abs(np.einsum("nd,nd->n", first, second))
    products, squares = np.empty((buckets, dim, dim)), np.empty((len(by_group), 3, dim, dim))
    for s, out in zip(by_bucket, products, strict=True):
        np.matmul(first[s].T, second[s], out=out)
    for s, out in zip(by_group, squares, strict=True):
        _sums_of_squares(first[s], second[s], out)
    return PairSums(
        counts=np.diff(ends).astype(np.int64),
        estimates=np.array([estimates[s].sum(axis=0) for s in by_bucket]),
        products=products,
        squares=squares,
        largest=np.array([norms.max(initial=0.0), ((inner + norms) / 2).max(initial=0.0)]),
    )


def _sums_of_squares(first: Floats, second: Floats, out: Floats) -> None:
    """Write the sums (3, d, d) over users of X X^T, X^T X and X^2 from b1 and b2, (n, d) each, without forming any X:

    X X^T = |b2|^2 b1 b1^T,    X^T X = |b1|^2 b2 b2^T,    X^2 = (b1.b2) b1 b2^T.
    """
    inner = np.einsum("nd,nd->n", first, second)
    scaled_first = np.linalg.norm(second, axis=1)[:, None] * first
    scaled_second = np.linalg.norm(first, axis=1)[:, None] * second
    np.matmul(scaled_first.T, scaled_first, out=out[0])
    np.matmul(scaled_second.T, scaled_second, out=out[1])
    np.matmul((inner[:, None] * first).T, second, out=out[2])


# Below this ratio of squared pivot to largest diagonal entry a Gram matrix without ridge may be singular, and has lost
# digits in any case: the singular values of the features themselves decide.
SINGULAR = 1e-4


@dataclass(frozen=True)
class Half:
    """Of n users: `roots` Z (n, m, d) with D = Z^T Z, and `estimates` beta (n, d)."""

    roots: Floats
    estimates: Floats


def half_estimates_for_moments(features: Floats, rewards: Floats, ridge: float | None) -> Half:
    """Estimates of one half of equally long histories: features (n, h, d), rewards (n, h); no ridge: pseudo-inverse.

    One row phi = (2, 0) with reward 3 and ridge 1 gives beta = 2 * 3 / (4 + 1) along the first axis:

    >>> half_estimates_for_moments(np.array([[[2.0, 0.0]]]), np.array([[3.0]]), 1.0).estimates.round(9).tolist()
    [[1.2, 0.0]]
    """
    if features.shape[1] > features.shape[2]:
        # X = Q R with R (n, d, d): R and Q^T r carry all that X^T X and X^T r know.
        q, features = np.linalg.qr(features)
        rewards = np.matmul(q.transpose(0, 2, 1), rewards[:, :, None])[:, :, 0]
    gram = features @ features.transpose(0, 2, 1)
    whiten = _whiten_ridge(gram, ridge) if ridge else _whiten_pseudo(gram, features)
    roots = whiten @ features
    weights = np.matmul(whiten, rewards[:, :, None])
    return Half(roots, np.matmul(roots.transpose(0, 2, 1), weights)[:, :, 0])


def _whiten_ridge(gram: Floats, ridge: float) -> Floats:
    """L^-1 (n, h, h) with L L^T = X X^T + mu I; the ridge is added to `gram` in place."""
    diagonal = np.arange(gram.shape[1])
    gram[:, diagonal, diagonal] += ridge
    inverse, fine = np.empty_like(gram), np.empty(len(gram), dtype=np.bool_)
    invert_cholesky(gram, 0.0, inverse, fine)
    return inverse


def _whiten_pseudo(gram: Floats, features: Floats) -> Floats:
    """W (n, h, h) with W^T W = (X X^T)^+: by Cholesky where X X^T is well conditioned, else by singular values."""
    inverse, fine = np.empty_like(gram), np.empty(len(gram), dtype=np.bool_)
    invert_cholesky(gram, SINGULAR, inverse, fine)
    if not fine.all():
        left, sizes, _ = np.linalg.svd(features[~fine], full_matrices=False)
        floor = max(features.shape[1:]) * np.finfo(np.float64).eps * sizes[:, :1]
        kept = (sizes > floor) & (sizes > 0)
        scale = np.where(kept, 1.0 / np.where(kept, sizes, 1.0), 0.0)
        inverse[~fine] = scale[:, :, None] * left.transpose(0, 2, 1)
    return inverse
