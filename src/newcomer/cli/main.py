"""The command line: `newcomer COMMAND ...`, one command a module, and what every exit code means.

Heavy libraries are imported inside the commands, so that `--help` answers at once.

Address space that is limited (`ulimit -v`): a command that runs out of it ends in a sentence.

NumPy raises MemoryError, which is reported like any other error. The allocators of Polars and of the compiler abort the
process, or wait for ever where next to nothing is left: nothing within the process can tell that. So where there is a
limit, a command runs in a second process, with as few threads as possible (each takes address space for its stack and
its heap), and the first one tells what became of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Any

import typer
from typer.main import get_command

from newcomer import __version__, errors
from newcomer.cli import check, demo, evaluate, fit, help_screen, inspect, output, report, reproduce, serve
from newcomer.errors import error_in_one_line

# Typer re-exports only this child of the parser's own error class.
_UsageError = typer.BadParameter.__mro__[1]
EXIT_CODES = {
    0: "done",
    1: "a bug of newcomer",
    2: "usage: a command, an option, or an output that cannot be written",
    3: "bad logs",
    4: "bad model",
    5: "check or report found the logs broken",
    6: "missing extra, unreachable store, or not enough memory",
    129: "the terminal was closed",
    130: "interrupted",
    143: "terminated",
}
INTERRUPTED = 130
_CODES = {
    errors.LogsError: 3,
    errors.ModelError: 4,
    errors.MissingExtra: 6,
    errors.EngineError: 6,
    errors.StoreError: 6,
}

_EXITS = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
app = typer.Typer(
    name="newcomer",
    cls=help_screen.GroupedCommands,
    help="Learn from the logs of many users what they have in common; serve new users well after a few interactions.",
    epilog=help_screen.help_epilog("", "`newcomer COMMAND --help` shows all options and more examples.", _EXITS),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
_COMMANDS: dict[str, Callable[..., Any]] = {
    "fit": fit.fit_command,
    "inspect": inspect.inspect_command,
    "check": check.check_command,
    "evaluate": evaluate.evaluate_command,
    "report": report.report_command,
    "serve": serve.serve_command,
    "demo": demo.demo_command,
    "reproduce": reproduce.reproduce_command,
}
for _name, _group in help_screen.GROUPS.items():
    app.command(
        _name, rich_help_panel=_group, short_help=help_screen.SUMMARIES[_name], epilog=help_screen.help_epilog(_name)
    )(_COMMANDS[_name])
for _command in get_command(app).commands.values():  # type: ignore[attr-defined]
    output.OPTIONS.update((one.name, one.opts[-1]) for one in _command.params if one.opts[-1].startswith("--"))


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        print(f"newcomer {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def run_main(arguments: Sequence[str] | None = None) -> None:
    """The console entry point; ends the process with the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character gets "?", not a traceback
            stream.reconfigure(errors="replace")
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup has it ignored: so it stays
            signal.signal(number, _leave)
    sys.unraisablehook = _lost
    sys.stdout, sys.stderr = output.Patient(sys.stdout), output.Patient(sys.stderr)
    try:
        inside = run_main_in_second_process(sys.argv[1:] if arguments is None else arguments)
        code = execute_command(arguments) if inside is None else inside
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: nothing is left to interrupt
    except KeyboardInterrupt:
        code = INTERRUPTED
    # `python -m` ends by the signal itself, not with the code, once an interrupt has passed through an `exec` of text,
    # by which records are made; another one takes that back.
    exec("")  # noqa: S102
    sys.exit(code)


_leaving: list[int] = []  # exit codes of the signals that came


