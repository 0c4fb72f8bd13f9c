"""Coordinates: where the users of some logs are among all others, and how sure that is.

A model says beta = m + L z with z ~ N(0, I_k). Given a user's rewards, z is Gaussian again, with the mean and the
covariance of em/likelihood.py:

    P = I + A^T S^-1 A,   E[z] = P^-1 A^T S^-1 e,   Cov[z] = P^-1.

A has a row phi^T L for each of the user's rewards, e their residuals from the population mean, and S is their
covariance given z: diagonal, except between rows of the same action, which share the per-action effect.

So a user with no rows is at 0, give or take 1 in every direction, and each row brings the deviation down.

The model asks this module, and not the other way round: a saved model is read and served without anything that reads
logs (`ModelParts` is all that is known of it here).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.arrays import Bools, Floats, Ints
from newcomer.catalogue import Catalogue
from newcomer.em import binary_loops, likelihood_loops
from newcomer.em.binary_likelihood import binary_likelihood_repeats
from newcomer.encoding import Column, translate_encoding
from newcomer.errors import ModelError
from newcomer.evidence import Evidence
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.population import AttributePrior
from newcomer.records import Shown, freeze_record
from newcomer.transforms import Transform, transform_rewards
from newcomer.validate import validate_instance, validate_share


class ModelParts(Protocol):
    """What is read of a model."""

    @property
    def mean(self) -> Floats: ...
    @property
    def factor(self) -> Floats: ...
    @property
    def noise_variance(self) -> float: ...
    @property
    def residual_variance(self) -> Floats: ...
    @property
    def offsets(self) -> Floats: ...
    @property
    def persistence(self) -> float | None: ...
    @property
    def evidence(self) -> Evidence: ...
    @property
    def action_ids(self) -> tuple[int | str, ...] | None: ...
    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def one_hot(self) -> bool: ...
    @property
    def intercept(self) -> bool: ...
    @property
    def reward_transform(self) -> Transform | None: ...
    @property
    def attributes(self) -> tuple[Column, ...]: ...
    @property
    def attribute_prior(self) -> AttributePrior: ...
    @property
    def outcome(self) -> str: ...
    def codes(self, ids: Iterable[int | str]) -> Ints:
        """The place of each action in the catalogue, -1 for unknown ones."""
        ...


@dataclass(frozen=True)
class Coordinates(Shown):
    """Of n users, in the order of their ids: what is known of z, a priori N(0, I_k).

    `users` (n,) are the ids, `rows` (n,) how many rows of each were used, `mean` (n, k) and `covariance` (n, k, k) the
    posterior. A user's reward vector is expected to be `model.mean + model.factor @ mean[i]`.
    """

    users: NDArray[np.generic]
    rows: Ints
    mean: Floats
    covariance: Floats

    def __post_init__(self) -> None:
        freeze_record(self)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def deviation(self) -> Floats:
        """Standard deviations (n, k) of the coordinates, each by itself."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each user: `user`, `rows`, the means `z1`, `z2`, ... and the deviations `sd1`, `sd2`, ..."""
        columns: dict[str, Any] = {"user": self.users.tolist(), "rows": self.rows}
        for letter, values in (("z", self.mean), ("sd", self.deviation)):
            columns |= {f"{letter}{j + 1}": values[:, j] for j in range(values.shape[1])}
        return pl.DataFrame(columns)


def transform_logs(logs: Logs, model: ModelParts, *, persistence: float | None = None) -> Coordinates:
    """The posterior of every user of the logs; `newcomer.Model.transform` tells the rest."""
    validate_instance(logs, Logs, "logs", todo="read them with nc.read_logs", kind=ModelError)
    share = _known_persistence(model) if persistence is None else persistence
    todo = "pass a share from 0 to less than 1, or None"
    share = validate_share(share, "persistence", todo=todo, kind=ModelError)
    found = reduce(logs, partial(transform_batch, prior=UserModel.of(model, logs, share)), _merge_transformed)
    order = np.argsort(found.users, kind="stable")
    return Coordinates(found.users[order], found.rows[order], found.mean[order], found.covariance[order])


