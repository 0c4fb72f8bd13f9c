"""Refitting: what a fit leaves for a later one with more logs.

SOLD's moments are sums over users, so they are kept in a file (`SavedMoments`) and added to: the moments of the old and
of the new users together, whatever has become of the old logs. EM starts from the model that it found before
(`warm_start`). That users of old and new logs are different people is the caller's promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from newcomer.arrays import Floats
from newcomer.em.binary import binary_on_reward_scale
from newcomer.errors import LogsError, ModelError
from newcomer.evidence import Summary
from newcomer.files import file_digest, read_file, write_file
from newcomer.logs.logs import Logs
from newcomer.logs.summary import LogTotals
from newcomer.model import Model
from newcomer.population import Population
from newcomer.serialize import deserialize_record, serialize_record
from newcomer.sold.moments import Moments

KIND = "moments"


@dataclass(frozen=True)
class SavedMoments:
    """The sums of logs that were read before: SOLD's moments, the survey, and which features they are of."""

    moments: Moments
    total: LogTotals
    features: str  # hash of what the features are: two logs that agree in it can be added up
    clip: tuple[float, float] | None = None

    @classmethod
    def of(cls, logs: Logs, moments: Moments) -> SavedMoments:
        """What is to be kept of logs and their moments."""
        return cls(moments, logs.total, _features(logs), logs.summary.clip)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> SavedMoments:
        """Read a file of moments."""
        past, _ = deserialize_record(read_file(Path(path)), KIND, where=str(path))
        if not isinstance(past, cls):
            raise ModelError(
                "this file holds no moments", where=str(path), todo="make it with fit(run=nc.Run(moments=))"
            )
        return past

    @staticmethod
    def keeper(logs: Logs, past: SavedMoments | None, path: Path) -> Callable[[Moments], None]:
        """What writes the moments of these logs, and of those before, to a file, once they are there."""

        def keep(moments: Moments) -> None:
            together = logs.total if past is None else past.total + logs.total
            replace(SavedMoments.of(logs, moments), total=together).save(path)

        return keep

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file. Its sums are by bucket of users: of few users, they tell about single ones."""
        write_file(Path(path), serialize_record(KIND, self, {"users": self.total.users, "rows": self.total.rows}))

    @property
    def ridge(self) -> float | None:
        """The ridge that the moments were added up with, None for the pseudo-inverse."""
        return self.moments.ridge or None

    def summary(self, logs: Logs) -> Summary:
        """The summary of these logs and of those before, which must have the same features."""
        if _features(logs) != self.features:
            todo = "read both with the same items, features and intercept, or fit all logs together"
            raise LogsError("the features or actions of these logs are not those of the moments", todo=todo)
        both = self.total + logs.total
        return both.summary(
            dim=logs.dim, intercept=logs.intercept, limits=logs.summary.clip, transform=logs.reward_transform
        )


@dataclass(frozen=True)
class WarmStart:
    """Where EM begins: a population, the precision it was fitted with, and how many users it stands for.

    `users` is 0 where the logs have those users as well.
    """

    population: Population
    precision: float
    users: int
    name: str  # the id of the model
    clicks: Population | None = None  # on the scale of log-odds, where the model is binary
    given: Population | None = None  # of users whose attributes are known, where the model has attributes


def warm_start(model: Model, logs: Logs, *, add: bool) -> WarmStart:
    """The population of a model, its actions in the order of the logs; `add` says that the logs have new users only."""
    facts, summary = model.evidence.population, model.evidence.logs
    if facts is None or summary is None:
        raise ModelError("the model to start from was not fitted by em", todo="fit it with estimator='em'")
    wanted = model.one_hot, model.intercept, model.feature_names
    if wanted != (logs.one_hot, logs.intercept, logs.feature_names) or (not logs.one_hot and model.dim != logs.dim):
        todo = "read the logs as those of the model were read"
        raise ModelError("the model to start from has other features than the logs", todo=todo)
    if model.reward_transform != logs.reward_transform:
        todo = f"read the logs with reward_transform={model.reward_transform!r}"
        raise ModelError("the model to start from learned rewards on another scale", todo=todo)
    population, users = _population(model, logs, model.factor, facts.directions), summary.users if add else 0
    if model.outcome == "binary":
        rewards = binary_on_reward_scale(population, logs.table)
        return WarmStart(rewards, facts.precision, users, model.id, clicks=population)
    given = _population(model, logs, _given_attributes(model), facts.directions) if model.attributes else None
    return WarmStart(population, facts.precision, users, model.id, given=given)


def _population(model: Model, logs: Logs, factor: Floats, directions: int) -> Population:
    """The population of a model with a factor (d, k) and its first directions, its actions in the order of the logs."""
    mean, by_action, offsets = model.mean, None, None
    factor, weak = factor[:, :directions], factor[:, directions:]  # found again by the refit; until then residual
    if logs.action_ids is not None:
        place = model.codes(logs.action_ids)
        known = place >= 0
        residual = model.residual_variance + (np.einsum("ak,ak->a", weak, weak) if model.one_hot and weak.size else 0.0)
        by_action = np.where(known, residual[place], model.noise_variance)
        offsets = np.where(known, model.offsets[place], 0.0) if model.offsets.any() else None
        if logs.one_hot:
            rows = np.append(place, model.dim - 1) if logs.intercept else place
            there = rows >= 0
            mean = np.where(there, mean[rows], mean[: len(model.action_ids or ())].mean())
            factor = np.where(there[:, None], factor[rows], 0.0)
    return Population(
        mean.copy(), factor.copy(), model.noise_variance, by_action, offsets, uncertainty=_unsure(model, logs)
    )


def _given_attributes(model: Model) -> Floats:
    """The factor (d, k) of users whose attributes are all known: W (I - Gamma C Gamma^T)^1/2, longest column first."""
    effects, covariance = model.attribute_effects, model.attribute_covariance
    values, vectors = np.linalg.eigh(np.eye(len(effects)) - effects @ covariance @ effects.T)
    left, lengths, _ = np.linalg.svd(model.factor @ (vectors * np.sqrt(np.maximum(values, 0.0))), full_matrices=False)
    return np.asarray(left * lengths)


def _unsure(model: Model, logs: Logs) -> Floats | None:
    """What the model says of its errors, by the actions of the logs; of a new action it knows what actions vary by."""
    if not model.uncertainty.any():
        return None
    if logs.action_ids is None:
        return model.uncertainty.copy()
    place = model.codes(logs.action_ids)
    return np.where(place >= 0, model.uncertainty[place], float(model.mean.var()) if model.one_hot else 0.0)


def warm_start_of_earlier_fit(
    start: Any, logs: Logs, estimator: str, *, add: bool
) -> tuple[WarmStart | None, SavedMoments | None]:
    """What an earlier fit left, in the form that the estimator can use."""
    if start is None:
        return None, None
    if estimator == "em":
        if not isinstance(start, Model):
            raise ModelError("em starts from a model", todo="pass nc.load(...) as start=")
        return warm_start(start, logs, add=add), None
    if isinstance(start, Model):
        raise ModelError(
            "sold starts from saved moments, and this is a model", todo="pass the file of fit(run=nc.Run(moments=))"
        )
    return None, start if isinstance(start, SavedMoments) else SavedMoments.load(start)


def ridge_for_warm_start(past: SavedMoments, ridge: float | None, estimator: str) -> float | None:
    """The ridge of moments, with which all others have to be added up."""
    if (estimator == "sold-pinv") != (past.ridge is None) or ridge not in (None, past.ridge):
        kept = "none (sold-pinv)" if past.ridge is None else f"{past.ridge:.6g}"
        raise ModelError(f"the saved moments have another ridge: {kept}", todo="leave ridge= out")
    return past.ridge


def check_warm_start(logs: Logs, past: SavedMoments | None, keep: Any) -> None:
    """Refuse to keep moments, or to add to them, where one-hot actions are many."""
    if logs.wide and (past is not None or keep is not None):
        what = f"the moments of {logs.dim:,} one-hot actions are not kept: they would be d x d"
        raise ModelError(what, todo="fit all logs together, or start em from a model")


def warm_start_provenance(begun: WarmStart | None, past: SavedMoments | None) -> dict[str, Any]:
    """What a model says of the fit before it."""
    if begun is not None:
        return {"start": begun.name, "approximate": bool(begun.users)}
    return {} if past is None else {"start": f"{past.total.users} users before"}


def _features(logs: Logs) -> str:
    """A hash of what the features of logs are: their number, their names, the catalogue."""
    table = logs.item_features
    facts: dict[str, Any] = {"dim": logs.dim, "intercept": logs.intercept, "names": logs.feature_names}
    ids = list(logs.action_ids or ()) if logs.by_action else None
    facts |= {"reward_transform": logs.reward_transform} if logs.reward_transform else {}
    return file_digest({} if table is None else {"table": table}, {**facts, "ids": ids, "one_hot": logs.one_hot})
