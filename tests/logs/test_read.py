"""Guards reading files as people have them: separators, decimal commas, words, folders, JSON lines, gzip, pipes, names.

Each of these gave an error, or a wrong answer without a word, before; what is decided on the reader's own is said.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import LogsError
from newcomer.logs import reader
from tests.optional import optional

PLAIN = "user,step,action,reward\nann,1,tea,0.5\nann,2,rum,1.25\nben,1,tea,-2\nben,2,rum,0\n"


def rewards(logs: nc.Logs) -> dict[Any, list[float]]:
    """Each user's rewards in time order."""
    found = {}
    for batch in logs.batches():
        parts = np.split(batch.rewards, batch.offsets[1:-1])
        found |= dict(zip(batch.users.tolist(), map(np.ndarray.tolist, parts), strict=True))
    return found


def told(logs: nc.Logs, *parts: str) -> bool:
    """Whether one sentence of the advice has all the parts."""
    return any(all(part in sentence for part in parts) for sentence in logs.advice)


def refused(call: Any, *parts: str) -> None:
    """The call fails with one line that has all the parts, and something to do."""
    with pytest.raises(LogsError) as caught:
        call()
    said = str(caught.value)
    assert all(part in said for part in parts), said
    assert caught.value.todo and "\n" not in said, said


def write(path: Path, text: str = PLAIN) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()
    path.write_bytes(packed)
    return path


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar")])
@pytest.mark.parametrize("comma", [True, False])
def test_separators_and_decimal_commas_are_found_and_said(
    tmp_path: Path, separator: str, word: str, comma: bool
) -> None:
    text = PLAIN.replace(",", separator)
    path = write(tmp_path / "logs.csv", text.replace(".", ",") if comma else text)
    logs = nc.read_logs(path)
    assert rewards(logs) == {"ann": [0.5, 1.25], "ben": [-2.0, 0.0]}
    assert logs.summary.fingerprint == nc.read_logs(write(tmp_path / "plain.csv")).summary.fingerprint
    assert told(logs, "separated by", word) and told(logs, "Decimals", "comma") == comma


def test_what_needs_no_word_gets_none(tmp_path: Path) -> None:
    assert nc.read_logs(write(tmp_path / "a.csv")).advice == []
    assert nc.read_logs(write(tmp_path / "a.tsv", PLAIN.replace(",", "\t"))).advice == []


def test_a_semicolon_within_a_quoted_value_separates_nothing(tmp_path: Path) -> None:
    text = 'user,"a;b;c;d",action,reward\nann,"x;y",tea,1\nann,"x;y",rum,2\n'
    assert rewards(nc.read_logs(write(tmp_path / "a.csv", text))) == {"ann": [1.0, 2.0]}


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeff" + PLAIN.replace(",", ";").replace("\n", "\r\n"))
    assert rewards(nc.read_logs(path))["ann"] == [0.5, 1.25]


