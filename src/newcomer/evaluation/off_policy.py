"""Replay: policies serve held-out users from nothing, choosing among the rows that the user has left.

In each round a policy chooses one of the remaining rows of the user, observes the logged reward, and the row
is gone. No simulator and no propensity is needed. All rows would give every policy the same sum, so that no more than
half of them are played. It supposes that a reward is the same whenever its row comes.

What policies are worth to the users of some logs, choosing among their own logged rows.

Of each user's rows, K are candidates and t others are observed by the policy first (`newcomer.gain.deals`). Any policy
can play, as it would in service, and the logs are those of users whom its model has not seen.

What one decision of a policy is worth, by the propensities of the logs: IPS, self-normalised IPS, doubly robust.

For row i of a held-out user, with reward r, logged action a and its propensity p, the policy observes the rows before
it and asked with which probability pi it would take each candidate. With w = pi(a) / p and q what the model expects,

    IPS               mean of w r
    self-normalised   sum of w r / sum of w
    doubly robust     mean of  sum_c pi(c) q(c) + w (r - q(a))                 (Dudik, Langford and Li 2011)

each over rows whose user has had t to t' - 1 interactions (`windows`). The value is that of one decision at moments
that the logging policy brought about, not of a whole life under the policy. Errors are over users, who have several
rows each. It holds if propensities are right and every candidate has one. That can be seen in part: averaged over
rows, 1 / p is the number of candidates. Where it is not, nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.evaluation.results import OffPolicyRow
from newcomer.evaluation.settings import EVALUATION
from newcomer.gain.deals import (
    PerUser,
    Progress,
    UserResults,
    deal_rows,
    dealt_actions,
    dealt_rewards,
    gather_dealt_users,
    inform_dealt_users,
    start_dealt_users,
)
from newcomer.gain.propensities import Menu, Offer, inconsistent_propensities
from newcomer.interval import FEWEST, ratio_interval
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.transforms import untransform_rewards


def off_policy_replay(
    policies: Mapping[str, Any], logs: Logs, *, rounds: int, seed: int = 0, progress: Progress | None = None
) -> UserResults:
    """Rewards (n, P, T) of P policies in T rounds for everybody who has twice as many rows."""
    names = None if logs.action_ids is None else np.array(logs.action_ids)
    look = partial(_replayed, policies=tuple(policies.values()), names=names, rounds=rounds, seed=seed)
    return UserResults(tuple(policies), gather_dealt_users(logs, look, progress))


def _replayed(batch: Batch, *, policies: tuple[Any, ...], names: Any, rounds: int, seed: int) -> PerUser:
    """The games of the users of a batch: the map of a pass."""
    people = np.flatnonzero(batch.lengths >= 2 * rounds)
    won = np.empty((len(people), len(policies), rounds))
    most = max(1, EVALUATION.bytes // (8 * batch.dim * EVALUATION.pool))
    for first in range(0, len(people), most):
        some = people[first : first + most]
        rows, offered = off_policy_replay_pools(batch, some)
        for column, policy in enumerate(policies):
            rngs = _replay_generators(policy, batch.hashes[some], seed)
            won[first : first + most, column] = _played(policy, batch, rows, offered.copy(), names, rounds, rngs)
    return PerUser(batch.hashes[people], won)


def _replay_generators(policy: Any, hashes: Hashes, seed: int) -> list[np.random.Generator] | None:
    """One generator a user, the same in every batch; None for a policy that draws nothing."""
    if not getattr(policy, "sampled", True):
        return None
    return [np.random.default_rng([seed, int(one)]) for one in hashes]


def off_policy_replay_pools(batch: Batch, people: Ints) -> tuple[Ints, Bools]:
    """Up to `pool` rows (m, R) of each user, drawn by lot, and which of them there are."""
    lengths = np.minimum(batch.lengths[people], EVALUATION.pool)
    size = int(lengths.max())
    rows = np.empty((len(people), size), dtype=np.int64)
    for length in np.unique(lengths):
        same = lengths == length
        dealt = deal_rows(batch, people[same], int(length), 0, 0).candidates
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
    who, state = np.arange(len(rows)), start_dealt_users(policy, batch, rows)
    won = np.empty((len(rows), rounds))
    features, ids = dealt_actions(policy, batch, rows, names)
    for t in range(rounds):
        chosen = policy.choose(state, features, rngs, ids=ids, mask=offered)
        won[:, t] = batch.paid[rows[who, chosen]]
        seen = None if features is None else features[who, chosen]
        reward = dealt_rewards(policy, batch)[rows[who, chosen]]
        policy.update(state, seen, reward, ids=None if ids is None else ids[who, chosen])
        offered[who, chosen] = False
    return won


def off_policy_choice_rewards(
    policies: Mapping[str, Any], logs: Logs, *, steps: int, choices: int, deals: int = 4, seed: int = 0
) -> dict[str, Floats]:
    """The reward of each policy's choice, averaged over the deals of each user who has enough rows: (users,) each.

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
    dealt = deal_rows(batch, who, choices, steps, number)
    state = inform_dealt_users(policy, batch, dealt, names)
    features, ids = dealt_actions(policy, batch, dealt.candidates, names)
    rngs = [np.random.default_rng([seed, number, int(one)]) for one in batch.hashes[who]]
    chosen = policy.choose(state, features, rngs, ids=ids)
    return np.asarray(np.take_along_axis(batch.paid[dealt.candidates], chosen[:, None], axis=1)[:, 0])


