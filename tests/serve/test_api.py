"""The API on every store: decisions, rewards, observations, users, batches, logs, models, retries."""

from __future__ import annotations

import io
import json

import httpx2
import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.serve.service import Config
from tests.serve.running import feature_model, model_of


@pytest.fixture
def api(serve):
    one = serve(Config(random=0.0, control=0.0))
    with httpx2.Client(base_url=one.url) as http:
        http.running = one
        yield http


def post(http, path, body, status=200, **named):
    answer = http.post(path, json=body, **named)
    assert answer.status_code == status, answer.text
    return answer.json()


def get(http, path, status=200):
    answer = http.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_decide_reward_and_what_is_believed_agree_with_the_policy(api):
    policy = nc.PriorUCB(model_of())
    state = policy.start(1)
    for reward in (2.0, 0.5, 1.5):
        shown = post(api, "/v1/decide", {"user": "ann", "candidates": [3, "5", 7, 9]})
        expected = [3, 5, 7, 9][int(policy.choose(state, ids=[3, 5, 7, 9])[0])]
        assert (shown["action"], shown["propensity"], shown["arm"]) == (expected, 1.0, "treated")
        assert [3, 5, 7, 9][shown["index"]] == expected and shown["model"] == policy.model.id
        recorded = post(api, "/v1/reward", {"decision": shown["decision"], "reward": reward})
        assert recorded == {"decision": shown["decision"], "status": "recorded"}
        policy.update(state, ids=[expected], reward=[reward])
    user = get(api, "/v1/users/ann")
    scores = policy.scores(state, ids=list(range(1, 13)))[0]
    best = user["best"][0]
    assert best["action"] == int(np.argmax(scores)) + 1
    assert best["expected"] + best["bonus"] == pytest.approx(scores.max())
    assert user["outcomes"] == 3 and user["words"].startswith("3 outcomes so far, arm treated.")


def test_newcomers_begin_alike_whatever_others_have_learned(api):
    first = post(api, "/v1/decide", {"user": "ann"})
    for _ in range(3):
        post(api, "/v1/observe", {"user": "ann", "action": first["action"], "reward": 0})
    assert post(api, "/v1/decide", {"user": "ann"})["action"] != first["action"]
    assert post(api, "/v1/decide", {"user": "ben"})["action"] == first["action"]
    check_fold(api, "ben", [], [])


def test_the_whole_catalogue_what_is_excluded_and_slates(api):
    policy = nc.PriorUCB(model_of())
    order = np.argsort(-policy.scores(policy.start(1), ids=list(range(1, 13)))[0]) + 1
    assert post(api, "/v1/decide", {"user": 1})["action"] == order[0]
    assert post(api, "/v1/decide", {"user": 1, "exclude": [int(order[0]), 99]})["action"] == order[1]
    slate = post(api, "/v1/decide", {"user": 1, "top": 3})
    assert [one["action"] for one in slate["slots"]] == order[:3].tolist()
    assert slate["decision"] == slate["slots"][0]["decision"]
    assert len({one["decision"] for one in slate["slots"]}) == 3
    post(api, "/v1/decide", {"user": 1, "candidates": [1, 2], "top": 3}, 422)
    post(api, "/v1/decide", {"user": 1, "exclude": list(range(1, 13))}, 422)


def test_explanations(api):
    shown = post(api, "/v1/decide", {"user": "u", "candidates": [1, 2, 3], "explain": True})
    policy = nc.PriorUCB(model_of())
    scores = policy.scores(policy.start(1), ids=[1, 2, 3])[0]
    told = {one["index"]: one for one in shown["explain"]}
    assert sorted(told) == [0, 1, 2] and shown["explain"][0]["action"] == shown["action"]
    for i, one in told.items():
        assert one["expected"] + one["bonus"] == pytest.approx(scores[i]) and one["sd"] > one["bonus"] > 0


