"""The marginal likelihood of a Gaussian population, and its gradient, in one pass over the logs.

The reward of user n for action a with features phi is

    r = phi^T (m + L z_n) + o_a + e_na + noise,      z_n ~ N(0, I_k),   Var(e_na + noise) = v_a,

where e_na, a share of v_a, is the same whenever the user meets the action again. With A = X L, e = r - X m - o and S
the covariance of what is left (diagonal where nobody meets an action twice):

    P = I + A^T S^-1 A,   mu = P^-1 A^T S^-1 e   (posterior mean of z; its covariance is P^-1),
    log p(r) = -1/2 [ h log(2 pi) + log det S + log det P + e^T S^-1 (e - A mu) ].

By Fisher's identity the gradient of the marginal likelihood in W = [m, L] is that of EM's expected complete one,

    dl/dW = sum_n X_n^T S_n^-1 [ f_n,  f_n mu_n^T - A_n P_n^-1 ],   f = e - A mu,

that in o_a the sum of S^-1 f over the rows of a, and that in log v_a half of what E[f^T S^-1 f] over these rows exceeds
their number by. So a pass costs two products of the features with d x (k + 1) matrices and, between them, small systems
per user (`likelihood_loops`). Where rows name actions of a catalogue, the products are with the catalogue: their cost
does not grow with the logs. Several populations can be judged in one pass, each on its own share of the users (a task):
folds, halves, and held-out users.

Held-out users are judged by how well each of their rewards is predicted from their *other* actions (the gain, see
`likelihood_loops.others_gain`): that is what a newcomer is served by. The likelihood would also reward a population for
the spread of rewards, and take noise that differs between users for preferences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.em import likelihood_loops
from newcomer.logs.batch import Batch
from newcomer.one_hot import Catalogue, OneHot
from newcomer.population import AttributePrior, Population
from newcomer.users import UserSample, user_bucket_count, user_buckets

FARTHEST = 1e100  # a user's gain beyond this says no more: of rewards after a fold that had none but zeros, say
CHUNK_BYTES = 2 << 20  # features worked on at a time: stays in a second-level cache
ENTRIES = 1 << 20  # entries of rows times W that are written out at a time, where users have prior means of their own


@dataclass(frozen=True)
class Task:
    """A population, the buckets (B,) whose users it is fitted to, and those on whose users it is only judged."""

    population: Population
    fitted: Bools
    judged: Bools


@dataclass(frozen=True)
class KnownTask:
    """A population of users who are known by attributes x (p,): z ~ N(Gamma x, I), and beta has F x besides.

    `effects` are Gamma (k, p), `single` F (d, p), or None for zero; x are the `entries` of the encoded attributes, what
    is missing in them completed by `prior`. `fitted` are the buckets (B,) of the users.
    """

    population: Population
    fitted: Bools
    effects: Floats
    single: Floats | None
    prior: AttributePrior
    entries: tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """A population and the buckets (B,) of whose users the likelihood alone is wanted: half the work of a task."""

    population: Population
    fitted: Bools


@dataclass(frozen=True)
class Sums:
    """What a pass finds for one task; everything but `judged_*` is over the users it is fitted to.

    `gradient` (d, k + 1) is dl/dW and `lean` (A,) dl/do; `weights` (k + 1, k + 1) the sum over rows of E[(1, z)(1,
    z)^T] / v_a; `residual` (A,) the expected sum of f^T S^-1 f times v_a, and `met` (A,) the rows, of each action.
    A probe has the likelihood alone, and arrays without entries.
    """

    users: int
    rows: int
    likelihood: float
    gradient: Floats
    weights: Floats
    lean: Floats
    residual: Floats
    met: Floats
    judged_rows: int
    judged_users: int
    judged_likelihood: float
    judged_gain: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Posterior:
    """Of n users: what rewards say of z, how likely they were, and how much better than the mean they predict each
    other.
    """

    mean: Floats  # mu (n, k)
    likelihood: Floats  # (n,)
    gain: Floats  # (n,)
    linear: Floats  # (n,) its linear part


def likelihood_posterior(population: Population, features: Floats, rewards: Floats) -> Posterior:
    """What n users' features (n, h, d) and rewards (n, h) say of their z, and how likely the rewards were.

    One user, one direction, s2 = 1: after the rewards 1 and 3 of phi = 1, mu = 4 / (1 + 2).

    >>> one = Population(np.zeros(1), np.ones((1, 1)), 1.0)
    >>> likelihood_posterior(one, np.ones((1, 2, 1)), np.array([[1.0, 3.0]])).mean.round(4).tolist()
    [[1.3333]]
    """
    count, length, dim = features.shape
    starts = length * np.arange(count)
    rows = np.arange(count * length)
    return _View(features.reshape(-1, dim), rows, np.zeros_like(rows), rewards.ravel(), starts, starts + length).judge(
        population
    )


@dataclass(frozen=True)
class _View:
    """Some users of a batch: row i has the features `table[codes[i]]`; user n owns rows `starts[n]` to `stops[n]`."""

    table: Catalogue  # (rows or items, d)
    codes: Ints
    actions: Ints  # all zero where no action is logged
    rewards: Floats
    starts: Ints
    stops: Ints

    def judge(self, population: Population) -> Posterior:
        """Posterior means, likelihoods and gains."""
        users = len(self.starts)
        found = Posterior(np.empty((users, population.rank)), *np.empty((3, users)))
        likelihood_loops.likelihoods_of_users(
            self._seen(population), found.mean, found.likelihood, found.gain, found.linear
        )
        return found

    def fit(self, population: Population) -> Sums:
        """The sums of the users of the view."""
        seen, sums = self._seen(population), _nothing(population)
        pull = np.zeros(seen.product.shape)
        likelihood = likelihood_loops.likelihood_expectations(
            seen, sums.weights, pull, sums.lean, sums.residual, sums.met
        )
        users, rows, gradient = len(self.starts), int((self.stops - self.starts).sum()), self.table.T @ pull
        return replace(sums, users=users, rows=rows, likelihood=likelihood, gradient=gradient)

    def fit_known(self, task: KnownTask, x: Floats) -> Sums:
        """The sums of the users of the view, whose attributes are x (n, p).

        With c = Gamma x the prior mean of z and e = r - X (m + F x + L c) - o, z - c has the posterior of a user of
        whom nothing is known. Only dl/dL differs: mu is c + mu', so that S^-1 f c^T is added. Rows are written out, so
        that the loops return S^-1 f row by row.
        """
        population, lengths = task.population, self.stops - self.starts
        product, centres = self.table @ population.weights, x @ task.effects.T
        single = None if task.single is None else self.table @ task.single
        total, pulled = _nothing(population), np.zeros(product.shape)
        for some in _runs(lengths, max(1, ENTRIES // product.shape[1])):
            count, ends = lengths[some], np.cumsum(lengths[some])
            user = np.repeat(np.arange(len(count)), count)
            rows = np.arange(len(user)) + np.repeat(self.starts[some] - (ends - count), count)
            codes, at = self.codes[rows], centres[some][user]
            images = product[codes]
            left = self.rewards[rows] - np.einsum("ik,ik->i", images[:, 1:], at)
            if single is not None:
                left -= np.einsum("ip,ip->i", single[codes], x[some][user])
            alone = _View(images, np.arange(len(user)), self.actions[rows], left, ends - count, ends)
            seen, sums, pull = alone._rows(images, population), _nothing(population), np.zeros(images.shape)
            likelihood = likelihood_loops.likelihood_expectations(
                seen, sums.weights, pull, sums.lean, sums.residual, sums.met
            )
            pull[:, 1:] += pull[:, :1] * at
            for column in range(pull.shape[1]):
                pulled[:, column] += np.bincount(codes, pull[:, column], minlength=len(pulled))
            # E[(1, z)(1, z)^T] without the products of c and mu', whose expectation is zero: no more than a metric.
            length = np.bincount(user, 1.0 / seen.variance[alone.actions], minlength=len(count))
            sums.weights[0, 1:] += length @ centres[some]
            sums.weights[1:, 0] += length @ centres[some]
            sums.weights[1:, 1:] += (centres[some].T * length) @ centres[some]
            total += replace(sums, users=len(count), rows=len(user), likelihood=likelihood)
        return replace(total, gradient=np.asarray(self.table.T @ pulled))

    def probe(self, population: Population) -> float:
        """The log-likelihood of the users of the view."""
        return float(likelihood_loops.likelihood_alone(self._seen(population)))

    def grouped(self) -> _View:
        """The same users with the rows of one action side by side; nothing else depends on the order of rows."""
        lengths = self.stops - self.starts
        user, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
        rows = np.arange(len(user)) + np.repeat(self.starts - (ends - lengths), lengths)
        rows = rows[np.lexsort((self.actions[rows], user))]
        return _View(self.table, self.codes[rows], self.actions[rows], self.rewards[rows], ends - lengths, ends)

    def _seen(self, population: Population) -> likelihood_loops.UserRows:
        """The rows multiplied by W = [m, L], as the compiled loops take them."""
        return self._rows(self.table @ population.weights, population)

    def _rows(self, product: Floats, population: Population) -> likelihood_loops.UserRows:
        """The same, where `product` of the table and W is there."""
        rows = self.codes, self.actions, self.rewards, self.starts, self.stops
        variances = np.array(population.variances)  # of a type that the loops are compiled for
        left = variances, np.array(population.levels), population.share
        units = variances if population.units is None else np.array(population.units)
        product = np.ascontiguousarray(product)  # W itself where features are one-hot, whose columns may be together
        return likelihood_loops.UserRows(product, *rows, *left, units)


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch, copied once for all tasks: a batch is read-only, and loops are compiled for arrays that are
    not.
    """

    batch: Batch
    actions: Ints  # all zero where no action is logged
    rewards: Floats

    @classmethod
    def of(cls, batch: Batch) -> _Rows:
        actions = np.zeros(len(batch.rewards), dtype=np.int64) if batch.actions is None else np.array(batch.actions)
        return cls(batch, actions, np.array(batch.rewards))


