"""The service from Python: `nc.Client(url)`, and `nc.AsyncClient(url)` with the same calls to await.

    with nc.Client("http://127.0.0.1:8321") as client:
        shown = client.decide("ann", candidates=["film-7", "film-12"])
        client.reward(shown.decision, 1.0)

Every request carries a key, so that one that is sent again, after a cut connection or a 503, is carried out once.
Refusals are `StoreError`s with the service's sentence; `error.status` and `error.code` are for programs. Features may
be an array: they travel as float32.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from newcomer.errors import MissingExtra, NewcomerError, StoreError

try:
    import httpx2 as http
    import msgspec
except ImportError as error:
    raise MissingExtra.of("client", purpose="clients") from error

from newcomer.serve import shapes

Given = TypeVar("Given")
Told = ParamSpec("Told")
Method = TypeVar("Method", bound=Callable[..., Any])
AGAIN = (429, 503)
TRIES, PAUSE = 5, 0.2  # seconds before the second try; twice as long each time


class ServiceError(StoreError):
    """The service refused, or cannot be reached (status 0)."""

    status: int = 0
    code: str = ""


def _plain_value(value: object) -> Any:
    """Numbers and arrays of NumPy as JSON has them: rewards and ids often come from a frame or an array."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise NewcomerError(f"a {type(value).__name__} cannot be sent", todo="send numbers, text, lists and dicts of these")


@dataclass(frozen=True)
class Ask(Generic[Given]):
    """A request: where, what, and the shape of the answer."""

    method: str
    path: str
    shape: type[Given] | None = None
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    within: str = ""  # the name under which the answer has it
    key: str = field(default_factory=lambda: secrets.token_hex(16))

    def content(self) -> bytes | None:
        """The bytes to send."""
        if isinstance(self.body, bytes) or self.body is None:
            return self.body
        return msgspec.json.encode(self.body, enc_hook=_plain_value)

    def read(self, answer: Any) -> Given:
        """The answer, or the refusal as an error."""
        if answer.status_code >= 400:
            raise client_refusal(answer)
        if self.shape is None:
            return answer.content  # type: ignore[no-any-return]
        try:
            if self.within:
                return msgspec.json.decode(answer.content, type=dict)[self.within]  # type: ignore[no-any-return]
            return msgspec.json.decode(answer.content, type=self.shape)
        except (msgspec.MsgspecError, KeyError) as error:
            raise ServiceError("the answer is not of this API", todo="check the address") from error


def client_refusal(answer: Any) -> ServiceError:
    """A refusal as an error."""
    try:
        problem = msgspec.json.decode(answer.content, type=shapes.Failure).error
        error = ServiceError(problem.message, where=problem.where)
        error.code = problem.code
    except msgspec.MsgspecError:
        error = ServiceError(f"the server answered {answer.status_code}", todo="check the address")
    error.status = answer.status_code
    return error


def _plain(one: Any) -> Any:
    """An id of NumPy's as Python's."""
    return one.item() if isinstance(one, np.generic) else one


def _part(one: int | str) -> str:
    return quote(str(one), safe="")


