"""The worlds of the experiments by name, each made once per process.

What a world adds to `newcomer.worlds`: the noise and the user vectors that the baselines are given, and a view of a world
through the true basis ("ground-truth low-dimensional features": actions U*^T phi).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from newcomer.clusters import Clusters, cluster, reward_error
from newcomer.experiments.scale import BALANCED, LEARNABLE, LITERAL, PRINTED, REPLAY, SCALES, Scale
from newcomer.logs import Logs
from newcomer.worlds.movielens import MovieLens
from newcomer.worlds.replay import Replay
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode, Newcomers, stream

Floats = NDArray[np.float64]
AnyWorld = Synthetic | MovieLens | Replay

VECTORS = 2000  # users drawn to be clustered where a world has no list of them


@dataclass(frozen=True)
class Setting:
    """What a process needs to know, in plain words: the scale's name, where the ratings and the cache are."""

    scale: str
    data: str
    cache: str

    @property
    def sizes(self) -> Scale:
        """The scale itself."""
        return SCALES[self.scale]


@lru_cache(maxsize=8)
def world(name: str, setting: Setting) -> AnyWorld:
    """The world of this name."""
    scale = setting.sizes
    if name == PRINTED:
        return Synthetic.printed()
    if name == LEARNABLE:
        return Synthetic.learnable()
    data, cache = Path(setting.data), Path(setting.cache)
    if name == REPLAY:
        return Replay.load(data, dim=scale.replay_dim, rank=scale.rank, least=scale.least, cache=cache)
    kind = {LITERAL: "literal", BALANCED: "balanced"}[name]
    return MovieLens.load(data, kind=kind, dim=scale.dim, rank=scale.rank, least=scale.least, cache=cache)  # type: ignore[arg-type]


def true_basis(place: AnyWorld) -> Floats:
    """Orthonormal basis (d, k) of the users' reward vectors."""
    if isinstance(place, Replay):
        return np.linalg.svd(place.factors.users, full_matrices=False)[2][: place.factors.rank].T
    return place.basis


def true_spectrum(place: AnyWorld) -> Floats:
    """Eigenvalues (d,) of E[beta beta^T], largest first."""
    if isinstance(place, Synthetic):
        return np.asarray(np.linalg.eigvalsh(place.second_moment)[::-1])
    return place.factors.spectrum


def noise_sd(place: AnyWorld) -> float:
    """Standard deviation of rewards; in the replay the error of the factorisation on held-out ratings."""
    if isinstance(place, Synthetic):
        return place.noise
    return math.sqrt(place.noise_variance) if isinstance(place, MovieLens) else place.factors.rmse


def user_vectors(place: AnyWorld) -> Floats:
    """Reward vectors (n, d) that the baselines cluster: the factorisation's, or a sample of the simulated population."""
    if isinstance(place, Synthetic):
        latent = stream(0, "clustered users").standard_normal((VECTORS, place.rank)) / math.sqrt(place.rank)
        return np.asarray(latent @ place.factor.T)
    return place.factors.users


@lru_cache(maxsize=8)
def kinds_of_users(name: str, setting: Setting) -> Clusters:
    """k-means with as many clusters as the rank, as the paper gives to mUCB and its kin."""
    place = world(name, setting)
    return cluster(user_vectors(place), true_basis(place).shape[1], seed=0)


def cluster_error(name: str, setting: Setting) -> float:
    """The reward error of clusters that nine users in ten stay within; without a catalogue on a sample of actions."""
    place = world(name, setting)
    actions = place.catalogue
    if actions is None:
        actions = place.episode(stream(0, "sample of actions"), 50).actions.reshape(-1, place.dim)
    return reward_error(user_vectors(place), kinds_of_users(name, setting), actions)


def histories(place: AnyWorld, users: int, steps: int, seed: int) -> Logs:
    """Offline logs; the replay's are real ones, so there everybody's whole history is taken if `users` is 0."""
    if isinstance(place, Replay):
        return place.logs(users or None, steps or None, seed)
    return place.logs(users, steps, seed)


@dataclass(frozen=True)
class Seen:
    """A world whose actions are seen through a basis (d, k)."""

    whole: Newcomers
    basis: Floats

    @property
    def dim(self) -> int:
        """Dimension of what is seen."""
        return int(self.basis.shape[1])

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """The same newcomer, with actions U^T phi."""
        episode = self.whole.episode(rng, horizon)
        return replace(episode, actions=episode.actions @ self.basis)
