"""The routes of the API: one table of operations, and who carries each of them out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from newcomer.errors import NewcomerError, StoreError
from newcomer.serve import decide, export, lift, rewards, shapes, status, tables, users
from newcomer.serve import models as model_files
from newcomer.serve.arms import Shares, check_arm_shares
from newcomer.serve.openapi import Operation, Query
from newcomer.serve.service import Service
from newcomer.serve.shapes import Refused
from newcomer.serve.store import Tx

encode = msgspec.json.encode


@dataclass
class Call:
    """A request, as handlers see it."""

    body: bytes
    path: list[str]  # segments of the address, decoded one by one: ids may hold anything
    query: dict[str, str]
    key: str | None
    asked: Any = None


@dataclass
class Answer:
    """What a handler gives where JSON alone is not enough."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    problem: shapes.Problem | None = None  # why it was refused


Handler = Callable[[Service, Call], Awaitable[bytes | Answer]]


# Handlers.


def _keyed(call: Call, request: Any) -> Any:
    """The request with the key of its header."""
    if call.key is None or request.request == call.key:
        return request
    if request.request is not None:
        raise Refused(422, "two_keys", "the header and the body have different keys", "request")
    return msgspec.structs.replace(request, request=call.key)


async def _decide(service: Service, call: Call) -> bytes:
    return await decide.decide(service, _keyed(call, call.asked))


async def _reward(service: Service, call: Call) -> bytes:
    return await rewards.take_reward(service, _keyed(call, call.asked))


async def _observe(service: Service, call: Call) -> bytes:
    return await rewards.observe_reward(service, _keyed(call, call.asked))


def _batch(one: Callable[[Service, Any], Awaitable[bytes]], whose: Callable[[Any], str]) -> Handler:
    """A batch: items of one user one after another, in order; users side by side."""

    async def answer(service: Service, call: Call) -> bytes:
        items = call.asked.items
        service.config.limits.count(len(items), service.config.limits.batch, "items", "items")
        found: list[bytes] = [b""] * len(items)
        key = "" if call.key is None else call.key if len(call.key) <= 240 else sha256(call.key.encode()).hexdigest()
        groups: dict[str, list[int]] = {}
        for place, item in enumerate(items):
            if isinstance(item, Refused):
                found[place] = item.body()
            else:
                groups.setdefault(whose(item), []).append(place)

        async def in_order(places: list[int]) -> None:
            for place in places:
                item = items[place]
                if call.key is not None and item.request is None:
                    item = msgspec.structs.replace(item, request=f"{key}#{place}")
                try:
                    found[place] = await one(service, item)
                except Refused as refused:
                    found[place] = refused.body()
                except NewcomerError as problem:
                    found[place] = route_refusal(problem).body()

        await asyncio.gather(*(in_order(places) for places in groups.values()))
        return b'{"items":[' + b",".join(found) + b"]}"

    return answer


async def _look(service: Service, call: Call) -> bytes:
    return await rewards.look_at_rewards(service, call.path[2])


async def _shown(service: Service, call: Call) -> bytes:
    return await rewards.shown_before_reward(service, call.path[2])


async def _void(service: Service, call: Call) -> bytes:
    return await rewards.void_reward(service, call.path[2])


async def _belief(service: Service, call: Call) -> bytes:
    return await users.user_belief(service, call.path[2])


async def _erase(service: Service, call: Call) -> bytes:
    return await users.erase_user(service, call.path[2])


async def _merge(service: Service, call: Call) -> bytes:
    return await users.merge_users(service, call.path[2], call.asked.from_)


async def _users(service: Service, call: Call) -> Answer:
    rows = await users.listed_users(service, call.query.get("since", ""), _limit(call))
    body = "".join(json.dumps(row) + "\n" for row in rows).encode("utf-8", "replace")
    cursor = str(rows[-1]["user"]) if rows else call.query.get("since", "")
    return Answer(body, {"content-type": "application/x-ndjson", "newcomer-cursor": json.dumps(cursor)})


