"""Guards what is written: where it goes, what happens when it cannot, and that nothing is left behind or lost."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import newcomer as nc
from newcomer import files
from newcomer.charts.pictures import regret_curves
from newcomer.cli import main
from newcomer.errors import LogsError, ModelError, NewcomerError, OutputError
from newcomer.logs.disk_store import Spill
from newcomer.worlds import Synthetic
from tests.cli.running import one_sentence
from tests.interrupts import write_logs

ROOT = Path(__file__).resolve().parents[2]
NEWCOMER = [sys.executable, "-m", "newcomer"]
PATIENCE = 300.0  # seconds, on a machine that others use: what hangs fails, what is slow does not


@pytest.fixture(scope="module")
def model() -> nc.Model:
    return nc.fit(Synthetic.learnable(dim=6, seed=0).logs(300, 8, seed=0), rank=2)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """A function that fills the disk that a folder is on: what is written there does not last."""
    sync = os.fsync

    def fill(folder: Path) -> None:
        def broken(handle: int) -> None:
            if Path(os.readlink(f"/proc/self/fd/{handle}")).is_relative_to(folder):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(handle)

        monkeypatch.setattr("newcomer.files.os.fsync", broken)

    return fill


def test_a_full_disk_is_one_sentence_with_the_path(
    model: nc.Model, tmp_path: Path, full_disk: Callable[[Path], None]
) -> None:
    path = tmp_path / "m.newcomer"
    model.save(path)
    before = path.read_bytes()
    full_disk(tmp_path)
    with pytest.raises(OutputError, match="No space left on device") as error:
        model.save(path)
    assert str(path) in str(error.value) and isinstance(error.value, nc.NewcomerError)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.newcomer"]


@pytest.mark.parametrize("place", ["/proc/m.newcomer", "\0", "no/" * 3000])
def test_what_cannot_be_written_is_one_sentence_for_every_writer(model: nc.Model, place: str) -> None:
    world = Synthetic(dim=3, items=30)
    rows = nc.play({"Uniform": nc.Uniform()}, world, horizon=3, users=2, seed=0, progress=False)
    for write in (
        lambda: model.save(place),
        lambda: world.write_logs(place, 3, 3, 0),
        lambda: world.write_items(place),
        lambda: regret_curves(rows, place),
    ):
        with pytest.raises(OutputError) as error:
            write()
        assert "\n" not in str(error.value)


def test_a_place_that_cannot_be_written_is_known_before_the_logs_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    full_disk: Callable[[Path], None],
) -> None:
    """The logs do not exist, which nobody notices: the output is looked at first."""
    full_disk(tmp_path)
    for place in ("/proc/m.newcomer", tmp_path / "m.newcomer"):
        assert main.execute_command(["fit", "nowhere.parquet", "--out", str(place)]) == 2
        told = capsys.readouterr().err
        assert one_sentence(told) and str(place) in told and "cannot be written" in told and "--out" in told
    assert os.listdir(tmp_path) == []
    assert main.execute_command(["demo", "--out", "/proc/demo"]) == 2
    assert main.execute_command(["reproduce", "--quick", "privacy", "--out", "/proc/figures"]) == 2
    assert main.execute_command(["reproduce", "--quick", "privacy", "--out", str(ROOT / "README.md")]) == 2


def test_a_disk_that_takes_little_is_known_before_the_logs_are_read(tmp_path: Path) -> None:
    """The system itself refuses: files of this process may have ten thousand bytes."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    command = [*NEWCOMER, "fit", "nowhere.parquet", "--out", str(tmp_path / "m.newcomer")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 2 and one_sentence(done.stderr) and "File too large" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_fit_is_not_lost_when_the_disk_fills_meanwhile(
    few_logs: Path,
    tmp_path: Path,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    full_disk: Callable[[Path], None],
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    real = nc.fit

    def slow(*args: object, **options: object) -> nc.Model:
        full_disk(out)
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("newcomer.fit", slow, raising=False)
    assert main.execute_command(["fit", str(few_logs), "--rank", "2", "--out", str(out / "m.newcomer")]) == 2
    _, sign, rest = capsys.readouterr().err.partition("error: ")  # behind lines of progress, where the fit took long
    told = sign + rest
    found = re.search(r"saved as (\S+) instead", told)
    assert one_sentence(told) and str(out / "m.newcomer") in told and found
    saved = Path(found[1])
    assert nc.load(saved).rank == 2 and saved.is_relative_to(scratch)
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700 and os.listdir(out) == []


