"""What came of decisions: rewards, late, repeated, corrected or adding up; observations; shown, void, and defaults.

A reward is an event like any other: written under the user's lock, learned when the user's state is next folded. The
first value gives an outcome its place in the fold; whatever changes it later, a correction, a further part of a sum, a
reward after a default, keeps that place.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from newcomer.serve import tables
from newcomer.serve.decide import check_ids_to_decide, hash_request_to_decide
from newcomer.serve.service import Service
from newcomer.serve.shapes import DecisionState, Observe, Observed, Recorded, Refused, Reward, user_text_of_shape
from newcomer.serve.store import Tx
from newcomer.serve.tables import Event, User

encode = msgspec.json.encode
AT_ONCE = 500  # defaults looked for at a time


async def take_reward(service: Service, request: Reward) -> bytes:
    """Take a reward."""
    digest, status = hash_request_to_decide(request) if request.request else "", ""

    async def work(tx: Tx) -> bytes:
        nonlocal status
        event, user = await tables.lock_event_row(tx, request.decision)
        before = await tables.find_answer_row(tx, user, request.request, digest)
        if before is not None:
            status = "repeated"
            return before
        status = await _take(service, tx, event, user, request)
        answer = encode(Recorded(event.id, status))  # type: ignore[arg-type]
        await tables.keep_answer_row(tx, user, request.request, digest, answer)
        return answer

    answer = await service.transact(work)
    service.metrics.rewards.labels(status).inc()
    return answer


async def _take(service: Service, tx: Tx, event: Event, user: User, request: Reward) -> str:
    """Record, recognise or correct."""
    if event.status == "void":
        raise Refused(409, "void", "this decision was declared void", "decision")
    parts = await tables.reward_part_rows(tx, event) if event.status == "rewarded" else {}
    if request.event is not None:
        return await _take_part(service, tx, event, user, request, parts)
    if parts:
        message = "the rewards of this decision add up by events: send an event with this one, too"
        raise Refused(409, "adds_up", message, "event")
    if event.status == "rewarded" and event.reward == request.reward:
        return "repeated"
    if event.status == "rewarded" and not request.correct:
        message = f"this decision has the reward {event.reward:g}: send correct=true to replace it"
        raise Refused(409, "has_reward", message, "reward")
    (await service.serving(tx)).check_reward(request.reward)
    await tables.set_outcome_row(tx, user, event, "rewarded", request.reward)
    return "recorded" if event.status == "pending" else "corrected"


async def _take_part(
    service: Service, tx: Tx, event: Event, user: User, request: Reward, parts: dict[str, float]
) -> str:
    """One of several rewards that add up."""
    part = str(request.event)
    if event.status == "rewarded" and not parts:
        raise Refused(409, "has_reward", "this decision has a reward without an event: the two do not add up", "event")
    if parts.get(part) == request.reward:
        return "repeated"
    if part in parts and not request.correct:
        message = f"this event brought {parts[part]:g}: send correct=true to replace it"
        raise Refused(409, "has_reward", message, "reward")
    total = math.fsum({**parts, part: request.reward}.values())
    (await service.serving(tx)).check_reward(total)
    await tables.set_reward_part_row(tx, event, part, request.reward)
    await tables.set_outcome_row(tx, user, event, "rewarded", total)
    return "corrected" if part in parts else "recorded"


async def observe_reward(service: Service, request: Observe) -> bytes:
    """Learn from what the service did not decide."""
    user, digest = user_text_of_shape(request.user), hash_request_to_decide(request) if request.request else ""
    if (request.action is None) == (request.features is None):
        raise Refused(422, "no_action", "send an action or features, one of them", "action")

    async def work(tx: Tx) -> bytes:
        who = await tables.lock_user_row(tx, user)
        before = await tables.find_answer_row(tx, who, request.request, digest)
        if before is not None:
            return before
        answer = encode(await _observe(service, tx, who, request))
        await tables.keep_answer_row(tx, who, request.request, digest, answer)
        return answer

    return await service.transact(work)


async def _observe(service: Service, tx: Tx, who: User, request: Observe) -> Observed:
    serving = await service.serving(tx)
    action, features = request.action, None
    if action is not None:
        if not serving.by_id:
            raise Refused(422, "no_features", "this model keeps no features of actions: send features", "features")
        check_ids_to_decide([action], "action")
        action = serving.canonical([action])[0]
    if request.features is not None:
        features = np.ascontiguousarray(
            serving.features(np.array([request.features], dtype=float), "features")
        ).tobytes()
    serving.check_reward(request.reward)
    if request.event is not None:
        known = await tables.find_observation_row(tx, who, request.event)
        if known is not None:
            if (known.action, known.features, known.reward) != (action, features, request.reward):
                raise Refused(409, "has_reward", "this event was observed with other values before", "event")
            return Observed(known.id, "repeated")
    change = await tx.changes()
    event = Event(
        id=tables.event_row_id(change),
        user=who.id,
        at=who.now,
        model=serving.model.id,
        arm="observed",
        action=action,
        features=features,
        event=request.event,
        change=change,
    )
    await tables.add_event_row(tx, event)
    await tables.set_outcome_row(tx, who, event, "rewarded", request.reward)
    return Observed(event.id, "recorded")


def _decision_state(event: Event) -> DecisionState:
    """A decision as the API tells it."""
    return DecisionState(
        decision=event.id,
        user=event.user,
        action=event.action,
        status=event.status,  # type: ignore[arg-type]
        reward=event.reward,
        shown=event.shown,
        arm=event.arm,
        propensity=event.propensity,
        model=event.model,
        at=event.at,
        slate=event.slate,
        slot=event.slot,
    )


async def look_at_rewards(service: Service, decision: str) -> bytes:
    """What is known of a decision."""

    async def work(tx: Tx) -> Event:
        return (await tables.lock_event_row(tx, decision))[0]

    return encode(_decision_state(await service.transact(work)))


async def shown_before_reward(service: Service, decision: str) -> bytes:
    """The user saw it now; said twice, it counts from the first time."""

    async def work(tx: Tx) -> Event:
        event, user = await tables.lock_event_row(tx, decision)
        if event.status == "void":
            raise Refused(409, "void", "this decision was declared void", "decision")
        if not event.shown:
            wait = service.config.wait
            await tables.set_shown_row(tx, event, None if wait is None else user.now + wait)
        return (await tables.find_event_row(tx, decision)) or event

    return encode(_decision_state(await service.transact(work)))


async def void_reward(service: Service, decision: str) -> bytes:
    """Nobody saw it, or its reward means nothing: it is taken out of what is learned."""

    async def work(tx: Tx) -> Event:
        event, user = await tables.lock_event_row(tx, decision)
        if event.status != "void":
            await tables.set_void_row(tx, user, event)
        return (await tables.find_event_row(tx, decision)) or event

    return encode(_decision_state(await service.transact(work)))


async def give_default_rewards(service: Service) -> int:
    """One default reward for each decision that was shown and whose wait is over."""

    async def due(tx: Tx) -> list[str]:
        return await tables.overdue_rows(tx, AT_ONCE)

    given = 0
    for decision in await service.store.transact(due):

        async def settle(tx: Tx, decision: str = decision) -> bool:
            event, user = await tables.lock_event_row(tx, decision)
            if event.status != "pending" or event.deadline is None or event.deadline > user.now:
                return False
            value = (await service.serving(tx)).fit_reward(float(service.config.default or 0.0))
            await tables.set_outcome_row(tx, user, event, "default", value)
            return True

        given += await service.transact(settle)
    service.metrics.defaults.inc(given)
    return given