def _limit(call: Call) -> int:
    given = call.query.get("limit", str(export.MOST))
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) > 0):
        raise Refused(422, "bad_limit", "a limit is a whole number from 1", "limit")
    return min(int(given), export.MOST)


async def _logs(service: Service, call: Call) -> Answer:
    query = call.query
    form, arm = query.get("format", "ndjson"), query.get("arm")
    if arm is not None and arm not in ("treated", "control", "incumbent", "random", "observed"):
        raise Refused(422, "bad_arm", "there is no such arm", "arm")
    body, headers = await export.export_logs(service, form, query.get("since"), arm, _limit(call))
    return Answer(body, headers)


async def _models(service: Service, call: Call) -> bytes:
    return encode(await service.transact(status.status_models))


async def _stage(service: Service, call: Call) -> bytes:
    model = await asyncio.to_thread(model_files.read_sent_model, call.body, service.config.policy)

    async def work(tx: Tx) -> None:
        await tables.keep_model_row(tx, model.id, call.body, model_files.facts_of_model(model))

    await service.transact(work)
    found = await service.transact(status.status_models)
    return encode(next(one for one in found.models if one.id == model.id))


async def _promote(service: Service, call: Call) -> bytes:
    wanted = call.path[2]

    async def file(tx: Tx) -> bytes | None:
        return await tables.model_file_row(tx, wanted)

    data = await service.transact(file)
    if data is None:
        raise Refused(404, "unknown_model", "there is no model with this id", "model")
    model = await asyncio.to_thread(model_files.load_stored_model, data)

    async def work(tx: Tx) -> None:
        serving = await service.serving(tx)
        if serving.model.id == wanted:
            return
        sent = await tx.all("SELECT 1 FROM events WHERE features IS NOT NULL LIMIT 1")
        if sent and not model_files.models_have_same_features(serving.model, model):
            message = "clients send raw features, and this model has others: fit it with the same names and number"
            raise Refused(409, "other_features", message, "model")
        await service.promote(tx, wanted)

    await service.transact(work)
    await service.transact(service.serving)
    return encode(await service.transact(status.status_models))


async def _arms(service: Service, call: Call) -> bytes:
    return encode(status.status_shares(await service.transact(service.shares)))


async def _set_arms(service: Service, call: Call) -> bytes:
    wanted: shapes.Shares = call.asked
    check_arm_shares(wanted.random, wanted.control, wanted.incumbent)

    async def work(tx: Tx) -> Shares:
        now = await service.shares(tx)
        if (now.random, now.control, now.incumbent) != (wanted.random, wanted.control, wanted.incumbent):
            await service.set_shares(tx, wanted.random, wanted.control, wanted.incumbent)
        return await service.shares(tx)

    return encode(status.status_shares(await service.transact(work)))


async def _lift(service: Service, call: Call) -> bytes:
    return encode(await lift.lift(service))


async def _status(service: Service, call: Call) -> bytes:
    return encode(await status.status_report(service))


async def _health(service: Service, call: Call) -> bytes:
    return b'{"status":"alive"}'


async def _ready(service: Service, call: Call) -> bytes:
    if not service.ready:
        raise Refused(503, "not_ready", "the loops are being compiled and the model loaded", retry=1)

    async def nothing(tx: Tx) -> None:
        await tx.all("SELECT 1")

    await service.store.transact(nothing)
    return b'{"status":"ready"}'


async def _metrics(service: Service, call: Call) -> Answer:
    service.metrics.generation.set(service.loaded.generation if service.loaded else 0)
    return Answer(service.metrics.text(), {"content-type": "text/plain; version=0.0.4; charset=utf-8"})


def route_refusal(error: NewcomerError) -> Refused:
    """Errors of the library as answers: the store's are not the caller's fault."""
    if isinstance(error, StoreError):
        return Refused(503, "store", "the store cannot be reached or written: send the request again", retry=1)
    return Refused(422, "invalid", str(error), error.where)