def test_points_and_commas_in_one_file_are_refused_whatever_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.234 might be a thousand and more where 0,5 is a half."""
    rows = [f"{i % 7};{i};{i % 3};{'1.234' if i == 150 else '0,5'}" for i in range(200)]
    path = write(tmp_path / "a.csv", "\n".join(["user;step;action;reward", *rows]))
    for size in (16, 10**6):
        monkeypatch.setattr(reader, "CHUNK_ROWS", size)
        monkeypatch.setattr(reader, "CHUNK_BYTES", 1)
        refused(lambda: nc.read_logs(path), "points", "decimal commas", "a.csv, column reward")


def test_a_comma_in_quotes_between_commas_is_not_taken_for_a_decimal_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'user,action,reward\n1,2,"1,234"\n1,3,"0,5"\n')
    refused(lambda: nc.read_logs(path), "text '1,234' where numbers belong", "row 1, column reward")


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("yes", "no")])
def test_words_are_rewards_of_one_and_zero(tmp_path: Path, yes: str, no: str) -> None:
    path = write(tmp_path / "a.csv", f"user,action,reward\n1,2,{yes}\n1,3,{no}\n2,3,{yes}\n")
    logs = nc.read_logs(path)
    assert rewards(logs) == {1: [1.0, 0.0], 2: [1.0]} and told(logs, "reward", "as 1", "as 0")
    refused(lambda: nc.read_logs(write(path, f"user,action,reward\n1,2,{yes}\n1,2,maybe\n")), "text 'maybe'", "row 2")


def test_words_and_numbers_mix_in_the_same_way_in_every_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["yes" if i % 5 else "0.25" for i in range(100)]
    path = write(
        tmp_path / "a.csv", "\n".join(["user,action,reward", *(f"1,{i % 3},{v}" for i, v in enumerate(values))])
    )
    whole = nc.read_logs(path).summary
    monkeypatch.setattr(reader, "CHUNK_ROWS", 1)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1)
    assert nc.read_logs(path).summary.fingerprint == whole.fingerprint and whole.mean_reward == pytest.approx(0.85)


def test_folders_of_hive_give_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame({"action": [0, 1], "reward": [1.0, 2.0]})
    for user in ("007", "a%20b"):
        for step in ("2024-05-02", "2024-05-01"):
            folder = tmp_path / "logs" / f"user={user}" / f"step={step}"
            folder.mkdir(parents=True)
            (frame * int(step[-1])).with_columns(pl.col("action").clip(0, 1).cast(pl.Int64)).write_parquet(
                folder / "part-0.parquet"
            )
            (folder / "_SUCCESS").write_text("")
    for way in (
        tmp_path / "logs",
        str(tmp_path / "logs" / "**" / "*.parquet"),
        str(tmp_path / "logs/user=*/*/*.parquet"),
    ):
        found = rewards(nc.read_logs(way))
        assert found == {"007": [1.0, 2.0, 2.0, 4.0], "a b": [1.0, 2.0, 2.0, 4.0]}
    numbered = tmp_path / "numbered"
    for user in (3, 12):
        write(numbered / f"user={user}" / "rows.csv", "action,reward\n1,1\n2,0.5\n")
    assert rewards(nc.read_logs(numbered)) == {3: [1.0, 0.5], 12: [1.0, 0.5]}


def test_a_column_of_the_file_wins_over_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "user=zoe" / "a.csv")
    assert set(rewards(nc.read_logs(path))) == {"ann", "ben"}


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.ndjson.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    lines = [
        '{"user": "01", "step": 2, "features": [1, 2.5], "reward": true}',
        '{"user": "01", "step": 1, "features": [3, 4], "reward": false, "note": "x"}',
        '{"reward": true, "features": [5, 6], "user": "1", "step": 1}',
    ]
    logs = nc.read_logs(write(tmp_path / name, "\n".join(lines) + "\n"))
    assert rewards(logs) == {"01": [0.0, 1.0], "1": [1.0]} and logs.dim == 2
    refused(
        lambda: nc.read_logs(write(tmp_path / name, lines[0] + '\n{"user": ')), "cannot read the file", "JSON lines"
    )
    late = "\n".join([lines[0]] * 300 + ['{"user": "2", "step": 1, "features": [1, 2], "reward": "oops"}'])
    refused(lambda: nc.read_logs(write(tmp_path / name, late), columns={"step": None}), "text", "row")


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tsv.gz"])
def test_gzip(tmp_path: Path, name: str) -> None:
    text = PLAIN.replace(",", "\t" if "tsv" in name else ";")
    path = write(tmp_path / name, text)
    assert rewards(nc.read_logs(path)) == {"ann": [0.5, 1.25], "ben": [-2.0, 0.0]}
    path.write_bytes(path.read_bytes()[:-12])
    refused(lambda: nc.read_logs(path), "cannot read the file", name)


def piped(path: Path, data: bytes) -> threading.Thread:
    """Write into a pipe from another thread, as the program before the bar would."""
    thread = threading.Thread(target=lambda: path.write_bytes(data))
    thread.start()
    return thread


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["csv", "gzip", "parquet", "jsonl"])
def test_pipes_are_read_once_and_recognised_by_their_content(tmp_path: Path, kind: str, grouped: bool) -> None:
    frame = pl.read_csv(write(tmp_path / "a.csv"))
    data = {"csv": PLAIN.encode(), "gzip": gzip.compress(PLAIN.encode()), "jsonl": frame.write_ndjson().encode()}
    frame.write_parquet(buffer := io.BytesIO())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = piped(pipe, {**data, "parquet": buffer.getvalue()}[kind])
    logs = nc.read_logs(pipe, grouped=grouped)
    thread.join()
    assert rewards(logs) == rewards(logs) == {"ann": [0.5, 1.25], "ben": [-2.0, 0.0]}


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped(io.TextIOWrapper):
        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(PLAIN.encode())))
    assert rewards(nc.read_logs("-")) == {"ann": [0.5, 1.25], "ben": [-2.0, 0.0]}
    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(b"user,action,reward\n1,2,x\n")))
    refused(lambda: nc.read_logs("-"), "text 'x'", "standard input, data row 1")
    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(b"")))
    refused(lambda: nc.read_logs("-"), "empty", "standard input")
    monkeypatch.setattr(Piped, "isatty", lambda self: True)
    refused(lambda: nc.read_logs("-"), "there is no input on the pipe", "standard input")


def test_what_came_through_a_pipe_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN.encode())))
    logs = nc.read_logs("-", grouped=True)
    assert len(list(tmp_path.iterdir())) == 1
    del logs
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("convert", ["lazy", "reader", "batch", "stream", "relation"])
def test_tables_that_can_be_read_only_once(convert: str) -> None:
    arrow = optional("pyarrow")
    frame = pl.DataFrame({"user": ["a", "a", "b"], "action": [1, 2, 1], "reward": [1.0, 0.5, 2.0], "note": ["x"] * 3})

    class Stream:
        """Something that exports Arrow and nothing else, and only once."""

        def __init__(self) -> None:
            self.kept: Any = arrow.table(frame.to_dict(as_series=False))

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            kept, self.kept = self.kept, None
            return kept.__arrow_c_stream__(requested_schema)

    class Relation:
        """As a relation of DuckDB: its columns are known, its rows come by `arrow()`."""

        columns = tuple(frame.columns)

        def arrow(self) -> Any:
            return arrow.table(frame.to_dict(as_series=False)).to_reader()

    table = arrow.table(frame.to_dict(as_series=False))
    ways = {
        "lazy": frame.lazy,
        "reader": lambda: arrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1)),
        "batch": lambda: table.to_batches()[0],
        "stream": Stream,
        "relation": Relation,
    }
    plain = nc.Logs.from_frame(frame).summary
    assert nc.Logs.from_frame(ways[convert]()).summary == plain
    assert nc.read_logs(ways[convert]()).summary == plain
    items = {"lazy": frame.lazy, "reader": ways["reader"], "relation": Relation}.get(convert)
    if items is not None:
        refused(lambda: nc.Logs.from_frame(frame, items=items()), "item 1 occurs more than once")


def test_a_relation_that_fails_is_one_sentence() -> None:
    class Broken:
        def arrow(self) -> Any:
            raise RuntimeError("Binder Error: no such table\nsecond line")

    refused(lambda: nc.Logs.from_frame(Broken()), "Broken", "Binder Error")
    missing = pl.scan_parquet("/nowhere/at/all.parquet")
    refused(lambda: nc.Logs.from_frame(missing), "the lazy frame cannot be read")


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "frame", "pandas"])
def test_empty_optional_columns_are_left_out_with_a_note(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame(
        {
            "user": [1, 1, 2],
            "step": pl.Series([None] * 3, dtype=pl.Int64),
            "action": [1, 2, 1],
            "features": pl.Series([None] * 3, dtype=pl.Float64 if kind == "csv" else pl.List(pl.Float64)),
            "propensity": pl.Series([None] * 3, dtype=pl.Float64),
            "reward": [1.0, 2.0, 3.0],
        }
    )
    plain = nc.Logs.from_frame(frame.select("user", "action", "reward")).summary.fingerprint
    if kind in ("frame", "pandas"):
        logs = nc.Logs.from_frame(frame if kind == "frame" else frame.to_pandas())
    else:
        path = tmp_path / f"a.{kind}"
        {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[kind](path)
        logs = nc.read_logs(path)
    assert logs.summary.fingerprint == plain
    for name in ("step", "features", "propensity"):
        assert told(logs, f"Column {name} is empty", "left out")


def test_a_column_that_is_empty_in_one_file_only_is_still_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "user,step,action,reward\n1,,2,1\n")
    write(tmp_path / "b.csv", "user,step,action,reward\n1,5,2,1\n")
    refused(lambda: nc.read_logs(tmp_path), "step is missing", "a.csv, data row 1")
    refused(
        lambda: nc.read_logs(write(tmp_path / "c" / "c.csv", "user,action,reward\n1,,2\n1,,2\n")), "action is missing"
    )


@pytest.mark.parametrize("name", ["user", "reward", "action", "step", "propensity", "features", "items"])
def test_masked_arrays_are_refused(name: str) -> None:
    given: dict[str, Any] = {
        "user": np.array([1, 1, 2]),
        "reward": np.array([1.0, 0.5, 1.0]),
        "action": np.array([0, 1, 0]),
        "step": np.array([1, 2, 1]),
        "propensity": np.array([0.5, 0.5, 0.5]),
        "features" if name == "features" else "items": np.ones((3, 2)),
    }
    given[name] = np.ma.masked_array(given[name], mask=given[name] == given[name].flat[0])
    refused(lambda: nc.Logs.from_arrays(**given), f"{name} is a masked array")


def test_ids_with_leading_zeros_are_other_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "user,action,reward\n01,007,1\n1,7,2\n01,7,3\n1,007,4\n")
    items = write(tmp_path / "items.csv", "action,x\n007,1\n7,2\n")
    logs = nc.read_logs(path)
    assert rewards(logs) == {"01": [1.0, 3.0], "1": [2.0, 4.0]} and logs.action_ids == ("007", "7")
    with_items = nc.read_logs(path, items=items)
    assert with_items.action_ids == ("007", "7") and with_items.item_features is not None
    plain = write(tmp_path / "b.csv", "user,action,reward\n10,0,1\n-1,7,2\n0,7,3\n")
    assert nc.read_logs(plain).action_ids == (0, 7) and set(rewards(nc.read_logs(plain))) == {10, -1, 0}


def test_ids_of_two_csv_files_agree_on_their_type(tmp_path: Path) -> None:
    """Logs that happen to hold numbers only, of a catalogue that also knows words; and the other way round."""
    logs = write(tmp_path / "a.csv", "user,action,reward\n1,1,1\n1,2,2\n")
    items = write(tmp_path / "items.csv", "action,x\n1,1\n2,2\nx9,3\n")
    assert nc.read_logs(logs, items=items).action_ids == ("1", "2", "x9")
    odd = write(tmp_path / "b.csv", "user,action,reward\n1,1,1\n1,01,2\n")
    refused(lambda: nc.read_logs(odd, items=write(tmp_path / "i.csv", "action,x\n1,1\n2,2\n")), "action '01' is not")


def test_arrays_are_copied() -> None:
    user, action, step = np.array([1, 1, 2, 2]), np.array([0, 1, 0, 1]), np.arange(4)
    reward, propensity, features, items = np.arange(4.0), np.full(4, 0.5), np.ones((4, 2)), np.eye(2)
    logs = [
        nc.Logs.from_arrays(user=user, action=action, step=step, reward=reward, propensity=propensity, items=items),
        nc.Logs.from_arrays(user=user, features=features, reward=reward, propensity=propensity),
    ]
    before = [(batch.features.copy(), batch.rewards.copy()) for one in logs for batch in one.batches()]
    for array in (user, action, step, reward, propensity, features, items):
        array[:] = 7
    after = [(batch.features, batch.rewards) for one in logs for batch in one.batches()]
    for (features, rewards), (then_features, then_rewards) in zip(before, after, strict=True):
        assert np.array_equal(features, then_features) and np.array_equal(rewards, then_rewards)


@pytest.mark.parametrize(("unit", "scale"), [("seconds", 1), ("milliseconds", 10**3), ("nanoseconds", 10**9)])
@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_unix_times_are_recognised_by_their_size(tmp_path: Path, unit: str, scale: int, kind: str) -> None:
    step = np.array([978_300_760, 978_300_760, 978_300_700]) * scale
    frame = pl.DataFrame({"user": [1, 1, 1], "step": step, "action": [0, 1, 2], "reward": [2.0, 3.0, 1.0]})
    if kind == "frame":
        logs = nc.Logs.from_frame(frame)
    else:
        path = tmp_path / f"a.{kind}"
        frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
        logs = nc.read_logs(path)
    assert rewards(logs) == {1: [1.0, 2.0, 3.0]} and logs.summary.ties == 2
    assert told(logs, "Unix times", unit, "2000-12-31")


def test_the_size_of_all_steps_decides_not_that_of_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One small step among them: these are no times, and two that are equal are an error, however they are cut."""
    frame = pl.DataFrame(
        {"user": [1] * 50, "step": [5, *[978_300_760] * 49], "action": [0] * 50, "reward": np.arange(50.0)}
    )
    frame.write_parquet(tmp_path / "a.parquet")
    for size in (1, 10**6):
        monkeypatch.setattr(reader, "CHUNK_ROWS", size)
        monkeypatch.setattr(reader, "CHUNK_BYTES", 1)
        refused(lambda: nc.read_logs(tmp_path), "step 978300760 more than once", "--epoch s")


