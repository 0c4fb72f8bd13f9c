"""`newcomer demo --serve`: the loop is closed, files stay, and nothing else does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from newcomer.cli import demo, demo_serve, main
from newcomer.model import load
from tests.optional import optional

optional("uvicorn", name="serve")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A demo of seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PEOPLE", 800)
    monkeypatch.setattr(demo, "ACTIONS", 12)
    for name, value in {"WAVES": 1, "BREATH": 0.0}.items():
        monkeypatch.setattr(demo_serve, name, value)
    monkeypatch.setattr(demo_serve.demo_serve_wave, "__defaults__", (80, 5))
    return tmp_path / "demo"


def quiet() -> bool:
    """No thread of a service is left."""
    return not [one for one in threading.enumerate() if one.name.startswith("newcomer-serve")]


def test_the_loop_is_closed_and_nothing_is_left_running(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute_command(["demo", "--serve"]) == 0
    shown = capsys.readouterr()
    assert "Open http://127.0.0.1:" in shown.err and "Promoted" in shown.err
    assert "treated: mean reward" in shown.out and "users" in shown.out
    assert {path.name for path in small.iterdir()} == {*demo_serve.FILES, "service.sqlite.serving"}
    assert quiet()
    first, second = (load(small / name) for name in ("model-1.newcomer", "model-2.newcomer"))
    assert first.id != second.id
    assert main.execute_command(["demo", "--serve"]) == 2, "an earlier demo is kept"
    assert main.execute_command(["demo", "--serve", "--force"]) == 0 and quiet()


def test_it_goes_on_until_somebody_ends_it(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def enough(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("newcomer.cli.demo_serve.time.sleep", enough)
    assert main.execute_command(["demo", "--serve", "--keep-running"]) == 0
    assert "nothing is left running" in capsys.readouterr().out and quiet()


def test_an_interrupted_one_takes_its_files_back(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_serve, "demo_serve_wave", interrupted)
    assert main.execute_command(["demo", "--serve"]) == main.INTERRUPTED
    assert not small.exists() and quiet()


def test_options_that_do_not_go_together(small: Path) -> None:
    assert main.execute_command(["demo", "--serve", "--json"]) == 2
    assert main.execute_command(["demo", "--keep-running"]) == 2
