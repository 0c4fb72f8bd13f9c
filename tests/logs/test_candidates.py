"""What was on offer and the arm of the experiment are kept with the rows, whichever way the logs came in."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.logs import reader
from newcomer.logs.workers import WorkerPool
from tests.logs.candidate_logs import IDS, as_json, expected, kept, logs_of, table


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(IDS)), rows=st.integers(1, 30))
def test_every_way_in_keeps_them(seed: int, kind: str, rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    frame, folder = table(seed, kind), tmp_path_factory.mktemp("logs")
    frame.write_parquet(folder / "logs.parquet")
    frame.write_ndjson(folder / "logs.jsonl")
    asas_json = frame.with_columns(pl.col("candidates").map_elements(as_json, return_dtype=pl.String))
    asas_json.write_csv(folder / "json.csv")
    with_bars = frame.with_columns(pl.col("candidates").cast(pl.List(pl.String)).list.join("|"))
    with_bars.write_csv(folder / "bars.csv")
    frame.sort("user", maintain_order=True).write_parquet(folder / "grouped.parquet")
    ways = [
        nc.Logs.from_frame(frame),
        nc.Logs.from_arrays(**{name: frame[name].to_list() for name in frame.columns}),
        nc.Logs.from_frame(frame[np.random.default_rng(seed).permutation(len(frame))]),
        *(nc.read_logs(folder / name) for name in ("logs.parquet", "logs.jsonl", "json.csv", "bars.csv")),
        nc.read_logs(folder / "logs.parquet", memory=1),
        nc.read_logs(folder / "grouped.parquet", grouped=True),
    ]
    for logs in ways:
        assert kept(logs, rows) == kept(logs) == expected(frame)
        assert logs.summary.fingerprint == ways[0].summary.fingerprint


def test_spilled_and_shared_in_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: WorkerPool) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 7)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 7)
    frame = table(3, rows=500)
    for number in range(3):
        frame[number::3].write_parquet(tmp_path / f"logs-{number}.parquet")
    held, spilled = nc.read_logs(tmp_path), nc.read_logs(tmp_path, memory=1)
    assert kept(held) == kept(spilled) == expected(frame)
    shared = nc.read_logs(tmp_path, engine=crew)
    assert shared.engine is crew and kept(shared) == kept(held.on(crew)) == expected(frame)
    assert shared.summary.fingerprint == spilled.summary.fingerprint == held.summary.fingerprint


def test_fingerprints_count_them_only_where_they_are() -> None:
    frame = table(5)

    def fingerprint(frame: pl.DataFrame) -> str:
        return nc.Logs.from_frame(frame).summary.fingerprint

    bare = frame.drop("candidates", "arm")
    assert (
        fingerprint(frame.select(bare.columns))
        == nc.Logs.from_frame(frame, columns={"candidates": None, "arm": None}).summary.fingerprint
    )
    different = {
        fingerprint(bare),
        fingerprint(frame.drop("arm")),
        fingerprint(frame.drop("candidates")),
        fingerprint(frame),
        fingerprint(frame.with_columns(pl.col("arm").str.replace("treated", "uplifted"))),
        fingerprint(frame.with_columns(candidates=pl.concat_list("action"))),
    }
    assert len(different) == 6
    assert fingerprint(frame.with_columns(pl.col("candidates").list.reverse())) == fingerprint(frame)


def test_fingerprints_of_logs_without_them_are_those_of_before() -> None:
    logs = nc.Logs.from_arrays(user=[1, 1, 2], action=["a", "b", "a"], reward=[1.0, 0.0, 0.5], propensity=[0.5] * 3)
    assert logs.summary.fingerprint == "03d7b8aa4641cbbf"


def test_what_was_shown_and_never_chosen_is_said() -> None:
    logs = nc.Logs.from_arrays(user=[1, 1], action=["a", "a"], reward=[0, 1], candidates=[["a", "b"], ["a"]])
    assert logs.action_ids == ("a",) and logs.dim == 1
    assert any(said.startswith("1 of 3 entries of candidates name actions that were never") for said in logs.advice)


def test_with_items_every_candidate_has_a_place() -> None:
    logs = nc.Logs.from_arrays(user=[1, 1], action=[0, 2], items=np.eye(3), reward=[0, 1], candidates=[[0, 1], [2, 1]])
    (batch,) = logs.batches()
    assert batch.candidates is not None and batch.candidates.actions.tolist() == [0, 1, 2, 1]
    assert not batch.candidates.actions.flags.writeable and batch.candidates.lengths.tolist() == [2, 2]


def test_a_column_called_arm_may_be_the_action() -> None:
    frame = pl.DataFrame({"user": [1, 1], "arm": ["a", "b"], "reward": [0, 1]})
    logs = nc.Logs.from_frame(frame, columns={"action": "arm"})
    assert logs.action_ids == ("a", "b") and logs.arms == ()


def test_without_actions_candidates_are_left_out_and_that_is_said() -> None:
    frame = pl.DataFrame({"user": [1, 1], "features": [[1.0], [2.0]], "reward": [0, 1], "candidates": [[1], [2]]})
    logs = nc.Logs.from_frame(frame)
    assert next(logs.batches()).candidates is None
    assert any("Column candidates was left out" in said for said in logs.advice)


BAD = {
    "the chosen action is not among its candidates (row 2, column candidates)": logs_of(candidates=[["a"], ["a"]]),
    "candidates are empty (row 1, column candidates)": logs_of(candidates=[[], ["b"]]),
    "candidates is missing (row 2, column candidates)": logs_of(candidates=[["a"], None]),
    "an action occurs twice among the candidates (row 1": logs_of(candidates=[["a", "a"], ["b"]]),
    "a candidate of ['a', None] is no action id (row 1": logs_of(candidates=[["a", None], ["b"]]),
    "the chosen action is not among its candidates (row 1": logs_of(candidates=[[1], [2]]),
    "a candidate of ['a', 'b'] is no action id (row 1": logs_of(action=[1, 2]),
    "candidates are lists of type Float64": logs_of(candidates=[[1.5], [2.5]]),
    "candidates are of type Float64": logs_of(candidates=[1.0, 2.0]),
    "candidates that are no list": logs_of(candidates=["[", "[b]"]),
    "arm is missing (row 2, column arm)": logs_of(arm=["x", None]),
    "ids are of type Float64": logs_of(arm=[0.5, 1.0]),
    "candidate 7 is not among the 2 items (row 1": lambda: nc.Logs.from_arrays(
        user=[1], action=[0], reward=[1], items=np.eye(2), candidates=[[0, 7]]
    ),
    "arrays differ in shape": lambda: nc.Logs.from_arrays(user=[1], action=[0], reward=[1], candidates=[[0], [1]]),
    "candidates is not a list of lists": lambda: nc.Logs.from_arrays(
        user=[1, 2], action=[0, 1], reward=[1, 1], candidates=[[0], {"a": 1}]
    ),
    "1,001 different arms": lambda: nc.Logs.from_arrays(
        user=np.arange(1001), action=np.zeros(1001, int), reward=np.ones(1001), arm=np.arange(1001)
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_values_are_one_sentence(what: str) -> None:
    with pytest.raises(LogsError, match=re.escape(what)) as error:
        BAD[what]()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("part", ["candidates", "arm"])
def test_the_error_says_how_to_do_without(part: str) -> None:
    with pytest.raises(LogsError, match=re.escape(f"--column {part}=")):
        logs_of(**{part: [[], None] if part == "candidates" else ["x", None]})()


def test_some_of_the_people_keep_theirs() -> None:
    frame = table(4)
    logs = nc.Logs.from_frame(frame)
    some = logs.some(lambda hashes: hashes % np.uint64(2) == 0)
    assert kept(some) == {user: kept(logs)[user] for user in kept(some)}
