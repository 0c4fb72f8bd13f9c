"""Guards Ctrl-C: it never kills the interpreter, commands end with 130 from their first import on, nothing is left.

`python -m tests.interrupts 200` is the long trial.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import newcomer as nc
from newcomer.cli import main
from newcomer.logs import disk_store
from tests import interrupts

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0  # seconds, on a machine that others use: what hangs fails, what is slow does not


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Interrupts are heard, also by processes started here; a shell has them ignored in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


PASSES = """
import signal, sys
import numpy as np
from newcomer.em.likelihood import likelihood_posterior, Task, likelihood_sums
from newcomer.population import Population
from newcomer._transform import UserModel, transform_batch
from newcomer.worlds import Synthetic
from newcomer._fit import fit
logs = Synthetic.learnable(dim=6, seed=1).logs(3000, 10, seed=1)
batch = next(logs.batches())
population, all = Population(np.zeros(6), np.ones((6, 2)), 1.0), np.ones(64, dtype=bool)
taste = UserModel.of(fit(logs, rank=1, estimator="sold"), logs, 0.0)
works = [
    lambda: likelihood_sums(batch, (Task(population, all, all),)),
    lambda: likelihood_posterior(population, np.ones((3000, 10, 6)), np.ones((3000, 10))),
    lambda: transform_batch(batch, prior=taste),
]
signal.signal(signal.SIGALRM, signal.default_int_handler)
for work in works:
    work()
    told = 0
    for number in range(60):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 * (1 + number % 25))
            for _ in range(100):
                work()
        except KeyboardInterrupt:
            told += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert told == 60, told
print("fine")
"""


def test_compiled_passes_survive_signals_at_any_time():
    done = subprocess.run([sys.executable, "-c", PASSES], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr[-2000:]


AT_IMPORT = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from newcomer.__main__ import start
hook, sys.argv[1:] = sys.argv[1], ["fit", "logs.csv", "--out", "m.newcomer"]
sys.argv[1:1] = []
sys.meta_path[0].wanted = hook
start()
""".replace("if name == sys.argv[1]:", "if name == getattr(self, 'wanted', None):")

MODULES = ["newcomer.cli.main", "typer", "rich.console", "newcomer.cli.report", "newcomer._fit"]
MODULES += ["numpy", "numpy.linalg", "polars", "numba", "scipy.linalg"]


@pytest.mark.parametrize("module", MODULES)
def test_a_command_that_is_interrupted_during_imports_ends_with_130(tmp_path: Path, module: str) -> None:
    interrupts.write_logs(tmp_path / "logs.csv", users=30)
    command = [sys.executable, "-c", AT_IMPORT, module]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr.strip() == "interrupted" and [one.name for one in tmp_path.iterdir()] == ["logs.csv"]


@pytest.mark.parametrize("code", ["exec('raise KeyboardInterrupt')", "raise ImportError from KeyboardInterrupt()"])
def test_what_libraries_make_of_an_interrupt_is_still_130(code: str, tmp_path: Path) -> None:
    """Text that is executed makes `python -m` end by the signal; libraries raise errors of their own."""
    program = (
        "import os, signal\nfrom newcomer.cli import inspect, main\n"
        f"def interrupted(*given, **named):\n    try: os.kill(os.getpid(), signal.SIGINT)\n    finally: {code}\n"
        "main.app = interrupted\nmain.run_main(['inspect', 'm'])"
    )
    (tmp_path / "probe.py").write_text(program)
    command = [sys.executable, "-m", "probe"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 130 and done.stderr.strip() == "interrupted"


def test_an_interrupt_that_got_lost_comes_again() -> None:
    """Exceptions are lost in finalizers."""
    program = (
        "import os, signal, time, weakref\nfrom newcomer.cli import main\n"
        "class Held: pass\n"
        "def work(*given, **named):\n"
        "    held = Held(); weakref.finalize(held, lambda: os.kill(os.getpid(), signal.SIGINT)); del held\n"
        "    time.sleep(600)\n"
        "main.app = work\nmain.run_main(['inspect', 'm'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 130 and done.stderr.strip() == "interrupted"


def test_an_interrupt_after_the_model_is_saved_is_too_late(tmp_path: Path) -> None:
    """The command ends as if nothing had come: exit code 130 beside a finished model would be half a truth."""
    interrupts.write_logs(tmp_path / "logs.csv", users=60)
    program = (
        "import os, signal\nfrom newcomer.cli import fit, main\n"
        "show = fit.show_model_summary\n"
        "def interrupted(*given, **named):\n    os.kill(os.getpid(), signal.SIGINT)\n    show(*given, **named)\n"
        "fit.show_model_summary = interrupted\nmain.run_main(['fit', 'logs.csv', '--out', 'm.newcomer'])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "m.newcomer" in done.stdout, done.stderr
    assert (tmp_path / "m.newcomer").exists()


def test_a_temporary_folder_is_removed_whole_before_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = disk_store.Scratch(tmp_path)
    (place.path / "file").write_text("")
    once, rmtree = [KeyboardInterrupt()], disk_store.shutil.rmtree

    def interrupted(*given: object, **named: object) -> None:
        if once:
            raise once.pop()
        rmtree(*given, **named)

    monkeypatch.setattr(disk_store.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place.close()
    assert list(tmp_path.iterdir()) == []
    mkdir = Path.mkdir

    def too_late(*given: object, **named: object) -> None:
        mkdir(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", too_late)
    with pytest.raises(KeyboardInterrupt):
        disk_store.Scratch(tmp_path)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_takes_its_files_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*given: object, **named: object) -> None:
        assert (tmp_path / "demo" / "logs.parquet").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(nc, "fit", stop)
    monkeypatch.setattr("newcomer.cli.output.compile_and_print_notice", lambda *rooms: None)
    assert main.execute_command(["demo", "--out", str(tmp_path / "demo")]) == main.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_interrupts_at_random_times_end_in_order() -> None:
    found = interrupts.trial(6, seed=1, commands=("fit", "fit by workers"), late=PATIENCE)
    assert found.wrong == []
    assert sum(found.ended.values()) == 6
