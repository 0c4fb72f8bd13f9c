"""The marginal likelihood of clicks, its gradient and EM's curvature: an average over nodes of z, by passes over logs.

    P(r = 1 | user n, action a) = sigma(phi^T (m + L z_n) + o_a),      z_n ~ N(0, I_k),   sigma(x) = 1 / (1 + exp(-x)).

**The integral over z** is an average over Q nodes (Bock and Aitkin 1981), the same for all users: a quasi-random
sequence, mirrored, and whitened so that mean and covariance are exactly those of N(0, I). With w_nq the posterior
weight of node q for user n, Fisher's identity gives the gradient in the level and the loadings of a row,

    dl = sum_q w_nq (r - sigma_q) (1, z_q),   and EM's curvature   sum_q w_nq sigma_q (1 - sigma_q) (1, z_q)(1, z_q)^T.

Laplace's approximation and variational bounds take the loadings of rare clicks to zero; the nodes do not.

Rows of an action that a user met n times count n / (1 + (n - 1) share) together, if a share of the residual repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from newcomer.arrays import Bools, Floats, Ints
from newcomer.em import binary_loops
from newcomer.logs.batch import Batch
from newcomer.one_hot import Catalogue
from newcomer.population import Population
from newcomer.transforms import softplus
from newcomer.users import user_bucket_count, user_buckets

NODES = (1, 64, 128, 256, 256)  # of z, by rank; MOST_NODES for more directions
MOST_NODES, FEW_NODES = 512, 64
WIDE_TABLE = 1 << 22  # actions times nodes above which there are fewer nodes
CACHED = 1 << 16  # users times nodes that stay in a second-level cache
CHUNK = 1 << 20  # rows times nodes that are worked on at a time


def binary_likelihood_nodes(rank: int, actions: int = 0) -> Floats:
    """Nodes (Q, k) of equal weight for z ~ N(0, I_k): their mean is zero and their covariance the identity.

    Roberts's R sequence (additive recurrence by powers of the generalised golden ratio), mirrored.

    >>> nodes = binary_likelihood_nodes(2)
    >>> nodes.shape, bool(np.allclose(nodes.T @ nodes / len(nodes), np.eye(2)))
    ((128, 2), True)
    """
    count = NODES[rank] if rank < len(NODES) else MOST_NODES
    while count > FEW_NODES and actions * count > WIDE_TABLE:
        count //= 2
    if rank == 0:
        return np.zeros((1, 0))
    golden = 2.0
    for _ in range(64):
        golden = (1.0 + golden) ** (1.0 / (rank + 1))
    steps = golden ** -np.arange(1.0, rank + 1)
    half = ndtri((0.5 + np.outer(np.arange(1, count // 2 + 1), steps)) % 1.0)
    points = np.concatenate([half, -half])
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    return np.ascontiguousarray(points @ (vectors / np.sqrt(values)) @ vectors.T)


@dataclass(frozen=True)
class ClickTask:
    """A population on the scale of log-odds, and the buckets (B,) whose users it is fitted to."""

    population: Population
    fitted: Bools


@dataclass(frozen=True)
class ClickSums:
    """What a pass finds for one task: the log-likelihood, its gradient, and EM's curvature.

    Where rows name actions of a catalogue: `pull` (A, k + 1) and `bend` (A, k + 1, k + 1) of the level and loadings of
    each action. Where rows bring features: `pull` (d, k + 1) is the gradient in [m, L], `gram` (d, d) the sum of phi
    phi^T weighted by the curvature of the level, `curve` (k + 1, k + 1) the sum of curvatures, and `offsets` (2, A)
    gradient and curvature of the offsets. The others are empty.
    """

    users: int
    rows: float
    likelihood: float
    pull: Floats
    bend: Floats
    gram: Floats
    curve: Floats
    offsets: Floats

    def __add__(self, other: ClickSums) -> ClickSums:
        return ClickSums(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def binary_likelihood_sums(batch: Batch, tasks: tuple[ClickTask, ...]) -> tuple[ClickSums, ...]:
    """The sums of each task over the users of a batch: the map of a pass."""
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    return tuple(_expected(batch, task.population, task.fitted[where]) for task in tasks)


def merge_binary_likelihood(a: tuple[ClickSums, ...], b: tuple[ClickSums, ...]) -> tuple[ClickSums, ...]:
    """The sums of each task over the users of both."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _expected(batch: Batch, population: Population, chosen: Bools) -> ClickSums:
    """The sums of one task."""
    coded, size = batch.coded, population.rank + 1
    nodes = binary_likelihood_nodes(population.rank, 0 if coded is None else len(coded.table))
    axes = np.column_stack([np.ones(len(nodes)), nodes])
    empty = np.zeros((0, 0))
    if coded is not None:
        odds = binary_likelihood_log_odds(coded.table, population, np.arange(len(coded.table)))
        seen = _click_rows(batch, np.flatnonzero(chosen), odds, nodes, population.share)
        shown, pull = np.zeros((len(odds), len(nodes))), np.zeros((len(odds), size))
        likelihood = _add_up(seen, shown, pull)
        bend = np.zeros((len(odds), size, size))
        for some in _slices(len(odds), len(nodes)):
            p = -np.expm1(-seen.partition[some])
            pull[some] -= (shown[some] * p) @ axes
            bend[some] = np.einsum("aq,qi,qj->aij", shown[some] * p * (1.0 - p), axes, axes, optimize=True)
        return ClickSums(len(seen.starts), float(shown.sum()), likelihood, pull, bend, empty, empty, np.zeros((2, 0)))
    total = ClickSums(
        0, 0.0, 0.0, np.zeros((batch.dim, size)), np.zeros((0, 0, 0)), np.zeros((batch.dim, batch.dim)),
        np.zeros((size, size)), np.zeros((2, len(population.levels))),
    )  # fmt: skip
    for who in _users(batch, np.flatnonzero(chosen), len(nodes)):
        total += _by_rows(batch, who, population, nodes, axes)
    return total


