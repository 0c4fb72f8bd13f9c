"""A Gymnasium environment over a world: an episode is a newcomer, a step a round of candidates.

What is observed are the features of the candidates and which of them are on offer; the action is the number of the one
that is shown; the reward is what it pays. The horizon ends an episode. Needs the extra `[gym]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import MissingExtra, NewcomerError
from newcomer.validate import show_invalid_value, validate_whole
from newcomer.worlds.world import Episode, Newcomers, world_stream

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as error:
    raise MissingExtra.of("gym", purpose="the Gymnasium environment") from error

Observation = dict[str, NDArray[Any]]


class WorldEnvironment(gymnasium.Env[Observation, np.int64]):
    """A newcomer of `world` an episode, for `horizon` rounds.

    `info` has the `regret` of the round, and the `ids` of the next candidates where the world has ids.

    >>> from newcomer.worlds import Synthetic
    >>> rounds = WorldEnvironment(Synthetic.learnable(dim=5), horizon=3)
    >>> observed, _ = rounds.reset(seed=0)
    >>> observed["candidates"].shape, rounds.step(0)[2:4]
    ((20, 5), (False, False))
    """

    def __init__(self, world: Newcomers, *, horizon: int = 50, render_mode: str | None = None) -> None:
        if not isinstance(world, Newcomers):
            todo = "pass a world of newcomer.worlds, or anything with `dim` and `episode`"
            raise NewcomerError(f"{show_invalid_value(world)} is not a world", todo=todo)
        self.world, self.render_mode = world, render_mode
        self.horizon = validate_whole(horizon, "horizon", todo="ask for at least one round", kind=NewcomerError)
        count = world.episode(world_stream(0, "shape"), self.horizon).actions.shape[1]
        features = spaces.Box(-np.inf, np.inf, (count, world.dim), dtype=np.float64)
        both: Any = {"candidates": features, "on_offer": spaces.MultiBinary(count)}
        self.observation_space: spaces.Space[Observation] = spaces.Dict(both)  # type: ignore[assignment]
        self.action_space = spaces.Discrete(count)
        self._episode: Episode | None = None
        self._round = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Meet the next newcomer."""
        super().reset(seed=seed)
        self._episode, self._round = self.world.episode(self.np_random, self.horizon), 0
        return self._observed(), self._told()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Show a candidate. After the last round the observation is that round's."""
        episode, now = self._episode, self._round
        if episode is None or now >= self.horizon:
            raise NewcomerError("the episode has not started, or is over", todo="call reset() first")
        if not self.action_space.contains(action):
            raise NewcomerError(f"{show_invalid_value(action)} is not a candidate", todo=f"pass 0 to {self._count - 1}")
        if episode.mask is not None and not episode.mask[now, action]:
            raise NewcomerError(f"candidate {action} is not on offer", todo="choose where observation['on_offer'] is 1")
        reward, regret = float(episode.rewards[now, action]), float(episode.best[now] - episode.means[now, action])
        self._round += 1
        return self._observed(), reward, self._round == self.horizon, False, {"regret": regret, **self._told()}

    @property
    def _count(self) -> int:
        return int(self.action_space.n)  # type: ignore[attr-defined]

    def _observed(self) -> Observation:
        """The candidates of this round."""
        assert self._episode is not None
        now = min(self._round, self.horizon - 1)
        mask = self._episode.mask
        offered = np.ones(self._count, dtype=np.int8) if mask is None else mask[now].astype(np.int8)
        return {"candidates": np.array(self._episode.actions[now]), "on_offer": offered}

    def _told(self) -> dict[str, Any]:
        """Ids of the candidates of this round, if there are any."""
        assert self._episode is not None
        now, ids = min(self._round, self.horizon - 1), self._episode.ids
        return {} if ids is None else {"ids": np.asarray(ids[now]).tolist()}
