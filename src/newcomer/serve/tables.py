"""Every statement of the service, for both kinds of store, as functions of a transaction that take and give records.

Nothing from outside is ever part of a statement: values are parameters.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from newcomer.serve.shapes import Refused
from newcomer.serve.store import Row, Tx

DAY = 86_400.0
decode = msgspec.json.decode


class User(Struct, frozen=True):
    """A row of `users`, locked. `now` is the store's clock when it was."""

    id: str
    alias_of: str | None
    arm: str | None
    arm_probability: float | None
    repeatability: int | None
    attributes: dict[str, Any]
    place: int
    revision: int
    outcomes: int
    mixed: bool
    now: float


class Event(Struct, frozen=True):
    """A row of `events`: a decision, or an observation (arm "observed")."""

    id: str
    user: str
    at: float
    model: str
    arm: str
    propensity: float | None = None
    action: int | str | None = None
    position: int | None = None
    features: bytes | None = None  # float64 of the chosen action, where the client sent features
    candidates: tuple[int | str, ...] | None = None  # None: the whole catalogue of the model, but for `excluded`
    excluded: tuple[int | str, ...] = ()
    slate: str | None = None
    slot: int = 0
    shadow: int | str | None = None  # what the treated arm would have shown to a user of the incumbent arm
    event: str | None = None
    shown: bool = True
    deadline: float | None = None
    status: str = "pending"
    reward: float | None = None
    place: int | None = None
    change: int = 0


COLUMNS = (
    "id, user_id, at, model, arm, propensity, action, position, features, candidates, excluded, slate, slot, shadow,"
    " event, shown, deadline, status, reward, place, change"
)
PERSON = "id, alias_of, arm, arm_probability, repeatability, attributes, place, revision, outcomes, mixed, /*NOW*/"
USER = f"SELECT {PERSON} FROM users u WHERE id = $1 /*LOCK*/"
NEW_USER = (
    "INSERT INTO users (id, revision, first_seen) VALUES ($1, $2, /*NOW*/) ON CONFLICT (id) DO NOTHING"
    f" RETURNING {PERSON.replace('id,', 'users.id,', 1)}"
)
PLACES = ", ".join(f"${i}" for i in range(1, 22))


async def find_user_row(tx: Tx, user: str) -> User | None:
    """The user of this id, or whom it is another name of; its row is locked."""
    rows = await tx.all(USER, user)
    if not rows:
        return None
    found = _user(rows[0])
    return found if found.alias_of is None else await find_user_row(tx, found.alias_of)


async def lock_user_row(tx: Tx, user: str) -> User:
    """The same; a user who was never seen gets a row.

    Its revision begins anywhere: a user who was erased and returns has another one, and no process takes the state that
    it remembers of the first for the second's.
    """
    found = await find_user_row(tx, user)
    while found is None:
        made = await tx.run(NEW_USER, user, secrets.randbits(52))
        found = _user(made[0]) if made else await find_user_row(tx, user)  # another process was faster
    return found


def _user(row: Sequence[Any]) -> User:
    attributes = {} if row[5] is None else decode(row[5])
    return User(row[0], row[1], row[2], row[3], row[4], attributes, row[6], row[7], row[8], bool(row[9]), row[10])


async def set_first_sight_row(
    tx: Tx, user: User, arm: str, probability: float, shares: int, key: str, told: int | None
) -> User:
    """Store the arm of a user's first decision."""
    await tx.run(
        "UPDATE users SET arm = $2, arm_probability = $3, shares = $4, arm_key = $5, repeatability = $6 WHERE id = $1",
        *(user.id, arm, probability, shares, key, told),
    )
    return replace(user, arm=arm, arm_probability=probability, repeatability=told)


async def set_attributes_row(tx: Tx, user: User, attributes: dict[str, Any]) -> User:
    """Keep what is known of the user; its state is folded again from the start."""
    await tx.run("UPDATE users SET attributes = $2 WHERE id = $1", user.id, json.dumps(attributes, sort_keys=True))
    return await revise_user_row(tx, replace(user, attributes=attributes), 0)


async def revise_user_row(tx: Tx, user: User, place: int) -> User:
    """What was folded at this place changed: later states are worth nothing."""
    await tx.run("UPDATE users SET revision = revision + 1 WHERE id = $1", user.id)
    await tx.run("DELETE FROM snapshots WHERE user_id = $1 AND place >= $2", user.id, place)
    return replace(user, revision=user.revision + 1)


# Requests that were answered.


async def find_answer_row(tx: Tx, user: User, request: str | None, digest: str) -> bytes | None:
    """The answer to a request that came before, if it did."""
    if request is None:
        return None
    rows = await tx.all("SELECT hash, response FROM requests WHERE user_id = $1 AND request = $2", user.id, request)
    if not rows:
        return None
    if rows[0][0] != digest:
        message = "this key came with another request before: send a new key with a new request"
        raise Refused(422, "key_reused", message, "request")
    return bytes(rows[0][1])


