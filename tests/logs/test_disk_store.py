"""Guards the out-of-core paths: spilled buckets and grouped streams hold little, sort right, leave nothing behind."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.logs import reader
from newcomer.logs.disk_store import Spill
from newcomer.logs.histories import Rows


def write(folder: Path, *, users: int = 300, text: bool = False, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, users)
    user = np.repeat(np.arange(users), lengths)
    frame = pl.DataFrame(
        {
            "user": [f"user-{u}" for u in user] if text else user,
            "step": np.arange(len(user)),
            "features": rng.normal(size=(len(user), 3)),
            "reward": rng.normal(size=len(user)),
            "propensity": rng.uniform(0.1, 1, size=len(user)),
        }
    )
    frame = frame[rng.permutation(len(frame))]
    for i in range(3):
        frame[i::3].write_parquet(folder / f"{i}.parquet")
    return folder


def flat(logs: nc.Logs) -> dict[object, list[float]]:
    found = {}
    for batch in logs.batches(rows=50):
        rows = np.column_stack([batch.features, batch.rewards, batch.propensities])
        for user, first, last in zip(batch.users.tolist(), batch.offsets[:-1], batch.offsets[1:], strict=True):
            found[user] = rows[first:last].ravel().tolist()
    return found


@pytest.mark.parametrize("text", [False, True])
def test_spilled_logs_equal_held_ones_on_every_pass(tmp_path: Path, scratch: Path, text: bool) -> None:
    folder = write(tmp_path, text=text)
    held, spilled = nc.read_logs(str(folder / "*.parquet")), nc.read_logs(str(folder / "*.parquet"), memory=20_000)
    assert list(scratch.iterdir()), "nothing was spilled"
    assert flat(held) == flat(spilled) == flat(spilled)
    assert held.summary.fingerprint == spilled.summary.fingerprint


def test_types_that_widen_between_files_survive_spilling(tmp_path: Path, scratch: Path) -> None:
    frame = pl.DataFrame({"user": [1, 2] * 50, "features": [[0.1, 0.2]] * 100, "reward": [1.0] * 100})
    frame.cast({"features": pl.List(pl.Float32)}).write_parquet(tmp_path / "a.parquet")
    frame.cast({"user": pl.Int32}).write_parquet(tmp_path / "b.parquet")
    held, spilled = (nc.read_logs(str(tmp_path / "*.parquet"), memory=memory) for memory in (None, 10))
    assert held.summary.fingerprint == spilled.summary.fingerprint


def test_temporary_files_go_with_the_logs(tmp_path: Path, scratch: Path) -> None:
    logs = nc.read_logs(str(write(tmp_path) / "*.parquet"), memory=20_000)
    assert list(scratch.iterdir())
    del logs
    gc.collect()
    assert not list(scratch.iterdir())


def test_closed_logs_say_so(tmp_path: Path, scratch: Path) -> None:
    logs = nc.read_logs(str(write(tmp_path) / "*.parquet"), memory=20_000)
    logs.close()
    assert not list(scratch.iterdir())
    with pytest.raises(LogsError, match="closed"):
        next(logs.batches())


def test_temporary_files_go_with_the_program(tmp_path: Path, scratch: Path) -> None:
    code = f"import newcomer as nc; kept = nc.read_logs({str(write(tmp_path) / '*.parquet')!r}, memory=20_000)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"TMPDIR": str(scratch)})
    assert not list(scratch.iterdir())


def test_temporary_files_go_when_reading_fails(tmp_path: Path, scratch: Path) -> None:
    folder = write(tmp_path)
    pl.DataFrame(
        {"user": [5], "step": [1], "features": [[1.0, 2.0, np.nan]], "reward": [0.0], "propensity": [0.5]}
    ).write_parquet(folder / "9.parquet")
    with pytest.raises(LogsError, match="nan"):
        nc.read_logs(str(folder / "*.parquet"), memory=20_000)
    assert not list(scratch.iterdir())


def test_equal_steps_far_apart_are_found_when_spilled(tmp_path: Path, scratch: Path) -> None:
    folder = write(tmp_path)
    frame = pl.read_parquet(folder / "0.parquet")
    frame[:1].write_parquet(folder / "9.parquet")
    with pytest.raises(LogsError, match=f"user {frame['user'][0]} has step {frame['step'][0]} more than once"):
        nc.read_logs(str(folder / "*.parquet"), memory=20_000)


def test_a_full_disk_is_one_sentence(scratch: Path) -> None:
    spill = Spill(8)
    scratch.joinpath(next(scratch.iterdir()).name).rmdir()
    with pytest.raises(LogsError, match="cannot write temporary files.*TMPDIR"):
        spill.add(Rows(users=pl.Series([1]), rewards=np.zeros(1), features=np.zeros((1, 1))))


@pytest.mark.parametrize("size", [1, 700, 10**9])
def test_grouped_streams_join_users_across_chunks_and_files(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    frame = pl.concat(pl.read_parquet(file) for file in sorted(write(tmp_path).glob("*.parquet"))).sort(
        "user", descending=True
    )
    middle = len(frame) // 2
    folder = tmp_path / "grouped"
    folder.mkdir()
    frame[:middle].write_parquet(folder / "a.parquet")
    frame[middle:].write_parquet(folder / "b.parquet")
    monkeypatch.setattr(reader, "CHUNK_BYTES", size)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 16)
    grouped, held = nc.read_logs(folder, grouped=True), nc.Logs.from_frame(frame)
    assert flat(grouped) == flat(grouped) == flat(held)
    assert grouped.summary.fingerprint == held.summary.fingerprint
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("chunk", [1, 10**6])
def test_grouped_refuses_users_that_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    user = np.concatenate([np.repeat(np.arange(40), 3), [7, 7]])
    frame = pl.DataFrame({"user": user, "action": np.arange(len(user)) % 3, "reward": np.ones(len(user))})
    frame.write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(reader, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 10)
    with pytest.raises(LogsError, match="user 7 has rows that are not adjacent"):
        nc.read_logs(tmp_path / "a.parquet", grouped=True)
    assert nc.read_logs(tmp_path / "a.parquet").summary.users == 40
