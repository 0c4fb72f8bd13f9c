"""Gathering: the one pass over the logs that every check needs, as sums and a sample of users.

Sums over all rows say how often each action was shown and what its propensities were. The tests look at whole users
instead, at most some tens of thousands of them: those whose hashed id is below a threshold, so that who is looked at
does not depend on the order of files, batches or workers. Of each the first `LONGEST` rows are kept, with the action
they name, or their features (mapped to `WIDEST` random directions if they are more). Users are sorted by hash at
the end, so that the number of workers changes nothing.

Residuals: the users of a check, their rows as residuals and coordinates, and sums over halves of their histories.

What is common to everybody is taken away first: of each reward the mean of its action, or, where rows bring features,
what least squares make of these (then the action's mean, if it has a name). The residual e is what the tests look at.

Features are seen along a few directions. The leading ones are those in which users differ most, found by a step of
subspace iteration on sum_u (sum_h e phi)(sum_h e phi)^T, over pairs of different rows within the same half of a
history: no product crosses the halves, so that permuting second halves among users changes no direction, and the tests
stay exact. Random directions fill up. All are made uncorrelated with variance 1 over the logged rows: z. For a user
with preferences b, e = z . b + noise, so that

    x = sum_h e (1, z)    has mean n (level, b)        and        y = sum_h z    has mean n (shift of what is shown).

A history is cut to a window of a length of few values (`SIZES`), so that many users share one; halves are its first and
its second half, in time or after a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.users import UserSample, mix_user_hashes

MOST = 20_000  # users looked at
LONGEST = 128  # rows kept of each
WIDEST = 64  # features kept of each row
COORDINATES = 32  # that the tests give to each row
NUMBERS = 10_000_000  # of all rows in one array: 80 MB, and some such arrays are there at a time
BATCH = 1 << 18  # rows of a batch that brings no features
LENGTHS = 1025  # history lengths that are counted apart; the last counts all longer ones
SIZES = np.unique(np.rint(2 ** np.arange(1, 7.01, 0.25))).astype(np.int64)  # of windows: four an octave, to LONGEST


@dataclass(frozen=True)
class Propensities:
    """Sums over the rows of each action (A,): 1/p, its square, and the least and largest p; one entry without names."""

    inverse: Floats
    squares: Floats
    least: Floats
    largest: Floats

    def __add__(self, other: Propensities) -> Propensities:
        least, largest = np.minimum(self.least, other.least), np.maximum(self.largest, other.largest)
        return Propensities(self.inverse + other.inverse, self.squares + other.squares, least, largest)


@dataclass(frozen=True)
class CheckSample:
    """What one pass gives: counts over everybody, and n users with their rows.

    `lengths` (LENGTHS,) counts users by length, `shown` (A,) rows by action (empty without names); `propensities` is
    None where none were logged. Of the people: `hashes` (n,), whole `length` (n,), `kept` rows (n,); of their rows:
    `rewards` (R,), `actions` (R,) or empty, `features` (R, q) or empty (R, 0), and `gram` (d, d), the sum of x x^T, or
    empty where features follow from the action or are too many.
    """

    lengths: Ints
    shown: Ints
    propensities: Propensities | None
    hashes: Hashes
    length: Ints
    kept: Ints
    rewards: Floats
    actions: Ints
    features: Floats
    gram: Floats
    attributes: Floats  # (n, p) of the users, encoded, zero where missing; (n, 0) without

    def __add__(self, other: CheckSample) -> CheckSample:
        both = (self.propensities, other.propensities)
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _PEOPLE}
        summed = {name: getattr(self, name) + getattr(other, name) for name in ("lengths", "shown", "gram")}
        odds = None if both[0] is None or both[1] is None else both[0] + both[1]
        return CheckSample(propensities=odds, **joined, **summed)

    def in_order(self) -> CheckSample:
        """The same with users sorted by hash, so that it does not matter who gathered them and when."""
        order = np.argsort(self.hashes, kind="stable")
        starts = np.cumsum(self.kept) - self.kept
        rows = _flat_residual_rows(starts[order], self.kept[order])
        people = {name: getattr(self, name)[order] for name in ("hashes", "length", "kept", "attributes")}
        columns = {name: getattr(self, name) for name in ("rewards", "actions", "features")}
        columns = {name: column[rows] if len(column) else column for name, column in columns.items()}
        return CheckSample(self.lengths, self.shown, self.propensities, gram=self.gram, **people, **columns)


_PEOPLE = ("hashes", "length", "kept", "rewards", "actions", "features", "attributes")


def take_residual_sample(logs: Logs, *, progress: Callable[[int, int], None] | None = None) -> CheckSample:
    """One pass over the logs."""
    width = 0 if logs.by_action else min(logs.dim, WIDEST)
    average = min(logs.summary.rows / max(logs.summary.users, 1), LONGEST)
    most = min(MOST, int(NUMBERS / ((width + COORDINATES) * average)))
    share = min(1.0, most / max(logs.summary.usable, 1))
    look = partial(residual_sample_of_batch, share=share, actions=len(logs.action_ids or ()), width=width)
    # Where features are not looked at, batches may be long: joining many short ones would copy users again and again.
    return reduce(logs, look, _join, rows=None if width else BATCH, progress=progress).in_order()


def _join(one: CheckSample, other: CheckSample) -> CheckSample:
    return one + other


def residual_sample_of_batch(batch: Batch, *, share: float, actions: int, width: int) -> CheckSample:
    """What a batch gives: the map of the pass."""
    lengths = batch.lengths
    who = np.flatnonzero(UserSample("checks", share)(batch.hashes) & (lengths >= 2))
    kept = np.minimum(lengths[who], LONGEST)
    rows = _flat_residual_rows(batch.offsets[:-1][who], kept)
    whole = batch.take(rows) if width else np.zeros((0, 0))
    return CheckSample(
        lengths=np.bincount(np.minimum(lengths, LENGTHS - 1), minlength=LENGTHS),
        shown=np.bincount(batch.actions, minlength=actions) if batch.actions is not None else np.zeros(0, np.int64),
        propensities=_propensities(batch, actions),
        hashes=batch.hashes[who],
        length=lengths[who],
        kept=kept,
        rewards=batch.rewards[rows],
        actions=np.zeros(0, np.int64) if batch.actions is None else batch.actions[rows],
        features=_narrow_residual_features(whole, width),
        gram=whole.T @ whole if whole.shape[1] <= 4 * WIDEST else np.zeros((0, 0)),
        attributes=np.zeros((len(who), 0)) if batch.attributes is None else np.nan_to_num(batch.attributes[who]),
    )


def _propensities(batch: Batch, actions: int) -> Propensities | None:
    """Sums by action of what the propensities of a batch say."""
    if batch.propensities is None:
        return None
    which = np.zeros(len(batch.rewards), np.int64) if batch.actions is None else batch.actions
    logged = np.isfinite(batch.propensities)  # of the incumbent and of observations none is known
    which, chance, size = which[logged], batch.propensities[logged], max(actions, 1)
    odds, least, largest = 1.0 / chance, np.ones(size), np.zeros(size)
    np.minimum.at(least, which, chance)
    np.maximum.at(largest, which, chance)
    sums = [np.bincount(which, weights=odds**power, minlength=size).astype(np.float64) for power in (1, 2)]
    return Propensities(sums[0], sums[1], least, largest)


def sorted_by_reward(found: CheckSample) -> bool:
    """Whether nearly all users have their rows in the order of their rewards."""
    if not len(found.kept):
        return False
    step, starts = np.diff(found.rewards, prepend=0.0), _starts(found.kept)
    step[starts] = 0.0
    rising, falling = (np.add.reduceat(side.astype(np.int64), starts) for side in (step > 0, step < 0))
    able = (found.kept >= SORTED_ROWS) & (rising + falling > 1)  # one step alone is also a success that ended it
    one_way = np.minimum(rising, falling)[able] == 0
    return len(one_way) >= SORTED_USERS and float(one_way.mean()) > SORTED_SHARE


def _flat_residual_rows(starts: Ints, counts: Ints) -> Ints:
    """The places start, start + 1, ... of `counts` rows from each of the `starts`, one after another.

    >>> _flat_residual_rows(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def _narrow_residual_features(features: Floats, width: int) -> Floats:
    """Features (rows, d) as they are, or along `width` random directions that depend on d alone."""
    return features if features.shape[1] <= width else features @ _random_residual_directions(features.shape[1], width)


def _random_residual_directions(dim: int, count: int) -> Floats:
    """Directions (dim, count) of norm about 1, the same whenever they are asked for."""
    return np.asarray(np.random.default_rng([dim, count]).standard_normal((dim, count)) / np.sqrt(dim))


LEADING = 8  # directions of preference
RANDOM = 16  # directions that fill up
ROUNDS = 6  # of the iteration for the weights of draws without replacement
EXPECTED = 10.0  # repeats expected by chance from which their absence says that actions come once each
ROUNDING = 1e-9
SORTED_ROWS, SORTED_USERS, SORTED_SHARE = 4, 20, 0.9  # of users by whom a file is seen to be sorted by reward


@dataclass(frozen=True)
class ResidualSample:
    """Users of the logs; rows of the windows only, in time order.

    `hashes`, `length`, `window` are (n,), `offsets` (n + 1,); `residual` (R,) is left of `reward` (R,), which is
    scaled to at most 1, as are features: no effect depends on their units.
    `actions` (R,) is empty without names. Features of a row are its own, or those of its action in `table` (A, q), or
    one-hot of A actions where both are empty.
    """

    hashes: Ints
    length: Ints
    window: Ints
    offsets: Ints
    reward: Floats
    residual: Floats
    actions: Ints
    count: int
    features: Floats
    table: Floats
    attributes: Floats  # (n, p), (n, 0) without

    @classmethod
    def of(cls, found: CheckSample, table: Floats | None) -> ResidualSample:
        """The users gathered; `table` (A, d) has the features of actions, None for one-hot or rows' own."""
        window = SIZES[np.searchsorted(SIZES, found.kept, side="right") - 1]
        starts = np.cumsum(found.kept) - found.kept
        rows = _flat_residual_rows(starts, window)
        actions = found.actions[rows] if len(found.actions) else found.actions
        features = _scaled(found.features[rows]) if len(found.features) else found.features
        reward = _scaled(found.rewards[rows])
        return cls(
            hashes=found.hashes.astype(np.int64),
            length=found.length,
            window=window,
            offsets=np.concatenate([[0], np.cumsum(window)]),
            reward=reward,
            residual=residuals(reward, features, actions, len(found.shown)),
            actions=actions,
            count=len(found.shown),
            features=features,
            table=np.zeros((0, 0)) if table is None else _scaled(_narrow_residual_features(table, WIDEST)),
            attributes=found.attributes,
        )

    def __len__(self) -> int:
        return len(self.window)

    @property
    def dim(self) -> int:
        """Number of features that are looked at."""
        return self.features.shape[1] or self.table.shape[1] or self.count

    @cached_property
    def shares(self) -> Floats:
        """How often each action is shown, (A,)."""
        counts = np.bincount(self.actions, minlength=self.count)
        return np.asarray(counts / max(counts.sum(), 1))

    @cached_property
    def user(self) -> Ints:
        """The user of each row."""
        return np.repeat(np.arange(len(self)), self.window)

    @cached_property
    def repeats(self) -> int:
        """Rows whose user has met their action before."""
        if not len(self.actions):
            return 0
        return len(self.actions) - len(np.unique(self.user * self.count + self.actions))

    @cached_property
    def once(self) -> bool:
        """Whether actions come once each, by rule: no user meets one twice where chance would have it."""
        if not len(self.actions) or self.repeats:
            return False
        pairs = (self.window * (self.window - 1) / 2).sum()
        return bool(pairs * (self.shares**2).sum() >= EXPECTED)

    @cached_property
    def spread(self) -> float:
        """Variance of the residuals."""
        return float(np.mean(self.residual**2)) if len(self.residual) else 0.0

    @cached_property
    def usual(self) -> tuple[Floats, Floats]:
        """Mean and deviation (dim,) of each feature over the rows."""
        if self.features.shape[1]:
            return self.features.mean(axis=0), self.features.std(axis=0)
        if not self.table.shape[1]:
            return self.shares, np.sqrt(self.shares * (1.0 - self.shares))
        mean = self.shares @ self.table
        return mean, np.sqrt(np.maximum(self.shares @ (self.table - mean) ** 2, 0.0))

    def project(self, directions: Floats) -> Floats:
        """Features of all rows along directions (dim, q): (R, q)."""
        if self.features.shape[1]:
            return self.features @ directions
        return np.asarray((self.table @ directions if self.table.shape[1] else directions)[self.actions])

    def spread_out(self, values: Floats) -> Floats:
        """The adjoint of `project`: sum over rows of features times values (R, q), (dim, q)."""
        if self.features.shape[1]:
            return self.features.T @ values
        rows = np.arange(len(self.actions))
        by_action = csr_array((np.ones(len(rows)), (self.actions, rows)), shape=(self.count, len(rows))) @ values
        return np.asarray(self.table.T @ by_action if self.table.shape[1] else by_action)


@dataclass(frozen=True)
class HalvedRows:
    """A sample with its rows in one order, cut in halves: `order` (R,) rows, `z` (R, q) coordinates in that order.

    The first `leading` coordinates are directions of preference. `due` (R, q) is z less its expectation given the
    actions that came before, where actions come once each, drawn with the weights `drawn` (A,); else it is z.
    """

    sample: ResidualSample
    order: Ints
    z: Floats
    leading: int
    due: Floats
    drawn: Floats  # (0,) where actions may come again

    @classmethod
    def of(cls, sample: ResidualSample, *, shuffled: bool) -> HalvedRows:
        """The view in time, or after a shuffle that depends on user and position alone."""
        order, drawn = _shuffled(sample) if shuffled else np.arange(len(sample.residual)), np.zeros(0)
        if sample.once:
            drawn = residual_drawing_weights(sample.actions[order], sample.window, sample.count)
        directions, leading = _residual_directions(sample, order, residual_halves(sample.window))
        return cls._of(sample, order, drawn, directions, leading)

    def along(self, directions: Floats) -> HalvedRows:
        """The same order along other directions (dim, q), all of them of preference."""
        return HalvedRows._of(self.sample, self.order, self.drawn, directions, directions.shape[1])

    @classmethod
    def _of(cls, sample: ResidualSample, order: Ints, drawn: Floats, directions: Floats, leading: int) -> HalvedRows:
        z, told = _whitened(sample, directions, leading)
        z = z[order]
        due = z - _expected(z, sample.actions[order], drawn, sample) if sample.once else z
        return cls(sample, order, z, told, due, drawn)

    @property
    def residual(self) -> Floats:
        """Residuals in this order."""
        return self.sample.residual[self.order]

    @property
    def preferences(self) -> Floats:
        """Coordinates (R, leading) along the directions of preference."""
        return self.z[:, : self.leading]

    @property
    def sizes(self) -> tuple[Ints, Ints]:
        """Rows of the first and of the second half of each user."""
        return self.sample.window // 2, self.sample.window - self.sample.window // 2

    def sums(self, values: Floats) -> tuple[Floats, Floats]:
        """Sums over the first and the second halves of values (R, q): (n, q) each."""
        both = np.add.reduceat(values, residual_halves(self.sample.window), axis=0)
        return both[::2], both[1::2]

    def beyond_attributes(self, sums: Floats, rows: Ints) -> Floats:
        """Sums (n, q) over `rows` (n,) rows of each user, without what the user's attributes tell of their means."""
        x = self.sample.attributes
        if not x.shape[1]:
            return sums
        means, design = sums / rows[:, None], np.column_stack([np.ones(len(x)), x])
        return np.asarray((means - design @ np.linalg.lstsq(design, means, rcond=1e-9)[0]) * rows[:, None])

    def paid(self, *, level: bool) -> Floats:
        """e z, and e itself in front with `level`: (R, q)."""
        e = self.residual[:, None]
        return np.hstack([e, e * self.preferences]) if level else e * self.preferences


def _scaled(values: Floats) -> Floats:
    """The values over the largest of them, so that no product of a few of them overflows."""
    largest = float(np.abs(values).max()) if values.size else 0.0
    return values / largest if largest > 0 else values


def residuals(reward: Floats, features: Floats, actions: Ints, count: int) -> Floats:
    """What is left of rewards (R,) when everything common to all users is taken away."""
    left = reward - reward.mean() if len(reward) else reward
    if features.shape[1] and len(left):
        with_one = np.column_stack([features, np.ones(len(left))])
        gram = with_one.T @ with_one
        left = left - with_one @ (np.linalg.pinv(gram, hermitian=True) @ (with_one.T @ left))
    if len(actions):
        counts, sums = np.bincount(actions, minlength=count), np.bincount(actions, weights=left, minlength=count)
        left = left - (sums / np.maximum(counts, 1))[actions]
    return np.asarray(left)


def _residual_directions(sample: ResidualSample, order: Ints, halves: Ints) -> tuple[Floats, int]:
    """Directions (dim, q), those of preference first, and how many these are.

    With few features all of them are looked at.
    """
    if sample.dim <= LEADING:
        return np.eye(sample.dim), sample.dim
    fill = min(sample.dim, 2 * LEADING + RANDOM)
    start = _random_residual_directions(sample.dim, fill)
    e = sample.residual[order][:, None]
    back = np.empty((len(e), fill))
    back[order] = e * residual_sums_of_others(e * sample.project(start)[order], halves)
    leading = np.linalg.svd(sample.spread_out(back), full_matrices=False)[0][:, :LEADING]
    return np.hstack([leading, start[:, : LEADING + RANDOM]]), LEADING


def residual_sums_of_others(values: Floats, halves: Ints) -> Floats:
    """Sums (R, q) of values over the other rows of the same half; halves (2 n,) begin where `halves` says."""
    counts = np.diff(np.append(halves, len(values)))
    return np.asarray(np.repeat(np.add.reduceat(values, halves, axis=0), counts, axis=0) - values)


@dataclass(frozen=True)
class AgreementOfHalves:
    """How weighted, centred features of the rows of a half agree: `times` is a matrix of which these are products.

    Of rows with weights w and features phi, whose means are m, that is the sum over pairs of different rows of one half
    of w (phi - m) w' (phi' - m)^T. Where rows name actions, sums over the rows of a half and action come first.
    """

    sample: ResidualSample
    weights: Floats  # (R,)
    order: Ints
    mean: Floats  # (dim,)

    @cached_property
    def _halves(self) -> tuple[csr_array, Floats, Floats]:
        """Sums of weights of each half and action (2 n, A), of each half (2 n, 1), and of squares of each action."""
        sample, begin = self.sample, residual_halves(self.sample.window)
        ends = np.append(begin, len(self.order))
        shape, actions = (len(begin), sample.count), sample.actions[self.order]
        sums = csr_array((self.weights[self.order], actions, ends), shape=shape)
        squares = np.bincount(sample.actions, weights=self.weights**2, minlength=sample.count)
        totals = np.add.reduceat(self.weights[self.order], begin)
        return sums, totals[:, None], np.asarray(squares[:, None], dtype=np.float64)

    def times(self, basis: Floats) -> Floats:
        """The matrix (dim, dim) times a basis (dim, q)."""
        sample = self.sample
        if sample.features.shape[1]:
            weight = self.weights[self.order][:, None]
            seen = weight * (sample.project(basis) - self.mean @ basis)[self.order]
            back = np.empty_like(seen)
            back[self.order] = weight * residual_sums_of_others(seen, residual_halves(sample.window))
            return np.asarray(sample.spread_out(back) - np.outer(self.mean, back.sum(axis=0)))
        sums, totals, squares = self._halves
        centre = self.mean @ basis
        own = sample.table @ basis if sample.table.shape[1] else basis
        found = sums.T @ (sums @ own - totals * centre) - squares * (own - centre)
        whole = found.sum(axis=0)
        return np.asarray((sample.table.T @ found if sample.table.shape[1] else found) - np.outer(self.mean, whole))


def residual_drawing_weights(actions: Ints, window: Ints, count: int) -> Floats:
    """Weights (count,) with which actions are drawn, one after another and none twice, summing to 1.

    Plackett and Luce's model, by the iteration of Hunter (2004) from the shares shown.
    """
    shown = np.bincount(actions, minlength=count)
    weights = shown / shown.sum()
    for _ in range(ROUNDS):
        left = 1.0 / np.maximum(1.0 - _before(weights[actions][:, None], window)[:, 0], ROUNDING)
        later = np.repeat(np.add.reduceat(left, _starts(window)), window) - _before(left[:, None], window)[:, 0] - left
        missed = np.bincount(actions, weights=later, minlength=count)
        weights = shown / np.maximum(left.sum() - missed, ROUNDING)
        weights /= weights.sum()
    return np.asarray(weights)


def _expected(z: Floats, actions: Ints, weights: Floats, sample: ResidualSample) -> Floats:
    """E[z of a row | the actions before it], (R, q), where actions come once each, by their drawing weights (A,)."""
    rows = np.arange(len(actions))
    sums = csr_array((np.ones(len(rows)), (actions, rows)), shape=(sample.count, len(rows))) @ z
    weighted = weights[:, None] * sums / np.maximum(np.bincount(actions, minlength=sample.count), 1)[:, None]
    gone, taken = _before(weights[actions][:, None], sample.window), _before(weighted[actions], sample.window)
    return np.asarray((weighted.sum(axis=0) - taken) / np.maximum(1.0 - gone, ROUNDING))


def _before(values: Floats, window: Ints) -> Floats:
    """Sums (R, q) of the values of a user's earlier rows."""
    total = np.cumsum(values, axis=0) - values
    return np.asarray(total - np.repeat(total[_starts(window)], window, axis=0))


def _starts(window: Ints) -> Ints:
    return np.cumsum(window) - window


def residual_halves(window: Ints) -> Ints:
    """Where the halves begin, (2 n,): the first of a user, then the second."""
    starts = _starts(window)
    return np.stack([starts, starts + window // 2], axis=1).ravel()


def _shuffled(sample: ResidualSample) -> Ints:
    """Rows of each user in an order drawn from user and position."""
    inside = np.arange(len(sample.residual)) - np.repeat(_starts(sample.window), sample.window)
    lottery = mix_user_hashes(
        np.repeat(sample.hashes.view(np.uint64), sample.window) ^ mix_user_hashes(inside.astype(np.uint64))
    )
    return np.lexsort((lottery, sample.user))


def _whitened(sample: ResidualSample, directions: Floats, leading: int) -> tuple[Floats, int]:
    """Coordinates (R, q) of mean 0, variance 1 and no correlation over rows, and how many belong to the leading ones.

    Directions that say nothing are dropped. By Gram and Schmidt, so that the first coordinates span the first
    directions.
    """
    raw = sample.project(directions)
    raw = raw - raw.mean(axis=0)
    gram = raw.T @ raw / max(len(raw), 1)
    told = _independent(gram)
    if not told.any():
        return np.zeros((len(raw), 0)), 0
    lower = np.linalg.cholesky(gram[np.ix_(told, told)])
    return np.asarray(raw[:, told] @ np.linalg.inv(lower).T), int(told[:leading].sum())


def _independent(gram: Floats) -> Bools:
    """Which columns (q,) are no combination of those before them."""
    told, rest = np.zeros(len(gram), dtype=np.bool_), gram.copy()
    limit = 1e-6 * np.maximum(np.diag(gram), 1e-300)
    top = float(np.diag(gram).max()) if len(gram) else 0.0
    for i in range(len(gram)):
        pivot = rest[i, i]
        if pivot > limit[i] and pivot > 1e-12 * top:
            told[i] = True
            rest = rest - np.outer(rest[:, i], rest[i]) / pivot
    return told
