"""What a model knows of candidates: the population mean of their reward, their loadings, their residual.

Candidates come with ids, with features, or with both. `describe` turns either into the four numbers and one vector that
policies work with; ids go through the model's catalogue, which writes no feature out.

An action that the catalogue does not know is a new action, not an error. With features it is worth phi^T m, without
them as much as the average action. Either way the spread between actions that features do not explain is part of its
per-action effect: it is unknown, and the same at every meeting.

Candidates as a state sees them: what is expected of each, and how far one more reward would move that.

For a candidate with loadings g, met before as entry j of the user's memory or not, (policies/action_memory.py)

    expected = population mean + c y + (g - c f)^T E[z],     noise of one more reward = s2 + what is left of se,

with z the latent coordinates of the user in the posterior that the state holds. Outlier users of models with features
are served by a system of all d dimensions in place of that of z.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.catalogue import Catalogue
from newcomer.errors import PolicyError
from newcomer.linear import scoring_loops
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.model import Model
from newcomer.policies import calls, memory_loops
from newcomer.policies.calls import Generators, Ids, Query
from newcomer.policies.memory_loops import ANONYMOUS, Recalled
from newcomer.transforms import sigmoid_moments
from newcomer.users import mix_user_hashes
from newcomer.validate import show_invalid_value

if TYPE_CHECKING:
    from newcomer.policies.belief import Belief, PriorState


SAME = 1e-9  # relative difference up to which loadings are those of the catalogue
SINGLE = 1e-6  # the same of features in single precision, relative to the sum of the sizes of all terms


class Described(NamedTuple):
    """Of (m, K) candidates, or (1, K) that serve all: what the prior says of them."""

    population_mean: Floats  # (m, K), phi^T m + o
    loadings: Floats  # (m, K, k), L^T phi
    keys: Ints  # (m, K), which action; see memory_loops.Entries
    variance: Floats  # (m, K), of the residual
    effect: Floats  # (m, K), further variance of the per-action effect: of actions with few rows in the logs, or none

    def rows(self, count: int) -> Described:
        """The same for `count` users, in arrays that compiled loops take."""
        if len(self.keys) == count:
            return self

        def spread(part: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.broadcast_to(part, (count, *part.shape[1:])))

        return Described(*map(spread, self))


@dataclass(frozen=True, eq=False)
class KnownActions:
    """The actions of a model, ready to be described. Tables by place have a last entry, for an unknown action."""

    model: Model

    @property
    def catalogue(self) -> Catalogue:
        """Ids, features and products with the mean and the factor."""
        return self.model.catalogue

    @cached_property
    def factor(self) -> Floats:
        """L (d, k); one direction of zeros at rank 0."""
        factor = self.model.factor
        return plain(np.array(factor)) if factor.shape[1] else np.zeros((self.model.dim, 1))

    @cached_property
    def mean(self) -> Floats:
        """m (d,)."""
        return np.array(self.model.mean)

    @property
    def named(self) -> bool:
        """Whether the model has a catalogue with features."""
        return self.catalogue.known

    @cached_property
    def features(self) -> Floats:
        """Features (A, d) of the catalogue, written out: for systems of all d dimensions."""
        return self.catalogue.rows(np.arange(len(self.catalogue)))

    @cached_property
    def population_mean(self) -> Floats:
        """phi^T m + o (A + 1,)."""
        return plain(self.catalogue.tables[0])

    @cached_property
    def loadings(self) -> Floats:
        """L^T phi (A + 1, k); one direction of zeros at rank 0."""
        found = self.catalogue.tables[1]
        return plain(found) if found.shape[1] else np.zeros((len(found), 1))

    def on_reward_scale(self, seen: Described) -> Described:
        """Candidates of a model of clicks by the moments of their rewards: as they are, where the model is Gaussian.

        The mean E[sigma], loadings L^T phi E[sigma'], and of the variance p (1 - p) what z leaves; the variance of the
        effect beyond it is what z explains, and the model's own error.
        """
        if self.model.outcome != "binary":
            return seen
        p, slope, square = sigmoid_moments(seen.population_mean, (seen.loadings**2).sum(axis=-1))
        explained = square - p * p
        effect = explained + seen.effect * slope**2
        variance = np.maximum(p * (1.0 - p) - explained, 1e-9)
        return Described(p, seen.loadings * slope[..., None], seen.keys, variance, effect)

    @cached_property
    def variance(self) -> Floats:
        """Residual variances (A + 1,)."""
        return self._by_place(self.model.residual_variance, float(self.model.noise_variance))

    @cached_property
    def uncertainty(self) -> Floats:
        """Variance (A + 1,) of the error of what the model expects of each action.

        For one user that is a part of the per-action effect: it is there at every meeting. Of an unknown action it is
        zero, unless the model names none: then all actions have the same.
        """
        given = self.model.uncertainty
        return self._by_place(given, 0.0 if self.named else float(given[0]))

    @cached_property
    def effect(self) -> Floats:
        """Further variance (A + 1,) of the per-action effect of actions met by id: `uncertainty`, and `spread`."""
        return np.append(self.uncertainty[:-1], self.spread)

    def _by_place(self, values: Floats, unknown: float) -> Floats:
        """One number for each place, and one for an unknown action, from (A,) or from (1,) for all alike."""
        count = max(len(self.catalogue), 1)
        return np.append(np.broadcast_to(values, (count,)), unknown)

    @cached_property
    def spread(self) -> float:
        """Variance between actions of what features do not explain: unknown of an action that nobody has met."""
        if not self.named or len(self.catalogue) < 2:
            return 0.0
        if self.model.one_hot:
            return float(self.population_mean[:-1].var() + self.loadings[:-1].var(axis=0).sum())
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
        return (mix_user_hashes(np.arange(self.model.dim, dtype=np.uint64)) | np.uint64(1)).view(np.int64)

    def fingerprints(self, rows: Floats) -> Ints:
        """Keys below zero (m,) of feature rows (m, d)."""
        out = np.empty(len(rows), dtype=np.int64)
        memory_loops.memory_fingerprints_loop(rows, self._multipliers, out)
        return out

    def describe(self, actions: Floats, ids: Ids | None, codes: Ints | None, *, keys: bool = True) -> Described:
        """Candidates with features (m, K, d), or (1, K, d) for all rows, and ids with codes (m, K), if any.

        Without `keys` no action is recognised and no offset is known: for models that have neither.
        """
        if ids is not None and codes is not None and not actions.shape[2]:
            return self._by_ids(ids, codes)
        shape = actions.shape[:2]
        with np.errstate(invalid="ignore", over="ignore"):  # features that are not finite are refused by their scores
            loadings, means = np.matmul(actions, self.factor), np.matmul(actions, self.mean)
        if not keys:
            variance, effect = np.full(shape, self.variance[0]), np.full(shape, self.uncertainty[0])
            return Described(means, loadings, np.full(shape, ANONYMOUS), variance, effect)
        if ids is None and not self.named:  # nothing but the features themselves can be recognised
            found = self.fingerprints(actions.reshape(-1, actions.shape[2])).reshape(shape)
            variance, effect = np.full(shape, self.variance[-1]), np.full(shape, self.uncertainty[0])
            return Described(means, loadings, found, variance, effect)
        if codes is None:
            codes = self._recognised(actions)
        elif len(codes) != shape[0]:
            loadings, means = (np.broadcast_to(part, (len(codes), *part.shape[1:])) for part in (loadings, means))
        known = codes >= 0
        told = len(self.model.offsets) > 1 or len(self.model.offsets) == len(self.catalogue)
        offsets = np.where(known, self.model.offsets[codes], 0.0) if told else 0.0
        same = known & self._same(codes, loadings, actions)
        found = codes if same.all() else np.where(same, codes, self._unknown_keys(actions, ids))
        effect = np.where(known, 0.0, self.spread if ids is not None else 0.0)
        effect = np.where(same, self.uncertainty[codes], effect)
        return Described(
            np.asarray(means + offsets), np.ascontiguousarray(loadings), found, self.variance[codes], effect
        )

    def _by_ids(self, ids: Ids, codes: Ints) -> Described:
        """Candidates that ids alone stand for: rows of the catalogue's tables."""
        keys = codes if (codes >= 0).all() else np.where(codes >= 0, codes, self._unknown_keys(None, ids))
        return Described(
            self.population_mean[codes], self.loadings[codes], keys, self.variance[codes], self.effect[codes]
        )

    def _recognised(self, actions: Floats) -> Ints:
        """The place (m, K) in the catalogue of features that are a row of it, or -1."""
        if self.model.by_ids_alone:  # a row of it has one entry that is not zero, and that is 1
            units = ((actions != 0).sum(axis=2) == 1) & (actions.max(axis=2) == 1.0)
            return np.where(units, actions.argmax(axis=2), -1)
        codes = np.full(actions.shape[:2], -1, dtype=np.int64)
        if self._places is not None:
            keys, order = self._places
            wanted = self.fingerprints(actions.reshape(-1, actions.shape[2]))
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            codes = np.where(keys[place] == wanted, order[place], -1).reshape(codes.shape)
        return codes

    def _same(self, codes: Ints, loadings: Floats, actions: Floats) -> Bools:
        """Whether loadings are those of the catalogue: features may depend on the moment."""
        if not self.named:
            return np.zeros(codes.shape, dtype=np.bool_)
        there = self.loadings[codes]
        with np.errstate(invalid="ignore"):
            same = np.asarray((np.abs(loadings - there) <= SAME * (np.abs(there) + 1e-12)).all(axis=-1))
            if not same.all():  # features that came in single precision
                size = np.abs(actions) @ np.abs(self.factor)
                same |= np.asarray((np.abs(loadings - there) <= SINGLE * size).all(axis=-1))
        return same

    def _unknown_keys(self, actions: Floats | None, ids: Ids | None) -> Ints:
        """Keys below zero (m, K) of actions outside the catalogue: of their ids, or of their features."""
        if ids is not None:
            given = map(self.catalogue.canonical, ids.ravel().tolist())
            return np.array([_key_of(one) for one in given], dtype=np.int64).reshape(ids.shape)
        assert actions is not None
        if self.ambiguous:
            return np.full(actions.shape[:2], ANONYMOUS)
        return self.fingerprints(actions.reshape(-1, actions.shape[2])).reshape(actions.shape[:2])


def _key_of(one: int | str) -> int:
    """A number below zero that stands for an id."""
    try:
        text = f"{type(one).__name__} {one}".encode()
    except UnicodeEncodeError as error:
        todo = "decode ids as UTF-8, with errors='replace' if need be"
        raise PolicyError(
            f"id {show_invalid_value(one)} has half a character in it (a surrogate)", todo=todo
        ) from error
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") & 0x3FFFFFFFFFFFFFFF)


@dataclass(frozen=True, eq=False)
class CandidateView:
    """A query, what the prior says of its candidates, and what the users' memories add."""

    belief: Belief
    state: PriorState
    query: Query
    seen: Described
    recalled: Recalled

    @cached_property
    def loadings(self) -> Floats:
        """What a meeting would add, g - c f (m, K, k), in latent coordinates."""
        return self.belief.innovation(
            self.seen.loadings, self.recalled, self.state.memory, self.query.users, latent=True
        )

    @cached_property
    def features(self) -> Floats:
        """The same as features (m, K, d), for outlier users."""
        actions = np.broadcast_to(self.query.actions, (len(self.query.users), *self.query.actions.shape[1:]))
        return self.belief.innovation(actions, self.recalled, self.state.memory, self.query.users, latent=False)

    @cached_property
    def outliers(self) -> Ints:
        """Rows of users served in d dimensions."""
        left = ~self.state.in_subspace[self.query.users] if not self.belief.flat else np.zeros(0, dtype=np.bool_)
        return np.flatnonzero(left)

    @cached_property
    def noise(self) -> Floats:
        """Variance (m, K) of one more reward about what z says of it: noise, and what is unknown of the effect."""
        fresh = (1.0 - self.state.memory.share[self.query.users])[:, None] * self.seen.variance
        return np.asarray(fresh + self.recalled.left)

    def expected(self) -> Floats:
        """Expected rewards (m, K)."""
        return self._by_system(scoring_loops.ucb_scores, np.zeros(1))

    def optimistic(self, width: float, memory_width: float) -> Floats:
        """Expected rewards plus so many deviations of g^T z, and of the per-action effect (m, K)."""
        scores = self._by_system(scoring_loops.ucb_scores, np.array([width]))
        if memory_width:
            scores = scores + memory_width * np.sqrt(self.recalled.left)
        return scores

    def curious(self, weight: float) -> Floats:
        """Expected rewards plus `weight` deviations of how far one more reward would move them (m, K)."""
        return self._by_system(scoring_loops.curious_scores, np.array([weight]), self.noise)

    def learned_share(self) -> Floats:
        """The share (m,) of the variance of one more reward that z explains, on average over candidates."""
        return np.asarray(
            self._by_system(scoring_loops.learned_score_shares, np.ones(1), self.noise, level=False).mean(axis=1)
        )

    def _by_system(self, loop: Callable[..., None], widths: Floats, *more: Floats, level: bool = True) -> Floats:
        """A table (m, K) by a loop over the users' systems: of z or, for outlier users, of all features."""
        out, users, state = self.query.table(), self.query.users, self.state
        loop(Ellipsoid(state.small.factor, state.small.mean, widths), users, self.loadings, *more, out)
        if len(self.outliers):
            rows = self.outliers
            part, x = np.empty((len(rows), out.shape[1])), np.ascontiguousarray(self.features[rows])
            own = [np.ascontiguousarray(one[rows]) for one in more]
            loop(Ellipsoid(state.full.factor, state.full.mean, widths), users[rows], x, *own, part)
            out[rows] = part
        return self._with_levels(out) if level else out

    def drawn(self, rngs: Generators, scales: Floats, memory_scale: float) -> Floats:
        """Rewards (m, K) under one draw of each user's z and, once for each distinct action, of its effect.

        `scales` (m,), or (1,) for all alike: draws are so many times as wide as the posterior of z.
        """
        state, users, rank = self.state, self.query.users, self.loadings.shape[2]
        size = self.belief.model.dim if len(self.outliers) else rank
        noise = calls.call_normals(rngs, size)
        drawn = np.empty((len(users), rank))
        system = Ellipsoid(state.small.factor, state.small.mean, scales)
        scoring_loops.score_samples(system, users, np.ascontiguousarray(noise[:, :rank]), drawn)
        out = np.einsum("mak,mk->ma", self.loadings, drawn)
        for row in self.outliers:
            one, who = np.empty((1, size)), users[row : row + 1]
            own = scales if len(scales) == 1 else scales[row : row + 1]
            system = Ellipsoid(state.full.factor, state.full.mean, own)
            scoring_loops.score_samples(system, who, np.ascontiguousarray(noise[row : row + 1]), one)
            out[row] = self.features[row] @ one[0]
        if memory_scale and self.belief.remembers:
            own = calls.call_normals(rngs, out.shape[1])
            keys = self.seen.keys
            first = (keys[:, :, None] == keys[:, None, :]).argmax(axis=2)  # equal actions share their draw
            out += memory_scale * np.sqrt(self.recalled.left) * np.take_along_axis(own, first, axis=1)
        return self._with_levels(out)

    def _with_levels(self, personal: Floats) -> Floats:
        """Rewards (m, K): the personal part, the population mean and the effects; not finite where features are not."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(personal + self.seen.population_mean + self.recalled.level)