def test_an_action_that_was_met_is_not_known_better_than_its_effect(api):
    """What is unknown of an action is what is unknown of preferences and of its own effect, which may not repeat."""
    post(api, "/v1/observe", {"user": "u", "action": 2, "reward": 2.0})
    shown = post(api, "/v1/decide", {"user": "u", "candidates": [1, 2, 3], "explain": True})
    policy = nc.PriorUCB(model_of())
    state = policy.start(1)
    policy.update(state, ids=[2], reward=[2.0])
    share, variance = state.memory.share[0], 0.5
    left = variance * share * (1 - share)  # of an effect that was met once
    of_z = (
        nc.PriorUCB(model_of(), width=1.0).scores(state, ids=[2])[0, 0]
        - nc.PriorUCB(model_of(), width=0.0).scores(state, ids=[2])[0, 0]
    )
    told = {one["index"]: one["sd"] for one in shown["explain"]}
    assert told[1] == pytest.approx(np.hypot(of_z, np.sqrt(left))) and left > 0.01


def test_rewards_late_repeated_corrected_and_in_any_order(api):
    first, second = (post(api, "/v1/decide", {"user": "u"})["decision"] for _ in range(2))
    assert post(api, "/v1/reward", {"decision": second, "reward": 1})["status"] == "recorded"
    assert post(api, "/v1/reward", {"decision": first, "reward": 2})["status"] == "recorded"
    assert post(api, "/v1/reward", {"decision": first, "reward": 2})["status"] == "repeated"
    assert post(api, "/v1/reward", {"decision": first, "reward": 3}, 409)["error"]["code"] == "has_reward"
    assert post(api, "/v1/reward", {"decision": first, "reward": 3, "correct": True})["status"] == "corrected"
    assert get(api, f"/v1/decisions/{first}")["reward"] == 3
    assert post(api, "/v1/reward", {"decision": "no", "reward": 3}, 404)["error"]["code"] == "unknown_decision"
    # The fold: by the order of first values, corrected in place.
    actions = [get(api, f"/v1/decisions/{one}")["action"] for one in (second, first)]
    check_fold(api, "u", actions, [1.0, 3.0])


def check_fold(http, user, actions, rewards):
    """The served state is that of a policy that learned these rewards one by one."""
    policy = nc.PriorUCB(model_of())
    state = policy.start(1)
    for action, reward in zip(actions, rewards, strict=True):
        policy.update(state, ids=[action], reward=[reward])
    scores = policy.scores(state, ids=list(range(1, 13)))[0]
    best = get(http, f"/v1/users/{user}")["best"][0]
    assert best["expected"] + best["bonus"] == pytest.approx(scores.max(), abs=1e-12)


def test_rewards_that_add_up(api):
    one = post(api, "/v1/decide", {"user": "u"})
    send = {"decision": one["decision"]}
    assert post(api, "/v1/reward", send | {"reward": 1, "event": "a"})["status"] == "recorded"
    assert post(api, "/v1/reward", send | {"reward": 2, "event": "b"})["status"] == "recorded"
    assert post(api, "/v1/reward", send | {"reward": 2, "event": "b"})["status"] == "repeated"
    post(api, "/v1/reward", send | {"reward": 5, "event": "b"}, 409)
    post(api, "/v1/reward", send | {"reward": 5}, 409)
    assert post(api, "/v1/reward", send | {"reward": 5, "event": "b", "correct": True})["status"] == "corrected"
    assert get(api, f"/v1/decisions/{one['decision']}")["reward"] == 6
    check_fold(api, "u", [one["action"]], [6.0])
    plain = post(api, "/v1/decide", {"user": "u"})["decision"]
    post(api, "/v1/reward", {"decision": plain, "reward": 1})
    post(api, "/v1/reward", {"decision": plain, "reward": 1, "event": "a"}, 409)


def test_void_shown_and_their_order(api):
    kept, gone = (post(api, "/v1/decide", {"user": "u", "shown": False}) for _ in range(2))
    assert get(api, f"/v1/decisions/{kept['decision']}")["shown"] is False
    assert post(api, f"/v1/decisions/{kept['decision']}/shown", None)["shown"] is True
    for one in (kept, gone):
        post(api, "/v1/reward", {"decision": one["decision"], "reward": 2})
    assert post(api, f"/v1/decisions/{gone['decision']}/void", None)["status"] == "void"
    assert post(api, f"/v1/decisions/{gone['decision']}/void", None)["status"] == "void"
    assert post(api, "/v1/reward", {"decision": gone["decision"], "reward": 2}, 409)["error"]["code"] == "void"
    post(api, f"/v1/decisions/{gone['decision']}/shown", None, 409)
    check_fold(api, "u", [kept["action"]], [2.0])


