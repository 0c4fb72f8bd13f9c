"""Own rows: people whose logged rows are the world. In each round a newcomer is offered some of the rows that this very
person has, each row once, and the reward is the one that was logged.

No simulator stands behind it: whatever is chosen, what came of it is known. It needs histories of at least `choices`
rows a round; people with fewer do not come.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import NewcomerError
from newcomer.worlds.world import Episode


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Newcomers who choose among their own rows: `user`, `action` and `reward` are (rows,).

    `actions` are the ids that a model knows, in its order: features are one-hot. Rows of other actions are left out.
    """

    user: Ints
    action: Ints
    reward: Floats
    actions: tuple[int | str, ...]
    choices: int = 5

    @property
    def dim(self) -> int:
        """One direction for each action."""
        return len(self.actions)

    @cached_property
    def _people(self) -> list[tuple[Ints, Floats]]:
        """Places of actions, and rewards, of each person."""
        place = {one: number for number, one in enumerate(self.actions)}
        codes = np.array([place.get(one, -1) for one in self.action.tolist()], dtype=np.int64)
        known = np.flatnonzero(codes >= 0)
        order = known[np.argsort(self.user[known], kind="stable")]
        cuts = np.flatnonzero(np.diff(self.user[order])) + 1
        return list(zip(np.split(codes[order], cuts), np.split(self.reward[order], cuts), strict=True))

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One person with enough rows for `horizon` rounds."""
        able = [one for one in self._people if len(one[0]) >= horizon * self.choices]
        if not able:
            raise NewcomerError(
                "nobody has so many rows", where=f"{horizon} rounds of {self.choices}", todo="play fewer rounds"
            )
        codes, reward = able[int(rng.integers(len(able)))]
        dealt = rng.permutation(len(codes))[: horizon * self.choices].reshape(horizon, self.choices)
        features = np.zeros((*dealt.shape, self.dim))
        np.put_along_axis(features, codes[dealt][..., None], 1.0, axis=2)
        return Episode(features, reward[dealt], reward[dealt], ids=np.array(self.actions)[codes[dealt]])
