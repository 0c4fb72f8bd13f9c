"""What one decision of a policy is worth, by the propensities of the logs: IPS, self-normalised IPS, doubly robust.

For row i of a held-out person, with reward r, logged action a and its propensity p, the policy is told the rows before
it and asked with which probability pi it would take each candidate. With w = pi(a) / p and q what the model expects,

    IPS               mean of w r
    self-normalised   sum of w r / sum of w
    doubly robust     mean of  sum_c pi(c) q(c) + w (r - q(a))                 (Dudik, Langford and Li 2011)

each over rows whose person has had t to t' - 1 interactions (`WINDOWS`). The value is that of one decision at moments
that the logging policy brought about, not of a whole life under the policy. Errors are over people, who have several
rows each. It holds if propensities are right and every candidate has one. That can be seen in part: averaged over
rows, 1 / p is the number of candidates. Where it is not, nothing is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.evaluation.replay import generators
from newcomer.evaluation.results import OffPolicyRow
from newcomer.gain.deals import started, told_to
from newcomer.gain.per_user import PerUser, Progress, UserTable, gather
from newcomer.gain.propensities import Menu, Offer, inconsistent
from newcomer.interval import FEWEST, ratio
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.transforms import raw

WINDOWS = ((0, 1), (1, 2), (2, 5), (5, 10), (10, 20), (20, 30))  # interactions before a row, from and to (excluded)
PEOPLE = 500  # whose states are held at a time
KEPT = ("rows", "reward", "weight", "square", "largest", "ips", "robust", "inverse", "candidates")
ROWS, RESULT, WEIGHT, SQUARE, LARGEST, IPS, ROBUST, INVERSE, OFFERED = range(len(KEPT))


def weigh(
    policies: Mapping[str, Any], expects: Any, logs: Logs, *, seed: int = 0, progress: Progress | None = None
) -> UserTable:
    """Sums over rows of each person (n, P, windows, kept); `expects` is the policy whose scores are q."""
    names = np.array(logs.action_ids)
    look = partial(_look, policies=tuple(policies.values()), expects=expects, menu=Menu(names), seed=seed)
    return UserTable(tuple(policies), gather(logs, look, progress))


def _look(batch: Batch, *, policies: tuple[Any, ...], expects: Any, menu: Menu, seed: int) -> PerUser:
    """The sums of the people of a batch: the map of a pass."""
    sums = np.zeros((len(batch.users), len(policies), len(WINDOWS), len(KEPT)))
    for first in range(0, len(batch.users), PEOPLE):
        people = np.arange(first, min(first + PEOPLE, len(batch.users)))
        _walk(batch, people, policies, expects, menu, seed, sums)
    return PerUser(batch.hashes, sums)


def _walk(
    batch: Batch, people: Ints, policies: tuple[Any, ...], expects: Any, menu: Menu, seed: int, sums: Floats
) -> None:
    """Walk along the histories of some people, asking before each row and telling it after."""
    first = batch.offsets[people][:, None]
    states, belief = [started(policy, batch, first) for policy in policies], started(expects, batch, first)
    rngs = [generators(policy, batch.hashes[people], seed) for policy in policies]
    for window, (begin, end) in enumerate(WINDOWS):
        for t in range(begin, end):
            who = np.flatnonzero(batch.lengths[people] > t)
            if not len(who):
                return
            rows = batch.offsets[people[who]] + t
            offer = menu.of(batch, rows)
            q = raw(expects.scores(belief, ids=offer.ids, mask=offer.mask, users=who), batch.reward_transform)
            for column, (policy, state) in enumerate(zip(policies, states, strict=True)):
                drawing = rngs[column]
                own = None if drawing is None else [drawing[one] for one in who]
                chances = policy.probabilities(state, rng=own, ids=offer.ids, mask=offer.mask, users=who)
                _add(sums[:, column, window], people[who], batch, rows, offer, chances, q)
            assert batch.actions is not None
            told = menu.names[batch.actions[rows]]
            for policy, state in ((expects, belief), *zip(policies, states, strict=True)):
                policy.update(state, reward=told_to(policy, batch)[rows], ids=told, users=who)


def _add(sums: Floats, people: Ints, batch: Batch, rows: Ints, offer: Offer, chances: Floats, q: Floats) -> None:
    """Add one row of each of some people to their sums (n, kept)."""
    assert batch.propensities is not None
    each, reward, p = np.arange(len(rows)), batch.paid[rows], batch.propensities[rows]
    weight = chances[each, offer.chosen] / p
    expected = np.where(np.isfinite(q), q, 0.0)
    robust = (chances * expected).sum(axis=1) + weight * (reward - expected[each, offer.chosen])
    parts = {ROWS: 1.0, RESULT: reward, WEIGHT: weight, SQUARE: weight**2, IPS: weight * reward, ROBUST: robust}
    for kind, value in (parts | {INVERSE: 1 / p, OFFERED: offer.size}).items():
        sums[people, kind] += value
    sums[people, LARGEST] = np.maximum(sums[people, LARGEST], weight)


def misfit(table: UserTable) -> str:
    """Why propensities cannot be right, by the rows of the first policy, which are those of all."""
    own = table.people.values[:, 0].sum(axis=1)
    own = own[own[:, ROWS] > 0]
    return inconsistent(own[:, ROWS], own[:, INVERSE], own[:, OFFERED])


def rows_of(table: UserTable) -> tuple[list[OffPolicyRow], int]:
    """What is told of each window and policy, and how many are left out for having too few effective rows."""
    told, missing = [], 0
    for window, (begin, _) in enumerate(WINDOWS):
        for name in table.names:
            own = table.of(name)[:, window]
            kept = own[own[:, ROWS] > 0].T
            effective = float(kept[WEIGHT].sum() ** 2 / max(kept[SQUARE].sum(), 1e-300))
            if kept.shape[1] >= FEWEST and effective >= FEWEST:
                told.append(_row(name, begin, kept, effective))
            missing += kept.shape[1] >= FEWEST > effective
    return told, missing


def _row(name: str, begin: int, kept: Floats, effective: float) -> OffPolicyRow:
    """The estimates of one window and policy, from the sums (kept, people)."""
    return OffPolicyRow(
        policy=name,
        interactions=begin,
        people=kept.shape[1],
        ips=ratio(kept[IPS], kept[ROWS]),
        self_normalised=ratio(kept[IPS], kept[WEIGHT]),
        doubly_robust=ratio(kept[ROBUST], kept[ROWS]),
        over_logging=ratio(kept[ROBUST] - kept[RESULT], kept[ROWS]),
        effective=effective,
        largest=float(kept[LARGEST].max()),
    )
