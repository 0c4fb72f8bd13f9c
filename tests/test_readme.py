"""Guards the README: its Python runs and prints what its comments say, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newcomer.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_the_python_example_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own page
    promised = [line.split("#")[1].strip() for line in code.splitlines() if line.startswith("print")]
    assert capsys.readouterr().out.splitlines() == promised
    assert Path("shared.newcomer").exists()


def test_the_commands_exist() -> None:
    known = {command.name for command in app.registered_commands}
    assert set(re.findall(r"^newcomer ([a-z]+)", TEXT, flags=re.MULTILINE)) <= known
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, flags=re.MULTILINE)) <= set(targets)


def test_local_links_and_pictures_are_there() -> None:
    local = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    for link in local:
        path, _, heading = link.partition("#")
        assert (ROOT / path).exists(), link
        assert not heading or f"## {heading}" in (ROOT / path).read_text(encoding="utf-8"), link
    assert local
