"""Where the commands write: results on stdout, advice and errors on stderr, and how a sentence or an object looks.

Rich honours NO_COLOR and leaves colours out when the output is not a terminal; `--json` is one object on one line.
A reader of the output may stop reading (`| head -1`): the rest goes nowhere, and the command ends as it would have.

From arguments of Python to options of the command line, for errors, advice and notes alike.

The library says `pass epoch='s'`, because most users meet it in Python. On a screen of a command that is `--epoch s`.

What `--json` prints, as JSON Schema: `newcomer fit --json-schema` prints it, for programs that read the output.

The schemas are made from the records that are printed, so that they cannot fall behind them. Numbers may be null:
JSON knows no infinity. Objects may gain keys within a `version`; keys that are there keep their meaning.

How far long work is, on stderr: a bar in a terminal, otherwise a line every half minute and one at the end.

Nothing is shown for work that ends within the first second. A fit reads the logs many times, and how many is not known
before: the bar, rate and time left are those of the pass, and lines tell what the last one found and how long it has
been. Where there are many users most passes are over a sample of them, and of those over all rows it is known how many
there will be at most: then lines tell how long they will take, too. Of stages that take unequal times no time left is
told.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, Union, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from newcomer.errors import error_in_one_line, install_extra_command

if TYPE_CHECKING:
    from newcomer.em.passes import Progress as Passed


BROKEN = 5  # exit code of `check` and `report` where the logs are broken
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


def mark_output_finished() -> None:
    """The result is on disk, or about to be: what is left takes a moment, and an interrupt no longer undoes it."""
    _finishing.append(True)


def output_is_finished() -> bool:
    """Whether the command in this process has come so far."""
    return bool(_finishing)


def output_console() -> Console:
    """The console for results, on stdout."""
    return _wide_enough(Console(highlight=False))


def aside_output_console() -> Console:
    """The console for progress, advice and errors, on stderr."""
    return _wide_enough(Console(stderr=True, highlight=False))


def _wide_enough(console: Console) -> Console:
    console.width = max(console.width, NARROWEST)
    return console


def print_advice(sentences: Sequence[str]) -> None:
    """Things to know, one a line, on stderr."""
    for sentence in sentences:
        aside_output_console().print(Text.assemble(("note: ", "yellow"), printed_as_options(sentence)), soft_wrap=True)


def compile_and_print_notice(*rooms: str) -> None:
    """Compile the loops of these rooms, if they never were on this machine, and say why the first time takes longer."""
    from newcomer.compile_cache import compile_cache_is_cold, warm_compile_cache

    if compile_cache_is_cold(*rooms):
        aside_output_console().print("compiling the inner loops, once: about half a minute", soft_wrap=True)
        warm_compile_cache(*rooms)


def print_suggestions(commands: Sequence[tuple[str, str]], code: str = "", model: str = "") -> None:
    """What to try next: (arguments of newcomer, what for), how to serve `model`, by lines of Python and over HTTP.

    All is on stderr, ready to be copied.

    Suggestions go to stderr like advice, so that what is piped on is the result alone.
    """
    width, name = max(len(why) for _, why in commands), printed_program()
    lines = [Text.assemble(("  " + why.ljust(width), "dim"), (f"   {name} {rest}", "bold")) for rest, why in commands]
    if code:
        lines += [
            Text("  serve new users in Python", "dim"),
            *(Text(f"    {line}", "bold") for line in code.splitlines()),
            Text(f"  serve new users over HTTP ({install_extra_command('serve')})", "dim"),
            Text(f"    {name} serve {shlex.quote(model)}", "bold"),
        ]
    aside_output_console().print(Text("\n").join([Text("\nNext"), *lines]), soft_wrap=True)


def printed_program() -> str:
    """What the user has to type to run this very newcomer: its environment need not be on the path."""
    ours = Path(sys.executable).with_name("newcomer")
    if not ours.exists():
        return f"{shlex.quote(sys.executable)} -m newcomer"
    found = shutil.which("newcomer")
    if found and Path(found).resolve() == ours.resolve():
        return "newcomer"
    near = os.path.relpath(ours)
    return shlex.quote(str(ours) if near.startswith("..") else near)


def print_error(sentence: str) -> None:
    """One sentence about what went wrong, on stderr: no more of it than fits the screen."""
    console = aside_output_console()
    room = console.width * max(console.height - 2, 4) - len("error: ")
    console.print(
        Text.assemble(("error: ", "bold red"), error_in_one_line(printed_as_options(sentence), room)), soft_wrap=True
    )


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


def printed_as_options(text: str, options: Mapping[str, str] = OPTIONS) -> str:
    """The sentence with each `name=value` written as an option, where the command line has one of this name.

    `options` maps names of arguments to options, as `{"epoch": "--epoch"}`. A sentence that tells both says it once.

    >>> known = {"epoch": "--epoch", "grouped": "--grouped", "items": "--items", "column": "--column"}
    >>> printed_as_options("pass epoch='s', drop grouped=True, or pass items=", known)
    'pass --epoch s, drop --grouped, or pass --items'
    >>> printed_as_options("rename with columns={'user': 'uid'} or --column user=uid", known)
    'rename with --column user=uid'
    >>> printed_as_options("columns={'user': ...} (--column user=...) chooses others", known)
    '--column user=... chooses others'
    >>> printed_as_options("clip='auto' (--clip auto) limits", {"clip": "--clip"})
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
    options = [f"--column {ours}={'' if theirs == 'None' else _listed(theirs)}" for ours, theirs in pairs]
    return " ".join(options) or "--column"


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


