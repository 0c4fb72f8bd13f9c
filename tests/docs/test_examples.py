"""The examples run as they stand, where data of real people are at hand and where they are not."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest
from experiments.screens import screens

import newcomer as nc
from tests.optional import needs_movielens


def in_one_line(text: str) -> str:
    return " ".join(text.split())


FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = [FOLDER / "whole_life.py"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_without_data(path, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("NEWCOMER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert "shared directions of preference" in said and "after the refit" in said


@needs_movielens
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_on_real_ratings(path, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert "100 films" in capsys.readouterr().out


def test_a_trial_is_fine_and_messages_picked_by_taste_are_broken(monkeypatch, tmp_path):
    """Files that a script without our code wrote, as docs/how-to/check.md tells it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["randomised_trial.py"])
    runpy.run_path(str(FOLDER / "randomised_trial.py"), run_name="__main__")
    trial = nc.check("trial.csv")
    assert trial.verdict == "fine" and trial.decision is not None
    ((_, shown), *_) = screens((FOLDER.parent / "docs" / "how-to" / "evaluate.md").read_text(encoding="utf-8"))
    for sentence in trial.decision.sentences:  # all commands say the same, to the number
        assert in_one_line(sentence) in in_one_line(shown), "run python -m experiments.screens"
    found = nc.check("chosen.csv", fit=False)
    assert {one.name for one in found.of("broken")} == {
        "adaptive logging",
        "preference-dependent logging",
        "self-selection",
    }


@pytest.mark.parametrize("data", ["", os.environ.get("NEWCOMER_DATA", "")])
def test_people_who_choose_what_they_rate_are_found_out(data, monkeypatch, tmp_path):
    """MovieLens where it is at hand, made up ratings where it is not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEWCOMER_DATA", data)
    monkeypatch.setattr("sys.argv", ["ratings_csv.py"])
    runpy.run_path(str(FOLDER / "ratings_csv.py"), run_name="__main__")
    found = nc.check("ratings.csv", fit=False)
    assert found.verdict in ("doubtful", "broken")
    assert found["adaptive logging"].p_value <= 0.01 and found["adaptive logging"].verdict != "fine"
