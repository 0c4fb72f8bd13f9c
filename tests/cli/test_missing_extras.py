"""Without an extra its commands end in a sentence that says what to install, whichever library is looked for first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import newcomer as nc
from tests.cli.running import Outcome, one_sentence

SERVE = ("msgspec", "starlette", "uvicorn", "httptools", "uvloop", "apsw", "asyncpg", "prometheus_client")
WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
from newcomer.cli.main import execute_command
sys.exit(execute_command({words!r}))
"""


def call_without(names: Sequence[str], folder: Path, *words: str) -> Outcome:
    """Run a command in a process where some libraries cannot be imported."""
    code = WITHOUT.format(names=list(names), words=list(words))
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        (SERVE, ("serve", "model.newcomer"), "serve"),
        (("uvicorn",), ("serve", "model.newcomer"), "serve"),
        (("httptools",), ("serve", "model.newcomer"), "serve"),
        (SERVE, ("fit", "sqlite:///x.store"), "serve"),
        (SERVE, ("demo", "--serve"), "serve,client"),
        (("httpx2",), ("demo", "--serve"), "client"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    tmp_path: Path, missing: Sequence[str], words: Sequence[str], extra: str
) -> None:
    done = call_without(missing, tmp_path, *words)
    assert done.code == 6 and one_sentence(done.err)
    assert f"need the extra [{extra}]: pip install 'newcomer[{extra}]', or from a clone pip install '." in done.err


def test_what_is_missing_of_ours_is_a_bug_and_no_extra() -> None:
    with pytest.raises(ModuleNotFoundError), nc.MissingExtra.unless_found("serve", purpose="services"):
        raise ModuleNotFoundError("No module named 'newcomer.nothing'", name="newcomer.nothing")


def test_a_client_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.delitem(sys.modules, "newcomer.serve.client", raising=False)
    with pytest.raises(nc.MissingExtra, match=r"from a clone pip install '\.\[client\]'"):
        nc.__getattr__("Client")


def test_a_report_needs_no_extra(tmp_path: Path, few_logs: Path) -> None:
    missing = (*SERVE, "altair", "vl_convert")
    done = call_without(missing, tmp_path, "report", str(few_logs), "--quick", "--out", "page.html")
    assert done.code in (0, 5) and (tmp_path / "page.html").is_file(), done.err
