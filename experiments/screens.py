"""`python -m experiments.screens`: run the commands of pages that show screens, and write what they print below them.

A screen is a block of commands, the first of which writes a file by a script of `examples/`, followed by a block of
text. MovieLens-1M is read from the folder `ml-1m` in NEWCOMER_DATA. Minutes; `tests/docs/test_examples.py` compares
the sentences of the decision with a check of the same file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "how-to" / "evaluate.md", ROOT / "docs" / "paper" / "measured-evaluate.md")
COLUMNS = 104
SCREEN = re.compile(r"^```\n(python examples/[^`]*?)```\n```text\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def screens(text: str) -> list[tuple[str, str]]:
    """Commands and what the page says they print, one pair a screen."""
    return SCREEN.findall(text)


def printed(commands: str, folder: Path) -> str:
    """What the last of the commands prints in this folder."""
    env = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    last = ""
    for line in commands.strip().splitlines():
        program, *words = shlex.split(line)
        how = [str(ROOT / words[0]), *words[1:]] if program == "python" else ["-m", "newcomer", *words]
        last = subprocess.run(
            [sys.executable, *how], cwd=folder, env=env, check=True, capture_output=True, text=True
        ).stdout
    return "\n".join(line.rstrip() for line in last.rstrip().splitlines()) + "\n"


def written(text: str, folder: Path) -> str:
    """The page with every screen made anew."""

    def anew(found: re.Match[str]) -> str:
        return f"```\n{found[1]}```\n```text\n{printed(found[1], folder)}```"

    return SCREEN.sub(anew, text)


if __name__ == "__main__":
    for page in PAGES:
        with TemporaryDirectory() as place:
            page.write_text(written(page.read_text(encoding="utf-8"), Path(place)), encoding="utf-8")
        print(page.relative_to(ROOT))
