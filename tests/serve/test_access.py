"""Who may ask what, how much, and how the command starts and stops."""

from __future__ import annotations

import asyncio
import io
import json
import re

import httpx2
import jsonschema
import numpy as np
import pytest

import newcomer as nc
from newcomer.cli.main import execute_command
from newcomer.errors import StoreError
from newcomer.serve.app import Log
from newcomer.serve.auth import Tokens
from newcomer.serve.limits import Limits
from newcomer.serve.server import check_server_access
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from tests.serve.running import Process, free_port, model_of, running

DECIDE, ADMIN = "d" * 20, "a" * 20
LINES = ["# tokens", "", f"decide {DECIDE}", f"admin {ADMIN}"]


def test_roles():
    log = io.StringIO()
    with running(MemoryStore(), tokens=LINES, log=Log(requests=True, stream=log)) as one:
        http = httpx2.Client(base_url=one.url)

        def ask(method, path, token=None, **named):
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return http.request(method, path, headers=headers, **named).status_code

        body = {"json": {"user": "user-in-body"}}
        assert ask("POST", "/v1/decide", **body) == 401
        assert ask("POST", "/v1/decide", "wrong" * 5, **body) == 401
        assert ask("POST", "/v1/decide", DECIDE, **body) == 200
        assert ask("POST", "/v1/decide", ADMIN, **body) == 200
        for path in ("/v1/logs", "/v1/models", "/v1/users/user-in-path", "/v1/arms", "/v1/status", "/metrics"):
            assert ask("GET", path) == 401 and ask("GET", path, DECIDE) == 403
        assert ask("GET", "/v1/arms", ADMIN) == 200
        for path in ("/healthz", "/readyz", "/", "/openapi.json"):
            assert ask("GET", path) == 200
        http.close()
        lines = [json.loads(line) for line in log.getvalue().splitlines()]
        assert all({"what", "route", "request", "status"} <= line.keys() for line in lines)
        for secret in (DECIDE, ADMIN, "user-in"):
            assert secret not in log.getvalue()


def test_files_of_tokens(tmp_path):
    path = tmp_path / "tokens"
    for text in ("", "root " + DECIDE, "decide short", "decide"):
        path.write_text(text)
        with pytest.raises(StoreError):
            Tokens.read(path)
    with pytest.raises(StoreError, match="cannot be read"):
        Tokens.read(tmp_path / "none")


def test_beyond_loopback_tokens_are_needed():
    with pytest.raises(StoreError, match="no tokens"):
        check_server_access("0.0.0.0", None)
    check_server_access("0.0.0.0", Tokens.parse(LINES))
    check_server_access("::1", None)


def test_pages_of_other_origins_are_refused_on_loopback():
    with running(MemoryStore()) as one, httpx2.Client(base_url=one.url) as http:
        body = {"user": "u"}
        assert http.post("/v1/decide", json=body, headers={"origin": "https://evil.example"}).status_code == 403
        assert http.post("/v1/decide", json=body, headers={"host": "evil.example"}).status_code == 403
        assert http.post("/v1/decide", json=body, headers={"origin": one.url}).status_code == 200


def test_limits():
    limits = Limits(body=1_000, candidates=5, batch=3, rate=10.0)
    with running(MemoryStore(), Config(limits=limits)) as one, httpx2.Client(base_url=one.url) as http:
        assert http.post("/v1/decide", json={"user": "u", "candidates": [1, 2, 3, 4, 5, 6]}).status_code == 413
        assert http.post("/v1/decide/batch", json={"items": [{"user": 1}] * 4}).status_code == 413
        assert http.post("/v1/decide", json={"user": "u", "exclude": [1] * 1_000}).status_code == 413

        def parts():
            for _ in range(30):
                yield b"x" * 100

        assert http.post("/v1/decide", content=parts()).status_code == 413  # without a content-length
        answers = [http.get("/v1/arms") for _ in range(200)]
        slow = [one for one in answers if one.status_code == 429]
        assert slow and slow[0].headers["retry-after"] == "1"
        assert "5 candidates" in http.get("/openapi.json").json()["info"]["description"]


