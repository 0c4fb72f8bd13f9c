"""The lift on every store: sums that follow rewards late and corrected, voids, merges, erasures and retention."""

from __future__ import annotations

import json
from contextlib import closing

import apsw
import numpy as np
import pytest

import newcomer as nc
from newcomer.confidence_sequence import (
    confidence_sequence_difference,
    confidence_sequence_mean,
    confidence_sequence_sample_ratio,
)
from newcomer.serve import lift as lift_module
from newcomer.serve import tables
from newcomer.serve.lift import ARMS, FIRST, Counted, Sums, advance_lift, lift_of_sums
from newcomer.serve.migrations import STEPS
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from newcomer.serve.stores import store_of
from newcomer.serve.users import retain_users
from tests.serve.running import model_of, running


@pytest.fixture(autouse=True)
def same_arms(monkeypatch):
    """The same users in the same arms, whenever the test is run."""

    async def key(tx):
        return b"k" * 32

    monkeypatch.setattr(tables, "key_row", key)


HALVES = Config(random=0.2, control=0.3)


def naive(client, out=()):
    """From all rows of the logs, one after another: {user: (arm, [reward or None, by interaction])}."""
    rows = {}
    for line in client.logs(since="0").decode().splitlines():
        row = json.loads(line)
        rows[row["decision"]] = row
    found = {}
    for row in sorted(rows.values(), key=lambda one: one["step"]):
        if row["arm"] == "observed" or row["status"] == "void" or row["user"] in out:
            continue
        arm, slates = found.setdefault(row["user"], (row["arm"], {}))
        slates.setdefault(row["slate"] or row["decision"], []).append(row["reward"])
    users = {}
    for user, (arm, slates) in found.items():
        known = [[one for one in rewards if one is not None] for rewards in slates.values()]
        users[user] = (arm, [np.mean(one) if one else None for one in known][:FIRST])
    return users


def check(client, out=()):
    """The service's numbers are those of the slow way."""
    users, told = naive(client, out), client.lift()
    for n in range(len(told.by_interaction) + 2):
        sums = np.zeros((1, len(ARMS), 3))
        for arm, rewards in users.values():
            known = [one for one in rewards if one is not None]
            value = (np.mean(known) if known else None) if n == 0 else rewards[n - 1] if n <= len(rewards) else None
            if value is not None:
                sums[0, ARMS.index(arm)] += (1, value, value**2)
        if n > len(told.by_interaction):
            assert sums.sum() == 0
            break
        arms, lifts = (
            (told.arms, told.lift) if n == 0 else (told.by_interaction[n - 1].arms, told.by_interaction[n - 1].lift)
        )
        assert {one.arm: one.users for one in arms} == {a: c for a, c in zip(ARMS, sums[0, :, 0], strict=True) if c}
        for one in arms:
            value, around = confidence_sequence_mean(sums, ARMS.index(one.arm))
            assert one.mean == pytest.approx(value, abs=1e-9)
            assert (one.low is None) == np.isinf(around)
            assert one.low is None or one.high - one.low == pytest.approx(2 * around, rel=1e-6)
        for one in lifts:
            value, around = confidence_sequence_difference(sums, 0, ARMS.index(one.against))
            assert one.difference == pytest.approx(value, abs=1e-9)
            assert one.low is None or (one.low, one.high) == pytest.approx((value - around, value + around), rel=1e-6)
    counts = {one.arm: (one.users, one.interactions, one.rewarded) for one in told.sample_ratio.arms}
    for arm, count in counts.items():
        mine = [rewards for name, rewards in users.values() if name == arm]
        rewarded = sum(one is not None for rewards in mine for one in rewards)
        assert count == (len(mine), sum(map(len, mine)), rewarded)
    assert told.behind == 0
    return told


