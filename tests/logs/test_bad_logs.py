"""Guards bad input: each kind is one LogsError that says what is wrong, where, and what to do."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from tests.optional import optional

GOOD = {"user": [1, 1, 2, 2], "step": [0, 1, 0, 1], "action": [0, 1, 1, 0], "reward": [0.0, 1.0, 0.5, 0.25]}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write good logs with some columns replaced (None: left out) and give the path."""

    def make(name: str = "logs.parquet", **columns: Any) -> Path:
        frame = pl.DataFrame(
            {key: value for key, value in {**GOOD, **columns}.items() if value is not None}, strict=False
        )
        path = tmp_path / name
        frame.write_csv(path) if name.endswith("csv") else frame.write_parquet(path)
        return path

    return make


def refused(call: Callable[[], object], *parts: str) -> LogsError:
    """The call fails with one line that has all the parts, and something to do."""
    with pytest.raises(LogsError) as caught:
        call()
    error = caught.value
    assert all(part in str(error) for part in parts), str(error)
    assert error.todo and "\n" not in str(error), str(error)
    return error


def test_missing_column_suggests_the_nearest(write: Write) -> None:
    path = write(reward=None, rewrad=[1, 2, 3, 4])
    refused(lambda: nc.read_logs(path), "no column 'reward'", "logs.parquet", "did you mean 'rewrad'")
    refused(lambda: nc.Logs.from_frame(pl.read_parquet(path)), "no column 'reward'", "did you mean 'rewrad'")
    refused(lambda: nc.read_logs(write(), columns={"user": "usr"}), "no column 'usr'", "did you mean 'user'")
    refused(lambda: nc.read_logs(write(action=None)), "no column 'action'", "take them with features='x*'")


def test_renaming_what_is_no_part_of_logs(write: Write) -> None:
    refused(
        lambda: nc.read_logs(write(), columns={"usr": "user"}), "'usr' is not a part of logs", "did you mean 'user'"
    )
    refused(lambda: nc.read_logs(write(), columns={"step": ["step", "user"]}), "'step' is one column")
    refused(lambda: nc.read_logs(write(), columns={"user": ["step", "user"]}), "'user' is one column")
    refused(lambda: nc.read_logs(write(), columns={"reward": None}), "no column 'reward'")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["reward", "propensity"])
def test_not_finite(write: Write, column: str, value: float) -> None:
    for name in ("a.parquet", "a.csv"):
        path = write(name, **{column: [0.5, 0.5, value, 0.5]})
        gap = name == "a.csv" and np.isnan(value)  # where everything is text, nan is a word for a missing value
        what = f"{column} is missing" if gap else f"{value}, not a finite number"
        refused(lambda path=path: nc.read_logs(path), what, name, f"row 3, column {column}")


def test_not_finite_features(write: Write) -> None:
    features = [[1.0, 2.0], [1.0, np.nan], [1.0, 2.0], [1.0, 2.0]]
    refused(lambda: nc.read_logs(write(features=features)), "nan", "row 2, column features")
    refused(lambda: nc.Logs.from_arrays(user=GOOD["user"], reward=GOOD["reward"], features=features), "nan", "row 2")
    refused(lambda: nc.read_logs(write(), items=[[1.0, np.inf], [1.0, 1.0]]), "inf", "row 1, column items")


def test_sums_that_overflow_are_no_error() -> None:
    logs = nc.Logs.from_arrays(user=[1, 1], features=np.full((2, 2), 1e308), reward=[0.0, 1.0])
    assert logs.summary.rows == 2


@pytest.mark.parametrize("column", ["user", "step", "action", "reward"])
def test_missing_values(write: Write, column: str) -> None:
    values = [*GOOD[column][:3], None]
    for name in ("a.parquet", "a.csv"):
        path = write(name, **{column: values})
        refused(lambda path=path: nc.read_logs(path), f"{column} is missing", f"row 4, column {column}")


def test_missing_values_in_features(write: Write) -> None:
    refused(lambda: nc.read_logs(write(features=[[1.0], None, [1.0], [1.0]])), "features is missing", "row 2")
    refused(lambda: nc.read_logs(write(features=[[1.0], [1.0], [None], [1.0]])), "features is missing", "row 3")


def test_unknown_action(write: Write) -> None:
    path = write(action=[0, 1, 7, 0])
    refused(lambda: nc.read_logs(path, items=np.eye(2)), "action 7 is not among the 2 items", "row 3, column action")


def test_actions_of_another_type_than_items(write: Write) -> None:
    items = pl.DataFrame({"action": ["a", "b"], "x": [1.0, 2.0]})
    refused(lambda: nc.read_logs(write(), items=items), "action 0 is not among the 2 items", "row 1, column action")


