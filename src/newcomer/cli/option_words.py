"""From arguments of Python to options of the command line, for errors, advice and notes alike.

The library says `pass epoch='s'`, because most people meet it in Python. On a screen of a command that is `--epoch s`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

OPTIONS: dict[str, str] = {}  # every option of the commands by its name in Python; filled where the commands are
_VALUE = r"'[^']*'|\"[^\"]*\"|[\w.+-]+"


def in_options(text: str, options: Mapping[str, str] = OPTIONS) -> str:
    """The sentence with each `name=value` written as an option, where the command line has one of this name.

    `options` maps names of arguments to options, as `{"epoch": "--epoch"}`. A sentence that tells both says it once.

    >>> known = {"epoch": "--epoch", "grouped": "--grouped", "items": "--items", "column": "--column"}
    >>> in_options("pass epoch='s', drop grouped=True, or pass items=", known)
    'pass --epoch s, drop --grouped, or pass --items'
    >>> in_options("rename with columns={'user': 'uid'} or --column user=uid", known)
    'rename with --column user=uid'
    >>> in_options("columns={'user': ...} (--column user=...) chooses others", known)
    '--column user=... chooses others'
    >>> in_options("clip='auto' (--clip auto) limits", {"clip": "--clip"})
    '--clip auto limits'
    """
    if "column" in options:
        text = re.sub(r"\bcolumns=\{([^{}]*)\}", _renames, text)
        text = re.sub(r"\bcolumns=", "--column", text)
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    if names:
        text = re.sub(
            rf"(?<![\w.'/-])({names})=(?:((?>{_VALUE}))(?![\w(=/])|(?=[\s,;:)]|$))",
            lambda found: _option(found, options),
            text,
        )
    return _once(text, options.values())


def _option(found: re.Match[str], options: Mapping[str, str]) -> str:
    """One `name=value`: flags are True and have no value to show."""
    option, value = options[found[1]], (found[2] or "").strip("'\"")
    return option if value in ("", "True") else f"{option} {value}"


def _renames(found: re.Match[str]) -> str:
    """`{'user': 'uid'}`, `{'features': ['x', 'y']}` or `{'action': None}` as values of --column."""
    pairs = re.findall(r"'(\w+)': (\[[^\]]*\]|'[^']*'|None|\.\.\.)", found[1])
    told = [f"--column {ours}={'' if theirs == 'None' else _listed(theirs)}" for ours, theirs in pairs]
    return " ".join(told) or "--column"


def _listed(theirs: str) -> str:
    return ",".join(part.strip().strip("'") for part in theirs.strip("[]").split(","))


def _once(text: str, options: Iterable[str]) -> str:
    """`A or A` and `A (A)`, which come of sentences that tell the argument and the option, as `A`."""
    for option in set(options):
        said = rf"({re.escape(option)}(?: [\w.]+=[\w.,]*| \w+)?)"
        text = re.sub(rf"{said}(?: or \1(?![\w=])| \(\1\))", r"\1", text)
    return text