async def keep_answer_row(tx: Tx, user: User, request: str | None, digest: str, response: bytes) -> None:
    """Keep an answer for a while, for the same request sent again."""
    if request is not None:
        sql = "INSERT INTO requests (user_id, request, hash, response, at) VALUES ($1, $2, $3, $4, $5)"
        await tx.run(sql, user.id, request, digest, response, user.now)


async def forget_answer_rows(tx: Tx, age: float) -> None:
    """Remove answers that are older."""
    await tx.run("DELETE FROM requests WHERE at < /*NOW*/ - $1", float(age))


# Events.


def event_row_id(change: int) -> str:
    """An id that nobody guesses; ids of a time are neighbours in the index."""
    return f"{change:x}-{secrets.token_hex(8)}"


async def add_event_row(tx: Tx, event: Event) -> None:
    """Write a new event."""
    await tx.run(f"INSERT INTO events ({COLUMNS}) VALUES ({PLACES})", *_values(event))


def _values(e: Event) -> tuple[Any, ...]:
    listed = None if e.candidates is None else _text(e.candidates)
    excluded = _text(e.excluded) if e.excluded else None
    known: tuple[Any, ...] = (e.id, e.user, e.at, e.model, e.arm, e.propensity, _id_text(e.action), e.position)
    known += (
        e.features,
        listed,
        excluded,
        e.slate,
        e.slot,
        _id_text(e.shadow),
        e.event,
        int(e.shown),
        e.deadline,
        e.status,
        e.reward,
    )
    return (*known, e.place, e.change)


def _event(row: Sequence[Any]) -> Event:
    values = list(row)
    values[6], values[13] = _id_of(row[6]), _id_of(row[13])
    values[8] = None if row[8] is None else bytes(row[8])
    values[9] = None if row[9] is None else tuple(decode(row[9]))
    values[10] = () if row[10] is None else tuple(decode(row[10]))
    values[15] = bool(row[15])
    return Event(*values)


def _id_text(one: int | str | None) -> str | None:
    return None if one is None else _text(one)


def _text(value: Any) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()


def _id_of(text: str | None) -> Any:
    return None if text is None else decode(text)


async def find_event_row(tx: Tx, decision: str) -> Event | None:
    """An event by its id."""
    rows = await tx.all(f"SELECT {COLUMNS} FROM events WHERE id = $1", decision)
    return _event(rows[0]) if rows else None


async def find_observation_row(tx: Tx, user: User, event: str) -> Event | None:
    """An observation by the id that its sender gave it."""
    rows = await tx.all(f"SELECT {COLUMNS} FROM events WHERE user_id = $1 AND event = $2", user.id, event)
    return _event(rows[0]) if rows else None


async def lock_event_row(tx: Tx, decision: str) -> tuple[Event, User]:
    """A decision and its user, whose row is locked; a decision that there is not is refused."""
    while True:
        whose = await tx.all("SELECT user_id FROM events WHERE id = $1 AND arm <> 'observed'", decision)
        if not whose:
            await _refuse_unknown(tx, decision)
        user = await lock_user_row(tx, whose[0][0])
        found = await find_event_row(tx, decision)
        if found is not None and found.user == user.id:  # nobody merged the user in between
            return found, user


async def _refuse_unknown(tx: Tx, decision: str) -> None:
    if await tx.all("SELECT 1 FROM erased WHERE hash = $1", await erased_row_hash(tx, decision)):
        raise Refused(410, "erased", "the user of this decision was erased", "decision")
    raise Refused(404, "unknown_decision", "there is no decision with this id", "decision")


async def set_outcome_row(tx: Tx, user: User, event: Event, status: str, reward: float | None) -> None:
    """The value of an event: a first one gets the next place, a later one keeps it and has the state folded again."""
    change = await tx.changes()
    place = change if event.place is None else event.place
    await tx.run(
        "UPDATE events SET status = $2, reward = $3, place = $4, change = $5, shown = 1, deadline = NULL WHERE id = $1",
        *(event.id, status, reward, place, change),
    )
    if event.place is None:
        await tx.run("UPDATE users SET place = $2, outcomes = outcomes + 1 WHERE id = $1", user.id, place)
    else:
        await revise_user_row(tx, user, place)


async def set_void_row(tx: Tx, user: User, event: Event) -> None:
    """Take an event out of what is learned; its place stays."""
    change = await tx.changes()
    await tx.run("UPDATE events SET status = 'void', change = $2, deadline = NULL WHERE id = $1", event.id, change)
    if event.place is not None:
        await tx.run("UPDATE users SET outcomes = outcomes - 1 WHERE id = $1", user.id)
        await revise_user_row(tx, user, event.place)


