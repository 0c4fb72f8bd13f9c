"""What could give a wrong answer and no error: users who are erased and return, merged ids, keys, clocks, readers.

The long test plays whatever clients may send, in a random order and under a clock that goes back, against an oracle
that keeps a plain list of outcomes.
"""

from __future__ import annotations

import random
import time

import apsw
import pytest
from httpx2 import Client as Http

import newcomer as nc
from newcomer.serve import background, store_sqlite
from newcomer.serve.rewards import give_default_rewards
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from newcomer.serve.store_sqlite import SqliteStore
from newcomer.serve.stores import store_of
from tests.serve.running import bytes_of, model_of, running

ALL = list(range(1, 13))
KINDS = [*["decide"] * 4, *["reward"] * 5, "part", "observe", "void", "defaults", "merge", "erase"]


def best_of(client, user):
    first = client.user(user).best[0]
    return first.expected + first.bonus


def expected_best(outcomes):
    """The best score of the policy after outcomes (action, reward), in this order."""
    policy = nc.PriorUCB(model_of())
    state = policy.start(1)
    for action, reward in outcomes:
        policy.update(state, ids=[action], reward=[reward])
    return policy.scores(state, ids=ALL).max()


def test_an_erased_user_who_returns_is_a_newcomer_in_every_process(database):
    stores = [running(store_of(database)) for _ in range(2)]
    with stores[0] as one, stores[1] as two, nc.Client(one.url) as here, nc.Client(two.url) as there:
        for _ in range(3):
            here.reward(here.decide("u", candidates=[2]).decision, 5.0)
        assert best_of(there, "u") == expected_best([(2, 5.0)] * 3)
        here.erase("u")
        here.reward(here.decide("u", candidates=[1]).decision, 0.0)
        assert best_of(there, "u") == expected_best([(1, 0.0)])
        here.erase("u")
        two.call(background.forget_with_others(two.service))
        assert two.service.states.get("u") is None  # no process keeps what another has erased


def test_a_belief_names_actions_where_the_model_knows_names():
    names = tuple(f"film {one}" for one in ALL)
    with running(MemoryStore(), model=model_of(action_names=names)) as one, nc.Client(one.url) as client:
        client.decide("u")
        found = client.user("u")
        assert f"of action {found.best[0].action}, film {found.best[0].action}: " in found.words
        assert client.arms().treated == 1.0


def test_long_keys_of_batches_are_told_apart(serve):
    with Http(base_url=serve().url) as http:
        body = {"items": [{"user": "u", "candidates": [3]}, {"user": "v", "candidates": [3]}]}
        found = []
        for key in ("k" * 255 + "1", "k" * 255 + "2", "k" * 255 + "1"):
            answer = http.post("/v1/decide/batch", json=body, headers={"idempotency-key": key})
            found.append([item["decision"] for item in answer.json()["items"]])
        assert found[0] == found[2] and not set(found[0]) & set(found[1])


