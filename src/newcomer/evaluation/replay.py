"""Replay: policies serve held-out people from nothing, choosing among the rows that the person has left.

In each round a policy chooses one of the remaining rows of the person, is told the reward that was logged, and the row
is gone. No simulator and no propensity is needed. All rows would give every policy the same sum, so that no more than
half of them are played. It supposes that a reward is the same whenever its row comes.

What policies are worth to the people of some logs, choosing among their own logged rows.

Of each person's rows, K are candidates and t others are told to the policy first (`newcomer.gain.deals`). Any policy
can play, as it would in service, and the logs are those of people whom its model has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.evaluation.cold_start import BYTES
from newcomer.gain.deals import deal, informed, meant, started, told_to
from newcomer.gain.per_user import PerUser, Progress, UserTable, gather
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs

POOL = 30  # rows of a person, drawn by lot, that are on offer
ROUNDS = (1, 2, 5, 10)  # after which the average reward is told


def replay(
    policies: Mapping[str, Any], logs: Logs, *, rounds: int, seed: int = 0, progress: Progress | None = None
) -> UserTable:
    """Rewards (n, P, T) of P policies in T rounds for everybody who has twice as many rows."""
    names = None if logs.action_ids is None else np.array(logs.action_ids)
    look = partial(_look, policies=tuple(policies.values()), names=names, rounds=rounds, seed=seed)
    return UserTable(tuple(policies), gather(logs, look, progress))


def _look(batch: Batch, *, policies: tuple[Any, ...], names: Any, rounds: int, seed: int) -> PerUser:
    """The games of the people of a batch: the map of a pass."""
    people = np.flatnonzero(batch.lengths >= 2 * rounds)
    won = np.empty((len(people), len(policies), rounds))
    most = max(1, BYTES // (8 * batch.dim * POOL))
    for first in range(0, len(people), most):
        some = people[first : first + most]
        rows, offered = pools(batch, some)
        for column, policy in enumerate(policies):
            rngs = generators(policy, batch.hashes[some], seed)
            won[first : first + most, column] = _played(policy, batch, rows, offered.copy(), names, rounds, rngs)
    return PerUser(batch.hashes[people], won)


def generators(policy: Any, hashes: Hashes, seed: int) -> list[np.random.Generator] | None:
    """One generator a person, the same in every batch; None for a policy that draws nothing."""
    if not getattr(policy, "sampled", True):
        return None
    return [np.random.default_rng([seed, int(one)]) for one in hashes]


def pools(batch: Batch, people: Ints) -> tuple[Ints, Bools]:
    """Up to `POOL` rows (m, R) of each person, drawn by lot, and which of them there are."""
    lengths = np.minimum(batch.lengths[people], POOL)
    size = int(lengths.max())
    rows = np.empty((len(people), size), dtype=np.int64)
    for length in np.unique(lengths):
        same = lengths == length
        dealt = deal(batch, people[same], int(length), 0, 0).candidates
        rows[same] = np.concatenate([dealt, np.repeat(dealt[:, :1], size - length, axis=1)], axis=1)
    return rows, np.arange(size) < lengths[:, None]


def _played(
    policy: Any,
    batch: Batch,
    rows: Ints,
    offered: Bools,
    names: Any,
    rounds: int,
    rngs: list[np.random.Generator] | None,
) -> Floats:
    """The rewards (m, T) of one policy; `offered` (m, R) loses what is chosen."""
    who, state = np.arange(len(rows)), started(policy, batch, rows)
    won = np.empty((len(rows), rounds))
    features, ids = meant(policy, batch, rows, names)
    for t in range(rounds):
        chosen = policy.choose(state, features, rngs, ids=ids, mask=offered)
        won[:, t] = batch.paid[rows[who, chosen]]
        told = None if features is None else features[who, chosen]
        reward = told_to(policy, batch)[rows[who, chosen]]
        policy.update(state, told, reward, ids=None if ids is None else ids[who, chosen])
        offered[who, chosen] = False
    return won


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
    state = informed(policy, batch, dealt, names)
    features, ids = meant(policy, batch, dealt.candidates, names)
    rngs = [np.random.default_rng([seed, number, int(one)]) for one in batch.hashes[who]]
    chosen = policy.choose(state, features, rngs, ids=ids)
    return np.asarray(np.take_along_axis(batch.paid[dealt.candidates], chosen[:, None], axis=1)[:, 0])