def test_observations(api):
    body = {"user": "u", "action": "4", "reward": 3, "event": "q1"}
    assert post(api, "/v1/observe", body)["status"] == "recorded"
    assert post(api, "/v1/observe", body)["status"] == "repeated"
    post(api, "/v1/observe", body | {"reward": 4}, 409)
    post(api, "/v1/observe", {"user": "u", "reward": 4}, 422)
    check_fold(api, "u", [4], [3.0])
    assert get(api, "/v1/users/u")["arm"] is None


def test_requests_that_come_again_are_answered_alike(api):
    body = {"user": "u", "request": "k"}
    first = post(api, "/v1/decide", body)
    assert post(api, "/v1/decide", body) == first
    assert post(api, "/v1/decide", {"user": "u"}, headers={"idempotency-key": "k"}) == first
    assert post(api, "/v1/decide", body | {"top": 2}, 422)["error"]["code"] == "key_reused"
    assert post(api, "/v1/decide", body | {"user": "other"})["decision"] != first["decision"]
    reward = {"decision": first["decision"], "reward": 1, "request": "r"}
    assert post(api, "/v1/reward", reward) == post(api, "/v1/reward", reward)
    assert post(api, "/v1/reward", reward)["status"] == "recorded"


def test_a_refused_request_changes_nothing(api):
    before = get(api, "/v1/status")
    for body in (
        {"user": "new", "candidates": []},
        {"user": "new", "candidates": [1, "1"]},
        {"user": "new", "top": 99},
        {"user": "new", "attributes": {"age": 3}},
        {"user": "new", "features": [[1.0]]},
        {"user": "new", "candidates": [1, 2], "baseline": 7},
        {"user": "x" * 300},
        {"user": "nul\0"},
        {"user": None},
        {"usr": 1},
    ):
        assert "error" in post(api, "/v1/decide", body, 422)
    assert api.post("/v1/decide", content=b"{").status_code == 400
    assert api.post("/v1/decide", content=b"x" * 1_100_000).status_code == 413
    after = get(api, "/v1/status")
    kept = ("users", "events", "arms", "model", "generation", "shares", "models", "served")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert len(after["errors"]) > 0 and get(api, "/v1/users/new", 404)["error"]["code"] == "unknown_user"
    where = post(api, "/v1/decide", {"user": 1, "candidates": [1, None]}, 422)["error"]["where"]
    assert where == "candidates[1]"


def test_batches_answer_in_order(api):
    items = [{"user": f"u{i % 3}", "candidates": [1, 2, 3]} for i in range(9)] + [{"user": "u0", "candidates": []}]
    found = post(api, "/v1/decide/batch", {"items": items})["items"]
    assert all(one["action"] in (1, 2, 3) for one in found[:9]) and found[9]["error"]["code"] == "no_candidates"
    rewards = [{"decision": one["decision"], "reward": i} for i, one in enumerate(found[:9])]
    done = post(api, "/v1/reward/batch", {"items": rewards}, headers={"idempotency-key": "b"})["items"]
    assert [one["decision"] for one in done] == [one["decision"] for one in found[:9]]
    assert post(api, "/v1/reward/batch", {"items": rewards}, headers={"idempotency-key": "b"})["items"] == done
    seen = [{"user": "v", "action": 1, "reward": 1}, {"user": "v", "reward": 1}]
    told = post(api, "/v1/observe/batch", {"items": seen})["items"]
    assert told[0]["status"] == "recorded" and "error" in told[1]
    post(api, "/v1/decide/batch", {"items": [{"user": 1}] * 1001}, 413)
    mixed = post(api, "/v1/decide/batch", {"items": [{"user": "w"}, {"user": "w", "top": 101}, {"us": 1}]})["items"]
    assert "decision" in mixed[0] and mixed[1]["error"]["where"] == "top" and mixed[2]["error"]["code"] == "invalid"
    late = [{"decision": mixed[0]["decision"], "reward": 1}, {"decision": "x", "reward": 1e101}]
    done = post(api, "/v1/reward/batch", {"items": late})["items"]
    assert done[0]["status"] == "recorded" and done[1]["error"]["where"] == "reward"
    post(api, "/v1/decide/batch", {"items": [], "more": 1}, 422)


