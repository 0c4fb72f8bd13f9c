"""`newcomer check`, and what `fit` and `inspect` say of broken logs: exit codes, JSON by its schema, no optimism."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from newcomer.cli import main
from newcomer.paper.worlds.biased_logs import BiasedLogs
from newcomer.worlds.synthetic import Synthetic

WORLD = Synthetic.learnable(dim=5, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clean logs, and logs of a logger that knew the taste."""
    place = tmp_path_factory.mktemp("check")
    WORLD.write_logs(place / "clean.parquet", 400, 10, 1)
    rows = next(BiasedLogs(WORLD, "taste", 6.0).logs(400, 10, seed=1).batches(rows=10**9))
    user = np.repeat(rows.users, rows.lengths)
    frame = pl.DataFrame({"user": user, "features": rows.features.tolist(), "reward": rows.rewards})
    frame.write_parquet(place / "broken.parquet")
    return place


def test_the_exit_code_says_broken(folder, capsys):
    assert main.execute_command(["check", str(folder / "clean.parquet"), "--quick"]) == 0
    said = capsys.readouterr().out
    assert "fine" in said and "400 users" in said
    assert main.execute_command(["check", str(folder / "broken.parquet"), "--quick"]) == 5
    told = " ".join(capsys.readouterr().out.split())
    assert "Do not trust a model of these logs" in told and "Show random actions to some users" in told


def test_json_is_as_its_schema_says(folder, capsys):
    assert main.execute_command(["check", "--json-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert main.execute_command(["check", str(folder / "broken.parquet"), "--quick", "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert set(schema["required"]) <= set(found) and found["verdict"] == "broken" and found["command"] == "check"
    shape = schema["properties"]["findings"]["items"]
    assert all(set(shape["required"]) == set(one) for one in found["findings"])


def test_with_a_fit_it_says_whether_users_are_enough(folder, capsys):
    assert main.execute_command(["check", str(folder / "clean.parquet"), "--workers", "1"]) == 0
    assert "enough users" in capsys.readouterr().out


def test_fit_and_inspect_promise_nothing_over_broken_logs(folder, tmp_path, capsys):
    model = str(tmp_path / "m.newcomer")
    assert main.execute_command(["fit", str(folder / "broken.parquet"), "--out", model]) == 0
    fitted = capsys.readouterr()
    assert main.execute_command(["inspect", model]) == 0
    for said in (fitted.out, capsys.readouterr().out):
        told = " ".join(said.split())
        assert "These logs are broken, so they do not tell" in told and "preference-dependent logging" in told
        assert "Worth it" not in told and "over the population mean" not in told
    assert " check " in fitted.err  # the command that says more


def test_fit_says_that_clean_logs_are_fine(folder, tmp_path, capsys):
    assert (
        main.execute_command(["fit", str(folder / "clean.parquet"), "--out", str(tmp_path / "m.newcomer"), "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in found["checks"]["findings"]} >= {"drift", "contexts", "adaptive logging"}
    assert not any("These logs are broken" in line for line in found["outlook"])


@pytest.mark.parametrize("words", [["--level", "0"], ["--level", "1.5"], ["--seed", "-1"], ["--workers", "0"]])
def test_options_that_make_no_sense_are_usage_errors(folder, words, capsys):
    assert main.execute_command(["check", str(folder / "clean.parquet"), *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_logs_that_cannot_be_read_are_bad_logs(tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("user,action,reward\n1,a,x\n")
    assert main.execute_command(["check", str(tmp_path / "bad.csv")]) == 3
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_fit_of_a_single_action_says_that_the_logs_are_broken(tmp_path, capsys):
    rewards = np.random.default_rng(0).integers(1, 6, 240)
    frame = pl.DataFrame({"user": np.arange(240) // 4, "action": "only", "reward": rewards})
    frame.write_csv(tmp_path / "logs.csv")
    model = str(tmp_path / "m.newcomer")
    assert main.execute_command(["fit", str(tmp_path / "logs.csv"), "--out", model]) == 0
    assert "broken. Do not trust a model of these logs: coverage." in " ".join(capsys.readouterr().out.split())
    assert main.execute_command(["inspect", model, "--bounds"]) == 0


def test_the_best_for_everybody_are_called_estimates(tmp_path, capsys):
    rng = np.random.default_rng(0)
    action = rng.integers(0, 4, 2400)
    reward = 3.0 + 0.5 * action + 0.5 * rng.standard_normal(2400)
    frame = pl.DataFrame({"user": np.arange(2400) // 8, "action": action, "reward": reward})
    frame.write_parquet(tmp_path / "logs.parquet")
    main.execute_command(["evaluate", str(tmp_path / "logs.parquet"), "--quick"])
    told = capsys.readouterr().out
    assert (
        "estimated mean" in told and "estimated, shrunk towards the average" in told and "pays on average" not in told
    )
