"""Arms: sticky, of the set shares, with exact propensities; the incumbent and shadow mode."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import newcomer as nc
from newcomer.serve.arms import Asked, Shares, draw_arm, pick_by_arm
from newcomer.serve.models import Serving
from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from tests.serve.running import model_of, running


def asked_of(ids):
    return Asked(len(ids), ids, ids, None)


def test_arms_have_the_set_shares_and_follow_the_key():
    shares = Shares(1, 0.1, 0.2, 0.3)
    found = Counter(draw_arm(b"k", f"u{i}", shares) for i in range(20_000))
    for arm, share in (("random", 0.1), ("control", 0.2), ("incumbent", 0.3), ("treated", 0.4)):
        count = sum(n for (name, _), n in found.items() if name == arm)
        assert abs(count / 20_000 - share) < 4 * (share * (1 - share) / 20_000) ** 0.5
        assert all(p == pytest.approx(share) for (name, p) in found if name == arm)
    assert draw_arm(b"k", "u", shares) == draw_arm(b"k", "u", shares)
    assert {draw_arm(bytes([k]), "u", shares)[0] for k in range(40)} == {"random", "control", "incumbent", "treated"}


@pytest.mark.parametrize("arm", ["random", "treated"])
@pytest.mark.parametrize("policy", ["PriorTS", "PriorUCB"])
def test_propensities_are_the_shares_with_which_actions_are_shown(arm, policy):
    serving = Serving.of(1, model_of(5), policy)
    state, asked, rng = serving.policy.start(1), asked_of([1, 2, 3, 4, 5]), np.random.default_rng(0)
    shown, told = Counter(), {}
    for _ in range(2_000):
        slots = pick_by_arm(serving, arm, state, asked, 2, rng=rng, seed="u|1|0|m")
        pair = tuple(slot.index for slot in slots)
        shown[pair] += 1
        told[pair] = slots[0].propensity * slots[1].propensity
        assert pair[0] != pair[1]
    assert sum(told.values()) <= 1 + 1e-9
    for pair, count in shown.items():
        assert abs(count / 2_000 - told[pair]) < 5 * (told[pair] * (1 - told[pair]) / 2_000) ** 0.5 + 1e-12
    if arm == "random":
        assert set(told.values()) == {1 / 5 * 1 / 4}


def test_control_is_the_population_mean_and_the_incumbent_the_baseline():
    model = model_of(5)
    serving = Serving.of(1, model, "PriorUCB")
    state, rng = serving.policy.start(1), np.random.default_rng(0)
    control = pick_by_arm(serving, "control", None, asked_of([1, 2, 3, 4, 5]), 1, rng=rng, seed="")[0]
    assert control.index == int(np.argmax(model.mean)) and control.propensity == 1.0
    ours = pick_by_arm(serving, "treated", state, asked_of([1, 2, 3, 4, 5]), 1, rng=rng, seed="")[0]
    theirs = pick_by_arm(serving, "incumbent", state, asked_of([1, 2, 3, 4, 5]), 1, baseline=[3], rng=rng, seed="")[0]
    assert (theirs.index, theirs.propensity, theirs.shadow) == (3, None, ours.index)


def test_shadow_mode_logs_what_would_have_been_shown():
    with (
        running(MemoryStore(), Config(random=0.0, control=0.0, incumbent=1.0)) as one,
        nc.Client(one.url, tries=1) as client,
    ):
        with pytest.raises(nc.StoreError, match="baseline"):
            client.decide("u")
        shown = client.decide("u", candidates=[4, 5, 6], baseline=5)
        assert (shown.action, shown.arm, shown.propensity) == (5, "incumbent", None)
        slate = client.decide("u", candidates=[4, 5, 6], baseline=[6, 4], top=2)
        assert [slot.action for slot in slate.slots] == [6, 4]
        rows = client.logs(since="0").decode()
        assert '"shadow": ' in rows and '"shadow": null' not in rows


def test_shares_change_while_running_and_users_keep_their_arm():
    with running(MemoryStore(), Config(random=1.0, control=0.0)) as one, nc.Client(one.url, tries=1) as client:
        assert client.decide("old", candidates=[1, 2]).arm == "random"
        assert client.decide("old", candidates=[1, 2]).propensity == 0.5
        assert client.set_arms(random=0.0, control=1.0).version == 2
        assert client.set_arms(random=0.0, control=1.0).version == 2
        assert client.decide("old").arm == "random" and client.decide("new").arm == "control"
        assert client.user("old").arm_probability == 1.0
        with pytest.raises(nc.StoreError, match="add up"):
            client.set_arms(random=0.9, control=0.9)
        assert client.status().arms == {"random": 1, "control": 1}
        client.merge("new", "old")
        assert client.user("old").mixed and client.user("old").arm == "control"


def test_repeatability_is_pooled_and_users_keep_the_version_of_first_sight():
    model = model_of(4, persistence=None)
    with running(MemoryStore(), model=model) as one, nc.Client(one.url) as client:
        client.decide("early")
        for i in range(25):
            for _ in range(3):
                client.observe(f"u{i}", 3.0 + i % 2, action=1)
            client.decide(f"u{i}")
        assert one.call(one.service.pool_repeatability()) == 1
        assert one.call(one.service.pool_repeatability()) is None  # nothing new
        client.decide("late")
        assert client.user("early").repeatability is None and client.user("late").repeatability == 1
        policy = nc.PriorUCB(model)
        kind = type(policy.start(1))
        known = kind.concat([x.state for x in one.service.states.known.values() if x.place])
        told = policy.repeatability(known)
        late = next(state for (_, version), state in one.service.states.newcomers.items() if version == 1)
        assert late.to_bytes() == policy.start(1, repeatability=told).to_bytes()
