"""The HTTP protocol of the service: uvicorn's, with a short way for the calls that every visit of a user makes.

A decide or a reward is a POST of one small JSON body to a fixed address. uvicorn makes of it a scope, a cycle of ASGI
messages and two writes; here its body goes to the endpoint as it is, and status, headers and answer go back in one
write. Whatever is not that simple (another address or method, a query, a large body or one in chunks, `Expect`,
upgrades, HTTP/1.0, requests sent before the last one was answered) takes uvicorn's own way to the same endpoint.

uvicorn asks a protocol for its `cycle` when it shuts down, when a connection is lost, and before it begins the next
request: `Exchange` is one that answers these questions.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from newcomer.serve.app import Endpoint, reply_headers

SMALL = 60_000  # bytes of a body that is taken whole; above, uvicorn stops reading until it is asked for
LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}


class Exchange:
    """One request and its answer, in the place of uvicorn's cycle of messages."""

    __slots__ = ("body", "disconnected", "endpoint", "headers", "keep_alive", "more_body", "response_complete")

    def __init__(self, endpoint: Endpoint, headers: dict[str, str]) -> None:
        self.endpoint, self.headers, self.body = endpoint, headers, b""
        self.response_complete = self.disconnected = False
        self.keep_alive = self.more_body = True

    @property
    def message_event(self) -> Exchange:
        """What uvicorn wakes when something came; nobody sleeps here."""
        return self

    def set(self) -> None:
        """Woken."""


class Protocol(HttpToolsProtocol):
    """A connection; see the module."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.direct: dict[bytes, Endpoint] = getattr(self.app, "direct", {})

    def on_message_begin(self) -> None:
        """Another request begins; its scope is made if uvicorn answers it."""
        self.url, self.expect_100_continue, self.headers = b"", False, []

    def on_headers_complete(self) -> None:
        """Choose the way."""
        endpoint = self.direct.get(self.url)
        if endpoint is not None and self._is_simple():
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
            size = headers.get("content-length", "")
            if len(size) < 7 and size.isdigit() and int(size) <= min(SMALL, endpoint.most):
                self.cycle: Any = Exchange(endpoint, headers)
                return
        url, expected, headers_met = self.url, self.expect_100_continue, self.headers
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers.extend(headers_met)
        super().on_headers_complete()

    def _is_simple(self) -> bool:
        parser, before = self.parser, self.cycle
        return (
            (before is None or before.response_complete)
            and not self.expect_100_continue
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if type(self.cycle) is Exchange:
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        exchange = self.cycle
        if type(exchange) is not Exchange:
            super().on_message_complete()
            return
        exchange.more_body = False
        task = self.loop.create_task(self._respond(exchange))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _respond(self, exchange: Exchange) -> None:
        answer, number = await exchange.endpoint.respond(exchange.headers, exchange.body)
        if self.flow.write_paused and not exchange.disconnected:
            await self.flow.drain()
        if exchange.disconnected:
            return
        parts = [LINES[answer.status]]
        for name, value in (*self.server_state.default_headers, *reply_headers(answer, number)):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n" if exchange.keep_alive else b"connection: close\r\n\r\n", answer.body)
        exchange.response_complete = True
        self.transport.write(b"".join(parts))
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()