def _known_persistence(model: ModelParts) -> float:
    """The share of the residual that is taken to last: the model's, or what its logs seemed to say, or nothing."""
    facts = model.evidence.population
    known = None if facts is None else facts.persistence
    return model.persistence if model.persistence is not None else known.estimate if known else 0.0


@dataclass(frozen=True)
class UserModel:
    """What a model says of the actions of some logs, in the order of `Logs.action_ids` (one entry without actions).

    `product` (A, k + 1) are features times W = [m, L], of actions that the model knows; None where the logs bring
    features, which are multiplied by `weights` (d, k + 1). `known` (A,) says of which actions anything is known.
    """

    weights: Floats
    product: Floats | None
    variance: Floats
    offsets: Floats
    known: Bools
    share: float
    transform: Transform | None = None
    attributes: tuple[Column, ...] = ()
    attribute_prior: AttributePrior | None = None
    outcome: str = "gaussian"

    @classmethod
    def of(cls, model: ModelParts, logs: Logs, share: float) -> UserModel:
        """Find the actions of the logs in the catalogue of the model."""
        weights = np.column_stack([model.mean, model.factor])
        codes = np.array([-1]) if logs.action_ids is None else model.codes(logs.action_ids)
        catalogue = model.catalogue.times(weights) if _by_catalogue(model, logs) else None
        if catalogue is None:
            _check_features(model, logs)
        inside = codes >= 0
        several = len(model.residual_variance) > 1
        told = model.action_ids is not None and len(model.offsets) == len(model.action_ids)
        return cls(
            weights=weights,
            product=None if catalogue is None else np.where(inside[:, None], catalogue[codes], 0.0),
            variance=np.where(inside, model.residual_variance[codes if several else 0], model.noise_variance),
            offsets=np.where(inside, model.offsets[codes], 0.0) if told else np.zeros(len(codes)),
            known=inside if catalogue is not None else np.ones(len(codes), dtype=np.bool_),
            share=0.0 if logs.action_ids is None else share,
            transform=model.reward_transform,
            attributes=model.attributes,
            attribute_prior=model.attribute_prior if model.attributes else None,
            outcome=model.outcome,
        )


def _by_catalogue(model: ModelParts, logs: Logs) -> bool:
    """Whether actions are looked up in the model: their features are there, and the logs bring none of their own."""
    named = model.action_ids is not None and model.catalogue.known
    return named and logs.action_ids is not None and (logs.one_hot or model.one_hot)


def _check_features(model: ModelParts, logs: Logs) -> None:
    """Refuse logs whose features are not those of the model."""
    if model.one_hot and logs.action_ids is None:
        raise ModelError("the model knows actions by their ids and these logs name none", todo="log the column action")
    if logs.one_hot:
        todo = "read the logs with items=, or with features, as those of the fit"
        raise ModelError("the model knows actions by their features and these logs bring none", todo=todo)
    if logs.intercept != model.intercept:
        todo = f"read the logs with intercept={model.intercept}"
        raise ModelError(f"the model was fitted {'with' if model.intercept else 'without'} a constant", todo=todo)
    if logs.dim != len(model.mean):
        todo = "read the logs with the features of the fit"
        raise ModelError(f"the logs have {logs.dim} features and the model {len(model.mean)}", todo=todo)