def test_erasure_while_somebody_reads_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(store_sqlite, "TRIES", 2)
    name = b"erase-me-7f3a9"
    with running(SqliteStore(tmp_path / "store")) as one, nc.Client(one.url, tries=1) as client:
        for _ in range(5):
            client.reward(client.decide(name.decode()).decision, 1.0)
        reader = apsw.Connection(f"{tmp_path}/store", flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        assert client.erase(name.decode()).events == 5  # it is gone, and was not asked for in vain
        assert client.decide("other").decision
        reader.execute("COMMIT")
        reader.close()
        end = time.monotonic() + 300
        while name in bytes_of(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        assert name not in bytes_of(tmp_path)


class Oracle:
    """Outcomes as a plain list of rows, in the order of their first values; ids that are other names for users."""

    def __init__(self):
        self.rows, self.alias, self.order, self.erased = {}, {}, 0, set()

    def whose(self, user):
        while user in self.alias:
            user = self.alias[user]
        return user

    def decided(self, answer, user, deadline):
        self.rows[answer.decision] = {
            "user": self.whose(user), "action": answer.action, "parts": {}, "value": None, "status": "pending",
            "place": None, "deadline": deadline,
        }  # fmt: skip

    def value(self, name, value, status="rewarded"):
        row = self.rows[name]
        row.update(value=value, status=status, deadline=None)
        if row["place"] is None:
            self.order += 1
            row["place"] = self.order

    def outcomes(self, user):
        mine = [row for row in self.rows.values() if row["user"] == self.whose(user) and row["place"] is not None]
        kept = [row for row in sorted(mine, key=lambda row: row["place"]) if row["status"] != "void"]
        return [(row["action"], row["value"]) for row in kept]

    def merge(self, user, source):
        into, gone = self.whose(user), self.whose(source)
        for row in self.rows.values():
            row["user"] = into if row["user"] == gone else row["user"]
        self.alias[gone] = into

    def erase(self, user):
        who = self.whose(user)
        self.erased |= {name for name, row in self.rows.items() if row["user"] == who}
        self.rows = {name: row for name, row in self.rows.items() if row["user"] != who}
        self.alias = {name: whom for name, whom in self.alias.items() if self.whose(name) != who}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whatever_is_sent_states_are_the_fold_of_what_the_oracle_keeps(tmp_path, kind, seed):
    rng, oracle, now = random.Random(seed), Oracle(), [1e9]

    def clock():
        return now[0]

    store = MemoryStore(clock=clock) if kind == "memory" else SqliteStore(tmp_path / "store", clock=clock)
    config = Config(random=0.0, control=0.0, wait=100.0, default=0.25)
    with running(store, config) as one, nc.Client(one.url, tries=1) as client:
        for task in one.service.tasks:  # defaults are given when this test says so
            task.cancel()
        for turn in range(160):
            now[0] += rng.choice([1.0, 30.0, -50.0, 0.0])
            user, names = f"u{rng.randrange(5)}", sorted(oracle.rows)
            what = rng.choice(KINDS)
            name = rng.choice(names) if names else ""
            row = oracle.rows.get(name, {})
            if what == "decide":
                answer = client.decide(user, candidates=rng.sample(ALL, 3))
                oracle.decided(answer, user, now[0] + 100.0)
            elif what == "reward" and row.get("status") in ("pending", "default", "rewarded") and not row["parts"]:
                value = float(rng.randrange(5))
                status = client.reward(name, value, correct=True).status
                again = row["status"] == "rewarded" and row["value"] == value
                assert status == ("repeated" if again else "recorded" if row["status"] == "pending" else "corrected")
                if not again:
                    oracle.value(name, value)
            elif what == "part" and row.get("status") in ("pending", "default") or row.get("parts"):
                if row["status"] == "void":
                    continue
                part, value = rng.choice("ab"), float(rng.randrange(3))
                client.reward(name, value, event=part, correct=True)
                row["parts"][part] = value
                oracle.value(name, sum(row["parts"].values()))
            elif what == "observe":
                action = rng.choice(ALL)
                found = client.observe(user, 2.0, action=action, event=f"e{turn}")
                assert client.observe(user, 2.0, action=action, event=f"e{turn}").status == "repeated"
                oracle.rows[found.observation] = {
                    "user": oracle.whose(user), "action": action, "parts": {}, "status": "observed", "place": None,
                }  # fmt: skip
                oracle.value(found.observation, 2.0, "observed")
            elif what == "void" and row.get("status") not in (None, "observed"):
                client.void(name)
                row["status"] = "void"
            elif what == "defaults":
                one.call(give_default_rewards(one.service))
                due = [n for n, r in oracle.rows.items() if r["status"] == "pending" and r["deadline"] <= now[0]]
                for each in sorted(due, key=lambda n: oracle.rows[n]["deadline"]):
                    oracle.value(each, 0.25, "default")
            elif what == "merge":
                other = f"u{rng.randrange(5)}"
                known = {r["user"] for r in oracle.rows.values()}
                if oracle.whose(other) in known and oracle.whose(user) != oracle.whose(other):
                    client.merge(user, other)
                    oracle.merge(user, other)
            elif what == "erase" and oracle.whose(user) in {r["user"] for r in oracle.rows.values()}:
                client.erase(user)
                oracle.erase(user)
            if oracle.whose(user) in {r["user"] for r in oracle.rows.values()}:
                assert best_of(client, user) == pytest.approx(expected_best(oracle.outcomes(user)), rel=1e-12), turn
                assert client.user(user).outcomes == len(oracle.outcomes(user))
        for gone in oracle.erased:
            with pytest.raises(nc.StoreError) as told:
                client.reward(gone, 1.0)
            assert told.value.status in (404, 410)


def test_actions_served_most_have_their_names():
    names = tuple(f"film {i}" for i in range(12))
    with running(MemoryStore(), model=model_of(action_names=names)) as one, Http(base_url=one.url) as http:
        http.post("/v1/decide", json={"user": "u", "candidates": [4]})
        served = http.get("/v1/status").json()["served"]
        one.service.ready = False
        assert http.get("/readyz").status_code == 503
        one.service.ready = True
        assert http.get("/v1/status").json()["errors"] == []  # that it is not ready is what was asked
    assert [(each["action"], each["name"]) for each in served] == [(4, "film 3")]