def test_features_without_a_catalogue(serve):
    one = serve(Config(random=0.0, control=0.0), feature_model())
    policy = nc.PriorUCB(feature_model())
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    with nc.Client(one.url) as client, httpx2.Client(base_url=one.url) as http:
        shown = client.decide("u", features=rows)
        assert shown.action is None
        assert shown.index == int(policy.choose(policy.start(1), rows.astype(float))[0])
        named = client.decide("u", features=rows, candidates=list("abcde"))
        assert named.action == "abcde"[named.index]
        client.reward(shown.decision, 1.0)
        client.observe("u", 0.5, features=[1.0, 0.0, 0.0])
        state = policy.start(1)
        x = rows[shown.index].astype(float)
        policy.update(state, np.stack([x, [1.0, 0.0, 0.0]]), [1.0, 0.5], users=[0, 0])
        again = client.decide("u", features=rows)
        assert again.index == int(policy.choose(state, rows.astype(float))[0])
        post(http, "/v1/decide", {"user": "u"}, 422)
        post(http, "/v1/decide", {"user": "u", "features": [[1.0, 2.0]]}, 422)
        post(http, "/v1/decide", {"user": "u", "features_f32": "AAAA", "rows": 1}, 422)
        other = client.stage(feature_model(4).to_bytes())
        with pytest.raises(nc.StoreError, match="raw features"):
            client.promote(other.id)


def test_models_are_staged_promoted_and_rolled_back(api):
    old = model_of()
    new = model_of(seed=5, actions=14)
    shown = post(api, "/v1/decide", {"user": "u"})
    post(api, "/v1/reward", {"decision": shown["decision"], "reward": 4})
    staged = api.post("/v1/models", content=new.to_bytes()).json()
    assert (staged["id"], staged["status"]) == (new.id, "staged")
    assert get(api, "/v1/models")["serving"] == old.id
    damaged = bytearray(new.to_bytes())
    damaged[-9] ^= 1
    for bad in (bytes(damaged), b"", b"junk" * 100, new.to_bytes()[:-50]):
        assert api.post("/v1/models", content=bad).json()["error"]["code"] == "bad_model"
    assert post(api, f"/v1/models/{new.id}/promote", None)["serving"] == new.id
    policy = nc.PriorUCB(new)
    state = policy.start(1)
    policy.update(state, ids=[shown["action"]], reward=[4.0])
    again = post(api, "/v1/decide", {"user": "u"})
    assert again["model"] == new.id and again["action"] == int(policy.choose(state, ids=list(range(1, 15)))[0]) + 1
    back = post(api, f"/v1/models/{old.id}/promote", None)
    assert (back["serving"], back["generation"]) == (old.id, 3)
    check_fold(api, "u", [shown["action"]], [4.0])
    post(api, "/v1/models/nothing/promote", None, 404)


def test_logs_are_what_fit_reads(api, tmp_path):
    rng = np.random.default_rng(1)
    items = [{"user": f"u{i}", "candidates": rng.permutation(12)[:6] + 1} for i in range(40) for _ in range(4)]
    items = [one | {"candidates": one["candidates"].tolist()} for one in items]
    shown = post(api, "/v1/decide/batch", {"items": items})["items"]
    rewards = [{"decision": one["decision"], "reward": float(rng.random())} for one in shown[:-3]]
    post(api, "/v1/reward/batch", {"items": rewards})
    for form in ("parquet", "csv", "ndjson"):
        body = api.get(f"/v1/logs?format={form}")
        path = tmp_path / f"logs.{form}"
        path.write_bytes(body.content)
        logs = nc.read_logs(str(path))
        assert (logs.summary.rows, logs.summary.users) == (157, 40)
    frame = pl.read_parquet(io.BytesIO(api.get("/v1/logs?format=parquet").content))
    assert set(frame["arm"]) == {"treated"} and (frame["propensity"] == 1.0).all()
    assert frame.select(pl.col("candidates").list.contains(pl.col("action")).all()).item()
    post(api, "/v1/logs", None, 405)
    get(api, "/v1/logs?format=xml", 422)


