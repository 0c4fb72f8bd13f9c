"""Where the commands write: results on stdout, advice and errors on stderr, and how a sentence or an object looks.

Rich honours NO_COLOR and leaves colours out when the output is not a terminal; `--json` is one object on one line.
A reader of the output may stop reading (`| head -1`): the rest goes nowhere, and the command ends as it would have.

From arguments of Python to options of the command line, for errors, advice and notes alike.

The library says `pass epoch='s'`, because most people meet it in Python. On a screen of a command that is `--epoch s`.

What `--json` prints, as JSON Schema: `newcomer fit --json-schema` prints it, for programs that read the output.

The schemas are made from the records that are printed, so that they cannot fall behind them. Numbers may be null:
JSON knows no infinity. Objects may gain keys within a `version`; keys that are there keep their meaning.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TextIO, Union, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

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


DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}


def schema_of(command: str, keys: Mapping[str, Any], record: Any = None) -> dict[str, Any]:
    """The schema of one command's object: `version` and `command`, its own `keys`, then those of a record.

    >>> made = schema_of("fit", {"model": str})
    >>> made["required"], made["properties"]["model"]
    (['version', 'command', 'model'], {'type': 'string'})
    """
    head: dict[str, Any] = {"version": {"const": 1}, "command": {"const": command}}
    own = {name: of_type(kind) for name, kind in keys.items()}
    rest = of_type(record)["properties"] if record is not None else {}
    properties = {**head, **own, **rest}
    title = f"newcomer {command} --json"
    return {"$schema": DRAFT, "title": title, "type": "object", "properties": properties, "required": [*properties]}


def of_type(kind: Any) -> dict[str, Any]:
    """The schema of values of a type: records, numbers, text, tuples, lists, mappings from text, and unions.

    >>> of_type(tuple[float, ...])
    {'type': 'array', 'items': {'type': ['number', 'null']}}
    >>> of_type(int | None)
    {'anyOf': [{'type': 'integer'}, {'type': 'null'}]}
    """
    if kind is float:
        return {"type": ["number", "null"]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if is_dataclass(kind):
        # Findings name records for the type checker alone, so that `--help` need not load them.
        homes = [vars(import_module(f"newcomer.{home}")) for home in ("findings", "evidence")]
        hints = get_type_hints(kind, localns=homes[0] | homes[1])
        parts = {one.name: of_type(hints[one.name]) for one in fields(kind)}
        return {"type": "object", "properties": parts, "required": list(parts)}
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(arguments)}
    if get_origin(kind) in (UnionType, Union):
        return {"anyOf": [of_type(one) for one in arguments]}
    if get_origin(kind) in (tuple, list):
        if get_origin(kind) is tuple and Ellipsis not in arguments:
            size = len(arguments)
            return {"type": "array", "prefixItems": [of_type(one) for one in arguments], "minItems": size,
                    "maxItems": size}  # fmt: skip
        return {"type": "array", "items": of_type(arguments[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": of_type(arguments[1])}
    raise NotImplementedError(f"no schema for {kind!r}")


def option(made: Callable[[], dict[str, Any]]) -> Any:
    """The option `--json-schema` of a command: prints the schema and leaves, whatever else was typed."""

    def show(wanted: bool) -> None:
        if wanted:
            print(json.dumps(made(), indent=2))
            raise typer.Exit

    told = "Show the JSON Schema of --json, and leave."
    return typer.Option("--json-schema", help=told, is_eager=True, callback=show)
