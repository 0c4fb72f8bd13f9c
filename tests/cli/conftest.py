"""Commands in a folder of their own, small logs, and one fit of them for all tests that look at a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from newcomer.cli import main, output
from newcomer.worlds.synthetic import Synthetic
from tests.cli.running import Command, Outcome, run_in


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in an empty folder; however long it takes, it does not say how far it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "PATIENCE", 1e9)

    def run(*words: object) -> Outcome:
        code = main.execute_command([str(word) for word in words])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of 800 users with two hidden directions of twelve."""
    path = tmp_path_factory.mktemp("logs") / "logs.parquet"
    Synthetic.learnable(dim=12, seed=1).write_logs(path, 800, 12, 1)
    return path


@pytest.fixture(scope="session")
def few_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of 200 users, where it does not matter what is found."""
    path = tmp_path_factory.mktemp("logs") / "few.parquet"
    Synthetic.learnable(dim=5, seed=1).write_logs(path, 200, 8, 1)
    return path


@pytest.fixture(scope="session")
def fit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fit")


@pytest.fixture(scope="session")
def fitted(fit_folder: Path, logs: Path) -> Outcome:
    """What `newcomer fit` says of the logs; it has written model.newcomer."""
    return run_in(fit_folder, "fit", logs)


@pytest.fixture(scope="session")
def fitted_json(fit_folder: Path, logs: Path) -> Outcome:
    """The same with `--json`, in m.newcomer."""
    return run_in(fit_folder, "fit", logs, "--json", "--out", "m.newcomer")


@pytest.fixture
def model_here(call: Command, fitted: Outcome, fit_folder: Path) -> Path:
    """The model of the logs, in the folder in which commands are called."""
    assert fitted.code == 0
    return Path(shutil.copy(fit_folder / "model.newcomer", "model.newcomer"))