class _Asking:
    """What both clients share: the address, the token, and when to try again."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0, tries: int = TRIES) -> None:
        self.url, self.tries = url.rstrip("/"), tries
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._settings: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": timeout}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _sent(self, ask: Ask[Any]) -> dict[str, Any]:
        headers = {"idempotency-key": ask.key}
        return {"content": ask.content(), "params": dict(ask.query), "headers": headers}

    def _pause(self, attempt: int, answer: Any) -> float:
        said = "" if answer is None else answer.headers.get("retry-after", "")
        return max(float(said) if said.isdigit() else 0.0, float(PAUSE * 2**attempt))

    def _lost(self, error: Exception) -> ServiceError:
        what = f"the service cannot be reached: {type(error).__name__}"
        return ServiceError(what, where=self.url, todo="check the address, and that it runs")


def _batch(what: str, items: Sequence[Mapping[str, Any]]) -> Ask[list[dict[str, Any]]]:
    return Ask("POST", f"/v1/{what}/batch", list, {"items": list(items)}, within="items")


class Calls:
    """Every call of the API as the request that it sends; `Client` and `AsyncClient` send them."""

    def decide(
        self,
        user: int | str,
        *,
        candidates: Iterable[int | str] | None = None,
        features: ArrayLike | None = None,
        exclude: Sequence[int | str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        top: int = 1,
        baseline: int | str | Sequence[int | str] | None = None,
        shown: bool = True,
        explain: bool = False,
    ) -> Ask[shapes.Decision]:
        """Choose an action for a user, or `top` actions; `nc.Client` sends an idempotency key by itself."""
        named = {"exclude": exclude, "attributes": attributes, "top": top, "baseline": baseline}
        named |= {"shown": shown, "explain": explain}
        body = {"user": user, **{name: value for name, value in named.items() if value is not None}}
        if candidates is not None:
            body["candidates"] = [_plain(one) for one in candidates]
        if features is not None:
            rows = np.ascontiguousarray(features, dtype="<f4")
            body |= {"features_f32": base64.b64encode(rows.tobytes()).decode(), "rows": len(rows)}
        return Ask("POST", "/v1/decide", shapes.Decision, body)

    def reward(
        self, decision: str, reward: float, *, event: str | None = None, correct: bool = False
    ) -> Ask[shapes.Recorded]:
        """Send the reward of a decision; `correct=True` replaces an earlier value, `event` adds up."""
        body = shapes.Reward(decision, float(reward), event, correct)
        return Ask("POST", "/v1/reward", shapes.Recorded, body)

    def observe(
        self,
        user: int | str,
        reward: float,
        *,
        action: int | str | None = None,
        features: Sequence[float] | None = None,
        event: str | None = None,
    ) -> Ask[shapes.Observed]:
        """Send a reward of something that the service did not decide, such as an answer at onboarding."""
        body = shapes.Observe(user, float(reward), action, None if features is None else list(features), event)
        return Ask("POST", "/v1/observe", shapes.Observed, body)

    def decision(self, decision: str) -> Ask[shapes.DecisionState]:
        """The state of a decision: pending, rewarded, default or void."""
        return Ask("GET", f"/v1/decisions/{_part(decision)}", shapes.DecisionState)

    def shown(self, decision: str) -> Ask[shapes.DecisionState]:
        """Tell the service that the user saw the decision; the wait for a reward starts."""
        return Ask("POST", f"/v1/decisions/{_part(decision)}/shown", shapes.DecisionState)

    def void(self, decision: str) -> Ask[shapes.DecisionState]:
        """Void a decision: nothing is learned from it."""
        return Ask("POST", f"/v1/decisions/{_part(decision)}/void", shapes.DecisionState)

    def decide_batch(self, items: Sequence[Mapping[str, Any]]) -> Ask[list[dict[str, Any]]]:
        """Decide for several users; a refused item is answered with {"error": ...}."""
        return _batch("decide", items)

    def reward_batch(self, items: Sequence[Mapping[str, Any]]) -> Ask[list[dict[str, Any]]]:
        """Send several rewards."""
        return _batch("reward", items)

    def observe_batch(self, items: Sequence[Mapping[str, Any]]) -> Ask[list[dict[str, Any]]]:
        """Send several observations."""
        return _batch("observe", items)

    def user(self, user: int | str) -> Ask[shapes.UserBelief]:
        """What the service believes about a user: expected rewards, in words and numbers."""
        return Ask("GET", f"/v1/users/{_part(user)}", shapes.UserBelief)

    def erase(self, user: int | str) -> Ask[shapes.Erased]:
        """Erase everything about a user."""
        return Ask("DELETE", f"/v1/users/{_part(user)}", shapes.Erased)

    def merge(self, user: int | str, source: int | str) -> Ask[shapes.Merged]:
        """Merge the history of `source` into `user`; both ids then mean the same user."""
        return Ask("POST", f"/v1/users/{_part(user)}/merge", shapes.Merged, shapes.Merge(source))

    def logs(self, *, format: str = "ndjson", arm: str | None = None, since: str | None = None) -> Ask[bytes]:
        """A page of the logs, as bytes in this format."""
        query = {"format": format, "arm": arm, "since": since}
        told = {name: value for name, value in query.items() if value is not None}
        return Ask("GET", "/v1/logs", None, None, told)

    def models(self) -> Ask[shapes.Models]:
        """The models in the store, and which one decides."""
        return Ask("GET", "/v1/models", shapes.Models)

    def stage(self, file: bytes) -> Ask[shapes.ModelEntry]:
        """Upload a model, the bytes of its file, without serving it yet."""
        return Ask("POST", "/v1/models", shapes.ModelEntry, file)

    def promote(self, model: str) -> Ask[shapes.Models]:
        """Let this model decide from now on."""
        return Ask("POST", f"/v1/models/{_part(model)}/promote", shapes.Models)

    def arms(self) -> Ask[shapes.ArmShares]:
        """The shares of the arms among new users."""
        return Ask("GET", "/v1/arms", shapes.ArmShares)

    def set_arms(self, *, random: float, control: float, incumbent: float = 0.0) -> Ask[shapes.ArmShares]:
        """Change the shares of the arms among new users."""
        return Ask("PUT", "/v1/arms", shapes.ArmShares, shapes.Shares(random, control, incumbent))

    def lift(self) -> Ask[shapes.Lift]:
        """The lift: treated users compared with the other arms, with intervals."""
        return Ask("GET", "/v1/lift", shapes.Lift)

    def status(self) -> Ask[shapes.Report]:
        """The numbers of the live page: speed, users, arms, models, errors."""
        return Ask("GET", "/v1/status", shapes.Report)


def _sent_call(call: Callable[Concatenate[Any, Told], Ask[Given]]) -> Callable[Concatenate[Client, Told], Given]:
    """A call that waits for its answer."""

    @wraps(call)
    def send(self: Client, /, *given: Told.args, **named: Told.kwargs) -> Given:
        return self.ask(call(self, *given, **named))

    return _signed(send, call)


def _awaited_call(
    call: Callable[Concatenate[Any, Told], Ask[Given]],
) -> Callable[Concatenate[AsyncClient, Told], Coroutine[Any, Any, Given]]:
    """A call to be awaited."""

    @wraps(call)
    async def send(self: AsyncClient, /, *given: Told.args, **named: Told.kwargs) -> Given:
        return await self.ask(call(self, *given, **named))

    return _signed(send, call)


def _signed(send: Method, call: Callable[..., Any]) -> Method:
    """The signature of the call, with what its answer is: help() and editors show it."""
    told = signature(call)
    answer = str(told.return_annotation).removeprefix("Ask[").removesuffix("]")
    send.__signature__ = told.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return send


class Client(_Asking):
    """A client of the decision service; every call waits for its answer.

    Requests carry a key and are sent again when the connection fails, at most `tries` times; the service carries each
    out once. Refusals raise `StoreError` with the sentence of the service.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0, tries: int = TRIES) -> None:
        super().__init__(url, token=token, timeout=timeout, tries=tries)
        self._http = http.Client(**self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, ask: Ask[Given]) -> Given:
        """Send a request, again where that may help."""
        for attempt in range(self.tries):
            answer, last = None, attempt + 1 == self.tries
            try:
                answer = self._http.request(ask.method, ask.path, **self._sent(ask))
            except http.TransportError as error:
                if last:
                    raise self._lost(error) from error
            if answer is not None and (answer.status_code not in AGAIN or last):
                return ask.read(answer)
            time.sleep(self._pause(attempt, answer))
        raise AssertionError

    decide = _sent_call(Calls.decide)
    reward = _sent_call(Calls.reward)
    observe = _sent_call(Calls.observe)
    decision = _sent_call(Calls.decision)
    shown = _sent_call(Calls.shown)
    void = _sent_call(Calls.void)
    decide_batch = _sent_call(Calls.decide_batch)
    reward_batch = _sent_call(Calls.reward_batch)
    observe_batch = _sent_call(Calls.observe_batch)
    user = _sent_call(Calls.user)
    erase = _sent_call(Calls.erase)
    merge = _sent_call(Calls.merge)
    logs = _sent_call(Calls.logs)
    models = _sent_call(Calls.models)
    stage = _sent_call(Calls.stage)
    promote = _sent_call(Calls.promote)
    arms = _sent_call(Calls.arms)
    set_arms = _sent_call(Calls.set_arms)
    lift = _sent_call(Calls.lift)
    status = _sent_call(Calls.status)


