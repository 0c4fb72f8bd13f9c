"""Weak directions: a full covariance of rewards by MAP-EM, averaged with the low-rank fit.

A fit keeps the directions that held-out users clearly call for and drops the many weak ones. With one-hot features and
few enough actions the whole covariance Sigma (A, A) of a user's rewards can be estimated instead, without a rank: the
first rewards y_o of the distinct actions o that user n met are normal with mean m_o and covariance C_n = Sigma_oo, and
the others are missing. With an inverse-Wishart prior of A degrees of freedom around T = diag(Sigma) of the fit, a step
of EM is

    Sigma <- Sigma + [A (T - Sigma) + Sigma (W - G) Sigma] / (A + N),
    G = sum_n P_n^T C_n^-1 P_n,   W = sum_n P_n^T w_n w_n^T P_n,   w_n = C_n^-1 (y_o - m_o),

P_n the rows of the identity for o: two (A, A) sums over users, a pass over the logs. `STEPS` steps are taken from the
fit's own L L^T + diag(v). By itself the result is noisy where L L^T is too simple, and their mean is better than either
on tables of real people (docs/explanation/people.md): the shared part becomes the leading `MOST` directions of

    (L L^T + Sigma - diag(v)) / 2,

and what the others explained is left to the residual variance. It is used only if held-out users, fitted without them,
are predicted at least as well as by the fit.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.em.fit import FittedPopulation
from newcomer.em.likelihood import Comparison, compare_likelihoods
from newcomer.em.model_selection import SURE, model_selection_clarity
from newcomer.em.passes import Passes
from newcomer.evidence import WeakDirections
from newcomer.logs.batch import Batch
from newcomer.population import AttributePrior, Population
from newcomer.users import user_bucket_count, user_buckets

STEPS = 8  # of EM, a pass each
MOST = 32  # directions kept: states of users grow with their square
WORK = 1e9  # cubes of lengths of histories, summed over users and fits: above it the steps cost more than the fit
FEW = 8  # leading directions among which the fewest that do as well are looked for
CHUNK = 1 << 20  # entries of covariances of users that are inverted at a time
ACTIONS = 1000  # more would make the A x A products of a step slow


@dataclass(frozen=True)
class Whole:
    """A covariance of rewards (A, A), the population whose mean and noise it goes with, and the buckets it is for."""

    covariance: Floats
    population: Population
    fitted: Bools

    @property
    def target(self) -> Floats:
        """T: no action says anything of another."""
        fit = self.population
        return np.diag(np.einsum("ak,ak->a", fit.factor, fit.factor) + fit.variances)

    def stepped(self, sums: ScatterSums) -> Whole:
        """The next covariance."""
        sigma, prior = self.covariance, float(len(self.covariance))
        change = prior * (self.target - sigma) + sigma @ (sums.scatter - sums.precision) @ sigma
        after = sigma + change / (prior + sums.users)
        return replace(self, covariance=(after + after.T) / 2)

    def averaged(self) -> Population:
        """The fit's population with the mean of both covariances, its leading directions, and the rest as residual."""
        fit = self.population
        shared = (fit.factor @ fit.factor.T + self.covariance - np.diag(fit.variances)) / 2
        values, vectors = np.linalg.eigh(shared)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        factor, dropped = vectors[:, :MOST] * np.sqrt(values[:MOST]), vectors[:, MOST:] * np.sqrt(values[MOST:])
        rest = np.einsum("ak,ak->a", dropped, dropped)
        variances = fit.variances + rest
        noise = fit.noise_variance * float(variances.mean() / fit.variances.mean())
        living = values[:MOST] > 0
        return replace(fit, factor=factor[:, living], by_action=variances, noise_variance=noise)


@dataclass(frozen=True)
class ScatterSums:
    """The sums G (`precision`) and W (`scatter`), (A, A) each, over some users."""

    users: int
    precision: Floats
    scatter: Floats

    def __add__(self, other: ScatterSums) -> ScatterSums:
        return ScatterSums(self.users + other.users, self.precision + other.precision, self.scatter + other.scatter)


