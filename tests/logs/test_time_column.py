"""The time of a row, where nobody has named its column: recognised when one column says it, mentioned when not."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError

LATER_FIRST = {"user": [1, 1, 2, 2], "action": ["a", "b", "b", "a"], "reward": [1.0, 0.0, 0.5, 0.25]}


def rewards(logs: nc.Logs) -> list[float]:
    return [float(one) for batch in logs.batches() for one in batch.rewards]


def told(logs: nc.Logs) -> str:
    return " ".join(logs.advice)


@pytest.fixture(params=["frame", "parquet", "csv"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def made(more: dict[str, Any], **how: Any) -> nc.Logs:
        frame = pl.DataFrame({**LATER_FIRST, **more})
        if request.param == "frame":
            return nc.Logs.from_frame(frame, **how)
        path = tmp_path / f"logs.{request.param}"
        _ = frame.write_csv(path) if request.param == "csv" else frame.write_parquet(path)
        return nc.read_logs(path, **how)

    return made


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("visit_date", ["14/11/2022", "13/11/2022", "2/1/2023", "1/1/2023"]),
        ("sent_at", ["2024-01-21 14:06:00", "2024-01-14 14:41:00", "2024-01-21 14:06:00", "2024-01-14 14:41:00"]),
        ("sentAt", [date(2024, 1, 2), date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 1)]),
        ("t", [9, 3, 5, 1]),
        ("day", ["2024-03-13", "2024-03-07", "2024-03-13", "2024-03-07"]),
    ],
)
def test_one_column_that_says_when_is_taken_and_said(read: Any, name: str, values: list[Any]) -> None:
    logs = read({name: values})
    assert logs.ordered and rewards(logs) == [0.0, 1.0, 0.25, 0.5]
    assert f"Column {name} is taken as the time of a row" in told(logs)
    left_out = read({name: values}, columns={"step": None})
    assert not left_out.ordered and rewards(left_out) == [1.0, 0.0, 0.5, 0.25]


def test_a_column_of_times_is_taken_whatever_its_name() -> None:
    logs = nc.Logs.from_frame(pl.DataFrame({**LATER_FIRST, "moment": [date(2024, 1, 4 - i) for i in range(4)]}))
    assert logs.ordered and rewards(logs) == [0.0, 1.0, 0.25, 0.5]


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"visit_date": ["2024-01-02", None, "2024-01-02", "2024-01-01"]}, "missing in 1 of 4 rows"),
        ({"visit_date": ["03/02/2024", "01/02/2024", "03/02/2024", "01/02/2024"]}, "read two ways"),
        ({"visit_day": ["Monday", "Tuesday", "Monday", "Tuesday"]}, "cannot be read"),
        ({"sent_at": [4, 3, 2, 1], "seen_at": [1, 2, 3, 4]}, "'sent_at' and 'seen_at' could each be the time"),
    ],
)
def test_what_only_looks_like_a_time_is_mentioned_and_the_order_unknown(read: Any, columns: Any, note: str) -> None:
    logs = read(columns)
    assert not logs.ordered and rewards(logs) == [1.0, 0.0, 0.5, 0.25]
    assert note in told(logs) and "file order" in told(logs)


def test_missing_times_are_dropped_where_gaps_are(read: Any) -> None:
    logs = read({"visit_date": ["2024-01-02", None, "2024-01-02", "2024-01-01"]}, missing="drop")
    assert logs.ordered and rewards(logs) == [1.0, 0.25, 0.5] and "visit_date in 1" in told(logs)


def test_gaps_of_times_are_told_with_the_other_gaps(read: Any) -> None:
    """What the error counts is what is then left out."""
    gaps = {"visit_date": ["2024-01-02", None, "2024-01-02", "2024-01-01"], "reward": [None, 0.0, 0.5, 0.25]}
    with pytest.raises(LogsError, match="reward is missing.*visit_date looks like.*missing in 1 of 4 rows"):
        read(gaps)
    assert "2 of 4 rows have a missing value" in told(read(gaps, missing="drop"))


@pytest.mark.parametrize("columns", [{}, {"watch_time": [4, 3, 2, 1]}, {"birth_date": [4, 3, 2, 1]}])
def test_other_columns_are_no_times(read: Any, columns: Any) -> None:
    logs = read(columns)
    assert not logs.ordered and rewards(logs) == [1.0, 0.0, 0.5, 0.25] and "time of a row" not in told(logs)


def test_equal_steps_of_a_recognised_column_are_ties(read: Any) -> None:
    logs = read({"t": [2, 2, 1, 1]})
    assert logs.summary.ties == 4 and not logs.ordered
    with pytest.raises(LogsError, match="more than once"):
        read({"t": [2, 2, 1, 1]}, columns={"step": "t"})


def test_arrays_are_in_time_order_and_samples_keep_what_is_known(tmp_path: Path) -> None:
    assert nc.Logs.from_arrays(**LATER_FIRST).ordered
    logs = nc.Logs.from_frame(pl.DataFrame(LATER_FIRST))
    assert not logs.ordered and not logs.some(lambda hashes: hashes > 0).ordered
