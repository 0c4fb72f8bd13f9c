"""Compiled loops over users for the likelihood of a population and its gradient; the maths is told in likelihood.py.

A user with rewards r and products A = X L, e = r - X m - o of the features with W = [m, L] has the small system

    P = I + A^T S^-1 A (k, k),   c = A^T S^-1 e (k,),   mu = P^-1 c,
    log p(r) = -1/2 [ h log(2 pi) + log det S + log det P + e^T S^-1 e - c^T P^-1 c ],

S the covariance of what is left. Rows of different actions are independent, with the variance v of their action. Rows
of the same action, n of them, share what lasts: S = s2 I + se 1 1^T with se = share v and s2 = v - se, so that with c'
= se / (s2 + n se)

    S^-1 x = (x - c' (sum of x)) / s2,      log det S = (n - 1) log s2 + log(s2 + n se).

Rows of one action must be neighbours for that, which the caller sees to where something lasts. With P = L L^T and the
root R = L^-1, P^-1 is R^T R and c^T P^-1 c is |R c|^2. Arrays of one user are allocated once and written again for
every user: k is small, and there are many users.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import cholesky, dot, fast, invert_lower_triangle
from newcomer.arrays import Floats, Ints


class UserRows(NamedTuple):
    """The rows of some users times W: row i is row codes[i] of `product`; user n owns rows starts[n] up to stops[n]."""

    product: Floats  # (C, k + 1), features of the distinct actions, or of all rows, times W = [m, L]
    codes: Ints  # (rows,)
    actions: Ints  # (rows,) which variance and which offset; all zero where no action is logged
    rewards: Floats  # (rows,)
    starts: Ints  # (users,)
    stops: Ints  # (users,)
    variance: Floats  # (A,) of what the directions leave of a reward
    offsets: Floats  # (A,)
    share: float  # of the variance that lasts; rows of one action are neighbours if it is above zero
    units: Floats  # (A,) of squared errors of prediction


@fast
def likelihood_run_end(seen: UserRows, begin: int, end: int) -> int:
    """Where the rows of the action of row `begin` end: the next row, unless something lasts."""
    stop = begin + 1
    if seen.share > 0.0:
        while stop < end and seen.actions[stop] == seen.actions[begin]:
            stop += 1
    return stop


@fast
def likelihood_user_posterior(seen: UserRows, n: int, mean: Floats, root: Floats, total: Floats) -> float:
    """Of user n: write mu (k,) and the root R of P^-1 (k, k, lower triangular); returns the log-likelihood.

    `total` (k,) is room for a sum.
    """
    begin, end, rank = seen.starts[n], seen.stops[n], mean.size
    square = logdet = 0.0
    root[:] = 0.0
    mean[:] = 0.0
    first = begin
    while first < end:
        stop = likelihood_run_end(seen, first, end)
        variance, count = seen.variance[seen.actions[first]], stop - first
        single = variance if count == 1 else (1.0 - seen.share) * variance  # s2, or all of it for an action met once
        level = 0.0
        total[:] = 0.0
        for i in range(first, stop):
            row = seen.product[seen.codes[i]]
            error = seen.rewards[i] - row[0] - seen.offsets[seen.actions[i]]
            square += error * error / single
            level += error
            for a in range(rank):
                weight = row[a + 1] / single
                total[a] += row[a + 1]
                mean[a] += weight * error
                for b in range(a + 1):
                    root[a, b] += weight * row[b + 1]
        logdet += np.log(single)
        if count > 1:
            # What the n rows have in common is taken off again: c' / s2 times the squares of their sums.
            lasting = seen.share * variance
            whole = single + count * lasting
            less = lasting / (whole * single)
            square -= less * level * level
            for a in range(rank):
                mean[a] -= less * level * total[a]
                for b in range(a + 1):
                    root[a, b] -= less * total[a] * total[b]
            logdet += (count - 2) * np.log(single) + np.log(whole)
        first = stop
    for a in range(rank):
        root[a, a] += 1.0
    if not cholesky(root, root, 0.0):  # numbers that are not finite: P itself is never singular
        root[:] = np.nan
    for a in range(rank):
        logdet += 2.0 * np.log(root[a, a])
    invert_lower_triangle(root)
    # mu = R^T (R c). Entry a of R c needs the entries of c up to a, so it is written from the last.
    explained = 0.0
    for a in range(rank - 1, -1, -1):
        left = 0.0
        for b in range(a + 1):
            left += root[a, b] * mean[b]
        mean[a] = left
        explained += left * left
    for a in range(rank):
        left = 0.0
        for b in range(a, rank):
            left += root[b, a] * mean[b]
        mean[a] = left
    value: float = -0.5 * ((end - begin) * np.log(2.0 * np.pi) + logdet + square - explained)
    return value


@fast
def likelihood_gain_of_others(seen: UserRows, n: int, mean: Floats, root: Floats, total: Floats) -> tuple[float, float]:
    """Of user n, whose posterior is given: the gain and its linear part, by leaving out one action at a time.

    Without the rows of an action, whose mean has the features f, the variance v and, given everything, the residual x,
    the residual is x / (1 - h), h = f^T P^-1 f / v: no system has to be solved again. That is exact where an action
    has the same features at every meeting, and else leaves a little of its rows in.
    """
    begin, end, rank = seen.starts[n], seen.stops[n], mean.size
    gain = linear = 0.0
    first = begin
    while first < end:
        stop = likelihood_run_end(seen, first, end)
        variance, count = seen.variance[seen.actions[first]], stop - first
        if count > 1:
            variance *= seen.share + (1.0 - seen.share) / count
        error = 0.0
        total[:] = 0.0
        for i in range(first, stop):
            row = seen.product[seen.codes[i]]
            error += (seen.rewards[i] - row[0] - seen.offsets[seen.actions[i]]) / count
            for a in range(rank):
                total[a] += row[a + 1] / count
        left, lever = error - dot(total, mean), 0.0
        for a in range(rank):
            lever += dot(root[a, : a + 1], total) ** 2
        left /= max(1.0 - lever / variance, 1e-9)
        gain += (error * error - left * left) / seen.units[seen.actions[first]]
        linear += error * (error - left) / seen.units[seen.actions[first]]
        first = stop
    return gain, linear


@fast
def likelihoods_of_users(seen: UserRows, mean: Floats, likelihood: Floats, gain: Floats, linear: Floats) -> None:
    """Of each user: write the posterior mean of z (users, k), the log-likelihood, the gain, its linear part (users,).

    The gain is how much better each action's reward is predicted from the user's *other* actions than by the
    population's mean: squared errors, in units that are the same for all populations that are compared, summed over
    actions. With e the error of the population's mean and p what the other actions add to the prediction it is e^2 -
    (e - p)^2 = 2 e p - p^2; its linear part is the sum of e p.
    """
    rank = mean.shape[1]
    root, total = np.empty((rank, rank)), np.empty(rank)
    for n in range(seen.starts.size):
        likelihood[n] = likelihood_user_posterior(seen, n, mean[n], root, total)
        gain[n], linear[n] = likelihood_gain_of_others(seen, n, mean[n], root, total)


@fast
def likelihood_coordinates(seen: UserRows, means: Floats, covariances: Floats) -> None:
    """Write the posterior mean (users, k) of each user's z, and add its covariance to `covariances` (users, k, k)."""
    rank = means.shape[1]
    root, total = np.empty((rank, rank)), np.empty(rank)
    for n in range(seen.starts.size):
        likelihood_user_posterior(seen, n, means[n], root, total)
        add_likelihood_covariance(root, covariances[n])


