"""A user's state is the fold of the user's outcomes, in the order in which their first values were committed.

    state = policy.start(1, attributes=, repeatability=);  for each outcome: policy.update(state, action, reward)

States in memory and snapshots in the store only shorten that. A state counts if it is of the same identity (model,
policy, settings, formats), of the user's revision, and of a place that the user has reached; outcomes after that place
are folded on. Anything else is folded from the start: the events are the truth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from newcomer.errors import NewcomerError
from newcomer.serve import tables
from newcomer.serve.models import Serving, model_ids_alike
from newcomer.serve.store import Tx
from newcomer.serve.tables import Event, User

SNAPSHOT_EVERY = 8  # outcomes
MOST_STATES = 8_192  # users whose states stay in memory
MOST_NEWCOMERS = 100  # states before any outcome


@dataclass
class Folded:
    """The state of a user after the outcome at `place`; `since` counts outcomes after the last snapshot."""

    identity: str
    revision: int
    place: int
    state: Any
    since: int = 0


@dataclass
class States:
    """Folded states of the users seen last."""

    most: int = MOST_STATES
    known: OrderedDict[str, Folded] = field(default_factory=OrderedDict)
    newcomers: dict[tuple[str, int | None], Any] = field(default_factory=dict)  # by identity and repeatability

    def get(self, user: str) -> Folded | None:
        """The state of a user, if it is remembered."""
        found = self.known.get(user)
        if found is not None:
            self.known.move_to_end(user)
        return found

    def put(self, user: str, folded: Folded) -> None:
        """Remember a state, unless a newer one is."""
        found = self.known.get(user)
        same = found is not None and (found.identity, found.revision) == (folded.identity, folded.revision)
        if same and found is not None and found.place > folded.place:
            return
        self.known[user] = folded
        self.known.move_to_end(user)
        while len(self.known) > self.most:
            self.known.popitem(last=False)

    def forget(self, user: str) -> None:
        """Drop a user who was erased or merged."""
        self.known.pop(user, None)

    def clear(self) -> None:
        """Drop everybody."""
        self.known.clear()
        self.newcomers.clear()


async def fold_user(tx: Tx, serving: Serving, user: User, states: States) -> Any:
    """The state of a user, whose row is locked; newcomers about whom nothing is known share one, never changed."""
    if user.place == 0 and not user.attributes:
        return await _newcomer(tx, serving, user, states)
    found = states.get(user.id)
    current = found is not None and found.identity == serving.identity and found.revision == user.revision
    if found is None or not current or found.place > user.place:
        found = await _from_store(tx, serving, user)
        fresh = found
        tx.later(lambda: states.put(user.id, fresh))
    if found.place < user.place:
        events = await tables.outcome_rows(tx, user.id, found.place)
        learn_in_fold(serving, found.state, events)
        found.place, found.since = user.place, found.since + len(events)
        if found.since >= SNAPSHOT_EVERY:
            await tables.keep_snapshot_row(tx, user, serving.identity, found.state.to_bytes())
            tx.later(lambda: setattr(found, "since", 0))
    return found.state


async def _newcomer(tx: Tx, serving: Serving, user: User, states: States) -> Any:
    """The state before any outcome."""
    key = (serving.identity, user.repeatability)
    if key not in states.newcomers:
        begun = await begin_fold(tx, serving, user)
        if len(states.newcomers) >= MOST_NEWCOMERS:
            states.newcomers.clear()
        states.newcomers[key] = begun
    return states.newcomers[key]


async def _from_store(tx: Tx, serving: Serving, user: User) -> Folded:
    """The last snapshot of this identity, or the beginning."""
    kept = await tables.snapshot_row(tx, user, serving.identity) if user.outcomes else None
    state = await begin_fold(tx, serving, user)
    if kept is not None and kept[0] <= user.place:
        try:
            restored = type(state).from_bytes(kept[1])
            serving.policy.in_subspace(restored)
            return Folded(serving.identity, user.revision, kept[0], restored)
        except NewcomerError:
            pass  # of another version, say: the events say it again
    return Folded(serving.identity, user.revision, 0, state)


async def begin_fold(tx: Tx, serving: Serving, user: User) -> Any:
    """The state that a user began with: attributes, and the repeatability of first sight."""
    told = None
    if user.repeatability is not None and serving.shares is not None:
        found = await tables.repeatability_row(tx, user.repeatability)
        told = None if found is None else found[1]
    return serving.start(user.attributes, told)


def learn_in_fold(serving: Serving, state: Any, events: Sequence[Event]) -> None:
    """Outcomes in order; neighbours that are given alike, by id or by features, go into one call."""
    for by_features, group in groupby(events, key=lambda one: (one.features is not None, one.action is not None)):
        rows = list(group)
        try:
            _update(serving, state, rows, by_features)
        except NewcomerError:
            for row in rows:  # an action or a size that this model cannot take: the others still count
                try:
                    _update(serving, state, [row], by_features)
                except NewcomerError:
                    continue


def _update(serving: Serving, state: Any, rows: list[Event], given: tuple[bool, bool]) -> None:
    features = np.stack([np.frombuffer(row.features or b"") for row in rows]) if _even(rows, given[0]) else None
    ids = (
        model_ids_alike(serving.canonical([row.action for row in rows if row.action is not None])) if given[1] else None
    )
    rewards = [serving.fit_reward(row.reward or 0.0) for row in rows]
    serving.policy.update(state, features, rewards, ids=ids, users=np.zeros(len(rows), dtype=np.int64))


def _even(rows: list[Event], by_features: bool) -> bool:
    """Whether rows have features, all of one size; those that have not are learned one at a time."""
    if not by_features:
        return False
    if len({len(row.features or b"") for row in rows}) > 1:
        raise NewcomerError("features of different sizes")
    return True