PAGES = (Query("limit", {"type": "integer", "minimum": 1}),)
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST", "/v1/decide", "decide", "Decide for a user", _decide, shapes.Decide, shapes.Decision, (409,)
    ),
    Operation(
        "POST", "/v1/reward", "decide", "Send the reward of a decision", _reward, shapes.Reward, shapes.Recorded,
        (404, 409, 410),
    ),
    Operation(
        "POST", "/v1/observe", "decide", "Send a reward of something not decided here", _observe, shapes.Observe,
        shapes.Observed, (409,),
    ),
    Operation(
        "POST", "/v1/decide/batch", "decide", "Decide for several users",
        _batch(decide.decide, lambda one: str(one.user)), shapes.DecideBatch,
    ),
    Operation(
        "POST", "/v1/reward/batch", "decide", "Send several rewards",
        _batch(rewards.take_reward, lambda one: str(one.decision)), shapes.RewardBatch,
    ),
    Operation(
        "POST", "/v1/observe/batch", "decide", "Send several observations",
        _batch(rewards.observe_reward, lambda one: str(one.user)), shapes.ObserveBatch,
    ),
    Operation(
        "POST", "/v1/decisions/{decision}/shown", "decide", "The user saw the decision: the wait starts", _shown, None,
        shapes.DecisionState,
        (400, 404, 409, 410),
    ),
    Operation(
        "POST", "/v1/decisions/{decision}/void", "decide", "Void a decision: nothing is learned from it", _void, None,
        shapes.DecisionState, (400, 404, 409, 410),
    ),
    Operation(
        "GET", "/v1/decisions/{decision}", "admin", "The state of a decision", _look, None, shapes.DecisionState,
        (400, 404, 410),
    ),
    Operation(
        "POST", "/v1/users/{user}/merge", "admin", "Merge another id into this user", _merge, shapes.Merge,
        shapes.Merged, (404, 409),
    ),
    Operation(
        "GET", "/v1/users/{user}", "admin", "What is believed about a user", _belief, None, shapes.UserBelief,
        (400, 404, 422),
    ),
    Operation("DELETE", "/v1/users/{user}", "admin", "Erase a user", _erase, None, shapes.Erased, (400, 404, 422)),
    Operation(
        "GET", "/v1/users", "admin", "Users and their attributes", _users, None, "application/x-ndjson", (422,),
        (*PAGES, Query("since", {"type": "string"})),
    ),
    Operation(
        "GET", "/v1/logs", "admin", "Logs that `newcomer fit` reads", _logs, None, "application/x-ndjson", (422,),
        (
            *PAGES,
            Query("format", {"enum": list(export.FORMATS)}),
            Query("arm", {"enum": ["treated", "control", "incumbent", "random", "observed"]}),
            Query("since", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
        ),
    ),
    Operation("GET", "/v1/models", "admin", "Models, and which one decides", _models, None, shapes.Models),
    Operation("POST", "/v1/models", "admin", "Stage a model: the bytes of its file", _stage, bytes, shapes.ModelEntry),
    Operation(
        "POST", "/v1/models/{model}/promote", "admin", "Let a model decide from now on", _promote, None, shapes.Models,
        (400, 404, 409),
    ),
    Operation("GET", "/v1/arms", "admin", "Shares of the arms among new users", _arms, None, shapes.ArmShares),
    Operation("PUT", "/v1/arms", "admin", "Change the shares of new users", _set_arms, shapes.Shares, shapes.ArmShares),
    Operation("GET", "/v1/lift", "admin", "What deciding is worth, by arm", _lift, None, shapes.Lift),
    Operation("GET", "/v1/status", "admin", "The service at a glance", _status, None, shapes.Report),
    Operation("GET", "/healthz", "open", "Is the process alive?", _health),
    Operation("GET", "/readyz", "open", "May requests be sent?", _ready, None, None, (503,)),
    Operation("GET", "/metrics", "admin", "Metrics for Prometheus", _metrics, None, "text/plain"),
)  # fmt: skip