def transform_batch(batch: Batch, *, prior: UserModel) -> Coordinates:
    """The posteriors of the users of a batch: the map of a pass."""
    actions = np.zeros(len(batch.rewards), dtype=np.int64) if batch.actions is None else np.array(batch.actions)
    users = np.repeat(np.arange(len(batch.users)), batch.lengths)
    rows = np.flatnonzero(prior.known[actions])
    if prior.share > 0:  # rows of one action of a user must be neighbours
        rows = rows[np.lexsort((actions[rows], users[rows]))]
    product, codes = _products(batch, prior, actions)
    counts = np.bincount(users[rows], minlength=len(batch.users))
    ends = np.cumsum(counts)
    left = prior.variance, prior.offsets, prior.share, prior.variance
    rewards = (
        batch.rewards if batch.reward_transform == prior.transform else transform_rewards(batch.paid, prior.transform)
    )
    if prior.outcome == "binary":
        return _clicks(batch, prior, product, codes[rows], actions[rows], rewards[rows], counts)
    seen = likelihood_loops.UserRows(
        np.ascontiguousarray(product), codes[rows], actions[rows], rewards[rows], ends - counts, ends, *left
    )
    size = seen.product.shape[1] - 1
    means, covariances = np.empty((len(counts), size)), np.zeros((len(counts), size, size))
    likelihood_loops.likelihood_coordinates(seen, means, covariances)
    x = _encoded(batch, prior)
    if x is not None and prior.attribute_prior is not None:
        means, covariances = _with_attributes(means, covariances, prior.attribute_prior, x)
    return Coordinates(batch.users, counts, means, covariances)


def _clicks(
    batch: Batch, prior: UserModel, product: Floats, codes: Ints, actions: Ints, rewards: Floats, counts: Ints
) -> Coordinates:
    """The posteriors where rewards are clicks; rows that are sorted by user, `counts` (n,) of each."""
    if ((rewards < 0) | (rewards > 1)).any():
        raise ModelError("the model has outcome 'binary', and rewards outside 0 to 1 are no clicks")
    users, size = np.repeat(np.arange(len(counts)), counts), product.shape[1] - 1
    odds = np.ascontiguousarray(product)
    if prior.offsets.any():
        odds, codes = odds[codes], np.arange(len(codes))
        odds[:, 0] += prior.offsets[actions]
    weights = binary_likelihood_repeats(users, actions, prior.share) if prior.share > 0 else np.ones(len(codes))
    means, covariances = np.zeros((len(counts), size)), np.tile(np.eye(size), (len(counts), 1, 1))
    x = _encoded(batch, prior)
    if x is not None and prior.attribute_prior is not None:
        means, covariances = prior.attribute_prior.given(x)
    ends, nothing, sites = np.cumsum(counts), np.zeros(len(codes)), np.zeros((len(codes), 2))
    means = np.ascontiguousarray(means)
    rows = odds, codes, nothing, np.array(rewards), weights, ends - counts, ends
    binary_loops.binary_coordinates(*rows, means, covariances, sites)
    return Coordinates(batch.users, counts, means, covariances)


def _encoded(batch: Batch, prior: UserModel) -> Floats | None:
    """The attributes (n, p) of the users of a batch as the model takes them; None without."""
    if not prior.attributes or batch.attributes is None:
        return None
    return translate_encoding(batch.attributes, batch.attribute_columns, prior.attributes)


def _with_attributes(means: Floats, covariances: Floats, prior: AttributePrior, x: Floats) -> tuple[Floats, Floats]:
    """Posteriors under the prior given encoded attributes (n, p), from those under N(0, I)."""
    precision, moment = prior.information(x)
    before = np.linalg.inv(covariances)
    after: Floats = np.linalg.inv(before + precision).astype(np.float64)
    total = np.einsum("nij,nj->ni", before, means) + moment
    return np.asarray(np.einsum("nij,nj->ni", after, total)), np.asarray(after)


def _products(batch: Batch, prior: UserModel, actions: Ints) -> tuple[Floats, Ints]:
    """Features times W of the catalogue, or of all rows, and which of these each row has."""
    coded = batch.coded
    if prior.product is not None:
        return prior.product, actions
    if coded is not None:
        return coded.table @ prior.weights, actions
    return batch.features @ prior.weights, np.arange(len(actions))


def _merge_transformed(a: Coordinates, b: Coordinates) -> Coordinates:
    """The users of both."""
    return Coordinates(
        np.concatenate([a.users, b.users]),
        np.concatenate([a.rows, b.rows]),
        np.concatenate([a.mean, b.mean]),
        np.concatenate([a.covariance, b.covariance]),
    )
