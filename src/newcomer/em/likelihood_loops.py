"""Compiled loops over users for the likelihood of a population and its gradient; the maths is told in likelihood.py.

A user with rewards r has the h rows F = [e, A], with A = X L and e = r - X m - o the products of the features with W =
[m, L]. With S the covariance of what is left, everything comes from F and S^-1 F:

    F^T S^-1 F = [ e^T S^-1 e   c^T   ],      P = I + A^T S^-1 A (k, k),   c = A^T S^-1 e (k,),   mu = P^-1 c,
                 [ c            P - I ]
    log p(r) = -1/2 [ h log(2 pi) + log det S + log det P + e^T S^-1 e - c^T P^-1 c ],

and the gradient in the rows of F, S^-1 [f, f mu^T - A P^-1] with f = e - A mu, is one product with a small matrix:

    S^-1 F M^T,      M = [ 1    -mu^T            ]
                         [ mu   -mu mu^T - P^-1  ].

Rows of different actions are independent, with the variance v of their action. Rows of the same action, n of them,
share what lasts: S = s2 I + se 1 1^T with se = share v and s2 = v - se, so that with c' = se / (s2 + n se)

    S^-1 x = (x - c' (sum of x)) / s2,      log det S = (n - 1) log s2 + log(s2 + n se).

Rows of one action must be neighbours for that, which the caller sees to where something lasts. Sweeping the pivots of
P out of F^T S^-1 F (`sweep_pivots`) leaves P^-1, mu and e^T S^-1 e - c^T P^-1 c in its place, and log det P on the way.
Rows of a user are copied side by side, of a long history `BLOCK` at a time, so that both products run at the speed of
matrices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from newcomer.array_loops import PIVOTS, add_products, fast, inlined, multiply_rows, sweep_pivots
from newcomer.arrays import Floats, Ints

BLOCK = 512  # rows of one user that are worked on at a time


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


class LoopRoom(NamedTuple):
    """Room for a block of B rows of one user, written again for every user."""

    rows: Floats  # (B, k + 1) F
    whitened: Floats  # (B, k + 1) S^-1 F
    pulls: Floats  # (B, k + 1) S^-1 F M^T
    products: Floats  # (k + 1, k + 1) F^T S^-1 F, the lower triangle
    matrix: Floats  # (k + 1, k + 1) M^T
    system: Floats  # (q + 1, q + 1) [e^T S^-1 f, -mu^T; mu, P^-1], q the multiple of `PIVOTS` from k on; I beyond k
    pivots: Floats  # (PIVOTS, q + 1), and ...
    block: Floats  # ... (PIVOTS, PIVOTS), room of `sweep_pivots`
    inverse: Floats  # (A,) 1 / v
    logs: Floats  # (A,) log v


@fast
def likelihood_room(seen: UserRows) -> LoopRoom:
    """Room for the longest block of any user."""
    longest = 1
    for n in range(seen.starts.size):
        first = seen.starts[n]
        while first < seen.stops[n]:
            stop = likelihood_block_end(seen, first, seen.stops[n])
            longest = max(longest, stop - first)
            first = stop
    size = seen.product.shape[1]
    swept = 1 + (size - 1 + PIVOTS - 1) // PIVOTS * PIVOTS
    return LoopRoom(
        np.empty((longest, size)),
        np.empty((longest, size)),
        np.empty((longest, size)),
        np.empty((size, size)),
        np.empty((size, size)),
        np.empty((swept, swept)),
        np.empty((PIVOTS, swept)),
        np.empty((PIVOTS, PIVOTS)),
        1.0 / seen.variance,
        np.log(seen.variance),
    )


@inlined
def likelihood_run_end(seen: UserRows, begin: int, end: int) -> int:
    """Where the rows of the action of row `begin` end: the next row, unless something lasts."""
    stop = begin + 1
    if seen.share > 0.0:
        while stop < end and seen.actions[stop] == seen.actions[begin]:
            stop += 1
    return stop


@inlined
def likelihood_block_end(seen: UserRows, begin: int, end: int) -> int:
    """Where the block that begins with a row ends: after at most `BLOCK` rows, unless one action has more."""
    if end - begin <= BLOCK:
        return end
    if seen.share == 0.0:
        return begin + BLOCK
    stop = likelihood_run_end(seen, begin, end)
    while stop < end:
        after = likelihood_run_end(seen, stop, end)
        if after - begin > BLOCK:
            break
        stop = after
    return stop


@inlined
def likelihood_load(seen: UserRows, begin: int, end: int, room: LoopRoom) -> tuple[float, float]:
    """Write F and S^-1 F of some rows of one user; returns log det S and the sum of 1 / v."""
    size, count = seen.product.shape[1], end - begin
    logdet = length = 0.0
    for i in range(count):
        code, action = seen.codes[begin + i], seen.actions[begin + i]
        weight = room.inverse[action]
        error = seen.rewards[begin + i] - seen.product[code, 0] - seen.offsets[action]
        room.rows[i, 0], room.whitened[i, 0] = error, weight * error
        for a in range(1, size):
            room.rows[i, a] = seen.product[code, a]
            room.whitened[i, a] = weight * seen.product[code, a]
        logdet += room.logs[action]
        length += weight
    if seen.share > 0.0:
        first = begin
        while first < end:
            stop = likelihood_run_end(seen, first, end)
            if stop - first > 1:
                logdet += _share_what_lasts(seen, first, stop, first - begin, room)
            first = stop
    return logdet, length


@fast
def _share_what_lasts(seen: UserRows, first: int, stop: int, at: int, room: LoopRoom) -> float:
    """Of n rows of one action, the first in row `at` of the room: S^-1 F with what lasts; returns what that adds to log
    det S.
    """
    variance, count = seen.variance[seen.actions[first]], stop - first
    single, lasting = (1.0 - seen.share) * variance, seen.share * variance
    whole = single + count * lasting
    for a in range(room.rows.shape[1]):
        total = 0.0
        for i in range(at, at + count):
            total += room.rows[i, a]
        for i in range(at, at + count):
            room.whitened[i, a] = (room.rows[i, a] - lasting / whole * total) / single
    more: float = (count - 1) * np.log(single) + np.log(whole) - count * room.logs[seen.actions[first]]
    return more


@fast
def likelihood_user_posterior(seen: UserRows, n: int, room: LoopRoom) -> tuple[float, float]:
    """Of user n: leave mu and P^-1 in the system; returns the log-likelihood and the sum of 1 / v over rows.

    The last block stays in the room.
    """
    begin, end, products, system = seen.starts[n], seen.stops[n], room.products, room.system
    logdet = length = 0.0
    products[:] = 0.0
    first = begin
    while first < end:
        stop = likelihood_block_end(seen, first, end)
        more = likelihood_load(seen, first, stop, room)
        logdet, length = logdet + more[0], length + more[1]
        add_products(room.rows, room.whitened, stop - first, products)
        first = stop
    size = products.shape[0]
    for a in range(size, system.shape[0]):
        for b in range(a):
            system[a, b] = system[b, a] = 0.0
        system[a, a] = 1.0
    for a in range(size):
        for b in range(a):
            system[a, b] = system[b, a] = products[a, b]
        system[a, a] = products[a, a] + (1.0 if a else 0.0)
    logdet += sweep_pivots(system, 1, room.pivots, room.block)
    return -0.5 * ((end - begin) * np.log(2.0 * np.pi) + logdet + system[0, 0]), length


@inlined
def likelihood_pull_matrix(room: LoopRoom) -> None:
    """Write M^T, of the user whose system is given."""
    matrix, system = room.matrix, room.system
    matrix[0, 0] = 1.0
    for a in range(1, matrix.shape[0]):
        own = system[a, 0]
        matrix[a, 0], matrix[0, a] = -own, own
        for b in range(1, matrix.shape[0]):
            matrix[a, b] = own * system[0, b] - system[a, b]


@inlined
def likelihood_pulls(seen: UserRows, n: int, begin: int, end: int, room: LoopRoom) -> None:
    """Write the pulls of a block of user n, M of whom is given."""
    if begin > seen.starts[n] or end < seen.stops[n]:  # the only block is still there
        likelihood_load(seen, begin, end, room)
    multiply_rows(room.whitened, room.matrix, end - begin, room.pulls)


@inlined
def likelihood_gain_of_others(seen: UserRows, n: int, room: LoopRoom, mean: Floats) -> tuple[float, float]:
    """Of user n, whose posterior is given: the gain and its linear part, by leaving out one action at a time.

    Without the rows of an action, whose mean has the features f, the variance v and, given everything, the residual x,
    the residual is x / (1 - h), h = f^T P^-1 f / v: no system has to be solved again. That is exact where an action
    has the same features at every meeting, and else leaves a little of its rows in. The pulls of its rows add up to x /
    v and (x mu - P^-1 f) / v.
    """
    end, rank = seen.stops[n], mean.size
    gain = linear = 0.0
    block = seen.starts[n]
    likelihood_pull_matrix(room)
    while block < end:
        last = likelihood_block_end(seen, block, end)
        likelihood_pulls(seen, n, block, last, room)
        first = block
        while first < last:
            stop = likelihood_run_end(seen, first, last)
            count, action = stop - first, seen.actions[first]
            variance = seen.variance[action]
            if count > 1:
                variance *= seen.share + (1.0 - seen.share) / count
            error = left = along = lever = 0.0
            for i in range(first - block, stop - block):
                error += room.rows[i, 0] / count
                left += room.pulls[i, 0]
            if count == 1:
                along = error - left * variance  # left is (e - A mu) / v
                i = first - block
                for a in range(1, rank + 1):
                    lever -= room.rows[i, a] * room.pulls[i, a]
            else:
                for a in range(rank):
                    total = pulled = 0.0
                    for i in range(first - block, stop - block):
                        total += room.rows[i, a + 1]
                        pulled += room.pulls[i, a + 1]
                    along += total * mean[a]
                    lever -= total * pulled
            lever = (lever + along * left) / count  # h
            left = left * variance / max(1.0 - lever, 1e-9)
            gain += (error * error - left * left) / seen.units[action]
            linear += error * (error - left) / seen.units[action]
            first = stop
        block = last
    return gain, linear


@fast
def likelihoods_of_users(seen: UserRows, mean: Floats, likelihood: Floats, gain: Floats, linear: Floats) -> None:
    """Of each user: write the posterior mean of z (users, k), the log-likelihood, the gain, its linear part (users,).

    The gain is how much better each action's reward is predicted from the user's *other* actions than by the
    population's mean: squared errors, in units that are the same for all populations that are compared, summed over
    actions. With e the error of the population's mean and p what the other actions add to the prediction it is e^2 -
    (e - p)^2 = 2 e p - p^2; its linear part is the sum of e p.
    """
    room = likelihood_room(seen)
    for n in range(seen.starts.size):
        likelihood[n] = likelihood_user_posterior(seen, n, room)[0]
        mean[n] = room.system[1 : 1 + mean.shape[1], 0]
        gain[n], linear[n] = likelihood_gain_of_others(seen, n, room, mean[n])


@fast
def likelihood_alone(seen: UserRows) -> float:
    """The log-likelihood of all users."""
    room, likelihood = likelihood_room(seen), 0.0
    for n in range(seen.starts.size):
        likelihood += likelihood_user_posterior(seen, n, room)[0]
    return likelihood


@fast
def likelihood_coordinates(seen: UserRows, means: Floats, covariances: Floats) -> None:
    """Write the posterior mean (users, k) of each user's z, and add its covariance to `covariances` (users, k, k)."""
    room, size = likelihood_room(seen), seen.product.shape[1]
    for n in range(seen.starts.size):
        likelihood_user_posterior(seen, n, room)
        means[n] = room.system[1:size, 0]
        for a in range(1, size):
            for b in range(1, size):
                covariances[n, a - 1, b - 1] += 0.5 * (room.system[a, b] + room.system[b, a])