def test_the_client_tries_again_and_is_answered_once():
    seen = []

    def answer(request):
        seen.append(request.headers["idempotency-key"])
        if len(seen) == 1:
            raise httpx2.ConnectError("cut")
        if len(seen) == 2:
            return httpx2.Response(503, headers={"retry-after": "0"}, json={"error": {"code": "s", "message": "m"}})
        return httpx2.Response(200, json={"decision": "d", "status": "recorded"})

    client = nc.Client("http://service")
    client._http = httpx2.Client(base_url="http://service", transport=httpx2.MockTransport(answer))
    assert client.reward("d", 1.0).status == "recorded"
    assert len(seen) == 3 and len(set(seen)) == 1
    with pytest.raises(StoreError, match="cannot be reached"):
        nc.Client("http://127.0.0.1:1", tries=1).status()


def test_the_client_sends_numbers_of_arrays_and_refuses_what_json_lacks():
    sent = []

    def answer(request):
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json={"items": [{"decision": "d", "status": "recorded"}]})

    client = nc.Client("http://service")
    client._http = httpx2.Client(base_url="http://service", transport=httpx2.MockTransport(answer))
    client.reward_batch([{"decision": "d", "reward": np.float64(0.5)}])
    assert sent[0]["items"][0]["reward"] == 0.5
    with pytest.raises(nc.NewcomerError, match="a complex cannot be sent"):
        client.reward_batch([{"decision": "d", "reward": 1j}])


def test_the_client_to_await():
    with running(MemoryStore()) as one:

        async def talk():
            async with nc.AsyncClient(one.url) as client:
                shown = await asyncio.gather(*(client.decide(f"u{i}") for i in range(20)))
                done = await client.reward_batch([{"decision": x.decision, "reward": 1.0} for x in shown])
                assert {x["status"] for x in done} == {"recorded"}
                assert (await client.user("u3")).outcomes == 1
                with pytest.raises(StoreError, match="no user"):
                    await client.user("nobody")

        asyncio.run(talk())


def test_the_command_serves_and_drains(tmp_path):
    path = tmp_path / "m.newcomer"
    model_of().save(path)
    one = Process(path, "--random", "0", "--control", "0", port=free_port())
    with httpx2.Client() as http:
        one.wait_ready(http)
        with nc.Client(one.url) as client:
            shown = client.decide("ann", candidates=[1, 2, 3])
        assert shown.arm == "treated"
    one.process.terminate()
    said = one.process.communicate(timeout=300)[1]
    assert one.process.returncode == 0
    assert said.count("curl ") == 3 and "everything that was acknowledged is in the store" in said
    assert (tmp_path / "m.newcomer.store").exists()


def test_the_command_refuses_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "m.newcomer"
    model_of().save(path)
    cases = (
        (["--host", "0.0.0.0"], 6, "no tokens"),
        (["--store", "mysql://x"], 6, "not the address of a store"),
        (["--policy", "Best"], 2, "does not know the policy"),
        (["--wait", "1h"], 2, "--default"),
        (["--wait", "soon", "--default", "0"], 2, "duration"),
        (["--random", "0.7", "--control", "0.7"], 2, "more than 1"),
        (["--tokens", str(tmp_path / "none")], 6, "cannot be read"),
    )
    for options, code, words in cases:
        assert execute_command(["serve", str(path), *options]) == code
        assert words in capsys.readouterr().err


def test_the_description_is_valid():
    with running(MemoryStore()) as one, httpx2.Client(base_url=one.url) as http:
        told = http.get("/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    schemas = told["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(told)):
        assert name in schemas
    names = [one["operationId"] for path in told["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names) >= 23
