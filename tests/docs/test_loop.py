"""Every command of docs/how-to/refit.md, in the order of the page: commands in this process, the service in one of its
own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx2
import numpy as np
import polars as pl

import newcomer as nc
from newcomer.cli import main
from newcomer.cli.output import BROKEN
from tests.serve.running import Process, curl, free_port

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "refit.md").read_text(encoding="utf-8")
LINES = [
    line
    for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in text.splitlines()
]
USERS, ROWS, ACTIONS = 60, 6, 5


def write_logs(path):
    """Logs of before there was a service: random actions of users with one preference each."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(USERS), ROWS), rng.integers(ACTIONS, size=USERS * ROWS)
    liked = rng.standard_normal(USERS)[user] * np.linspace(-1, 1, ACTIONS)[action]
    frame = pl.DataFrame({"user": user, "step": np.tile(np.arange(ROWS), USERS), "action": action})
    frame.with_columns(reward=3.0 + liked + 0.3 * rng.standard_normal(len(user))).write_parquet(path)


def traffic(url):
    """Newcomers with the same preferences."""
    with nc.Client(url) as client:
        rng = np.random.default_rng(1)
        taste = rng.standard_normal(USERS)
        for _ in range(ROWS):
            shown = client.decide_batch([{"user": f"new{i}"} for i in range(USERS)])
            liked = [3.0 + taste[i] * np.linspace(-1, 1, ACTIONS)[one["action"]] for i, one in enumerate(shown)]
            told = [{"decision": one["decision"], "reward": float(liked[i])} for i, one in enumerate(shown)]
            client.reward_batch(told)


def test_every_command_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path / "logs.parquet")
    known, ran, service = {"DECISION": "", "MODEL": ""}, [], None
    try:
        with httpx2.Client(timeout=60.0) as http:
            for line in LINES:
                for word, value in known.items():
                    line = line.replace(word, value)
                words = shlex.split(line)
                ran.append(words[1] if words[0] == "newcomer" else "curl")
                if words[:2] == ["newcomer", "serve"]:
                    service = Process(words[2], *words[3:], port=free_port()).wait_ready(http)
                elif words[0] == "newcomer":
                    # Arms are drawn by the store's secret, and a check at a level of 5% may call clean logs broken.
                    fine = (0, BROKEN) if words[1] in ("check", "report") else (0,)
                    assert main.execute_command(words[1:]) in fine, (line, capsys.readouterr().err)
                    assert "Rows have arms" in capsys.readouterr().err or "sqlite" not in line
                else:
                    answer = curl(http, line, service.url, tmp_path)
                    assert answer.status_code == 200, (line, answer.text)
                    known["DECISION"] = answer.json().get("decision", known["DECISION"])
                    known["MODEL"] = answer.json().get("id", known["MODEL"])
                    if "/v1/reward" in line:
                        traffic(service.url)
            assert http.get(f"{service.url}/v1/models").json()["generation"] == 2
    finally:
        if service is not None:
            assert service.end() == 0
    assert ran == ["fit", "serve", "curl", "curl", "check", "evaluate", "report", "fit", "curl", "curl", "curl"]
    assert "By arms of the service" in (tmp_path / "report.html").read_text(encoding="utf-8")