def test_ragged_features(write: Write, tmp_path: Path) -> None:
    refused(
        lambda: nc.read_logs(write(features=[[1.0], [1.0, 2.0], [1.0], [1.0]])),
        "2 features where other rows have 1",
        "row 2",
    )
    refused(lambda: nc.read_logs(write(features=[[], [], [], []])), "no features")
    write("1.parquet", features=[[1.0]] * 4)
    write("2.parquet", features=[[1.0, 2.0]] * 4, step=[2, 3, 2, 3])
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    refused(lambda: nc.read_logs(paths), "2 features where other rows have 1", "2.parquet, row 1")
    ragged: Any = [[1.0], [1.0, 2.0]]
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], reward=[0, 1], features=ragged), "features")


def test_equal_integer_steps(write: Write) -> None:
    path = write(step=[0, 1, 5, 5])
    refused(lambda: nc.read_logs(path), "user 2 has step 5 more than once", "timestamps", "epoch='s'")
    assert nc.read_logs(path, epoch="s").summary.ties == 2


@pytest.mark.parametrize("column", ["reward", "propensity", "step"])
def test_text_where_numbers_belong(write: Write, column: str) -> None:
    for name in ("a.parquet", "a.csv"):
        path = write(name, **{column: ["1", "1", "many", "1"]})
        refused(lambda path=path: nc.read_logs(path), "text", "where", f"{name}", f"column {column}")
    refused(lambda: nc.read_logs(write("a.csv", **{column: ["1", "1", "many", "1"]})), "text 'many'", "row 3")


def test_text_features(write: Write) -> None:
    refused(lambda: nc.read_logs(write(features=[["a"]] * 4)), "text 'a' where numbers belong", "column features")
    refused(lambda: nc.read_logs(write(features=["[1, 2]"] * 4)), "features are text", "columns={'features'")
    text: Any = [["a"], ["b"]]
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], reward=[0, 1], features=text), "features are not numbers")
    path = write("a.csv", x=["1", "2", "3", "oops"])
    refused(lambda: nc.read_logs(path, columns={"features": ["x"]}), "text 'oops'", "row 4, column x")


def test_ids_and_steps_of_odd_types(write: Write) -> None:
    refused(lambda: nc.read_logs(write(user=[0.5, 1.0, 2.0, 3.0])), "ids are of type Float64", "column user")
    refused(lambda: nc.read_logs(write(step=[0.5, 1.0, 2.0, 3.0])), "steps are of type Float64", "column step")
    refused(lambda: nc.read_logs(write(reward=[[1]] * 4)), "reward is of type List", "use numbers")
    huge = np.array([1, 2, 2**63, 4], dtype=np.uint64)
    refused(lambda: nc.read_logs(write(user=huge)), "id 9223372036854775808 is too large", "row 3")


def test_times_out_of_range(write: Write) -> None:
    path = write(step=[datetime(1000, 1, 1)] * 4)
    refused(lambda: nc.read_logs(path), "a time is out of range", "column step")


def test_empty_files(tmp_path: Path, write: Write) -> None:
    for name in ("none.parquet", "none.csv"):
        (tmp_path / name).write_bytes(b"")
        refused(lambda name=name: nc.read_logs(tmp_path / name), "the file is empty", name)
    for name in ("head.csv", "head.parquet"):
        path = write(name, **{key: [] for key in GOOD})
        refused(lambda path=path: nc.read_logs(path), "no rows", path.name)
    refused(lambda: nc.Logs.from_arrays(user=[], features=np.empty((0, 2)), reward=[]), "no rows")
    refused(lambda: nc.Logs.from_frame(pl.DataFrame({key: [] for key in GOOD})), "no rows")


def test_files_that_are_not_there(tmp_path: Path, write: Write) -> None:
    write("logs.parquet")
    refused(lambda: nc.read_logs(tmp_path / "log.parquet"), "no such file", "did you mean 'logs.parquet'")
    refused(lambda: nc.read_logs(tmp_path / "away" / "x.csv"), "no such file")
    refused(lambda: nc.read_logs(str(tmp_path / "*.csv")), "no file matches", "*.csv")
    refused(lambda: nc.read_logs([]), "no files given")
    (tmp_path / "folder").mkdir()
    refused(lambda: nc.read_logs(tmp_path / "folder"), "no logs in this folder")
    refused(lambda: nc.read_logs(tmp_path / "logs.parquet", items=tmp_path / "item.csv"), "no such file", "item.csv")


def test_unknown_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "logs.xlsx").write_text("x")
    refused(lambda: nc.read_logs(tmp_path / "logs.xlsx"), "unknown kind of file", ".parquet", ".csv")


