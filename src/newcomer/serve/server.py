"""Run the service: open the store, listen, say what to try, and drain before leaving.

SIGINT or SIGTERM stops listening; requests that were begun are answered, the store finishes its commits, then the
process ends. The socket is opened before anything else, so that an address in use is one sentence, and port 0 works.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Queue
from typing import Any

from newcomer.errors import MissingExtra, StoreError
from newcomer.serve.app import Log, application
from newcomer.serve.auth import Tokens, is_loopback_for_auth
from newcomer.serve.background import prepare_background
from newcomer.serve.protocol import Protocol
from newcomer.serve.service import Service

try:
    import uvicorn
except ImportError as error:
    raise MissingExtra.of("serve", purpose="services") from error

DRAIN = 10  # seconds for requests that were begun


def check_server_access(host: str, tokens: Tokens | None) -> None:
    """Refuse to listen where others can reach the service, unless they need tokens."""
    if tokens is None and not is_loopback_for_auth(host):
        todo = "pass --tokens FILE with lines `decide TOKEN` and `admin TOKEN`, or listen on 127.0.0.1"
        raise StoreError(f"{host} is reached by other machines, and there are no tokens", todo=todo)


def listen_as_server(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot listen: {reason}", where=f"{host}:{port}", todo="choose another --port") from error
    return found


def make_server(service: Service, tokens: Tokens | None, *, log: Log) -> uvicorn.Server:
    """A server for a service that is open."""
    app: Any = application(service, tokens, log=log)
    config = uvicorn.Config(
        app,
        http=Protocol,
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=DRAIN,
        timeout_keep_alive=75,  # longer than proxies keep theirs
        ws="none",
        proxy_headers=False,  # nobody asks for the caller's address
        h11_max_incomplete_event_size=65_536,
    )
    return uvicorn.Server(config)


async def run_server(
    service: Service,
    tokens: Tokens | None,
    *,
    host: str,
    port: int,
    tell: Callable[[str, int], None],
    access_log: bool = False,
) -> None:
    """Serve until a signal comes."""
    check_server_access(host, tokens)
    log = Log(requests=access_log)
    warnings.showwarning = lambda message, *_, **__: log.line("warning", message=str(message))
    with listen_as_server(host, port) as door:
        await service.open()
        try:
            server = make_server(service, tokens, log=log)

            def ready() -> None:
                gc.freeze()  # what is there now stays: collections need not look at it again
                tell(*door.getsockname()[:2])

            preparing = asyncio.create_task(_prepare(service, server, ready))
            await server.serve(sockets=[door])
            preparing.cancel()
            result = (await asyncio.gather(preparing, return_exceptions=True))[0]
            if isinstance(result, Exception):
                raise result
        finally:
            await service.close()


def server_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop there is here."""
    with suppress(ImportError):  # there is none for Windows
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


@contextmanager
def server_in_background(service: Service) -> Iterator[str]:
    """A service in a thread of this process, on loopback, at any free port; its address. It is stopped in the end."""
    known: Queue[str | BaseException] = Queue()
    holder: list[uvicorn.Server] = []

    async def serve() -> None:
        with listen_as_server("127.0.0.1", 0) as door:
            await service.open()
            try:
                holder.append(make_server(service, None, log=Log()))
                address = f"http://127.0.0.1:{door.getsockname()[1]}"
                preparing = asyncio.create_task(_prepare(service, holder[0], lambda: known.put(address)))
                await holder[0].serve(sockets=[door])
                await preparing
            finally:
                await service.close()

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=server_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001  (told to the thread that waits)
            known.put(error)

    thread = threading.Thread(target=work, name="newcomer-serve", daemon=True)
    thread.start()
    found = known.get()
    try:
        if isinstance(found, BaseException):
            raise found
        yield found
    finally:
        for server in holder:
            server.should_exit = True
        thread.join(2 * DRAIN)


async def _prepare(service: Service, server: uvicorn.Server, tell: Callable[[], None]) -> None:
    """Be ready, and say so; whatever prevents it ends the server."""
    try:
        await prepare_background(service)
    except Exception:
        server.should_exit = True
        raise
    tell()
