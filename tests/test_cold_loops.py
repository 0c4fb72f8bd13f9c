"""Guards what is said where compiled loops are not there yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from newcomer import compile_cache
from newcomer.cli import output


def test_a_machine_without_compiled_loops_is_cold(tmp_path: Path) -> None:
    code = "from newcomer.compile_cache import compile_cache_is_cold as cold; print(cold('em'), cold())"
    compile_cache.warm_compile_cache()
    for folder, told in ((str(tmp_path), "True True\n"), ("", "False False\n")):
        env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        env |= {"NUMBA_CACHE_DIR": folder} if folder else {}
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
        assert done.stdout == told
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert done.stdout == "False False\n", "what is never compiled is never cold"


def test_the_first_fit_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warmed: list[str] = []
    monkeypatch.setattr("newcomer.compile_cache.warm_compile_cache", lambda *rooms: warmed.extend(rooms))
    for cold, told in ((True, "compiling the inner loops, once"), (False, "")):
        monkeypatch.setattr("newcomer.compile_cache.compile_cache_is_cold", lambda *rooms, cold=cold: cold)
        output.compile_and_print_notice("em")
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(told) and bool(said.err) == cold
    assert warmed == ["em"]
