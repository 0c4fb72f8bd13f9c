"""One decision: who asks, what the candidates are, what the user's arm shows, and what is written before the answer.

Under the user's lock: the answer to the same request, if it came before; the generation that decides; the arm, drawn at
first sight; the user's state, folded; the slots. The answer is sent when the decision is on disk.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np

from newcomer.arrays import Bools, Floats
from newcomer.errors import NewcomerError
from newcomer.serve import arms, shapes, tables
from newcomer.serve.arms import Asked, Pick, Shares
from newcomer.serve.fold import fold_user
from newcomer.serve.models import Serving, model_ids_alike
from newcomer.serve.service import Service
from newcomer.serve.shapes import Decide, Explanation, Refused, Slot, user_text_of_shape
from newcomer.serve.store import Tx
from newcomer.serve.tables import Event, User

encode = msgspec.json.encode
EXPLAINED = 10  # candidates of an explanation, the best first


def hash_request_to_decide(request: msgspec.Struct) -> str:
    """What a request asks for, whatever its key."""
    return hashlib.sha256(encode(msgspec.structs.replace(request, request=None))).hexdigest()


async def decide(service: Service, request: Decide) -> bytes:
    """The answer to a request, once it is on disk."""
    user, digest = user_text_of_shape(request.user), hash_request_to_decide(request) if request.request else ""
    service.config.limits.count(
        len(request.candidates or ()), service.config.limits.candidates, "candidates", "candidates"
    )
    arm, actions = "", list[int | str | None]()

    async def work(tx: Tx) -> bytes:
        nonlocal arm, actions
        who = await tables.lock_user_row(tx, user)
        before = await tables.find_answer_row(tx, who, request.request, digest)
        if before is not None:
            arm = ""
            return before
        serving, shares = await service.current(tx)
        who = await _met(service, tx, serving, shares, who, request)
        asked = candidates_to_decide(serving, request, service.config.limits.candidates)
        shown, state = await _slots(service, tx, serving, who, asked, request)
        events = await _write(service, tx, serving, who, asked, shown, request)
        arm, actions = str(who.arm), [one.action for one in events]
        answer = encode(_answer(serving, state, asked, events, request))
        await tables.keep_answer_row(tx, who, request.request, digest, answer)
        return answer

    answer = await service.transact(work)
    if arm:
        service.metrics.decided[arm] += 1
        service.recent.decided(actions)
    return answer


async def _met(service: Service, tx: Tx, serving: Serving, shares: Shares, who: User, request: Decide) -> User:
    """The user with an arm, drawn now if this is the first decision, and with the attributes that came along."""
    if request.baseline is None and (shares.incumbent > 0 or who.arm == "incumbent"):
        message = "some users are served what you would have shown: send it as baseline, with every decision"
        raise Refused(422, "no_baseline", message, "baseline")
    if who.arm is None:
        arm, probability = arms.draw_arm(service.key, who.id, shares)
        told = await tables.last_repeatability_row(tx)
        who = await tables.set_first_sight_row(tx, who, arm, probability, shares.version, service.key_id, told)
    if request.attributes:
        known = {**who.attributes, **request.attributes}
        if known != who.attributes:
            serving.check_attributes(request.attributes, await service.attributes_elsewhere(tx, serving))
            who = await tables.set_attributes_row(tx, who, known)
    return who


async def _slots(
    service: Service, tx: Tx, serving: Serving, who: User, asked: Asked, request: Decide
) -> tuple[list[Pick], Any]:
    """What the user's arm shows, and the user's state where it was needed."""
    arm = str(who.arm)
    if request.top > asked.open:
        raise Refused(422, "too_few", f"there are {asked.open} candidates for {request.top} slots", "top")
    baseline = _baseline(serving, asked, request) if request.baseline is not None else ()
    state = None
    if arm in ("treated", "incumbent") or request.explain:
        state = await fold_user(tx, serving, who, service.states)
    begun = time.perf_counter()
    seed = f"{who.id}|{who.place}|{who.revision}|{serving.model.id}"
    try:
        shown = arms.pick_by_arm(serving, arm, state, asked, request.top, baseline=baseline, rng=service.rng, seed=seed)
    except NewcomerError as error:
        raise Refused(422, "bad_candidates", str(error), "candidates") from error
    service.metrics.policy_spent += time.perf_counter() - begun
    return shown, state


async def _write(
    service: Service, tx: Tx, serving: Serving, who: User, asked: Asked, shown: list[Pick], request: Decide
) -> list[Event]:
    """A row a slot."""
    first = await tx.changes(len(shown))
    wait = service.config.wait
    deadline = who.now + wait if wait is not None and request.shown else None
    slate = tables.event_row_id(first) if len(shown) > 1 else None
    events, taken = list[Event](), asked.excluded
    for slot, pick in enumerate(shown):
        listed = None
        if not asked.whole and asked.names is not None:
            listed = tuple(asked.names if pick.left is None else compress(asked.names, pick.left))
        event = Event(
            id=tables.event_row_id(first + slot),
            user=who.id,
            at=who.now,
            model=serving.model.id,
            arm=str(who.arm),
            propensity=pick.propensity,
            action=asked.name(pick.index),
            position=pick.index,
            features=None if asked.features is None else asked.features[pick.index].tobytes(),
            candidates=listed,
            excluded=taken if asked.whole else (),
            slate=slate,
            slot=slot,
            shadow=None if pick.shadow is None else asked.name(pick.shadow),
            shown=request.shown,
            deadline=deadline,
            change=first + slot,
        )
        await tables.add_event_row(tx, event)
        events.append(event)
        if asked.whole and asked.names is not None:
            taken = (*taken, asked.names[pick.index])
    return events


def _answer(serving: Serving, state: Any, asked: Asked, events: list[Event], request: Decide) -> shapes.Decision:
    first = events[0]
    answer = shapes.Decision(
        decision=first.id,
        action=first.action,
        index=first.position or 0,
        propensity=first.propensity,
        arm=first.arm,  # type: ignore[arg-type]
        model=serving.model.id,
    )
    if request.top > 1:
        answer.slots = [Slot(one.id, one.action, one.position or 0, one.propensity) for one in events]
    if request.explain:
        chosen = [one.position or 0 for one in events]
        answer.explain = explain_decide(serving, state, asked, first_of=chosen)
    return answer


# Candidates.


def candidates_to_decide(serving: Serving, request: Decide, most: int) -> Asked:
    """The candidates of a request, checked against the model that decides."""
    features = _features(serving, request, most)
    if request.candidates is None and features is None:
        return _catalogue(serving, request)
    names = None
    if request.candidates is not None:
        names = serving.canonical(request.candidates)
        if not names:
            raise Refused(422, "no_candidates", "there is no candidate", "candidates")
        check_ids_to_decide(names, "candidates")
        if len(set(names)) < len(names):
            double = next(i for i, one in enumerate(names) if one in names[:i])
            raise Refused(422, "twice", "a candidate occurs twice", f"candidates[{double}]")
        if features is not None and len(features) != len(names):
            message = f"there are {len(features)} rows of features for {len(names)} candidates"
            raise Refused(422, "bad_features", message, "features")
        if features is None and not serving.by_id:
            raise Refused(422, "no_features", "this model keeps no features of actions: send features", "features")
    count = len(names) if names is not None else len(features) if features is not None else 0
    allowed = None
    if request.exclude:
        if names is None:
            raise Refused(422, "no_candidates", "what is excluded needs candidates with ids", "exclude")
        out = set(serving.canonical(request.exclude))
        allowed = _unless_all(np.array([one not in out for one in names]))
    return Asked(count, None if names is None else model_ids_alike(names), names, features, allowed)


def _catalogue(serving: Serving, request: Decide) -> Asked:
    """Every action of the model, but for those excluded."""
    known = serving.model.action_ids
    if known is None or serving.ids is None or not serving.by_id:
        raise Refused(422, "no_candidates", "this model has no catalogue: send candidates or features", "candidates")
    allowed, excluded = None, ()
    if request.exclude:
        codes = serving.model.codes(serving.canonical(request.exclude))
        left = np.ones(len(known), dtype=np.bool_)
        left[codes[codes >= 0]] = False
        allowed = _unless_all(left)
        excluded = tuple(known[code] for code in dict.fromkeys(codes[codes >= 0].tolist()))
    return Asked(len(known), serving.ids, known, None, allowed, whole=True, excluded=excluded)


def _unless_all(left: Bools) -> Bools | None:
    """Those left by what is excluded, None if all are; none at all are refused."""
    if not left.any():
        raise Refused(422, "no_candidates", "everything is excluded", "exclude")
    return None if left.all() else left


def check_ids_to_decide(ids: Sequence[int | str], where: str) -> None:
    """Refuse ids that no store or model could keep."""
    if str not in set(map(type, ids)):
        return
    texts = [one for one in ids if isinstance(one, str)]
    if max(map(len, texts)) <= 64 and "\0" not in "".join(texts):
        return
    for place, one in enumerate(ids):
        if isinstance(one, str) and (len(one) > 64 and len(one.encode("utf-8", "replace")) > 256 or "\0" in one):
            raise Refused(422, "bad_id", "an id has 1 to 256 bytes and no NUL character", f"{where}[{place}]")


def _features(serving: Serving, request: Decide, most: int) -> Floats | None:
    """Features that came as numbers, or as bytes."""
    if request.features is not None and request.features_f32 is not None:
        raise Refused(422, "bad_features", "send features or features_f32, not both", "features_f32")
    if request.features is not None:
        sizes = {len(row) for row in request.features}
        if len(sizes) != 1:
            raise Refused(422, "bad_features", "features must be rows of one length", "features")
        rows = np.array(request.features, dtype=np.float64)
    elif request.features_f32 is not None:
        rows = _decoded(request.features_f32, request.rows)
    else:
        return None
    where = "features" if request.features is not None else "features_f32"
    if len(rows) > most:
        raise Refused(413, "too_many", f"at most {most:,} candidates are taken, and these are {len(rows):,}", where)
    return np.ascontiguousarray(serving.features(rows, where))


def _decoded(text: str, rows: int | None) -> Floats:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, "bad_features", "features_f32 must be base64", "features_f32") from error
    if not rows or not data or len(data) % (4 * rows):
        raise Refused(422, "bad_features", "features_f32 must hold `rows` rows of float32", "rows")
    return np.frombuffer(data, dtype="<f4").astype(np.float64).reshape(rows, -1)


def _baseline(serving: Serving, asked: Asked, request: Decide) -> Sequence[int]:
    """Places of what the client would have shown."""
    given = request.baseline if isinstance(request.baseline, list) else [request.baseline]
    if asked.names is None:
        raise Refused(422, "bad_baseline", "a baseline needs candidates with ids", "baseline")
    if len(given) != request.top:
        raise Refused(422, "bad_baseline", f"send {request.top} ids, one a slot", "baseline")
    names = serving.canonical(given)  # type: ignore[arg-type]
    place = {one: i for i, one in enumerate(asked.names)}
    found = [place.get(one, -1) for one in names]
    closed = asked.allowed is not None and not asked.allowed[found].all()
    if -1 in found or len(set(found)) < len(found) or closed:
        raise Refused(422, "bad_baseline", "a baseline is one of the candidates, each once", "baseline")
    return found


# Explanations.


def explain_decide(
    serving: Serving, state: Any, asked: Asked, *, first_of: Sequence[int] = (), most: int = EXPLAINED
) -> list[Explanation]:
    """What is expected of the chosen and of the best candidates: expected reward, deviation, worth of exploring."""

    def scores(policy: Any) -> Floats:
        found: Floats = policy.scores(state, asked.features, ids=asked.ids, mask=asked.allowed)[0]
        return found

    try:
        total = scores(serving.policy)
        widths = serving.widths
        expected = total if widths is None else scores(widths[0])
        with np.errstate(invalid="ignore"):  # those masked are -inf in both, and not told
            parts = None if widths is None else [scores(one) - expected for one in widths[1]]
    except NewcomerError as error:
        raise Refused(422, "bad_candidates", str(error), "candidates") from error
    sd = None if parts is None else np.sqrt(sum(part**2 for part in parts))  # what is not known is independent
    order = np.argsort(-total, kind="stable")[: min(most, asked.open)].tolist()  # those masked come last
    places = list(dict.fromkeys([*first_of, *order]))[: max(most, len(first_of))]
    return [
        Explanation(
            asked.name(i),
            i,
            float(expected[i]),
            None if sd is None else float(sd[i]),
            None if widths is None else float(total[i] - expected[i]),
        )
        for i in places
    ]


def whole_catalogue_to_decide(serving: Serving) -> Asked | None:
    """Every action of the model, where it has a catalogue."""
    if not serving.by_id:
        return None
    return _catalogue(serving, Decide(user="-"))
