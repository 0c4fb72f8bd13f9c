"""Interrupts at random times: `python -m tests.interrupts 200` presses Ctrl-C so often, and says what came of it.

Half of the interrupts meet commands: each ends with exit code 130 and without a traceback. The other half meet calls in
one Python process, which goes on from one to the next: each raises KeyboardInterrupt, and in the end a fit still gives
the same model as in the beginning. No interrupt leaves behind an output (but for MODEL.partial, which --resume goes on
from), a temporary file or a process, and none is more than `LATE` seconds late.

Some interrupts meet a command in its first tenth of a second. Until Python hands over to newcomer its own traceback is
all that there can be; these are counted by themselves (`before`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
LATE = 2.0  # seconds, on a machine that has nothing else to do
FIRST = 0.1  # seconds of a command in which nothing but imports happens
MARK = "NEWCOMER_TRIAL"  # in the environment of all processes of a trial
WORKERS = "from newcomer.logs import workers; workers.ENOUGH = 0; from newcomer.__main__ import start; start()"
COMMANDS = {
    "fit": ["-m", "newcomer", "fit", "logs.csv", "--out", "out/m.newcomer", "--force"],
    "fit by workers": ["-c", WORKERS, "fit", "logs.csv", "--workers", "2", "--out", "out/m.newcomer", "--force"],
    "demo": ["-m", "newcomer", "demo", "--out", "out/demo"],
    "evaluate": ["-m", "newcomer", "evaluate", "logs.csv", "--quick"],
    "report": ["-m", "newcomer", "report", "logs.csv", "--quick", "--out", "out/page.html"],
}


def write_logs(path: Path, users: int = 400, rows: int = 12, actions: int = 20) -> None:
    """Plain logs of people who differ along two directions."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(users), rows), rng.integers(actions, size=users * rows)
    tastes = rng.standard_normal((users, 2)) @ rng.standard_normal((2, actions))
    reward = tastes[user, action] + rng.standard_normal(users * rows)
    lines = (f"{u},{a},{r:.4f}" for u, a, r in zip(user, action, reward, strict=True))
    path.write_text("\n".join(["user,action,reward", *lines]))