@pytest.mark.parametrize(
    ("user", "action", "reward", "step"),
    [
        ("userId", "movieId", "rating", "timestamp"),
        ("user_id", "item_id", "score", "ts"),
        ("Customer ID", "product", "clicked", "date"),
        ("User", "Action", "Reward", "Step"),
    ],
)
def test_common_names_of_columns_are_recognised_and_said(
    tmp_path: Path, user: str, action: str, reward: str, step: str
) -> None:
    text = f"{user},{action},{reward},{step},comment\n1,7,5,978300760,x\n1,9,3,978300700,y\n"
    logs = nc.read_logs(write(tmp_path / "ratings.csv", text))
    assert rewards(logs) == {1: [3.0, 5.0]} and logs.action_ids == (7, 9)
    assert told(logs, f"{user} as user", f"{action} as action", f"{reward} as reward", f"{step} as step", "--column")
    frame = pl.read_csv(tmp_path / "ratings.csv")
    assert rewards(nc.Logs.from_frame(frame)) == {1: [3.0, 5.0]}
    assert rewards(nc.Logs.from_frame(frame, columns={"step": None})) == {1: [5.0, 3.0]}
    assert nc.Logs.from_frame(frame, columns={"action": step}).action_ids == (978300700, 978300760)


def test_the_names_of_the_parts_win_over_common_ones(tmp_path: Path) -> None:
    text = "user,user_id,action,item,reward,rating\n1,8,5,6,0.5,4\n1,8,7,6,0.25,3\n"
    logs = nc.read_logs(write(tmp_path / "a.csv", text))
    assert rewards(logs) == {1: [0.5, 0.25]} and logs.action_ids == (5, 7) and not told(logs, "recognised")


