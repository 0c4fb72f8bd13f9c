"""What policies are worth to the people of some logs, choosing among their own logged rows.

The deals are those of the outlook (`newcomer.population.outlook`): of each person's rows, K are candidates and t others
are told to the policy first. Here any policy can play, as it would in service, and the logs are those of people whom
its model has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.population.outlook import deal


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


def informed(policy: Any, batch: Batch, known: Ints, names: Any) -> Any:
    """The state of m newcomers who have been told their rows `known` (m, t)."""
    people, steps = known.shape
    state = policy.start(people)
    if steps:
        told, users = known.ravel(), np.repeat(np.arange(people), steps)
        features, ids = meant(policy, batch, told, names)
        policy.update(state, features, told_to(policy, batch)[told], ids=ids, users=users)
    return state


def told_to(policy: Any, batch: Batch) -> Floats:
    """The rewards (rows,) as a policy takes them: themselves if its model transforms them, else as they are learned."""
    keeps = getattr(getattr(policy, "model", None), "reward_transform", None)
    return batch.paid if keeps is not None else batch.rewards


def meant(policy: Any, batch: Batch, rows: Ints, names: Any) -> tuple[Floats | None, Any]:
    """Features and ids of rows; a policy whose model has a catalogue is told ids alone, and knows its own features."""
    ids = None if names is None or batch.actions is None else names[batch.actions[rows]]
    model = getattr(policy, "model", None)
    if ids is not None and model is not None and (model.one_hot or model.action_features is not None):
        return None, ids
    return batch.take(rows.ravel()).reshape(*rows.shape, batch.dim), ids
