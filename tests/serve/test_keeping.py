"""What is kept, and for how long: waits and defaults, retention, erasure from files, restarts, one owner of a file."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import newcomer as nc
from newcomer.errors import StoreError
from newcomer.serve.rewards import give_default_rewards
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from newcomer.serve.store_sqlite import SqliteStore
from newcomer.serve.stores import store_of
from newcomer.serve.users import retain_users
from tests.serve.running import bytes_of, model_of, running


class Clock:
    """A clock that tests set."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def test_defaults_come_when_the_wait_is_over_and_a_later_reward_corrects_them():
    clock = Clock()
    config = Config(random=0.0, control=0.0, wait=3600.0, default=0.0)
    with running(MemoryStore(clock=clock), config) as one, nc.Client(one.url) as client:
        seen = client.decide("u", candidates=[1, 2])
        unseen = client.decide("u", candidates=[1, 2], shown=False)
        clock.now += 3599
        assert one.call(give_default_rewards(one.service)) == 0
        clock.now -= 7200  # the clock goes back: nothing happens too early, nothing is lost
        assert one.call(give_default_rewards(one.service)) == 0
        clock.now += 7202
        assert one.call(give_default_rewards(one.service)) == 1
        assert one.call(give_default_rewards(one.service)) == 0
        assert client.decision(seen.decision).status == "default"
        assert client.decision(unseen.decision).status == "pending"
        assert client.user("u").outcomes == 1
        assert client.reward(seen.decision, 1.0).status == "corrected"
        assert client.decision(seen.decision).reward == 1.0 and client.user("u").outcomes == 1
        client.shown(unseen.decision)
        clock.now += 3601
        assert one.call(give_default_rewards(one.service)) == 1


def test_the_clock_goes_back_and_order_stays():
    clock = Clock()
    policy = nc.PriorUCB(model_of())
    state = policy.start(1)
    with running(MemoryStore(clock=clock)) as one, nc.Client(one.url) as client:
        for reward in (1.0, 4.0, 2.0, 0.0):
            shown = client.decide("u")
            client.reward(shown.decision, reward)
            policy.update(state, ids=[shown.action], reward=[reward])
            clock.now -= 1_000
        one.service.states.clear()
        assert client.decide("u").action == int(policy.choose(state, ids=list(range(1, 13)))[0]) + 1


def test_retention_leaves_the_fold_of_what_is_left():
    clock = Clock()
    config = Config(random=0.0, control=0.0, keep=400 * 86_400.0)
    with running(MemoryStore(clock=clock), config) as one, nc.Client(one.url, tries=1) as client:
        for user in ("gone", "stays"):
            client.reward(client.decide(user).decision, 5.0)
        clock.now += 300 * 86_400
        kept = client.decide("stays", candidates=[3])
        client.reward(kept.decision, 2.0)
        clock.now += 101 * 86_400
        assert one.call(retain_users(one.service)) == 2
        assert client.user("stays").outcomes == 1
        policy = nc.PriorUCB(model_of())
        state = policy.start(1)
        policy.update(state, ids=[3], reward=[2.0])
        assert client.decide("stays").action == int(policy.choose(state, ids=list(range(1, 13)))[0]) + 1
        with pytest.raises(StoreError, match="no user"):
            client.user("gone")


def test_states_are_snapshots_and_folds_alike_after_a_restart(tmp_path):
    url, policy = f"sqlite:///{tmp_path}/s", nc.PriorUCB(model_of())
    state = policy.start(1)
    with running(store_of(url)) as one, nc.Client(one.url) as client:
        for t in range(21):
            shown = client.decide("u")
            client.reward(shown.decision, float(t % 4))
            policy.update(state, ids=[shown.action], reward=[float(t % 4)])
    with closing(apsw.Connection(f"{tmp_path}/s")) as db:
        assert db.execute("SELECT count(*), max(place) FROM snapshots").fetchall()[0][0] == 1
    with running(store_of(url)) as one, nc.Client(one.url) as client:
        best = client.user("u").best[0]
        assert best.expected + best.bonus == policy.scores(state, ids=list(range(1, 13))).max()
        assert one.service.states.get("u").since < 8
    with closing(apsw.Connection(f"{tmp_path}/s")) as db:  # snapshots are a cache: without them nothing changes
        db.execute("DELETE FROM snapshots")
    with running(store_of(url)) as one, nc.Client(one.url) as client:
        best = client.user("u").best[0]
        assert best.expected + best.bonus == policy.scores(state, ids=list(range(1, 13))).max()