def test_the_cursor_brings_every_change_once_and_a_changed_row_again(api):
    one, two = (post(api, "/v1/decide", {"user": "u"})["decision"] for _ in range(2))

    def page(since, limit=1000):
        answer = api.get(f"/v1/logs?since={since}&limit={limit}")
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return [(row["decision"], row["status"]) for row in rows], answer.headers["newcomer-cursor"]

    rows, cursor = page(0)
    assert rows == [(one, "pending"), (two, "pending")] and page(cursor) == ([], cursor)
    post(api, "/v1/reward", {"decision": one, "reward": 1})
    rows, cursor = page(cursor)
    assert rows == [(one, "rewarded")]
    post(api, f"/v1/decisions/{one}/void", None)
    assert page(cursor)[0] == [(one, "void")]
    found, since = [], 0
    while True:
        rows, following = page(since, limit=1)
        if not rows:
            break
        found, since = found + rows, following
    assert found == [(two, "pending"), (one, "void")]


def test_users_merge(api):
    anonymous = [post(api, "/v1/decide", {"user": "cookie", "request": str(i)}) for i in range(2)]
    member = post(api, "/v1/decide", {"user": "ann"})
    post(api, "/v1/reward", {"decision": anonymous[0]["decision"], "reward": 1})
    post(api, "/v1/reward", {"decision": member["decision"], "reward": 2})
    assert post(api, "/v1/users/ann/merge", {"from": "cookie"}) == {"user": "ann", "outcomes": 2, "mixed": False}
    assert post(api, "/v1/users/ann/merge", {"from": "cookie"})["user"] == "ann"
    post(api, "/v1/reward", {"decision": anonymous[1]["decision"], "reward": 3})
    actions = [anonymous[0]["action"], member["action"], anonymous[1]["action"]]
    check_fold(api, "ann", actions, [1.0, 2.0, 3.0])
    check_fold(api, "cookie", actions, [1.0, 2.0, 3.0])
    assert post(api, "/v1/decide", {"user": "cookie", "request": "0"}) == anonymous[0]
    post(api, "/v1/users/ann/merge", {"from": "ann"}, 409)
    post(api, "/v1/users/cookie/merge", {"from": "ann"}, 409)
    post(api, "/v1/users/ann/merge", {"from": "nobody"}, 404)
    assert post(api, "/v1/users/brand-new/merge", {"from": "ann"})["user"] == "brand-new"
    assert get(api, "/v1/users/cookie")["user"] == "brand-new"


def test_erasure(api):
    shown = post(api, "/v1/decide", {"user": "a/b ü", "request": "k"})
    post(api, "/v1/reward", {"decision": shown["decision"], "reward": 1})
    path = "/v1/users/a%2Fb%20%C3%BC"
    assert get(api, path)["user"] == "a/b ü"
    assert api.delete(path).json() == {"user": "a/b ü", "events": 1, "erasures": 1}
    get(api, path, 404)
    assert post(api, "/v1/reward", {"decision": shown["decision"], "reward": 1}, 410)["error"]["code"] == "erased"
    assert api.get("/v1/logs?since=0").text == ""
    assert api.get("/v1/logs").headers["newcomer-erasures"] == "1"
    assert post(api, "/v1/decide", {"user": "a/b ü", "request": "k"})["decision"] != shown["decision"]


def test_health_metrics_and_addresses(api):
    assert get(api, "/healthz") == {"status": "alive"} and get(api, "/readyz") == {"status": "ready"}
    post(api, "/v1/decide", {"user": "secret-user"})
    text = api.get("/metrics").text
    assert 'newcomer_decisions_total{arm="treated"} 1.0' in text and "secret-user" not in text
    assert get(api, "/nowhere", 404)["error"]["code"] == "no_route"
    assert api.get("/").status_code == 200 and len(api.get("/healthz").headers["x-request-id"]) == 16
    assert [json.loads(line)["user"] for line in api.get("/v1/users").text.splitlines()] == ["secret-user"]
