"""Commands run in this process: what they print, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from newcomer.cli import main


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def run_in(folder: Path, *words: object) -> Outcome:
    """Run a command in a folder."""
    with chdir(folder), redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main.execute_command([str(word) for word in words])
    return Outcome(code, out.getvalue(), err.getvalue())


def one_sentence(text: str) -> bool:
    """Whether this is an error in one line."""
    return text.startswith("error: ") and text.count("\n") == 1 and "Traceback" not in text