def test_corrupt_files(tmp_path: Path, write: Write) -> None:
    whole = write().read_bytes()
    for name, data in {
        "cut.parquet": whole[:-20],
        "text.parquet": b"user,reward",
        "footer.parquet": b"PAR1" + b"?" * 60 + b"PAR1",
    }.items():
        (tmp_path / name).write_bytes(data)
        refused(lambda name=name: nc.read_logs(tmp_path / name), "cannot read the file", name, "Parquet")
    (tmp_path / "latin.csv").write_bytes("user,action,reward\nJosé,2,3\n".encode("latin-1"))
    refused(lambda: nc.read_logs(tmp_path / "latin.csv"), "cannot read the file", "latin.csv", "CSV in UTF-8")


def test_bad_items(write: Write) -> None:
    path = write()
    twice = pl.DataFrame({"action": [0, 1, 0], "x": [1.0, 2.0, 3.0]})
    refused(lambda: nc.read_logs(path, items=twice), "item 0 occurs more than once", "row 3")
    words = pl.DataFrame({"action": [0, 1], "kind": ["a", "b"], "genre": ["c", "d"]})
    refused(lambda: nc.read_logs(path, items=words), "items have no numeric columns", "one-hot")
    refused(
        lambda: nc.read_logs(path, items=words.rename({"action": "acton"})),
        "no column 'action'",
        "did you mean 'acton'",
    )
    refused(lambda: nc.read_logs(path, items=words[:0]), "the items table has no rows")
    ragged = pl.DataFrame({"action": [0, 1], "features": [[1.0], [1.0, 2.0]]})
    refused(lambda: nc.read_logs(path, items=ragged), "2 features where other rows have 1", "row 2")
    refused(
        lambda: nc.read_logs(path, items=pl.DataFrame({"action": [0, 1], "x": [1.0, None]})), "x is missing", "row 2"
    )
    refused(lambda: nc.read_logs(path, items=[1.0, 2.0]), "items have shape (2,)")
    refused(lambda: nc.read_logs(path, items={"a": 1}), "items")


def test_a_slip_in_a_numeric_column_of_items_is_not_taken_for_text(tmp_path: Path, write: Write) -> None:
    (tmp_path / "items.csv").write_text("action,x,y\n0,1,2\n1,1,l\n2,1,3\n")
    refused(
        lambda: nc.read_logs(write(), items=tmp_path / "items.csv"), "text 'l' where numbers belong", "row 2, column y"
    )


def test_any_number_of_actions_is_one_hot() -> None:
    many = np.arange(20_001)
    logs = nc.Logs.from_arrays(user=many % 9, action=many, reward=many)
    assert logs.dim == 20_001 and logs.one_hot and logs.wide


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5])
def test_propensity_outside_its_range(write: Write, value: float) -> None:
    path = write(propensity=[0.5, value, 1.0, 1.0])
    refused(lambda: nc.read_logs(path), f"propensity {value:g} is outside (0, 1]", "row 2, column propensity")


def test_types_that_differ_between_files(tmp_path: Path, write: Write) -> None:
    def pair(**columns: Any) -> list[Path]:
        return [write("1.parquet"), write("2.parquet", **columns)]

    refused(
        lambda: nc.read_logs(pair(user=list("abcd"))), "user holds text here and integers in earlier rows", "2.parquet"
    )
    refused(lambda: nc.read_logs(pair(action=list("abcd"))), "action holds text here and integers", "2.parquet")
    refused(
        lambda: nc.read_logs(pair(step=[datetime(2024, 1, i) for i in range(1, 5)])),
        "step holds timestamps here",
        "2.parquet",
    )
    refused(lambda: nc.read_logs(pair(step=None)), "column 'step' is missing here", "2.parquet")
    refused(lambda: nc.read_logs(pair(propensity=[1.0] * 4)), "column 'propensity' is only here", "2.parquet")


def test_csv_ids_are_text_as_soon_as_one_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,action,reward\n1,1,1\n1,2,1\n")
    (tmp_path / "b.csv").write_text("user,action,reward\nx,1,1\nx,2,1\n")
    logs = nc.read_logs(str(tmp_path / "*.csv"))
    assert next(logs.batches()).users.tolist() == ["1", "x"] and logs.action_ids == (1, 2)