@fast
def _add_pulls(codes: Ints, actions: Ints, pulls: Floats, rows: Floats, sums: Floats) -> None:
    """Add the pulls of a block to the sums of their codes, and what stands beside them (`likelihood_expectations`)."""
    size = pulls.shape[1]
    for i in range(codes.size):
        code = codes[i]
        for a in range(size):
            sums[code, a] += pulls[i, a]
        sums[code, size] += pulls[i, 0] * rows[i, 0]
        sums[code, size + 1] += 1.0
        sums[code, size + 2] = actions[i]


@fast
def likelihood_expectations(
    seen: UserRows, weights: Floats, pull: Floats, lean: Floats, residual: Floats, rows: Floats
) -> float:
    """Write the sums of EM's expectation step, and of the gradient, over all users; returns the log-likelihood.

    `weights` (k + 1, k + 1) is the sum over rows of E[(1, z)(1, z)^T] / variance. `pull` (C, k + 1) is the sum over
    rows of S^-1 [f, f mu^T - A P^-1] in row codes[i], f = e - A mu: the features' transpose times it is the gradient in
    W. `lean` (A,), the sum over rows of S^-1 f, is the gradient in the offsets. `residual` (A,) is the expected sum
    over rows of f^T S^-1 f, in units that make it 1 a row, and `rows` (A,) counts rows. All are zeros before.

    Of a row, E[f^T S^-1 f] is e S^-1 f less the product of its A and its pull. All rows of a code have the same A, so
    that the second part needs the sum of their pulls only.
    """
    size, room, likelihood = seen.product.shape[1], likelihood_room(seen), 0.0
    # Of each code: the pulls, the sum of e S^-1 f, the rows, and the action; side by side, since codes come at random.
    sums = np.zeros((pull.shape[0], size + 3))
    for n in range(seen.starts.size):
        value, length = likelihood_user_posterior(seen, n, room)
        likelihood += value
        likelihood_pull_matrix(room)
        first, end = seen.starts[n], seen.stops[n]
        while first < end:
            stop = likelihood_block_end(seen, first, end)
            likelihood_pulls(seen, n, first, stop, room)
            _add_pulls(seen.codes[first:stop], seen.actions[first:stop], room.pulls, room.rows, sums)
            first = stop
        # Every row of the user has the same E[(1, z)(1, z)^T], which M has too, but for signs.
        weights[0, 0] += length
        for a in range(1, size):
            weights[a, 0] += length * room.matrix[0, a]
            weights[0, a] += length * room.matrix[0, a]
            for b in range(1, size):
                weights[a, b] -= length * room.matrix[a, b]
    for code in range(pull.shape[0]):
        action = int(sums[code, size + 2])
        left = sums[code, size]
        for a in range(1, size):
            left -= seen.product[code, a] * sums[code, a]
        lean[action] += sums[code, 0]
        residual[action] += left * seen.variance[action]
        rows[action] += sums[code, size + 1]
        pull[code] = sums[code, :size]
    return likelihood