def _views(rows: _Rows, chosen: Bools, *, grouped: bool) -> Iterator[_View]:
    """The chosen users: all at once where rows share a table that is smaller than they are, else a few at a time.

    Rows of one action must be side by side (`grouped`) where the persistence is above zero.
    """
    who, batch, actions = np.flatnonzero(chosen), rows.batch, rows.actions
    if not len(who):
        return
    starts, stops = batch.offsets[who], batch.offsets[who + 1]
    coded = batch.coded
    if coded is not None and (isinstance(coded.table, OneHot) or len(coded.table) <= int((stops - starts).sum())):
        view = _View(coded.table, actions, actions, rows.rewards, starts, stops)
        yield view.grouped() if grouped else view
        return
    for some in _runs(stops - starts, max(1, CHUNK_BYTES // (8 * batch.dim))):
        view = _some(batch, actions, starts[some], stops[some])
        yield view.grouped() if grouped else view


def _runs(lengths: Ints, rows: int) -> Iterator[slice]:
    """Users one after another, of about so many rows at a time."""
    ends, first = np.cumsum(lengths), 0
    while first < len(lengths):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + rows, side="right")))
        yield slice(first, last)
        first = last


def _some(batch: Batch, actions: Ints, starts: Ints, stops: Ints) -> _View:
    """Users with these rows: a view if they are neighbours, else a copy."""
    lengths = stops - starts
    total, ends = int(lengths.sum()), np.cumsum(lengths)
    if total == stops[-1] - starts[0]:
        rows: slice | Ints = slice(int(starts[0]), int(stops[-1]))
    else:
        rows = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
    rewards = np.array(batch.rewards[rows])
    return _View(batch.take(rows), np.arange(total), actions[rows], rewards, ends - lengths, ends)


