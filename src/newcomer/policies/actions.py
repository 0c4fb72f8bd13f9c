"""What a model knows of each action: the common part of its reward, its features in the coordinates of taste, its
residual.

Candidates come with ids, with features, or with both. `describe` turns either into the four numbers and one vector that
policies work with. Features of actions of the catalogue are multiplied with the factor once for all, when a policy is
made.

An action that the catalogue does not know is a new action, not an error. With features it is worth phi^T m, without
them as much as the average action; either way what nobody could know yet of it, the spread between actions beyond
what features explain, lasts and is uncertain.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from newcomer import validate
from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.logistic import click_moments, expected_click
from newcomer.model import Model
from newcomer.policies import memory_loops
from newcomer.policies.calls import Ids
from newcomer.policies.memory_loops import ANONYMOUS
from newcomer.users import mix


class Described(NamedTuple):
    """Of (m, K) candidates, or (1, K) that serve all: what everybody thinks, features of taste, and the residual."""

    common: Floats  # (m, K), phi^T m + o
    low: Floats  # (m, K, k), L^T phi
    keys: Ints  # (m, K), which action; see memory_loops.Entries
    variance: Floats  # (m, K), of the residual
    lasting: Floats  # (m, K), further variance that lasts: of actions of which the logs tell little or nothing

    def rows(self, count: int) -> Described:
        """The same for `count` users, in arrays that compiled loops take."""
        if len(self.keys) == count:
            return self

        def spread(part: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(part, (count, *part.shape[1:])))

        return Described(*map(spread, self))


@dataclass(frozen=True, eq=False)
class KnownActions:
    """The actions of a model, ready to be described."""

    model: Model

    @cached_property
    def factor(self) -> Floats:
        """L (d, k); one direction of nothing at rank 0."""
        factor = self.model.factor
        return plain(np.array(factor)) if factor.shape[1] else np.zeros((self.model.dim, 1))

    @cached_property
    def mean(self) -> Floats:
        """m (d,)."""
        return np.array(self.model.mean)

    @cached_property
    def named(self) -> bool:
        """Whether the model has a catalogue with features."""
        return self.model.one_hot or self.model.action_features is not None

    @cached_property
    def features(self) -> Floats:
        """Features (A, d) of the catalogue; of one-hot features with a constant these are the two together."""
        model = self.model
        if model.action_features is not None:
            return np.array(model.action_features)
        return model.features(model.action_ids or ())

    @cached_property
    def low(self) -> Floats:
        """L^T phi (A, k) of the catalogue."""
        if not self.named:
            return np.zeros((0, self.factor.shape[1]))
        if self.model.one_hot and not self.model.intercept:
            return self.factor
        return np.ascontiguousarray(self.features @ self.factor)

    @cached_property
    def common(self) -> Floats:
        """phi^T m + o (A,) of the catalogue."""
        if not self.named:
            return np.zeros(0)
        means = self.mean if self.model.one_hot and not self.model.intercept else self.features @ self.mean
        return np.asarray(means + self.model.offsets)

    @cached_property
    def expected(self) -> Floats:
        """The mean reward (A,) of the catalogue over all users: the common part, through the link of the model."""
        if self.model.outcome != "binary":
            return self.common
        return expected_click(self.common, (self.low**2).sum(axis=1))

    def on_reward_scale(self, seen: Described) -> Described:
        """Candidates of a model of clicks by the moments of their rewards: as they are, where the model is Gaussian.

        The mean E[sigma], loadings L^T phi E[sigma'], and of the variance p (1 - p) what z leaves; what lasts beyond it
        is what z explains, and the model's own error.
        """
        if self.model.outcome != "binary":
            return seen
        p, slope, square = click_moments(seen.common, (seen.low**2).sum(axis=-1))
        explained = square - p * p
        lasting = explained + seen.lasting * slope**2
        variance = np.maximum(p * (1.0 - p) - explained, 1e-9)
        return Described(p, seen.low * slope[..., None], seen.keys, variance, lasting)

    @cached_property
    def variance(self) -> Floats:
        """Residual variances (A,), or (1,)."""
        return np.array(self.model.residual_variance)

    @cached_property
    def outside(self) -> float:
        """Residual variance of actions outside the catalogue."""
        return float(self.model.noise_variance)

    @cached_property
    def uncertainty(self) -> Floats:
        """Variance (A,), or (1,), of the error of what the model expects of each action.

        For one user that is a part of what they think of this very action: it is there at every meeting.
        """
        return np.array(self.model.uncertainty)

    @cached_property
    def spread(self) -> float:
        """Variance between actions of what features do not explain: unknown of an action that nobody has met."""
        if not self.named or len(self.common) < 2:
            return 0.0
        if self.model.one_hot:
            return float(self.common.var() + self.low.var(axis=0).sum())
        return float(np.mean(self.model.offsets**2))

    @cached_property
    def _places(self) -> tuple[Ints, Ints] | None:
        """Keys of the catalogue's rows, sorted, and whose they are; None if rows occur twice, or there are none."""
        if not self.named or self.model.by_ids_alone:
            return None
        keys = self.fingerprints(self.features)
        order = np.argsort(keys)
        return (keys[order], order) if len(np.unique(keys)) == len(keys) else None

    @property
    def ambiguous(self) -> bool:
        """Whether several actions have the same features, so that only ids tell them apart."""
        return self.named and not self.model.by_ids_alone and self._places is None

    @cached_property
    def _multipliers(self) -> Ints:
        return (mix(np.arange(self.model.dim, dtype=np.uint64)) | np.uint64(1)).view(np.int64)

    def fingerprints(self, rows: Floats) -> Ints:
        """Keys below zero (m,) of feature rows (m, d)."""
        out = np.empty(len(rows), dtype=np.int64)
        memory_loops.fingerprints(rows, self._multipliers, out)
        return out

    def describe(self, actions: Floats, ids: Ids | None, *, keys: bool = True) -> Described:
        """Candidates with features (m, K, d), or (1, K, d) for all rows, and ids (m, K) if the caller said which.

        Without `keys` nothing is recognised and no offset is known: for models that have neither.
        """
        shape = actions.shape[:2]
        if ids is not None and not actions.shape[2]:
            return self._by_ids(ids)
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            low, common = np.matmul(actions, self.factor), np.matmul(actions, self.mean)
        if not keys:
            unsure = np.full(shape, self.uncertainty[0])
            return Described(common, low, np.full(shape, ANONYMOUS), np.full(shape, self.variance[0]), unsure)
        if ids is None and not self.named:  # nothing but the features themselves can be recognised
            found = self.fingerprints(actions.reshape(-1, actions.shape[2])).reshape(shape)
            return Described(common, low, found, np.full(shape, self.outside), np.full(shape, self.uncertainty[0]))
        if ids is not None and len(ids) != shape[0]:
            low, common = (np.broadcast_to(part, (len(ids), *part.shape[1:])) for part in (low, common))
        codes = self._recognised(actions) if ids is None else self.model.recognise(ids.ravel()).reshape(ids.shape)
        known = codes >= 0
        offsets = np.where(known, self.model.offsets[codes], 0.0) if len(self.model.offsets) > 1 else 0.0
        variance = np.where(known, self.variance[codes % len(self.variance)], self.outside)
        same = known & self._same(codes, low)
        found = codes if same.all() else np.where(same, codes, self._strange(actions, ids))
        lasting = np.where(known, 0.0, self.spread if ids is not None else 0.0)
        lasting = np.where(same, self.uncertainty[codes % len(self.uncertainty)], lasting)
        return Described(np.asarray(common + offsets), np.ascontiguousarray(low), found, variance, lasting)

    def _by_ids(self, ids: Ids) -> Described:
        """Candidates that ids alone stand for: rows of the factor, and for unknown actions the average of them."""
        codes = self.model.recognise(ids.ravel()).reshape(ids.shape)
        known = codes >= 0
        low = np.where(known[..., None], self.low[codes], self.low.mean(axis=0))
        common = np.where(known, self.common[codes], self.common.mean())
        variance = np.where(known, self.variance[codes % len(self.variance)], self.outside)
        keys = codes if known.all() else np.where(known, codes, self._strange(np.zeros((*ids.shape, 0)), ids))
        lasting = np.where(known, self.uncertainty[codes % len(self.uncertainty)], self.spread)
        return Described(common, np.ascontiguousarray(low), keys, variance, lasting)

    def _recognised(self, actions: Floats) -> Ints:
        """The place (m, K) in the catalogue of features that are a row of it, or -1."""
        if self.model.by_ids_alone:  # a row of it has one entry that is not zero, and that is 1
            units = ((actions != 0).sum(axis=2) == 1) & (actions.max(axis=2) == 1.0)
            return np.where(units, actions.argmax(axis=2), -1)
        codes = np.full(actions.shape[:2], -1, dtype=np.int64)
        if self._places is not None:
            keys, order = self._places
            asked = self.fingerprints(actions.reshape(-1, actions.shape[2]))
            place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
            codes = np.where(keys[place] == asked, order[place], -1).reshape(codes.shape)
        return codes

    def _same(self, codes: Ints, low: Floats) -> Bools:
        """Whether features are those of the catalogue, as far as taste sees them: features may depend on the moment."""
        if not len(self.low):
            return np.zeros(codes.shape, dtype=np.bool_)
        there = self.low[codes]
        with np.errstate(invalid="ignore"):
            return np.asarray((np.abs(low - there) <= 1e-9 * (np.abs(there) + 1e-12)).all(axis=-1))

    def _strange(self, actions: Floats, ids: Ids | None) -> Ints:
        """Keys below zero (m, K) of actions outside the catalogue: of their ids, or of their features."""
        if ids is not None:
            given = map(self.model.canonical, ids.ravel().tolist())
            return np.array([_key_of(one) for one in given], dtype=np.int64).reshape(ids.shape)
        if self.ambiguous:
            return np.full(actions.shape[:2], ANONYMOUS)
        return self.fingerprints(actions.reshape(-1, actions.shape[2])).reshape(actions.shape[:2])


def _key_of(one: int | str) -> int:
    """A number below zero that stands for an id."""
    try:
        text = f"{type(one).__name__} {one}".encode()
    except UnicodeEncodeError as error:
        todo = "decode ids as UTF-8, with errors='replace' if need be"
        raise PolicyError(f"id {validate.shown(one)} has half a character in it (a surrogate)", todo=todo) from error
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") & 0x3FFFFFFFFFFFFFFF)