async def set_shown_row(tx: Tx, event: Event, deadline: float | None) -> None:
    """The user saw it: the wait for a reward begins."""
    change = await tx.changes()
    sql = "UPDATE events SET shown = 1, deadline = $2, change = $3 WHERE id = $1"
    await tx.run(sql, event.id, deadline, change)


async def reward_part_rows(tx: Tx, event: Event) -> dict[str, float]:
    """The rewards of a decision that add up, by their event ids."""
    rows = await tx.all("SELECT part, value FROM reward_parts WHERE event_id = $1", event.id)
    return {row[0]: row[1] for row in rows}


async def set_reward_part_row(tx: Tx, event: Event, part: str, value: float) -> None:
    """Write one of them."""
    await tx.run(
        "INSERT INTO reward_parts (event_id, part, user_id, value) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (event_id, part) DO UPDATE SET value = excluded.value",
        *(event.id, part, event.user, value),
    )


async def overdue_rows(tx: Tx, most: int) -> list[str]:
    """Decisions whose time for a reward is over."""
    sql = "SELECT id FROM events WHERE status = 'pending' AND deadline IS NOT NULL AND deadline <= /*NOW*/"
    return [row[0] for row in await tx.all(f"{sql} ORDER BY deadline LIMIT $1", most)]


async def outcome_rows(tx: Tx, user: str, after: int) -> list[Event]:
    """What a user's state is folded from, in order."""
    sql = f"SELECT {COLUMNS} FROM events WHERE user_id = $1 AND place > $2 AND status <> 'void' ORDER BY place"
    return [_event(row) for row in await tx.all(sql, user, after)]


async def changed_rows(tx: Tx, after: int, most: int, arm: str | None, *, everything: bool) -> list[Event]:
    """Events in the order of their last change; with a value and not void, or everything that changed."""
    wanted = "" if everything else " AND reward IS NOT NULL AND status <> 'void'"
    wanted += "" if arm is None else " AND arm = $3"
    sql = f"SELECT {COLUMNS} FROM events WHERE change > $1{wanted} ORDER BY change LIMIT $2"
    values = (after, most) if arm is None else (after, most, arm)
    return [_event(row) for row in await tx.all(sql, *values)]


# Snapshots: a cache of folded states.


async def snapshot_row(tx: Tx, user: User, identity: str) -> tuple[int, bytes] | None:
    """The last snapshot of a user, if it is of this identity."""
    rows = await tx.all("SELECT place, state FROM snapshots WHERE user_id = $1 AND identity = $2", user.id, identity)
    return (rows[0][0], bytes(rows[0][1])) if rows else None


async def keep_snapshot_row(tx: Tx, user: User, identity: str, state: bytes) -> None:
    """Keep the state after the last place; the user is locked, so no older one comes later."""
    await tx.run(
        "INSERT INTO snapshots (user_id, identity, place, state) VALUES ($1, $2, $3, $4) ON CONFLICT (user_id)"
        " DO UPDATE SET identity = excluded.identity, place = excluded.place, state = excluded.state",
        *(user.id, identity, user.place, state),
    )


# Models, shares, repeatability, facts about the store.


async def generation_row(tx: Tx) -> tuple[int, str] | None:
    """The generation that decides, and its model."""
    rows = await tx.all("SELECT generation, model FROM generations ORDER BY generation DESC LIMIT 1")
    return (int(rows[0][0]), rows[0][1]) if rows else None


async def current_row(tx: Tx) -> Row:
    """What decides now, in one query: generation and model, version and shares (random, control, incumbent)."""
    rows = await tx.all(
        "SELECT g.generation, g.model, s.version, s.random, s.control, s.incumbent FROM"
        " (SELECT generation, model FROM generations ORDER BY generation DESC LIMIT 1) g,"
        " (SELECT version, random, control, incumbent FROM shares ORDER BY version DESC LIMIT 1) s"
    )
    return rows[0]


async def promote_model_row(tx: Tx, model: str) -> int:
    """Begin the next generation; the counter is locked, so that two processes do not begin the same."""
    await tx.changes()
    now = await generation_row(tx)
    number = 1 if now is None else now[0] + 1
    await tx.run("INSERT INTO generations (generation, model, promoted) VALUES ($1, $2, /*NOW*/)", number, model)
    return number


async def model_file_row(tx: Tx, model: str) -> bytes | None:
    """The bytes of a model."""
    rows = await tx.all("SELECT file FROM models WHERE id = $1", model)
    return bytes(rows[0][0]) if rows else None


async def model_id_rows(tx: Tx) -> list[str]:
    """Every model of the store."""
    return [row[0] for row in await tx.all("SELECT id FROM models ORDER BY id")]


