"""Where the commands write: results on stdout, advice and errors on stderr, and how a sentence or an object looks.

Rich honours NO_COLOR and leaves colours out when the output is not a terminal; `--json` is one object on one line.
A reader of the output may stop reading (`| head -1`): the rest goes nowhere, and the command ends as it would have.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from newcomer.cli.option_words import in_options
from newcomer.errors import one_line

NARROWEST = 24  # columns; narrower terminals are treated as if they had these


class Patient:
    """A stream that goes on when nobody reads it any more: what is still to come leads to nowhere.

    Rich and Typer would each end the program, with exit code 1, and a demo in the middle of its work.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        try:
            return self.stream.write(text)
        except BrokenPipeError:
            return self._hush(text)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._hush()

    def _hush(self, text: str = "") -> int:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)
        return len(text)


_finishing: list[bool] = []


def finish() -> None:
    """The result is on disk, or about to be: what is left takes a moment, and an interrupt no longer undoes it."""
    _finishing.append(True)


def finishing() -> bool:
    """Whether the command in this process has come so far."""
    return bool(_finishing)


def result() -> Console:
    """The console for results, on stdout."""
    return _wide_enough(Console(highlight=False))


def aside() -> Console:
    """The console for progress, advice and errors, on stderr."""
    return _wide_enough(Console(stderr=True, highlight=False))


def _wide_enough(console: Console) -> Console:
    console.width = max(console.width, NARROWEST)
    return console


def advise(sentences: Sequence[str]) -> None:
    """Things to know, one a line, on stderr."""
    for sentence in sentences:
        aside().print(Text.assemble(("note: ", "yellow"), in_options(sentence)), soft_wrap=True)


def compile_first(*rooms: str) -> None:
    """Compile the loops of these rooms, if they never were on this machine, and say why the first time takes longer."""
    from newcomer.compile_cache import cold, warm

    if cold(*rooms):
        aside().print("compiling the inner loops, once: half a minute or less", soft_wrap=True)
        warm(*rooms)


def suggest(commands: Sequence[tuple[str, str]], code: str = "") -> None:
    """What to try next: (arguments of newcomer, what for), and lines of Python, on stderr, ready to be copied.

    Suggestions go to stderr like advice, so that what is piped on is the result alone.
    """
    width, name = max(len(why) for _, why in commands), program()
    lines = [Text.assemble(("  " + why.ljust(width), "dim"), (f"   {name} {rest}", "bold")) for rest, why in commands]
    if code:
        lines += [
            Text("  serve newcomers in Python", "dim"),
            *(Text(f"    {line}", "bold") for line in code.splitlines()),
        ]
    aside().print(Text("\n").join([Text("\nNext"), *lines]), soft_wrap=True)


def program() -> str:
    """What the person has to type to run this very newcomer: its environment need not be on the path."""
    ours = Path(sys.executable).with_name("newcomer")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m newcomer"
    found = shutil.which("newcomer")
    if found and Path(found).resolve() == ours.resolve():
        return "newcomer"
    near = os.path.relpath(ours)
    return shlex.quote(str(ours) if near.startswith("..") else near)


def complain(sentence: str) -> None:
    """One sentence about what went wrong, on stderr: no more of it than fits the screen."""
    console = aside()
    room = console.width * max(console.height - 2, 4) - len("error: ")
    console.print(Text.assemble(("error: ", "bold red"), one_line(in_options(sentence), room)), soft_wrap=True)


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """One JSON object on stdout; what is not a finite number is null.

    `version` counts changes of the object's shape that a program would have to know of.

    >>> print_json("fit", {"rank": 2, "radius": float("inf")})
    {"version": 1, "command": "fit", "rank": 2, "radius": null}
    """
    whole = _plain({"version": 1, "command": command, **content})
    sys.stdout.write(json.dumps(whole, allow_nan=False, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    """JSON's own types in place of NumPy's, records and infinities."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