def likelihood_sums(batch: Batch, tasks: tuple[Task | Probe, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of a batch: the map of a pass of EM."""
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    totals, rows = [_nothing(task.population) for task in tasks], _Rows.of(batch)
    for i, task in enumerate(tasks):
        again = task.population.share > 0
        if isinstance(task, Probe):
            views = _views(rows, task.fitted[where], grouped=again)
            totals[i] = _likelihood_alone(sum(view.probe(task.population) for view in views))
            continue
        for view in _views(rows, task.fitted[where], grouped=again):
            totals[i] += view.fit(task.population)
        for view in _views(rows, task.judged[where], grouped=again):
            found = view.judge(task.population)
            totals[i] += replace(
                _nothing(task.population),
                judged_rows=int((view.stops - view.starts).sum()),
                judged_users=len(view.starts),
                judged_likelihood=float(found.likelihood.sum()),
                judged_gain=float(found.gain.sum()),
            )
    return tuple(totals)


def known_likelihood_sums(batch: Batch, tasks: tuple[KnownTask, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of a batch, given their attributes: the map of a pass of EM."""
    assert batch.attributes is not None
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    totals, rows = [_nothing(task.population) for task in tasks], _Rows.of(batch)
    for i, task in enumerate(tasks):
        chosen, done = task.fitted[where], 0
        x = task.prior.completed(batch.attributes[:, list(task.entries)])[chosen]
        for view in _views(rows, chosen, grouped=task.population.share > 0):
            totals[i] += view.fit_known(task, x[done : done + len(view.starts)])
            done += len(view.starts)
    return tuple(totals)


def likelihood_information(batch: Batch, who: Ints, population: Population) -> tuple[Floats, Floats]:
    """Of the users at positions `who` (n,): A^T S^-1 A (n, k, k) and A^T S^-1 e (n, k), what rows tell of z alone."""
    chosen = np.zeros(len(batch.users), dtype=np.bool_)
    chosen[who] = True
    size, means, covariances = population.rank, [np.zeros((0, population.rank))], []
    for view in _views(_Rows.of(batch), chosen, grouped=population.share > 0):
        mean, covariance = np.empty((len(view.starts), size)), np.zeros((len(view.starts), size, size))
        likelihood_loops.likelihood_coordinates(view._seen(population), mean, covariance)
        means.append(mean)
        covariances.append(covariance)
    precision = np.linalg.inv(np.concatenate(covariances))
    return precision - np.eye(size), np.einsum("nij,nj->ni", precision, np.concatenate(means))


def merge_likelihood_sums(a: tuple[Sums, ...], b: tuple[Sums, ...]) -> tuple[Sums, ...]:
    """The sums of each task over the users of both."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _nothing(population: Population) -> Sums:
    """The sums over nobody."""
    dim, size = len(population.mean), population.rank + 1
    lean, residual, met = np.zeros((3, len(population.variances)))
    return Sums(0, 0, 0.0, np.zeros((dim, size)), np.zeros((size, size)), lean, residual, met, 0, 0, 0.0, 0.0)


def _likelihood_alone(value: float) -> Sums:
    """The sums of a probe."""
    none = np.zeros(0)
    return Sums(0, 0, value, np.zeros((0, 0)), np.zeros((0, 0)), none, none, none, 0, 0, 0.0, 0.0)


def likelihood_squared_errors(batch: Batch, held_out: tuple[tuple[Population, Bools], ...]) -> Floats:
    """Of each user (n, 2) who was held out of one of the populations: the rows h, and the squared one-step errors in
    units of their expected squares, summed, in whatever order the rows come: e^T Sigma^-1 e, expected to be h.

    Four times the covariance changes the log-likelihood by -1/2 [h log 4 - 3/4 e^T Sigma^-1 e], which tells it.
    """
    where, found = user_buckets(batch.hashes, user_bucket_count(batch.dim)), [np.zeros((0, 2))]
    copied = _Rows.of(batch)
    for population, judged in held_out:
        wide = replace(
            population,
            factor=2.0 * population.factor,
            noise_variance=4.0 * population.noise_variance,
            by_action=None if population.by_action is None else 4.0 * population.by_action,
        )
        for view in _views(copied, judged[where], grouped=population.share > 0):
            rows = (view.stops - view.starts).astype(np.float64)
            change = view.judge(wide).likelihood - view.judge(population).likelihood
            found.append(np.column_stack([rows, (8.0 * change + rows * np.log(256.0)) / 3.0]))
    return np.concatenate(found)


@dataclass(frozen=True)
class Comparison:
    """Gains of P populations on the same users: sums (P,) and sums of products (P, P).

    Of the linear parts of the gains: sums (0) and sums of squares (1), (2, P).
    """

    users: int
    sums: Floats
    products: Floats
    linear: Floats

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def among(self, some: slice) -> Comparison:
        """The comparison of some of the populations."""
        return Comparison(self.users, self.sums[some], self.products[some, some], self.linear[:, some])

    def certainty(self, rival: int) -> float:
        """Standard errors by which the linear part of a population's gain exceeds zero, its mean if nothing is shared.

        The gain 2 e p - p^2 itself is a strict test: it takes the square of the prediction p off, which is certain to
        be there, also where users do differ. The error e has mean zero whatever the other actions gave, unless they
        tell of it.

        >>> round(Comparison(4, np.ones(1), np.ones((1, 1)), np.array([[4.0], [8.0]])).certainty(0), 3)
        1.732
        """
        mean, square = self.linear[:, rival] / self.users
        spread = max(square - mean**2, 0.0)
        return float(mean / np.sqrt(spread / max(self.users - 1, 1))) if spread > 0 else 0.0

    def deficits(self) -> tuple[Floats, Floats]:
        """The mean gain per user that each lacks to the best, and the standard error of that, (P,) each.

        Users are the same for all, so the error is that of the *difference*, which varies less than either.

        >>> twice = Comparison(2, np.array([4.0, 2.0]), np.array([[10.0, 4.0], [4.0, 2.0]]), np.zeros((2, 2)))
        >>> [values.tolist() for values in twice.deficits()]
        [[0.0, 1.0], [0.0, 1.0]]
        """
        means, best = self.sums / self.users, int(np.argmax(self.sums))
        second = self.products / self.users - np.outer(means, means)
        spread = np.diag(second) + second[best, best] - 2 * second[best]
        return means[best] - means, np.sqrt(np.maximum(spread, 0.0) / max(self.users - 1, 1))


def compare_likelihoods(
    batch: Batch, rivals: tuple[tuple[Population, ...], ...], judged: tuple[Bools, ...], sampled: float = 0.0
) -> Comparison:
    """Judge, fold by fold, the P rivals that were fitted without the fold on the users of its buckets.

    Users who are in the sample of a share `sampled` of all do not judge: some of the rivals may be fitted to them.
    """
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    others = ~UserSample("fit", sampled)(batch.hashes)
    size, rows = len(rivals[0]), _Rows.of(batch)
    total = Comparison(0, np.zeros(size), np.zeros((size, size)), np.zeros((2, size)))
    for populations, buckets in zip(rivals, judged, strict=True):
        for view in _views(rows, buckets[where] & others, grouped=populations[0].share > 0):
            each = [view.judge(population) for population in populations]
            values = np.clip(np.stack([one.gain for one in each]), -FARTHEST, FARTHEST)
            linear = np.clip(np.stack([one.linear for one in each]), -FARTHEST, FARTHEST)
            sums = np.stack([linear.sum(axis=1), (linear**2).sum(axis=1)])
            total += Comparison(len(view.starts), values.sum(axis=1), values @ values.T, sums)
    return total