@dataclass(frozen=True)
class AllProducts:
    """The same for several covariances."""

    each: tuple[ScatterSums, ...]

    def __add__(self, other: AllProducts) -> AllProducts:
        return AllProducts(tuple(a + b for a, b in zip(self.each, other.each, strict=True)))


def full_covariance_products(batch: Batch, wholes: tuple[Whole, ...]) -> AllProducts:
    """The sums of each covariance over the users of a batch that it is for: the map of a pass."""
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    met = _first_meetings(batch, len(wholes[0].covariance))
    return AllProducts(tuple(_products(met, whole, whole.fitted[where]) for whole in wholes))


@dataclass(frozen=True)
class _Met:
    """The distinct actions that users met and their first rewards, sorted by user; `lengths` are those of each user."""

    actions: Ints
    rewards: Floats
    lengths: Ints


def _first_meetings(batch: Batch, actions: int) -> _Met:
    assert batch.actions is not None
    users = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
    cells, first = np.unique(users * actions + batch.actions, return_index=True)
    lengths = np.bincount(cells // actions, minlength=len(batch.lengths))
    return _Met(cells % actions, batch.rewards[first], lengths.astype(np.int64))


def _products(met: _Met, whole: Whole, chosen: Bools) -> ScatterSums:
    """G and W of the chosen users; those who met equally many actions together."""
    sigma, mean = whole.covariance, whole.population.mean
    size, starts = len(sigma), np.concatenate([[0], np.cumsum(met.lengths)])
    precision, scatter = np.zeros(size * size), np.zeros(size * size)
    for length in np.unique(met.lengths[chosen]):
        who = np.flatnonzero(chosen & (met.lengths == length))
        for some in np.array_split(who, max(1, len(who) * int(length) ** 2 // CHUNK)):
            rows = starts[some][:, None] + np.arange(length)
            at = met.actions[rows]
            inverse = np.linalg.inv(sigma[at[:, :, None], at[:, None, :]])
            pull = np.einsum("nij,nj->ni", inverse, met.rewards[rows] - mean[at])
            cells = (at[:, :, None] * size + at[:, None, :]).ravel()
            precision += np.bincount(cells, weights=inverse.ravel(), minlength=size * size)
            outer = pull[:, :, None] * pull[:, None, :]
            scatter += np.bincount(cells, weights=outer.ravel(), minlength=size * size)
    return ScatterSums(int(chosen.sum()), precision.reshape(size, size), scatter.reshape(size, size))


def full_covariance_of_fit(population: Population, fitted: Bools) -> Whole:
    """Where EM begins: the covariance of rewards that the fit itself has."""
    covariance = population.factor @ population.factor.T + np.diag(population.variances)
    return Whole(covariance, population, fitted)


def full_covariance_cost(batch: Batch) -> float:
    """Cubes of the lengths of histories, summed over users: what inverting their covariances costs."""
    return float((batch.lengths.astype(np.float64) ** 3).sum())


def with_full_covariance(fitted: FittedPopulation) -> FittedPopulation:
    """The fit with its weak directions, where they can be had and held-out users are predicted at least as well.

    Where the fit found no direction this is a second chance, so the gain over the population mean has to be clear by
    `SURE` standard errors; the directions said to be shared are then the fewest that do as well as all.
    """
    passes, fit = fitted.chosen, fitted.population
    logs = passes.logs
    plain = logs.one_hot and not logs.intercept and fit.by_action is not None and logs.dim <= ACTIONS
    if not plain or fit.rank == logs.dim or fitted.facts.sample is not None or not fitted.held_out:
        return fitted
    if passes.run(full_covariance_cost, operator.add) * (1 + len(fitted.held_out)) > WORK:
        return fitted
    population, apart = _averaged(passes, fit, fitted.held_out)
    judged = tuple(buckets for _, buckets in fitted.held_out)
    ranks = () if fit.rank else tuple(range(1, min(population.rank, FEW) + 1))
    gram = fitted.pairs.gram.sum(axis=0) / float(fitted.pairs.rows.sum())
    rivals = tuple(
        (one, after, *(after.truncated(gram, rank, fitted.origin.table) for rank in ranks))
        for (one, _), after in zip(fitted.held_out, apart, strict=True)
    )
    found: Comparison = passes.run(partial(compare_likelihoods, rivals=rivals, judged=judged), operator.add)
    both = found.among(slice(0, 2))
    without, gain = (float(total) / both.users for total in both.sums)
    facts = WeakDirections(population.rank, without, gain, float(both.deficits()[1].max()))
    if not full_covariance_is_accepted(both, fit.rank):
        return replace(fitted, facts=replace(fitted.facts, weak=replace(facts, kept=0)))
    directions = fit.rank or _fewest(found.among(slice(1, None)))
    return replace(
        fitted,
        population=population,
        held_out=tuple(zip(apart, judged, strict=True)),
        facts=replace(fitted.facts, weak=facts, directions=directions),
    )


def full_covariance_is_accepted(both: Comparison, rank: int) -> bool:
    """Whether held-out users are predicted at least as well as by the fit; clearly better, where it is their mean."""
    return bool(both.sums[1] >= both.sums[0]) and (rank > 0 or model_selection_clarity(both) > SURE)


def _averaged(
    passes: Passes, fit: Population, held_out: tuple[tuple[Population, Bools], ...]
) -> tuple[Population, list[Population]]:
    """The averages for the fit to everybody and for those without a fold, by `STEPS` passes that all share."""
    every = np.ones(len(held_out[0][1]), dtype=np.bool_)
    wholes = (full_covariance_of_fit(fit, every), *(full_covariance_of_fit(one, ~judged) for one, judged in held_out))
    for _ in range(STEPS):
        found: AllProducts = passes.run(partial(full_covariance_products, wholes=wholes), operator.add)
        wholes = tuple(whole.stepped(sums) for whole, sums in zip(wholes, found.each, strict=True))
    population, *apart = (whole.averaged() for whole in wholes)
    return population, apart


@dataclass(frozen=True)
class KnownMeans:
    """What attributes say of the rewards of users: B x, with B (A, p) for each covariance, and x the `entries` of the
    encoded attributes, completed by `prior`.
    """

    effects: tuple[Floats, ...]
    prior: AttributePrior
    entries: tuple[int, ...]


def full_covariance_known_products(batch: Batch, wholes: tuple[Whole, ...], known: KnownMeans) -> AllProducts:
    """The sums of each covariance, of rewards less what attributes say of them: the map of a pass."""
    assert batch.attributes is not None
    where = user_buckets(batch.hashes, user_bucket_count(batch.dim))
    met = _first_meetings(batch, len(wholes[0].covariance))
    user = np.repeat(np.arange(len(met.lengths)), met.lengths)
    x = known.prior.completed(batch.attributes[:, list(known.entries)])[user]
    left = [replace(met, rewards=met.rewards - np.einsum("ip,ip->i", b[met.actions], x)) for b in known.effects]
    both = zip(left, wholes, strict=True)
    return AllProducts(tuple(_products(one, whole, whole.fitted[where]) for one, whole in both))


def full_covariance_given_attributes(
    passes: Passes, fits: Sequence[tuple[Population, Bools]], known: KnownMeans
) -> list[Population]:
    """Populations with their weak directions, given attributes; each is for the users in its buckets (B,)."""
    wholes = tuple(full_covariance_of_fit(one, fitted) for one, fitted in fits)
    for _ in range(STEPS):
        look = partial(full_covariance_known_products, wholes=wholes, known=known)
        found: AllProducts = passes.run(look, operator.add)
        wholes = tuple(whole.stepped(sums) for whole, sums in zip(wholes, found.each, strict=True))
    return [whole.averaged() for whole in wholes]


def _fewest(found: Comparison) -> int:
    """The fewest leading directions (the first entry has all) within one standard error of the best."""
    deficits, errors = found.deficits()
    good = np.flatnonzero(deficits[1:] <= errors[1:])
    return int(good[0]) + 1 if len(good) else len(deficits) - 1
