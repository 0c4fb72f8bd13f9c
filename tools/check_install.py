"""Does what is released install, and does it work? Each part in a fresh environment below build/, which is left there.

    python3 tools/check_install.py metadata          twine check --strict of the files in dist/
    python3 tools/check_install.py wheel|sdist       install it with the newest dependencies, `newcomer demo`,
                                                     a small program, and mypy --strict of that program
    python3 tools/check_install.py minimum           the wheel with the oldest dependencies (requirements/minimum.txt):
                                                     `newcomer demo` and a part of the tests

The environments are of the Python that runs this: `python3.13 tools/check_install.py wheel`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from prepare import Failed, inside, make_environment

FOLDER = Path(__file__).resolve().parent.parent
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
PARTS = ["tests/test_saved_files.py", "tests/test_model.py", "tests/linear", "tests/charts", "tests/logs/test_logs.py"]
KINDS = {"wheel": "*.whl", "sdist": "*.tar.gz", "minimum": "*.whl"}


def run(*command, cwd=FOLDER):
    """A command that must succeed; it sees the environment, not the folder with the code."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    print("$ " + " ".join(words), flush=True)
    if subprocess.call(words, cwd=str(cwd), env={**env, **dict.fromkeys(ONE_THREAD, "1")}):
        raise Failed("this failed: " + " ".join(words))


def fresh(name):
    """A new environment below build/, and its pip."""
    venv = FOLDER / "build" / f"{name}-{sys.version_info[0]}.{sys.version_info[1]}"
    venv.parent.mkdir(exist_ok=True)
    make_environment(venv, sys.executable)
    return Path(inside(venv)), [inside(venv), "-m", "pip", "install", "-q", "--disable-pip-version-check"]


def released(kind):
    """The one file of this kind in dist/."""
    files = sorted((FOLDER / "dist").glob(KINDS[kind]))
    if len(files) != 1:
        raise Failed(f"dist/ has {len(files)} files {KINDS[kind]}, not one: make clean dist")
    return files[0]


def metadata():
    """What an index would refuse, and what of the README it could not show."""
    python, pip = fresh("metadata")
    run(*pip, "-r", FOLDER / "requirements" / "release.txt")
    run(python, "-m", "twine", "check", "--strict", *sorted((FOLDER / "dist").iterdir()))


def installed(kind):
    """A file with its newest dependencies: the demo, a typed program, and its types."""
    python, pip = fresh(kind)
    run(*pip, f"{released(kind)}[report]", "mypy")
    with tempfile.TemporaryDirectory() as empty:
        run(python.parent / "newcomer", "demo", cwd=empty)
        run(python, FOLDER / "tools" / "consumer.py", cwd=empty)
        run(python, "-m", "mypy", "--strict", FOLDER / "tools" / "consumer.py", cwd=empty)


def minimum():
    """The oldest dependencies that pyproject.toml allows."""
    python, pip = fresh("minimum")
    run(*pip, "--only-binary", ":all:", "-r", FOLDER / "requirements" / "minimum.txt")
    run(*pip, "--no-deps", released("minimum"))
    with tempfile.TemporaryDirectory() as empty:
        run(python.parent / "newcomer", "demo", cwd=empty)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(sys.argv[2:] or PARTS))


def main(arguments):
    """The command; returns its exit code."""
    known = {"metadata": metadata, "wheel": lambda: installed("wheel"), "sdist": lambda: installed("sdist")}
    known["minimum"] = minimum
    if not arguments or arguments[0] not in known:
        print(f"usage: python3 tools/check_install.py {'|'.join(known)}", file=sys.stderr)
        return 2
    try:
        known[arguments[0]]()
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