async def model_facts_row(tx: Tx, model: str) -> dict[str, Any]:
    """What was noted of a model when it was staged."""
    rows = await tx.all("SELECT facts FROM models WHERE id = $1", model)
    return dict(json.loads(rows[0][0])) if rows else {}


async def keep_model_row(tx: Tx, model: str, file: bytes, facts: dict[str, Any]) -> None:
    """Keep a model."""
    sql = "INSERT INTO models (id, file, staged, facts) VALUES ($1, $2, /*NOW*/, $3) ON CONFLICT (id) DO NOTHING"
    await tx.run(sql, model, file, json.dumps(facts))


async def shares_row(tx: Tx) -> tuple[int, float, float, float] | None:
    """Version and shares (random, control, incumbent) for new users."""
    sql = "SELECT version, random, control, incumbent FROM shares ORDER BY version DESC LIMIT 1"
    rows = await tx.all(sql)
    return (int(rows[0][0]), *map(float, rows[0][1:])) if rows else None  # type: ignore[return-value]


async def set_shares_row(tx: Tx, random: float, control: float, incumbent: float) -> int:
    """The next version of the shares."""
    await tx.changes()
    last = await shares_row(tx)
    version = 1 if last is None else last[0] + 1
    sql = "INSERT INTO shares (version, random, control, incumbent, set_at) VALUES ($1, $2, $3, $4, /*NOW*/)"
    await tx.run(sql, version, float(random), float(control), float(incumbent))
    return version


async def repeatability_row(tx: Tx, version: int | None = None) -> tuple[int, dict[str, Any]] | None:
    """A version of what the users served say of how much comes again; the last one by default."""
    if version is None:
        rows = await tx.all("SELECT version, told FROM repeatabilities ORDER BY version DESC LIMIT 1")
    else:
        rows = await tx.all("SELECT version, told FROM repeatabilities WHERE version = $1", version)
    return (int(rows[0][0]), json.loads(rows[0][1])) if rows else None


async def last_repeatability_row(tx: Tx) -> int | None:
    """The last version."""
    version = (await tx.all("SELECT max(version) FROM repeatabilities"))[0][0]
    return None if version is None else int(version)


async def keep_repeatability_row(tx: Tx, model: str, policy: str, told: dict[str, Any]) -> int:
    """The next version."""
    await tx.changes()
    last = await repeatability_row(tx)
    version = 1 if last is None else last[0] + 1
    sql = "INSERT INTO repeatabilities (version, model, policy, told, made) VALUES ($1, $2, $3, $4, /*NOW*/)"
    await tx.run(sql, version, model, policy, json.dumps(told))
    return version


async def meta_row(tx: Tx, name: str) -> str | None:
    """A fact about the store."""
    rows = await tx.all("SELECT value FROM meta WHERE name = $1", name)
    return rows[0][0] if rows else None


async def set_meta_row(tx: Tx, name: str, value: str, *, keep: bool = False) -> None:
    """Write a fact; with `keep`, unless it is there."""
    what = "NOTHING" if keep else "UPDATE SET value = excluded.value"
    await tx.run(f"INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO {what}", name, value)


async def count_up(tx: Tx, name: str) -> int:
    """A fact that counts; counters are written by one at a time."""
    await tx.changes()
    count = int(await meta_row(tx, name) or 0) + 1
    await set_meta_row(tx, name, str(count))
    return count


async def removals(tx: Tx) -> list[Row]:
    """How often users or parts of their histories were removed, in a form to compare."""
    return list(await tx.all("SELECT name, value FROM meta WHERE name IN ('erasures', 'clearings') ORDER BY name"))


async def key_row(tx: Tx) -> bytes:
    """The store's secret, by which arms are drawn and erased decisions recognised; made when it is first needed."""
    found = await meta_row(tx, "key")
    if found is None:
        await set_meta_row(tx, "key", secrets.token_hex(32), keep=True)
        found = await meta_row(tx, "key")
    assert found is not None
    return bytes.fromhex(found)


async def erased_row_hash(tx: Tx, decision: str) -> str:
    """What stays of an erased decision: a keyed hash of its id."""
    return hmac.new(await key_row(tx), decision.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


@dataclass
class Counts:
    """How much a store holds."""

    users: int
    events: int
    arms: dict[str, int] = field(default_factory=dict)


async def count_rows(tx: Tx) -> Counts:
    """Users, events, and users by arm."""
    arms = {
        row[0]: int(row[1])
        for row in await tx.all("SELECT arm, count(*) FROM users u WHERE arm IS NOT NULL GROUP BY arm")
    }
    users = await tx.all("SELECT count(*) FROM users WHERE alias_of IS NULL")
    events = await tx.all("SELECT count(*) FROM events")
    return Counts(int(users[0][0]), int(events[0][0]), arms)
