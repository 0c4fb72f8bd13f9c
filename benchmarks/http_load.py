"""Load for a service on loopback: connections that stay open and send one request after another, with asyncio alone.

A client that does little is needed to measure a server on the same two cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Connection:
    """One connection that stays open."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port, self.streams = host, port, None

    async def send(self, method: str, path: str, body: bytes = b"", key: str = "") -> tuple[int, bytes]:
        """Send a request and read the whole answer: status and body."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self.streams
        extra = f"idempotency-key: {key}\r\n" if key else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
        try:
            writer.write(head.encode() + body)
            top = await reader.readuntil(b"\r\n\r\n")
            status = int(top[9:12])
            found = top.lower()
            start = found.index(b"content-length:") + len(b"content-length:")
            length = int(found[start : found.index(b"\r\n", start)])
            return status, await reader.readexactly(length)
        except BaseException:
            writer.close()
            self.streams = None
            raise

    async def post(self, path: str, body: Any, key: str = "") -> tuple[int, Any]:
        """Send JSON and read JSON."""
        status, answer = await self.send("POST", path, json.dumps(body).encode(), key)
        return status, json.loads(answer)

    def close(self) -> None:
        """Let it go."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def measure(
    host: str, port: int, request: Callable[[Connection, int], Awaitable[Any]], *, count: int, connections: int
) -> tuple[float, list[float]]:
    """Requests a second, and the seconds that each took, for `count` requests over some connections."""
    took: list[float] = []
    numbers = iter(range(count))

    async def work() -> None:
        connection = Connection(host, port)
        for number in numbers:
            begun = time.perf_counter()
            await request(connection, number)
            took.append(time.perf_counter() - begun)
        connection.close()

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return count / (time.perf_counter() - begun), took