def test_arrays_that_do_not_fit_together() -> None:
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], features=np.ones((3, 1)), reward=[1, 2]), "arrays differ in shape")
    refused(
        lambda: nc.Logs.from_arrays(user=[1, 1], action=[1], reward=[1, 2]), "arrays differ in shape", "action (1,)"
    )
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], features=np.ones(2), reward=[1, 2]), "features have shape (2,)")
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], reward=[1, 2]), "neither features nor actions")
    mixed: Any = np.array([1, "a"], dtype=object)
    refused(lambda: nc.Logs.from_arrays(user=mixed, features=np.ones((2, 1)), reward=[1, 2]), "user mixes types")
    words: Any = ["a", "b"]
    refused(lambda: nc.Logs.from_arrays(user=[1, 1], features=np.ones((2, 1)), reward=words), "text 'a' where numbers")


def test_what_is_not_a_table() -> None:
    refused(lambda: nc.Logs.from_frame([1, 2, 3]), "a list is not a table", "from_arrays")


def test_lazy_frames_that_fail() -> None:
    lazy = pl.LazyFrame({"user": ["a"], "action": [1], "reward": [1]}).with_columns(pl.col("user").cast(pl.Int64))
    refused(lambda: nc.Logs.from_frame(lazy), "the lazy frame cannot be read")


def test_batches_of_no_rows(write: Write) -> None:
    refused(lambda: next(nc.read_logs(write()).batches(rows=0)), "rows of a batch", "not 0")


def test_pandas_missing_values() -> None:
    pandas = optional("pandas")
    frame = pandas.DataFrame({**GOOD, "user": ["a", None, "b", "b"]})
    refused(lambda: nc.Logs.from_frame(frame), "user is missing", "row 2, column user")


@pytest.mark.parametrize("value", [1e308, -1.1e75])
def test_rewards_of_which_squares_are_no_numbers(write: Write, value: float) -> None:
    for name in ("a.parquet", "a.csv"):
        path = write(name, reward=[0.0, 1.0, value, 0.5])
        refused(lambda path=path: nc.read_logs(path), f"reward {value:g} is beyond 1e+75", name, "row 3, column reward")
    given = {"user": GOOD["user"], "action": GOOD["action"], "reward": [0.0, 1.0, value, 0.5]}
    refused(lambda: nc.Logs.from_arrays(**given), f"reward {value:g} is beyond 1e+75", "row 3")
    assert nc.read_logs(write(reward=[0.0, 1.0, 1e75, -1e75])).summary.rows == 4


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.csv.gz"])
def test_utf_16(write: Write, tmp_path: Path, name: str, encoding: str) -> None:
    path, content = tmp_path / name, write("b.csv").read_text().encode(encoding)
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    error = refused(lambda: nc.read_logs(path), "the file looks like UTF-16", name)
    assert error.todo == "save it as UTF-8"
    refused(lambda: nc.read_logs(write(), items=path), "the file looks like UTF-16", name)


def test_bytes_that_are_no_text(write: Write, tmp_path: Path) -> None:
    random = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)
    for content in (random.tobytes(), random[random > 0].tobytes(), write("c.parquet").read_bytes()):
        path = tmp_path / "a.csv"
        path.write_bytes(content)
        refused(lambda path=path: nc.read_logs(path), "this is not a text file", "a.csv")


def test_text_in_utf_8_may_be_cut_within_a_letter_and_latin_1_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user,action,reward\n" + "ä,ö,1\nü,ß,2\n" * 500)
    assert nc.read_logs(path).summary.rows == 1000
    path.write_text("user,action,reward\nä,ö,1\n", encoding="latin-1")
    refused(lambda: nc.read_logs(path), "cannot read the file", "UTF-8")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_row_with_too_many_values_is_named(tmp_path: Path, name: str) -> None:
    text = 'user,action,reward\n"a, b",x,1\n\n"two\nlines",y,0\nc,z,1,9\nd,z,1,9\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    refused(lambda: nc.read_logs(path), "a row has 4 values, and there are 3 columns", f"{name}, line 6")


@pytest.mark.parametrize(
    ("value", "todo"),
    [
        ("$4.00", "remove the currency sign: write 4.00"),
        ("4,5 €", "remove the currency sign: write 4.5"),
        ("4,5", "write 4.5"),
        ("1,000", "use numbers"),
        ("good", "use numbers"),
    ],
)
def test_prices_and_decimal_commas_are_told_how_to_be_written(write: Write, value: str, todo: str) -> None:
    path = write("a.csv", reward=["1", "2", value, "4"])
    assert refused(lambda: nc.read_logs(path), f"text {value!r} where numbers belong", "row 3").todo == todo


def test_a_file_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for line in ("u0,i39,4", "u0,4,4"):
        path.write_text(f"{line}\nu1,i2,3\n")
        refused(lambda: nc.read_logs(path), "is the first line data, not names?", "a.csv")
    path.write_text("who,what,stars\nu1,i2,3\n")
    assert "first line" not in refused(lambda: nc.read_logs(path), "no column 'user'").todo