def warm_likelihood_loops() -> None:
    """Load every loop of this file from the cache, compiling those that are not there yet."""
    first, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    seen = UserRows(np.ones((1, 2)), first, first, np.ones(1), first, one, np.ones(1), np.zeros(1), 0.5, np.ones(1))
    likelihood_run_end(seen, 0, 1)
    likelihood_block_end(seen, 0, 1)
    row, two, square, each = np.empty((1, 2)), np.empty((2, 2)), np.ones((1, 1)), np.ones(1)
    swept = np.empty((1 + PIVOTS, 1 + PIVOTS)), np.empty((PIVOTS, 1 + PIVOTS)), np.empty((PIVOTS, PIVOTS))
    room = LoopRoom(row, row.copy(), row.copy(), two, two.copy(), *swept, each, each * 0.0)
    _share_what_lasts(seen, 0, 1, 0, room)
    likelihood_pull_matrix(room)
    likelihood_pulls(seen, 0, 0, 1, room)
    likelihoods_of_users(seen, square.copy(), each, each, each.copy())
    likelihood_alone(seen)
    _add_pulls(first, first, row, row, np.zeros((1, 5)))
    likelihood_coordinates(seen, square.copy(), np.zeros((1, 1, 1)))
    likelihood_expectations(seen, np.zeros((2, 2)), np.zeros((1, 2)), each, each, each)
