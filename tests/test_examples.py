"""The examples run as they stand, where data of real people are at hand and where they are not."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = [FOLDER / "whole_life.py"]
HERE = Path(os.environ.get("NEWCOMER_DATA", "")) / "ml-1m"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_without_data(path, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("NEWCOMER_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert "tastes that people share" in said and "after the refit" in said


@pytest.mark.skipif(not HERE.is_dir(), reason="MovieLens is not here")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_on_real_ratings(path, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert "100 films" in capsys.readouterr().out