def _by_rows(batch: Batch, who: Ints, population: Population, nodes: Floats, axes: Floats) -> ClickSums:
    """The sums of some users whose rows bring their own features."""
    rows = binary_likelihood_rows(batch, who)
    features = batch.take(rows)
    actions = np.zeros(len(rows), dtype=np.int64) if batch.actions is None else batch.actions[rows]
    odds = binary_likelihood_log_odds(features, population, actions)
    seen = _click_rows(batch, who, odds, nodes, population.share, own=True)
    shown, pull = np.zeros((len(odds), len(nodes))), np.zeros(odds.shape)
    likelihood = _add_up(seen, shown, pull)
    p = -np.expm1(-seen.partition)
    pull -= (shown * p) @ axes
    bent = shown * p * (1.0 - p)
    level = bent.sum(axis=1)
    kinds = len(population.levels)
    offsets = np.zeros((2, kinds))
    for out, part in zip(offsets, (pull[:, 0], level), strict=True):
        np.add.at(out, actions if kinds > 1 else np.zeros_like(actions), part)
    return ClickSums(
        len(who), float(shown.sum()), likelihood, features.T @ pull, np.zeros((0, 0, 0)),
        (features * level[:, None]).T @ features, (axes * bent.sum(axis=0)[:, None]).T @ axes, offsets,
    )  # fmt: skip


def _add_up(seen: binary_loops.ClickRows, shown: Floats, clicked: Floats) -> float:
    """The expected counts of all users, some at a time; the log-likelihood."""
    likelihood = 0.0
    for first, at, highest in binary_likelihood_weights(seen):
        likelihood += binary_loops.binary_expectations(seen, first, at, highest, shown, clicked)
    return likelihood


def binary_likelihood_weights(seen: binary_loops.ClickRows) -> Iterator[tuple[int, Floats, Floats]]:
    """exp(A_q - max) (m, Q) and the max (m,) of some users at a time, with the place of the first of them."""
    users, size = len(seen.starts), len(seen.nodes)
    step = max(1, CACHED // size)
    for first in range(0, users, step):
        at, highest = np.empty((min(step, users - first), size)), np.empty(min(step, users - first))
        binary_loops.binary_log_weights(seen, first, at, highest)
        np.exp(at, out=at)
        yield first, at, highest


def binary_likelihood_log_odds(table: Catalogue, population: Population, actions: Ints) -> Floats:
    """Levels and loadings (C, k + 1) of rows of features of these actions."""
    odds = np.array(table @ population.weights)
    if population.offsets is not None:
        odds[:, 0] += population.offsets[actions]
    return odds


def binary_likelihood_rows(batch: Batch, who: Ints) -> Ints:
    """The rows of some users, one after another."""
    lengths = batch.lengths[who]
    ends = np.cumsum(lengths)
    count = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(count) + np.repeat(batch.offsets[who] - (ends - lengths), lengths))


