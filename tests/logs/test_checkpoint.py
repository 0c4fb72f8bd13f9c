"""Guards fits that were interrupted: they go on from what is kept, to the same answer, and only with the same logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import newcomer as nc
from newcomer.em.passes import Passes
from newcomer.errors import LogsError, ModelError
from newcomer.logs.reduce import reduce
from newcomer.serialize import deserialize_record, serialize_record
from newcomer.sold.moments import merge_moments, moments_of
from newcomer.users import Split
from tests.helpers import same_moments, write_parquet

KILLED = """
import os, signal, sys
import newcomer as nc
from newcomer.logs import workers
workers.ENOUGH = 0
def listen(told):
    if told.passes == int(sys.argv[4]):
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
nc.fit(nc.read_logs(sys.argv[1]), rank=2, run=nc.Run(checkpoint=sys.argv[2], listen=listen, workers=int(sys.argv[5])))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_parquet(tmp_path_factory.mktemp("resume") / "logs")


@pytest.fixture(scope="module")
def whole(folder: Path) -> nc.Model:
    return nc.fit(nc.read_logs(folder), rank=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_fit_goes_on_to_the_same_answer(folder, whole, tmp_path, monkeypatch, workers) -> None:
    journal = tmp_path / "journal"
    done = subprocess.run([sys.executable, "-c", KILLED, folder, journal, "SIGKILL", "12", str(workers)], check=False)
    assert done.returncode == -signal.SIGKILL
    kept = len(list(journal.iterdir()))
    assert kept >= 12 and journal.stat().st_mode & 0o777 == 0o700
    read = []
    monkeypatch.setattr(nc.Logs, "batches", lambda self, rows=None, real=nc.Logs.batches: read.append(1) or real(self))
    found = nc.fit(nc.read_logs(folder), rank=2, run=nc.Run(checkpoint=journal, resume=True))
    facts = whole.evidence.population
    if workers == 1:
        assert found.id == whole.id and found.evidence == whole.evidence
    assert np.abs(found.mean - whole.mean).max() < 1e-6 and found.evidence.population.passes == facts.passes
    assert 0 < len(read) and not journal.exists()
    again = len(read)
    nc.fit(nc.read_logs(folder), rank=2)
    assert len(read) - again == again + kept  # no pass that was kept was made again


def test_other_logs_or_settings_are_refused(folder, tmp_path) -> None:
    journal, logs = tmp_path / "journal", nc.read_logs(folder)

    def stop(told) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(logs, rank=2, run=nc.Run(checkpoint=journal, listen=stop))
    assert list(journal.iterdir())
    others = nc.read_logs(write_parquet(tmp_path / "others", seed=1))
    with pytest.raises(LogsError, match="cannot be resumed: the logs have changed since"):
        nc.fit(others, rank=2, run=nc.Run(checkpoint=journal, resume=True))
    with pytest.raises(LogsError, match="another rank was asked for then"):
        nc.fit(logs, rank=1, run=nc.Run(checkpoint=journal, resume=True))
    with pytest.raises(ModelError, match="nothing to resume from"):
        nc.fit(logs, run=nc.Run(resume=True))
    assert list(journal.iterdir()), "a refusal costs nothing"
    nc.fit(others, rank=1, calibrate=False, run=nc.Run(checkpoint=journal))  # without resuming, it begins anew
    assert not journal.exists()


def test_errors_that_resuming_would_not_mend_leave_nothing(tmp_path) -> None:
    rng = np.random.default_rng(0)
    logs = nc.Logs.from_arrays(user=np.arange(40) // 4, features=rng.normal(size=(40, 3)), reward=np.zeros(40))
    with pytest.raises(LogsError, match="all rewards are zero"):
        nc.fit(logs, run=nc.Run(checkpoint=tmp_path / "journal"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_breaks_during_a_fit_is_named_and_the_passes_are_kept(whole, tmp_path) -> None:
    folder = write_parquet(tmp_path / "logs", grouped=True)
    expected = nc.fit(nc.read_logs(folder), rank=2, calibrate=False)
    file, journal = folder / "1.parquet", tmp_path / "journal"
    good = file.read_bytes()

    def damage(told) -> None:
        if told.passes == 6:
            file.write_bytes(good[: len(good) // 2])

    with pytest.raises(LogsError, match=r"cannot read the file.*1\.parquet"):
        nc.fit(
            nc.read_logs(folder, grouped=True), rank=2, calibrate=False, run=nc.Run(checkpoint=journal, listen=damage)
        )
    assert len(list(journal.iterdir())) >= 6
    file.write_bytes(good)
    found = nc.fit(
        nc.read_logs(folder, grouped=True), rank=2, calibrate=False, run=nc.Run(checkpoint=journal, resume=True)
    )
    assert np.abs(found.covariance - expected.covariance).max() < 1e-6 * np.abs(expected.covariance).max()


def test_the_command_says_what_is_kept_and_goes_on(folder, tmp_path) -> None:
    out = tmp_path / "m.newcomer"
    code = (
        "import sys; from newcomer.cli import main, output\n"
        "def stop(self, told):\n    if told.passes == 6: raise KeyboardInterrupt\n"
        "output.Meter.hear = stop\n"
        f"sys.exit(main.execute_command(['fit', {str(folder)!r}, '--rank', '2', '--out', {str(out)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130 and "--resume continues from there" in done.stderr, done.stderr
    assert (tmp_path / "m.newcomer.partial").is_dir()
    words = [sys.executable, "-m", "newcomer", "fit", str(folder), "--rank", "2", "--out", str(out), "--resume"]
    subprocess.run(words, check=True, capture_output=True)
    assert os.listdir(tmp_path) == ["m.newcomer"]


def test_records_come_back_to_the_bit(folder) -> None:
    logs = nc.read_logs(folder)
    moments = reduce(logs, lambda batch: moments_of(batch, ridge=1.0), merge_moments)
    found, facts = deserialize_record(serialize_record("moments", moments, {"ridge": 1.0}), "moments")
    same_moments(found, moments, 0.0)
    assert facts == {"ridge": 1.0} and type(found) is type(moments)
    split = Split(np.array([True]), np.array([False]))
    again = deserialize_record(serialize_record("split", split, {}), "split")[0]
    assert type(again) is Split and again.fitted.tolist() == [True]
    with pytest.raises(TypeError, match="no part of a record"):
        serialize_record("moments", Passes(logs).run, {})