def test_where_nothing_takes_the_model_that_is_said(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, full_disk: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    full_disk(tmp_path)
    assert files.rescue_file("m.newcomer", b"precious") is None
    assert os.listdir(scratch) == [] and os.listdir(tmp_path) == ["scratch"]
    full_disk(scratch)
    place = files.rescue_file("m.newcomer", b"precious")
    assert place and place.read_bytes() == b"precious" and place.parent.parent == tmp_path


def test_devices_and_pipes_are_refused(
    model: nc.Model, few_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for place in ("/dev/null", "/dev/full", tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(OutputError, match="device or a pipe"):
            model.save(place)
        assert main.execute_command(["fit", str(few_logs), "--force", "--out", str(place)]) == 2
        told = capsys.readouterr().err
        assert one_sentence(told) and "device or a pipe" in told and "--out" in told
    with pytest.raises(OutputError, match="folder"):
        model.save(tmp_path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_links_stay_and_what_they_point_to_is_replaced(model: nc.Model, few_logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    link = tmp_path / "m.newcomer"
    link.symlink_to("store/today.newcomer")
    model.save(link)  # a link that leads nowhere yet makes the file
    assert link.is_symlink() and nc.load(store / "today.newcomer").id == model.id
    assert main.execute_command(["fit", str(few_logs), "--rank", "1", "--out", str(link), "--json"]) == 2
    assert main.execute_command(["fit", str(few_logs), "--rank", "1", "--out", str(link), "--json", "--force"]) == 0
    assert link.is_symlink() and nc.load(link).rank == nc.load(store / "today.newcomer").rank == 1
    assert os.listdir(store) == ["today.newcomer"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OutputError, match="points to itself"):
        model.save(tmp_path / "round")


@pytest.mark.parametrize("words", [["inspect", "M"], ["inspect", "M", "--json"], ["--help"], ["fit", "--json-schema"]])
def test_nobody_has_to_read_to_the_end(model: nc.Model, tmp_path: Path, words: list[str]) -> None:
    """As with `| head -1`, but nobody reads at all, so that it does not depend on who is quicker."""
    model.save(tmp_path / "m.newcomer")
    words = [str(tmp_path / "m.newcomer") if word == "M" else word for word in words]
    for both in (False, True):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*NEWCOMER, *words], check=False, stdout=writer, stderr=writer if both else subprocess.PIPE
        )
        os.close(writer)
        assert done.returncode == 0 and not done.stderr


def test_a_command_goes_on_when_nobody_reads_it(few_logs: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m newcomer fit {few_logs} --rank 2 --out {tmp_path}/m.newcomer"
    line = f"set -o pipefail; {command} 2>&1 | head -1"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and "Traceback" not in done.stderr
    assert nc.load(tmp_path / "m.newcomer").rank == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_removes_spilled_rows(tmp_path: Path, scratch: Path, name: str) -> None:
    logs = tmp_path / "logs.parquet"
    Synthetic(dim=20, seed=0).write_logs(logs, 20_000, 10, 0)
    command = [*NEWCOMER, "fit", str(logs), "--memory", "1MB", "--out", str(tmp_path / "m.newcomer")]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which under nohup is ignored, and inherited
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    signal.signal(signal.SIGHUP, before)
    until = time.monotonic() + PATIENCE
    while not any(scratch.glob("newcomer-*/*")):
        assert process.poll() is None and time.monotonic() < until, "rows were never spilled"
        time.sleep(0.01)
    process.send_signal(getattr(signal, name))
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}[name]
    assert list(scratch.iterdir()) == [] and "Traceback" not in told and not (tmp_path / "m.newcomer").exists()


def test_temporary_folders_are_private(scratch: Path) -> None:
    before = os.umask(0)
    try:
        spill = Spill(8)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in scratch.iterdir()] == [0o700]
    spill.close()


def test_every_exit_code_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    main.execute_command(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for code, meaning in main.EXIT_CODES.items():
        assert f"{code} {meaning}" in told and f"| {code} | {meaning}" in page
    errors = (LogsError(""), ModelError(""), NewcomerError(""), OSError(), KeyError(), MemoryError())
    assert {main._explain(error) for error in errors} <= main.EXIT_CODES.keys()


def test_too_little_memory_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main._explain(MemoryError("Unable to allocate 72.1 MiB")) == 6
    assert capsys.readouterr().err.startswith("error: there is not enough memory (Unable to allocate 72.1 MiB): ")


def limited(gigabytes: float) -> dict[str, Any]:
    """For a process with so much address space."""
    most = int(gigabytes * 1e9)
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))}


def test_too_little_address_space_is_refused_at_once() -> None:
    done = subprocess.run(
        [*NEWCOMER, "fit", "logs.csv"], check=False, capture_output=True, text=True, timeout=PATIENCE, **limited(0.5)
    )
    assert done.returncode == 6 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "needs 1 GB of address space" in done.stderr and "ulimit -v" in done.stderr
    asked = subprocess.run([*NEWCOMER, "--help"], check=False, capture_output=True, text=True, **limited(0.5))
    assert asked.returncode == 0 and "fit" in asked.stdout


def test_a_small_address_space_will_do(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs.csv", users=100)
    for given, code in ((["--rank", "1"], 0), (["--rank", "one"], 2)):
        command = [*NEWCOMER, "fit", str(tmp_path / "logs.csv"), "--out", str(tmp_path / "m.newcomer"), *given]
        done = subprocess.run(command, check=False, capture_output=True, text=True, **limited(1.05))
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("end", "code"), [("kill -ABRT $$", 6), ("exit 3", 3), ("kill -TERM $$", 143)])
def test_what_becomes_of_the_second_process_is_told(
    end: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\n{end}\n")
    stub.chmod(0o700)
    before = {name: signal.getsignal(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP")}
    monkeypatch.setattr(main, "main_address_space_limit", lambda: 2_000_000_000)
    monkeypatch.setattr(main.sys, "executable", str(stub))
    assert main.run_main_in_second_process(["fit", "logs.csv"]) == code
    assert ("not enough memory: raise the limit of 2.0 GB" in capsys.readouterr().err) == (code == 6)
    monkeypatch.setenv(main.INSIDE, "1")
    assert main.run_main_in_second_process(["fit", "logs.csv"]) is None
    for name, handler in before.items():
        signal.signal(getattr(signal, name), handler)


def test_a_model_that_cannot_be_written_as_json_is_refused(model: nc.Model, tmp_path: Path) -> None:
    from dataclasses import replace

    for wrong in (replace(model, parameters={"x": float("inf")}), replace(model, parameters={"x": object()})):
        with pytest.raises(ModelError, match="cannot be written"):
            wrong.save(tmp_path / "m.newcomer")
    assert os.listdir(tmp_path) == []
