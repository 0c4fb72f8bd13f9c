"""Deals: a user's own logged rows are dealt at random; K of them become candidates, t others are what is known.

A policy observes the known rows, picks a candidate, and gets the reward that this user really gave. No simulator and
no propensity is needed: all policies choose among the same rows, whose rewards are known. It supposes that newcomers
are like the users of the logs, that they are shown what the logs show, and that the rows of a history are as good in
one order as in another.

Everything that asks what a choice is worth deals in the same way: K is half of a usual history, at most ten, and
fewer where that leaves users five rows to be known by.

Numbers kept user by user through a pass over the logs: the record that every estimate here is made of.

Averages are taken at the end, over users sorted by their hashes: neither the order of users, nor how they fall into
batches, nor who carries out the pass changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Hashes, Ints
from newcomer.encoding import translate_encoding
from newcomer.gain.settings import GAINS
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import reduce
from newcomer.users import mix_user_hashes


@dataclass(frozen=True)
class Deal:
    """Rows of m deals: candidates (m, K) and what is known (m, t), as positions in a batch."""

    candidates: Ints
    known: Ints


def deal_lengths(batch: Batch) -> Ints:
    """How many histories have each length, up to the last, which counts all longer ones."""
    return np.bincount(np.minimum(batch.lengths, GAINS.longest), minlength=GAINS.longest + 1).astype(np.int64)


def usual_deal_length(lengths: Ints) -> int:
    """The median length of histories that have two rows; 0 where there are none."""
    able = lengths.copy()
    able[:2] = 0
    return int(np.searchsorted(np.cumsum(able), able.sum() / 2)) if able.any() else 0


def deal_choices(length: int) -> int:
    """How many candidates are dealt where this is the usual length of a history.

    >>> [deal_choices(length) for length in (2, 4, 8, 12, 166)]
    [2, 2, 3, 6, 10]
    """
    return int(np.clip(min(length // 2, max(length - GAINS.look, 2)), 2, GAINS.choices))


def deal_rows(batch: Batch, who: Ints, choices: int, steps: int, number: int) -> Deal:
    """Deal the rows of some users: which they are depends on the user and the number of the deal alone.

    The candidates of a user are the same for any number of steps.
    """
    lengths = batch.lengths[who]
    ends = np.cumsum(lengths)
    inside = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    seeds = mix_user_hashes(batch.hashes[who] + np.uint64(number))
    lottery = mix_user_hashes(np.repeat(seeds, lengths) ^ mix_user_hashes(inside.astype(np.uint64)))
    order = np.lexsort((lottery, np.repeat(np.arange(len(who)), lengths)))
    first = (ends - lengths)[:, None] + np.arange(choices + steps)
    taken = inside[order][first] + batch.offsets[who][:, None]
    return Deal(taken[:, :choices], taken[:, choices:])


def start_dealt_users(policy: Any, batch: Batch, rows: Ints) -> Any:
    """The state of m newcomers, the users of `rows` (m, ...), with their attributes where these are known."""
    state = policy.start(len(rows))
    if batch.attributes is None or not getattr(policy, "takes_attributes", False) or not len(rows):
        return state
    users = np.searchsorted(batch.offsets, rows[:, 0], side="right") - 1
    x = translate_encoding(batch.attributes[users], batch.attribute_columns, policy.model.attributes)
    policy.apply_attributes(state, state.own_rows(np.arange(len(rows))), x)
    return state


def inform_dealt_users(policy: Any, batch: Batch, dealt: Deal, names: Any) -> Any:
    """The state of m newcomers after their rows `known` (m, t), with their attributes."""
    known = dealt.known
    people, steps = known.shape
    state = start_dealt_users(policy, batch, dealt.candidates)
    if steps:
        told, users = known.ravel(), np.repeat(np.arange(people), steps)
        features, ids = dealt_actions(policy, batch, told, names)
        policy.update(state, features, dealt_rewards(policy, batch)[told], ids=ids, users=users)
    return state


def dealt_rewards(policy: Any, batch: Batch) -> Floats:
    """The rewards (rows,) as a policy takes them: themselves if its model transforms them, else as they are learned."""
    keeps = getattr(getattr(policy, "model", None), "reward_transform", None)
    return batch.paid if keeps is not None else batch.rewards


def dealt_actions(policy: Any, batch: Batch, rows: Ints, names: Any) -> tuple[Floats | None, Any]:
    """Features and ids of rows; a policy whose model has a catalogue gets ids alone, and knows its own features."""
    ids = None if names is None or batch.actions is None else names[batch.actions[rows]]
    model = getattr(policy, "model", None)
    if ids is not None and model is not None and (model.one_hot or model.action_features is not None):
        return None, ids
    return batch.take(rows.ravel()).reshape(*rows.shape, batch.dim), ids


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PerUser:
    """`values` (n, ...) of n users, NaN where there is nothing to tell."""

    hashes: Hashes
    values: Floats

    def __add__(self, other: PerUser) -> PerUser:
        """Both groups of users, in an order that depends on nothing but the users."""
        hashes = np.concatenate([self.hashes, other.hashes])
        order = np.argsort(hashes, kind="stable")
        return PerUser(hashes[order], np.concatenate([self.values, other.values])[order])


def gather_dealt_users(logs: Logs, look: Callable[[Batch], PerUser], progress: Progress | None = None) -> PerUser:
    """What `look` keeps of the users of all batches."""
    return reduce(logs, look, _join, progress=progress)


def _join(one: PerUser, other: PerUser) -> PerUser:
    return one + other


@dataclass(frozen=True)
class UserResults:
    """Numbers of users by name of a predictor or policy: `people.values` are (n, names, ...).

    `folds` (n,) says by which of several fits each of the users was judged; None where there is one.
    """

    names: tuple[str, ...]
    people: PerUser
    folds: Ints | None = None

    def of(self, name: str) -> Floats:
        """The numbers (n, ...) under a name."""
        return np.asarray(self.people.values[:, self.names.index(name)])

    @classmethod
    def joined(cls, tables: Sequence[UserResults]) -> UserResults:
        """The users of several folds, under the names that all of these have."""
        names = tuple(name for name in tables[0].names if all(name in table.names for table in tables))
        hashes = np.concatenate([one.people.hashes for one in tables])
        values = np.concatenate([np.stack([one.of(name) for name in names], axis=1) for one in tables])
        folds = np.repeat(np.arange(len(tables)), [len(one.people.hashes) for one in tables])
        order = np.argsort(hashes, kind="stable")
        return cls(names, PerUser(hashes[order], values[order]), folds[order] if len(tables) > 1 else None)
