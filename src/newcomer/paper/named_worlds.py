"""The worlds of the experiments by name, each made once per process, and what the baselines know about them.

The paper gives its rivals knowledge that no policy could have: the noise of rewards, clusters of the users' true
reward vectors, and, in two figures, "ground-truth low-dimensional features", which are actions U*^T phi seen through
the true basis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from newcomer.arrays import Floats
from newcomer.logs import Logs
from newcomer.paper.scale import BALANCED, LEARNABLE, LITERAL, PRINTED, REPLAY, Setting
from newcomer.paper.worlds.factorise import Kind
from newcomer.paper.worlds.movielens import MovieLens
from newcomer.paper.worlds.replay import Replay
from newcomer.policies.finite_models import Clusters, cluster_into_finite_models, finite_models_reward_error
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode, Newcomers, world_stream

NamedWorld = Synthetic | MovieLens | Replay

SIMULATED = {PRINTED: Synthetic.printed, LEARNABLE: Synthetic.learnable}
FACTORS: dict[str, Kind] = {LITERAL: "literal", BALANCED: "balanced"}
VECTORS = 2000  # users drawn to be clustered where a world has no list of users


@lru_cache(maxsize=8)
def world_named(name: str, setting: Setting) -> NamedWorld:
    """The world of this name; reading and factorising ratings takes seconds, so a process keeps what it made."""
    if name in SIMULATED:
        return SIMULATED[name]()
    scale, data, cache = setting.sizes, Path(setting.data), Path(setting.cache)
    if name == REPLAY:
        return Replay.load(data, dim=scale.replay_dim, rank=scale.rank, least=scale.least, cache=cache)
    return MovieLens.load(data, kind=FACTORS[name], dim=scale.dim, rank=scale.rank, least=scale.least, cache=cache)


def films(name: str, setting: Setting) -> MovieLens:
    """The MovieLens world with literal or with balanced factors."""
    found = world_named(name, setting)
    assert isinstance(found, MovieLens)
    return found


def real_ratings(setting: Setting) -> Replay:
    """The replay of held-out users' real ratings."""
    found = world_named(REPLAY, setting)
    assert isinstance(found, Replay)
    return found


def true_basis(place: NamedWorld) -> Floats:
    """An orthonormal basis (d, k) of the users' reward vectors."""
    if isinstance(place, Replay):
        return np.linalg.svd(place.factors.users, full_matrices=False)[2][: place.factors.rank].T
    return place.basis


def noise_sd(place: NamedWorld) -> float:
    """The standard deviation of rewards; in the replay the factorisation's error on held-out ratings stands for it."""
    if isinstance(place, Synthetic):
        return place.noise
    return math.sqrt(place.noise_variance) if isinstance(place, MovieLens) else place.factors.rmse


def user_vectors(place: NamedWorld) -> Floats:
    """The reward vectors (n, d) that the baselines cluster: the factorisation's, or those of a simulated sample."""
    if isinstance(place, Synthetic):
        latent = world_stream(0, "clustered users").standard_normal((VECTORS, place.rank)) / math.sqrt(place.rank)
        return np.asarray(latent @ place.factor.T)
    return place.factors.users


@lru_cache(maxsize=8)
def kinds_of_users(name: str, setting: Setting) -> Clusters:
    """The k-means clusters of true reward vectors, as many as the rank, that the paper gives to mUCB and its kin."""
    place = world_named(name, setting)
    return cluster_into_finite_models(user_vectors(place), true_basis(place).shape[1], seed=0)


def cluster_error(name: str, setting: Setting) -> float:
    """The reward error of the clusters that nine users in ten stay within.

    It is taken over the catalogue of actions or, in a world without one, over the actions of a sample of 50 rounds.
    """
    place = world_named(name, setting)
    actions = place.catalogue
    if actions is None:
        actions = place.episode(world_stream(0, "sample of actions"), 50).actions.reshape(-1, place.dim)
    return finite_models_reward_error(user_vectors(place), kinds_of_users(name, setting), actions)


def histories(place: NamedWorld, users: int, steps: int, seed: int) -> Logs:
    """Offline logs; of the replay, whose logs are real, zero `users` and `steps` take everybody's whole history."""
    if isinstance(place, Replay):
        return place.logs(users or None, steps or None, seed)
    return place.logs(users, steps, seed)


@dataclass(frozen=True)
class Projected:
    """A world whose actions are seen through a basis U (d, k): a policy is offered U^T phi in place of phi."""

    whole: Newcomers
    basis: Floats

    @property
    def dim(self) -> int:
        """The dimension k of what is seen."""
        return int(self.basis.shape[1])

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """The same newcomer with the same rewards, and actions (T, K, k)."""
        episode = self.whole.episode(rng, horizon)
        return replace(episode, actions=episode.actions @ self.basis)
