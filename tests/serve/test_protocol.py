"""Guards the short way of small POSTs through HTTP: the same answers as uvicorn's own way, whatever a client does."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from newcomer.serve.limits import Limits
from newcomer.serve.protocol import SMALL, Exchange
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from tests.serve.running import running

CONFIG = Config(random=0.0, control=0.0, limits=Limits(body=200_000))


@pytest.fixture(scope="module")
def service():
    with running(MemoryStore(), CONFIG) as one:
        yield one


def spoken(service, *sent, pause=0.0, until=1):
    """Send bytes over one connection and read until so many answers are there, or the connection is closed.

    Gives (status, headers, body) of each, and whether the service closed it.
    """
    place = urlsplit(service.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as door:
        for part in sent:
            door.sendall(part)
            time.sleep(pause)
        data, found = b"", []
        while len(found) < until:
            more = door.recv(65_536)
            if not more:
                return found, True
            data += more
            while b"\r\n\r\n" in data:
                head, _, rest = data.partition(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:])
                size = int(headers.get("content-length", "0"))
                if len(rest) < size:
                    break
                found.append((int(lines[0].split()[1]), headers, rest[:size]))
                data = rest[size:]
        door.settimeout(0.2)
        try:
            return found, not door.recv(1)
        except TimeoutError:
            return found, False


def post(body, path="/v1/decide", version="1.1", more=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nhost: 127.0.0.1\r\ncontent-length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


def test_both_ways_give_the_same_answer(service):
    body = {"user": "same", "candidates": [1, 2, 3], "request": "k"}
    ((status, headers, answer),), closed = spoken(service, post(body, more="x-request-id: mine\r\n"))
    assert (status, closed, headers["x-request-id"]) == (200, False, "mine")
    ((other, theirs, again),), _ = spoken(service, post(body, path="/v1/decide?a=1", more="x-request-id: mine\r\n"))
    assert (other, again) == (200, answer)  # with a query it is uvicorn's way, and the key makes it the same request
    assert set(headers) == set(theirs) >= {"content-type", "content-length", "date", "x-request-id"}
    assert headers["content-type"] == theirs["content-type"]


def test_refusals_come_through(service):
    for body, status in ((b"{", 400), (b'{"user": []}', 422), ({"user": "u", "candidates": []}, 422)):
        ((found, _, answer),), closed = spoken(service, post(body))
        assert (found, closed) == (status, False) and json.loads(answer)["error"]["code"]
    assert spoken(service, post({"decision": "x", "reward": 1}, path="/v1/reward"))[0][0][0] == 404
    assert spoken(service, post({"user": "u"}, more="origin: https://evil.example\r\n"))[0][0][0] == 403
    assert spoken(service, post({"user": "u"}, more=f"idempotency-key: {'k' * 300}\r\n"))[0][0][0] == 422


def test_requests_that_do_not_wait_are_answered_in_order(service):
    """Sent in one piece: the first takes the short way, those that overtake it wait in line."""
    sent = b"".join(post({"user": f"p{i}", "candidates": [i % 12 + 1]}) for i in range(5))
    get = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    found, closed = spoken(service, sent + get, until=6)
    assert [one[0] for one in found] == [200] * 6 and not closed
    assert [json.loads(one[2])["action"] for one in found[:5]] == [1, 2, 3, 4, 5]
    assert found[5][2] == b'{"status":"alive"}'


def test_bodies_in_pieces_and_in_chunks(service):
    whole = post({"user": "pieces", "candidates": [4]})
    assert spoken(service, whole[:30], whole[30:90], whole[90:], pause=0.05)[0][0][0] == 200
    body = json.dumps({"user": "chunks", "candidates": [4]}).encode()
    head = b"POST /v1/decide HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    sent = head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:])) + b"0\r\n\r\n"
    assert spoken(service, sent)[0][0][0] == 200


@pytest.mark.parametrize(("size", "status"), [(SMALL - 200, 200), (SMALL + 200, 200), (150_000, 200), (250_000, 413)])
def test_bodies_of_any_size(service, size, status):
    body = json.dumps({"user": "large", "candidates": [1, 2]}).encode()
    sent = post(body + b" " * (size - len(body)))
    assert spoken(service, sent)[0][0][0] == status


def test_connections_end_as_asked(service):
    body = {"user": "close", "candidates": [1]}
    ((status, _, _),), closed = spoken(service, post(body, more="connection: close\r\n"))
    assert (status, closed) == (200, True)
    ((status, _, _),), closed = spoken(service, post(body, version="1.0"))
    assert (status, closed) == (200, True)
    found, _ = spoken(service, post(body, more="expect: 100-continue\r\n"), until=2)
    assert [one[0] for one in found] == [100, 200]


def test_a_client_that_leaves_harms_nobody(service):
    place = urlsplit(service.url)
    for _ in range(20):
        with socket.create_connection((place.hostname, place.port)) as door:
            door.sendall(post({"user": "leaves", "candidates": [1, 2, 3]}))
    with socket.create_connection((place.hostname, place.port)) as door:
        door.sendall(post({"user": "half"})[:40])
    assert spoken(service, post({"user": "stays", "candidates": [2]}))[0][0][0] == 200


def test_begun_requests_are_answered_before_the_end():
    """As uvicorn ends: a connection that waits for an answer gets it, and is closed then."""
    with running(MemoryStore(), CONFIG) as one:
        seen = []
        respond = one.server.config.loaded_app.direct[b"/v1/decide"].respond

        async def slow(headers, body):
            seen.extend(one.server.server_state.connections)
            for protocol in seen:
                assert type(protocol.cycle) is Exchange
                protocol.shutdown()
            return await respond(headers, body)

        one.server.config.loaded_app.direct[b"/v1/decide"].respond = slow
        ((status, headers, _),), closed = spoken(one, post({"user": "last", "candidates": [1]}))
        assert (status, closed, headers["connection"]) == (200, True, "close") and len(seen) == 1
