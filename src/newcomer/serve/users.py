"""Users: what is believed of one, in words and numbers; erasure, merging, and retention.

Erasing removes everything about a user from every table and from memory, and has the store's files follow; keyed hashes
of the ids of its decisions stay, so that a reward that comes late is answered with 410. Merging moves the history of an
anonymous id to the user who logged in; the old id becomes another name for the user.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import numpy as np

from newcomer.serve import lift, tables
from newcomer.serve.decide import explain_decide, whole_catalogue_to_decide
from newcomer.serve.fold import fold_user
from newcomer.serve.models import Serving
from newcomer.serve.service import Service
from newcomer.serve.shapes import Erased, Explanation, Merged, Refused, UserBelief, user_text_of_shape
from newcomer.serve.store import Tx
from newcomer.serve.tables import User

encode = msgspec.json.encode
AT_ONCE = 1_000  # users cleared by retention in one transaction
BEST = 5  # actions that a belief names


def _unknown() -> Refused:
    return Refused(404, "unknown_user", "there is no user with this id", "user")


async def user_belief(service: Service, user: str) -> bytes:
    """What is believed of a user."""
    name = user_text_of_shape(user)

    async def work(tx: Tx) -> bytes:
        who = await tables.find_user_row(tx, name)
        if who is None:
            raise _unknown()
        serving = await service.serving(tx)
        state = await fold_user(tx, serving, who, service.states)
        asked = whole_catalogue_to_decide(serving)
        best = [] if asked is None else explain_decide(serving, state, asked, most=BEST)
        found = UserBelief(
            user=who.id,
            words=user_belief_in_words(serving, who, best),
            arm=who.arm,
            arm_probability=who.arm_probability,
            outcomes=who.outcomes,
            model=serving.model.id,
            in_subspace=bool(serving.policy.in_subspace(state)[0]),
            repeatability=who.repeatability,
            attributes=who.attributes,
            best=best,
            mixed=who.mixed,
        )
        return encode(found)

    return await service.transact(work)


def user_belief_in_words(serving: Serving, who: User, best: list[Explanation]) -> str:
    """The belief as two sentences."""
    count = f"{who.outcomes} outcome{'s' * (who.outcomes != 1)}"
    arm = "no decision yet" if who.arm is None else f"arm {who.arm}"
    told = f"{count} so far, {arm}."
    if not best:
        return told
    first = best[0]
    typical = serving.model.typical(np.array([first.expected]))[0]
    unsure = "" if first.sd is None else f", give or take {first.sd:.2g}"
    names = serving.model.action_names
    named = "" if names is None else f", {names[first.index]}"
    return f"{told} Most is expected of action {json.dumps(first.action)}{named}: {typical:.3g}{unsure}."


async def erase_user(service: Service, user: str) -> bytes:
    """Remove a user; answered when the store's files are clean, as far as they can be at once."""
    name = user_text_of_shape(user)

    async def work(tx: Tx) -> Erased:
        who = await tables.find_user_row(tx, name)
        if who is None:
            raise _unknown()
        gone = [row[0] for row in await tx.all("SELECT id FROM events WHERE user_id = $1", who.id)]
        for decision in gone:
            sql = "INSERT INTO erased (hash, at) VALUES ($1, /*NOW*/) ON CONFLICT (hash) DO NOTHING"
            await tx.run(sql, await tables.erased_row_hash(tx, decision))
        for table in ("events", "reward_parts", "requests", "snapshots"):
            await tx.run(f"DELETE FROM {table} WHERE user_id = $1", who.id)
        await tx.run("DELETE FROM users WHERE alias_of = $1", who.id)
        await tx.run("DELETE FROM users WHERE id = $1", who.id)
        await lift.recount_lift_of_user(tx, who.id)
        count = await tables.count_up(tx, "erasures")
        tx.later(lambda: service.states.forget(who.id))
        return Erased(name, len(gone), count)

    found = await service.transact(work)
    await service.store.clean()
    return encode(found)


async def merge_users(service: Service, user: str, source: int | str) -> bytes:
    """Move the history of `source` to `user`."""
    target, origin = user_text_of_shape(user), user_text_of_shape(source, "from")

    async def work(tx: Tx) -> Merged:
        if target == origin:
            raise Refused(409, "same_user", "a user cannot be merged with itself", "from")
        rows = await tx.all("SELECT id, alias_of FROM users WHERE id = $1", origin)
        if not rows:
            raise Refused(404, "unknown_user", "there is no user with this id", "from")
        for one in sorted((target, origin)):  # locks in the order of ids: two merges never wait for each other
            await tables.lock_user_row(tx, one)
        into, gone = await tables.lock_user_row(tx, target), await tables.lock_user_row(tx, origin)
        if into.id == gone.id:
            if rows[0][1] is not None:  # merged before: the same answer
                return Merged(into.id, into.outcomes, into.mixed)
            raise Refused(409, "cycle", "this id is another name of that user already", "from")
        merged = await _move(tx, gone, into)
        for one in (gone.id, into.id):
            tx.later(partial(service.states.forget, one))
        return merged

    return encode(await service.transact(work))


