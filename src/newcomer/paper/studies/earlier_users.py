"""Earlier users: newcomers of a world who were served before, and tell the next ones how much of an answer comes again.

`deal` draws people of a table without their features, so that hundreds are served in a second.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.policies.repeatability import Repeatability
from newcomer.worlds.people import People
from newcomer.worlds.world import world_stream

EARLIER, TOLD = 20, "told"


class Dealt(NamedTuple):
    """n newcomers, T rounds of K questions: their places, what stays of the answers, and the answers."""

    offered: Ints
    means: Floats
    rewards: Floats


def deal(world: People, users: int, rounds: int, seed: int, who: str = "newcomer") -> Dealt:
    """Newcomers of a world, each from a generator of its own; earlier ones have another name than those who follow."""
    dealt = [world.answers(world_stream(seed, who, user), rounds) for user in range(users)]
    return Dealt(*(np.stack(part) for part in zip(*dealt, strict=True)))


def serve(policy: Any, dealt: Dealt, told: Repeatability | None = None) -> tuple[Floats, Any]:
    """Regret (n,) of newcomers who start with this repeatability, and the state that they leave."""
    n, ids = len(dealt.offered), np.array(policy.model.action_ids)
    who, regret, state = np.arange(n), np.zeros(n), policy.start(n, repeatability=told)
    rngs = [world_stream(0, "policy", user) for user in range(n)]
    for t in range(dealt.offered.shape[1]):
        names = ids[dealt.offered[:, t]]
        chosen = policy.choose(state, rng=rngs, ids=names)
        regret += dealt.means[:, t].max(axis=1) - dealt.means[who, t, chosen]
        policy.update(state, ids=names[who, chosen], reward=dealt.rewards[who, t, chosen])
    return regret, state


def after(policy: Any, earlier: Dealt) -> Any:
    """The policy, as `play` takes it, with newcomers who start with the repeatability of earlier ones."""
    learned = policy.repeatability(serve(policy, earlier)[1])
    start = partial(policy.start, repeatability=learned)
    return SimpleNamespace(start=start, choose=policy.choose, update=policy.update, in_subspace=policy.in_subspace)