class AsyncClient(_Asking):
    """A client of the decision service with the calls of `Client`, to be awaited."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0, tries: int = TRIES) -> None:
        super().__init__(url, token=token, timeout=timeout, tries=tries)
        self._http = http.AsyncClient(**self._settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *ignored: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, ask: Ask[Given]) -> Given:
        """Send a request, again where that may help."""
        for attempt in range(self.tries):
            answer, last = None, attempt + 1 == self.tries
            try:
                answer = await self._http.request(ask.method, ask.path, **self._sent(ask))
            except http.TransportError as error:
                if last:
                    raise self._lost(error) from error
            if answer is not None and (answer.status_code not in AGAIN or last):
                return ask.read(answer)
            await asyncio.sleep(self._pause(attempt, answer))
        raise AssertionError

    decide = _awaited_call(Calls.decide)
    reward = _awaited_call(Calls.reward)
    observe = _awaited_call(Calls.observe)
    decision = _awaited_call(Calls.decision)
    shown = _awaited_call(Calls.shown)
    void = _awaited_call(Calls.void)
    decide_batch = _awaited_call(Calls.decide_batch)
    reward_batch = _awaited_call(Calls.reward_batch)
    observe_batch = _awaited_call(Calls.observe_batch)
    user = _awaited_call(Calls.user)
    erase = _awaited_call(Calls.erase)
    merge = _awaited_call(Calls.merge)
    logs = _awaited_call(Calls.logs)
    models = _awaited_call(Calls.models)
    stage = _awaited_call(Calls.stage)
    promote = _awaited_call(Calls.promote)
    arms = _awaited_call(Calls.arms)
    set_arms = _awaited_call(Calls.set_arms)
    lift = _awaited_call(Calls.lift)
    status = _awaited_call(Calls.status)