def test_sums_follow_whatever_happens_to_decisions(serve):
    one = serve(HALVES)
    rng = np.random.default_rng(0)
    with nc.Client(one.url) as client:
        empty = client.lift()
        assert empty.lift == [] and empty.words == ["There is nothing to compare yet."]
        shown = [client.decide(f"u{i % 12}", candidates=[1, 2, 3]) for i in range(40)]
        assert client.lift().arms == []
        for i in rng.permutation(40)[:30]:
            client.reward(shown[i].decision, float(rng.normal(100.0)))
        client.observe("u1", 55.0, action=3)
        client.observe("nobody-decided", 55.0, action=3)
        slate = client.decide("u2", top=3)
        client.reward(slate.slots[1].decision, 90.0)
        assert len(check(client).by_interaction) == 5
        client.reward(slate.slots[2].decision, 120.0)
        client.void(shown[7].decision)
        client.void(shown[39].decision)
        client.reward(shown[5].decision, 101.0, correct=True)
        late = client.decide("u4")
        client.reward(late.decision, 60.0, event="a")
        client.reward(late.decision, 39.0, event="b")
        check(client)
        client.reward(shown[0].decision, 1e13, correct=True)
        client.lift()
        client.reward(shown[0].decision, 99.0, correct=True)  # a slip of the pen leaves no trace in the sums
        check(client)
        client.erase("u3")
        assert "u3" not in naive(client)
        check(client)


def test_who_was_put_together_from_two_leaves(serve):
    one = serve(HALVES)
    with nc.Client(one.url) as client:
        arms = {}
        for i in range(40):
            made = client.decide(f"u{i}")
            client.reward(made.decision, float(i))
            arms.setdefault(made.arm, []).append(f"u{i}")
        client.observe("fresh", 1.0, action=2)
        first = arms["treated"]
        client.merge("fresh", first[0])  # a new id for a user who has an arm: stays
        client.merge(first[1], first[2])  # both had the same arm
        client.merge(arms["control"][0], arms["random"][0])
        out = {first[1], arms["control"][0]}
        told = check(client, out)
        assert sum(a.users for a in told.sample_ratio.arms) == 40 - 4
        client.reward(client.decide(first[1]).decision, 3.0)  # and does not come back
        client.merge("fresh", first[1])
        check(client, out | {"fresh"})
        for user in ("fresh", "u29", "u28"):
            client.erase(user)
        check(client, out)


def test_retention_takes_users_out_who_lose_a_part_of_their_history():
    class Clock:
        now = 1_000_000.0

        def __call__(self):
            return self.now

    clock = Clock()
    config = Config(random=0.2, control=0.3, keep=86_400.0)
    with running(MemoryStore(clock=clock), config) as one, nc.Client(one.url) as client:
        for user in ("gone", "cut", "cut-2"):
            client.reward(client.decide(user).decision, 1.0)
        assert sum(a.users for a in client.lift().arms) == 3
        clock.now += 80_000
        for user in ("cut", "cut-2", "whole"):
            client.reward(client.decide(user).decision, 1.0)
        clock.now += 10_000
        one.call(retain_users(one.service))
        assert sum(a.users for a in check(client, {"cut", "cut-2"}).arms) == 1
        client.reward(client.decide("cut").decision, 1.0)
        client.reward(client.decide("gone").decision, 2.0)  # comes as a new user
        assert sum(a.users for a in check(client, {"cut", "cut-2"}).arms) == 2


def test_defaults_count_and_only_the_first_interactions_do():
    with running(MemoryStore(), Config(random=0.0, control=0.0)) as one, nc.Client(one.url) as client:
        for i in range(FIRST + 5):
            client.reward(client.decide("u").decision, float(i < FIRST))
        told = check(client)
        assert told.arms[0].mean == 1.0 and len(told.by_interaction) == FIRST


def test_a_look_reads_only_what_changed_and_two_processes_count_once(serve, monkeypatch):
    one = serve(HALVES)
    monkeypatch.setattr(lift_module, "AT_ONCE", 7)
    with nc.Client(one.url) as client:
        made = [client.decide(f"u{i}") for i in range(20)]
        for decision in made:
            client.reward(decision.decision, 1.0)
        sizes = []
        true = lift_module.recount_lift

        async def watched(tx, whose, *values):
            sizes.append(await true(tx, whose, *values))
            return sizes[-1]

        monkeypatch.setattr(lift_module, "recount_lift", watched)

        async def twice():
            import asyncio

            return await asyncio.gather(advance_lift(one.service), advance_lift(one.service))

        assert one.call(twice()) == [0, 0]
        assert sum(sizes) == 20  # a user whose later changes were read is not read again
        check(client)
        sizes.clear()
        client.lift()
        assert sizes == []
        client.reward(made[3].decision, 5.0, correct=True)
        client.lift()
        assert sizes == [1]
        assert one.call(advance_lift(one.service, seconds=-1.0)) == 0