def fill(client, user):
    shown = client.decide(user, candidates=[1, 2, 3])
    for i in range(12):
        client.reward(client.decide(user).decision, float(i), event=f"part-of-{user}")
    client.observe(user, 1.0, action=2, event=f"event-of-{user}")
    client.decide("cookie-" + user)
    client.merge(user, "cookie-" + user)
    client.user(user)
    return shown


def test_erasure_leaves_no_trace_in_sqlites_files(tmp_path):
    name = "erase-me-7f3a9"
    with running(SqliteStore(tmp_path / "store")) as one, nc.Client(one.url) as client:
        for i in range(30):
            fill(client, f"other-{i}") if i < 3 else client.decide(f"other-{i}")
        fill(client, name)
        assert name.encode() in bytes_of(tmp_path)
        client.erase(name)
        assert name.encode() not in bytes_of(tmp_path)
        assert b"other-2" in bytes_of(tmp_path)
        assert name not in client.logs(since="0").decode()
        assert one.service.states.get(name) is None
    assert name.encode() not in bytes_of(tmp_path)


def test_erasure_leaves_no_trace_in_postgresqls_table_files(database):
    asyncpg = pytest.importorskip("asyncpg")
    name = "erase-me-7f3a9"

    async def folder():
        connection = await asyncpg.connect(database)
        try:
            await connection.execute("CHECKPOINT")
            rows = await connection.fetch("SELECT current_setting('data_directory') d, oid FROM pg_database")
            own = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
            return Path(rows[0]["d"]) / "base" / str(own)
        finally:
            await connection.close()

    with running(store_of(database)) as one, nc.Client(one.url) as client:
        client.decide("other")
        fill(client, name)
        where = asyncio.run(folder())
        if not where.is_dir():
            pytest.skip("not run: the files of this PostgreSQL are elsewhere")
        assert name.encode() in bytes_of(where)
        client.erase(name)
        end = time.monotonic() + 300
        while name.encode() in bytes_of(where) and time.monotonic() < end:
            time.sleep(0.2)
        assert name.encode() not in bytes_of(where) and b"other" in bytes_of(where)


def test_a_second_service_on_one_file_is_refused(tmp_path):
    with running(SqliteStore(tmp_path / "store")), pytest.raises(StoreError, match="another service"):
        asyncio.run(SqliteStore(tmp_path / "store").open())
    with running(SqliteStore(tmp_path / "store")) as one, nc.Client(one.url) as client:
        assert client.status().generation == 1


def test_what_is_no_store_is_refused(tmp_path):
    (tmp_path / "text").write_text("this is no database, whatever its name says" * 100)
    (tmp_path / "folder").mkdir()
    for path in ("text", "folder", "missing/store"):
        with pytest.raises(StoreError):
            asyncio.run(SqliteStore(tmp_path / path).open())
    for url in ("mysql://x", "sqlite:", "sqlite:///", ""):
        with pytest.raises(StoreError, match="not the address"):
            store_of(url)
    unreachable = store_of("postgresql://nobody:hidden@127.0.0.1:1/none")
    with pytest.raises(StoreError) as told:
        asyncio.run(unreachable.open())
    assert "hidden" not in str(told.value)


def test_a_model_that_the_store_does_not_know_is_promoted_at_the_start(tmp_path):
    first, second = model_of(), model_of(seed=3)
    for model, serving in ((first, first), (second, second), (first, second)):
        with running(SqliteStore(tmp_path / "store"), model=model) as one, nc.Client(one.url) as client:
            assert client.models().serving == serving.id


def test_a_full_store_answers_503_and_goes_on_when_there_is_room(tmp_path):
    with running(SqliteStore(tmp_path / "store")) as one, nc.Client(one.url, tries=1) as client:
        kept = client.decide("u")
        one.call(limit(one, "max_page_count=1"))
        refused = 0
        for i in range(300):
            try:
                client.decide(f"v{i}", candidates=list(range(1, 13)))
            except StoreError as error:
                assert error.status == 503
                refused += 1
        assert refused > 0
        one.call(limit(one, "max_page_count=1000000"))
        assert client.reward(kept.decision, 1.0).status == "recorded"
        rows = client.logs(since="0").decode().splitlines()
        assert len(rows) == 1 + 300 - refused


async def limit(one, pragma):
    one.service.store.connection.execute(f"PRAGMA {pragma}").fetchall()
