"""The HTTP face of the service: one table of routes, and around each the token, the limits, the errors, the metrics.

Every answer has a request id (`x-request-id`, the caller's or a new one). Log lines are JSON on stderr, with the route
and not the address, which may hold ids of users; tokens and bodies are never logged.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote

import msgspec

from newcomer.errors import MissingExtra, NewcomerError, StoreError
from newcomer.serve import shapes
from newcomer.serve.auth import Tokens
from newcomer.serve.limits import Rate
from newcomer.serve.openapi import Operation, openapi_document
from newcomer.serve.page import pages
from newcomer.serve.routes import OPERATIONS, Answer, Call, route_refusal
from newcomer.serve.service import Service
from newcomer.serve.shapes import Refused

try:
    from starlette.applications import Starlette
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra.of("serve", purpose="services") from error

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
JSON = (b"content-type", b"application/json")
NUMBER = re.compile(r"[\w.:-]{1,64}")
encode = msgspec.json.encode
RAW = msgspec.json.Decoder(shapes.RawItems)


class Endpoint:
    """One operation as an ASGI application."""

    def __init__(self, operation: Operation, service: Service, tokens: Tokens, rate: Rate, log: Log) -> None:
        self.operation, self.service, self.tokens, self.rate, self.log = operation, service, tokens, rate, log
        shape = operation.takes
        self.decoder = msgspec.json.Decoder(shape) if shape not in (None, bytes) else None
        self.item = None
        if isinstance(shape, type) and issubclass(shape, shapes.Several):
            self.item = msgspec.json.Decoder(get_args(get_type_hints(shape)["items"])[0])
        limits = service.config.limits
        self.most = limits.model if shape is bytes else limits.body
        self.name, self.segments = operation.name, "{" in operation.path

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        """Answer a request of ASGI."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        raw = scope.get("raw_path") or scope["path"].encode()
        await _reply(send, *await self.respond(headers, receive, raw, scope["query_string"]))

    async def respond(
        self, headers: dict[str, str], body: bytes | Receive, raw: bytes = b"", query: bytes = b""
    ) -> tuple[Answer, str]:
        """The answer to a request, whatever happens, and the request's id; `body` is there, or yet to be received."""
        begun = time.perf_counter()
        number = headers.get("x-request-id", "")
        if not number or not NUMBER.fullmatch(number):
            number = _request_number()
        try:
            answer = await self._answer(headers, body, raw, query)
        except Refused as refused:
            answer = _refused_answer(refused)
        except StoreError as error:
            self.service.metrics.store_errors.inc()
            self.log.line("store", route=self.name, request=number, error=str(error))
            answer = _refused_answer(route_refusal(error))
        except NewcomerError as error:
            answer = _refused_answer(route_refusal(error))
        except Exception as error:  # noqa: BLE001  (a bug: told to the log, not to the caller)
            self.log.line("bug", route=self.name, request=number, error=f"{type(error).__name__}: {error}")
            answer = _refused_answer(Refused(500, "bug", "this is a bug of the service; its log says more"))
        took = time.perf_counter() - begun
        self.service.metrics.answered(self.name, answer.status, took)
        if answer.problem is not None and self.name != "get_readyz":  # that it is not ready is what readyz is for
            self.service.recent.refused(self.name, answer.status, answer.problem)
        elif self.name == "post_decide":
            self.service.recent.took.append(took)
        if self.log.requests or answer.status == 500:
            self.log.request(self.name, number, answer.status, took)
        return answer, number

    async def _answer(self, headers: dict[str, str], body: bytes | Receive, raw: bytes, query: bytes) -> Answer:
        operation = self.operation
        if operation.role != "open":
            self.rate.take(self.tokens.check(operation.role, headers))
            if not self.service.ready:
                raise Refused(503, "not_ready", "the loops are being compiled and the model loaded", retry=1)
        if not isinstance(body, bytes):
            body = await self._body(headers, body)
        call = Call(
            body,
            _segments(raw) if self.segments else [],
            _query(query) if query else {},
            _key(headers) if "idempotency-key" in headers else None,
        )
        if self.decoder is not None:
            call.asked = decode_app_request(self.decoder, body, self.item)
        answer = await operation.handler(self.service, call)
        return answer if isinstance(answer, Answer) else Answer(answer)

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """The body, up to its limit."""
        said = headers.get("content-length", "0")
        if not said.isdigit() or int(said) > self.most:
            raise Refused(413, "too_large", f"at most {self.most:,} bytes are taken")
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "cut_short", "the request ended too early")
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self.most:  # a body in chunks does not say its length beforehand
                raise Refused(413, "too_large", f"at most {self.most:,} bytes are taken")
        return b"".join(parts)