async def _move(tx: Tx, gone: User, into: User) -> Merged:
    """Events, sums and answers change their owner; places are the store's, so the fold is in the order of commits."""
    moved = await tx.all("SELECT id FROM events WHERE user_id = $1 ORDER BY change", gone.id)
    first = await tx.changes(max(len(moved), 1))
    clash = "SELECT event FROM events WHERE user_id = $2 AND event IS NOT NULL"
    await tx.run(f"UPDATE events SET event = NULL WHERE user_id = $1 AND event IN ({clash})", gone.id, into.id)
    for number, row in enumerate(moved):  # each row is a change of its own, for readers of the exports
        await tx.run("UPDATE events SET user_id = $2, change = $3 WHERE id = $1", row[0], into.id, first + number)
    await tx.run("UPDATE reward_parts SET user_id = $2 WHERE user_id = $1", gone.id, into.id)
    same = "SELECT request FROM requests WHERE user_id = $2"
    await tx.run(f"DELETE FROM requests WHERE user_id = $1 AND request IN ({same})", gone.id, into.id)
    await tx.run("UPDATE requests SET user_id = $2 WHERE user_id = $1", gone.id, into.id)
    await tx.run("DELETE FROM snapshots WHERE user_id = $1", gone.id)
    mixed = into.mixed or gone.mixed or (None not in (gone.arm, into.arm) and gone.arm != into.arm)
    attributes = {**gone.attributes, **into.attributes}
    if into.arm is None and gone.arm is not None:
        copied = "arm, arm_probability, shares, arm_key, repeatability"
        sql = f"UPDATE users SET ({copied}) = (SELECT {copied} FROM users WHERE id = $2) WHERE id = $1"
        await tx.run(sql, into.id, gone.id)
    outcomes = into.outcomes + gone.outcomes
    await tx.run(
        "UPDATE users SET place = $2, outcomes = $3, mixed = $4, attributes = $5 WHERE id = $1",
        *(into.id, max(into.place, gone.place), outcomes, int(mixed)),
        json.dumps(attributes, sort_keys=True) if attributes else None,
    )
    await tables.revise_user_row(tx, into, 0)
    await tx.run("UPDATE users SET alias_of = $2 WHERE alias_of = $1", gone.id, into.id)
    await tx.run(
        "UPDATE users SET alias_of = $2, arm = NULL, attributes = NULL, place = 0, outcomes = 0 WHERE id = $1",
        *(gone.id, into.id),
    )
    await _recount(tx, gone, into)
    return Merged(into.id, outcomes, mixed)


async def _recount(tx: Tx, gone: User, into: User) -> None:
    """Two users with arms make one who is no part of the lift; so does one who had left it."""
    await lift.recount_lift_of_user(tx, gone.id)
    left = await tx.all("SELECT 1 FROM users WHERE id = $1 AND lift_out = 1", gone.id)
    if left or None not in (gone.arm, into.arm):
        await lift.leave_lift(tx, into.id)
    else:
        await lift.recount_lift_of_user(tx, into.id)


async def retain_users(service: Service) -> int:
    """Remove what is older than `keep`; states are the fold of what is left. Old answers go in any case."""

    async def old_answers(tx: Tx) -> None:
        await tables.forget_answer_rows(tx, service.config.answers)

    await service.store.transact(old_answers)
    keep, cleared = service.config.keep, 0
    while keep is not None:

        async def clear(tx: Tx, keep: float = keep) -> int:
            sql = "SELECT DISTINCT user_id FROM events WHERE at < /*NOW*/ - $1 LIMIT $2"
            users = sorted(row[0] for row in await tx.all(sql, float(keep), AT_ONCE))
            for user in users:
                await _clear(service, tx, await tables.lock_user_row(tx, user), float(keep))
            return len(users)

        found = await service.store.transact(clear)
        cleared += found
        if found < AT_ONCE:
            break
    if cleared:
        await service.store.transact(lambda tx: tables.count_up(tx, "clearings"))
        await service.store.clean()
    return cleared


async def _clear(service: Service, tx: Tx, who: User, keep: float) -> None:
    """One user: old events go; a user of whom nothing is left goes, too."""
    old = "SELECT id FROM events WHERE user_id = $1 AND at < /*NOW*/ - $2"
    await tx.run(f"DELETE FROM reward_parts WHERE event_id IN ({old})", who.id, keep)
    await tx.run("DELETE FROM events WHERE user_id = $1 AND at < /*NOW*/ - $2", who.id, keep)
    rows = await tx.all("SELECT count(place), count(*) FROM events WHERE user_id = $1 AND status <> 'void'", who.id)
    left, events = int(rows[0][0]), int(rows[0][1])
    await tables.revise_user_row(tx, who, 0)
    if events == 0:
        for table in ("requests", "snapshots", "events"):
            await tx.run(f"DELETE FROM {table} WHERE user_id = $1", who.id)
        await tx.run("DELETE FROM users WHERE id = $1 OR alias_of = $1", who.id)
        await lift.recount_lift_of_user(tx, who.id)
    else:
        await tx.run("UPDATE users SET outcomes = $2 WHERE id = $1", who.id, left)
        await lift.leave_lift(tx, who.id)
    tx.later(lambda: service.states.forget(who.id))


async def listed_users(service: Service, after: str, most: int) -> list[dict[str, Any]]:
    """Users and their attributes, by id."""

    async def work(tx: Tx) -> list[dict[str, Any]]:
        sql = (
            "SELECT id, arm, outcomes, mixed, attributes FROM users u WHERE alias_of IS NULL AND id > $1"
            " ORDER BY id LIMIT $2"
        )
        return [
            {"user": r[0], "arm": r[1], "outcomes": r[2], "mixed": bool(r[3]), **(json.loads(r[4]) if r[4] else {})}
            for r in await tx.all(sql, after, most)
        ]

    return await service.transact(work)
