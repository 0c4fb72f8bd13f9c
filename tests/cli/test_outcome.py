"""Guards `--outcome`: clicks through log-odds, said on the screen and in JSON; what makes no sense is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.cli import main


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clicks of 600 users on four of eight actions."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    odds = rng.standard_normal((600, 1)) * np.linspace(-1.5, 1.5, 8) - 1.0
    action = np.argsort(rng.random((600, 8)), axis=1)[:, :4]
    reward = rng.random((600, 4)) < 1 / (1 + np.exp(-np.take_along_axis(odds, action, axis=1)))
    user = np.repeat(np.arange(600), 4)
    pl.DataFrame({"user": user, "action": action.ravel(), "reward": reward.ravel().astype(float)}).write_csv("c.csv")
    return tmp_path / "c.csv"


def test_the_link_is_told_and_kept(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute_command(["fit", str(clicks), "--outcome", "binary", "--rank", "1"]) == 0
    assert "go through log-odds (binary): as asked" in " ".join(capsys.readouterr().out.split())
    assert nc.load("model.newcomer").outcome == "binary"
    assert main.execute_command(["fit", str(clicks), "--rank", "1", "--json", "--force"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] in ("gaussian", "binary") and "held-out users" in found["link"]


def test_what_makes_no_sense_is_one_sentence(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute_command(["fit", str(clicks), "--outcome", "probit"]) == 2
    assert main.execute_command(["fit", str(clicks), "--outcome", "binary", "--estimator", "sold"]) == 4
    assert "--outcome gaussian" in capsys.readouterr().err
