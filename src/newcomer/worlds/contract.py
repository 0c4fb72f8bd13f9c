"""The contract of worlds as a suite that runs on any world, ours or yours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from newcomer.worlds.episodes import Episode, Newcomers, World, stream

Floats = NDArray[np.float64]

USERS, HORIZON, STEPS = 6, 200, 4


def check_world(world: Newcomers, *, seed: int = 0) -> None:
    """Raise AssertionError, with what is wrong, unless `world` keeps the contract that `play` relies on.

    Checked: shapes and finite float64 values; an episode depends on its generator alone; users differ; an action is
    on offer in every round; rewards are centred at the means; and, if the world has logs, that the first users are the
    same for any number of users.

    >>> from newcomer.worlds import Synthetic
    >>> check_world(Synthetic.learnable())
    """
    assert isinstance(world, Newcomers), "a world needs `dim` and `episode(rng, horizon)`"
    assert isinstance(world.dim, int) and world.dim >= 1, "dim must be a positive integer"
    episodes = [world.episode(stream(seed, "check", user), HORIZON) for user in range(USERS)]
    for episode in episodes:
        _check_episode(episode, world.dim, episodes[0].actions.shape[1])
    again = world.episode(stream(seed, "check", 0), HORIZON)
    assert _equal(again, episodes[0]), "an episode must depend on its generator alone"
    assert not all(_equal(other, episodes[0]) for other in episodes[1:]), "users must not all be alike"
    _check_centred(np.concatenate([(episode.rewards - episode.means).ravel() for episode in episodes]))
    if isinstance(world, World):
        few, many = (_first_rewards(world, users, seed) for users in (USERS, 2 * USERS))
        assert few == {user: many.get(user) for user in few}, "the first users must not depend on how many there are"


def _check_episode(episode: Episode, dim: int, count: int) -> None:
    shape = (HORIZON, count)
    assert episode.actions.shape == (*shape, dim), f"actions of shape {episode.actions.shape} are not (T, K, {dim})"
    assert episode.means.shape == episode.rewards.shape == shape, "means and rewards must have shape (T, K)"
    for name in ("actions", "means", "rewards"):
        values = getattr(episode, name)
        assert values.dtype == np.float64 and np.isfinite(values).all(), f"{name} must be finite float64 numbers"
    if episode.mask is not None:
        assert episode.mask.shape == shape and episode.mask.dtype == np.bool_, "the mask must be (T, K) booleans"
        assert episode.mask.any(axis=1).all(), "every round must offer an action"


def _check_centred(noise: Floats) -> None:
    error = float(noise.std()) / np.sqrt(len(noise))
    assert abs(float(noise.mean())) <= 5 * error + 1e-9, "rewards must be centred at their means"


def _equal(one: Episode, other: Episode) -> bool:
    return np.array_equal(one.actions, other.actions) and np.array_equal(one.rewards, other.rewards)


def _first_rewards(world: World, users: int, seed: int) -> dict[object, list[float]]:
    """Each user's rewards in order."""
    found: dict[object, list[float]] = {}
    for batch in world.logs(users, STEPS, seed).batches():
        pieces = np.split(batch.rewards, batch.offsets[1:-1])
        found |= {user.item(): piece.tolist() for user, piece in zip(batch.users, pieces, strict=True)}
    return found
