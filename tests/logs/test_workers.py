"""Guards the local engine: worker processes give the numbers of one process, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError, NewcomerError
from newcomer.logs import disk_store, workers
from newcomer.logs.batch import Batch
from newcomer.logs.reduce import reduce
from newcomer.logs.sample import sample_logs
from newcomer.logs.workers import WorkerPool
from newcomer.sold.moments import merge_moments, moments_of
from tests.helpers import same_moments, write_parquet

PATIENCE = 300.0  # seconds, on a machine that others use: what hangs fails, what is slow does not


@pytest.fixture(autouse=True)
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ENOUGH", 0)
    monkeypatch.setattr(disk_store, "FEWEST", 50)
    monkeypatch.setattr(disk_store, "TASKS", (1, 12))


def add(a: float, b: float) -> float:
    return a + b


def rewards(batch: Batch) -> float:
    return float(batch.rewards.sum())


def twice(given: int, task: int) -> int:
    return given + 2 * task


def fails(given: object, task: int) -> int:
    if task == 3:
        raise LogsError("reward is missing", where="a.csv, row 7", todo="fill it in")
    return task


def dies_once(given: str, task: int) -> int:
    token = Path(given)
    if task == 2 and not token.exists():
        token.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def dies(given: object, task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def pid_after(given: object, task: float) -> int:
    time.sleep(task)
    return os.getpid()


def test_answers_come_in_the_order_of_tasks(crew: WorkerPool) -> None:
    assert list(crew.each(twice, range(40), given=1)) == [1 + 2 * i for i in range(40)]
    assert crew.fold(twice, range(5), add, given=0, tell=lambda _: None) == 20
    assert list(crew.each(twice, [])) == []


def test_an_error_of_a_worker_is_raised_here_and_the_crew_goes_on(crew: WorkerPool) -> None:
    with pytest.raises(LogsError, match=r"reward is missing \(a.csv, row 7\): fill it in"):
        list(crew.each(fails, range(6)))
    half = crew.each(twice, range(10), given=0)
    assert next(half) == 0
    half.close()
    assert list(crew.each(twice, range(3), given=5)) == [5, 7, 9]


def test_a_killed_worker_is_replaced(crew: WorkerPool, tmp_path: Path) -> None:
    assert list(crew.each(dies_once, range(6), given=str(tmp_path / "token"))) == list(range(6))
    with pytest.raises(NewcomerError, match="3 worker processes died of the same task"):
        list(crew.each(dies, [0]))


def test_moments_are_those_of_one_process(crew: WorkerPool, tmp_path: Path, scratch: Path) -> None:
    folder = write_parquet(tmp_path / "logs")
    held, spilled = nc.read_logs(folder), nc.read_logs(folder, memory=20_000)
    alone = reduce(held, partial(moments_of, ridge=1.0), merge_moments)
    with WorkerPool(1) as one:
        by_one = reduce(held.on(one), partial(moments_of, ridge=1.0), merge_moments)
    by_two = reduce(held.on(crew), partial(moments_of, ridge=1.0), merge_moments)
    same_moments(by_one, by_two, 0.0)
    for found in (by_two, reduce(spilled.on(crew), partial(moments_of, ridge=1.0), merge_moments)):
        same_moments(found, alone, 1e-10)


def test_a_sample_is_passed_over_by_the_workers_of_its_logs(crew: WorkerPool, tmp_path: Path, scratch: Path) -> None:
    logs = nc.read_logs(write_parquet(tmp_path / "logs"))
    ours, theirs = sample_logs(logs, 100), sample_logs(logs.on(crew), 100)
    assert ours.engine is None and theirs.engine is crew and theirs.summary == ours.summary
    sums = [reduce(one, partial(moments_of, ridge=1.0), merge_moments) for one in (theirs, ours)]
    same_moments(*sums, 1e-10)


def test_progress_counts_rows(crew: WorkerPool, tmp_path: Path) -> None:
    logs, heard = nc.read_logs(write_parquet(tmp_path / "logs")).on(crew), []
    total = reduce(logs, rewards, add, progress=lambda done, rows: heard.append((done, rows)))
    assert total == pytest.approx(reduce(nc.read_logs(tmp_path / "logs"), rewards, add))
    assert len(heard) > 3 and heard[-1] == (logs.summary.rows, logs.summary.rows)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)


@pytest.mark.parametrize("text", [False, True])
def test_files_read_by_workers_are_the_same_logs(crew: WorkerPool, tmp_path: Path, scratch: Path, text: bool) -> None:
    folder = write_parquet(tmp_path / "logs", text=text)
    ours, theirs = nc.read_logs(folder), nc.read_logs(folder, engine=crew, clip="auto")
    assert theirs.summary.fingerprint == nc.read_logs(folder, clip="auto").summary.fingerprint
    assert nc.read_logs(folder, engine=crew) == ours
    theirs.close()
    assert not list(scratch.iterdir())


def test_grouped_files_are_not_shuffled_and_the_promise_is_checked(
    crew: WorkerPool, tmp_path: Path, scratch: Path
) -> None:
    folder = write_parquet(tmp_path / "logs", grouped=True)
    logs = nc.read_logs(folder, engine=crew, grouped=True)
    assert logs == nc.read_logs(folder)
    frame = pl.read_parquet(folder / "0.parquet")
    who = frame["user"][0]
    frame.filter(pl.col("user") == who).with_columns(pl.col("step") + 10_000).write_parquet(folder / "9.parquet")
    with pytest.raises(LogsError, match=rf"user {who} is in two partitions \(.*0.parquet and .*9.parquet\)"):
        nc.read_logs(folder, engine=crew, grouped=True)
    del logs
    assert not list(scratch.iterdir())


def test_a_fit_by_two_processes_is_that_of_one(tmp_path: Path, scratch: Path) -> None:
    logs = nc.read_logs(write_parquet(tmp_path / "logs"))
    for settings in ({"estimator": "sold", "rank": 2}, {"rank": 2, "calibrate": False}):
        one, two = nc.fit(logs, **settings), nc.fit(logs, **settings, run=nc.Run(workers=2))
        assert np.abs(one.mean - two.mean).max() < 1e-6 * np.abs(one.mean).max()
        assert np.abs(one.covariance - two.covariance).max() < 1e-6 * np.abs(one.covariance).max()
        assert one.noise_variance == pytest.approx(two.noise_variance, rel=1e-6)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_workers_end_with_their_parent(tmp_path: Path, name: str) -> None:
    code = (
        "from newcomer.logs.workers import WorkerPool; from tests.logs.test_workers import pid_after\n"
        "with WorkerPool(2) as crew:\n"
        "    pids = set(crew.each(pid_after, [0.3, 0.3])); print(*pids, flush=True)\n"
        "    list(crew.each(pid_after, [60, 60]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    process.send_signal(getattr(signal, name))
    process.wait(PATIENCE)
    process.stdout.close()
    until = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until, "workers outlived their parent"
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_command_that_is_interrupted_leaves_no_file_and_no_worker(tmp_path: Path, name: str) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir(), out.mkdir()
    logs = write_parquet(tmp_path / "logs", users=50_000, dim=12, files=6)
    command = [sys.executable, "-m", "newcomer", "fit", logs, "--workers", "2", "--out", out / "m.newcomer"]
    process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE
    while not any(scratch.glob("newcomer-*/rows-*")):
        assert process.poll() is None and time.monotonic() < until, "rows were never spilled"
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(getattr(signal, name))
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == {"SIGTERM": 143, "SIGINT": 130}[name] and "Traceback" not in told
    assert list(scratch.iterdir()) == [] and list(out.iterdir()) == []
    assert children and not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_number_of_workers_is_a_number(tmp_path: Path) -> None:
    logs = nc.Logs.from_arrays(user=[1, 1, 2, 2], features=np.eye(4)[:, :2] + 1, reward=[1, 0, 1, 0])
    for wrong in (0, 1.5, "two"):
        with pytest.raises(NewcomerError, match="workers"):
            nc.fit(logs, run=nc.Run(workers=wrong))
