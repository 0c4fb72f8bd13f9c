"""People who do not exist, for demonstrations and tests where no table of real people is at hand.

They have what real people were found to have (docs/people.md): actions that are liked more and less by everybody, a few
preferences along shared directions, a per-action effect of their own, and noise that differs between actions. A
share of the residual, the `retest` of the world, is drawn afresh at each meeting.
"""

from __future__ import annotations

from dataclasses import dataclass

from newcomer.arrays import Floats
from newcomer.worlds.people import People
from newcomer.worlds.world import stream

LEVEL, LIKED = 3.0, 0.5  # what the average action is worth, and how much actions differ in that
STRENGTHS = (0.8, 0.6, 0.5)  # standard deviations of what each shared direction adds to a reward
OWN = (0.4, 1.2)  # least and largest standard deviation of the residual of an action


@dataclass(frozen=True, eq=False)
class MadeUp:
    """A world of made-up people, and the truth about them: directions (A, k) and residual deviations (A,)."""

    world: People
    directions: Floats
    deviations: Floats

    @classmethod
    def draw(cls, people: int = 4000, actions: int = 60, *, seed: int = 0, retest: float = 0.5) -> MadeUp:
        """Draw people and what they think of actions named `film 00`, `film 01`, ...

        >>> MadeUp.draw(50, 12).world.table.shape
        (50, 12)
        """
        rng = stream(seed, "made-up people")
        liked = LEVEL + LIKED * rng.standard_normal(actions)
        directions = rng.standard_normal((actions, len(STRENGTHS))) * STRENGTHS
        deviations = rng.uniform(*OWN, size=actions)
        preferences = rng.standard_normal((people, len(STRENGTHS))) @ directions.T
        table = liked + preferences + deviations * rng.standard_normal((people, actions))
        names = tuple(f"film {number:02d}" for number in range(actions))
        return cls(People(table, names, held_out=0.1, retest=retest, seed=seed), directions, deviations)