def test_lift_is_found_and_survives_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/s"
    rng = np.random.default_rng(1)
    with running(store_of(url), Config(random=0.3, control=0.3)) as one, nc.Client(one.url) as client:
        users = [f"u{i}" for i in range(400)]
        for n in range(2):
            items = client.decide_batch([{"user": user, "candidates": [1, 2]} for user in users])
            gain = {"treated": 1.0 + n, "control": 0.5, "random": 0.0}
            client.reward_batch(
                [{"decision": d["decision"], "reward": gain[d["arm"]] + 0.3 * rng.normal()} for d in items]
            )
        told = check(client)
    with running(store_of(url), Config(random=0.3, control=0.3)) as one, nc.Client(one.url) as client:
        again = client.lift()
        assert again == told
        against = {lift.against: lift for lift in again.lift}
        assert against["control"].low > 0.5 and against["random"].low > 1.0
        assert (
            again.words[0].startswith("Treated users get ") and "more per decision than control users" in again.words[0]
        )
        first, second = ({one.against: one.difference for one in step.lift} for step in again.by_interaction)
        assert second["control"] > first["control"] + 0.7
        assert again.sample_ratio.warning is None and again.sample_ratio.p_value > 0.01
        assert (again.first, again.confidence, again.tuned) == (FIRST, 0.95, 500.0)


def test_stores_of_before_are_migrated_and_counted(tmp_path):
    with closing(apsw.Connection(f"{tmp_path}/s")) as db:
        for statement in STEPS[0]:
            db.execute(statement)
        db.execute("PRAGMA user_version=1")
        db.execute("INSERT INTO shares VALUES (1, 0.5, 0.0, 0.0, 0.0)")
        db.execute("INSERT INTO users (id, arm, shares, first_seen) VALUES ('old', 'random', 1, 0.0)")
        db.execute(
            "INSERT INTO events (id, user_id, at, model, arm, status, reward, place, change) VALUES"
            " ('1-aa', 'old', 0.0, 'm', 'random', 'rewarded', 4.0, 1, 1)"
        )
        db.execute("UPDATE counter SET value = 1")
    with running(store_of(f"sqlite:///{tmp_path}/s"), Config()) as one, nc.Client(one.url) as client:
        arms = client.lift().arms
        assert [(arm.arm, arm.users, arm.mean) for arm in arms] == [("random", 1, 4.0)]


def cell(users, rewards, seed):
    rng, found = np.random.default_rng(seed), Sums.none()
    found.add([Counted(1, "treated", rng.normal(rewards, 1.0, 2), 1) for _ in range(users)], 1, 0.0)
    return found


def test_a_mismatch_of_shares_is_said():
    from newcomer.serve.arms import Shares

    cells = {(1, "treated"): cell(950, 1.0, 0), (1, "control"): cell(20, 0.0, 1), (2, "treated"): cell(5, 1.0, 2)}
    told = lift_of_sums(cells, {1: Shares(1, 0.0, 0.05, 0.0), 2: Shares(2, 0.0, 0.0, 0.0)}, 0.0, 0)
    assert (
        told.sample_ratio.p_value
        == confidence_sequence_sample_ratio(np.array([[950, 20]]), np.array([[0.95, 0.05]]))
        < 0.01
    )
    assert "20 control users, and 48 are expected" in told.sample_ratio.warning
    assert told.words == ["Too early to compare treated with control (955 and 20 users; 50 of each are needed)."]
    cells[1, "control"] = cell(60, 1.0, 3)
    told = lift_of_sums(cells, {1: Shares(1, 0.0, 0.05, 0.0), 2: Shares(2, 0.0, 0.0, 0.0)}, 0.0, 0)
    assert told.sample_ratio.warning is None
    assert told.words[0].startswith("No difference between treated and control is shown yet (")


def test_models_may_change_under_it():
    with running(MemoryStore(), HALVES) as one, nc.Client(one.url) as client:
        for i in range(6):
            client.reward(client.decide(f"u{i}").decision, 1.0)
        staged = client.stage(model_of(seed=5).to_bytes())
        client.promote(staged.id)
        for i in range(6):
            client.reward(client.decide(f"u{i}").decision, 0.0)
        assert len(check(client).by_interaction) == 2