def json_output_schema(command: str, keys: Mapping[str, Any], record: Any = None) -> dict[str, Any]:
    """The schema of one command's object: `version` and `command`, its own `keys`, then those of a record.

    >>> made = json_output_schema("fit", {"model": str})
    >>> made["required"], made["properties"]["model"]
    (['version', 'command', 'model'], {'type': 'string'})
    """
    head: dict[str, Any] = {"version": {"const": 1}, "command": {"const": command}}
    own = {name: _json_schema_of_type(kind) for name, kind in keys.items()}
    rest = _json_schema_of_type(record)["properties"] if record is not None else {}
    properties = {**head, **own, **rest}
    title = f"newcomer {command} --json"
    return {"$schema": DRAFT, "title": title, "type": "object", "properties": properties, "required": [*properties]}


def _json_schema_of_type(kind: Any) -> dict[str, Any]:
    """The schema of values of a type: records, numbers, text, tuples, lists, mappings from text, and unions.

    >>> _json_schema_of_type(tuple[float, ...])
    {'type': 'array', 'items': {'type': ['number', 'null']}}
    >>> _json_schema_of_type(int | None)
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
        parts = {one.name: _json_schema_of_type(hints[one.name]) for one in fields(kind)}
        return {"type": "object", "properties": parts, "required": list(parts)}
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(arguments)}
    if get_origin(kind) in (UnionType, Union):
        return {"anyOf": [_json_schema_of_type(one) for one in arguments]}
    if get_origin(kind) in (tuple, list):
        if get_origin(kind) is tuple and Ellipsis not in arguments:
            size = len(arguments)
            return {"type": "array", "prefixItems": [_json_schema_of_type(one) for one in arguments], "minItems": size,
                    "maxItems": size}  # fmt: skip
        return {"type": "array", "items": _json_schema_of_type(arguments[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _json_schema_of_type(arguments[1])}
    raise NotImplementedError(f"no schema for {kind!r}")


def json_schema_option(made: Callable[[], dict[str, Any]]) -> Any:
    """The option `--json-schema` of a command: prints the schema and leaves, whatever else was typed."""

    def show(wanted: bool) -> None:
        if wanted:
            print(json.dumps(made(), indent=2))
            raise typer.Exit

    text = "Show the JSON Schema of --json and exit."
    return typer.Option("--json-schema", help=text, is_eager=True, callback=show)


PATIENCE = 1.0  # seconds of silence before anything is shown
INTERVAL = 30.0  # seconds between lines without a terminal
MOMENT = 0.05  # seconds of a pass before its rate means anything


class Meter:
    """A `progress(done, total)` callback to be used in a `with` block.

    `first` is what to call the first of several passes; `unit` what is counted, nothing for shares of the work;
    `begun` is when the work began, `turn` when this pass of it did; `last` is how far the last call was, `made` the
    number of passes so far, which never falls, `note` what the last pass found, `spoken` when a line was last written.
    Tests bring a console and a clock of their own.
    """

    def __init__(
        self,
        what: str,
        *,
        first: str = "",
        unit: str = "rows",
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.first, self.unit = what, first, unit
        self.console, self.clock = console or aside_output_console(), clock
        self.begun = self.turn = clock()
        self.last, self.note = 0.0, ""
        self.made = self.lines = 0  # passes that are done, and lines that were written
        self.each, self.more = 0.0, 0  # seconds of the last pass, and about how many more there will be (0: unknown)
        self.spoken = self.begun + PATIENCE - INTERVAL
        self.bar: Progress | None = None
        self.bar_width = max(min(30, self.console.width // 4), 4)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        elif self.lines and kind is None:  # a reader of a file sees that the work came to its end
            self.console.print(f"{self.what}: done in {_duration(self.clock() - self.begun)}", soft_wrap=True)

    def __call__(self, done: float, total: float) -> None:
        """Note that `done` of `total` is behind us; less than last time begins another pass."""
        now = self.clock()
        if done < self.last or self.last >= total > 0:
            self.each, self.turn = now - self.turn, now
            self.made += self.last < total  # a pass that ended without saying so
        self.last = done
        self.made += done >= total > 0
        if now - self.begun < PATIENCE or total <= 0:
            return
        if self.console.is_terminal:
            self._draw(done, total)
        elif now - self.spoken >= INTERVAL:
            self.spoken, self.lines = now, self.lines + 1
            self.console.print(self.line(done, total, now), soft_wrap=True)

    def line(self, done: float, total: float, now: float) -> str:
        """Share, rate and time left as text; of a fit of many passes what the last one found."""
        if self.note:  # of the pass that is under way, share and time left would be taken for those of the fit
            left = f", about {_duration(self.each * self.more)} left" if self.more and self.each else ""
            return f"{self.what}{self.note}: {_duration(now - self.begun)} so far{left}"
        number = self.made + (done < total)
        which = f", pass {number}" if self.first and number > 1 else self.first
        if not self.unit:  # stages take unequal times: what is done does not say how much is left
            return f"{self.what}{which}: {done / total:.0%}, {_duration(now - self.begun)} so far"
        rate = self._rate(done, now)
        left = f", {_duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{self.what}{which}: {done / total:.0%}{self._speed(rate, ', ')}{left}"

    def _rate(self, done: float, now: float) -> float:
        """How much of this pass is done a second; 0 at its start, where no rate is known."""
        return done / (now - self.turn) if now - self.turn >= MOMENT else 0.0

    def _speed(self, rate: float, before: str = "") -> str:
        """How fast it goes, where that is known and what is counted means something to users."""
        return f"{before}{rate:,.0f} {self.unit}/s" if self.unit and rate else ""

    def hear(self, progress: Passed) -> None:
        """Remember what the last pass of a fit found, to be shown from now on."""
        held_out = f", held out {progress.held_out:.4f}" if progress.held_out else ""
        self.more = 0 if progress.most is None else max(progress.most - progress.passes, 0)
        self.made = max(self.made, progress.passes)
        which = " over a sample of the users" if progress.sampled else ""
        which = which if progress.most is None else f" of about {self.made + self.more}"
        text = f"{progress.stage}; log-likelihood {progress.likelihood:.4f} a row{held_out}"
        self.note = f", pass {self.made}{which} ({text})"

    def _draw(self, done: float, total: float) -> None:
        """Move the bar, which is put up when it is first needed and goes away with the work."""
        if self.bar is None:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=self.bar_width),
                TextColumn("{task.percentage:.0f}%  {task.fields[rate]}"),
                TimeRemainingColumn(compact=True) if self.unit else TimeElapsedColumn(),
                console=self.console,
                transient=True,
                auto_refresh=False,
            )
            self.bar.start()
            self.bar.add_task(self.what, rate="")
        rate = self._speed(self._rate(done, self.clock()))
        # The note gives way before the share, the rate and the time left do.
        room = self.console.width - self.bar_width - len(self.what) - 28
        said = self.what + (self.note if len(self.note) <= room else self.note[: room - 3] + "..." if room > 9 else "")
        self.bar.update(self.bar.task_ids[0], description=said, completed=done, total=total, rate=rate, refresh=True)


def _duration(seconds: float) -> str:
    """Seconds in words.

    >>> _duration(7.2), _duration(125)
    ('7 s', '2 min 05 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
