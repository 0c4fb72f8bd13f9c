"""Guards the Dask engine with a real cluster of processes on the loopback interface, some of which are killed."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.cli import main
from newcomer.em import attributes
from newcomer.em.attributes import AttributeTask
from newcomer.errors import EngineError, LogsError, MissingExtra
from newcomer.logs import dask as ours
from newcomer.logs import disk_store
from newcomer.logs import workers as engines
from newcomer.logs.reduce import reduce
from newcomer.population import AttributePrior, Population
from newcomer.serve.store_sqlite import SqliteStore
from newcomer.sold.moments import merge_moments, moments_of
from tests.helpers import same_moments, write_parquet
from tests.logs.candidate_logs import expected, kept, table
from tests.optional import optional
from tests.serve.running import observations, running

optional("distributed", name="dask")

add_up = partial(moments_of, ridge=1.0)
EVERY = np.ones(64, dtype=np.bool_)
PATIENCE = 300.0  # seconds, on a machine that others use: what hangs fails, what is slow does not


class Fatal:
    """Work that kills its worker the first time it is done."""

    def __init__(self, work, token: Path) -> None:
        self.work, self.token = work, token

    def __call__(self, given, task):
        try:
            self.token.touch(exist_ok=False)
        except FileExistsError:
            return self.work(given, task)
        os.kill(os.getpid(), signal.SIGKILL)


class Haunted:
    """An engine whose n-th piece of work kills a worker; everything else is left to the engine."""

    def __init__(self, engine, nth: int, token: Path) -> None:
        self.engine, self.left, self.token = engine, nth, token

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def _armed(self, work):
        self.left -= 1
        return Fatal(work, self.token) if self.left == 0 else work

    def each(self, work, tasks, **options):
        return self.engine.each(self._armed(work), tasks, **options)

    def fold(self, work, tasks, merge, **options):
        return self.engine.fold(self._armed(work), tasks, merge, **options)


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def cluster(temporary):
    with ours.Dask(workers=2, folder=temporary) as engine:
        yield engine


@pytest.fixture(params=["workers", "a cluster"])
def engine(request, cluster, crew):
    """Two processes of this machine, and a cluster of two."""
    return cluster if request.param == "a cluster" else crew


@pytest.fixture(autouse=True)
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ENOUGH", 0)
    monkeypatch.setattr(disk_store, "FEWEST", 100)
    monkeypatch.setattr(disk_store, "TASKS", (1, 8))


def gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300))


def test_arrays_files_workers_and_cluster_agree(cluster, crew, tmp_path: Path) -> None:
    """For SOLD and for the prior: from arrays, from files by one process and by two, and by a cluster."""
    folder = write_parquet(tmp_path / "logs")
    frame = pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])
    columns = {name: frame[name].to_numpy() for name in ("user", "reward", "step")}
    arrays = nc.Logs.from_arrays(features=np.array(frame["features"].to_list()), **columns)
    rivals = {
        "one process": nc.read_logs(folder, memory=20_000),
        "two workers": nc.read_logs(folder, engine=crew),
        "a cluster": nc.read_logs(folder, engine=cluster),
    }
    sums = reduce(arrays, add_up, merge_moments)
    same_moments(reduce(arrays.on(cluster), add_up, merge_moments), sums, 1e-10)
    sold, prior = (nc.fit(arrays, rank=2, estimator=how, calibrate=False) for how in ("sold", "em"))
    for name, logs in rivals.items():
        assert logs == arrays, name
        same_moments(reduce(logs, add_up, merge_moments), sums, 1e-10)
        for wanted in (sold, prior):
            found = nc.fit(logs, rank=2, estimator=wanted.estimator, calibrate=False)
            assert gap(found.basis, wanted.basis) < 1e-6, name
            assert gap(found.mean, wanted.mean) < 1e-6, name
            assert gap(found.covariance, wanted.covariance) < 1e-6, name
            assert found.noise_variance == pytest.approx(wanted.noise_variance, rel=1e-6), name


def test_the_outlook_is_the_same_on_a_cluster(cluster, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    users, steps = 200, 14
    taste = rng.standard_normal((users, 2)) @ rng.standard_normal((2, 20))
    which = np.stack([rng.permutation(20)[:steps] for _ in range(users)])
    reward = np.take_along_axis(taste, which, 1) + 0.3 * rng.standard_normal(which.shape)
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(users), steps), action=which.ravel(), reward=reward.ravel())
    alone, shared = (nc.fit(one, rank=2, null=False, calibrate=False) for one in (logs, logs.on(cluster)))
    one, two = (model.evidence.population.outlook for model in (alone, shared))
    assert one is not None and two is not None
    assert [s.gain for s in two.steps] == pytest.approx([s.gain for s in one.steps], rel=1e-6)


@pytest.mark.parametrize(("stage", "nth"), [("the read", 1), ("the shuffle", 2), ("the moments", 3)])
def test_a_worker_killed_before_em_changes_nothing(engine, tmp_path: Path, stage: str, nth: int) -> None:
    folder, token = write_parquet(tmp_path / "logs"), tmp_path / "killed"
    logs = nc.read_logs(folder, engine=Haunted(engine, nth, token))
    assert token.exists() == (nth <= 2) and logs == nc.read_logs(folder)
    same_moments(reduce(logs, add_up, merge_moments), reduce(nc.read_logs(folder), add_up, merge_moments), 1e-10)
    assert token.exists(), f"nobody was killed during {stage}"


def test_a_worker_killed_in_an_em_pass_changes_nothing(engine, tmp_path: Path) -> None:
    folder, token = write_parquet(tmp_path / "logs"), tmp_path / "killed"
    expected = nc.fit(nc.read_logs(folder), rank=2, calibrate=False)
    found = nc.fit(nc.read_logs(folder, engine=Haunted(engine, 7, token)), rank=2, calibrate=False)
    assert token.exists(), "nobody was killed"
    assert gap(found.mean, expected.mean) < 1e-6 and gap(found.covariance, expected.covariance) < 1e-6


def test_a_corrupt_file_is_named_and_nothing_is_left(cluster, temporary: Path, tmp_path: Path) -> None:
    folder, before = write_parquet(tmp_path / "logs"), set(temporary.iterdir())
    whole = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogsError, match=r"cannot read the file.*1\.parquet"):
        nc.read_logs(folder, engine=cluster)
    (folder / "1.parquet").write_bytes(whole[:100] + b"\xff" * 2000 + whole[2100:])  # pages damaged, footer whole
    with pytest.raises(LogsError, match=r"1\.parquet"):
        nc.read_logs(folder, engine=cluster)
    assert set(temporary.iterdir()) == before


def test_grouped_partitions_are_not_shuffled_and_checked(cluster, temporary: Path, tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "logs", grouped=True, text=True)
    logs = nc.read_logs(folder, engine=cluster, grouped=True)
    assert logs == nc.read_logs(folder)
    same_moments(reduce(logs, add_up, merge_moments), reduce(nc.read_logs(folder), add_up, merge_moments), 1e-10)
    frame = pl.read_parquet(folder / "2.parquet")
    who = frame["user"][0]
    frame[:1].with_columns(pl.col("step") + 10_000).write_parquet(folder / "3.parquet")
    with pytest.raises(LogsError, match=rf"user '{who}' is in two partitions \(.*2.parquet and .*3.parquet\)"):
        nc.read_logs(folder, engine=cluster, grouped=True)


def test_temporary_folders_are_private_and_go(cluster, temporary: Path, tmp_path: Path) -> None:
    before = set(temporary.iterdir())
    logs = nc.read_logs(write_parquet(tmp_path / "logs"), engine=cluster)
    (made,) = set(temporary.iterdir()) - before
    assert made.stat().st_mode & 0o777 == 0o700
    logs.close()
    assert not made.exists()


def test_two_clusters_do_not_complain_of_each_other(cluster, tmp_path: Path) -> None:
    """Warnings are errors here; and both listen on the loopback interface alone."""
    with ours.Dask(workers=1, folder=tmp_path) as second:
        addresses = [one._cluster.scheduler.http_server.address for one in (cluster, second)]
    assert addresses == ["127.0.0.1", "127.0.0.1"]


def test_a_cluster_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(**options: object) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fails)
    with pytest.raises(EngineError, match="processes of the cluster cannot be started: in a script, put what it does"):
        ours.Dask(folder=tmp_path)


def test_workers_must_see_the_folder(cluster, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot open the client's folder"):
        cluster.visible(tmp_path / "elsewhere")


@pytest.mark.parametrize("who", ["local", "dask"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, who: str) -> None:
    """No file may grow beyond 80 kB: what a full disk does to a worker that spills."""
    folder, scratch = write_parquet(tmp_path / "logs", users=50_000, dim=8, files=3), tmp_path / "scratch"
    scratch.mkdir()
    words = f"fit {folder} --engine {who} --workers 2 --out {tmp_path}/m.newcomer"
    command = f"ulimit -f 80; exec {sys.executable} -m newcomer {words}"
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    _, sign, told = done.stderr.partition("error: ")  # behind lines of progress, where reading took long
    assert done.returncode == 3 and sign and told.count("\n") == 1, done.stderr
    assert "cannot write temporary files: File too large" in told and "TMPDIR" in told
    assert list(scratch.iterdir()) == [] and not (tmp_path / "m.newcomer").exists()


def test_no_dask_and_no_scheduler_are_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path) -> None:
    logs = str(write_parquet(tmp_path / "logs"))
    out = ["--out", str(tmp_path / "m.newcomer")]
    monkeypatch.setattr(ours, "PATIENCE", 0.5)
    assert main.execute_command(["fit", logs, "--engine", "dask", "--scheduler", "tcp://127.0.0.1:9", *out]) == 6
    assert "the cluster cannot be reached" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'newcomer\[dask\]'"):
        ours.Dask()
    assert main.execute_command(["fit", logs, "--engine", "dask", *out]) == 6
    for wrong in (["--engine", "spark"], ["--scheduler", "x"], ["--workers", "0"]):
        assert main.execute_command(["fit", logs, *wrong, *out]) == 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_interrupted_command_ends_its_cluster(tmp_path: Path, name: str) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir(), out.mkdir()
    logs = write_parquet(tmp_path / "logs", users=50_000, dim=12)
    command = [sys.executable, "-m", "newcomer", "fit", logs, "--engine", "dask", "--out", out / "m.newcomer"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE
    while not any(out.glob("m.newcomer.partial/*")):
        assert process.poll() is None and time.monotonic() < until, "no pass was ever made"
        time.sleep(0.02)
    process.send_signal(getattr(signal, name))
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == {"SIGTERM": 143, "SIGINT": 130}[name] and "Traceback" not in told, told
    assert "--resume continues from there" in told and list(scratch.iterdir()) == []
    assert [path.name for path in out.iterdir()] == ["m.newcomer.partial"]


def test_a_fit_from_the_command_line(cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logs, address = write_parquet(tmp_path / "logs"), cluster._client.scheduler.address
    words = ["fit", str(logs), "--rank", "2", "--estimator", "sold", "--engine", "dask", "--scheduler", address]
    assert main.execute_command([*words, "--out", str(tmp_path / "m.newcomer")]) == 0
    assert nc.load(tmp_path / "m.newcomer").fingerprint == nc.read_logs(logs).summary.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "m.newcomer"]


def test_candidates_and_arms_are_shuffled_too(cluster, tmp_path: Path) -> None:
    frame = table(9, rows=300)
    for number in range(3):
        frame[number::3].write_parquet(tmp_path / f"logs-{number}.parquet")
    logs = nc.read_logs(tmp_path, engine=cluster)
    assert kept(logs) == expected(frame)
    assert logs.summary.fingerprint == nc.Logs.from_frame(frame).summary.fingerprint


def test_attributes_of_users_reach_every_worker(engine, tmp_path: Path) -> None:
    """The effects of attributes are those of one process."""
    folder = write_parquet(tmp_path / "logs")
    users = pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])["user"].unique().sort()
    people = pl.DataFrame([users, pl.Series("age", np.random.default_rng(0).normal(size=len(users)))])
    alone, several = (nc.read_logs(folder, users=people, engine=one) for one in (None, engine))
    assert alone.summary.fingerprint == several.summary.fingerprint
    task = AttributeTask(Population(np.zeros(alone.dim), np.zeros((alone.dim, 0)), 1.0), np.eye(alone.dim), 0, EVERY)
    prior = AttributePrior(np.zeros((0, 1)), np.ones((1, 1)))
    look = partial(attributes.add_up_attribute_information, tasks=(task,), prior=prior, entries=(0,))
    first, second = (reduce(logs, look, operator.add).each[0] for logs in (alone, several))
    assert gap(second.precision, first.precision) < 1e-10 and gap(second.score, first.score) < 1e-10
    assert first.users.sum() == len(users)


def test_a_store_of_a_service_is_read_by_every_worker(engine, tmp_path: Path) -> None:
    with running(SqliteStore(tmp_path / "store")) as service, nc.Client(service.url) as client:
        client.observe_batch(observations(100, 8))
    alone, together = (nc.read_logs(f"sqlite:///{tmp_path}/store", engine=one) for one in (None, engine))
    assert alone == together and alone.action_ids == together.action_ids
    fits = [nc.fit(logs, rank=1, calibrate=False) for logs in (alone, together)]
    assert gap(fits[1].mean, fits[0].mean) < 1e-6 and gap(fits[1].covariance, fits[0].covariance) < 1e-6


def test_features_in_columns_are_the_same_on_every_worker(engine, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {"user": np.repeat(np.arange(60), 5), "reward": rng.normal(size=300), "x_price": rng.normal(size=300)}
    frame = pl.DataFrame(
        {**columns, "x_colour": rng.choice(["red", "blue"], 300), "action": rng.choice(["a", "b"], 300)}
    )
    for part in range(3):
        frame[part::3].write_parquet(tmp_path / f"{part}.parquet")
    alone, several = (nc.read_logs(tmp_path, features="x_*", engine=one) for one in (None, engine))
    assert alone.feature_names == several.feature_names == ("x_price", "x_colour=blue", "x_colour=red")
    assert alone.summary.fingerprint == several.summary.fingerprint
    same_moments(reduce(several, add_up, merge_moments), reduce(alone, add_up, merge_moments), 1e-10)
