"""What attributes of users say of their preferences: beta = m + B x + L z, given m, L and variances.

With attributes x of a user (encoded, mean zero), rewards are r = X (m + B x) + X L z + noise, z ~ N(0, I). Given m, L
and the variances the log-likelihood is quadratic in B. Write B = Q T for directions Q (d, q): B acts through the shared
directions, Q = L and T = Gamma, and, where that predicts held-out users better, along every feature by itself too,
Q = [L, c I]. Of each user two small arrays are needed,

    A = Q^T X^T S^-1 X Q  (q, q),      b = Q^T X^T S^-1 (r - X m - o)  (q,),

S the covariance of the noise. With K the covariance of the user's own z in these directions (I for L, 0 beyond it),
the user adds  H = (I + A K)^-1 A (x) x x^T  to the information about T and  g = (I + A K)^-1 b x^T  to its score; the
maximum of the likelihood with T_ij ~ N(0, tau_j^2) solves one linear system. Attributes are chosen by m, L and the
variances of the fit without them; those that stay are then fitted together with m, L and the variances (`joint`).

**Clicks.** Where rewards go through log-odds, rows are replaced by sites of expectation propagation: a Gaussian reward
each, of log-odds (`em.binary_likelihood.information_of`). A and b follow from them as above; H and g are then the
curvature and the slope of the marginal likelihood, up to the approximation. Sites depend on T: attributes are chosen by
those at T = 0, and T is found by `NEWTON` steps of them.

**Which attributes stay, and how much they are shrunk.** H and g are added up by fold of users, in one pass. The gain in
log-likelihood of held-out users by a T that was fitted without them is g.T - T.H T / 2, so no further pass is needed to
try attributes and shrinkages: attributes are added one after another, each as long as held-out users are predicted
better, beyond doubt. Attributes that say nothing are left out, and the fit is then the one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.special import stdtrit

from newcomer.arrays import Bools, Floats, Ints
from newcomer.em import binary_likelihood
from newcomer.em.likelihood import likelihood_information
from newcomer.em.passes import Passes
from newcomer.encoding import Column
from newcomer.evidence import AttributeGain
from newcomer.logs.attributes import UserTable
from newcomer.logs.batch import Batch
from newcomer.population import AttributePrior, Population
from newcomer.users import user_bucket_count, user_buckets

FOLDS = 16  # of users, by whom attributes are chosen
DOUBT = 0.05  # probability with which attributes that say nothing are taken, all of them together
SHRINKAGES = (0.05, 0.15, 0.5)  # tau of effects along shared directions, whose coordinates have variance one
FREE = (0.01, 0.03, 0.1)  # tau of effects along single features, in deviations of the noise
FREE_OF_CLICKS = (0.03, 0.1, 0.3)  # the same of log-odds, whose effects are larger beside their noise
NEWTON = 2  # steps to the effects of clicks, whose sites depend on them
MOST = 800  # unknowns q p
CHUNK = 1 << 22  # entries of the arrays A that are held at a time


@dataclass(frozen=True)
class AttributeTask:
    """A population, the directions Q (d, q) whose first `own` are L, and the buckets (B,) of users to be added up.

    With `clicks` it is one of log-odds; the information is then that around `effects` T (q, p), zero where None.
    """

    population: Population
    directions: Floats
    own: int
    fitted: Bools
    clicks: bool = False
    effects: Floats | None = None

    @property
    def shared(self) -> Floats:
        """Gamma (k, p) of the effects: those through the directions of the population."""
        assert self.effects is not None
        found = np.zeros((self.population.rank, self.effects.shape[1]))
        found[: self.own] = self.effects[: self.own]
        return found

    @property
    def single(self) -> Floats | None:
        """F (d, p) of the effects: those along single features; None where there are none."""
        assert self.effects is not None
        return self.directions[:, self.own :] @ self.effects[self.own :] if len(self.effects) > self.own else None

    @property
    def total(self) -> Floats:
        """B = Q T (d, p)."""
        assert self.effects is not None
        return self.directions @ self.effects

    def information(self, batch: Batch, some: Ints, x: Floats) -> tuple[Floats, Floats]:
        """A (n, q, q) and b (n, q) of some users of a batch, whose attributes are x (n, p)."""
        if not self.clicks:
            return likelihood_information(batch, some, replace(self.population, factor=self.directions))
        at = np.zeros((len(some), self.directions.shape[1])) if self.effects is None else x @ self.effects.T
        return binary_likelihood.binary_likelihood_information(batch, some, self.population, self.directions, at)


@dataclass(frozen=True)
class Information:
    """By fold of users: how many, H (F, q p, q p) and g (F, q p); entry i p + j is of direction i and attribute j."""

    users: Ints
    precision: Floats
    score: Floats

    def __add__(self, other: Information) -> Information:
        return Information(self.users + other.users, self.precision + other.precision, self.score + other.score)


@dataclass(frozen=True)
class AllInformation:
    """The same for several tasks."""

    each: tuple[Information, ...]

    def __add__(self, other: AllInformation) -> AllInformation:
        return AllInformation(tuple(a + b for a, b in zip(self.each, other.each, strict=True)))


@dataclass(frozen=True)
class AttributeFit:
    """The prior of z with the attributes that stay, the factor (d, k) whose coordinates it is about, and the population
    given attributes.
    """

    prior: AttributePrior
    factor: Floats
    population: Population


def add_up_attribute_information(
    batch: Batch, tasks: tuple[AttributeTask, ...], prior: AttributePrior, entries: tuple[int, ...], folds: int = FOLDS
) -> AllInformation:
    """The information of each task about some entries of attributes over the users of a batch: the map of a pass."""
    assert batch.attributes is not None
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    x = prior.completed(batch.attributes[:, list(entries)])
    return AllInformation(tuple(_of_task(batch, task, task.fitted[where], x, where % folds, folds) for task in tasks))


def _of_task(batch: Batch, task: AttributeTask, chosen: Bools, x: Floats, fold: Ints, folds: int) -> Information:
    """The information about T of the chosen users."""
    size, width = task.directions.shape[1], x.shape[1]
    who = np.flatnonzero(chosen & x.any(axis=1))
    unknowns = size * width
    counts, room = np.bincount(fold[chosen], minlength=folds), np.zeros((folds, unknowns, unknowns))
    total = Information(counts, room, np.zeros((folds, unknowns)))
    for some in np.array_split(who, max(1, len(who) * size**2 // CHUNK)):
        if not len(some):
            continue
        a, b = task.information(batch, some, x[some])
        own = np.eye(size)[:, : task.own]
        system = np.eye(size) + a @ own @ own.T
        solved = np.linalg.solve(system, np.concatenate([a, b[:, :, None]], axis=2))
        for number in np.unique(fold[some]):
            here = fold[some] == number
            y, one = x[some][here], solved[here]
            squares = np.einsum("ni,nj->nij", y, y).reshape(len(y), -1)
            both = one[:, :, :size].reshape(len(y), -1).T @ squares
            total.precision[number] += _paired(both, size, width)
            total.score[number] += (one[:, :, size].T @ y).ravel()
    return total


def _paired(both: Floats, size: int, width: int) -> Floats:
    """(q q, p p) sums as (q p, q p)."""
    return both.reshape(size, size, width, width).transpose(0, 2, 1, 3).reshape(size * width, size * width)


def fit_attributes(
    passes: Passes,
    population: Population,
    apart: Sequence[tuple[Population, Bools]],
    *,
    clicks: bool = False,
    join: Callable[[AttributeEffects], Sequence[Population]] | None = None,
) -> tuple[AttributeFit | None, Sequence[AttributeFit | None], tuple[AttributeGain, ...]]:
    """Effects of the attributes of the logs' users: for everybody, and for fits that users of some buckets were held
    out of. None where no attribute predicts held-out users better; what each of them gained is told either way. With
    `clicks` populations are of log-odds. `join` finds all populations again, together with the effects (`em.joint`).
    """
    people, logs = passes.logs.people, passes.logs
    assert people is not None
    every = np.ones(user_bucket_count(logs.dim), dtype=np.bool_)
    free = (population.rank + logs.dim) * people.width <= MOST
    square = 1.0 if logs.one_hot else logs.summary.mean_squared_norm / logs.dim  # of a feature, on average
    unit = float(np.sqrt(population.noise_variance / max(square, 1e-300))) if free else 0.0
    # Attributes are chosen with missing values at their mean: what others say of them counts as theirs.
    nothing = AttributePrior(np.zeros((0, people.width)), np.zeros((people.width, people.width)))
    task, whole = _task(population, every, people.width, unit, clicks), tuple(range(people.width))
    found: AllInformation = passes.run(
        partial(add_up_attribute_information, tasks=(task,), prior=nothing, entries=whole), _merge
    )
    chosen = _choose(found.each[0], task, people.columns)
    if not chosen.order:
        return None, [None] * len(apart), _gains(chosen, people)
    entries = np.flatnonzero(chosen.shared + chosen.single).tolist()
    kept = replace(chosen, shared=chosen.shared[entries], single=chosen.single[entries])
    prior = AttributePrior(np.zeros((0, len(entries))), people.covariance[np.ix_(entries, entries)])
    effects = AttributeEffects(
        kept, tuple(entries), prior, people.width, unit if chosen.single.any() else 0.0, clicks=clicks
    )
    populations = [population, *(one for one, _ in apart)] if join is None else join(effects)
    fitted = [every, *(~judged for _, judged in apart)]
    fits = [effects.fit(one) for one in effects.solved(passes, effects.tasks(populations, fitted))]
    return fits[0], fits[1:], _gains(chosen, people, fits[0])


def _merge(a: AllInformation, b: AllInformation) -> AllInformation:
    return a + b


def _task(population: Population, fitted: Bools, width: int, unit: float, clicks: bool) -> AttributeTask:
    """The directions along which effects are looked for; `unit` that of effects of single features, 0 for none."""
    own = min(population.rank, max(1, MOST // width))
    shared = population.factor[:, :own]
    single = unit * np.eye(len(population.mean)) if unit else np.zeros((len(population.mean), 0))
    return AttributeTask(population, np.column_stack([shared, single]), own, fitted, clicks)


@dataclass(frozen=True)
class AttributeEffects:
    """The attributes that stay: their `entries` among all `width`, how much effects are shrunk (`kept`), and what is
    expected of missing entries (`prior`). `unit` is that of effects along single features, 0 where there are none.
    """

    kept: Choice
    entries: tuple[int, ...]
    prior: AttributePrior
    width: int
    unit: float
    clicks: bool = False

    def tasks(self, populations: Sequence[Population], fitted: Sequence[Bools]) -> list[AttributeTask]:
        """The directions of effects in each population, for the users in `fitted` buckets."""
        both = zip(populations, fitted, strict=True)
        return [_task(one, who, self.width, self.unit, self.clicks) for one, who in both]

    def solved(self, passes: Passes, tasks: Sequence[AttributeTask]) -> list[AttributeTask]:
        """The tasks with the effects T of highest penalised likelihood, given their populations."""
        for _ in range(NEWTON if self.clicks else 1):
            look = partial(add_up_attribute_information, tasks=tuple(tasks), prior=self.prior, entries=self.entries)
            found: AllInformation = passes.run(partial(look, folds=1), _merge)
            both = zip(tasks, found.each, strict=True)
            tasks = [replace(task, effects=_solved(task, sums, self.kept)) for task, sums in both]
        return list(tasks)

    def penalty(self, task: AttributeTask) -> float:
        """What is believed beforehand of the effects T of a task: their log density, up to a constant."""
        assert task.effects is not None
        taus = self.kept.taus(task.own, task.directions.shape[1])
        return -0.5 * float(((task.effects[taus > 0] / taus[taus > 0]) ** 2).sum())

    def fit(self, task: AttributeTask) -> AttributeFit:
        """The prior of the users of a task, over all people and given their attributes."""
        factor, spread = task.population.factor, self.prior.covariance
        return AttributeFit(*population_with_attributes(factor, task.total, spread), task.population)


@dataclass(frozen=True)
class Choice:
    """Shrinkage tau of the entries of attributes (p,), along shared directions and along single features; zero: left
    out. `gains` are the gain and its certainty by name, `order` the names of those that stay.
    """

    shared: Floats
    single: Floats
    gains: dict[str, tuple[float, float]] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def taus(self, own: int, size: int) -> Floats:
        """The shrinkage (q, p) of every direction and entry."""
        return np.concatenate([np.tile(self.shared, (own, 1)), np.tile(self.single, (size - own, 1))])


def _choose(sums: Information, task: AttributeTask, columns: Sequence[Column]) -> Choice:
    """Through the shared directions alone, or along single features too, whichever predicts held-out users better.

    Single features have many more unknowns: they are taken where the gain is clear.
    """
    size, own = task.directions.shape[1], task.own
    shared = _forward(sums, own, size, columns, ((tau, 0.0) for tau in SHRINKAGES))
    if size == own:
        return shared
    both = _forward(
        sums, own, size, columns, ((SHRINKAGES[1], tau) for tau in (FREE_OF_CLICKS if task.clicks else FREE))
    )
    difference = heldout_attribute_gains(sums, both.taus(own, size)) - heldout_attribute_gains(
        sums, shared.taus(own, size)
    )
    return both if _certainty(difference) > _needed(1) else shared


def _forward(
    sums: Information, own: int, size: int, columns: Sequence[Column], shrinkages: Iterable[tuple[float, float]]
) -> Choice:
    """Add attributes one after another while held-out users are predicted better, beyond doubt."""
    width, grid = sum(one.width for one in columns), tuple(shrinkages)
    chosen, now = Choice(np.zeros(width), np.zeros(width)), np.zeros(FOLDS)
    while len(chosen.order) < len(columns):
        trials = []
        for name, place in attribute_places(columns).items():
            for pair in grid if name not in chosen.order else ():
                shared, single = chosen.shared.copy(), chosen.single.copy()
                shared[place], single[place] = pair
                trial = replace(chosen, shared=shared, single=single, order=(*chosen.order, name))
                gain = heldout_attribute_gains(sums, trial.taus(own, size))
                trials.append((float((gain - now).sum()), name, trial, gain))
        told = dict(chosen.gains)
        for total, name, _, gain in sorted(trials, key=lambda trial: trial[0]):
            told[name] = total, _certainty(gain - now)
        total, name, best, gain = max(trials, key=lambda trial: trial[0])
        chosen = replace(chosen, gains=told)
        if total <= 0 or told[name][1] < _needed(len(columns)):
            break
        chosen, now = replace(best, gains=told), gain
    return chosen


def heldout_attribute_gains(sums: Information, taus: Floats) -> Floats:
    """Gain in log-likelihood (F,) of each fold's users by effects that were fitted without them, shrunk by taus (q, p).

    >>> one = Information(np.ones(2), np.full((2, 1, 1), 3.0), np.full((2, 1), 3.0))
    >>> heldout_attribute_gains(one, np.ones((1, 1))).tolist()
    [1.40625, 1.40625]
    """
    used = np.flatnonzero(taus.ravel())
    if not len(used):
        return np.zeros(len(sums.users))
    precision, score = sums.precision[:, used[:, None], used], sums.score[:, used]
    others = precision.sum(axis=0) - precision + np.diag(1.0 / taus.ravel()[used] ** 2)
    effects = np.linalg.solve(others, (score.sum(axis=0) - score)[:, :, None])[:, :, 0]
    gain = (score * effects).sum(axis=1) - 0.5 * np.einsum("fi,fij,fj->f", effects, precision, effects)
    return np.asarray(gain)


def _certainty(gains: Floats) -> float:
    """Standard errors by which the mean over folds exceeds zero."""
    spread = float(gains.std(ddof=1))
    return float(gains.mean() / spread * np.sqrt(len(gains))) if spread > 0 else 0.0


def _needed(attributes: int) -> float:
    """Standard errors that a gain must have, where so many attributes are tried."""
    return float(stdtrit(FOLDS - 1, 1.0 - DOUBT / max(attributes, 1)))


def attribute_places(columns: Sequence[Column]) -> dict[str, slice]:
    """Where the entries of each attribute are."""
    ends = np.cumsum([one.width for one in columns])
    return {one.name: slice(int(end) - one.width, int(end)) for one, end in zip(columns, ends, strict=True)}


def _solved(task: AttributeTask, sums: Information, chosen: Choice) -> Floats:
    """The effects T (q, p) by all users of the sums."""
    shape = task.directions.shape[1], len(chosen.shared)
    taus = chosen.taus(task.own, shape[0]).ravel()
    used = np.flatnonzero(taus)
    precision = sums.precision.sum(axis=0)[used[:, None], used] + np.diag(1.0 / taus[used] ** 2)
    found = np.zeros(len(taus))
    found[used] = np.linalg.solve(precision, sums.score.sum(axis=0)[used])
    return found.reshape(shape)


def population_with_attributes(factor: Floats, effects: Floats, covariance: Floats) -> tuple[AttributePrior, Floats]:
    """The factor W (d, k) of users' covariance L L^T + B C B^T over all people, and the prior of its coordinates.

    With beta = m + B x + L z and W = U s, the coordinates U^T (beta - m) / s have the identity as their covariance over
    people, and given x the mean s^-1 U^T B x.

    >>> prior, factor = population_with_attributes(np.array([[0.8]]), np.array([[0.6]]), np.eye(1))
    >>> abs(factor).round(6).tolist(), (factor @ prior.effects).round(6).tolist()
    ([[1.0]], [[0.6]])
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.where(
        values > 1e-13 * values.max(initial=0.0), values, 0.0
    )  # levels that sum to one: rounding, no more
    root = vectors * np.sqrt(values)
    left, lengths, _ = np.linalg.svd(np.column_stack([factor, effects @ root]), full_matrices=False)
    kept = lengths > 1e-9 * max(float(lengths[0]) if len(lengths) else 0.0, 1e-300)
    left, lengths = left[:, kept], lengths[kept]
    return AttributePrior((left.T @ effects) / lengths[:, None], covariance), left * lengths


def _gains(chosen: Choice, people: UserTable, fit: AttributeFit | None = None) -> tuple[AttributeGain, ...]:
    """What is told of each attribute: what held-out users gained, and how much of users' differences it explains."""
    found, begin = [], 0
    for column in people.columns:
        total, certainty = chosen.gains.get(column.name, (0.0, 0.0))
        kept, share = column.name in chosen.order, 0.0
        if kept and fit is not None:
            place = slice(begin, begin + column.width)
            effects = fit.factor @ fit.prior.effects[:, place]
            spread = effects @ fit.prior.covariance[place, place] @ effects.T
            share, begin = float(np.trace(spread)) / max(float((fit.factor**2).sum()), 1e-300), begin + column.width
        found.append(AttributeGain(column.name, total / max(people.users, 1), certainty, kept, share))
    return tuple(found)
