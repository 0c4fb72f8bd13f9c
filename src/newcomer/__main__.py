"""`python -m newcomer`, and the command `newcomer`: Ctrl-C ends it with exit code 130 from its first moment on.

To import the command line takes a fifth of a second. Nothing starts before that is done, so nothing has to be put in
order, and an interrupt ends the process where it is: libraries that are being imported turn KeyboardInterrupt into
errors of their own.
"""

from __future__ import annotations

import os
import signal


def start() -> None:
    """Import the command line, and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell has it ignored in the background
        signal.signal(signal.SIGINT, _end)
    from newcomer.cli.main import run_main

    run_main()


def _end(number: int, frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    start()