def test_two_columns_for_one_part_are_not_guessed_about(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "user,item,rating,score\n1,2,3,4\n1,3,4,5\n")
    refused(lambda: nc.read_logs(path), "'rating' and 'score' could each be the reward", "--column reward=rating")
    assert rewards(nc.read_logs(path, columns={"reward": "score"})) == {1: [4.0, 5.0]}
    path = write(tmp_path / "b.csv", "user,item,rating,date,time\n1,2,3,2024-05-01,12:00\n1,3,4,2024-05-01,11:00\n")
    logs = nc.read_logs(path)
    assert rewards(logs) == {1: [3.0, 4.0]} and told(logs, "'date' and 'time' could each be the step", "none of them")


def test_a_recognised_step_that_cannot_be_read_says_how_to_do_without(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "user,item,rating,time\n1,2,3,0.25\n1,3,4,1.5\n")
    refused(lambda: nc.read_logs(path), "column time", "--column step=")
    assert nc.read_logs(path, columns={"step": None}).summary.rows == 2


def test_pandas_columns_may_have_any_names() -> None:
    pandas = optional("pandas")
    frame = pandas.DataFrame([[1, 5, 0.5], [1, 6, 1.0]])
    logs = nc.Logs.from_frame(frame, columns={"user": "0", "action": "1", "reward": "2"})
    assert rewards(logs) == {1: [0.5, 1.0]}


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        ({"action": "tmpl"}, "--column action=template"),
        ({"step": "sentat"}, "--column step=sent_at"),
        ({"reward": "clicke"}, "--column reward=clicked"),
    ],
)
def test_a_misspelt_column_is_named_with_its_own_part(tmp_path: Path, columns: Any, advice: str) -> None:
    path = write(tmp_path / "logs.csv", "user_id,sent_at,template,clicked\n1,2024-01-01,a,1\n")
    refused(lambda: nc.read_logs(path, columns=columns), "no column", advice)


def test_a_missing_column_says_what_the_others_are_taken_for(tmp_path: Path) -> None:
    path = write(tmp_path / "logs.csv", "who,song,plays,day\nann,a,1,2024-01-01\n")
    refused(lambda: nc.read_logs(path), "no column 'user'", "recognised are song as action, plays as reward")