KEPT = ("rows", "reward", "weight", "square", "largest", "ips", "robust", "inverse", "candidates")
ROWS, RESULT, WEIGHT, SQUARE, LARGEST, IPS, ROBUST, INVERSE, OFFERED = range(len(KEPT))


def off_policy_sums(
    policies: Mapping[str, Any], expects: Any, logs: Logs, *, seed: int = 0, progress: Progress | None = None
) -> UserResults:
    """Sums over rows of each user (n, P, windows, kept); `expects` is the policy whose scores are q."""
    names = np.array(logs.action_ids)
    look = partial(_look, policies=tuple(policies.values()), expects=expects, menu=Menu(names), seed=seed)
    return UserResults(tuple(policies), gather_dealt_users(logs, look, progress))


def _look(batch: Batch, *, policies: tuple[Any, ...], expects: Any, menu: Menu, seed: int) -> PerUser:
    """The sums of the users of a batch: the map of a pass."""
    sums = np.zeros((len(batch.users), len(policies), len(EVALUATION.windows), len(KEPT)))
    for first in range(0, len(batch.users), EVALUATION.states):
        people = np.arange(first, min(first + EVALUATION.states, len(batch.users)))
        _walk(batch, people, policies, expects, menu, seed, sums)
    return PerUser(batch.hashes, sums)


def _walk(
    batch: Batch, people: Ints, policies: tuple[Any, ...], expects: Any, menu: Menu, seed: int, sums: Floats
) -> None:
    """Walk along the histories of some users, with a query before each row, which is observed after it."""
    first = batch.offsets[people][:, None]
    states, belief = (
        [start_dealt_users(policy, batch, first) for policy in policies],
        start_dealt_users(expects, batch, first),
    )
    rngs = [_replay_generators(policy, batch.hashes[people], seed) for policy in policies]
    for window, (begin, end) in enumerate(EVALUATION.windows):
        for t in range(begin, end):
            who = np.flatnonzero(batch.lengths[people] > t)
            if not len(who):
                return
            rows = batch.offsets[people[who]] + t
            offer = menu.of(batch, rows)
            q = untransform_rewards(
                expects.scores(belief, ids=offer.ids, mask=offer.mask, users=who), batch.reward_transform
            )
            for column, (policy, state) in enumerate(zip(policies, states, strict=True)):
                drawing = rngs[column]
                own = None if drawing is None else [drawing[one] for one in who]
                chances = policy.probabilities(state, rng=own, ids=offer.ids, mask=offer.mask, users=who)
                _add(sums[:, column, window], people[who], batch, rows, offer, chances, q)
            assert batch.actions is not None
            ids = menu.names[batch.actions[rows]]
            for policy, state in ((expects, belief), *zip(policies, states, strict=True)):
                policy.update(state, reward=dealt_rewards(policy, batch)[rows], ids=ids, users=who)


def _add(sums: Floats, people: Ints, batch: Batch, rows: Ints, offer: Offer, chances: Floats, q: Floats) -> None:
    """Add one row of each of some users to their sums (n, kept)."""
    assert batch.propensities is not None
    each, reward, p = np.arange(len(rows)), batch.paid[rows], batch.propensities[rows]
    weight = chances[each, offer.chosen] / p
    expected = np.where(np.isfinite(q), q, 0.0)
    robust = (chances * expected).sum(axis=1) + weight * (reward - expected[each, offer.chosen])
    parts = {ROWS: 1.0, RESULT: reward, WEIGHT: weight, SQUARE: weight**2, IPS: weight * reward, ROBUST: robust}
    for kind, value in (parts | {INVERSE: 1 / p, OFFERED: offer.size}).items():
        sums[people, kind] += value
    sums[people, LARGEST] = np.maximum(sums[people, LARGEST], weight)


def off_policy_misfit(table: UserResults) -> str:
    """Why propensities cannot be right, by the rows of the first policy, which are those of all."""
    own = table.people.values[:, 0].sum(axis=1)
    own = own[own[:, ROWS] > 0]
    return inconsistent_propensities(own[:, ROWS], own[:, INVERSE], own[:, OFFERED])


def off_policy_rows(table: UserResults) -> tuple[list[OffPolicyRow], int]:
    """The estimate of each window and policy, and how many are left out for having too few effective rows."""
    told, missing = [], 0
    for window, (begin, _) in enumerate(EVALUATION.windows):
        for name in table.names:
            own = table.of(name)[:, window]
            kept = own[own[:, ROWS] > 0].T
            effective = float(kept[WEIGHT].sum() ** 2 / max(kept[SQUARE].sum(), 1e-300))
            if kept.shape[1] >= FEWEST and effective >= FEWEST:
                told.append(_row(name, begin, kept, effective))
            missing += kept.shape[1] >= FEWEST > effective
    return told, missing


def _row(name: str, begin: int, kept: Floats, effective: float) -> OffPolicyRow:
    """The estimates of one window and policy, from the sums (kept, users)."""
    return OffPolicyRow(
        policy=name,
        interactions=begin,
        people=kept.shape[1],
        ips=ratio_interval(kept[IPS], kept[ROWS]),
        self_normalised=ratio_interval(kept[IPS], kept[WEIGHT]),
        doubly_robust=ratio_interval(kept[ROBUST], kept[ROWS]),
        over_logging=ratio_interval(kept[ROBUST] - kept[RESULT], kept[ROWS]),
        effective=effective,
        largest=float(kept[LARGEST].max()),
    )
