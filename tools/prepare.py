"""Make .venv ready for `make demo`, `make test` or `make docs`: python3 tools/prepare.py demo|test|docs.

Standard library only, and no syntax newer than Python 3.6, so that an old Python can still say what is missing. The
stamp .venv/.ready-NAME is written last. Changing an environment takes its stamps away first, so whatever is found
without a stamp is half-made and is built again from nothing.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
COST = {
    "demo": "about 1.5 minutes, 0.8 GB",
    "test": "about 2.5 minutes, 1.2 GB",
    "docs": "about 3 minutes, 1.3 GB",
}  # each holds what the one before it does
MORE = {
    "test": "what the tests need, once: about 1 minute, 0.4 GB",
    "docs": "what the site needs, once: about 1 minute",
}
OLDEST = (3, 11)
NAMES = ["python3.13", "python3.12", "python3.11", "python3.14"]


class Failed(Exception):
    """Something the person can mend; the message is one sentence, `log` has the details."""

    def __init__(self, message, log=None):
        super().__init__(message)
        self.log = log


def find_python(version=sys.version_info, which=shutil.which):
    """This Python if it is new enough, else the first suitable one on the path."""
    if tuple(version[:2]) >= OLDEST:
        return sys.executable
    others = [path for path in map(which, NAMES) if path]
    if not others:
        have = "{}.{}".format(*version[:2])
        raise Failed(f"Python 3.11 or newer is needed and this is {have}: install it, or run `make PYTHON=...`")
    return others[0]


def ways_to_make(venv, python, which=shutil.which):
    """The commands that may create an environment, best first."""
    ways = [[python, "-m", "venv", "--clear", venv], [python, "-m", "virtualenv", "--clear", venv]]
    if which("virtualenv"):
        ways.append([which("virtualenv"), "--clear", "-p", python, venv])
    if which("uv"):
        ways.append([which("uv"), "venv", "--seed", "--clear", "-p", python, venv])
    return [[str(word) for word in way] for way in ways]


def make_environment(venv, python, which=shutil.which):
    """A fresh environment with pip in place of whatever is at `venv`."""
    for way in ways_to_make(venv, python, which):
        shutil.rmtree(str(venv), ignore_errors=True)
        if silently(way) and works(venv):
            return
    shutil.rmtree(str(venv), ignore_errors=True)
    raise Failed("This Python cannot make a virtual environment: install it (Debian: apt install python3-venv)")


def works(venv):
    """Whether the environment has a Python and a pip that start."""
    return silently([inside(venv), "-m", "pip", "--version"])


def silently(command):
    """Whether a command exists and succeeds; its output is dropped."""
    try:
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def inside(venv):
    """The environment's Python."""
    return str(Path(venv) / "bin" / "python")


def steps(venv, name):
    """What happens inside the environment: (what it is called, command)."""
    python, pip = inside(venv), [inside(venv), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    pins = str(FOLDER / "requirements" / (name + ".txt"))
    return [
        ("packages", pip + ["install", "--progress-bar", "off", "--only-binary", ":all:", "-r", pins]),
        ("newcomer", pip + ["install", "--no-deps", "--no-build-isolation", "-e", str(FOLDER)]),
        ("compiled loops", [python, "-m", "newcomer.compile_cache"]),
    ]


def run_step(title, command, log):
    """Run one step with its output in the log; fail with a sentence."""
    begun = time.time()
    print(f"  {title:<15}", end="", flush=True)
    with open(str(log), "ab") as sink:
        code = subprocess.call(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=str(FOLDER)
        )
    print(f" {time.time() - begun:4.0f} s" if code == 0 else " failed", flush=True)
    if code:
        raise Failed(f"Set-up stopped at '{title}'; the whole log is in {shown(log)}", log)


def shown(path):
    """A path as the person would type it."""
    return os.path.relpath(str(path))


def last_lines(log, count=15):
    """The end of the log, indented."""
    lines = Path(log).read_text(errors="replace").splitlines()
    return "\n".join("  | " + line for line in lines[-count:])


def found(venv):
    """The names of the stamps of an environment that still works where it lies; none for a half-made or moved one."""
    names = [stamp.name for stamp in Path(venv).glob(".ready-*")]
    home = Path(venv) / ".folder"
    whole = names and home.exists() and home.read_text() == str(FOLDER) and works(venv)
    return names if whole else []


def announce(name, have):
    """Say at once what is about to happen and how long it takes."""
    if not have:
        text = "Setting up, once: " + COST[name]
    elif ".ready-" + name in have:
        text = "Bringing the set-up up to date"
    else:
        text = "Adding " + MORE[name]
    print(text, flush=True)


def prepare(name, venv=FOLDER / ".venv"):
    """Bring the environment at `venv` to the state that `name` promises, or keep it at a larger one."""
    have, sizes = found(venv), list(COST)
    name = max([name] + [size for size in sizes if ".ready-" + size in have], key=sizes.index)
    announce(name, have)
    for stamp in Path(venv).glob(".ready-*"):
        stamp.unlink()
    if not have:
        make_environment(venv, find_python())
    for title, command in steps(venv, name):
        run_step(title, command, Path(venv) / "setup.log")
    (Path(venv) / ".folder").write_text(str(FOLDER))
    (Path(venv) / ".warm").write_text("")
    for stamp in sizes[: sizes.index(name) + 1]:
        (Path(venv) / (".ready-" + stamp)).write_text("")


def main(arguments):
    """The command; returns its exit code."""
    if len(arguments) != 1 or arguments[0] not in COST:
        print("usage: python3 tools/prepare.py demo|test|docs", file=sys.stderr)
        return 2
    try:
        prepare(arguments[0])
    except Failed as failure:
        if failure.log:
            print(last_lines(failure.log), file=sys.stderr)
        print(str(failure), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the next run starts the set-up again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
