"""What policies are worth to the people of some logs, choosing among their own logged rows.

Of each person's rows, K are candidates and t others are told to the policy first (`newcomer.gain.deals`). Any policy
can play, as it would in service, and the logs are those of people whom its model has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.gain.deals import deal, informed, meant
from newcomer.logs import Logs
from newcomer.logs.batch import Batch


def served(
    policies: Mapping[str, Any], logs: Logs, *, steps: int, choices: int, deals: int = 4, seed: int = 0
) -> dict[str, Floats]:
    """The reward of each policy's choice, averaged over the deals of each person who has enough rows: (people,) each.

    `policies` follow the contract; the same deals are dealt to all.
    """
    found: dict[str, list[Floats]] = {name: [] for name in policies}
    names = None if logs.action_ids is None else np.array(logs.action_ids)
    for batch in logs.batches():
        who = np.flatnonzero(batch.lengths >= choices + steps)
        if not len(who):
            continue
        for name, policy in policies.items():
            each = [_one(policy, batch, who, choices, steps, number, names, seed) for number in range(deals)]
            found[name].append(np.mean(each, axis=0))
    return {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in found.items()}


def _one(policy: Any, batch: Batch, who: Ints, choices: int, steps: int, number: int, names: Any, seed: int) -> Floats:
    """The rewards (m,) of one deal."""
    dealt = deal(batch, who, choices, steps, number)
    state = informed(policy, batch, dealt.known, names)
    features, ids = meant(policy, batch, dealt.candidates, names)
    rngs = [np.random.default_rng([seed, number, int(one)]) for one in batch.hashes[who]]
    chosen = policy.choose(state, features, rngs, ids=ids)
    return np.asarray(np.take_along_axis(batch.paid[dealt.candidates], chosen[:, None], axis=1)[:, 0])
