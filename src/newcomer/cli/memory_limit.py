"""Address space that is limited (`ulimit -v`): a command that runs out of it ends in a sentence.

NumPy raises MemoryError, which is told like any other error. The allocators of Polars and of the compiler abort the
process, or wait for ever where next to nothing is left: nothing within the process can tell that. So where there is a
limit, a command runs in a second process, with as few threads as possible (each takes address space for its stack and
its heap), and the first one tells what became of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from newcomer.cli import output

LEAST = 1_000_000_000  # bytes: libraries and threads take 0.8 GB of addresses before the first row is read
INSIDE = "NEWCOMER_INSIDE_LIMIT"  # in the environment of the second process
FEW = {"POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "RUST_BACKTRACE": "0"}
ABORTED = {-getattr(signal, name) for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL") if hasattr(signal, name)}
NOT_ENOUGH = 6  # exit code


def limit() -> int | None:
    """Bytes of address space that this process may have, if that is limited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    bytes_, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if bytes_ == resource.RLIM_INFINITY else bytes_


def todo() -> str:
    """What to do about too little memory."""
    most = limit()
    said = "use fewer --workers, give reading less --memory, or a machine with more"
    return said if most is None else f"raise the limit of {most / 1e9:.1f} GB (ulimit -v), or {said}"


def second_process(arguments: Sequence[str]) -> int | None:
    """The exit code of the command, run in a second process; None where there is no limit, or this is the second."""
    most = limit()
    if most is None or os.environ.get(INSIDE) or {"-h", "--help", "--version"} & {*arguments} or not arguments:
        return None
    if most < LEAST:
        needed = f"newcomer needs {LEAST / 1e9:.0f} GB of address space before it reads the first row"
        output.complain(f"{needed}, and has {most / 1e9:.1f}: raise the limit (ulimit -v)")
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
        output.complain(f"there is not enough memory: {todo()}")
        return NOT_ENOUGH
    return code if code >= 0 else 128 - code


def _pass_on(child: subprocess.Popen[Any], number: int) -> None:
    if child.poll() is None:
        child.send_signal(number)