def _leave(number: int, frame: FrameType | None) -> None:
    """End in order: what was spilled to disk is removed on the way. A second signal to terminate ends at once.

    An interrupt that comes when the result is already there is too late: the command says what it has made.
    """
    if number == signal.SIGINT and output.output_is_finished():
        return
    _leaving.append(128 + number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def _lost(told: Any) -> None:
    """An interrupt that came where exceptions are lost, such as the end of an object, comes again a little later."""
    if issubclass(told.exc_type, KeyboardInterrupt):
        again = threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(told)


def execute_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every failure is one sentence on stderr.

    Typer would print its own boxes and end the process: `standalone_mode=False` has it raise instead.
    """
    try:
        code = int(app(args=arguments, prog_name="newcomer", standalone_mode=False) or 0)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place that turns whatever happened into a sentence
        # A library that was interrupted may say so by an error of its own.
        code = _leaving[0] if _leaving else _explain(error)
    if code == INTERRUPTED:
        output.aside_output_console().print("interrupted")
    return code


def _explain(error: Exception) -> int:
    """Say what went wrong, and choose the exit code by whose it is to mend: usage, the logs, the model, or ours."""
    if isinstance(error, _UsageError):
        output.print_error(_usage(error))
        return 2
    if isinstance(error, errors.NewcomerError):
        output.print_error(str(error))
        return next((code for kind, code in _CODES.items() if isinstance(error, kind)), 2)
    if isinstance(error, MemoryError):
        said = f" ({error_in_one_line(str(error))})" if str(error) else ""
        output.print_error(f"there is not enough memory{said}: {_memory_advice()}")
        return NOT_ENOUGH
    if isinstance(error, OSError):
        output.print_error(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        return 2
    return _our_bug(error)


def _usage(error: Exception) -> str:
    """The parser's complaint and where to look, as one sentence."""
    context = getattr(error, "ctx", None)
    asked = context.command_path if context else "newcomer"
    text = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    return f"{text}; see `{asked} --help`"


def _our_bug(error: Exception) -> int:
    """What nobody should see; the trace is shown to those who ask for it, in place of scaring those who did not."""
    if os.environ.get("NEWCOMER_TRACE"):
        traceback.print_exception(error)
    said = (str(error).splitlines() or ["no message"])[0]
    hint = "please report it with what NEWCOMER_TRACE=1 in front of the command shows"
    output.print_error(f"this is a bug in newcomer ({type(error).__name__}: {said}); {hint}")
    return 1


LEAST = 1_000_000_000  # bytes: libraries and threads take 0.8 GB of addresses before the first row is read
INSIDE = "NEWCOMER_INSIDE_LIMIT"  # in the environment of the second process
FEW = {"POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "RUST_BACKTRACE": "0"}
ABORTED = {-getattr(signal, name) for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL") if hasattr(signal, name)}
NOT_ENOUGH = 6  # exit code


def main_address_space_limit() -> int | None:
    """Bytes of address space that this process may have, if that is limited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    bytes_, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if bytes_ == resource.RLIM_INFINITY else bytes_


def _memory_advice() -> str:
    """What to do about too little memory."""
    most = main_address_space_limit()
    said = "use fewer --workers, give reading less --memory, or a machine with more"
    return said if most is None else f"raise the limit of {most / 1e9:.1f} GB (ulimit -v), or {said}"


def run_main_in_second_process(arguments: Sequence[str]) -> int | None:
    """The exit code of the command, run in a second process; None where there is no limit, or this is the second."""
    most = main_address_space_limit()
    if most is None or os.environ.get(INSIDE) or {"-h", "--help", "--version"} & {*arguments} or not arguments:
        return None
    if most < LEAST:
        needed = f"newcomer needs {LEAST / 1e9:.0f} GB of address space before it reads the first row"
        output.print_error(f"{needed}, and has {most / 1e9:.1f}: raise the limit (ulimit -v)")
        return NOT_ENOUGH
    child = subprocess.Popen(
        [sys.executable, "-m", "newcomer", *arguments],
        env={**os.environ, **FEW, INSIDE: "1"},
        process_group=0,  # what the terminal sends comes here, and is passed on once
    )
    try:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name)
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, frame: _pass_on(child, number))
    except KeyboardInterrupt:
        _pass_on(child, signal.SIGINT)
    code = child.wait()
    if code in ABORTED:
        output.print_error(f"there is not enough memory: {_memory_advice()}")
        return NOT_ENOUGH
    return code if code >= 0 else 128 - code


def _pass_on(child: subprocess.Popen[Any], number: int) -> None:
    if child.poll() is None:
        child.send_signal(number)