class Trial:
    """A folder, with logs, a place for outputs and one for temporary files; and how the trials in it ended."""

    def __init__(self, folder: Path, seed: int, late: float) -> None:
        self.folder, self.random, self.late = folder, random.Random(seed), late
        self.out, self.scratch = folder / "out", folder / "scratch"
        self.out.mkdir(), self.scratch.mkdir()
        write_logs(folder / "logs.csv")
        self.ended: Counter[tuple[str, str]] = Counter()  # by what was interrupted, and how
        self.wrong: list[str] = []
        self.latest = self.busiest = 0.0  # seconds from an interrupt to its answer, on the clock and of the processor
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
        self.env = {**os.environ, **threads, "TMPDIR": str(self.scratch), MARK: str(folder), "PYTHONPATH": paths}

    def started(self, arguments: list[str]) -> subprocess.Popen[str]:
        """A Python process of its own group, as in a terminal."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, env=self.env, text=True, start_new_session=True, **pipes
        )

    def command(self, name: str, within: float) -> bool:
        """Interrupt a command at a moment `within` so many seconds; whether it had not ended by itself by then."""
        process, label = self.started(COMMANDS[name]), f"newcomer {name}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.random.uniform(0.0, within))
        early = process.poll() is not None
        sent, spent = time.monotonic(), 0.0 if early else seconds_of(process.pid)
        before = seconds_of_children()
        if not early:
            os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=max(60.0, self.late))
        self.busiest = max(self.busiest, seconds_of_children() - before - spent)
        if early or (process.returncode == 0 and "Traceback" not in told):  # all was done when the interrupt came
            self.tidy()
            return False
        self.note(label, process.returncode, time.monotonic() - sent, told)
        return True

    def note(self, label: str, code: int, late: float, told: str) -> None:
        """How an interrupted process ended, and what is left."""
        unheard = code == -signal.SIGINT and not told  # the process was not Python yet
        if unheard or ("Traceback" in told and "newcomer/cli" not in told and "KeyboardInterrupt" in told):
            self.ended[label, "before"] += 1
        else:
            self.ended[label, str(code)] += 1
            if code != 130 or "Traceback" in told or "Exception ignored" in told:
                self.wrong.append(f"{label}: exit code {code}: {told[-1500:]}")
        self.timely(label, late)
        self.wrong += [f"{label}: left {one}" for one in self.left()]
        self.tidy()

    def timely(self, label: str, late: float) -> None:
        """Remember the latest answer to an interrupt; others who use the machine are allowed for."""
        self.latest = max(self.latest, late)
        if late > self.late * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)):
            self.wrong.append(f"{label}: {late:.1f} s late")

    def left(self) -> Iterator[str]:
        """Files that should not be there, and processes; these have as long to end as an answer may take."""
        yield from (str(one.relative_to(self.folder)) for one in self.scratch.iterdir())
        yield from (str(one.relative_to(self.folder)) for one in self.out.iterdir() if one.suffix != ".partial")
        until = time.monotonic() + self.late
        while (alive := list(self.alive())) and time.monotonic() < until:
            time.sleep(0.05)
        yield from (f"process {pid}" for pid in alive)

    def alive(self) -> Iterator[int]:
        """Processes of this trial, but for the one that is interrupted again and again."""
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marked = f"{MARK}={self.folder}".encode() in (place / "environ").read_bytes().split(b"\0")
                if marked and b"tests.interrupts" not in (place / "cmdline").read_bytes():
                    yield int(place.name)

    def tidy(self) -> None:
        """Outputs and what was left are removed."""
        for place in (self.out, self.scratch):
            shutil.rmtree(place)
            place.mkdir()

    def calls(self, count: int, names: list[str]) -> None:
        """Interrupt calls in one process, `count` of them; in the end it must still fit the same model."""
        process = self.started(["-m", "tests.interrupts", "--serve"])
        assert process.stdin is not None and process.stdout is not None

        def asked(name: str, after: float | None) -> tuple[dict[str, Any], float]:
            print(name, file=process.stdin, flush=True)
            process.stdout.readline()  # it begins
            sent, spent = time.monotonic(), None
            if after is not None and not select.select([process.stdout], [], [], after)[0]:
                sent, spent = time.monotonic(), seconds_of(process.pid)
                os.kill(process.pid, signal.SIGINT)
            line = process.stdout.readline()
            self.busiest = max(self.busiest, 0.0 if spent is None or not line else seconds_of(process.pid) - spent)
            if not line:
                process.wait(10)
                raise ConnectionError(f"{name}: Python ended with {process.returncode}")
            return json.loads(line), time.monotonic() - sent

        try:
            first = asked("fit", None)[0]["model"]
            took = {name: asked(name, None)[1] for name in names}
            self.tidy()
            while count:
                name = self.random.choice(names)
                answer, late = asked(name, self.random.uniform(0.0, took[name]))
                if answer["ended"] != "done":
                    count -= 1
                    self.called(name, answer, late)
                self.tidy()
            if asked("fit", None)[0]["model"] != first:
                self.wrong.append("after the interrupts, a fit gives another model")
        except ConnectionError as error:
            self.wrong.append(str(error))
        finally:
            process.kill()
            process.communicate()

    def called(self, name: str, answer: dict[str, Any], late: float) -> None:
        """How an interrupted call ended, and what is left."""
        self.ended[f"nc.{name}", answer["ended"]] += 1
        if answer["ended"] != "KeyboardInterrupt":
            self.wrong.append(f"nc.{name}: {answer}")
        self.timely(f"nc.{name}", late)
        self.wrong += [f"nc.{name}: left {one}" for one in self.left()]


def seconds_of(pid: int) -> float:
    """Of the processor that a process has used."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def seconds_of_children() -> float:
    """Of the processor that processes have used which this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def serve() -> None:
    """The process whose calls are interrupted: a name a line comes in, how the call ended goes out."""
    import newcomer as nc
    from newcomer.cli import main
    from newcomer.logs import workers

    workers.ENOUGH = 0
    logs = nc.read_logs("logs.csv")
    answers, sys.stdout = sys.stdout, sys.stderr
    work = {
        "fit": lambda: nc.fit(logs).id,
        "fit by workers": lambda: nc.fit(logs, run=nc.Run(workers=2)).id,
        "demo": lambda: main.execute_command(["demo", "--out", "out/demo", "--json"]),
        "evaluate": lambda: nc.evaluate(logs, quick=True).verdict,
        "report": lambda: nc.report(logs, "out/page.html", quick=True).answer,
    }
    for line in sys.stdin:
        ended: dict[str, Any] = {"ended": "done"}
        try:
            print("begin", file=answers, flush=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                ended["model"] = work[line.strip()]()
                if ended["model"] == main.INTERRUPTED:
                    ended["ended"] = "KeyboardInterrupt"
            except BaseException as error:  # noqa: BLE001 - what it is decides
                ended["ended"] = type(error).__name__
                ended["said"] = str(error)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:  # just when the call was done
            ended = {"ended": "done"}
        gc.collect()
        print(json.dumps(ended), file=answers, flush=True)


def trial(count: int, seed: int = 0, commands: tuple[str, ...] = tuple(COMMANDS), late: float = LATE) -> Trial:
    """Half of the interrupts meet calls; of the others, every fourth meets a command in its first tenth of a second.
    An answer may come `late` seconds after its interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    with tempfile.TemporaryDirectory(prefix="interrupts-") as folder:
        found = Trial(Path(folder).resolve(), seed, late)
        found.calls(count - count // 2, list(commands))
        took = {}
        for name in commands:
            begun = time.monotonic()
            done = subprocess.run(
                [sys.executable, *COMMANDS[name]], cwd=found.folder, env=found.env, check=False, capture_output=True
            )
            assert done.returncode == 0, done.stderr.decode()
            took[name] = time.monotonic() - begun
            found.tidy()
        done, number = 0, 0
        while done < count // 2:
            name, number = found.random.choice(commands), number + 1
            done += found.command(name, FIRST if number % 4 == 0 else took[name])
        return found


def main() -> int:
    """Tell how the interrupts ended; exit code 1 if any did otherwise than it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true")
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return 0
    found = trial(asked.count, asked.seed)
    for (name, how), count in sorted(found.ended.items()):
        print(f"{name:24} {how:20} {count}")
    told = f"latest: {found.latest:.2f} s after the interrupt, {found.busiest:.2f} s of the processor"
    print(f"{told}; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores; wrong: {len(found.wrong)}")
    print(*found.wrong, sep="\n")
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
