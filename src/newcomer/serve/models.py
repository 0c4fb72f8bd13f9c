"""The model that decides: read from the store, with its policy, its catalogue, and how users' states begin.

Uploaded models are files from strangers: size, format and checksum are looked at before anything is built
(newcomer/files.py; nothing is unpickled), then the policy is built and asked once, before the model is kept. Promoting
begins another generation; to roll back is to promote an earlier model again. Every decision reads the generation under
its user's lock, so that all processes change over at the same commit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import newcomer
from newcomer import files
from newcomer.arrays import Floats
from newcomer.errors import ModelError, NewcomerError, PolicyError
from newcomer.linear import state_file
from newcomer.logs.schema import LARGEST_REWARD
from newcomer.model import Model
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.protocol import Policy
from newcomer.serve.shapes import Refused

POLICIES = ("PriorUCB", "PriorTS", "EmpiricalArms", "ProBALLUCB", "ProBALLTS", "LocalUCB", "PopulationMean")
HORIZON = 200  # rounds that policies with a horizon plan for
SNAPSHOT_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Serving:
    """A generation: its model and the policies of its arms."""

    generation: int
    model: Model
    policy: Policy
    control: PopulationMean

    @classmethod
    def of(cls, generation: int, model: Model, policy: str) -> Serving:
        """Build the policy, and have it decide once, so that whatever does not fit shows now."""
        found = cls(generation, model, policy_of_model(policy, model), PopulationMean(model))
        found.rehearse()
        return found

    def rehearse(self) -> None:
        """One decision and one reward of nobody: compiled loops are loaded, caches of the model are made."""
        state, rng = self.policy.start(1), np.random.default_rng(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.ids is not None and self.by_id:
                one = self.ids[:1]
                for policy, whose in ((self.policy, state), (self.control, self.control.start(1))):
                    policy.probabilities(whose, ids=one, rng=rng)
                self.policy.update(state, ids=one, reward=[self.fit_reward(0.0)])
            else:
                row = np.ones((1, self.model.dim))
                self.policy.probabilities(state, row, rng)
                self.policy.update(state, row, [self.fit_reward(0.0)])

    @cached_property
    def ids(self) -> NDArray[Any] | None:
        """Ids of the catalogue (A,)."""
        given = self.model.action_ids
        return np.array(given) if given else None

    @cached_property
    def id_type(self) -> type | None:
        """The type of the catalogue's ids."""
        return type(self.model.action_ids[0]) if self.model.action_ids else None

    @cached_property
    def by_id(self) -> bool:
        """Whether ids are enough: the model has the features of its actions."""
        return self.model.action_ids is not None and (self.model.one_hot or self.model.action_features is not None)

    @cached_property
    def everybody(self) -> Any:
        """The state that the control arm decides by, the same for all users."""
        return self.control.start(1)

    @cached_property
    def sampled(self) -> bool:
        """Whether the policy draws its choices."""
        return bool(getattr(self.policy, "sampled", False))

    @cached_property
    def takes_attributes(self) -> bool:
        """Whether attributes of users change what the policy does."""
        return bool(getattr(self.policy, "takes_attributes", False))

    @cached_property
    def shares(self) -> tuple[float, ...] | None:
        """The shares that a repeatability of this policy has weights for; None where it keeps none."""
        ask = getattr(self.policy, "repeatability", None)
        told = None if ask is None else ask(self.policy.start(1))
        return None if told is None or len(told.shares) < 2 else told.shares

    @cached_property
    def widths(self) -> tuple[Policy, list[Policy]] | None:
        """The policy with no width, and with one standard deviation of each thing that it does not know: of preferences
        and, where it remembers actions, of the per-action effect. For explanations; None where it has no width."""
        names = {part.name for part in dataclasses.fields(self.policy)} if dataclasses.is_dataclass(self.policy) else ()
        if "width" not in names or not dataclasses.is_dataclass(self.policy):
            return None
        widths = dict.fromkeys(("width", *({"memory_width"} & set(names))), 0.0)
        try:
            zero = dataclasses.replace(self.policy, **widths)
            ones = [dataclasses.replace(self.policy, **{**widths, name: 1.0}) for name in widths]
            state = self.policy.start(1)
            zero.in_subspace(state)
        except (NewcomerError, TypeError):
            return None
        return zero, ones

    @cached_property
    def identity(self) -> str:
        """What a folded state belongs to: model, policy, settings, formats."""
        settings: dict[str, str] = {}
        if dataclasses.is_dataclass(self.policy):
            parts = (part for part in dataclasses.fields(self.policy) if part.name != "model" and part.init)
            settings = {part.name: repr(getattr(self.policy, part.name)) for part in parts}
        told = [self.model.id, type(self.policy).__name__, settings, SNAPSHOT_FORMAT, files.FORMAT, state_file.FORMAT]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """The policy's name."""
        return type(self.policy).__name__

    def start(self, attributes: dict[str, Any], told: dict[str, Any] | None) -> Any:
        """The state of one newcomer, given what is known of them and what earlier users say."""
        named: dict[str, Any] = {}
        if told is not None and self.shares is not None and np.allclose(told["shares"], self.shares, rtol=0, atol=1e-9):
            named["repeatability"] = told
        known = self._usable(attributes) if attributes and self.takes_attributes else None
        if known:
            named["attributes"] = [known]
        return self.policy.start(1, **named)

    def _usable(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Those that this model takes: they may have been kept under an earlier one, of other names or types."""
        found = {}
        for column in self.model.attributes:
            if column.name in attributes:
                with suppress(NewcomerError):
                    column.encode([attributes[column.name]])
                    found[column.name] = attributes[column.name]
        return found

    def check_attributes(self, attributes: dict[str, Any], elsewhere: Mapping[str, set[str]]) -> None:
        """Refuse attributes that the model cannot take; those that its fit tried and left out are passed over.

        So are those that another model of the store knows (`elsewhere`: names, with the kinds that they have there):
        clients send on what they sent, whichever model is promoted. A name that no model knows is a mistake.
        """
        mine = {one.name: str(one.kind) for one in self.model.attributes}
        kinds = {name: elsewhere.get(name, set()) - {mine.get(name, "")} for name in attributes}
        attributes = {name: value for name, value in attributes.items() if not kinds[name]}
        if not attributes:
            return
        if not self.model.attributes and not self.model.evidence.attributes:
            message = "this model was fitted without attributes of users: leave them out, or fit with --users"
            raise Refused(422, "no_attributes", message, "attributes")
        if self.model.attributes and not self.takes_attributes:
            message = f"{self.name} does not use attributes of users: leave them out, or serve another --policy"
            raise Refused(422, "no_attributes", message, "attributes")
        try:
            self.model.encode([attributes])
        except NewcomerError as error:
            raise Refused(422, "bad_attributes", str(error), "attributes") from error

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """Rewards that the model can learn from."""
        if getattr(self.model, "outcome", "gaussian") == "binary":
            return 0.0, 1.0
        return (-1.0 + 1e-9 if self.model.reward_transform else -LARGEST_REWARD), LARGEST_REWARD

    def check_reward(self, reward: float) -> None:
        """Refuse a reward, or a sum of rewards, that the model cannot learn from."""
        low, high = self.reward_range
        if not low <= reward <= high:
            if high == 1.0:
                message = f"the model was fitted to rewards of 0 and 1, and these add up to {reward:g}"
            else:
                message = f"the model takes rewards from {low:g} to {high:g}, not {reward:g}"
            raise Refused(422, "bad_reward", message, "reward")

    def fit_reward(self, reward: float) -> float:
        """A reward that an earlier model took, within the range of this one."""
        low, high = self.reward_range
        return min(max(reward, low), high)

    def canonical(self, ids: list[int | str]) -> list[int | str]:
        """Ids in the type of the catalogue's."""
        kind = self.id_type
        if not self.model.tidy_ids and (kind is None or {kind}.issuperset(map(type, ids))):
            return ids
        return [self.model.catalogue.canonical(one) for one in ids]

    def features(self, rows: Floats, where: str) -> Floats:
        """Features that a client sent, of the model's number, with or without the constant."""
        dim = self.model.dim
        fits = rows.ndim == 2 and (rows.shape[1] == dim or (self.model.intercept and rows.shape[1] == dim - 1))
        if not fits or not np.isfinite(rows).all():
            message = f"features must be rows of {dim - self.model.intercept} finite numbers"
            raise Refused(422, "bad_features", message, where)
        return rows


def model_ids_alike(names: list[int | str]) -> list[Any]:
    """Ids of one type, as policies take them: whole numbers or texts; both together are texts."""
    return names if len(set(map(type, names))) == 1 else [str(one) for one in names]


def policy_of_model(name: str, model: Model) -> Policy:
    """The policy of this name for a model."""
    if name not in POLICIES:
        raise PolicyError(f"the service does not know the policy '{name}'", todo=f"choose one of {', '.join(POLICIES)}")
    kind = getattr(newcomer, name)
    horizon = {"horizon": HORIZON} if "horizon" in inspect.signature(kind).parameters else {}
    policy: Policy = kind(model, **horizon)
    return policy


def read_sent_model(data: bytes, policy: str) -> Model:
    """A model from bytes that somebody sent, tried out."""
    try:
        model = Model.from_bytes(data)
        Serving.of(0, model, policy)
    except NewcomerError as error:
        raise Refused(422, "bad_model", str(error)) from error
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError, IndexError) as error:
        raise Refused(422, "bad_model", "this is not a model that can be served") from error
    return model


def models_have_same_features(old: Model, new: Model) -> bool:
    """Whether clients that send raw features may go on as they do."""
    sizes = [model.dim - model.intercept for model in (old, new)]
    return sizes[0] == sizes[1] and old.feature_names == new.feature_names


def load_stored_model(data: bytes) -> Model:
    """A model of the store."""
    try:
        return Model.from_bytes(data)
    except ModelError as error:
        raise Refused(503, "bad_store", f"the model in the store cannot be read: {error}", retry=60) from error


def facts_of_model(model: Model) -> dict[str, Any]:
    """A model in a few plain values."""
    return {
        "rank": model.rank,
        "dim": model.dim,
        "estimator": model.estimator,
        "actions": len(model.action_ids or ()),
        "outcome": getattr(model, "outcome", "gaussian"),
        "attributes": model_attribute_kinds(model),
    }


def model_attribute_kinds(model: Model) -> dict[str, str]:
    """The names of attributes that a model knows, and of which kind each is; "tried" if its fit left it out."""
    tried = {one.name: "tried" for one in model.evidence.attributes}
    return tried | {one.name: str(one.kind) for one in model.attributes}
