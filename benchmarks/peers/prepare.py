"""Make benchmarks/peers/.venv: newcomer and the libraries it is measured against.

A library that cannot be installed here is left out, and the table says so: the comparison with the others still counts.
`python benchmarks/peers/prepare.py rivals` makes an environment for each file of benchmarks/peers/rivals instead, in
benchmarks/peers/.rivals, without newcomer: `python -m experiments.rivals` hands data over as Parquet. LensKit and the
transformer need torch: where the package index has no CPU wheel of the pinned version, that is six gigabytes with
accelerator packages, twice.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv"

sys.path.insert(0, str(ROOT / "tools"))

import prepare as setup


def peers() -> list[str]:
    """The pinned libraries, one requirement each."""
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def main() -> int:
    """Build the environment; the stamp .ready is written last."""
    print("Setting up the peers, once: about 3 minutes, 1.5 GB", flush=True)
    pip = [setup.inside(VENV), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = [*pip, "install", "--progress-bar", "off"]
    try:
        setup.make_environment(VENV, setup.find_python())
        pins = str(ROOT / "requirements" / "demo.txt")
        setup.run_step("packages", [*install, "--only-binary", ":all:", "-r", pins], VENV / "setup.log")
        ours = [*install, "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
        setup.run_step("newcomer", ours, VENV / "setup.log")
    except setup.Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    for peer in peers():
        try:
            setup.run_step(peer.split("==")[0], [*install, peer], VENV / "setup.log")
        except setup.Failed as failure:
            print(f"{failure}; going on without it", file=sys.stderr)
    (VENV / ".ready").write_text("")
    return 0


def rivals() -> int:
    """An environment for each peer of experiments.rivals, since their pins exclude each other."""
    for pins in sorted((HERE / "rivals").glob("*.txt")):
        venv = HERE / ".rivals" / pins.stem
        pip = [setup.inside(venv), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        try:
            setup.make_environment(venv, setup.find_python())
            setup.run_step(pins.stem, [*pip, "--progress-bar", "off", "-r", str(pins)], venv / "setup.log")
        except setup.Failed as failure:
            print(f"{failure}; going on without it", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(rivals() if sys.argv[1:] == ["rivals"] else main())
