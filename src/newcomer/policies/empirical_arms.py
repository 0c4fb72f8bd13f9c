"""EmpiricalArms: each action has its mean, and a person's deviation from it, learned from that person's meetings of
this action alone. It knows no directions. It is what any team writes in an afternoon, and the baseline to beat.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from newcomer.array_loops import plain
from newcomer.arrays import Floats
from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.policies import action_memory, calls
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.actions import Described
from newcomer.policies.base import Contract
from newcomer.policies.belief import Belief
from newcomer.policies.calls import Query, Rewards, each_once
from newcomer.policies.memory_loops import Foreseen
from newcomer.policies.repeatability import Repeatability
from newcomer.validate import number


@dataclass(frozen=True, eq=False)
class EmpiricalArms(Contract[ActionMemory]):
    """Each action by itself: the population's mean, and this person's deviation from it by this person's own meetings.

    What may last of a person's deviation is the whole personal variance of the action: what the shared directions
    explain of it, and the share of the residual that lasts, learned as in PriorUCB. `width` counts deviations of what
    is not yet known of it. Nothing is shared between actions; a model without actions is refused.
    """

    model: Model
    _: KW_ONLY
    width: float = 0.0

    by_ids = True

    def __post_init__(self) -> None:
        number(self.width, "width")
        if not self._belief.known.named:
            raise PolicyError("EmpiricalArms needs a model of named actions", todo="fit logs with a column action")

    @cached_property
    def _belief(self) -> Belief:
        return Belief(self.model, 0.0)

    @cached_property
    def _taste(self) -> Floats:
        """Variance (A,) that the shared directions give to each action."""
        return np.asarray((self._belief.known.low**2).sum(axis=1))

    def begin(self, n: int) -> ActionMemory:
        """Nothing met."""
        return self._belief.start(n).memory

    def apply_repeatability(self, state: ActionMemory, given: Repeatability) -> None:
        """Begin with what earlier users told."""
        self._belief.begin_from(state, given)

    def pool_repeatability(self, state: ActionMemory) -> Repeatability:
        """What the users of the state tell."""
        return self._belief.pooled(state)

    def rank(self, state: ActionMemory, asked: Query) -> Floats:
        """Common part, and what this person's meetings of the action add to it (m, K)."""
        seen = self._described(asked.actions, asked.ids, len(asked.users))
        found = action_memory.recall(state, asked.users, seen.keys, seen.variance, seen.lasting)
        return np.asarray(seen.common + found.level + self.width * np.sqrt(found.left))

    def learn(self, state: ActionMemory, told: Rewards) -> None:
        """Remember the meetings, and what they tell of what lasts."""
        for part in each_once(told):
            ids = None if part.ids is None else part.ids[:, None]
            seen = self._described(part.features[:, None], ids, len(part.users))
            keys, target = seen.keys[:, 0], part.reward - seen.common[:, 0]
            features, starting = self._belief.remembered(part, seen), self._belief.starting
            common, variance, lasting = (plain(one[:, 0]) for one in (seen.common, seen.variance, seen.lasting))
            nothing = np.zeros(len(target))  # it knows no directions
            foreseen = Foreseen(common, nothing, nothing, variance, lasting)
            again = action_memory.remember(
                state, part.users, keys, target, features, foreseen, self._belief.scale, starting
            )
            if starting is not None and len(again):
                action_memory.believe(state, again, starting)

    def _described(self, actions: Floats, ids: calls.Ids | None, rows: int) -> Described:
        """Candidates (m, K), with the variance of shared taste among what lasts of each."""
        seen = self._belief.known.describe(actions, ids).rows(rows)
        if self.model.outcome == "binary":
            with np.errstate(invalid="ignore", over="ignore"):
                return self._belief.known.on_reward_scale(seen)
        taste = np.where(seen.keys >= 0, self._taste[np.maximum(seen.keys, 0)], self._taste.mean())
        return seen._replace(lasting=seen.lasting + taste)
