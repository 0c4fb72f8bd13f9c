"""Build what is released, twice, and look at it: `python3 tools/dist.py [FOLDER]`, by default into dist/.

A wheel and an sdist of one commit are the same bytes wherever they are built: times in them are SOURCE_DATE_EPOCH, by
default the time of the last commit (of an unpacked archive, that of the newest line of the changelog). Needs hatchling,
which `make demo` installs; nothing is fetched.
"""

import calendar
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
MOST = {".whl": 2_000_000, ".gz": 2_000_000}  # bytes; data or results have slipped in where a file is larger
SDIST = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src", ".gitignore"}


def epoch(folder=FOLDER):
    """SOURCE_DATE_EPOCH: as given, else the time of the last commit, else the date of the newest release."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return os.environ["SOURCE_DATE_EPOCH"]
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=folder, capture_output=True, text=True, check=False
    )
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip()
    day = re.search(r"^## \[[^\]]+\] - (\S+)$", (folder / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    return str(calendar.timegm(time.strptime(day.group(1), "%Y-%m-%d")))


def build(target, folder=FOLDER):
    """Wheel and sdist into `target`; returns their paths by name."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch(folder)}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}building failed")
    return {path.name: path for path in sorted(Path(target).iterdir())}


def hashes(files):
    """SHA-256 of each file."""
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def faults(path):
    """What should not be in a file that is released, or is missing from it: a sentence each."""
    told = []
    if path.stat().st_size > MOST[path.suffix]:
        told.append(f"{path.name} has {path.stat().st_size:,} bytes, more than {MOST[path.suffix]:,}")
    if path.suffix == ".whl":
        names = zipfile.ZipFile(path).namelist()
        strange = {name for name in names if not re.match(r"newcomer(-[^/]+\.dist-info)?/", name)}
        missing = {"newcomer/py.typed", "newcomer/__init__.py"} - set(names)
        kinds = {Path(name).suffix for name in names if name.startswith("newcomer/")} - {".py", ".typed"}
        strange |= {
            name for name in names if Path(name).suffix in kinds and not name.startswith("newcomer/serve/page/")
        }
    else:
        with tarfile.open(path) as archive:
            names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
        strange = {name for name in names if name.partition("/")[0] not in SDIST}
        missing = SDIST - {"src", ".gitignore"} - set(names) | {"src/newcomer/py.typed"} - set(names)
    told += [f"{path.name} has {name}, which does not belong there" for name in sorted(strange)]
    return told + [f"{path.name} lacks {name}" for name in sorted(missing)]


def main(arguments):
    """The command; returns its exit code."""
    target = Path(arguments[0]) if arguments else FOLDER / "dist"
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = build(one), build(two)
        told = [fault for path in first.values() for fault in faults(path)]
        if hashes(first) != hashes(second):
            told.append("two builds of the same files differ")
        if told:
            print("\n".join(told), file=sys.stderr)
            return 1
        target.mkdir(parents=True, exist_ok=True)
        for path in first.values():
            shutil.copy(path, target / path.name)
            print(f"{hashes({path.name: path})[path.name]}  {path.stat().st_size:>9,}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
