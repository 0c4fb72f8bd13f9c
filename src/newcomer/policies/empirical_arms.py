"""EmpiricalArms: each action has its mean, and a person's deviation from it, learned from that person's meetings of
this action alone. It knows no directions. It is what any team writes in an afternoon, and the baseline to beat.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from newcomer.array_loops import plain
from newcomer.arrays import Floats, Ints
from newcomer.errors import PolicyError
from newcomer.model import Model
from newcomer.policies import action_memory, attributes, calls
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

    def apply_attributes(self, state: ActionMemory, users: Ints, x: Floats) -> None:
        """Shift the mean of every action; what was remembered of actions is beyond the new mean."""
        known, before = self._belief.known, attributes.widened(state.shift, self._belief.known.factor.shape[1])
        state.shift = before.copy()
        state.shift[users] = self.model.attribute_prior.given(x)[0]
        for user in users.tolist():
            for entry in range(int(state.used[user])):
                key, slot = int(state.keys[user, entry]), int(state.slots[user, entry])
                if slot < 0:
                    met = state.counts[user, entry] * known.low[key]
                else:
                    met = state.rows[user, slot] if self.model.by_ids_alone else state.rows[user, slot] @ known.factor
                state.totals[user, entry] -= met @ (state.shift[user] - before[user])

    def pool_repeatability(self, state: ActionMemory) -> Repeatability:
        """What the users of the state tell."""
        return self._belief.pooled(state)

    def rank(self, state: ActionMemory, asked: Query) -> Floats:
        """Common part, and what this person's meetings of the action add to it (m, K)."""
        seen = self._described(asked.actions, asked.ids, state.shift[asked.users])
        found = action_memory.recall(state, asked.users, seen.keys, seen.variance, seen.lasting)
        return np.asarray(seen.common + found.level + self.width * np.sqrt(found.left))

    def learn(self, state: ActionMemory, told: Rewards) -> None:
        """Remember the meetings, and what they tell of what lasts."""
        for part in each_once(told):
            ids = None if part.ids is None else part.ids[:, None]
            seen = self._described(part.features[:, None], ids, state.shift[part.users])
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

    def _described(self, actions: Floats, ids: calls.Ids | None, shift: Floats) -> Described:
        """Candidates (m, K), with the variance of shared taste among what lasts of each; attributes shift by (m, k)."""
        seen = self._belief.known.describe(actions, ids).rows(len(shift))
        if shift.shape[1]:
            seen = seen._replace(common=seen.common + np.einsum("mak,mk->ma", seen.low, shift))
        taste = np.where(seen.keys >= 0, self._taste[np.maximum(seen.keys, 0)], self._taste.mean())
        return seen._replace(lasting=seen.lasting + taste)