@fast
def add_likelihood_covariance(root: Floats, covariance: Floats) -> None:
    """Add the posterior covariance P^-1 = R^T R (k, k), by rows of R."""
    for p in range(root.shape[0]):
        for a in range(p + 1):
            weight = root[p, a]
            for b in range(p + 1):
                covariance[a, b] += weight * root[p, b]


@fast
def likelihood_expectations(
    seen: UserRows, weights: Floats, pull: Floats, lean: Floats, residual: Floats, rows: Floats
) -> float:
    """Add the sums of EM's expectation step, and of the gradient, over all users; returns the log-likelihood.

    `weights` (k + 1, k + 1) is the sum over rows of E[(1, z)(1, z)^T] / variance. `pull` (C, k + 1) is the sum over
    rows of S^-1 [f, f mu^T - A P^-1] in row codes[i], f = e - A mu: the features' transpose times it is the gradient in
    W. `lean` (A,), the sum over rows of S^-1 f, is the gradient in the offsets. `residual` (A,) is the expected sum
    over rows of f^T S^-1 f, in units that make it 1 a row, and `rows` (A,) counts rows.
    """
    rank = seen.product.shape[1] - 1
    root, covariance, mean, total = np.empty((rank, rank)), np.empty((rank, rank)), np.empty(rank), np.empty(rank)
    spread, common = np.empty(rank), np.empty(rank)
    likelihood = 0.0
    for n in range(seen.starts.size):
        likelihood += likelihood_user_posterior(seen, n, mean, root, total)
        covariance[:] = 0.0
        add_likelihood_covariance(root, covariance)
        length = 0.0  # of the history, in units of the inverse variances
        first, end = seen.starts[n], seen.stops[n]
        while first < end:
            stop = likelihood_run_end(seen, first, end)
            action, count = seen.actions[first], stop - first
            variance = seen.variance[action]
            single, less = variance, 0.0
            level = square = 0.0
            total[:] = 0.0  # becomes the sum over the rows of A
            if count > 1:
                single = (1.0 - seen.share) * variance
                less = seen.share * variance / (single + count * seen.share * variance)  # c'
                for i in range(first, stop):
                    row = seen.product[seen.codes[i]]
                    level += seen.rewards[i] - row[0] - seen.offsets[action] - dot(row[1:], mean)
                    for a in range(rank):
                        total[a] += row[a + 1]
                square -= less * level * level
            # A P^-1 of the sum, which every row of the action gives back by its share c'.
            common[:] = 0.0
            for a in range(rank):
                for b in range(rank):
                    common[b] += total[a] * covariance[a, b]
            square -= less * dot(common, total)
            for i in range(first, stop):
                row, out = seen.product[seen.codes[i]], pull[seen.codes[i]]
                left = seen.rewards[i] - row[0] - seen.offsets[action]  # becomes the residual f of this row
                spread[:] = 0.0  # becomes its row of A P^-1
                for a in range(rank):
                    weight = row[a + 1]
                    left -= weight * mean[a]
                    for b in range(rank):
                        spread[b] += weight * covariance[a, b]
                square += left * left + dot(spread, row[1:])
                own = (left - less * level) / single
                out[0] += own
                lean[action] += own
                for a in range(rank):
                    out[a + 1] += own * mean[a] - (spread[a] - less * common[a]) / single
            residual[action] += square * variance / single
            rows[action] += count
            length += count / variance
            first = stop
        # Every row of the user has the same E[(1, z)(1, z)^T]; the first column is the first row, filled in at the end.
        weights[0, 0] += length
        for a in range(rank):
            weights[0, a + 1] += length * mean[a]
            for b in range(rank):
                weights[a + 1, b + 1] += length * (covariance[a, b] + mean[a] * mean[b])
    for a in range(rank):
        weights[a + 1, 0] = weights[0, a + 1]
    return likelihood


def warm_likelihood_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    first, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    seen = UserRows(np.ones((1, 2)), first, first, np.ones(1), first, one, np.ones(1), np.zeros(1), 0.5, np.ones(1))
    likelihood_run_end(seen, 0, 1)
    likelihood_user_posterior(seen, 0, np.empty(1), np.empty((1, 1)), np.empty(1))
    square, two = np.ones((1, 1)), np.ones(1)
    likelihoods_of_users(seen, square.copy(), two, two, two.copy())
    add_likelihood_covariance(square, square.copy())
    likelihood_coordinates(seen, square.copy(), np.zeros((1, 1, 1)))
    likelihood_expectations(seen, np.zeros((2, 2)), np.zeros((1, 2)), two, two, two)