def _click_rows(
    batch: Batch, who: Ints, odds: Floats, nodes: Floats, share: float, *, own: bool = False
) -> binary_loops.ClickRows:
    """The rows of some users as the compiled loops take them; with `own`, `odds` are those of the rows themselves."""
    rows, lengths = binary_likelihood_rows(batch, who), batch.lengths[who]
    ends = np.cumsum(lengths)
    partition = np.empty((len(odds), len(nodes)))
    for some in _slices(len(odds), len(nodes)):
        partition[some] = softplus(odds[some, :1] + odds[some, 1:] @ nodes.T)
    weights = _row_weights(batch, rows, lengths, share)
    codes = np.arange(len(rows)) if own or batch.actions is None else np.array(batch.actions[rows], dtype=np.int64)
    rewards = np.array(batch.rewards[rows])
    return binary_loops.ClickRows(odds, partition, codes, rewards, weights, ends - lengths, ends, nodes)


def binary_likelihood_information(
    batch: Batch, who: Ints, population: Population, directions: Floats, at: Floats
) -> tuple[Floats, Floats]:
    """Of the users at positions `who` (n,): Q^T X^T P X Q (n, q, q) and Q^T X^T s (n, q) for directions Q (d, q).

    Rows are sites of expectation propagation (`binary_loops.coordinates`): as a Gaussian reward of log-odds X Q u, each
    has a precision in P and a shift in s. They are found around the coordinates `at` (n, q) of u that users have beside
    their z.
    """
    rows, lengths, coded = binary_likelihood_rows(batch, who), batch.lengths[who], batch.coded
    table = batch.take(rows) if coded is None else coded.table
    actions = np.zeros(len(rows), dtype=np.int64) if batch.actions is None else np.array(batch.actions[rows])
    codes = actions if coded is not None else np.arange(len(rows))
    odds = binary_likelihood_log_odds(table, population, actions if coded is None else np.arange(len(coded.table)))
    images, ends = np.ascontiguousarray(table @ directions), np.cumsum(lengths)
    shifts = np.einsum("iq,iq->i", images[codes], np.repeat(at, lengths, axis=0))
    means, covariances = np.zeros((len(who), population.rank)), np.tile(np.eye(population.rank), (len(who), 1, 1))
    sites, weights = np.zeros((len(rows), 2)), _row_weights(batch, rows, lengths, population.share)
    rewards = np.array(batch.rewards[rows])
    binary_loops.binary_coordinates(
        odds, codes, shifts, rewards, weights, ends - lengths, ends, means, covariances, sites
    )
    sites[:, 1] += sites[:, 0] * shifts
    precision, pull = np.zeros((len(who), *2 * at.shape[1:])), np.zeros(at.shape)
    binary_loops.add_binary_sites(images, codes, sites, ends - lengths, ends, precision, pull)
    return precision, pull


def _row_weights(batch: Batch, rows: Ints, lengths: Ints, share: float) -> Floats:
    """What each of some users' rows (`lengths` of each user) counts."""
    if not share > 0 or batch.actions is None:
        return np.ones(len(rows))
    return binary_likelihood_repeats(np.repeat(np.arange(len(lengths)), lengths), batch.actions[rows], share)


def binary_likelihood_repeats(users: Ints, actions: Ints, share: float) -> Floats:
    """The weight (rows,) of each row: an action that a user met n times counts n / (1 + (n - 1) share) rows.

    >>> binary_likelihood_repeats(np.array([0, 0, 1]), np.array([5, 5, 5]), 0.5).round(3).tolist()
    [0.667, 0.667, 1.0]
    """
    cells = users * (int(actions.max(initial=0)) + 1) + actions
    _, place, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (1.0 + (counts[place] - 1.0) * share))


def _slices(count: int, width: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(width, 1))
    return (slice(first, first + step) for first in range(0, count, step))


def _users(batch: Batch, who: Ints, width: int) -> Iterator[Ints]:
    """Some users at a time, of about `CHUNK` rows times nodes."""
    step, done, first = max(1, CHUNK // width), np.cumsum(batch.lengths[who]), 0
    while first < len(who):
        before = int(done[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(done, before + step, side="right")))
        yield who[first:last]
        first = last
