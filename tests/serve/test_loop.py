"""Three generations in one process: serve simulated newcomers, read the store, check, fit, promote; then report."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from experiments.service_loop import logged_at_random, regret_of, serve, truth_of

import newcomer as nc
from newcomer.serve.service import Config
from newcomer.serve.stores import store_of
from tests.serve.running import running

USERS, ROWS = 120, 6
CONFIG = Config(random=0.3, control=0.3)


def test_three_generations(tmp_path, monkeypatch):
    # Arms are drawn by a secret of the store: one that is always the same, so that chance raises no alarm now and then.
    monkeypatch.setattr(
        "newcomer.serve.tables.secrets", SimpleNamespace(token_hex=lambda count: "5a" * count, randbits=lambda count: 1)
    )
    truth, url = truth_of(1), f"sqlite:///{tmp_path}/s.store"
    first = nc.fit(logged_at_random(truth, 30, ROWS, 1), calibrate=False)
    models = [first]
    for generation in (1, 2):
        asyncio.run(serve(url, models[-1], truth, USERS, ROWS, generation, CONFIG))
        logs = nc.read_logs(url)
        assert logs.summary.users == generation * USERS and logs.summary.rows == generation * USERS * ROWS
        random = logs.judges
        assert random is not None and 0.2 < random.summary.users / logs.summary.users < 0.4
        found = nc.check(logs, fit=False)
        assert found.verdict in ("fine", "doubtful") and found["propensities"].verdict == "fine"
        models.append(nc.fit(logs, start=first, add=True, calibrate=False))
        with running(store_of(url), CONFIG, models[-2]) as service, nc.Client(service.url) as client:
            entry = client.stage(models[-1].to_bytes())
            assert client.promote(entry.id).serving == models[-1].id  # one that was served is not asked for again
    page = nc.report(logs, tmp_path / "report.html", quick=True)
    told = page.evaluation
    assert told is not None
    assert {one.arm for one in told.arms} == {"control", "random", "treated"}
    best = {one.arm: one.reward.value for one in told.arms if one.interactions == 5}
    assert best["treated"] > best["random"] and best["control"] > best["random"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.findings is not None and page.findings.verdict != "broken"
    assert "By arms of the service" in text and f"{random.summary.users:,} users of the random arm" in text
    # One draw of arms says nothing of which model is better: experiments.service_loop asks twenty services.
    assert len(set(regret_of(models, truth, 1, judges=200))) == len(models)