def decode_app_request(decoder: Any, body: bytes | msgspec.Raw, item: Any = None) -> Any:
    """A request's JSON, checked; of a batch whose items have a decoder those that fail it are refusals themselves."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if item is not None:
            return shapes.Mixed([_item(item, one) for one in decode_app_request(RAW, body).items])
        said, _, place = str(error).partition(" - at `")
        raise Refused(422, "invalid", said, place.rstrip("`").removeprefix("$").removeprefix(".")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "bad_json", f"this is not JSON: {error}") from error


def _item(decoder: Any, raw: msgspec.Raw) -> Any:
    """One item of a batch, or why it is refused."""
    try:
        return decode_app_request(decoder, raw)
    except Refused as refused:
        return refused


def _segments(raw: bytes) -> list[str]:
    try:
        parts = raw.partition(b"?")[0].decode("ascii").strip("/").split("/")
        return [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise Refused(400, "bad_address", "the address is not UTF-8, percent-encoded") from error


def _query(raw: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(raw.decode("ascii"), errors="strict", keep_blank_values=True)) if raw else {}
    except ValueError as error:
        raise Refused(400, "bad_address", "the query is not UTF-8, percent-encoded") from error


def _key(headers: dict[str, str]) -> str | None:
    key = headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 256 and key.isprintable()):
        raise Refused(422, "bad_key", "a key has 1 to 256 printable characters", "idempotency-key")
    return key


def _refused_answer(refused: Refused) -> Answer:
    """A refusal as an answer."""
    headers = {} if refused.retry is None else {"retry-after": str(refused.retry)}
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Answer(refused.body(), headers, refused.status, refused.problem)


def reply_headers(answer: Answer, number: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer."""
    listed = [(b"content-length", b"%d" % len(answer.body)), (b"x-request-id", number.encode("latin-1"))]
    if not answer.headers:
        return [*listed, JSON]
    if "content-type" not in answer.headers:
        listed.append(JSON)
    return listed + [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]


async def _reply(send: Send, answer: Answer, number: str) -> None:
    """Send an answer."""
    await send({"type": "http.response.start", "status": answer.status, "headers": reply_headers(answer, number)})
    await send({"type": "http.response.body", "body": answer.body})


def _request_number() -> str:
    """A number for a request that came without one; it tells lines of the log apart, and need not be secret."""
    return f"{random.getrandbits(64):016x}"


class Log:
    """JSON lines on stderr: errors always, every request where asked for."""

    def __init__(self, *, requests: bool = False, stream: Any = None) -> None:
        self.requests, self.stream = requests, stream or sys.stderr

    def line(self, what: str, **facts: Any) -> None:
        """Write a line."""
        print(json.dumps({"at": round(time.time(), 3), "what": what, **facts}), file=self.stream, flush=True)

    def request(self, route: str, number: str, status: int, took: float) -> None:
        """A request that was answered."""
        self.line("request", route=route, request=number, status=status, ms=round(1e3 * took, 2))


class Application:
    """Addresses without ids are found at once, which a decide feels; Starlette finds the others, and what is wrong."""

    def __init__(self, endpoints: Sequence[Endpoint], starlette: Starlette) -> None:
        self.starlette = starlette
        self.plain = {(one.operation.method, one.operation.path): one for one in endpoints if not one.segments}
        # What `protocol.Protocol` hands over itself.
        self.direct = {
            path.encode(): one for (method, path), one in self.plain.items() if method == "POST" and one.decoder
        }

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        endpoint = self.plain.get((scope.get("method", ""), scope.get("path", "")))
        await (endpoint or self.starlette)(scope, receive, send)


def application(
    service: Service, tokens: Tokens | None = None, *, log: Log | None = None, more: Sequence[Operation] = ()
) -> Application:
    """The ASGI application of a service; `more` operations join the table."""
    tokens, log = tokens or Tokens(), log or Log()
    rate = Rate(service.config.limits.rate)
    operations = (*OPERATIONS, *more)
    told = encode(openapi_document(operations, service.config.limits, tokens=bool(tokens.digests)))

    async def openapi(service: Service, call: Call) -> bytes:
        return told

    extra = [
        Operation("GET", "/openapi.json", "open", "This document", openapi),
        *pages(secured=bool(tokens.digests)),
    ]
    endpoints = [Endpoint(one, service, tokens, rate, log) for one in (*operations, *extra)]
    routes = []
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+)\}", r"{\1:path}", endpoint.operation.path)
        routes.append(Route(path, endpoint, methods=[endpoint.operation.method]))

    async def missing(request: Any, error: Exception) -> Any:
        status = getattr(error, "status_code", 404)
        what = ("no_route", "there is no such address") if status == 404 else ("no_method", "not with this method")

        async def respond(scope: Any, receive: Any, send: Send) -> None:
            await _reply(send, _refused_answer(Refused(status, *what)), _request_number())

        return respond

    return Application(endpoints, Starlette(routes=routes, exception_handlers={404: missing, 405: missing}))
