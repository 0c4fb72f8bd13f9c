"""What was on offer and the arm of the experiment are kept with the rows, whichever way the logs came in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.logs import reader
from newcomer.logs.workers import WorkerPool

IDS = {"text": lambda number: f"drink, {number}", "integers": lambda number: 10 * number}


def table(seed: int, kind: str = "text", rows: int = 60) -> pl.DataFrame:
    """Rows in any order, each with one to five distinct candidates of nine; number 8 is never chosen."""
    rng, name = np.random.default_rng(seed), IDS[kind]
    shown = [rng.permutation(8)[: rng.integers(1, 5)].tolist() for _ in range(rows)]
    chosen = [int(rng.choice(one)) for one in shown]
    offered = [[name(a) for a in [*one, *([8] if rng.random() < 0.3 else [])]] for one in shown]
    return pl.DataFrame(
        {
            "user": rng.integers(0, 9, size=rows),
            "step": np.arange(rows),
            "action": [name(a) for a in chosen],
            "reward": rng.normal(size=rows),
            "candidates": offered,
            "arm": rng.choice(["control", "treated", "random"], size=rows),
        }
    )


def kept(logs: nc.Logs, rows: int | None = None) -> dict[Any, list[tuple[Any, ...]]]:
    """Slow and obvious: each user's rows as (action, candidates, arm), in time order; what is nowhere is None."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    ids = [*(logs.action_ids or ()), None]
    for batch in logs.batches(rows=rows):
        assert batch.candidates is not None and batch.actions is not None and batch.arms is not None
        owner = np.repeat(np.arange(len(batch.users)), batch.lengths)
        for j, i in enumerate(owner):
            shown = batch.candidates.actions[batch.candidates.offsets[j] : batch.candidates.offsets[j + 1]]
            row = (ids[batch.actions[j]], [ids[a] for a in shown], logs.arms[batch.arms[j]])
            found.setdefault(batch.users[i], []).append(row)
    return found


def expected(frame: pl.DataFrame) -> dict[Any, list[tuple[Any, ...]]]:
    """The definition: sorted by step, grouped by user."""
    known = set(frame["action"])
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in frame.sort("step").iter_rows(named=True):
        shown = [one if one in known else None for one in row["candidates"]]
        found.setdefault(row["user"], []).append((row["action"], shown, row["arm"]))
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(IDS)), rows=st.integers(1, 30))
def test_every_way_in_keeps_them(seed: int, kind: str, rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    frame, folder = table(seed, kind), tmp_path_factory.mktemp("logs")
    frame.write_parquet(folder / "logs.parquet")
    frame.write_ndjson(folder / "logs.jsonl")
    as_json = frame.with_columns(pl.col("candidates").map_elements(_json, return_dtype=pl.String))
    as_json.write_csv(folder / "json.csv")
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


def _json(values: pl.Series) -> str:
    return str(values.to_list()).replace("'", '"')


def test_spilled_and_shared_in_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_ROWS", 7)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 7)
    frame = table(3, rows=500)
    for number in range(3):
        frame[number::3].write_parquet(tmp_path / f"logs-{number}.parquet")
    held, spilled = nc.read_logs(tmp_path), nc.read_logs(tmp_path, memory=1)
    assert kept(held) == kept(spilled) == expected(frame)
    with WorkerPool(2) as crew:
        shared = nc.read_logs(tmp_path, engine=crew)
        assert kept(shared) == kept(held.on(crew)) == expected(frame)
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


def _logs(**changed: Any) -> Callable[[], nc.Logs]:
    columns = {"user": [1, 1], "action": ["a", "b"], "reward": [0, 1], "candidates": [["a", "b"], ["b"]]}
    return lambda: nc.Logs.from_frame(pl.DataFrame({**columns, **changed}, strict=False))


BAD = {
    "the chosen action is not among its candidates (row 2, column candidates)": _logs(candidates=[["a"], ["a"]]),
    "candidates are empty (row 1, column candidates)": _logs(candidates=[[], ["b"]]),
    "candidates is missing (row 2, column candidates)": _logs(candidates=[["a"], None]),
    "an action is twice among the candidates (row 1": _logs(candidates=[["a", "a"], ["b"]]),
    "a candidate of ['a', None] is no action id (row 1": _logs(candidates=[["a", None], ["b"]]),
    "the chosen action is not among its candidates (row 1": _logs(candidates=[[1], [2]]),
    "a candidate of ['a', 'b'] is no action id (row 1": _logs(action=[1, 2]),
    "candidates are lists of type Float64": _logs(candidates=[[1.5], [2.5]]),
    "candidates are of type Float64": _logs(candidates=[1.0, 2.0]),
    "candidates that are no list": _logs(candidates=["[", "[b]"]),
    "arm is missing (row 2, column arm)": _logs(arm=["x", None]),
    "ids are of type Float64": _logs(arm=[0.5, 1.0]),
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
        _logs(**{part: [[], None] if part == "candidates" else ["x", None]})()


def test_some_of_the_people_keep_theirs() -> None:
    frame = table(4)
    logs = nc.Logs.from_frame(frame)
    some = logs.some(lambda hashes: hashes % np.uint64(2) == 0)
    assert kept(some) == {user: kept(logs)[user] for user in kept(some)}
